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

    /// Does the command line grant this very name? Then the user asked for it, whatever else it is a name of.
    pub fn is_asked_for(&mut self, path: &[u8]) -> bool {
        self.policy.names.is_asked_for(path, self.root.as_os_str().len(), &mut self.scratch)
    }

    /// Does the policy hide a path below? One that does not exist now is hidden when it comes: the way there must be
    /// judged.
    pub fn is_way_to_hidden(&self, dir: &Path) -> bool {
        self.policy.entries_below(dir).any(|entry| self.hides_whole(entry))
    }

    /// Does the tree at `dir` hold a name that is hidden, or a directory that cannot be searched for one? The walk ends
    /// at the first.
    ///
    /// # Errors
    /// The errno of opening `dir`.
    pub fn holds_hidden(&mut self, inside: Inside, dir: &Path) -> Result<bool, Errno> {
        if self.is_way_to_hidden(dir) {
            return Ok(true);
        }
        let mut search = Search { looker: self, hit: false };
        let (_, notices) = path::scan(dir, inside, &mut search)?;
        Ok(search.hit || !notices.is_empty())
    }

    /// Walks the root once: which directories hold a hidden name, and which hidden files have more than one name.
    pub fn index(&mut self) -> Index {
        let root = self.root;
        let mut hidden = Hidden { looker: self, index: Index::default(), left: MOST };
        let scanned = path::scan(root, Within { inside: Inside::default(), hidden: None }, &mut hidden);
        let mut index = hidden.index;
        // What could not be opened is looked at again when somebody asks for it.
        for notice in scanned.map(|(_, notices)| notices).unwrap_or_default() {
            let path = notice.path.as_os_str().as_bytes();
            index.hold_above(path, root);
            index.unsure.insert(path.to_vec());
        }
        index
    }

    /// The other names, in this root, of the files with more than one: the directories above them are added to `index`.
    pub fn index_second_names(&mut self, files: &Links, index: &mut Index) {
        let root = self.root;
        let mut twins = Twins { looker: self, files, index };
        // What cannot be opened has no name that could be looked up.
        path::scan(root, Inside::default(), &mut twins).ok();
    }
}

/// So many files are looked at inside of hidden directories.
const MOST: usize = 20_000;
/// Of `.git`, what is packed: not even a second name of it reads as the file that was committed.
const PACKED: [&[u8]; 2] = [b"objects", b"lfs"];

/// Files with more than one name.
#[derive(Debug, Default)]
pub struct Links {
    pub ids: HashSet<FileId>,
    /// Their inode numbers as listings have them, which need not be those of stat(2).
    listed: HashSet<u64>,
}

impl Links {
    pub fn extend(&mut self, others: Links) {
        self.ids.extend(others.ids);
        self.listed.extend(others.listed);
    }
}

/// What one walk of a root found.
#[derive(Debug, Default)]
pub struct Index {
    /// Directories with a hidden name somewhere below.
    holding: HashSet<Vec<u8>>,
    /// Directories that could not be read.
    unsure: HashSet<Vec<u8>>,
    pub links: Links,
}

impl Index {
    /// Does the directory, which the walk came by, hold a hidden name? `None` where the walk could not tell.
    pub fn holds(&self, dir: &[u8]) -> Option<bool> {
        (!self.unsure.contains(dir)).then(|| self.holding.contains(dir))
    }

    /// `path` is hidden: all the directories above it, below the root, hold it.
    fn hold_above(&mut self, path: &[u8], root: &Path) {
        let root_len = root.as_os_str().len();
        let mut end = path.len();
        while let Some(slash) = path[..end].iter().rposition(|&byte| byte == b'/').filter(|&slash| slash > root_len) {
            if !self.holding.insert(path[..slash].to_vec()) {
                return;
            }
            end = slash;
        }
    }
}

struct Search<'s, 'a> {
    looker: &'s mut Looker<'a>,
    hit: bool,
}

impl Judge for Search<'_, '_> {
    type State = Inside;
    type Rule = ();

    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType, _: u64) -> (Verdict<Inside>, Option<()>) {
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
    /// A directory above is hidden as a whole; the flag says that it is a `.git`.
    hidden: Option<bool>,
}

struct Hidden<'s, 'a> {
    looker: &'s mut Looker<'a>,
    index: Index,
    left: usize,
}

impl Hidden<'_, '_> {
    fn count_names(&mut self, path: &[u8], listed: u64) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let found = rustix::fs::statat(CWD, OsStr::from_bytes(path), AtFlags::SYMLINK_NOFOLLOW);
        if let Ok(stat) = found
            && stat.st_nlink > 1
            && FileType::from_raw_mode(stat.st_mode) != FileType::Directory
        {
            self.index.links.ids.insert(FileId { dev: stat.st_dev, ino: stat.st_ino });
            self.index.links.listed.extend([listed, stat.st_ino]);
        }
    }
}

impl Judge for Hidden<'_, '_> {
    type State = Within;
    type Rule = ();

    fn judge(&mut self, state: Within, path: &[u8], kind: FileType, ino: u64) -> (Verdict<Within>, Option<()>) {
        let dir = kind == FileType::Directory;
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if let Some(git) = state.hidden {
            if dir && (self.left == 0 || (git && PACKED.contains(&name))) {
                return (Verdict::Skip, None);
            }
            if !dir {
                self.count_names(path, ino);
            }
            return (Verdict::Pass(state), None);
        }
        match self.looker.look(state.inside, path, dir) {
            Look::Visible(inside) => (Verdict::Pass(Within { inside, hidden: None }), None),
            Look::Covered => (Verdict::Skip, None),
            Look::Way(inside) if dir => {
                self.index.hold_above(path, self.looker.root);
                self.index.holding.insert(path.to_vec());
                (Verdict::Pass(Within { inside, hidden: None }), None)
            }
            Look::Hidden | Look::Way(_) => {
                self.index.hold_above(path, self.looker.root);
                if !dir {
                    self.count_names(path, ino);
                }
                (Verdict::Pass(Within { hidden: Some(name == b".git"), ..state }), None)
            }
        }
    }
}

/// Looks for inode numbers alone among the names that are visible.
struct Twins<'s, 'a> {
    looker: &'s mut Looker<'a>,
    files: &'s Links,
    index: &'s mut Index,
}

impl Judge for Twins<'_, '_> {
    type State = Inside;
    type Rule = ();

    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType, ino: u64) -> (Verdict<Inside>, Option<()>) {
        let dir = kind == FileType::Directory;
        if !dir && !self.files.listed.contains(&ino) {
            return (Verdict::Skip, None);
        }
        match self.looker.look(inside, path, dir) {
            Look::Visible(below) | Look::Way(below) if dir => (Verdict::Pass(below), None),
            Look::Visible(_) => {
                let found = rustix::fs::statat(CWD, OsStr::from_bytes(path), AtFlags::SYMLINK_NOFOLLOW);
                let id = found.map(|stat| FileId { dev: stat.st_dev, ino: stat.st_ino });
                if id.is_ok_and(|id| self.files.ids.contains(&id)) {
                    self.index.hold_above(path, self.looker.root);
                }
                (Verdict::Skip, None)
            }
            Look::Way(_) | Look::Hidden | Look::Covered => (Verdict::Skip, None),
        }
    }
}
