//! What is written down about a session: `sessions/ID/session.json`.

use super::changes::{Kind, LayerChanges};
use super::osjson;
use crate::policy::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::SystemTime;

/// Raised when an older agentbox would misread the record.
const VERSION: u32 = 3;
pub(super) const NAME: &str = "session.json";

/// What a run knows about itself when it starts.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// How writes are treated, and so what the session holds: layers, or backups.
    pub mode: Mode,
    pub command: Vec<OsString>,
    pub profiles: Vec<String>,
    /// Canonical host paths; of a dry run one overlay layer each.
    pub roots: Vec<PathBuf>,
    /// The resolved policy: what is hidden must be judged the same way when the session is reviewed.
    pub policy: Box<RawValue>,
    pub created: SystemTime,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub created: SystemTime,
    /// How writes were treated.
    pub mode: Mode,
    #[serde(with = "osjson")]
    pub command: Vec<OsString>,
    pub profiles: Vec<String>,
    #[serde(with = "osjson")]
    pub roots: Vec<PathBuf>,
    pub policy: Box<RawValue>,
    /// Absent while the command runs, and for good when its launcher was killed.
    pub outcome: Option<Outcome>,
}

impl Record {
    pub(super) fn of(new: &NewSession) -> Record {
        Record {
            version: VERSION,
            created: new.created,
            mode: new.mode,
            command: new.command.clone(),
            profiles: new.profiles.clone(),
            roots: new.roots.clone(),
            policy: new.policy.clone(),
            outcome: None,
        }
    }

    /// Writes the record to a file of the session's directory. Not synced: a launch must not wait for the disk.
    pub(super) fn write(&self, dir: &OwnedFd, name: &str) -> Result<(), Errno> {
        // Fails only for a time before 1970.
        let text = serde_json::to_vec(self).map_err(|_| Errno::INVAL)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, name, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        File::from(fd).write_all(&text).map_err(|err| errno_of(&err))
    }

    /// The record of a session's directory, or in words why there is none.
    pub(super) fn read(dir: &OwnedFd) -> Result<Record, String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, NAME, flags, rustix::fs::Mode::empty())
            .map_err(|errno| format!("no record: {errno}"))?;
        let mut text = Vec::new();
        File::from(fd).read_to_end(&mut text).map_err(|err| format!("its record cannot be read: {err}"))?;
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<u64>,
        }
        let found: Versioned = serde_json::from_slice(&text).map_err(|err| format!("its record is not JSON: {err}"))?;
        match found.version {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => return Err(format!("its record has version {version}, this agentbox reads {VERSION}")),
            None => return Err("its record has no version".to_owned()),
        }
        serde_json::from_slice(&text).map_err(|err| format!("its record is not one: {err}"))
    }
}

pub(super) fn errno_of(err: &std::io::Error) -> Errno {
    Errno::from_io_error(err).unwrap_or(Errno::IO)
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The exit status that the caller of agentbox saw.
    pub status: u8,
    pub counts: Counts,
}

/// Changed paths by kind, over all roots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub created: usize,
    pub modified: usize,
    pub deleted: usize,
    pub kept: usize,
    pub refused: usize,
}

impl Counts {
    pub fn of(layers: &[LayerChanges]) -> Counts {
        let mut counts = Counts::default();
        for layer in layers {
            for change in &layer.changes {
                match change.kind {
                    Kind::Created => counts.created += 1,
                    Kind::Deleted => counts.deleted += 1,
                    Kind::Modified | Kind::ModeChanged | Kind::TypeChanged => counts.modified += 1,
                }
            }
            counts.kept += layer.kept.len();
            counts.refused += layer.refused.len();
        }
        counts
    }
}
