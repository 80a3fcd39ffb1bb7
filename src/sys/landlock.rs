//! The Landlock ABI version, asked by number, since the landlock crate keeps its probe to itself; and its rules on
//! paths, for each of which the crate asks the kernel once more what the descriptor is.

use super::mount::last_errno;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The highest Landlock ABI that the kernel has; 0 when it has none or it is switched off.
pub fn landlock_abi() -> u32 {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with a null attribute and size 0 the call only returns the version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// Grants rights on all that lies at or beneath `parent`, which may be opened with O_PATH. The rights of a file that is
/// no directory must be a file's.
///
/// # Errors
/// The errno of landlock_add_rule(2): `EINVAL` for rights that the ruleset does not handle, or that are a directory's
/// for a file.
pub fn landlock_allow(ruleset: BorrowedFd<'_>, parent: BorrowedFd<'_>, rights: u64) -> Result<(), Errno> {
    const PATH_BENEATH: u32 = 1;
    let rule = PathBeneath { allowed_access: rights, parent_fd: parent.as_raw_fd() };
    // SAFETY: `rule` has the layout of its type in the kernel, and outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Restricts this thread, which must have no_new_privs, to the ruleset.
///
/// # Errors
/// The errno of landlock_restrict_self(2).
pub fn landlock_restrict(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: passes integers to the kernel.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
