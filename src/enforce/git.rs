//! The steps of a plan that are there for git.

use super::mount::{MountError, Result, attach, call, clone_tree, destination, relative, set_attributes};
use crate::path::open_plain;
use crate::sys::MountAttr;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, mkdirat, openat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

fn time(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ }
}

fn set_modified(file: &OwnedFd, modified: Timespec) -> Result<()> {
    let times = Timestamps { last_access: modified, last_modification: modified };
    call("futimens", rustix::fs::futimens(file, &times))
}

fn write(file: &OwnedFd, mut content: &[u8]) -> Result<()> {
    while !content.is_empty() {
        let written = call("write", rustix::io::write(file, content))?;
        content = &content[written..];
    }
    Ok(())
}

/// Writes an index through the mount of its root, which copies it into the session's layer. Its time stays the host's: by
/// that git knows which entries it has to look at again.
pub(super) fn write_index(root: BorrowedFd<'_>, at: &Path, content: &[u8], modified: (i64, i64)) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = match open_plain(root, relative(at), flags, resolve) {
        Ok(file) => file,
        // A repository without one by now tracks nothing.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(MountError::Errno("openat2", errno)),
    };
    write(&file, content)?;
    set_modified(&file, time(modified.0, modified.1))
}

/// Binds an index read-only over the real one.
pub(super) fn bind_index(
    root: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    at: &Path,
    content: &[u8],
    modified: (i64, i64),
) -> Result<()> {
    let target = match destination(root, at) {
        Ok(target) => target,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(MountError::Errno("openat2", errno)),
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = call("openat", openat(dir, "index", flags, Mode::from_raw_mode(0o444)))?;
    write(&file, content)?;
    set_modified(&file, time(modified.0, modified.1))?;
    drop(file);
    cover(dir, Path::new("index"), &target)
}

/// Covers a hidden name with one that answers stat(2) as it does and cannot be opened: for git it is unchanged.
/// `dir` is a fresh directory for what that takes.
pub(super) fn twin(root: BorrowedFd<'_>, dir: BorrowedFd<'_>, at: &Path, names: &[impl AsRef<Path>]) -> Result<()> {
    let target = match destination(root, at) {
        Ok(target) => target,
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(MountError::Changed),
        Err(errno) => return Err(MountError::Errno("openat2", errno)),
    };
    let stat = call("fstat", rustix::fs::fstat(&target))?;
    let name = Path::new("twin");
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        like(dir, name, &stat)?;
        return cover(dir, name, &target);
    }
    call("mkdirat", mkdirat(dir, name, Mode::from_raw_mode(0o755)))?;
    let copy = call("openat", openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))?;
    for name in names {
        let name = name.as_ref();
        // What the host has not, git may well call deleted: so it is there.
        let Some(stat) = stat_beneath(&target, name) else { continue };
        if directories(&copy, name)? {
            like(copy.as_fd(), name, &stat)?;
        }
    }
    lock(&copy, names)?;
    cover(dir, name, &target)
}

/// The stat of a name below a directory of the host, where no component is a link.
fn stat_beneath(dir: &OwnedFd, name: &Path) -> Option<Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = open_plain(dir.as_fd(), name, flags, ResolveFlags::BENEATH).ok()?;
    rustix::fs::fstat(&found).ok()
}

/// Makes the directories on the way to `name`. False where a file stands in the way: an index has no such names, but one
/// that is a stranger's may.
fn directories(copy: &OwnedFd, name: &Path) -> Result<bool> {
    let mut way: Vec<&Path> = name.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()).collect();
    way.reverse();
    for dir in way {
        match mkdirat(copy, dir, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(Errno::NOTDIR) => return Ok(false),
            Err(errno) => return Err(MountError::Errno("mkdirat", errno)),
        }
    }
    Ok(true)
}

/// Directories that can be passed and not be listed, once all is in them.
fn lock(copy: &OwnedFd, names: &[impl AsRef<Path>]) -> Result<()> {
    let passed = Mode::from_raw_mode(0o111);
    let mut dirs: Vec<&Path> = names.iter().flat_map(|name| name.as_ref().ancestors().skip(1)).collect();
    dirs.sort_by(|a, b| b.cmp(a));
    dirs.dedup();
    for dir in dirs.into_iter().filter(|dir| !dir.as_os_str().is_empty()) {
        match rustix::fs::chmodat(copy, dir, passed, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => return Err(MountError::Errno("fchmodat", errno)),
        }
    }
    call("fchmod", rustix::fs::fchmod(copy, passed))
}

/// A file without content that has the size, the time and the executable bit of another, and no right to be read. What is
/// no regular file there is a plain one here: it is hidden all the same.
fn like(dir: BorrowedFd<'_>, name: &Path, stat: &Stat) -> Result<()> {
    let mode = Mode::from_raw_mode(stat.st_mode & 0o100);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, mode) {
        Ok(file) => file,
        Err(Errno::EXIST | Errno::NOTDIR) => return Ok(()),
        Err(errno) => return Err(MountError::Errno("openat", errno)),
    };
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        call("ftruncate", rustix::fs::ftruncate(&file, size))?;
    }
    set_modified(&file, time(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)))
}

fn cover(dir: BorrowedFd<'_>, name: &Path, target: &OwnedFd) -> Result<()> {
    let tree = call("open_tree", clone_tree(dir, name, false))?;
    call("mount_setattr", set_attributes(tree.as_fd(), MountAttr::RDONLY))?;
    match attach(&tree, target.as_fd()) {
        Err(Errno::INVAL | Errno::NOTDIR) => Err(MountError::Changed),
        attached => call("move_mount", attached),
    }
}
