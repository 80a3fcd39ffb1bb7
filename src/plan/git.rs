//! What of a plan is there for git: hidden names that a repository tracks must not look deleted.

use super::RootStep;
use crate::policy::{Entry, EntryKind, GitAccess, Mode, Policy};
use std::path::{Path, PathBuf};

/// The indexes that lie in this root.
pub(super) fn indexes(policy: &Policy, root: &Entry, steps: &mut Vec<RootStep>) {
    let Some(git) = &policy.git else { return };
    for index in &git.indexes {
        let holder = policy.entry_at(&index.at);
        if holder.is_none_or(|holder| holder.path != root.path) {
            continue;
        }
        let read_only = git.access == GitAccess::Ro || root.kind == EntryKind::Ro;
        if read_only || policy.mode == Mode::DryRun {
            steps.push(RootStep::Index {
                at: index.at.clone(),
                content: index.content.clone(),
                modified: index.modified,
                bound: read_only,
                names: index.names.len(),
            });
        }
    }
}

/// Is this the rule that freezes names in repositories?
pub(super) fn freezes(policy: &Policy, rule: usize) -> bool {
    policy.names.git.as_ref().is_some_and(|git| git.freeze == rule)
}

/// The mask of a hidden name: an empty one, or one that git takes for the file which it tracks.
pub(super) fn mask(policy: &Policy, at: &Path, dir: bool, rule: String) -> RootStep {
    let names = tracked(policy, at);
    if names.is_empty() {
        return RootStep::Mask { at: at.to_path_buf(), dir, rule };
    }
    let names = if dir { names } else { Vec::new() };
    RootStep::Twin { at: at.to_path_buf(), dir, names, rule }
}

/// The tracked names at or below a path, relative to it.
fn tracked(policy: &Policy, at: &Path) -> Vec<PathBuf> {
    let live = policy.git.iter().filter(|_| policy.mode == Mode::Live);
    let names = live.flat_map(|git| &git.indexes).flat_map(|index| &index.names);
    names.filter_map(|name| name.strip_prefix(at).ok().map(Path::to_path_buf)).collect()
}
