//! The layer that hides names from an overlay: whiteouts (character devices 0:0) below directories that mirror the
//! real ones, for a merged directory shows its topmost layer's mode, owner and times.
//!
//! The veil takes this layer's place where it can be had: it answers the same whiteouts at look-up.

use super::mount::{MountError, call};
use super::root::mirror;
use crate::plan::Whiteout;
use rustix::fs::{FileType, Mode, OFlags, mkdirat, mknodat, openat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// One open directory of the layer, beside the real one that it mirrors.
struct Level {
    path: PathBuf,
    copy: OwnedFd,
    real: OwnedFd,
}

fn open(dir: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Fills the directory `copy` with whiteouts for `names`, sorted, below the tree at `real`.
pub(super) fn fill(copy: BorrowedFd<'_>, real: BorrowedFd<'_>, names: &[Whiteout]) -> Result<(), MountError> {
    let top = Level {
        path: PathBuf::new(),
        copy: call("openat", open(copy, Path::new(".")))?,
        real: call("openat", open(real, Path::new(".")))?,
    };
    let mut levels = vec![top];
    for name in names {
        let parent = name.at.parent().unwrap_or(Path::new(""));
        while levels.len() > 1 && levels.last().is_some_and(|level| !parent.starts_with(&level.path)) {
            close(&mut levels)?;
        }
        if !descend(&mut levels, parent)? {
            continue;
        }
        let (Some(level), Some(file)) = (levels.last(), name.at.file_name()) else { continue };
        match mknodat(&level.copy, file, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(MountError::Errno("mknodat whiteout", errno)),
        }
    }
    while !levels.is_empty() {
        close(&mut levels)?;
    }
    Ok(())
}

/// Opens the directories down to `parent`, making those of the layer. False when the real one is gone by now: then
/// there is nothing to hide.
fn descend(levels: &mut Vec<Level>, parent: &Path) -> Result<bool, MountError> {
    let Some(top) = levels.last() else { return Ok(false) };
    let Ok(rest) = parent.strip_prefix(&top.path) else { return Ok(false) };
    for part in rest.components().filter(|part| matches!(part, Component::Normal(_))) {
        let Some(level) = levels.last() else { return Ok(false) };
        let name = Path::new(part.as_os_str());
        let real = match open(level.real.as_fd(), name) {
            Ok(real) => real,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            Err(errno) => return Err(MountError::Errno("openat", errno)),
        };
        match mkdirat(&level.copy, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(MountError::Errno("mkdirat", errno)),
        }
        let copy = call("openat", open(level.copy.as_fd(), name))?;
        levels.push(Level { path: level.path.join(name), copy, real });
    }
    Ok(true)
}

/// The mirror comes last: making a name in a directory changes its times.
fn close(levels: &mut Vec<Level>) -> Result<(), MountError> {
    match levels.pop() {
        Some(level) => mirror(level.real.as_fd(), level.copy.as_fd()),
        None => Ok(()),
    }
}
