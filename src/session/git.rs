//! What a run leaves behind for git: pointers that were planted are moved aside, and what the box itself wrote into a
//! layer is no change.

use super::LayerChanges;
use super::changes::Kind;
use crate::policy::{GitAccess, Mode, Policy, digest};
use rustix::fs::{CWD, OFlags, RenameFlags};
use std::path::{Path, PathBuf};

/// Behind the name of a pointer that was moved aside.
const ASIDE: &str = ".made-in-a-box";

/// After a live run: names of a repository that were not there and make git obey other configuration, or borrow
/// objects. The kernel cannot keep a name from being made, so they are moved to one that says nothing to git. Each with where it lies now; `None` where it could not be moved.
pub fn disarm(policy: &Policy) -> Vec<(PathBuf, Option<PathBuf>)> {
    let live = policy.git.iter().filter(|git| policy.mode == Mode::Live && git.access == GitAccess::Rw);
    let mut out = Vec::new();
    for pointer in live.flat_map(|git| &git.repositories).flat_map(|found| &found.absent) {
        // Beneath the repository's own directory, which nobody inside can have moved.
        let (Some(dir), Some(name)) = (pointer.parent(), pointer.file_name()) else { continue };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dir_fd) = crate::path::open_plain(CWD, dir, flags, rustix::fs::ResolveFlags::empty()) else { continue };
        if rustix::fs::statat(&dir_fd, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_err() {
            continue;
        }
        let free = (0..100).map(|number| {
            let mut aside = name.to_owned();
            aside.push(ASIDE);
            if number > 0 {
                aside.push(format!("-{number}"));
            }
            aside
        });
        let moved = |aside: &std::ffi::OsString| {
            rustix::fs::renameat_with(&dir_fd, name, &dir_fd, aside.as_os_str(), RenameFlags::NOREPLACE).is_ok()
        };
        out.push((pointer.clone(), free.into_iter().find(moved).map(|aside| dir.join(aside))));
    }
    out
}

impl LayerChanges {
    /// Takes out the files that the box wrote before the command ran and that nobody wrote since. `digest_of` knows what
    /// they were.
    pub fn forget_written_by_the_box(&mut self, digest_of: impl Fn(&Path) -> Option<String>) {
        let (root, upper) = (&self.root, &self.upper);
        self.changes.retain(|change| {
            let Some(before) = digest_of(&root.join(&change.path)) else { return true };
            let unchanged =
                change.kind == Kind::Modified && read(upper, &change.path).is_some_and(|now| digest(&now) == before);
            !unchanged
        });
    }
}

fn read(tree: &super::tree::Tree, path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    tree.file(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
