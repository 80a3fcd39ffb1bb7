//! Who made a name that appeared in a root while the command runs.

use std::ffi::OsStr;
use std::path::Path;

/// Whose a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// It is the command's own, and stays visible to it.
    Command,
    /// Somebody outside of the box made it.
    Host,
    /// Nobody saw it being made. In a live root the name then stays visible: to hide what may be the command's own
    /// would break a build at random.
    Unknown,
}

/// Whoever saw names being made. Asked from the guard's own process, which is a fork of the supervisor: an answer must
/// not rest on what the supervisor alone learns later.
pub trait Makers {
    /// Who made the entry `name` of the directory at this path of the host?
    fn maker(&mut self, dir: &Path, name: &OsStr) -> Maker;
}

/// Nobody looks on.
#[derive(Debug)]
pub struct Unseen;

impl Makers for Unseen {
    fn maker(&mut self, _dir: &Path, _name: &OsStr) -> Maker {
        Maker::Unknown
    }
}
