//! Small calls of the last stage: the bounding set by number, descriptors by number.

use super::mount::last_errno;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Drops one capability, by number, from the bounding set: the kernel may know more of them than any crate.
///
/// # Errors
/// `EINVAL` when the kernel has no such capability, `EPERM` without CAP_SETPCAP.
pub fn drop_bounding(capability: u32) -> Result<(), Errno> {
    // SAFETY: passes integers to the kernel.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Takes close-on-exec off a descriptor.
///
/// # Errors
/// `EBADF` when it is not open.
pub fn keep_open(fd: i32) -> Result<(), Errno> {
    // SAFETY: passes integers to the kernel; no descriptor is made or closed.
    let result = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Borrows a descriptor by number, if it is open. For the command's own descriptors, which nobody in this process owns.
pub fn borrow_if_open(fd: i32) -> Option<BorrowedFd<'static>> {
    // SAFETY: passes integers to the kernel.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 {
        return None;
    }
    // SAFETY: it is open, and the process that asks is about to exec and closes none of these.
    Some(unsafe { BorrowedFd::borrow_raw(fd) })
}
