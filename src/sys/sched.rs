//! sched_setattr(2).

use super::mount::last_errno;
use rustix::io::Errno;
use std::time::Duration;

/// Asks the scheduler for short turns of this process: one that wakes with a short turn ahead runs before those that
/// have a longer one (Linux 6.12; older kernels ignore it). It takes no privilege and no more processor time.
///
/// # Errors
/// The errno of sched_setattr(2).
pub fn short_turns(turn: Duration) -> Result<(), Errno> {
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    // The call sets it as well, and it is to stay.
    let nice = rustix::process::nice(0).unwrap_or(0);
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: u64::try_from(turn.as_nanos()).unwrap_or(u64::MAX),
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of a structure that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
