//! Process 1 of the box: it starts the command, reaps whatever is orphaned, carries out the supervisor's orders and
//! tells what becomes of the command.
//!
//! It must never end before it told, for its end is the end of every process inside; never pass on its signal mask;
//! and never keep a descriptor of the command's, or a reader of its output would wait for pid 1.

use super::descendants;
use super::wire::{self, Ended, Failure, FailureKind, Order, Report, Stopped, Target, Wait, WireError};
use crate::sys;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, setpgid, tcgetpgrp, tcsetpgrp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Signal, WaitOptions, WaitStatus, getpid, getppid, set_child_subreaper, set_dumpable_behavior,
    set_parent_process_death_signal, wait,
};
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The supervisor's controlling terminal, as pid 1 needs it.
#[derive(Debug)]
pub struct Terminal {
    pub fd: OwnedFd,
    /// Its name on the host, where that is known: not `/dev/tty`, which is any terminal.
    pub name: Option<PathBuf>,
    /// Make the command the foreground group before it runs.
    pub foreground: bool,
}

/// How far pid 1's end reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A pid namespace: the kernel kills all of it.
    Namespace,
    /// None: this process ends its descendants itself, and so must not be killed before it did.
    Descendants,
}

/// Ties this process's life to the supervisor's: the first thing to do after the clone, before anything can block.
///
/// `outside` is the supervisor's end of the channel, of which the clone made a copy: it is closed here, or the channel
/// would never tell of the supervisor's death. The death signal comes first and the look at the parent second: the
/// other way round, a parent that dies in between is never noticed. `getppid` is 0 across pid namespaces, so the look
/// is one at the channel, which the kernel closes before it sends death signals.
///
/// Also leaves the launcher's process group, so that a stop of the whole job never stops pid 1, which has to hear the
/// order to continue.
///
/// # Errors
/// `Gone` when the supervisor is dead, else the errno of prctl(2), setpgid(2) or poll(2).
pub fn bind_to_parent(channel: BorrowedFd<'_>, outside: OwnedFd) -> Result<(), WireError> {
    drop(outside);
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut hung_up = [PollFd::new(&channel, PollFlags::empty())];
    poll(&mut hung_up, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if hung_up[0].revents().contains(PollFlags::HUP) {
        return Err(WireError::Gone);
    }
    rustix::thread::set_name(c"agentbox-init")?;
    setpgid(Pid::from_raw(0), Pid::from_raw(0))
        .map_err(|errno| WireError::System(Errno::from_raw_os_error(errno as i32)))
}

/// Makes this process show nothing of the launcher to those inside: no arguments, no environment, no descriptors, no
/// executable. To be called after the uid map was written, because a process that is not dumpable has its `/proc`
/// files owned by root, and before the command exists. `/proc/self/fd` cannot be used by this process afterwards;
/// execve(2) makes the command dumpable again.
///
/// # Errors
/// The errno of prctl(2) or of reading `/proc/self/stat`.
pub fn hide() -> Result<(), Errno> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    sys::erase_arguments()
}

/// Starts the command and stays as pid 1 until it ended. `command` runs in the child, in a process group of its own,
/// on this process's memory (vfork), calls [`unblock_signals`] right before it executes, and returns only when it could
/// not. It is given the channel.
pub fn run(
    channel: OwnedFd,
    terminal: Option<Terminal>,
    scope: Scope,
    command: impl FnOnce(BorrowedFd<'_>) -> Failure,
) -> ! {
    match Init::start(channel.as_fd(), terminal, scope, command) {
        Ok(init) => init.stay(),
        Err((doing, errno)) => {
            let failure = setup_failure(doing, errno);
            // A supervisor that cannot be told is dead, and the death signal is on its way.
            wire::send_report(channel.as_fd(), &Report::Failed(failure), Wait::Yes).ok();
            sys::exit_now(1)
        }
    }
}

struct Init<'a> {
    channel: BorrowedFd<'a>,
    child_signals: SignalFd,
    terminal: Option<OwnedFd>,
    /// The command's pid, which is its process group's number too.
    command: Pid,
    scope: Scope,
}

/// What changes while pid 1 watches.
#[derive(Default)]
struct State {
    /// The group of the box that held the terminal when the command was stopped.
    held_terminal: Option<Pid>,
    /// Continuing orders carried out so far.
    continues: u32,
}

impl<'a> Init<'a> {
    fn start(
        channel: BorrowedFd<'a>,
        terminal: Option<Terminal>,
        scope: Scope,
        command: impl FnOnce(BorrowedFd<'_>) -> Failure,
    ) -> Result<Init<'a>, (&'static str, Errno)> {
        let at = |doing: &'static str| move |errno: nix::Error| (doing, Errno::from_raw_os_error(errno as i32));
        // Once more: a change of uid or gid since bind_to_parent has cleared it (prctl(2)).
        // Without a pid namespace the channel alone tells of the supervisor's death, and then there is work to do.
        let death = if scope == Scope::Namespace { Some(Signal::KILL) } else { None };
        set_parent_process_death_signal(death).map_err(|errno| ("setting the death signal", errno))?;
        if scope == Scope::Descendants {
            set_child_subreaper(Some(getpid())).map_err(|errno| ("becoming the reaper of orphans", errno))?;
        }
        let init = getpid();
        // All of them: pid 1 acts on none, and SIGTTOU must not stop its tcsetpgrp.
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&sys::every_signal()), None)
            .map_err(at("blocking the signals of pid 1"))?;
        // Ignored, as some parents leave it, it would make the kernel reap the command and lose its status.
        sys::default_disposition(libc::SIGCHLD).map_err(|errno| ("setting the disposition of SIGCHLD", errno))?;
        let child_ended = SigSet::from(nix::sys::signal::Signal::SIGCHLD);
        let child_signals = SignalFd::with_flags(&child_ended, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(at("making a signalfd"))?;
        let child = || -> Infallible {
            become_command(channel, terminal.as_ref(), |channel| match bind_command(init, scope) {
                Ok(()) => command(channel),
                Err(errno) => setup_failure("setting the death signal", errno),
            })
        };
        // On this memory, which costs no copy. Nothing is missed while this process waits: all signals are blocked, and
        // orders and ended children stay where they are.
        let child = sys::vfork(child).map_err(|errno| ("starting the command's process", errno))?;
        let command = Pid::from_raw(child);
        if sys::take_noted_signal() {
            // It came when the child could not be stopped yet: it would have kept this process waiting.
            sys::kill(-child, libc::SIGTSTP).ok();
        }
        Ok(Init { channel, child_signals, terminal: terminal.map(|terminal| terminal.fd), command, scope })
    }

    fn stay(self) -> ! {
        self.tell(&Report::Started, Wait::Yes);
        let mut kept = vec![self.channel, self.child_signals.as_fd()];
        kept.extend(self.terminal.as_ref().map(AsFd::as_fd));
        // At once, not at the command's end: a reader of its output waits until the last writer has closed it, and a
        // descriptor of the void's FUSE connection here would keep it alive past its server.
        sys::close_all_but(&kept, || self.watch())
    }

    fn watch(&self) -> Infallible {
        let mut state = State::default();
        let mut waits_long = false;
        loop {
            let mut ready = [
                PollFd::new(&self.child_signals, PollFlags::IN),
                PollFd::from_borrowed_fd(self.channel, PollFlags::IN),
            ];
            match poll(&mut ready, (!waits_long).then_some(&sys::SHORT_WAIT)) {
                Ok(0) => {
                    // Not before: after a short command the code would be fetched again at once.
                    waits_long = true;
                    sys::forget_code();
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => self.end(1),
            }
            let [children, orders] = ready.map(|fd| !fd.revents().is_empty());
            if children {
                // Emptied before the children are asked: one that ends in between raises it again.
                self.child_signals.read_signal().ok();
                self.reap(&mut state);
            }
            if orders {
                match wire::receive_order(self.channel, Wait::No) {
                    Ok(order) => self.carry_out(order, &mut state),
                    Err(WireError::WouldBlock) => {}
                    // The supervisor is dead, or no longer one that can be obeyed: so ends the box.
                    Err(WireError::Gone | WireError::Garbled | WireError::System(_)) => self.end(1),
                }
            }
        }
    }

    /// Takes in every child that has something to say. Ends the box once the command is among the dead.
    fn reap(&self, state: &mut State) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED) {
            // Orphans are none of the supervisor's business; that they were waited for is enough.
            if pid.as_raw_pid() == self.command.as_raw() {
                self.command_changed(status, state);
            }
        }
    }

    fn command_changed(&self, status: WaitStatus, state: &mut State) {
        if let Some(signal) = status.stopping_signal() {
            self.command_stopped(signal, state);
        } else if status.continued() {
            self.tell(&Report::Continued, Wait::No);
        } else {
            let ended = match (status.exit_status(), status.terminating_signal()) {
                (_, Some(signal)) => Ended::Signaled(signal),
                (Some(status), None) => Ended::Exited(status),
                (None, None) => return,
            };
            self.tell(&Report::Ended(ended), Wait::Yes);
            self.end(0)
        }
    }

    /// In a pid namespace the kernel kills whatever is left, and reaps it before the supervisor can see this process's
    /// end (pid_namespaces(7)).
    fn end(&self, status: i32) -> ! {
        if self.scope == Scope::Descendants {
            descendants::end_all();
        }
        sys::exit_now(status)
    }

    fn command_stopped(&self, signal: i32, state: &mut State) {
        let holder = self.terminal_holder();
        let wants_terminal = signal == libc::SIGTTIN || signal == libc::SIGTTOU;
        if wants_terminal && holder == Some(self.command) {
            // It was stopped just before it was given the terminal.
            self.to_command(libc::SIGCONT, Target::Group);
            return;
        }
        state.held_terminal = if wants_terminal { None } else { holder };
        let foreground = holder.is_some();
        self.tell(&Report::Stopped(Stopped { signal, foreground, continues: state.continues }), Wait::No);
    }

    fn carry_out(&self, order: Order, state: &mut State) {
        match order {
            Order::Proceed => {}
            Order::Signal { signal, to } => self.to_command(signal, to),
            Order::Continue => {
                state.continues = state.continues.wrapping_add(1);
                self.to_command(libc::SIGCONT, Target::Group);
            }
            Order::Foreground => {
                state.continues = state.continues.wrapping_add(1);
                if let Some(terminal) = &self.terminal {
                    // The group that held it last may be gone: then it is the command's own.
                    let last = state.held_terminal.take().filter(|group| tcsetpgrp(terminal, *group).is_ok());
                    if last.is_none() {
                        // Before SIGCONT, or the command could be stopped by its next read again. Failing, it will.
                        tcsetpgrp(terminal, self.command).ok();
                    }
                }
                self.to_command(libc::SIGCONT, Target::Group);
            }
        }
    }

    /// The process group of this box that is the terminal's foreground group.
    fn terminal_holder(&self) -> Option<Pid> {
        // A group outside this pid namespace reads as 0.
        let holder = tcgetpgrp(self.terminal.as_ref()?).ok()?;
        let ours = match self.scope {
            Scope::Namespace => holder.as_raw() > 0,
            Scope::Descendants => holder == self.command || descendants::have_group(holder.as_raw()),
        };
        ours.then_some(holder)
    }

    /// The command is not reaped before pid 1 ends, so its number cannot have become another's.
    fn to_command(&self, signal: i32, to: Target) {
        let pid = match to {
            Target::Process => self.command.as_raw(),
            Target::Group => -self.command.as_raw(),
        };
        // It can fail only for a command that has just ended, and of that the supervisor is told.
        sys::kill(pid, signal).ok();
    }

    /// A supervisor that cannot be told is dead, and the death signal is on its way. With `Wait::No` a report is lost
    /// when a stopped supervisor left hundreds unread: pid 1 has to go on reaping.
    fn tell(&self, report: &Report, wait: Wait) {
        wire::send_report(self.channel, report, wait).ok();
    }
}

fn become_command(
    channel: BorrowedFd<'_>,
    terminal: Option<&Terminal>,
    command: impl FnOnce(BorrowedFd<'_>) -> Failure,
) -> ! {
    let failure = match enter_own_group(terminal) {
        Ok(()) => command(channel),
        Err((doing, errno)) => setup_failure(doing, errno),
    };
    let status = i32::from(failure.kind.status());
    wire::send_report(channel, &Report::Failed(failure), Wait::Yes).ok();
    sys::exit_now(status)
}

fn setup_failure(doing: &str, errno: impl std::fmt::Display) -> Failure {
    Failure { kind: FailureKind::Setup, text: format!("{doing}: {errno}"), hints: Vec::new() }
}

/// Without a pid namespace the command itself, at least, does not outlive a pid 1 that was killed. The signal comes
/// first and the look at the parent second, or a death in between would go unnoticed.
fn bind_command(init: rustix::process::Pid, scope: Scope) -> Result<(), Errno> {
    if scope == Scope::Descendants {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(init) {
            return Err(Errno::SRCH);
        }
    }
    Ok(())
}

fn enter_own_group(terminal: Option<&Terminal>) -> Result<(), (&'static str, nix::Error)> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(|errno| ("making a process group", errno))?;
    if let Some(Terminal { fd, foreground: true, .. }) = terminal {
        // While SIGTTOU is still blocked, and before the command can read. Failing (the terminal hung up), the command
        // is stopped at its first read, and the supervisor decides again.
        tcsetpgrp(fd, nix::unistd::getpid()).ok();
    }
    // Ignored signals survive execve. A shell without job control starts `agentbox &` with INT and QUIT ignored, and
    // Rust ignores PIPE. HUP stays as nohup(1) left it; TSTP, TTIN and TTOU as a shell without job control did.
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
        sys::default_disposition(signal)
            .map_err(|errno| ("setting a signal's disposition", nix::Error::from_raw(errno.raw_os_error())))?;
    }
    // Ctrl-Z must not stop this process before it has executed the command: pid 1 waits for that, and could tell nobody.
    sys::note_signal(libc::SIGTSTP)
        .map_err(|errno| ("setting a signal's disposition", nix::Error::from_raw(errno.raw_os_error())))
}

/// The last act of the command's process before execve(2): a signal that came while it was blocked finds its final
/// disposition, and pid 1 waits no longer than it must for a process that is stopped.
pub(super) fn unblock_signals() -> Result<(), Errno> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .map_err(|errno| Errno::from_raw_os_error(errno as i32))
}
