//! The name rules of a granted repository: what [`NameRules`](super::super::NameRules) asks before its patterns.

use super::inner::{Inner, inner};
use crate::profile::GitAccess;
use serde::{Deserialize, Serialize};

/// The git directories of a policy. The numbers are rules, for those who ask which one it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitNames {
    pub access: GitAccess,
    /// The rule that grants them.
    pub grant: usize,
    /// The rule that freezes what the host obeys in them.
    pub freeze: usize,
    /// Those that are known by their path: a root of its own, or one that is not called `.git`.
    pub dirs: Vec<Vec<u8>>,
    /// Directories of other working trees, whose names nobody inside can judge: `git worktree prune` would delete them.
    pub frozen: Vec<Vec<u8>>,
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.first() == Some(&b'/'))
}

impl GitNames {
    /// The length of the path of a known git directory that holds `path`.
    pub fn holder(&self, path: &[u8]) -> Option<usize> {
        self.dirs.iter().filter(|dir| is_below(path, dir)).map(Vec::len).max()
    }

    /// Is it the name of a git directory, or of a pointer to one?
    pub fn is_repository(&self, path: &[u8]) -> bool {
        path.ends_with(b"/.git") || self.dirs.iter().any(|dir| dir == path)
    }

    /// What stands at `path` in the git directory whose path is so long.
    pub fn inner(&self, path: &[u8], length: usize, dir: bool) -> Inner {
        if self.frozen.iter().any(|frozen| path == frozen.as_slice() || is_below(path, frozen)) {
            return Inner::Frozen;
        }
        inner(path.get(length + 1..).unwrap_or_default(), dir)
    }
}
