//! What is written down about a session: `sessions/ID/session.json`.

use super::changes::{Kind, LayerChanges};
use super::osjson;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

/// Raised when an older agentbox would misread the record.
pub const VERSION: u32 = 1;

/// What a run knows about itself when it starts.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub command: Vec<OsString>,
    pub profiles: Vec<String>,
    /// Canonical host paths, one overlay layer each.
    pub roots: Vec<PathBuf>,
    /// The resolved policy: what is hidden must be judged the same way when the session is reviewed.
    pub policy: Value,
    pub created: SystemTime,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub created: SystemTime,
    /// How writes were treated. Only dry runs leave a session so far.
    pub mode: String,
    #[serde(with = "osjson")]
    pub command: Vec<OsString>,
    pub profiles: Vec<String>,
    #[serde(with = "osjson")]
    pub roots: Vec<PathBuf>,
    pub policy: Value,
    /// Absent while the command runs, and for good when its launcher was killed.
    pub outcome: Option<Outcome>,
}

impl Record {
    pub(super) fn of(new: &NewSession) -> Record {
        Record {
            version: VERSION,
            created: new.created,
            mode: "dry-run".to_owned(),
            command: new.command.clone(),
            profiles: new.profiles.clone(),
            roots: new.roots.clone(),
            policy: new.policy.clone(),
            outcome: None,
        }
    }
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
