//! What `doctor` tries of this user's sessions: layers on the state directory's own file system. Nothing stays behind.

use super::remove;
use super::store::Store;
use crate::enforce::{LayerDirs, prepare_lower, probe};
use crate::plan::Isolate;
use crate::plan::doctor::{Attempt, StateDir};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A directory of our own beside or in the state directory, gone when dropped.
struct Trial {
    parent: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl Drop for Trial {
    fn drop(&mut self) {
        // What cannot be removed has our name on it, and the next line of the report is not its place.
        remove::purge(self.parent.as_fd(), &self.name).ok();
    }
}

/// Tries everything that a box needs, with layers where `state` lies.
pub fn examine(state: Option<&Path>, isolate: &Isolate, abi: u32) -> (Vec<Attempt>, StateDir) {
    let Some(dir) = state else {
        return (probe(isolate, None, abi), StateDir { path: None, problem: None });
    };
    let path = Some(dir.to_path_buf());
    let found = Store::look(dir).map_err(|err| (err.to_string(), err.hint()));
    let trial = found.and_then(|_| {
        Trial::new(dir).map_err(|(at, errno)| {
            let hint = "set XDG_STATE_HOME to a directory that is yours and can be written";
            (format!("cannot write to {}: {errno}", at.display()), Some(hint.to_owned()))
        })
    });
    match trial {
        Ok(trial) => {
            let dirs = LayerDirs { upper: trial.path.join("upper"), work: trial.path.join("work") };
            let attempts = probe(isolate, Some((&dirs, &trial.path.join("lower"))), abi);
            (attempts, StateDir { path, problem: None })
        }
        Err(problem) => (probe(isolate, None, abi), StateDir { path, problem: Some(problem) }),
    }
}

impl Trial {
    /// In the state directory, or in the nearest directory above it that exists: that is the file system where it would
    /// be made.
    fn new(state: &Path) -> Result<Trial, (PathBuf, Errno)> {
        let mut at = state;
        let parent = loop {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat(CWD, at, flags, Mode::empty()) {
                Ok(fd) => break fd,
                Err(Errno::NOENT) => at = at.parent().ok_or_else(|| (state.to_path_buf(), Errno::NOENT))?,
                Err(errno) => return Err((at.to_path_buf(), errno)),
            }
        };
        let fail = |errno| (at.to_path_buf(), errno);
        let name = OsString::from(format!(".agentbox-doctor-{}", std::process::id()));
        mkdirat(&parent, &name, Mode::RWXU).map_err(fail)?;
        // The layers are opened with no symlink on the way: let the path be canonical.
        let canonical =
            crate::path::resolve(at, Path::new("/")).map_or_else(|_| at.to_path_buf(), |r| r.path.into_path_buf());
        let trial = Trial { path: canonical.join(&name), parent, name };
        for part in ["lower", "upper", "work"] {
            mkdirat(&trial.parent, Path::new(&trial.name).join(part), Mode::RWXU).map_err(fail)?;
        }
        let lower = Path::new(&trial.name).join("lower");
        let lower = openat(&trial.parent, &lower, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
        prepare_lower(lower.as_fd()).map_err(fail)?;
        Ok(trial)
    }
}
