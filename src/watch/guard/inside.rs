//! The box's own view of the roots, and the ways to hide a name in it: a mask over it, or a removal through the overlay,
//! of which the kernel makes a whiteout in the session layer.

use super::watcher::{Descriptors, Job, holds, or_dot};
use super::{Hides, Root};
use crate::path::{FileId, open_plain};
use crate::sys::{self, MountAttr};
use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, fstat, mkdirat, mknodat, openat,
    statx, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, move_mount, open_tree,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Masks of each kind that are kept ready: making one takes two changes of the namespace.
const READY: usize = 8;
/// How often a name may be replaced under our hands before it is left to the next event.
const TRIES: usize = 64;
const FILE: &str = "/mask";
const DIR: &str = "/void";

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Hidden,
    /// It is hidden already, or is a mount, which the policy judged by itself.
    Already,
    /// No such name any more, or none of the guard's.
    Gone,
    /// The overlay remembers that there was no such name, or no directory to it, and may forget that any time.
    Later,
}

type Result<T> = std::result::Result<T, (&'static str, Errno)>;

fn at<T>(doing: &'static str) -> impl Fn(Errno) -> std::result::Result<T, (&'static str, Errno)> {
    move |errno| Err((doing, errno))
}

fn enter(namespace: BorrowedFd<'_>, kind: CloneFlags) -> std::result::Result<(), Errno> {
    setns(namespace, kind).map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

/// This process in the box's user and mount namespaces.
pub(super) struct Inside<'a> {
    descriptors: &'a Descriptors,
    roots: Vec<OwnedFd>,
    /// A mount namespace of this process alone, where the files that masks are made of can be reached. In the box's
    /// own, everything mounted shows.
    workshop: OwnedFd,
    files: Vec<OwnedFd>,
    dirs: Vec<OwnedFd>,
}

impl<'a> Inside<'a> {
    /// Enters the box. The caller must have a single thread.
    pub fn enter(descriptors: &'a Descriptors, roots: &[Root]) -> Result<Inside<'a>> {
        // While /proc is still the host's.
        let own = rustix::fs::open("/proc/self/ns", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let own = own.or_else(at("open /proc/self/ns"))?;
        let users = sys::owning_user_namespace(descriptors.mount_namespace.as_fd()).or_else(at("NS_GET_USERNS"))?;
        enter(users.as_fd(), CloneFlags::CLONE_NEWUSER).or_else(at("setns into the box's user namespace"))?;
        let inside = descriptors.mount_namespace.as_fd();
        enter(inside, CloneFlags::CLONE_NEWNS).or_else(at("setns into the box's mount namespace"))?;
        let opened = roots.iter().map(open_root).collect::<Result<Vec<_>>>()?;
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))
            .or_else(at("a mount namespace for masks"))?;
        let workshop = openat(&own, "mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let workshop = workshop.or_else(at("open /proc/self/ns/mnt"))?;
        mask_sources()?;
        // What was mounted lies over the root of this process: joining anew starts from the top.
        enter(workshop.as_fd(), CloneFlags::CLONE_NEWNS).or_else(at("setns"))?;
        let mut new = Inside { descriptors, roots: opened, workshop, files: Vec::new(), dirs: Vec::new() };
        new.fill()?;
        enter(inside, CloneFlags::CLONE_NEWNS).or_else(at("setns back into the box"))?;
        Ok(new)
    }

    /// Makes masks anew where some were used. To be called when there is time.
    pub fn prepare(&mut self) -> Result<()> {
        if self.files.len() < READY / 2 || self.dirs.is_empty() {
            self.restock()?;
        }
        Ok(())
    }

    fn restock(&mut self) -> Result<()> {
        enter(self.workshop.as_fd(), CloneFlags::CLONE_NEWNS).or_else(at("setns"))?;
        let filled = self.fill();
        enter(self.descriptors.mount_namespace.as_fd(), CloneFlags::CLONE_NEWNS).or_else(at("setns"))?;
        filled
    }

    fn fill(&mut self) -> Result<()> {
        while self.files.len() < READY {
            self.files.push(mask(FILE)?);
        }
        while self.dirs.len() < READY / 4 {
            self.dirs.push(mask(DIR)?);
        }
        Ok(())
    }

    fn take(&mut self, dir: bool) -> Result<OwnedFd> {
        let ready = |inside: &mut Self| if dir { inside.dirs.pop() } else { inside.files.pop() };
        if let Some(mask) = ready(self) {
            return Ok(mask);
        }
        self.restock()?;
        ready(self).ok_or(("no mask", Errno::AGAIN))
    }

    /// Hides the name of a job, again and again until it stays hidden: the host may replace it between two calls.
    pub fn hide(&mut self, job: &Job, hides: &Hides) -> Result<Done> {
        let mut done = Done::Already;
        for _ in 0..TRIES {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let dir = match open_plain(self.roots[job.root].as_fd(), or_dot(&job.dir), flags, resolve) {
                Ok(dir) => dir,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(self.not_seen(job)),
                Err(errno) => return Err(("open its directory", errno)),
            };
            let name = Path::new(&job.name);
            let target = match openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Ok(target) => target,
                Err(Errno::NOENT) if done == Done::Hidden => return Ok(done),
                Err(Errno::NOENT) => return self.absent(&dir, job, hides),
                Err(errno) => return Err(("open", errno)),
            };
            if is_mount(target.as_fd()).or_else(at("statx"))? {
                return Ok(done);
            }
            if job.unsure {
                return Ok(Done::Gone);
            }
            let is_dir = fstat(&target).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
            // A directory with something in it cannot be removed in one step.
            if let (Hides::Whiteout { .. }, false) = (hides, is_dir)
                && unlinkat(&dir, name, AtFlags::empty()).is_ok()
            {
                done = Done::Hidden;
                continue;
            }
            let mask = self.take(is_dir)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            match move_mount(&mask, c"", &target, c"", flags) {
                Ok(()) => done = Done::Hidden,
                // Replaced or removed meanwhile.
                Err(Errno::NOENT | Errno::INVAL | Errno::NOTDIR) => {}
                Err(errno) => return Err(("move_mount", errno)),
            }
        }
        Ok(done)
    }

    /// Does the host have what the box does not see? An overlay remembers a look-up that found nothing.
    fn not_seen(&self, job: &Job) -> Done {
        if holds(self.descriptors.hosts[job.root].as_fd(), &job.dir, &job.name) { Done::Later } else { Done::Gone }
    }

    /// A name that is not there for the box, while its directory is. Making it and removing it leaves a whiteout if, and
    /// only if, the host has it.
    fn absent(&self, dir: &OwnedFd, job: &Job, hides: &Hides) -> Result<Done> {
        let name = Path::new(&job.name);
        if matches!(hides, Hides::Mask { .. }) {
            return Ok(self.not_seen(job));
        }
        match mknodat(dir, name, FileType::RegularFile, Mode::empty(), 0) {
            Ok(()) => unlinkat(dir, name, AtFlags::empty()).map(|()| Done::Hidden).or_else(at("unlink")),
            Err(Errno::EXIST) => Ok(Done::Already),
            Err(errno) => Err(("mknod", errno)),
        }
    }
}

fn is_mount(fd: BorrowedFd<'_>) -> std::result::Result<bool, Errno> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// A root as the box sees it. The command may have moved a directory on the way to one that lies in another root: what
/// is not the root itself is refused.
fn open_root(root: &Root) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = open_plain(CWD, &root.path, flags, ResolveFlags::empty()).or_else(at("open a root inside"))?;
    let stat = fstat(&fd).or_else(at("stat a root inside"))?;
    let moved = root.bound && root.id.is_some_and(|id| id != (FileId { dev: stat.st_dev, ino: stat.st_ino }));
    if moved || !is_mount(fd.as_fd()).or_else(at("statx"))? {
        return Err(("find a root inside", Errno::NOENT));
    }
    Ok(fd)
}

/// What masks are copies of: a file and a directory of mode 000 on a small file system over everything.
fn mask_sources() -> Result<()> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).or_else(at("fsopen"))?;
    for (key, value) in [("mode", "0755"), ("size", "16k")] {
        fsconfig_set_string(fs.as_fd(), key, value).or_else(at("fsconfig"))?;
    }
    fsconfig_create(fs.as_fd()).or_else(at("fsconfig"))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).or_else(at("fsmount"))?;
    mknodat(&mount, &FILE[1..], FileType::RegularFile, Mode::empty(), 0).or_else(at("mknod"))?;
    mkdirat(&mount, &DIR[1..], Mode::empty()).or_else(at("mkdir"))?;
    move_mount(&mount, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).or_else(at("move_mount"))
}

fn mask(source: &str) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, source, flags).or_else(at("open_tree"))?;
    let set = MountAttr { set: MountAttr::RDONLY, clear: 0 };
    sys::mount_setattr(tree.as_fd(), c"", false, set).or_else(at("mount_setattr"))?;
    Ok(tree)
}
