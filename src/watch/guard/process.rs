//! The guard's own process: how it is forked and ended, and what it does in between.

use super::inside::{Done, Inside};
use super::note::{self, Note};
use super::watcher::{Job, Reach, Watcher};
use crate::sys::{self, Child};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    DumpableBehavior, Signal, WaitId, WaitIdOptions, pidfd_send_signal, set_dumpable_behavior,
    set_parent_process_death_signal, setpgid, waitid,
};
use std::collections::HashSet;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// Notes that are told in one run.
const MOST_NOTES: usize = 1000;

/// How long the guard's turns on a processor are: whoever replaces a file waits for none, and neither should this.
const TURN: Duration = Duration::from_micros(100);
/// Names that wait until the overlay can see them, and how often it is asked.
const MOST_LATER: usize = 256;
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The process, as the supervisor holds it. Ended when dropped.
#[derive(Debug)]
pub(super) struct Process {
    pidfd: OwnedFd,
    channel: OwnedFd,
    reaped: bool,
}

impl Process {
    /// Forks the process, which takes the watches and what is to be done along. The caller must have a single thread,
    /// and must be the one that stays.
    pub fn fork(watcher: Box<Watcher<'_>>) -> Result<Process, Errno> {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        match sys::fork_with_pidfd()? {
            Child::Outside { pidfd, .. } => Ok(Process { pidfd, channel: here, reaped: false }),
            Child::Inside => {
                let descriptors = Rc::clone(watcher.descriptors());
                let mut kept = vec![there.as_fd(), descriptors.inotify.as_fd(), descriptors.mount_namespace.as_fd()];
                kept.extend(descriptors.hosts.iter().map(AsFd::as_fd));
                kept.extend(descriptors.uppers.iter().flatten().map(AsFd::as_fd));
                // The supervisor's end among them: or its death would not show. And what the launcher writes to, or a
                // reader of it would wait for this process.
                sys::close_all_but(&kept, || guard(watcher, there.as_fd()))
            }
        }
    }

    pub fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    pub fn hear(&self, notes: &mut Vec<Note>) {
        while let Some(note) = note::hear(self.channel.as_fd()) {
            notes.push(note);
        }
    }

    /// Did it end by itself? The channel tells, before the process is gone altogether.
    pub fn is_gone(&self) -> bool {
        has_hung_up(self.channel.as_fd())
    }

    /// Ends it, and waits until it holds nothing of the box any more.
    pub fn end(&mut self) {
        if !self.reaped {
            // It fails for a process that has just ended by itself.
            pidfd_send_signal(&self.pidfd, Signal::KILL).ok();
            while matches!(waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
            self.reaped = true;
        }
    }
}

fn has_hung_up(channel: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::new(&channel, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok() && ready[0].revents().contains(PollFlags::HUP)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn guard(mut watcher: Box<Watcher<'_>>, channel: BorrowedFd<'_>) -> Infallible {
    // A supervisor that cannot be told is dead or has enough to read.
    let say = |note: &Note| note::tell(channel, note).ok();
    let descriptors = Rc::clone(watcher.descriptors());
    let failure = match settle(channel) {
        Ok(()) => match Inside::enter(&descriptors, &watcher.setup().roots) {
            // Again: a change of credentials clears the death signal (prctl(2)).
            Ok(inside) => match settle(channel) {
                Ok(()) => work(&mut watcher, inside, channel),
                Err(errno) => format!("the guard's process: {errno}"),
            },
            Err((doing, errno)) => format!("{doing}: {errno}"),
        },
        Err(errno) => format!("the guard's process: {errno}"),
    };
    say(&Note::Off(failure));
    sys::exit_now(1)
}

/// Ties this process to the supervisor, out of reach of all others, and out of the launcher's job: a stop of that must
/// not stop the guard. The death signal comes first and the look at the parent second.
fn settle(channel: BorrowedFd<'_>) -> Result<(), Errno> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if has_hung_up(channel) {
        sys::exit_now(0);
    }
    rustix::thread::set_name(c"agentbox-guard")?;
    // A kernel that knows no turns has longer windows.
    sys::short_turns(TURN).ok();
    setpgid(None, None)
}

/// Until it is killed. Returns what made it give up.
fn work(watcher: &mut Watcher<'_>, mut inside: Inside<'_>, channel: BorrowedFd<'_>) -> String {
    watcher.reach = Reach::WorkingDirectory;
    let descriptors = Rc::clone(watcher.descriptors());
    let mut told = HashSet::new();
    let mut later: Vec<Job> = Vec::new();
    loop {
        let again = if later.is_empty() { Vec::new() } else { std::mem::take(&mut later) };
        for job in std::mem::take(&mut watcher.jobs).into_iter().chain(again) {
            let hides = watcher.setup().roots[job.root].hides.clone();
            let note = match inside.hide(&job, &hides) {
                Ok(Done::Hidden) => Note::Hidden(watcher.hidden_now(&job)),
                Ok(Done::Already) => {
                    watcher.hidden_now(&job);
                    continue;
                }
                Ok(Done::Gone) => continue,
                Ok(Done::Later) if later.len() < MOST_LATER => {
                    later.push(job);
                    continue;
                }
                Ok(Done::Later) => Note::Open { path: watcher.hidden_now(&job), why: "too many at once".into() },
                Err((doing, errno)) => {
                    let path = watcher.hidden_now(&job);
                    Note::Open { path, why: format!("{doing}: {errno}") }
                }
            };
            watcher.notes.push(note);
        }
        for note in std::mem::take(&mut watcher.notes) {
            // Each once, and not without end.
            if told.len() < MOST_NOTES && told.insert(note.to_string()) {
                note::tell(channel, &note).ok();
            }
        }
        if let Err((doing, errno)) = inside.prepare() {
            return format!("{doing}: {errno}");
        }
        let mut ready =
            [PollFd::new(&descriptors.inotify, PollFlags::IN), PollFd::from_borrowed_fd(channel, PollFlags::empty())];
        let wait = match (watcher.has_work(), later.is_empty()) {
            (true, _) => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            (false, false) => Some(AGAIN),
            (false, true) => None,
        };
        match poll(&mut ready, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return format!("poll: {errno}"),
        }
        if ready[1].revents().contains(PollFlags::HUP) {
            sys::exit_now(0);
        }
        watcher.step();
    }
}
