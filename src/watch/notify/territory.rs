//! Which places are of interest: those of the live roots.

use super::Change;
use crate::path::is_at_or_below;
use crate::policy::{EntryKind, Policy};
use std::path::{Path, PathBuf};

/// The entries of a policy, each with whether it is a writable root. Roots lie inside at their own host paths.
#[derive(Debug)]
pub struct Territory {
    entries: Vec<(PathBuf, bool)>,
}

impl Territory {
    pub fn of(policy: &Policy) -> Territory {
        let entries = policy.entries.iter().map(|entry| (entry.path.clone(), entry.kind == EntryKind::Rw));
        Territory { entries: entries.collect() }
    }

    /// The live root that the deepest entry at or above `path` is.
    pub fn root_of(&self, path: &Path) -> Option<&Path> {
        let deepest = self.entries.iter().filter(|(entry, _)| is_at_or_below(path, entry));
        let (entry, live) = deepest.max_by_key(|(entry, _)| entry.as_os_str().len())?;
        live.then_some(entry.as_path())
    }

    pub(super) fn concerns(&self, change: &Change) -> bool {
        let live = |path: &Path| self.root_of(path).is_some();
        match change {
            Change::Open { at, .. }
            | Change::Write(at)
            | Change::Attributes(at)
            | Change::Make(at)
            | Change::Link(at)
            | Change::Remove(at) => live(at.path()),
            Change::Rename { from, to } => live(from.path()) || live(to.path()),
            Change::Exchange { a, b } => live(a.path()) || live(b.path()),
            Change::Nameless(_) => true,
        }
    }
}
