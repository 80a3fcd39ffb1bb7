//! The guard's own process: how it is forked and ended, and what it does in between.

use super::inside::{Done, Inside};
use super::maker::{Makers, QUESTION, answer};
use super::note::{self, Note};
use super::watcher::{Job, Reach, Watcher};
use crate::sys;
use crate::watch::helper::{self, Helper};
use crate::watch::made::Made;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::HashSet;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd};
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
pub(super) struct Process(Helper);

impl Process {
    /// Forks the process, which takes the watches and what is to be done along. The caller must have a single thread,
    /// and must be the one that stays.
    pub fn fork(watcher: Box<Watcher<'_>>) -> Result<Process, Errno> {
        let descriptors = Rc::clone(watcher.descriptors());
        let mut kept = vec![descriptors.inotify.as_fd(), descriptors.mount_namespace.as_fd()];
        kept.extend(descriptors.hosts.iter().map(AsFd::as_fd));
        kept.extend(descriptors.uppers.iter().flatten().map(AsFd::as_fd));
        Helper::fork(&kept, |channel| guard(watcher, channel)).map(Process)
    }

    pub fn channel(&self) -> BorrowedFd<'_> {
        self.0.channel()
    }

    /// Takes what it tells, and answers what it asks.
    pub fn hear(&self, notes: &mut Vec<Note>, made: Option<&Made>) {
        let mut buffer = [0; 8 * 1024];
        while let Ok((length @ 1.., _)) = recv(self.channel(), &mut buffer, RecvFlags::DONTWAIT) {
            match &buffer[..length] {
                [QUESTION, question @ ..] => answer(self.channel(), question, made),
                told => notes.extend(note::read(told)),
            }
        }
    }

    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    pub fn end(&mut self) {
        self.0.end();
    }
}

fn guard(mut watcher: Box<Watcher<'_>>, channel: BorrowedFd<'_>) -> Infallible {
    // A supervisor that cannot be told is dead or has enough to read.
    let say = |note: &Note| note::tell(channel, note).ok();
    let descriptors = Rc::clone(watcher.descriptors());
    if let Makers::Seen(_) = &watcher.makers {
        // What was noted until now is known here, but not what comes.
        watcher.makers = channel.try_clone_to_owned().map_or(Makers::Unseen, |channel| Makers::Asked(channel, 0));
    }
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

fn settle(channel: BorrowedFd<'_>) -> Result<(), Errno> {
    helper::settle(channel, c"agentbox-guard")?;
    // A kernel that knows no turns has longer windows.
    sys::short_turns(TURN).ok();
    Ok(())
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
