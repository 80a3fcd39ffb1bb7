//! The veil's mount: a FUSE file system whose server is a process of the supervisor's.

use super::mount::{MountError, attach, call, new_file_system};
use super::wire::{self, Tree, Wait};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::{getgid, getuid};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

type Result<T> = std::result::Result<T, MountError>;

/// Mounts it on a directory of the scratch space, which leads nowhere once that is detached.
///
/// The device is opened here, for the kernel wants opener and mount in one user namespace. Then it is the supervisor's
/// alone: with a copy here the connection would outlive it, and every look-up inside would wait for ever.
pub(super) fn mount(channel: BorrowedFd<'_>, at: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = call("open /dev/fuse", rustix::fs::open("/dev/fuse", flags, Mode::empty()))?;
    let (fd, user, group) = (device.as_raw_fd().to_string(), getuid().to_string(), getgid().to_string());
    // Not default_permissions: overlay checks modes itself, and each step of a path would ask for attributes.
    let options = [("fd", fd.as_str()), ("rootmode", "40000"), ("user_id", &user), ("group_id", &group)];
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = new_file_system("fuse", &options, attributes)?;
    let sent = wire::send_device(channel, Tree::Veil, device.as_fd(), Wait::Yes);
    sent.map_err(|_| MountError::Errno("hand /dev/fuse to the supervisor", Errno::PIPE))?;
    // Attached, for before Linux 6.15 a mount that is nowhere is no layer of an overlay.
    call("move_mount", attach(&mount, at))?;
    Ok(mount)
}

/// The layer of the root with this number. The first is the veil's own top, which saves a look-up; the others have names
/// there that no overlay lets through, for they are longer than its NAME_MAX. `topmost`: without a session layer.
pub(super) fn of_root(veil: Option<&OwnedFd>, number: usize, topmost: bool) -> Result<OwnedFd> {
    let veil = veil.ok_or(MountError::Errno("no veil yet", Errno::BADF))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let name = if number == 0 { ".".to_owned() } else { format!("{number:0256}") };
    let layer = call("open the veil", openat(veil, name, flags, Mode::empty()))?;
    if number == 0 && topmost {
        // Made by the mount, the top has no mode yet, and overlay judges access by what it finds when it is mounted.
        call("stat the veil", rustix::fs::fstat(&layer))?;
    }
    Ok(layer)
}
