//! The box's own group of cgroup v2, outside of the box: made and bounded before the clone, gone after it.
//!
//! Two levels: `agentbox-PID-RANDOM` has the limits, and the box lives in `box` below it, the root of its cgroup
//! namespace. What a command in a box with `--nested` could mount of the hierarchy ends there, so that the limits are
//! out of its reach, although their files have its owner.

use super::StepError;
use crate::plan::{Cgroup, Isolate, hints, shown};
use crate::sys;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "agentbox-";
const INNER: &str = "box";
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Groups that a command with `--nested` made below its own, at the most that deep.
const DEPTH: usize = 32;

/// A group with its limits set. Removed when dropped.
#[derive(Debug)]
pub struct Group {
    parent: OwnedFd,
    name: String,
    dir: OwnedFd,
    inner: OwnedFd,
    path: PathBuf,
}

/// The limits that the box ran into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// The kernel ended the whole box for want of memory.
    pub memory: bool,
    /// A process could not be made.
    pub processes: bool,
}

impl Group {
    /// Makes the group of a plan and sets its limits.
    pub(super) fn make(plan: &Cgroup) -> Result<Group, StepError> {
        let fail =
            |what: String| move |errno: Errno| StepError::new(plan, format!("{what}: {errno}")).hint(hints::CGROUP);
        let at = |name: &str| shown(&plan.parent.join(name));
        let parent = openat(CWD, &plan.parent, DIRECTORY, Mode::empty()).map_err(fail(at("")))?;
        // A group that stays behind costs no run anything.
        sweep(parent.as_fd()).ok();
        let name = name().map_err(fail("a random name".to_owned()))?;
        mkdirat(&parent, &name, Mode::RWXU).map_err(fail(format!("mkdir {}", at(&name))))?;
        let open = |dir: BorrowedFd<'_>, name: &str| openat(dir, name, DIRECTORY, Mode::empty());
        let made = open(parent.as_fd(), &name).and_then(|dir| {
            mkdirat(&dir, INNER, Mode::RWXU)?;
            let inner = open(dir.as_fd(), INNER)?;
            Ok((dir, inner))
        });
        let (dir, inner) = match made {
            Ok(made) => made,
            Err(errno) => {
                remove(parent.as_fd(), &name, 1).ok();
                return Err(fail(at(&name))(errno));
            }
        };
        let path = plan.parent.join(&name);
        let group = Group { parent, name, dir, inner, path };
        group.set_limits(plan)?;
        Ok(group)
    }

    fn set_limits(&self, plan: &Cgroup) -> Result<(), StepError> {
        let set = |file: &str, value: String| {
            self.write(file, &value).map_err(|errno| {
                let file = shown(&self.path.join(file));
                StepError::new(plan, format!("writing {value} to {file}: {errno}")).hint(hints::CGROUP)
            })
        };
        if let Some(bytes) = plan.memory {
            set("memory.max", bytes.to_string())?;
            // Half a box that goes on without the process that was ended is no use to anyone.
            set("memory.oom.group", "1".to_owned())?;
            match self.write("memory.swap.max", "0") {
                // A kernel, or a boot, without swap to account for.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(StepError::new(plan, format!("memory.swap.max: {errno}")).hint(hints::CGROUP));
                }
            }
        }
        plan.processes.map_or(Ok(()), |processes| set("pids.max", processes.to_string()))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), Errno> {
        let fd = openat(&self.dir, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&fd, value.as_bytes()).map(drop)
    }

    /// Where the box is born.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }

    pub(super) fn refused(&self, isolate: &Isolate, errno: Errno) -> StepError {
        let path = shown(&self.path);
        StepError::new(isolate, format!("into the cgroup {path}: {errno}")).hint(hints::CGROUP)
    }

    /// What the kernel counted so far; what cannot be read did not happen.
    pub fn reached(&self) -> Reached {
        let counted = |file: &str, event: &str| {
            let mut buffer = [0; 512];
            let text = openat(&self.dir, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .and_then(|fd| rustix::io::read(&fd, &mut buffer))
                .map_or("", |length| std::str::from_utf8(&buffer[..length]).unwrap_or(""));
            count(text, event) > 0
        };
        Reached { memory: counted("memory.events", "oom_kill"), processes: counted("pids.events", "max") }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // pid 1 is reaped, and all of the box with it; the kernel takes the last of them out of the group a moment later.
        for _ in 0..100 {
            match remove(self.parent.as_fd(), &self.name, 1) {
                Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(2)),
                // What stays is swept by the next run.
                Ok(()) | Err(_) => return,
            }
        }
    }
}

/// An errno of clone3(2) that speaks of the group: EPERM and the like are those of namespaces.
pub(super) fn refuses(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::BUSY | Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::BADF)
}

/// One `name value` line of a file of events.
fn count(text: &str, event: &str) -> u64 {
    let line = |line: &str| line.strip_prefix(event)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(line).unwrap_or(0)
}

fn name() -> Result<String, Errno> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{PREFIX}{}-{:016x}", std::process::id(), u64::from_ne_bytes(random)))
}

/// The launcher's pid of a group that a run has made.
fn owner(name: &[u8]) -> Option<i32> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
    rest.split_once('-')?.0.parse().ok().filter(|pid| *pid > 0)
}

/// Removes the empty groups of launchers that were killed.
fn sweep(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    for name in directories(parent)? {
        let Some(pid) = owner(name.as_bytes()) else { continue };
        if sys::kill(pid, 0) == Err(Errno::SRCH) {
            // One with a process in it is refused by the kernel: somebody else's, of another pid namespace.
            remove(parent, &name, 1).ok();
        }
    }
    Ok(())
}

/// Removes a group and those below it. The kernel refuses one that has a process.
fn remove(parent: BorrowedFd<'_>, name: impl AsRef<OsStr>, depth: usize) -> Result<(), Errno> {
    let name = Path::new(name.as_ref());
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::BUSY | Errno::NOTEMPTY) if depth < DEPTH => {
            let dir = openat(parent, name, DIRECTORY, Mode::empty())?;
            for child in directories(dir.as_fd())? {
                remove(dir.as_fd(), &child, depth + 1)?;
            }
            unlinkat(parent, name, AtFlags::REMOVEDIR)
        }
        other => other,
    }
}

fn directories(dir: BorrowedFd<'_>) -> Result<Vec<std::ffi::OsString>, Errno> {
    let list = openat(dir, ".", DIRECTORY, Mode::empty())?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 8192];
    let mut entries = RawDir::new(&list, &mut buffer);
    let mut out = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if entry.file_type() == FileType::Directory && name != b"." && name != b".." {
            out.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_a_run_are_swept() {
        assert_eq!(owner(b"agentbox-12-00ff"), Some(12));
        for other in ["agentbox-12", "agentbox--1-00ff", "agentbox-0-00ff", "agentbox.service", "x-12-00"] {
            assert_eq!(owner(other.as_bytes()), None, "{other}");
        }
        assert_eq!(owner(name().unwrap().as_bytes()), i32::try_from(std::process::id()).ok());
    }

    #[test]
    fn events_are_counted_by_their_whole_name() {
        let text = "low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 1\n";
        assert_eq!((count(text, "max"), count(text, "oom_kill"), count(text, "oom_group")), (3, 2, 0));
    }
}
