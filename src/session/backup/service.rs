//! The notification service of a live run, as the supervisor has it: a listener at first, and from the first call that
//! it is told of on a thread of its own. Most short commands change nothing and never have one.

use super::super::record::NewSession;
use super::keeper::{Backup, Kept, Rules};
use crate::watch::made::Made;
use crate::watch::notify::serve;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What the service starts with when the first call comes.
pub struct Start {
    pub rules: Rules,
    pub new: NewSession,
    pub state_dir: Option<PathBuf>,
}

pub struct Service<'a> {
    state: State,
    /// The names that the command makes.
    made: Arc<Made>,
    start: &'a dyn Fn() -> Result<Start, String>,
    say: fn(&str),
    off: Option<String>,
}

enum State {
    /// No listener came yet, or none will.
    None,
    Waiting(OwnedFd),
    /// Closed, `stop` ends it.
    Serving {
        thread: JoinHandle<Kept>,
        stop: OwnedFd,
    },
}

impl<'a> Service<'a> {
    pub fn new(start: &'a dyn Fn() -> Result<Start, String>, say: fn(&str)) -> Service<'a> {
        Service { state: State::None, made: Arc::default(), start, say, off: None }
    }

    pub fn made(&self) -> Arc<Made> {
        Arc::clone(&self.made)
    }

    pub fn listen(&mut self, listener: OwnedFd) {
        self.state = State::Waiting(listener);
    }

    pub fn has_no_listener(&mut self) {
        let why = "an agentbox around this one has the listener, and backs up what is live there";
        (self.say)(&format!("agentbox: nothing is backed up here: {why}"));
        self.off = Some(why.to_owned());
    }

    /// The listener, ready to be read when the first call comes.
    pub fn waiting(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Waiting(listener) => Some(listener.as_fd()),
            State::None | State::Serving { .. } => None,
        }
    }

    /// Starts to answer. The process that was cloned before has one thread for ever; this one has two from here on.
    ///
    /// # Errors
    /// In words. The listener is closed then, and every call that waits is answered with ENOSYS.
    pub fn serve(&mut self) -> Result<(), String> {
        let State::Waiting(listener) = std::mem::replace(&mut self.state, State::None) else { return Ok(()) };
        let Start { rules, new, state_dir } = (self.start)()?;
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| errno.to_string())?;
        let (made, say) = (self.made(), self.say);
        let thread = std::thread::Builder::new().name("notify".to_owned()).stack_size(512 * 1024);
        let work = move || {
            let mut backup = Backup::new(rules, made, new, state_dir, say);
            serve(&listener, &stopped, &mut backup);
            drop(listener);
            backup.finish()
        };
        let thread = thread.spawn(work).map_err(|err| err.to_string())?;
        self.state = State::Serving { thread, stop };
        Ok(())
    }

    /// After the box is gone: what was kept.
    ///
    /// # Errors
    /// In words, when the service did not come to its end.
    pub fn finish(self) -> Result<Kept, String> {
        match self.state {
            State::None | State::Waiting(_) => Ok(Kept { nothing: true, off: self.off, ..Kept::default() }),
            State::Serving { thread, stop } => {
                drop(stop);
                thread.join().map_err(|_| "the notification service failed".to_owned())
            }
        }
    }
}
