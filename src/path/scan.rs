//! The one walk of a root: every directory read once, every entry judged once by whatever the judge holds.
//!
//! Links are never followed, a directory's type comes from its listing (stat only where the file system does not say),
//! and nothing is entered that the judge hides or that lies on a file system which may not answer.

use super::plain::open_plain;
use super::{FileId, Kind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the judge says of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<S> {
    /// Nothing to do; a directory is entered with this state.
    Pass(S),
    /// Report it; do not enter.
    Stop,
    /// Report it and enter with this state.
    Report(S),
    /// Report it if the file has another name as well; do not enter.
    IfLinked,
    /// Neither reported nor entered.
    Skip,
}

/// Judges entries as the walk meets them. `S` is what the judge knows of the directory it is in.
pub trait Judge {
    type State: Copy;
    type Rule;
    /// The directory whose entries would be judged next: is there anything to judge in it?
    fn enter(&mut self, _: BorrowedFd<'_>) -> bool {
        true
    }
    /// `ino` is the inode number as the listing has it: of two names of one file it is the same, yet it need not be the
    /// number that stat(2) gives (overlays, mount points).
    fn judge(
        &mut self,
        state: Self::State,
        path: &[u8],
        kind: FileType,
        ino: u64,
    ) -> (Verdict<Self::State>, Option<Self::Rule>);
}

/// A file with more than one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linked {
    pub id: FileId,
    pub names: u64,
    /// The inode number of the listing.
    pub listed: u64,
}

/// An entry that the judge wants reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<R> {
    pub path: PathBuf,
    pub kind: Option<Kind>,
    pub link: bool,
    /// Its other names, where it is a file that has some.
    pub linked: Option<Linked>,
    pub rule: R,
}

/// A directory that could not be read, and why. Its content cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanNotice {
    pub path: PathBuf,
    pub errno: Errno,
}

struct Pending<S> {
    path: Vec<u8>,
    state: S,
}

/// What was found, and what could not be read.
pub type Scanned<R> = (Vec<Found<R>>, Vec<ScanNotice>);

/// Walks `root` and returns what the judge reported, in no particular order.
///
/// # Errors
/// The errno of opening the root itself; below it an unreadable directory is a notice.
pub fn scan<J: Judge>(root: &Path, state: J::State, judge: &mut J) -> Result<Scanned<J::Rule>, Errno> {
    let mut found = Vec::new();
    let mut notices = Vec::new();
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 64 * 1024];
    let root_fd = open_dir(rustix::fs::CWD, root.as_os_str())?;
    let root_bytes = root.as_os_str().as_bytes();
    let mut path = root_bytes.to_vec();
    let mut todo: Vec<Pending<J::State>> = Vec::new();
    read_one(&root_fd, &mut path, state, judge, &mut buffer, &mut found, &mut todo).or_else(|errno| {
        notices.push(ScanNotice { path: root.to_path_buf(), errno });
        Ok::<(), Errno>(())
    })?;
    // Depth first from one held descriptor of the root: a path relative to it cannot leave it, for every component
    // came out of a listing as a directory and is opened without following links.
    while let Some(next) = todo.pop() {
        let relative = &next.path[root_bytes.len()..];
        let relative = relative.strip_prefix(b"/").unwrap_or(relative);
        let result = open_beneath(root_fd.as_fd(), OsStr::from_bytes(relative)).and_then(|fd| {
            path.clear();
            path.extend_from_slice(&next.path);
            read_one(&fd, &mut path, next.state, judge, &mut buffer, &mut found, &mut todo)
        });
        match result {
            // Gone or replaced since its parent was listed: what stands there now is judged by no one, and a name that
            // appears after the walk is outside of what a walk can promise.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => {
                notices.push(ScanNotice { path: PathBuf::from(OsStr::from_bytes(&next.path)), errno });
            }
        }
    }
    Ok((found, notices))
}

fn open_dir(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    without_trace(|unseen| rustix::fs::openat(dir, name, flags | unseen, Mode::empty()))
}

/// Opens so that the access time stays, which only an owner may ask for (open(2)): another's directory is read as any
/// program would.
pub fn without_trace(open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        result => result,
    }
}

/// Several components at once: none of them may have become a symlink since it was listed.
fn open_beneath(root: BorrowedFd<'_>, relative: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    without_trace(|unseen| open_plain(root, Path::new(relative), flags | unseen, ResolveFlags::BENEATH))
}

fn read_one<J: Judge>(
    fd: &OwnedFd,
    path: &mut Vec<u8>,
    state: J::State,
    judge: &mut J,
    buffer: &mut [MaybeUninit<u8>],
    found: &mut Vec<Found<J::Rule>>,
    todo: &mut Vec<Pending<J::State>>,
) -> Result<(), Errno> {
    if !judge.enter(fd.as_fd()) {
        return Ok(());
    }
    let dir_len = path.len();
    let mut entries = RawDir::new(fd, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            kind = stat_kind(fd.as_fd(), name)?;
        }
        path.truncate(dir_len);
        path.push(b'/');
        path.extend_from_slice(name.to_bytes());
        let (verdict, rule) = judge.judge(state, path, kind, entry.ino());
        let enter = match verdict {
            Verdict::Pass(inside) | Verdict::Report(inside) => Some(inside),
            Verdict::Stop | Verdict::IfLinked | Verdict::Skip => None,
        };
        if let (Verdict::Stop | Verdict::Report(_) | Verdict::IfLinked, Some(rule)) = (verdict, rule) {
            let linked = linked_at(fd.as_fd(), name, kind, entry.ino());
            if !matches!(verdict, Verdict::IfLinked) || linked.is_some() {
                found.push(Found {
                    path: PathBuf::from(OsStr::from_bytes(path)),
                    kind: kind_of(kind),
                    link: kind == FileType::Symlink,
                    linked,
                    rule,
                });
            }
        }
        if let (Some(state), FileType::Directory) = (enter, kind) {
            todo.push(Pending { path: path.clone(), state });
        }
    }
    path.truncate(dir_len);
    Ok(())
}

/// Only files are looked at, and only those that are reported: the walk itself stats nothing. One that is gone by now
/// has no other name that leads to it.
fn linked_at(dir: BorrowedFd<'_>, name: &std::ffi::CStr, kind: FileType, listed: u64) -> Option<Linked> {
    if matches!(kind, FileType::Directory | FileType::Symlink | FileType::Unknown) {
        return None;
    }
    links_of(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?, listed)
}

fn links_of(stat: &rustix::fs::Stat, listed: u64) -> Option<Linked> {
    if matches!(FileType::from_raw_mode(stat.st_mode), FileType::Directory | FileType::Symlink) {
        return None;
    }
    #[allow(clippy::useless_conversion, reason = "the field's width depends on the architecture")]
    let names = u64::from(stat.st_nlink);
    (names > 1).then_some(Linked { id: FileId { dev: stat.st_dev, ino: stat.st_ino }, names, listed })
}

fn stat_kind(dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<FileType, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => Ok(FileType::Unknown),
        Err(errno) => Err(errno),
    }
}

fn kind_of(kind: FileType) -> Option<Kind> {
    match kind {
        FileType::Directory => Some(Kind::Dir),
        FileType::RegularFile => Some(Kind::File),
        FileType::Socket => Some(Kind::Socket),
        FileType::Fifo => Some(Kind::Fifo),
        FileType::CharacterDevice | FileType::BlockDevice => Some(Kind::Device),
        FileType::Symlink | FileType::Unknown => None,
    }
}

/// The other names of the file at `path`, where it has some; links not followed.
pub fn linked(path: &Path) -> Option<Linked> {
    let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    links_of(&stat, stat.st_ino)
}

/// What stands at `path`, if it is neither nothing nor a link.
pub fn found(path: &Path) -> Option<(FileId, Kind)> {
    let (id, kind) = identity(path).ok()?;
    Some((id, kind_of(kind)?))
}

/// The identity of what stands at `path`, links not followed.
///
/// # Errors
/// The errno of the stat.
pub fn identity(path: &Path) -> Result<(FileId, FileType), Errno> {
    let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((FileId { dev: stat.st_dev, ino: stat.st_ino }, FileType::from_raw_mode(stat.st_mode)))
}
