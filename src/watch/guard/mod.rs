//! The guard: where names are judged once, at the launch, a name that appears or is replaced while the command runs is
//! hidden within moments.
//!
//! It begins in the supervisor, a while after the command did, so that neither a launch nor a short command pays for
//! it: every directory of the roots is watched and then listed once. With the first name to hide it moves into a
//! process of its own, forked from the supervisor, which enters the box's user and mount namespaces, but not its pid
//! namespace: nothing inside can see it, signal it or look into it. It dies with the supervisor.

mod inside;
mod maker;
mod note;
mod process;
mod watcher;

pub use maker::{Maker, Makers, Unseen};
pub use note::Note;

use crate::path::FileId;
use crate::policy::NameRules;
use process::Process;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use watcher::Watcher;

/// A command that is done by then never had a guard: what the host saves in that time is hidden at its end.
const DELAY: Duration = Duration::from_millis(10);

/// How a name is hidden in a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hides {
    /// By a mount over it. `writable`: the command can make names there.
    Mask { writable: bool },
    /// By removing it through the overlay, whose layer on the host says what the command made.
    Whiteout { upper: PathBuf },
}

/// A root whose names are not judged at look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The same on the host and inside.
    pub path: PathBuf,
    /// What the policy was resolved against.
    pub id: Option<FileId>,
    /// It is the same directory inside, not one that an overlay shows.
    pub bound: bool,
    pub hides: Hides,
}

/// What is to be guarded.
#[derive(Debug)]
pub struct Setup<'a> {
    pub names: &'a NameRules,
    pub roots: Vec<Root>,
    /// Every name that the launch hid.
    pub hidden: HashSet<PathBuf>,
    /// Places below the roots that the policy judges by themselves.
    pub apart: HashSet<PathBuf>,
    /// When the launch began to look for hidden names.
    pub since: SystemTime,
}

enum Stage<'a> {
    /// For the command to run, and then for a while.
    Waiting {
        setup: Box<dyn FnOnce() -> Setup<'a> + 'a>,
        mount_namespace: OwnedFd,
        due: Option<Instant>,
    },
    Here(Box<Watcher<'a>>),
    Away(Process),
    Off,
}

/// The guard of one box, as the supervisor holds it.
pub struct Guard<'a> {
    stage: Stage<'a>,
    notes: Vec<Note>,
}

impl<'a> Guard<'a> {
    /// Guards the roots of `setup`, which is asked for when there is time, in the box with this mount namespace.
    pub fn new(setup: impl FnOnce() -> Setup<'a> + 'a, mount_namespace: OwnedFd) -> Guard<'a> {
        Guard { stage: Stage::Waiting { setup: Box::new(setup), mount_namespace, due: None }, notes: Vec::new() }
    }

    /// Nothing to guard.
    pub fn none() -> Guard<'a> {
        Guard { stage: Stage::Off, notes: Vec::new() }
    }

    /// The command runs.
    pub fn command_runs(&mut self) {
        if let Stage::Waiting { due, .. } = &mut self.stage {
            due.get_or_insert_with(|| Instant::now() + DELAY);
        }
    }

    /// What to wait for, beside [`Guard::wait`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Here(watcher) => Some(watcher.descriptors().inotify.as_fd()),
            Stage::Away(process) => Some(process.channel()),
            Stage::Waiting { .. } | Stage::Off => None,
        }
    }

    /// The time until there is something to do; `None` while there is nothing but to wait for the descriptor.
    pub fn wait(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Waiting { due, .. } => due.map(|due| due.saturating_duration_since(Instant::now())),
            Stage::Here(watcher) => watcher.has_work().then_some(Duration::ZERO),
            Stage::Away(_) | Stage::Off => None,
        }
    }

    /// Does what is due, a little of it at a time.
    pub fn attend(&mut self) {
        match &mut self.stage {
            Stage::Waiting { due: Some(due), .. } if *due <= Instant::now() => self.begin(),
            Stage::Waiting { .. } | Stage::Off => {}
            Stage::Here(watcher) => {
                watcher.step();
                self.notes.append(&mut watcher.notes);
                // A name that is missing is likely to come back: it is awaited where it can be hidden at once.
                if !watcher.jobs.is_empty() || watcher.missing {
                    self.leave();
                }
            }
            Stage::Away(process) => {
                process.hear(&mut self.notes);
                if process.is_gone() {
                    self.stage = Stage::Off;
                    if !self.notes.iter().any(|note| matches!(note, Note::Off(_))) {
                        self.notes.push(Note::Off("the guard's process ended".into()));
                    }
                }
            }
        }
    }

    /// Is it in a process of its own?
    pub fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away(_))
    }

    /// Moves into a process of its own, which goes on while the supervisor is stopped.
    pub fn leave(&mut self) {
        if matches!(self.stage, Stage::Waiting { .. }) {
            self.begin();
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Off) {
            Stage::Here(watcher) => match Process::fork(watcher) {
                Ok(process) => Stage::Away(process),
                Err(errno) => {
                    self.notes.push(Note::Off(format!("fork: {errno}")));
                    Stage::Off
                }
            },
            stage @ (Stage::Waiting { .. } | Stage::Away(_) | Stage::Off) => stage,
        };
    }

    /// The box is gone. Ends the guard's process, and with it the last hold on the box's mounts.
    #[must_use]
    pub fn end(mut self) -> Vec<Note> {
        if matches!(self.stage, Stage::Away(_)) {
            // One that ended by itself is told of, if only now.
            self.attend();
        }
        if let Stage::Away(process) = &mut self.stage {
            process.end();
            process.hear(&mut self.notes);
        }
        self.notes
    }

    fn begin(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Off) {
            Stage::Waiting { setup, mount_namespace, .. } => {
                match Watcher::new(setup(), mount_namespace, Box::new(Unseen)) {
                    Ok(watcher) => Stage::Here(Box::new(watcher)),
                    Err(why) => {
                        self.notes.push(Note::Off(why));
                        Stage::Off
                    }
                }
            }
            stage @ (Stage::Here(_) | Stage::Away(_) | Stage::Off) => stage,
        };
    }
}
