//! The notification service of a live run, as the supervisor has it: a listener beside the other descriptors of its
//! loop, and from the first call that it is told of a keeper. Most short commands change nothing and never need one.
//!
//! It works in the supervisor's own thread, for there is no other: a signal or the time limit waits until the file is
//! kept that a call is about, which the limit on one file bounds. Nothing else that this process answers, a file system
//! of its own in the box for one, may be asked by what is done here.

use super::super::record::NewSession;
use super::keeper::{Backup, Kept, Rules};
use crate::watch::made::Made;
use crate::watch::notify::{Served, prepare, serve_next};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// What the service starts with when the first call comes.
pub struct Start {
    pub rules: Rules,
    pub new: NewSession,
    pub state_dir: Option<PathBuf>,
}

pub struct Service<'a> {
    /// None before it came, and after everybody who could make a call is gone.
    listener: Option<OwnedFd>,
    keeper: Option<Box<Backup>>,
    /// The names that the command makes.
    made: Arc<Made>,
    start: &'a dyn Fn() -> Result<Start, String>,
    say: fn(&str),
    off: Option<String>,
}

impl<'a> Service<'a> {
    pub fn new(start: &'a dyn Fn() -> Result<Start, String>, say: fn(&str)) -> Service<'a> {
        Service { listener: None, keeper: None, made: Arc::default(), start, say, off: None }
    }

    pub fn made(&self) -> Arc<Made> {
        Arc::clone(&self.made)
    }

    pub fn listen(&mut self, listener: OwnedFd) {
        prepare(&listener);
        self.listener = Some(listener);
    }

    pub fn has_no_listener(&mut self) {
        let why = "the box around this one keeps the notification service from it, and backs up what is live there";
        (self.say)(&format!("agentbox: nothing is backed up here: {why}"));
        self.off = Some(why.to_owned());
    }

    /// The listener, which can be read when a call waits.
    pub fn waiting(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers a call that waits.
    ///
    /// # Errors
    /// In words. The listener is closed then, and every call that waits is answered with ENOSYS.
    pub fn serve(&mut self) -> Result<(), String> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let keeper = match &mut self.keeper {
            Some(keeper) => keeper,
            None => {
                let Start { rules, new, state_dir } = (self.start)()?;
                let backup = Backup::new(rules, Arc::clone(&self.made), new, state_dir, self.say);
                self.keeper.insert(Box::new(backup))
            }
        };
        match serve_next(&listener, keeper.as_mut()) {
            Ok(Served::One) => self.listener = Some(listener),
            Ok(Served::Last) => {}
            Err(errno) => return Err(format!("receiving a notification: {errno}")),
        }
        Ok(())
    }

    /// After the box is gone: what was kept.
    pub fn finish(self) -> Kept {
        match self.keeper {
            Some(keeper) => keeper.finish(),
            None => Kept { nothing: true, off: self.off, ..Kept::default() },
        }
    }
}
