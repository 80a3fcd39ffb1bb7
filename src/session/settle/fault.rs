//! The tests' way to stop a settlement at any of its steps: it can only make one fail.

use rustix::io::Errno;
use std::cell::Cell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// As a power cut or an impatient user would.
    Kill,
    /// As a full disk would.
    NoSpace,
}

/// Counts the steps, and stops at one of them.
#[derive(Debug, Default)]
pub struct Fault {
    at: Option<(u64, Stop)>,
    count: Cell<u64>,
}

impl Fault {
    pub fn at(step: u64, stop: Stop) -> Fault {
        Fault { at: Some((step, stop)), count: Cell::new(0) }
    }

    /// Called before each change of anything.
    pub fn point(&self) -> Result<(), Errno> {
        self.count.set(self.count.get() + 1);
        match self.at {
            Some((at, Stop::Kill)) if at == self.count.get() => {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            }
            Some((at, Stop::NoSpace)) if at == self.count.get() => Err(Errno::NOSPC),
            Some(_) | None => Ok(()),
        }
    }
}
