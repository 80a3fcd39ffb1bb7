//! One run from its start to its settled end: the supervisor's wait, the store of sessions, what a command changed, and
//! the patch of it. A layer was written by the command: nothing here trusts a name, an attribute or a byte of it, and
//! nothing runs a program of the tree.

mod attributes;
mod body;
pub mod changes;
pub mod diff;
mod examine;
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
pub use changes::{Change, ChangesError, Entry, FileKind, Kind, LayerChanges, Remark};
pub use examine::examine;
pub use osjson::value as os_value;
pub use record::{Counts, NewSession, Outcome, Record};
pub use store::{Layer, Session, State, Store, Stored};
pub use store_error::StoreError;

use serde_json::value::RawValue;
use std::path::Path;

/// Is the name at an absolute host path hidden from the command? The flag says whether it is a directory.
pub type Judge = Box<dyn Fn(&Path, bool) -> bool>;

/// The policy of a session's run, as far as its record has it; `None` where it cannot be read, and then nothing may be
/// applied by it.
pub fn policy(policy: &RawValue) -> Option<crate::policy::Policy> {
    serde_json::from_str::<crate::policy::Record<'_>>(policy.get()).ok()?.policy().ok()
}

/// Judges hidden names as the session's run did, from the policy in its record. A record without a policy that can be
/// read (changed by hand, or of another version) hides nothing: its diff then shows more, never less.
pub fn judge(policy: &RawValue) -> Judge {
    let record = serde_json::from_str::<crate::policy::Record<'_>>(policy.get()).ok();
    match record.and_then(|record| record.judge().ok()) {
        Some(judge) => Box::new(move |path, dir| judge.hides(path, dir)),
        None => Box::new(|_, _| false),
    }
}
