//! What a whiteout or an opaque directory means: the deletion of the names that the command could see, one by one.

use super::{PATH_MAX, Walk, is_dir};
use crate::session::changes::{ChangesError, Kind};
use crate::session::tree::{self, Name};
use rustix::fs::Stat;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

impl Walk<'_> {
    /// The command deleted `path`, or a directory above it. What it could not see stays, and so does the way there.
    /// Says whether the name is gone.
    pub(super) fn delete(
        &mut self,
        path: &Path,
        parent: BorrowedFd<'_>,
        name: &CString,
        stat: &Stat,
    ) -> Result<bool, ChangesError> {
        let dir = is_dir(stat);
        if self.hidden(path, dir) {
            self.found.kept.push(path.to_path_buf());
            return Ok(false);
        }
        if dir && !self.delete_children(path)? {
            return Ok(false);
        }
        let old = self.link_entry(path, parent, name, stat)?;
        self.push(path, Kind::Deleted, Some(old), None);
        Ok(true)
    }

    pub(super) fn delete_children(&mut self, path: &Path) -> Result<bool, ChangesError> {
        if path.as_os_str().len() > PATH_MAX {
            self.refuse(path, "the path is longer than the kernel can name");
            return Ok(false);
        }
        match self.host.dir(path) {
            Ok(host) => self.lost(path, &host, |_| false),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(true),
            Err(Errno::ACCESS) => {
                self.refuse(path, "deleted inside, but the host's directory cannot be listed");
                Ok(false)
            }
            Err(Errno::XDEV) => {
                self.refuse(path, "deleted inside, but another file system is mounted here on the host");
                Ok(false)
            }
            Err(errno) => Err(self.error(path, errno)),
        }
    }

    /// Deletes each name of the host's directory that is not `present` in the layer. Says whether none was kept.
    pub(super) fn lost(
        &mut self,
        path: &Path,
        host: &OwnedFd,
        present: impl Fn(&Name) -> bool,
    ) -> Result<bool, ChangesError> {
        let mut gone = true;
        for name in tree::names(host.as_fd()).map_err(|errno| self.error(path, errno))? {
            if present(&name) {
                continue;
            }
            let child = path.join(name.os());
            let stat = tree::stat(host.as_fd(), &name.name).map_err(|errno| self.error(&child, errno))?;
            if let Some(stat) = stat {
                gone &= self.delete(&child, host.as_fd(), &name.name, &stat)?;
            }
        }
        Ok(gone)
    }
}
