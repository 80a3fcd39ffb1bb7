//! The owner of a namespace: NS_GET_USERNS of ioctl_nsfs(2).

use super::mount::last_errno;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The user namespace that owns the namespace at this descriptor.
///
/// # Errors
/// The errno of ioctl(2): `EPERM` where the owner is no descendant of the caller's user namespace.
pub fn owning_user_namespace(namespace: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const NS_GET_USERNS: libc::c_ulong = 0xb701;
    // SAFETY: the request takes no argument; it makes a descriptor (close-on-exec) or fails.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS as _) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel just made this descriptor for us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
