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
        // A nameless file may have come from anywhere.
        let places = change.places();
        places.is_empty() || places.iter().any(|place| self.root_of(place.path()).is_some())
    }
}
