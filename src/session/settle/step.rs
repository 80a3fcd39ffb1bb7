//! One step of a settlement: a name of the host, what stands there, and what is to stand there.

use super::meta::{self, Meta, Time};
use crate::session::osjson;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What was seen at a name: enough to know it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub ino: u64,
    pub dir: bool,
    pub size: i64,
    pub mtime: Time,
    pub ctime: Time,
    pub links: u64,
}

impl Seen {
    pub fn of(stat: &Stat) -> Seen {
        Seen {
            ino: stat.st_ino,
            dir: meta::is_dir(stat),
            size: stat.st_size,
            mtime: meta::mtime(stat),
            ctime: meta::ctime(stat),
            links: u64::from(u32::try_from(stat.st_nlink).unwrap_or(u32::MAX)),
        }
    }

    /// Is this still the very same file, untouched? What is done to one of several names of a file shows in the change
    /// time of all of them.
    pub fn is(&self, stat: &Stat) -> bool {
        let now = Seen::of(stat);
        (self.ino, self.size, self.mtime) == (now.ino, now.size, now.mtime)
            && (self.ctime == now.ctime || self.links > 1)
    }
}

/// Where the new object lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// At the same path in the layer.
    Layer,
    /// Displaced by an earlier settlement.
    Stored { settlement: u32, object: usize },
    /// It becomes another name of a file of the host.
    Linked(#[serde(with = "osjson::one")] PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum New {
    /// Nothing: a directory goes when it is empty.
    Gone,
    /// A file, a symlink: anything but a directory. What stands there is replaced in one act.
    Object { from: Source, meta: Option<Meta> },
    /// A directory where there is none.
    Dir(Meta),
    /// What stands there, with this metadata.
    Same(Meta),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub root: usize,
    #[serde(with = "osjson::one")]
    pub path: PathBuf,
    pub old: Option<Seen>,
    /// Of a directory that goes and of what keeps its place: from these it is put back.
    pub before: Option<Meta>,
    pub new: New,
    /// What is displaced came out of the layer, and goes back there.
    pub home: bool,
}

impl Step {
    pub fn removes_dir(&self) -> bool {
        self.new == New::Gone && self.old.is_some_and(|old| old.dir)
    }

    /// Does it take something that is no directory out of the way?
    pub fn displaces(&self) -> bool {
        match self.new {
            New::Gone | New::Object { .. } => self.old.is_some_and(|old| !old.dir),
            New::Dir(_) | New::Same(_) => false,
        }
    }

    pub fn is_same_dir(&self) -> bool {
        matches!(self.new, New::Same(_)) && self.old.is_some_and(|old| old.dir)
    }
}
