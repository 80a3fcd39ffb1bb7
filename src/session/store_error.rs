//! What can be wrong with the store, and what to do about it.

use super::quote;
use crate::path::ResolveError;
use rustix::io::Errno;
use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum StoreError {
    Io { what: &'static str, path: PathBuf, errno: Errno },
    NotADirectory { path: PathBuf },
    Foreign { path: PathBuf, owner: u32, us: u32 },
    Loose { path: PathBuf, mode: u32 },
    Resolve(ResolveError),
    Random(Errno),
    Unknown { selector: String },
    Ambiguous { selector: String, ids: Vec<String> },
    NoneHere { cwd: PathBuf },
    Running { id: String },
}

impl StoreError {
    pub(super) fn io(what: &'static str, path: &Path, errno: Errno) -> StoreError {
        StoreError::Io { what, path: path.to_path_buf(), errno }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            StoreError::Io { .. }
            | StoreError::NotADirectory { .. }
            | StoreError::Foreign { .. }
            | StoreError::Resolve(_) => {
                Some("set XDG_STATE_HOME to a directory that is yours and can be written".to_owned())
            }
            StoreError::Loose { path, .. } => Some(format!("chmod 700 {}", quote::text(path.as_os_str()))),
            StoreError::Unknown { .. } => Some("agentbox sessions lists them".to_owned()),
            StoreError::NoneHere { .. } => Some("name a session; agentbox sessions lists them".to_owned()),
            StoreError::Running { .. } => Some("end its command first".to_owned()),
            StoreError::Ambiguous { .. } | StoreError::Random(_) => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io { what, path, errno } => {
                write!(f, "session store: cannot {what} {}: {errno}", quote::text(path.as_os_str()))
            }
            StoreError::NotADirectory { path } => {
                write!(f, "session store: {} is a symlink or no directory", quote::text(path.as_os_str()))
            }
            StoreError::Foreign { path, owner, us } => {
                write!(f, "session store: {} belongs to uid {owner}, not to uid {us}", quote::text(path.as_os_str()))
            }
            StoreError::Loose { path, mode } => {
                write!(
                    f,
                    "session store: {} may be written by other users (mode {mode:04o})",
                    quote::text(path.as_os_str())
                )
            }
            StoreError::Resolve(err) => write!(f, "session store: {err}"),
            StoreError::Random(errno) => write!(f, "session store: no random bytes for an id: {errno}"),
            StoreError::Unknown { selector } => write!(f, "no session {selector:?}"),
            StoreError::Ambiguous { selector, ids } => {
                write!(f, "session {selector:?} is ambiguous: {}", ids.join(", "))
            }
            StoreError::NoneHere { cwd } => {
                write!(f, "no session with a writable root at or above {}", quote::text(cwd.as_os_str()))
            }
            StoreError::Running { id } => write!(f, "session {id} is running"),
        }
    }
}

impl std::error::Error for StoreError {}
