//! Deletes a session: beneath held descriptors, never through a symlink, whatever modes and depths the command left.

use super::store::GONE;
use super::store_error::StoreError;
use super::tree::{self, DIRECTORY, Name};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directories held open at a time. What lies deeper is moved up first.
const DEPTH: usize = 64;

pub fn remove(sessions: BorrowedFd<'_>, dir: &Path, id: &str) -> Result<(), StoreError> {
    let path = dir.join(id);
    let held = match rustix::fs::openat(sessions, id, DIRECTORY, Mode::empty()) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Err(StoreError::Unknown { selector: id.to_owned() }),
        // Something that is no session stands here.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let done = rustix::fs::unlinkat(sessions, id, AtFlags::empty());
            return done.map_err(|errno| StoreError::io("delete", &path, errno));
        }
        Err(Errno::ACCESS) => return purge_session(sessions, dir, id),
        Err(errno) => return Err(StoreError::io("open", &path, errno)),
    };
    lock(&held, id, &path)?;
    purge_session(sessions, dir, id)
}

/// The lock of a running session is held throughout; that of somebody who lists sessions only for a moment.
fn lock(held: &OwnedFd, id: &str, path: &Path) -> Result<(), StoreError> {
    for _ in 0..10 {
        match rustix::fs::flock(held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
            Err(errno) => return Err(StoreError::io("lock", path, errno)),
        }
    }
    Err(StoreError::Running { id: id.to_owned() })
}

/// Renames the session first: it is there whole or not at all for everyone else.
pub fn purge_session(sessions: BorrowedFd<'_>, dir: &Path, id: &str) -> Result<(), StoreError> {
    let gone = if id.starts_with(GONE) { id.to_owned() } else { format!("{GONE}{id}") };
    if gone != id {
        rustix::fs::renameat(sessions, id, sessions, &gone)
            .map_err(|errno| StoreError::io("delete", &dir.join(id), errno))?;
    }
    purge(sessions, OsStr::new(&gone))
        .map_err(|(path, errno)| StoreError::io("delete", &dir.join(&gone).join(path), errno))
}

type Failed = (PathBuf, Errno);

/// Deletes the directory `name` of `parent` and all below it.
pub fn purge(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Failed> {
    empty(parent, name)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(|errno| (PathBuf::new(), errno))
}

/// Deletes all below the directory `name` of `parent`.
pub fn empty(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Failed> {
    let here = |errno| (PathBuf::new(), errno);
    let held = open(parent, name).map_err(here)?;
    let mut purge = Purge { top: &held, moved: 0 };
    // What was too deep has been moved up into the top directory: until nothing is left there.
    while purge.empty(&held, Path::new(""), 0)? {
        rustix::fs::seek(&held, rustix::fs::SeekFrom::Start(0)).map_err(here)?;
    }
    Ok(())
}

struct Purge<'a> {
    top: &'a OwnedFd,
    moved: u64,
}

impl Purge<'_> {
    /// Empties a directory. Says whether something was moved up to the top instead of being deleted.
    fn empty(&mut self, dir: &OwnedFd, path: &Path, depth: usize) -> Result<bool, Failed> {
        let mut moved = false;
        for entry in tree::names(dir.as_fd()).map_err(|errno| (path.to_path_buf(), errno))? {
            let path = path.join(entry.os());
            let failed = |errno| (path.clone(), errno);
            if is_dir(dir, &entry).map_err(failed)? {
                let child = open(dir.as_fd(), entry.os()).map_err(failed)?;
                if depth == DEPTH {
                    self.lift(dir, &entry.name).map_err(failed)?;
                    moved = true;
                    continue;
                }
                moved |= self.empty(&child, &path, depth + 1)?;
                rustix::fs::unlinkat(dir, &entry.name, AtFlags::REMOVEDIR).map_err(failed)?;
            } else {
                match rustix::fs::unlinkat(dir, &entry.name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
        }
        Ok(moved)
    }

    fn lift(&mut self, dir: &OwnedFd, name: &CString) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let target = format!("deep-{}", self.moved);
            match rustix::fs::renameat_with(dir, name, self.top, &target, rustix::fs::RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
    }
}

fn is_dir(dir: &OwnedFd, entry: &Name) -> Result<bool, Errno> {
    match entry.dir {
        Some(known) => Ok(known),
        None => {
            let stat = rustix::fs::statat(dir, &entry.name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
        }
    }
}

/// Opens a directory for emptying. Overlay leaves directories of mode 000 in its work directory, and a command leaves
/// what it likes.
fn open(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let fd = match rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // chmod(2) follows symlinks: hold the directory itself and change it through the descriptor.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            let itself = format!("/proc/self/fd/{}", held.as_raw_fd());
            rustix::fs::chmodat(CWD, itself, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?
        }
        other => other?,
    };
    let stat = rustix::fs::fstat(&fd)?;
    if stat.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&fd, Mode::RWXU)?;
    }
    Ok(fd)
}
