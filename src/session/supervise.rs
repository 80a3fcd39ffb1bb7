//! The wait outside the box: one loop over the signals, the channel and the box's end, and nothing else.
//!
//! Signals go in, stops come out: what the launcher is told is told to the command, and when the command is stopped
//! the launcher's job is stopped too, so that the shell that waits for it sees a job like any other.

use super::backup::Service;
use super::limit::{Due, Limit};
use super::signals::{Arrived, Signals, StopSignal};
use super::terminal::Terminal;
use crate::enforce::wire::{self, Ended, Failure, Order, Report, Stopped, Target, Wait, WireError};
use crate::sys;
use crate::watch::guard::Guard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// A box that was cloned.
#[derive(Debug)]
pub struct Watched {
    pub pid: i32,
    pub pidfd: OwnedFd,
    /// The supervisor's end. The other must be closed here, or the box's death would not show on it.
    pub channel: OwnedFd,
    /// There is no pid namespace: pid 1 has to end the others, and so must be asked to end instead of killed.
    pub asked_to_end: bool,
}

impl Watched {
    /// Ends the box. It fails only for one that has just ended by itself.
    fn end(&self) {
        if self.asked_to_end {
            // To pid 1 this is the supervisor's death, whatever it is busy with.
            rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both).ok();
        } else {
            pidfd_send_signal(&self.pidfd, Signal::KILL).ok();
        }
    }
}

/// What looks at the box from outside while it runs.
pub struct Outside<'a, 'b, 'c> {
    pub guard: &'a mut Guard<'b>,
    /// Told of calls that change files.
    pub service: &'a mut Service<'c>,
}

/// How the run went.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The command did not run.
    Failed(Failure),
    Ended {
        ended: Ended,
        timed_out: bool,
        duration: Duration,
    },
}

/// Why the supervisor gave up. The box was killed before this is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuperviseError {
    /// Pid 1 ended by itself during the setup, without a word.
    Silent(Ended),
    Channel(WireError),
    /// What changes files could not be told, so the command cannot go on.
    Service(String),
    System {
        doing: &'static str,
        errno: Errno,
    },
}

impl std::fmt::Display for SuperviseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SuperviseError::Silent(Ended::Signaled(signal)) => {
                write!(f, "the box's first process was killed by signal {signal} during the setup")
            }
            SuperviseError::Silent(Ended::Exited(status)) => {
                write!(f, "the box's first process ended with status {status} during the setup and said nothing")
            }
            SuperviseError::Channel(err) => err.fmt(f),
            SuperviseError::Service(why) => write!(f, "the notification service failed: {why}"),
            SuperviseError::System { doing, errno } => write!(f, "{doing}: {errno}"),
        }
    }
}

impl std::error::Error for SuperviseError {}

/// Waits until the box is gone, all of it, and meanwhile relays signals and job control. `time_limit` does not run
/// while the launcher is stopped.
///
/// # Errors
/// When the box fell silent during the setup, or the kernel refused a call; the box does not survive that.
pub fn supervise(
    watched: &Watched,
    signals: &Signals,
    terminal: Option<Terminal>,
    time_limit: Option<Duration>,
    outside: Outside<'_, '_, '_>,
) -> Result<Outcome, SuperviseError> {
    let began = Instant::now();
    let limit = Limit::starting(began, time_limit);
    let mut supervisor = Supervisor {
        watched,
        signals,
        terminal,
        limit,
        continues: 0,
        stopped: None,
        asleep: None,
        told_hangup: false,
        started: false,
        last: None,
        outside,
    };
    let result = supervisor.watch();
    if result.is_err() {
        watched.end();
        waitid(WaitId::PidFd(watched.pidfd.as_fd()), WaitIdOptions::EXITED).ok();
    }
    if let Some(terminal) = &mut supervisor.terminal {
        terminal.restore();
    }
    let status = result?;
    let timed_out = supervisor.limit.passed();
    let ended = match supervisor.last {
        Some(Last::Failed(failure)) => return Ok(Outcome::Failed(failure)),
        Some(Last::Ended(ended)) => ended,
        // It was killed as a whole: by the time limit, by the kernel for want of memory, or by somebody's hand.
        None if supervisor.started || timed_out => {
            Ended::Signaled(status.terminating_signal().unwrap_or(libc::SIGKILL))
        }
        None => {
            return Err(SuperviseError::Silent(match status.terminating_signal() {
                Some(signal) => Ended::Signaled(signal),
                None => Ended::Exited(status.exit_status().unwrap_or(-1)),
            }));
        }
    };
    Ok(Outcome::Ended { ended, timed_out, duration: began.elapsed() })
}

enum Last {
    Failed(Failure),
    Ended(Ended),
}

struct Supervisor<'a, 'b, 'c> {
    outside: Outside<'a, 'b, 'c>,
    watched: &'a Watched,
    signals: &'a Signals,
    terminal: Option<Terminal>,
    limit: Limit,
    /// Continuing orders sent so far: a stop that was reported under fewer is over.
    continues: u32,
    /// A stop that was reported and not yet acted on.
    stopped: Option<Stopped>,
    /// The stop for which the launcher tries to stop itself; cleared by SIGCONT.
    asleep: Option<Stopped>,
    /// A command in a job that cannot be stopped was sent SIGHUP for it.
    told_hangup: bool,
    started: bool,
    last: Option<Last>,
}

fn sooner(left: Option<Timespec>, wait: Timespec) -> Timespec {
    match left {
        Some(left) if (left.tv_sec, left.tv_nsec) < (wait.tv_sec, wait.tv_nsec) => left,
        _ => wait,
    }
}

impl Supervisor<'_, '_, '_> {
    /// Until pid 1 is gone. Everything else inside was reaped by the kernel before pid 1 can be (pid_namespaces(7)).
    fn watch(&mut self) -> Result<WaitIdStatus, SuperviseError> {
        let mut channel_open = true;
        let mut waits_long = false;
        loop {
            let end = self.watched.pidfd.as_fd();
            // What is not there is one that is asked for nothing new.
            let mut ready = [
                PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(end, PollFlags::IN),
                PollFd::from_borrowed_fd(self.outside.guard.fd().unwrap_or(end), PollFlags::IN),
                PollFd::from_borrowed_fd(self.outside.service.waiting().unwrap_or(end), PollFlags::IN),
                PollFd::new(&self.watched.channel, PollFlags::IN),
            ];
            // A channel that is closed is always ready: not to be asked again.
            let asked = if channel_open { 5 } else { 4 };
            let mut time = self.limit.left();
            let guard_waits = self.outside.guard.wait();
            if let Some(wait) = guard_waits {
                time = Some(sooner(time, Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() }));
            } else if !waits_long {
                time = Some(sooner(time, sys::SHORT_WAIT));
            }
            match poll(&mut ready[..asked], time.as_ref()) {
                Ok(0) if !waits_long && guard_waits.is_none() => {
                    // Not before: a short command's launcher would fetch its code again at once.
                    waits_long = true;
                    sys::forget_code();
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(SuperviseError::System { doing: "waiting for the box", errno }),
            }
            let [signals, end, _, calls, reports] = ready.map(|fd| !fd.revents().is_empty());
            if calls {
                self.outside.service.serve().map_err(SuperviseError::Service)?;
            }
            // Reports first: the last one arrived before pid 1's end, and a signal must meet what is true by now.
            if channel_open && (reports || end) {
                channel_open = self.take_reports()?;
            }
            if signals {
                self.take_signals()?;
            }
            // A command that ended takes its pid namespace along at once: to be told first that it is about to costs
            // two more calls and a wake-up.
            let ends = matches!(self.last, Some(Last::Ended(_))) && !self.watched.asked_to_end && self.limit.is_none();
            if end || ends {
                let status = waitid(WaitId::PidFd(self.watched.pidfd.as_fd()), WaitIdOptions::EXITED);
                match status {
                    Ok(Some(status)) => return Ok(status),
                    Ok(None) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(SuperviseError::System { doing: "reaping the box", errno }),
                }
            }
            self.keep_time()?;
            let was_here = !self.outside.guard.is_away();
            self.outside.guard.attend();
            if was_here && self.outside.guard.is_away() {
                // What it ran here is its own process's business from now on.
                waits_long = false;
            }
            if let Some(stopped) = self.stopped.take() {
                self.command_stopped(stopped)?;
            }
        }
    }

    /// Everything that waits in the channel, so that a stop is acted on only if nothing newer undoes it. False once
    /// the other end is closed.
    fn take_reports(&mut self) -> Result<bool, SuperviseError> {
        loop {
            match wire::receive_report(self.watched.channel.as_fd(), Wait::No) {
                Ok((Report::Listener, Some(listener))) => self.outside.service.listen(listener),
                Ok((Report::Listener | Report::NoListener, _)) => self.outside.service.has_no_listener(),
                Ok((Report::Started, _)) => {
                    self.started = true;
                    self.outside.guard.command_runs();
                }
                Ok((Report::Stopped(stopped), _)) => self.stopped = Some(stopped),
                Ok((Report::Continued, _)) => self.stopped = None,
                // A failure is followed by the end of the process that could not become the command.
                Ok((Report::Ended(ended), _)) => {
                    self.stopped = None;
                    self.last.get_or_insert(Last::Ended(ended));
                    // It is the last one.
                    return Ok(false);
                }
                Ok((Report::Failed(failure), _)) => self.last = Some(Last::Failed(failure)),
                Err(WireError::WouldBlock) => return Ok(true),
                Err(WireError::Gone) => return Ok(false),
                Err(err) => return Err(SuperviseError::Channel(err)),
            }
        }
    }

    fn take_signals(&mut self) -> Result<(), SuperviseError> {
        while let Some(arrived) = self.signals.next().map_err(system("reading a signal"))? {
            self.relay(arrived)?;
        }
        Ok(())
    }

    /// Ctrl-C and the like reach the foreground group by themselves. While that is the command's, a copy that the
    /// kernel sent here (to a session leader, at a hangup) must not reach it twice; while it is the launcher's, or the
    /// signal came from a process, nobody else tells the command.
    fn relay(&mut self, arrived: Arrived) -> Result<(), SuperviseError> {
        let Arrived { signal, from_kernel, sender } = arrived;
        let box_holds_terminal = self.terminal.as_ref().is_some_and(Terminal::box_holds_it);
        match signal {
            // Our own, to the others of the job.
            libc::SIGCONT if sender == std::process::id() && !from_kernel => Ok(()),
            libc::SIGCONT => {
                self.asleep = None;
                self.continue_command()
            }
            libc::SIGTTIN | libc::SIGTTOU if from_kernel && box_holds_terminal => self.share_with_job(),
            _ if from_kernel && box_holds_terminal => Ok(()),
            _ => self.order(Order::Signal { signal, to: target_of(signal, from_kernel) }),
        }
    }

    /// Another member of the job (`agentbox run ... | less`) was stopped because it asked for the terminal while the
    /// box has it: it gets it, and the command again when it asks next.
    fn share_with_job(&mut self) -> Result<(), SuperviseError> {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(true);
        }
        sys::kill(0, libc::SIGCONT).map_err(|errno| SuperviseError::System { doing: "continuing the job", errno })
    }

    /// The command was stopped. Without a terminal nobody looks at the launcher for it, and whoever stopped the command
    /// continues it.
    fn command_stopped(&mut self, stopped: Stopped) -> Result<(), SuperviseError> {
        let Some(terminal) = &mut self.terminal else { return Ok(()) };
        if stopped.continues != self.continues || self.last.is_some() {
            return Ok(());
        }
        let asks = stopped.signal == libc::SIGTTIN || stopped.signal == libc::SIGTTOU;
        if asks && terminal.job_holds_it() {
            return self.give_terminal();
        }
        terminal.take_back(stopped.foreground);
        let signal = match stopped.signal {
            libc::SIGTTIN => StopSignal::WantsInput,
            libc::SIGTTOU => StopSignal::WantsOutput,
            _ => StopSignal::Suspend,
        };
        // The terminal would have sent it to the whole job, were the command a plain member of it: a script or a pager
        // that is not stopped with it would keep the user's shell waiting. A stop that came another way was sent to
        // the job by its sender, or was meant for the command alone.
        let whole_group = stopped.foreground || asks;
        // The stop signal discards a SIGCONT that waits: it has to be heard before.
        self.take_signals()?;
        if stopped.continues != self.continues {
            return Ok(());
        }
        self.asleep = Some(stopped);
        // What the command left running in other groups goes on, and so must the guard.
        self.outside.guard.leave();
        let fell_asleep = Instant::now();
        self.signals.stop(signal, whole_group).map_err(system("stopping with the command"))?;
        self.limit.postpone(fell_asleep.elapsed());
        self.take_signals()?;
        match self.asleep.take() {
            Some(stopped) => self.stop_was_refused(stopped),
            None => Ok(()),
        }
    }

    /// The launcher's job is orphaned, so no shell would ever continue it. The command does as the kernel has orphans
    /// do: Ctrl-Z is without effect, and asking for a terminal it cannot have hangs it up, once.
    fn stop_was_refused(&mut self, stopped: Stopped) -> Result<(), SuperviseError> {
        match stopped.signal {
            libc::SIGTSTP => self.continue_command(),
            libc::SIGTTIN | libc::SIGTTOU if !self.told_hangup => {
                self.told_hangup = true;
                self.order(Order::Signal { signal: libc::SIGHUP, to: Target::Group })?;
                self.continue_command()
            }
            // SIGSTOP: whoever sent it continues it. A second request: it would go on for ever.
            _ => Ok(()),
        }
    }

    /// In the foreground again (`fg`), the command gets back what it had; in the background (`bg`) it only goes on.
    fn continue_command(&mut self) -> Result<(), SuperviseError> {
        self.stopped = None;
        match &self.terminal {
            Some(terminal) if terminal.wanted() && terminal.job_holds_it() => self.give_terminal(),
            _ => self.order(Order::Continue),
        }
    }

    fn give_terminal(&mut self) -> Result<(), SuperviseError> {
        if let Some(terminal) = &mut self.terminal {
            terminal.lend();
        }
        self.order(Order::Foreground)
    }

    fn order(&mut self, order: Order) -> Result<(), SuperviseError> {
        match wire::send_order(self.watched.channel.as_fd(), order, Wait::No) {
            Ok(()) => {
                if matches!(order, Order::Continue | Order::Foreground) {
                    self.continues = self.continues.wrapping_add(1);
                }
                Ok(())
            }
            // Full: pid 1 is stopped from outside or still at the setup, with hundreds of signals before this one.
            Err(WireError::Gone | WireError::WouldBlock) => Ok(()),
            Err(err) => Err(SuperviseError::Channel(err)),
        }
    }

    fn keep_time(&mut self) -> Result<(), SuperviseError> {
        match self.limit.due() {
            Some(Due::Ask) => {
                self.order(Order::Signal { signal: libc::SIGTERM, to: Target::Group })?;
                // A stopped process does not see it.
                self.order(Order::Continue)
            }
            Some(Due::Kill) => {
                self.watched.end();
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Which processes a signal is for. What asks a command to end, to stop or to look at its terminal is for its whole
/// group, as from a terminal or from `kill %1`; a signal with a meaning of the program's own, which kills whoever has
/// none for it, is for the command alone.
fn target_of(signal: i32, from_kernel: bool) -> Target {
    match signal {
        libc::SIGHUP
        | libc::SIGINT
        | libc::SIGQUIT
        | libc::SIGTERM
        | libc::SIGTSTP
        | libc::SIGTTIN
        | libc::SIGTTOU
        | libc::SIGWINCH => Target::Group,
        _ if from_kernel => Target::Group,
        _ => Target::Process,
    }
}

fn system(doing: &'static str) -> impl Fn(nix::Error) -> SuperviseError {
    move |errno| SuperviseError::System { doing, errno: Errno::from_raw_os_error(errno as i32) }
}
