//! The journal of a live run: `backup/journal`, one JSON object a line, the first with the version.
//!
//! An entry is written before its change goes on, so the last ones may speak of changes that never came to be: the call
//! failed, or its process was killed. To take a run back, go through the entries from the last to the first, and put
//! each back where it stands as the entry says:
//!
//! * `created`: the name goes, if it is there. A directory is empty by then, but for what was made in directories that
//!   are left out of backups.
//! * `content`: the stored bytes go into the file at the name, in place where it has other names, then its attributes.
//! * `attributes`: mode, owner, time of modification and, where the entry has them, extended attributes.
//! * `removed`: if nothing stands at the name, the stored file is linked or copied there, a directory or a symlink made.
//! * `renamed`: if `to` is the file `moved` and `from` is free, it goes back; then `replaced` as in `removed`.
//! * `exchanged`: if each is where the other was, they change back. One of them may be gone, for the command made it:
//!   then the other goes back.
//!
//! Identities say whether a change came to be. Whoever puts a file back as a new one remembers which identity it stands
//! for. Entries of names that the command made hold too: it may have moved them over a file of the host's.

use super::super::osjson;
use super::super::record::errno_of;
use super::node::{Identity, Node};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Raised when an older agentbox would misread the journal.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Nanoseconds since 1970.
    pub at: i128,
    /// The thread, by its number on the host.
    pub thread: u32,
    #[serde(with = "osjson::one")]
    pub program: PathBuf,
    pub call: String,
    pub what: What,
}

/// Paths are the host's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Nothing stood there.
    Created {
        #[serde(with = "osjson::one")]
        path: PathBuf,
    },
    /// A file is written for the first time.
    Content {
        #[serde(with = "osjson::one")]
        path: PathBuf,
        before: Node,
    },
    /// Mode, owner, times or extended attributes change for the first time; of a directory also because a name in it does.
    Attributes {
        #[serde(with = "osjson::one")]
        path: PathBuf,
        before: Node,
    },
    Removed {
        #[serde(with = "osjson::one")]
        path: PathBuf,
        before: Node,
    },
    Renamed {
        #[serde(with = "osjson::one")]
        from: PathBuf,
        #[serde(with = "osjson::one")]
        to: PathBuf,
        moved: Identity,
        replaced: Option<Node>,
    },
    Exchanged {
        #[serde(with = "osjson::one")]
        a: PathBuf,
        #[serde(with = "osjson::one")]
        b: PathBuf,
        was_a: Identity,
        was_b: Identity,
    },
    /// A file is changed whose content could not be kept, and why.
    Lost {
        #[serde(with = "osjson::one")]
        path: PathBuf,
        why: String,
    },
    /// Written at the end, one a changed name: what the run left there. Whoever finds something else finds the user's.
    Left {
        #[serde(with = "osjson::one")]
        path: PathBuf,
        now: Option<Node>,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Writer(File);

impl Writer {
    pub fn create(dir: BorrowedFd<'_>) -> Result<Writer, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, "journal", flags, Mode::RUSR | Mode::WUSR)?;
        let mut writer = Writer(file.into());
        writer.line(&Head { version: VERSION })?;
        Ok(writer)
    }

    pub fn write(&mut self, entry: &Entry) -> Result<(), Errno> {
        self.line(entry)
    }

    /// In one write(2), so that a line is there whole or is the last one.
    fn line(&mut self, value: &impl Serialize) -> Result<(), Errno> {
        let mut text = serde_json::to_vec(value).map_err(|_| Errno::INVAL)?;
        text.push(b'\n');
        self.0.write_all(&text).map_err(|err| errno_of(&err))
    }
}

/// What a live run wrote down.
#[derive(Debug)]
pub struct Journal {
    pub entries: Vec<Entry>,
    /// The run was killed while it wrote, and so before that change.
    pub cut_short: bool,
    /// Where the stored files are, below which `Stored` counts.
    pub dir: PathBuf,
}

#[derive(Debug)]
pub enum JournalError {
    Io { path: PathBuf, errno: Errno },
    Version { path: PathBuf, found: String },
    Line { path: PathBuf, line: usize, error: serde_json::Error },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Io { path, errno } => write!(f, "cannot read {}: {errno}", path.display()),
            JournalError::Version { path, found } => {
                write!(f, "{} is no journal that this agentbox reads: {found}", path.display())
            }
            JournalError::Line { path, line, error } => write!(f, "{}:{line}: {error}", path.display()),
        }
    }
}

impl std::error::Error for JournalError {}

impl Journal {
    /// The journal of a session's directory; `None` when the run changed nothing that it was told of.
    ///
    /// # Errors
    /// When it cannot be read, is of another version, or a line before the last makes no sense.
    pub fn read(session: &Path) -> Result<Option<Journal>, JournalError> {
        let dir = session.join("backup");
        let path = dir.join("journal");
        let io = |errno| JournalError::Io { path: path.clone(), errno };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(io(errno)),
        };
        let mut lines = BufReader::new(file).split(b'\n').enumerate().peekable();
        let mut entries = Vec::new();
        let mut cut_short = false;
        while let Some((number, line)) = lines.next() {
            let line = line.map_err(|err| io(errno_of(&err)))?;
            if number == 0 {
                match serde_json::from_slice::<Head>(&line) {
                    Ok(head) if head.version == VERSION => continue,
                    Ok(head) => {
                        return Err(JournalError::Version { path, found: format!("version {}", head.version) });
                    }
                    Err(error) => return Err(JournalError::Version { path, found: error.to_string() }),
                }
            }
            match serde_json::from_slice(&line) {
                Ok(entry) => entries.push(entry),
                Err(_) if lines.peek().is_none() => cut_short = true,
                Err(error) => return Err(JournalError::Line { path, line: number + 1, error }),
            }
        }
        Ok(Some(Journal { entries, cut_short, dir }))
    }
}
