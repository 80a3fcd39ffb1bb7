//! What a command changed below one root, read from the upper layer of its overlay. Nothing here writes, follows a
//! symlink or trusts a name: the layer was written by the command.

use super::quote;
use super::store::Layer;
use super::tree::Tree;
use super::walk::{self, Found};
use crate::policy::Seen;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// What the name at this absolute host path was to the command. The flag says whether it is a directory.
pub type Judged<'a> = &'a dyn Fn(&Path, bool) -> Seen;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Created,
    Modified,
    Deleted,
    /// Another kind of file stands at the name, such as a symlink where a directory was.
    TypeChanged,
    ModeChanged,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Created => "created",
            Kind::Modified => "modified",
            Kind::Deleted => "deleted",
            Kind::TypeChanged => "type-changed",
            Kind::ModeChanged => "mode-changed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    File,
    Dir,
    Symlink(OsString),
    Fifo,
    Socket,
    Device,
}

impl FileKind {
    pub fn name(&self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Dir => "directory",
            FileKind::Symlink(_) => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::Device => "device",
        }
    }

    pub(super) fn of(stat: &Stat) -> FileKind {
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => FileKind::Dir,
            libc::S_IFLNK => FileKind::Symlink(OsString::new()),
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR | libc::S_IFBLK => FileKind::Device,
            _ => FileKind::File,
        }
    }
}

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: FileKind,
    /// The permission bits with set-id and sticky, `07777`.
    pub mode: u32,
    pub size: u64,
}

impl Entry {
    pub(super) fn of(stat: &Stat) -> Entry {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Entry { kind: FileKind::of(stat), mode: stat.st_mode & 0o7777, size }
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Dir
    }
}

/// One changed name. A directory that was created or deleted is followed by one change for each name below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the root; empty for the root itself.
    pub path: PathBuf,
    pub kind: Kind,
    pub old: Option<Entry>,
    pub new: Option<Entry>,
    /// Its content cannot be read by this user, so nothing can be said about it.
    pub unreadable: bool,
}

/// A path and what is to be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub path: PathBuf,
    pub text: String,
}

/// All changes below one root, and the two trees they were read from.
#[derive(Debug)]
pub struct LayerChanges {
    pub root: PathBuf,
    pub host: Tree,
    pub upper: Tree,
    /// Sorted by path, a parent before what is below it.
    pub changes: Vec<Change>,
    /// Hidden names below a directory that the command removed: they stay, and so do the directories on the way.
    pub kept: Vec<PathBuf>,
    /// Names that cannot be told or must not be followed.
    pub refused: Vec<Remark>,
    /// What is no change of content, mode or kind, yet worth a line: attributes, owners.
    pub notes: Vec<Remark>,
    /// Names of both trees with the same content and mode: their times, owners and attributes may differ, which a diff
    /// does not show and an apply carries over.
    pub quiet: Vec<PathBuf>,
}

impl LayerChanges {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.kept.is_empty() && self.refused.is_empty() && self.notes.is_empty()
    }

    /// Names what was made at a name that the host obeys: it is in the diff like everything else, and easily passed over.
    pub fn remark_obeyed(&mut self, obeyed: impl Fn(&Path) -> Option<String>) {
        let made = self.changes.iter().filter(|change| change.new.is_some() && change.kind != Kind::ModeChanged);
        let remarks = made.filter_map(|change| {
            let rule = obeyed(&self.root.join(&change.path))?;
            let text = format!("the host obeys this name later: frozen by {rule}; look at it before it is used");
            Some(Remark { path: change.path.clone(), text })
        });
        let mut remarks: Vec<Remark> = remarks.collect();
        self.notes.append(&mut remarks);
        self.notes.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Takes everything below a directory out of the changes, with one remark for all of it.
    pub fn refuse_below(&mut self, dir: &Path, text: &str) {
        let Ok(below) = dir.strip_prefix(&self.root).map(Path::to_path_buf) else { return };
        let before = self.changes.len();
        self.changes.retain(|change| !change.path.starts_with(&below));
        self.quiet.retain(|path| !path.starts_with(&below));
        if self.changes.len() < before {
            self.refused.push(Remark { path: below, text: text.to_owned() });
        }
    }

    /// Leaves only what `keep` says of absolute host paths.
    pub fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        let root = &self.root;
        self.changes.retain(|change| keep(&root.join(&change.path)));
        self.kept.retain(|path| keep(&root.join(path)));
        self.refused.retain(|remark| keep(&root.join(&remark.path)));
        self.notes.retain(|remark| keep(&root.join(&remark.path)));
        self.quiet.retain(|path| keep(&root.join(path)));
    }
}

#[derive(Debug)]
pub enum ChangesError {
    /// The root or its layer is not there any more.
    Open { path: PathBuf, errno: Errno },
    /// A call failed on one name of the layer or of the root.
    Look { path: PathBuf, errno: Errno },
}

impl fmt::Display for ChangesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangesError::Open { path, errno } => {
                write!(f, "cannot open the directory {}: {errno}", quote::text(path.as_os_str()))
            }
            ChangesError::Look { path, errno } => {
                write!(f, "cannot read the changes at {}: {errno}", quote::text(path.as_os_str()))
            }
        }
    }
}

impl std::error::Error for ChangesError {}

/// Reads what the layer says, compared with the root as it is now. Safe while the command runs: names that come and
/// go meanwhile are told or not, nothing fails over them.
///
/// # Errors
/// When the root or the layer cannot be opened, or a call fails for another reason than the name's own permissions.
pub fn read(layer: &Layer, judged: Judged<'_>) -> Result<LayerChanges, ChangesError> {
    let open = |path: &Path| Tree::open(path).map_err(|errno| ChangesError::Open { path: path.to_path_buf(), errno });
    let (host, upper) = (open(&layer.root)?, open(&layer.upper)?);
    let mut found = walk::walk(&host, &upper, &layer.root, judged)?;
    set_frozen_aside(&mut found, &layer.root, judged);
    Ok(LayerChanges {
        root: layer.root.clone(),
        host,
        upper,
        changes: found.changes,
        kept: found.kept,
        refused: found.refused,
        notes: found.notes,
        quiet: found.quiet,
    })
}

/// A frozen name of the host's that was changed all the same is refused, and the directories on the way to one that was
/// deleted stay. Not every one is read-only inside: the veil knows no list of them before the launch.
fn set_frozen_aside(found: &mut Found, root: &Path, judged: Judged<'_>) {
    let is_frozen = |change: &Change| {
        change.old.as_ref().is_some_and(|old| judged(&root.join(&change.path), old.is_dir()) == Seen::Frozen)
    };
    let (frozen, mut rest): (Vec<Change>, Vec<Change>) =
        std::mem::take(&mut found.changes).into_iter().partition(is_frozen);
    let stays = |dir: &Path| frozen.iter().any(|name| name.new.is_none() && name.path.starts_with(dir));
    rest.retain(|change| change.new.is_some() || !stays(&change.path));
    found.changes = rest;
    let text = "frozen, for the host obeys it later: what the command made of it stays in the session";
    found.refused.extend(frozen.into_iter().map(|change| Remark { path: change.path, text: text.into() }));
    found.refused.sort_by(|a, b| a.path.cmp(&b.path));
}
