//! clone3(2) and close_range(2).

use super::mount::last_errno;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Namespaces to make, the kernel's `CLONE_NEW*` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneFlags(pub u64);

impl CloneFlags {
    pub const USER: u64 = libc::CLONE_NEWUSER as u64;
    pub const MOUNT: u64 = libc::CLONE_NEWNS as u64;
    pub const PID: u64 = libc::CLONE_NEWPID as u64;
    pub const IPC: u64 = libc::CLONE_NEWIPC as u64;
    pub const UTS: u64 = libc::CLONE_NEWUTS as u64;
    pub const CGROUP: u64 = libc::CLONE_NEWCGROUP as u64;
    pub const NET: u64 = libc::CLONE_NEWNET as u64;
}

/// Linux 5.7. libc's constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Which side of the clone this is.
pub enum Child {
    /// The new process.
    Inside,
    /// The caller: the new process's pid and a descriptor for it.
    Outside { pid: i32, pidfd: OwnedFd },
}

/// Forks into new namespaces, all of them in one call, with copied memory as fork(2) does; with `cgroup`, a directory
/// of cgroup v2, into that group from the first instant.
///
/// The caller must have a single thread: the child goes on in a copy of this one alone.
///
/// # Errors
/// The errno of clone3(2).
pub fn clone3(flags: CloneFlags, cgroup: Option<BorrowedFd<'_>>) -> Result<Child, Errno> {
    let mut pidfd: i32 = -1;
    let into_cgroup = cgroup.map_or(0, |_| CLONE_INTO_CGROUP);
    let args = libc::clone_args {
        flags: flags.0 | libc::CLONE_PIDFD as u64 | into_cgroup,
        pidfd: (&raw mut pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    // SAFETY: without CLONE_VM and with stack 0 the child runs on its own copy of this stack, as after fork; `args`
    // and `pidfd` outlive the call. The caller keeps the process single-threaded.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(last_errno()),
        0 => Ok(Child::Inside),
        pid => {
            // SAFETY: the kernel just made this descriptor for us and nobody else owns it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Child::Outside { pid: pid as i32, pidfd })
        }
    }
}

/// fork(2), with a descriptor for the child: [`clone3`] without namespaces, for where that call is refused.
///
/// The caller must have a single thread, and must not have reaped the child in between (it cannot have).
///
/// # Errors
/// The errno of fork(2) or pidfd_open(2).
pub fn fork_with_pidfd() -> Result<Child, Errno> {
    match super::process::fork()? {
        super::process::Fork::Child => Ok(Child::Inside),
        super::process::Fork::Parent { child } => {
            let pid = rustix::process::Pid::from_raw(child).ok_or(Errno::SRCH)?;
            let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
            Ok(Child::Outside { pid: child, pidfd })
        }
    }
}

/// Marks every descriptor from `first` on close-on-exec.
///
/// # Errors
/// The errno of close_range(2).
pub fn close_range_cloexec(first: u32) -> Result<(), Errno> {
    // SAFETY: marks descriptors only; none is closed here.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
