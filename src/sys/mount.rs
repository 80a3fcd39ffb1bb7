//! mount_setattr(2), Linux 5.12.

use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Attributes to set and to clear, the kernel's `MOUNT_ATTR_*` bits.
#[derive(Debug, Clone, Copy)]
pub struct MountAttr {
    pub set: u64,
    pub clear: u64,
}

impl MountAttr {
    pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
    pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
    pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
    pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;
}

/// Sets attributes on the mount that `dir` and `path` name. `recursive` covers submounts in the same call, which a
/// remount with `MS_REC` does not; flags that are locked in a user namespace stay, for only `set` is touched.
///
/// # Errors
/// The errno of mount_setattr(2).
pub fn mount_setattr(dir: BorrowedFd<'_>, path: &CStr, recursive: bool, attr: MountAttr) -> Result<(), Errno> {
    let raw = libc::mount_attr { attr_set: attr.set, attr_clr: attr.clear, propagation: 0, userns_fd: 0 };
    let mut flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: `path` is NUL-terminated and `raw` outlives the call; its size is the one passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const raw,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
