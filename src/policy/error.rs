//! What can be wrong with a policy: always the user's to mend, so each says what and how.

use crate::path::ResolveError;
use crate::path::pattern::PatternError;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug)]
pub enum PolicyError {
    /// A path that was asked for does not resolve.
    Path {
        origin: String,
        error: ResolveError,
    },
    Pattern {
        origin: String,
        error: PatternError,
    },
    /// A writable root at or above HOME, or `/`.
    TooWide {
        path: PathBuf,
        origin: String,
        home: PathBuf,
    },
    /// `/` as a root.
    WholeSystem {
        origin: String,
    },
    CwdOutside {
        cwd: PathBuf,
    },
    CwdGone {
        reason: String,
    },
    /// A root at or inside agentbox's own state or configuration, or a state directory inside a writable root.
    OwnState {
        path: PathBuf,
        state: PathBuf,
        origin: String,
    },
    NotASocket {
        path: PathBuf,
        origin: String,
    },
    /// A root that is no file and no directory.
    BadKind {
        path: PathBuf,
        origin: String,
    },
    NoHome,
    Conflict {
        text: String,
        hint: String,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Path { origin, error } => write!(f, "{origin}: {error}"),
            PolicyError::Pattern { origin, error } => write!(f, "{origin}: {error}"),
            PolicyError::TooWide { path, origin, home } => {
                let what = if path == home { "is HOME" } else { "is above HOME" };
                write!(f, "{origin}: refused as a writable root: {} {what}", path.display())?;
                if path == home { Ok(()) } else { write!(f, " ({})", home.display()) }
            }
            PolicyError::WholeSystem { origin } => write!(f, "{origin}: refused: / is the whole system, not a root"),
            PolicyError::CwdOutside { cwd } => {
                write!(f, "the working directory {} is not visible inside: it is outside the roots", cwd.display())
            }
            PolicyError::CwdGone { reason } => write!(f, "the working directory is gone or cannot be named: {reason}"),
            PolicyError::OwnState { path, state, origin } => write!(
                f,
                "{origin}: refused: the root {} and agentbox's own directory {} overlap",
                path.display(),
                state.display()
            ),
            PolicyError::NotASocket { path, origin } => write!(f, "{origin}: {} is not a socket", path.display()),
            PolicyError::BadKind { path, origin } => {
                write!(f, "{origin}: {} is neither a file nor a directory", path.display())
            }
            PolicyError::NoHome => {
                write!(f, "HOME is not set to an absolute path, and /etc/passwd has none for this user")
            }
            PolicyError::Conflict { text, .. } => write!(f, "{text}"),
        }
    }
}

impl std::error::Error for PolicyError {}

impl PolicyError {
    /// The next step.
    pub fn hint(&self) -> String {
        match self {
            PolicyError::Path { .. } => "give an existing path, or mark it `optional = true` in a profile".into(),
            PolicyError::Pattern { .. } => "see docs/profiles.md for what a pattern may hold".into(),
            PolicyError::TooWide { .. } => {
                "change to the project's own directory, name it with --rw DIR, or pass --grant-home to accept this"
                    .into()
            }
            PolicyError::WholeSystem { .. } => {
                "name the directories that are needed, each with --ro DIR or --rw DIR".into()
            }
            PolicyError::CwdOutside { .. } => {
                "use --chdir DIR to start in a root, or name this directory with --ro or --rw".into()
            }
            PolicyError::CwdGone { .. } => "change to a directory that exists and start again".into(),
            PolicyError::OwnState { .. } => {
                "choose a narrower root, or move the state with XDG_STATE_HOME to a place outside of it".into()
            }
            PolicyError::NotASocket { .. } => "--socket takes the path of a listening unix socket".into(),
            PolicyError::BadKind { .. } => "a device or a FIFO cannot be a root".into(),
            PolicyError::NoHome => "set HOME to this user's home directory".into(),
            PolicyError::Conflict { hint, .. } => hint.clone(),
        }
    }
}
