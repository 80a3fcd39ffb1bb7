//! Names of one root judged one at a time, as they are looked up: what the veil asks where no walk came before the
//! launch. The rules are those of the walk, and so is their order.

use super::names::{Inside, NameVerdict, Scratch};
use super::{Entry, EntryKind, Policy};
use crate::path::{self, FileId, Judge, Verdict};
use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The verdict on one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Absent inside, whatever stands there on the host.
    Hidden,
    /// A hidden directory that holds what is granted below it. What is no directory is hidden.
    Way(Inside),
    /// Visible; what holds inside, should it be a directory.
    Visible(Inside),
    /// Something of the policy's own is mounted over it.
    Covered,
}

/// Judges the names of one root.
pub struct Looker<'a> {
    policy: &'a Policy,
    root: &'a Path,
    scratch: Scratch,
}

impl<'a> Looker<'a> {
    pub fn new(policy: &'a Policy, root: &'a Path) -> Looker<'a> {
        Looker { policy, root, scratch: Scratch::default() }
    }

    /// Judges an absolute path below the root, in a directory in which `inside` holds.
    pub fn look(&mut self, inside: Inside, path: &[u8], dir: bool) -> Look {
        if let Some(entry) = self.policy.entry(Path::new(OsStr::from_bytes(path))) {
            return if self.hides_whole(entry) { Look::Hidden } else { Look::Covered };
        }
        let root_len = self.root.as_os_str().len();
        let (verdict, below) = self.policy.names.judge(inside, path, root_len, dir, &mut self.scratch);
        match verdict {
            NameVerdict::Hidden(_) => Look::Hidden,
            NameVerdict::Through(_) => Look::Way(below),
            NameVerdict::Visible | NameVerdict::Frozen(_) => Look::Visible(below),
        }
    }

    /// Where something below is granted the directory must exist, and a mount of the plan's hides the rest of it.
    fn hides_whole(&self, entry: &Entry) -> bool {
        entry.kind == EntryKind::Hide
            && !self.policy.entries_below(&entry.path).any(|other| other.kind != EntryKind::Hide)
    }

    /// Does the tree at `dir` hold a name that is hidden, or a directory that cannot be searched for one? The walk ends
    /// at the first.
    ///
    /// # Errors
    /// The errno of opening `dir`.
    pub fn holds_hidden(&mut self, inside: Inside, dir: &Path) -> Result<bool, Errno> {
        let policy = self.policy;
        // One that does not exist now is hidden when it comes: the way there must be judged.
        if policy.entries_below(dir).any(|entry| self.hides_whole(entry)) {
            return Ok(true);
        }
        let mut search = Search { looker: self, hit: false };
        let (_, notices) = path::scan(dir, inside, &mut search)?;
        Ok(search.hit || !notices.is_empty())
    }

    /// The inodes of hidden files that have more than one name: each other name shows the same bytes.
    pub fn second_names(&mut self) -> HashSet<FileId> {
        let root = self.root;
        let mut links = Links { looker: self, ids: HashSet::new() };
        // What cannot be opened has no name that could be looked up.
        path::scan(root, Within { inside: Inside::default(), hidden: false }, &mut links).ok();
        links.ids
    }
}

struct Search<'s, 'a> {
    looker: &'s mut Looker<'a>,
    hit: bool,
}

impl Judge for Search<'_, '_> {
    type State = Inside;
    type Rule = ();

    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType) -> (Verdict<Inside>, Option<()>) {
        match self.looker.look(inside, path, kind == FileType::Directory) {
            Look::Visible(below) => (Verdict::Pass(below), None),
            Look::Covered => (Verdict::Skip, None),
            // A way holds hidden names, if not now then later.
            Look::Hidden | Look::Way(_) => {
                self.hit = true;
                (Verdict::Skip, None)
            }
        }
    }

    fn is_done(&self) -> bool {
        self.hit
    }
}

#[derive(Clone, Copy)]
struct Within {
    inside: Inside,
    /// A directory above is hidden as a whole.
    hidden: bool,
}

struct Links<'s, 'a> {
    looker: &'s mut Looker<'a>,
    ids: HashSet<FileId>,
}

impl Judge for Links<'_, '_> {
    type State = Within;
    type Rule = ();

    fn judge(&mut self, state: Within, path: &[u8], kind: FileType) -> (Verdict<Within>, Option<()>) {
        let dir = kind == FileType::Directory;
        let next = if state.hidden {
            Some(state)
        } else {
            match self.looker.look(state.inside, path, dir) {
                Look::Hidden => Some(Within { hidden: true, ..state }),
                Look::Way(inside) | Look::Visible(inside) => Some(Within { inside, hidden: false }),
                Look::Covered => None,
            }
        };
        let Some(next) = next else { return (Verdict::Skip, None) };
        if next.hidden && kind == FileType::RegularFile {
            let path = Path::new(OsStr::from_bytes(path));
            if let Ok(stat) = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
                && stat.st_nlink > 1
            {
                self.ids.insert(FileId { dev: stat.st_dev, ino: stat.st_ino });
            }
        }
        (Verdict::Pass(next), None)
    }
}
