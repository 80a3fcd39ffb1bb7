//! One run from its start to its settled end: the supervisor's wait, the store of sessions, what a command changed, and
//! the patch of it. A layer was written by the command: nothing here trusts a name, an attribute or a byte of it, and
//! nothing runs a program of the tree.

mod attributes;
pub mod backup;
mod body;
pub mod changes;
pub mod diff;
mod examine;
mod git;
mod guard;
mod hunks;
mod json;
mod limit;
mod osjson;
pub mod quote;
mod record;
mod remove;
pub mod run;
pub mod settle;
pub mod signals;
mod stat;
mod store;
mod store_error;
pub mod supervise;
pub mod terminal;
mod tmpdir;
mod tree;
mod walk;

pub use crate::enforce::Reached;
pub use crate::watch::guard::Note;
pub use crate::watch::veil::{HiddenRead, Why};
pub use changes::{Change, ChangesError, Entry, FileKind, Kind, LayerChanges, Remark};
pub use examine::examine;
pub use git::disarm;
pub use osjson::value as os_value;
pub use record::{Counts, NewSession, Outcome, Record};
pub use store::{Layer, Session, State, Store, Stored};
pub use store_error::StoreError;

use crate::policy::{RecordJudge, Seen};
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

/// Judges names as the session's run did.
pub struct Judge(Option<RecordJudge>);

impl Judge {
    /// What the name at an absolute host path was to the command. The flag says whether it is a directory.
    pub fn seen(&self, path: &Path, dir: bool) -> Seen {
        self.0.as_ref().map_or(Seen::Open, |judge| judge.judge(path, dir))
    }

    /// The git directories whose index the box marked, so that hidden files do not look deleted.
    pub fn marked_repositories(&self) -> Vec<PathBuf> {
        self.0.iter().flat_map(RecordJudge::marked_repositories).map(Path::to_path_buf).collect()
    }

    /// The digest of what the box wrote at the name before the command ran.
    pub fn written_by_the_box(&self, path: &Path) -> Option<String> {
        self.0.as_ref()?.written(path).map(str::to_owned)
    }

    /// The rule by which the host obeys what stands at the name.
    pub fn obeyed(&self, path: &Path) -> Option<String> {
        self.0.as_ref()?.obeyed(path)
    }
}

/// The policy of a session's run, as far as its record has it; `None` where it cannot be read, and then nothing may be
/// applied by it.
pub fn policy(policy: &RawValue) -> Option<crate::policy::Policy> {
    serde_json::from_str::<crate::policy::Record<'_>>(policy.get()).ok()?.policy().ok()
}

/// Judges names as the session's run did, from the policy in its record. A record without a policy that can be
/// read (changed by hand, or of another version) hides nothing: its diff then shows more, never less.
pub fn judge(policy: &RawValue) -> Judge {
    let record = serde_json::from_str::<crate::policy::Record<'_>>(policy.get()).ok();
    Judge(record.and_then(|record| record.judge().ok()))
}
