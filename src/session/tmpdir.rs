//! TMPDIR of a run without mounts: the one private directory that it has, made before the launch and removed after it,
//! or by the next run when this one was killed.

use super::remove::purge;
use super::store::{make, ours};
use super::store_error::StoreError;
use super::tree::{self, DIRECTORY};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

#[derive(Debug)]
pub(super) struct TmpDir {
    parent: OwnedFd,
    name: OsString,
    /// Whoever holds it lives: nobody else removes the directory.
    _lock: OwnedFd,
}

impl TmpDir {
    /// Makes the directory, mode 0700, and removes those beside it whose run is gone.
    pub fn make(path: &Path) -> Result<TmpDir, StoreError> {
        let io = |what, errno| StoreError::io(what, path, errno);
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io("make", Errno::INVAL));
        };
        make(above)?;
        let parent = open(CWD, above.as_os_str()).map_err(|errno| StoreError::io("open", above, errno))?;
        ours(&parent, above)?;
        // Between making and locking nobody may take the new one for a dead run's.
        let turn = open(parent.as_fd(), OsStr::new(".")).map_err(|errno| io("open", errno))?;
        rustix::fs::flock(&turn, FlockOperation::LockExclusive).map_err(|errno| io("lock", errno))?;
        let dead = dead(&parent);
        rustix::fs::mkdirat(&parent, name, Mode::RWXU).map_err(|errno| io("make", errno))?;
        let lock = open(parent.as_fd(), name).map_err(|errno| io("open", errno))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| io("lock", errno))?;
        drop(turn);
        for (name, lock) in dead {
            // What cannot be removed now is tried again by the next run.
            purge(parent.as_fd(), &name).ok();
            drop(lock);
        }
        Ok(TmpDir { parent, name: name.to_owned(), _lock: lock })
    }
}

impl Drop for TmpDir {
    fn drop(&mut self) {
        // The same holds: the next run removes it.
        purge(self.parent.as_fd(), &self.name).ok();
    }
}

fn open(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The directories that no living run holds, each locked.
fn dead(parent: &OwnedFd) -> Vec<(OsString, OwnedFd)> {
    let names = open(parent.as_fd(), OsStr::new(".")).and_then(|dir| tree::names(dir.as_fd())).unwrap_or_default();
    let free = |name: &OsStr| {
        let held = open(parent.as_fd(), name).ok()?;
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(held)
    };
    names.iter().filter_map(|name| Some((name.os().to_owned(), free(name.os())?))).collect()
}
