//! The files whose content is the command's own: they need no backup, only the word that they were not there.
//!
//! A call that makes a file is told of before it is made, when nobody knows which file it will be, and it may fail. So
//! a name waits here until something is found there, and from then on the file itself counts: a rename that failed must
//! not make the command's own what is the host's.

use super::node::{Identity, look_on_host};
use rustix::fs::Statx;
use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub(super) struct Own {
    files: HashSet<Identity>,
    awaited: BTreeSet<PathBuf>,
}

impl Own {
    /// Something is about to be made where nothing is.
    pub fn awaits(&mut self, path: &Path) {
        self.awaited.insert(path.to_path_buf());
    }

    /// Is what stands at `path` the command's own?
    pub fn is(&mut self, path: &Path, stat: &Statx) -> bool {
        let identity = Identity::of(stat);
        if self.awaited.remove(path) {
            self.files.insert(identity);
        }
        self.files.contains(&identity)
    }

    /// The last name of a file goes.
    pub fn forget(&mut self, stat: &Statx) {
        self.files.remove(&Identity::of(stat));
    }

    /// The names that are awaited below `from` will be below `to`, if the call succeeds. What stands there now is
    /// something else.
    pub fn moved(&mut self, from: &Path, to: &Path) {
        // Paths compare by their components: what lies below one stands right behind it.
        let behind = self.awaited.range::<Path, _>((Bound::Excluded(from), Bound::Unbounded));
        let below: Vec<PathBuf> = behind.take_while(|name| name.starts_with(from)).cloned().collect();
        for old in below {
            self.awaited.remove(&old);
            let Ok(rest) = old.strip_prefix(from) else { continue };
            let new = to.join(rest);
            if matches!(look_on_host(&new), Ok(None)) {
                self.awaited.insert(new);
            }
        }
    }
}
