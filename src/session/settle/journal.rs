//! What is written down about the settlements of a session, and in which order it reaches the disk.
//!
//! ```text
//! sessions/ID/settled/lock               held while somebody settles
//! sessions/ID/settled/touched            what settlements that were taken back left: other change times, no more
//! sessions/ID/settled/N-apply/           (or N-undo) one settlement
//!     steps                              a head line, then one step a line: before anything is made
//!     objects/I                          what step I displaced
//!     commit                             the new inodes: all is staged, backed up and on disk; from here on forward
//!     revert                             from here on back
//!     after                              what stands at each name when all is done
//!     done                               a summary: the settlement is over
//! ```
//! A settlement without `done` was killed: without `commit`, or with `revert`, it is taken back; else it is finished.

use super::meta::Time;
use super::step::Step;
use crate::session::osjson;
use crate::session::record::errno_of;
use crate::session::remove;
use crate::session::tree::{self, DIRECTORY};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

pub const DIR: &str = "settled";
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    Apply,
    Undo,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Apply => "apply",
            Direction::Undo => "undo",
        }
    }
}

/// The first line of `steps`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    pub version: u32,
    /// Marks the names that are staged beside the user's: nobody could have made the same.
    pub nonce: String,
    pub steps: usize,
    /// The layer must not be changed: a command is at work in it.
    pub mounted: bool,
}

/// The content of `done`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub changed: usize,
    /// Changes of the layer that were not taken over.
    pub left: usize,
    /// Bytes that the displaced files hold.
    pub bytes: u64,
}

/// The inode and the change time of a name after a settlement; `None` where nothing stands.
pub type After = Option<(u64, Time)>;

/// A name of a root, and what one of our own settlements left there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Touched {
    pub root: usize,
    #[serde(with = "osjson::one")]
    pub path: PathBuf,
    pub after: After,
}

/// All settlements of one session. While it lives nobody else settles.
#[derive(Debug)]
pub struct Journal {
    dir: OwnedFd,
    _lock: OwnedFd,
}

/// How far one came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Begun,
    Committed,
    Reverting,
    Done(Summary),
}

#[derive(Debug)]
pub struct Settlement {
    pub number: u32,
    pub direction: Direction,
    pub dir: OwnedFd,
    pub objects: OwnedFd,
    pub head: Head,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    pub number: u32,
    pub direction: Direction,
    pub phase: Phase,
}

fn open_dir(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())
}

/// Writes a file whole or not at all, and on disk when this returns.
fn write(dir: BorrowedFd<'_>, name: &str, content: &[u8]) -> Result<(), Errno> {
    let beside = format!(".{name}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(dir, &beside, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(content).map_err(|err| errno_of(&err))?;
    rustix::fs::fsync(&file)?;
    rustix::fs::renameat(dir, &beside, dir, name)?;
    rustix::fs::fsync(dir)
}

fn read(dir: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut text = Vec::new();
    File::from(fd).read_to_end(&mut text).map_err(|err| errno_of(&err))?;
    Ok(Some(text))
}

fn there(dir: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Our own files are JSON; one that is not was damaged.
fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Errno> {
    serde_json::from_slice(text).map_err(|_| Errno::BADMSG)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Errno> {
    serde_json::to_vec(value).map_err(|_| Errno::INVAL)
}

/// `N-apply` or `N-undo`.
fn parse_name(name: &str) -> Option<(u32, Direction)> {
    let (number, word) = name.split_once('-')?;
    let direction = [Direction::Apply, Direction::Undo].into_iter().find(|direction| direction.name() == word)?;
    Some((number.parse().ok()?, direction))
}

/// The settlements below a session's directory, oldest first. Nothing is locked and nothing made: for who looks.
pub fn look(session: BorrowedFd<'_>) -> Result<Vec<Listed>, Errno> {
    match open_dir(session, DIR) {
        Ok(dir) => list(&dir),
        Err(Errno::NOENT) => Ok(Vec::new()),
        Err(errno) => Err(errno),
    }
}

fn list(settled: &OwnedFd) -> Result<Vec<Listed>, Errno> {
    let dir = open_dir(settled.as_fd(), ".")?;
    let mut found = Vec::new();
    for name in tree::names(dir.as_fd())? {
        let Some((number, direction)) = name.name.to_str().ok().and_then(parse_name) else { continue };
        let dir = match rustix::fs::openat(settled, &name.name, DIRECTORY, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        let phase = if let Some(text) = read(dir.as_fd(), "done")? {
            Phase::Done(parse(&text)?)
        } else if there(dir.as_fd(), "revert")? {
            Phase::Reverting
        } else if there(dir.as_fd(), "commit")? {
            Phase::Committed
        } else {
            Phase::Begun
        };
        found.push(Listed { number, direction, phase });
    }
    found.sort_by_key(|listed| listed.number);
    Ok(found)
}

impl Journal {
    /// Opens the journal of a session for this process alone.
    ///
    /// # Errors
    /// `EWOULDBLOCK` while another process settles the same session.
    pub fn open(session: BorrowedFd<'_>) -> Result<Journal, Errno> {
        match rustix::fs::mkdirat(session, DIR, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let dir = open_dir(session, DIR)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&dir, "lock", flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Journal { dir, _lock: lock })
    }

    pub fn list(&self) -> Result<Vec<Listed>, Errno> {
        list(&self.dir)
    }

    /// Begins a settlement: its steps are on disk when this returns.
    pub fn begin(&self, direction: Direction, mounted: bool, steps: &[Step]) -> Result<Settlement, Errno> {
        let number = self.list()?.last().map_or(1, |last| last.number + 1);
        let name = format!("{number}-{}", direction.name());
        let staged = format!(".{name}");
        // What is left of one that could not even begin.
        self.clear(&staged)?;
        rustix::fs::mkdirat(&self.dir, &staged, Mode::RWXU)?;
        let dir = open_dir(self.dir.as_fd(), &staged)?;
        rustix::fs::mkdirat(&dir, "objects", Mode::RWXU)?;
        let objects = open_dir(dir.as_fd(), "objects")?;
        let mut random = [0; 6];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        let nonce = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let head = Head { version: VERSION, nonce, steps: steps.len(), mounted };
        let mut text = json(&head)?;
        for step in steps {
            text.push(b'\n');
            text.extend(json(step)?);
        }
        write(dir.as_fd(), "steps", &text)?;
        rustix::fs::renameat(&self.dir, &staged, &self.dir, &name)?;
        rustix::fs::fsync(&self.dir)?;
        Ok(Settlement { number, direction, dir, objects, head })
    }

    pub fn open_settlement(&self, listed: Listed) -> Result<(Settlement, Vec<Step>), Errno> {
        let name = format!("{}-{}", listed.number, listed.direction.name());
        let dir = open_dir(self.dir.as_fd(), &name)?;
        let objects = open_dir(dir.as_fd(), "objects")?;
        let text = read(dir.as_fd(), "steps")?.ok_or(Errno::NOENT)?;
        let mut lines = text.split(|byte| *byte == b'\n');
        let head: Head = parse(lines.next().unwrap_or_default())?;
        let steps: Vec<Step> = lines.map(parse).collect::<Result<_, _>>()?;
        if head.version != VERSION || head.steps != steps.len() {
            return Err(Errno::BADMSG);
        }
        Ok((Settlement { number: listed.number, direction: listed.direction, dir, objects, head }, steps))
    }

    /// What settlements that were taken back left.
    pub fn touched(&self) -> Result<Vec<Touched>, Errno> {
        read(self.dir.as_fd(), "touched")?.as_deref().map_or(Ok(Vec::new()), parse)
    }

    /// Forgets a settlement that was taken back, but not that the change times are its own.
    pub fn forget_taken_back(&self, listed: Listed, left: Vec<Touched>) -> Result<(), Errno> {
        let mut touched = self.touched()?;
        touched.extend(left);
        write(self.dir.as_fd(), "touched", &json(&touched)?)?;
        self.forget(listed)
    }

    /// Forgets a settlement and what it stored.
    pub fn forget(&self, listed: Listed) -> Result<(), Errno> {
        let name = format!("{}-{}", listed.number, listed.direction.name());
        let gone = format!(".gone-{name}");
        self.clear(&gone)?;
        rustix::fs::renameat(&self.dir, &name, &self.dir, &gone)?;
        self.clear(&gone)
    }

    fn clear(&self, name: &str) -> Result<(), Errno> {
        if !there(self.dir.as_fd(), name)? {
            return Ok(());
        }
        remove::purge(self.dir.as_fd(), OsStr::new(name)).map_err(|(_, errno)| errno)
    }
}

impl Settlement {
    pub fn listed(&self, phase: Phase) -> Listed {
        Listed { number: self.number, direction: self.direction, phase }
    }

    pub fn commit(&self, inodes: &[Option<u64>]) -> Result<(), Errno> {
        write(self.dir.as_fd(), "commit", &json(&inodes)?)
    }

    /// The inodes that were staged; `None` before the commit.
    pub fn committed(&self) -> Result<Option<Vec<Option<u64>>>, Errno> {
        read(self.dir.as_fd(), "commit")?.as_deref().map(parse).transpose()
    }

    pub fn turn_back(&self) -> Result<(), Errno> {
        write(self.dir.as_fd(), "revert", b"")
    }

    pub fn finish(&self, after: &[After], summary: Summary) -> Result<(), Errno> {
        write(self.dir.as_fd(), "after", &json(&after)?)?;
        write(self.dir.as_fd(), "done", &json(&summary)?)
    }

    pub fn after(&self) -> Result<Vec<After>, Errno> {
        read(self.dir.as_fd(), "after")?.as_deref().map_or(Err(Errno::NOENT), parse)
    }
}
