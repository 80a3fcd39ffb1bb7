//! The one walk over an upper layer.

mod removed;

use super::attributes::{Marks, differing, marks};
use super::changes::{Change, ChangesError, Entry, FileKind, Judged, Kind, Remark};
use super::tree::{self, Name, Tree};
use crate::policy::Seen;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// No path longer than this can be named to the kernel (PATH_MAX with its NUL).
const PATH_MAX: usize = 4095;

#[derive(Debug, Default)]
pub struct Found {
    pub changes: Vec<Change>,
    pub kept: Vec<PathBuf>,
    pub refused: Vec<Remark>,
    pub notes: Vec<Remark>,
    pub quiet: Vec<PathBuf>,
}

/// A directory of the upper layer that is still to be read.
struct Todo {
    path: PathBuf,
    stat: Stat,
    /// What the command could see at this name before it ran.
    old: Option<Stat>,
    /// A directory above is opaque, so nothing of the host shows in here.
    opaque: bool,
}

struct Walk<'a> {
    host: &'a Tree,
    upper: &'a Tree,
    root: &'a Path,
    judged: Judged<'a>,
    todo: Vec<Todo>,
    found: Found,
}

pub fn walk(host: &Tree, upper: &Tree, root: &Path, judged: Judged<'_>) -> Result<Found, ChangesError> {
    let open = |errno| ChangesError::Open { path: root.to_path_buf(), errno };
    let first = Todo {
        path: PathBuf::new(),
        stat: upper.stat().map_err(open)?,
        old: Some(host.stat().map_err(open)?),
        opaque: false,
    };
    let mut walk = Walk { host, upper, root, judged, todo: vec![first], found: Found::default() };
    while let Some(dir) = walk.todo.pop() {
        walk.directory(&dir)?;
    }
    let mut found = walk.found;
    // By component, so that a parent stands before what is below it.
    found.changes.sort_by(|a, b| a.path.cmp(&b.path));
    found.kept.sort();
    found.refused.sort_by(|a, b| a.path.cmp(&b.path));
    found.notes.sort_by(|a, b| a.path.cmp(&b.path));
    found.quiet.sort();
    Ok(found)
}

fn is_dir(stat: &Stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}

/// How overlayfs marks a deleted name: a character device 0:0, which nobody else can have a use for.
fn is_whiteout(stat: &Stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == 0
}

impl Walk<'_> {
    fn hidden(&self, path: &Path, dir: bool) -> bool {
        (self.judged)(&self.root.join(path), dir) == Seen::Hidden
    }

    fn error(&self, path: &Path, errno: Errno) -> ChangesError {
        ChangesError::Look { path: self.root.join(path), errno }
    }

    fn push(&mut self, path: &Path, kind: Kind, old: Option<Entry>, new: Option<Entry>) {
        self.found.changes.push(Change { path: path.to_path_buf(), kind, old, new, unreadable: false });
    }

    fn refuse(&mut self, path: &Path, text: impl Into<String>) {
        self.found.refused.push(Remark { path: path.to_path_buf(), text: text.into() });
    }

    fn note(&mut self, path: &Path, text: impl Into<String>) {
        self.found.notes.push(Remark { path: path.to_path_buf(), text: text.into() });
    }

    fn directory(&mut self, dir: &Todo) -> Result<(), ChangesError> {
        let upper = match self.upper.dir(&dir.path) {
            Ok(fd) => Some(fd),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(Errno::ACCESS) => None,
            Err(errno) => return Err(self.error(&dir.path, errno)),
        };
        let marks = match &upper {
            Some(fd) => marks(fd).map_err(|errno| self.error(&dir.path, errno))?,
            None => Marks::default(),
        };
        if let Some(name) = marks.hostile {
            self.refuse(&dir.path, format!("carries the attribute {name}, which nothing here may have set"));
            return Ok(());
        }
        let merged = dir.old.as_ref().is_some_and(is_dir);
        let host = if merged { self.host_dir(&dir.path)? } else { None };
        self.own_change(dir, upper.as_ref(), &marks, host.as_ref());
        let Some(upper) = upper else {
            self.refuse(&dir.path, "unreadable: the command took away the permission to list it");
            return Ok(());
        };
        let names = tree::names(upper.as_fd()).map_err(|errno| self.error(&dir.path, errno))?;
        let opaque = dir.opaque || marks.opaque;
        for name in &names {
            self.entry(dir, &upper, host.as_ref(), name, opaque)?;
        }
        if let (true, Some(host)) = (opaque, &host) {
            let present: HashSet<&CString> = names.iter().map(|name| &name.name).collect();
            self.lost(&dir.path, host, |name| present.contains(&name.name))?;
        }
        Ok(())
    }

    /// The host's directory of the same name; `None`, with a remark, where it cannot be looked into.
    fn host_dir(&mut self, path: &Path) -> Result<Option<OwnedFd>, ChangesError> {
        match self.host.dir(path) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(Errno::XDEV) => {
                self.note(path, "another file system is mounted here on the host: not compared");
                Ok(None)
            }
            Err(Errno::ACCESS) => {
                self.note(path, "the host's directory cannot be listed: not compared");
                Ok(None)
            }
            Err(errno) => Err(self.error(path, errno)),
        }
    }

    fn own_change(&mut self, dir: &Todo, upper: Option<&OwnedFd>, marks: &Marks, host: Option<&OwnedFd>) {
        let new = Entry::of(&dir.stat);
        match &dir.old {
            None => self.push(&dir.path, Kind::Created, None, Some(new)),
            Some(old) if !is_dir(old) => {
                let old = self.old_entry(&dir.path, old);
                self.push(&dir.path, Kind::TypeChanged, Some(old), Some(new));
            }
            Some(old) => {
                // The upper layer's own top directory was made by the launcher: its owner and attributes say nothing.
                let top = dir.path.as_os_str().is_empty();
                if !top {
                    self.owner(&dir.path, &dir.stat, old);
                }
                if let (Some(upper), Some(host), false) = (upper, host, top) {
                    self.attributes(&dir.path, upper, marks, host);
                }
                let old = Entry::of(old);
                if old.mode != new.mode {
                    self.push(&dir.path, Kind::ModeChanged, Some(old), Some(new));
                } else {
                    self.found.quiet.push(dir.path.clone());
                }
            }
        }
    }

    fn owner(&mut self, path: &Path, new: &Stat, old: &Stat) {
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
            let text = format!("owner {}:{} -> {}:{}", old.st_uid, old.st_gid, new.st_uid, new.st_gid);
            self.note(path, text);
        }
    }

    fn attributes(&mut self, path: &Path, upper: impl AsFd, marks: &Marks, host: impl AsFd) {
        let names = differing(upper, &marks.own, host);
        if !names.is_empty() {
            self.note(path, format!("extended attributes changed: {}", names.join(", ")));
        }
    }

    fn entry(
        &mut self,
        dir: &Todo,
        upper: &OwnedFd,
        host: Option<&OwnedFd>,
        name: &Name,
        opaque: bool,
    ) -> Result<(), ChangesError> {
        let path = dir.path.join(name.os());
        let new = tree::stat(upper.as_fd(), &name.name);
        let old = host.map_or(Ok(None), |host| tree::stat(host.as_fd(), &name.name));
        let (new, old) = match (new, old) {
            (Ok(Some(new)), Ok(old)) => (new, old),
            (Ok(None), _) => return Ok(()),
            // A directory that may be listed but not entered (mode 0444).
            (Err(Errno::ACCESS), _) | (_, Err(Errno::ACCESS)) => {
                self.refuse(&path, "unreadable: its directory may not be entered");
                return Ok(());
            }
            (Err(errno), _) | (_, Err(errno)) => return Err(self.error(&path, errno)),
        };
        if let Some(twin) = &old
            && self.hidden(&path, is_dir(twin))
        {
            // A whiteout here is the box's own way to hide the name, never a deletion by the command.
            if !is_whiteout(&new) {
                self.refuse(&path, "hidden on the host: what the command made at this name stays in the session");
            }
            return Ok(());
        }
        if path.as_os_str().len() > PATH_MAX {
            self.refuse(&path, "the path is longer than the kernel can name");
            return Ok(());
        }
        if is_whiteout(&new) {
            if let (Some(old), Some(host)) = (&old, host) {
                self.delete(&path, host.as_fd(), &name.name, old)?;
            }
            return Ok(());
        }
        if is_dir(&new) {
            self.todo.push(Todo { path, stat: new, old, opaque });
            return Ok(());
        }
        match old {
            Some(old) if is_dir(&old) => self.replaced_dir(&path, upper.as_fd(), &name.name, &new, &old),
            old => self.leaf(&path, upper.as_fd(), &name.name, &new, old.as_ref()),
        }
    }

    /// Something else stands where the host has a directory.
    fn replaced_dir(
        &mut self,
        path: &Path,
        upper: BorrowedFd<'_>,
        name: &CString,
        new: &Stat,
        old: &Stat,
    ) -> Result<(), ChangesError> {
        if self.delete_children(path)? {
            let new = self.link_entry(path, upper, name, new)?;
            self.push(path, Kind::TypeChanged, Some(Entry::of(old)), Some(new));
        } else {
            self.refuse(path, "the directory it replaces holds hidden names, and stays");
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        path: &Path,
        upper: BorrowedFd<'_>,
        name: &CString,
        new: &Stat,
        old: Option<&Stat>,
    ) -> Result<(), ChangesError> {
        let is_file = new.st_mode & libc::S_IFMT == libc::S_IFREG;
        let content = if is_file { self.content(path, new, old)? } else { Content::Same };
        if content == Content::Refused {
            return Ok(());
        }
        let entry = self.link_entry(path, upper, name, new)?;
        let kind = match old {
            None => Kind::Created,
            Some(old) => {
                let before = self.old_entry(path, old);
                let same_kind = std::mem::discriminant(&before.kind) == std::mem::discriminant(&entry.kind);
                let moved =
                    before.kind != entry.kind || (before.kind == FileKind::Device && old.st_rdev != new.st_rdev);
                self.owner(path, new, old);
                if !same_kind {
                    Kind::TypeChanged
                } else if moved || content != Content::Same {
                    Kind::Modified
                } else if before.mode != entry.mode {
                    Kind::ModeChanged
                } else {
                    self.found.quiet.push(path.to_path_buf());
                    return Ok(());
                }
            }
        };
        let old = old.map(|old| self.old_entry(path, old));
        let unreadable = content == Content::Unreadable;
        self.found.changes.push(Change { path: path.to_path_buf(), kind, old, new: Some(entry), unreadable });
        Ok(())
    }

    /// Compares the bytes of a file of the layer with its twin, and looks at its attributes on the way.
    fn content(&mut self, path: &Path, new: &Stat, old: Option<&Stat>) -> Result<Content, ChangesError> {
        let upper = match self.upper.file(path) {
            Ok(file) => file,
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Content::Unreadable),
            // Gone while the command runs.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Content::Refused),
            Err(errno) => return Err(self.error(path, errno)),
        };
        let marks = marks(&upper).map_err(|errno| self.error(path, errno))?;
        if let Some(name) = marks.hostile {
            self.refuse(path, format!("carries the attribute {name}, which nothing here may have set"));
            return Ok(Content::Refused);
        }
        let is_file = |stat: &&Stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        let Some(old) = old.filter(is_file) else { return Ok(Content::Same) };
        let host = match self.host.file(path) {
            Ok(file) => file,
            Err(_) if old.st_size != new.st_size => return Ok(Content::Changed),
            Err(_) => return Ok(Content::Unreadable),
        };
        self.attributes(path, &upper, &marks, &host);
        if old.st_size != new.st_size {
            return Ok(Content::Changed);
        }
        match tree::same_content(&upper, &host) {
            Ok(true) => Ok(Content::Same),
            Ok(false) => Ok(Content::Changed),
            Err(err) => Err(self.error(path, Errno::from_io_error(&err).unwrap_or(Errno::IO))),
        }
    }

    fn link_entry(&self, path: &Path, dir: BorrowedFd<'_>, name: &CString, stat: &Stat) -> Result<Entry, ChangesError> {
        let mut entry = Entry::of(stat);
        if let FileKind::Symlink(target) = &mut entry.kind {
            let read = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(|errno| self.error(path, errno))?;
            *target = OsString::from_vec(read.into_bytes());
        }
        Ok(entry)
    }

    /// The host's side of a change. A link that vanished meanwhile keeps an empty target.
    fn old_entry(&self, path: &Path, stat: &Stat) -> Entry {
        let mut entry = Entry::of(stat);
        if let FileKind::Symlink(target) = &mut entry.kind {
            *target = self.host.link(path).unwrap_or_default();
        }
        entry
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Same,
    Changed,
    Unreadable,
    /// Already told, or gone.
    Refused,
}
