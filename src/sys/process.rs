//! fork(2), kill(2) with any signal number, signal dispositions, and the end of a process that must not unwind.

use super::mount::last_errno;
use nix::sys::signal::SigSet;
use rustix::io::Errno;
use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which side of the fork this is.
pub enum Fork {
    Child,
    Parent { child: i32 },
}

/// fork(2). The caller must have a single thread: the child goes on in a copy of this one alone, and may allocate.
///
/// # Errors
/// The errno of fork(2).
pub fn fork() -> Result<Fork, Errno> {
    // SAFETY: the process is single-threaded (the caller keeps it so), hence no lock can be held by a thread that the
    // child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child }),
    }
}

/// Ends this process without running destructors or exit handlers, which belong to the process it was forked from.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: only ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(status) }
}

/// kill(2) with a plain number: nix and rustix know no name for the real-time signals.
///
/// # Errors
/// The errno of kill(2).
pub fn kill(pid: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: passes two integers to the kernel.
    let result = unsafe { libc::kill(pid, signal) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Gives a signal its default disposition.
///
/// # Errors
/// `EINVAL` for a number that is no signal, or SIGKILL or SIGSTOP.
pub fn default_disposition(signal: i32) -> Result<(), Errno> {
    // SAFETY: no handler is installed, so no code of ours can run at a wrong moment.
    let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(last_errno()) } else { Ok(()) }
}

/// All signals. SigSet::all() leaves out those that the libc at hand keeps for its threads, of which this program has
/// none; to other programs they are signals like any other (musl's third one is SIGRTMIN to those with glibc).
pub fn every_signal() -> SigSet {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: writes within the set.
    unsafe { set.as_mut_ptr().write_bytes(0xff, 1) };
    // SAFETY: any bits make a set.
    let set = unsafe { set.assume_init() };
    // SAFETY: as before; bits of no signal mean nothing to the kernel.
    unsafe { SigSet::from_sigset_t_unchecked(set) }
}

/// Closes every descriptor of the process but `kept` (0, 1 and 2 as well), then goes on with `rest`, which cannot
/// return: whoever owns a closed descriptor further up the stack never gets to use it, or to close it again.
pub fn close_all_but(kept: &[BorrowedFd<'_>], rest: impl FnOnce() -> Infallible) -> ! {
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.sort_unstable();
    let mut first = 0;
    for number in numbers {
        if number > first {
            close_range(first, number - 1);
        }
        first = number + 1;
    }
    close_range(first, u32::MAX);
    match rest() {}
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the only caller never returns to an owner of one of these descriptors. The call can fail only for an
    // empty range, which the caller rules out.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
