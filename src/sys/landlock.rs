//! The Landlock ABI version: asked by number, since the landlock crate keeps its probe to itself.

/// The highest Landlock ABI that the kernel has; 0 when it has none or it is switched off.
pub fn landlock_abi() -> u32 {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with a null attribute and size 0 the call only returns the version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}
