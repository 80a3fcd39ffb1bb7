//! seccomp(2): what the kernel's filters can answer. Installing one is seccompiler's.

/// An answer of a filter, the kernel's `SECCOMP_RET_*` value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterAction(pub u32);

impl FilterAction {
    pub const ERRNO: FilterAction = FilterAction(libc::SECCOMP_RET_ERRNO);
    pub const USER_NOTIF: FilterAction = FilterAction(libc::SECCOMP_RET_USER_NOTIF);
}

/// Does this kernel have filters that can answer so? (SECCOMP_GET_ACTION_AVAIL)
pub fn filter_can(action: FilterAction) -> bool {
    const GET_ACTION_AVAIL: u32 = 2;
    let value = action.0;
    // SAFETY: the kernel only reads the four bytes of `value`, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0u32, &raw const value) };
    result == 0
}
