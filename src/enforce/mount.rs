//! Mount operations on descriptors: a source is opened without following a link and compared with what the policy was
//! resolved against, a destination is opened inside the new root alone.

use crate::path::{FileId, open_plain};
use crate::sys::{self, MountAttr};
use rustix::fs::{OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Why a source or a destination could not be had.
#[derive(Debug)]
pub(super) enum MountError {
    Errno(&'static str, Errno),
    /// Something else stands there than when the policy was resolved.
    Changed,
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountError::Errno(call, errno) => write!(f, "{call}: {errno}"),
            MountError::Changed => write!(f, "it was replaced by something else while the box was set up"),
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, MountError>;

pub(super) fn call<T>(name: &'static str, result: std::result::Result<T, Errno>) -> Result<T> {
    result.map_err(|errno| MountError::Errno(name, errno))
}

/// Keeps a descriptor open until exec closes it with all others: one system call less for each of the many mounts of a
/// launch. Only where their number is bounded.
pub(super) fn leak(fd: OwnedFd) {
    std::mem::forget(fd);
}

/// The same for descriptors whose number the user decides: only so many are kept.
#[derive(Default)]
pub(super) struct Held(usize);

impl Held {
    pub fn keep(&mut self, fd: OwnedFd) {
        // Well below the usual limit of 1024.
        const MANY: usize = 256;
        if self.0 < MANY {
            self.0 += 1;
            leak(fd);
        }
    }
}

/// A path inside as one relative to the new root's descriptor.
pub(super) fn relative(at: &Path) -> &Path {
    let rest = at.strip_prefix("/").unwrap_or(at);
    if rest.as_os_str().is_empty() { Path::new(".") } else { rest }
}

/// Opens a source on the host. No component may be a link: the policy was resolved, so one that is there now is new.
pub(super) fn source(from: &Path, id: Option<FileId>) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let fd = match open_plain(rustix::fs::CWD, from, flags, ResolveFlags::empty()) {
        Ok(fd) => fd,
        Err(Errno::LOOP) => return Err(MountError::Changed),
        Err(errno) => return Err(MountError::Errno("openat2", errno)),
    };
    if let Some(id) = id {
        let stat = call("fstat", rustix::fs::fstat(&fd))?;
        if (FileId { dev: stat.st_dev, ino: stat.st_ino }) != id {
            return Err(MountError::Changed);
        }
    }
    Ok(fd)
}

/// Opens a destination inside the new root. A link as the last component is opened as itself.
pub(super) fn destination(root: BorrowedFd<'_>, at: &Path) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    open_plain(root, relative(at), flags, resolve)
}

/// A detached copy of the mount at a descriptor, or at a path beneath it.
pub(super) fn clone_tree(dir: BorrowedFd<'_>, path: &Path, recursive: bool) -> std::result::Result<OwnedFd, Errno> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    if path.as_os_str().is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(dir, path, flags)
}

/// Attaches a detached mount at an opened destination.
pub(super) fn attach(tree: &OwnedFd, destination: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", destination, c"", flags)
}

/// Attaches a detached mount at a path of the new root in which nobody else has a hand yet.
pub(super) fn attach_at(tree: &OwnedFd, root: BorrowedFd<'_>, at: &Path) -> std::result::Result<(), Errno> {
    move_mount(tree, c"", root, relative(at), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Sets attributes on a whole tree; those that are locked stay.
pub(super) fn set_attributes(tree: BorrowedFd<'_>, set: u64) -> std::result::Result<(), Errno> {
    sys::mount_setattr(tree, c"", true, MountAttr { set, clear: 0 })
}

/// A new file system of a kind with options, not attached anywhere.
pub(super) fn new_file_system(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd> {
    let fs = call("fsopen", fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC))?;
    for (key, value) in options {
        call("fsconfig", fsconfig_set_string(fs.as_fd(), *key, *value))?;
    }
    call("fsconfig", fsconfig_create(fs.as_fd()))?;
    let mount = call("fsmount", fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes))?;
    leak(fs);
    Ok(mount)
}

/// What the mount that a descriptor lies on forbids, and an overlay over it must forbid too: a bind mount keeps it by
/// itself, an overlay is a mount of its own.
pub(super) fn forbidden_on(fd: &OwnedFd) -> Result<MountAttrFlags> {
    let flags = call("fstatvfs", rustix::fs::fstatvfs(fd))?.f_flag;
    let mut forbidden = MountAttrFlags::empty();
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        forbidden |= MountAttrFlags::MOUNT_ATTR_NOEXEC;
    }
    if flags.contains(StatVfsMountFlags::RDONLY) {
        forbidden |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    Ok(forbidden)
}

/// Without attributes of the user's an overlay comes up all the same, and then fails where a directory is replaced. A
/// tmpfs has them since Linux 6.6.
fn keeps_attributes(upper: &OwnedFd) -> Result<()> {
    // By name, for a descriptor of O_PATH has no attributes.
    match rustix::fs::getxattr(by_fd(upper.as_fd()), "user.overlay.opaque", &mut [0_u8; 1][..]) {
        Err(Errno::OPNOTSUPP) => Err(MountError::Errno("user attributes", Errno::OPNOTSUPP)),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn by_fd(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// An overlay of `lowers` (topmost first) under an optional upper layer with its work directory.
///
/// Layers go in by descriptor, as /proc/self/fd/N: no character of a path needs escaping, no name of the host shows in
/// the mount table inside, and what was checked is what is mounted.
pub(super) fn overlay(
    lowers: &[BorrowedFd<'_>],
    upper: Option<(&OwnedFd, &OwnedFd)>,
    inherited: MountAttrFlags,
) -> Result<OwnedFd> {
    if let Some((upper, _)) = upper {
        keeps_attributes(upper)?;
    }
    let fs = call("fsopen overlay", fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC))?;
    // In a user namespace overlay keeps its marks in user.overlay.*, the only attributes it may set there.
    call("fsconfig userxattr", fsconfig_set_flag(fs.as_fd(), "userxattr"))?;
    // Inode numbers that do not change when a file is copied up.
    call("fsconfig xino", fsconfig_set_string(fs.as_fd(), "xino", "on"))?;
    // One string for all, which takes no more than 255 bytes: `lowerdir+` would want Linux 6.5.
    let lowers: Vec<String> = lowers.iter().map(|lower| by_fd(*lower)).collect();
    call("fsconfig lowerdir", fsconfig_set_string(fs.as_fd(), "lowerdir", lowers.join(":")))?;
    if let Some((upper, work)) = upper {
        call("fsconfig upperdir", fsconfig_set_string(fs.as_fd(), "upperdir", by_fd(upper.as_fd())))?;
        call("fsconfig workdir", fsconfig_set_string(fs.as_fd(), "workdir", by_fd(work.as_fd())))?;
        // No sync on copy-up: a layer that a crash of the machine cut short is never applied unasked.
        call("fsconfig volatile", fsconfig_set_flag(fs.as_fd(), "volatile"))?;
    }
    call("mount overlay", fsconfig_create(fs.as_fd()))?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | inherited;
    if upper.is_none() {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    call("fsmount overlay", fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes))
}
