//! The supervisor's signals: blocked before the box exists, then read from a descriptor.

use crate::sys;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

/// Left alone: faults of our own, SIGCHLD and SIGURG, which nobody means for the command, the limits of our own
/// processor time and file size, and SIGPIPE, which Rust ignores.
const NOT_FORWARDED: [Signal; 11] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGSYS,
    Signal::SIGCHLD,
    Signal::SIGURG,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
];

/// The signals of this process, held back so that none of them ends or stops it before the box heard of it.
///
/// Made before the clone: a signal in between would end the launcher and nothing else. Processes that the supervisor
/// forks and threads that it starts must come later still, so that they inherit the mask.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    before: SigSet,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    pub signal: i32,
    /// By the kernel, which for a terminal's signals means: to the whole foreground group.
    pub from_kernel: bool,
    pub sender: u32,
}

impl Signals {
    /// # Errors
    /// The errno of sigprocmask(2), signal(2) or signalfd(2).
    pub fn block() -> Result<Signals, Errno> {
        let mut set = sys::every_signal();
        set.remove(Signal::SIGPIPE);
        for signal in NOT_FORWARDED {
            set.remove(signal);
        }
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut before))?;
        // Ignored, as some parents leave it, it would make the kernel reap the box before its end can be read.
        sys::default_disposition(libc::SIGCHLD).map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals { fd, before })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next signal that waits, if any. One that is ignored is read here too, for a blocked signal is never thrown
    /// away: so `kill -INT` reaches the command of a launcher that a shell started with INT ignored.
    ///
    /// # Errors
    /// The errno of read(2).
    pub fn next(&self) -> Result<Option<Arrived>, Errno> {
        Ok(self.fd.read_signal()?.map(|info| Arrived {
            signal: info.ssi_signo as i32,
            from_kernel: info.ssi_code == libc::SI_KERNEL,
            sender: info.ssi_pid,
        }))
    }

    /// Stops this process, or its whole process group as the terminal would have, and returns when it was continued,
    /// or at once if the kernel did not stop it: an orphaned process group is not stopped by these signals, since
    /// nobody would continue it. SIGCONT waits to be read if and only if it was stopped, for a stop signal discards
    /// any older one (signal(7), setpgid(2)).
    ///
    /// # Errors
    /// The errno of kill(2) or sigprocmask(2).
    pub fn stop(&self, signal: StopSignal, whole_group: bool) -> Result<(), Errno> {
        let signal = signal.as_signal();
        let target = if whole_group { 0 } else { std::process::id() as i32 };
        sys::kill(target, signal as i32).map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        let set = SigSet::from(signal);
        // Here the process stops.
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None)?;
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)
    }

    /// Puts the mask back. Signals that came after the command's end now act on this process.
    ///
    /// # Errors
    /// The errno of sigprocmask(2).
    pub fn release(self) -> Result<(), Errno> {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None)
    }
}

/// The stop signals that an orphaned process group is safe from. SIGSTOP is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    Suspend,
    WantsInput,
    WantsOutput,
}

impl StopSignal {
    fn as_signal(self) -> Signal {
        match self {
            StopSignal::Suspend => Signal::SIGTSTP,
            StopSignal::WantsInput => Signal::SIGTTIN,
            StopSignal::WantsOutput => Signal::SIGTTOU,
        }
    }
}
