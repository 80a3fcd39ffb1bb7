//! User notification of seccomp(2): a filter whose listener is told of system calls before the kernel makes them.

use super::mount::last_errno;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction of a filter, the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    pub id: u64,
    /// The thread, by its number in the reader's pid namespace; 0 when it has none there.
    pub thread: u32,
    pub number: i64,
    pub arguments: [u64; 6],
}

/// What becomes of a call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel makes it. Its arguments are read again: what a pointer leads to may have changed since.
    Continue,
    Fail(Errno),
}

// The ioctls of seccomp_unotify(2), by their numbers: they are the same on every architecture with the common encoding.
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const ID_VALID: u64 = 0x4008_2102;
const SET_FLAGS: u64 = 0x4008_2104;

/// Installs a filter with a listener on this thread and all that it will start. Needs no_new_privs.
///
/// # Errors
/// `EBUSY` when a filter around this one has a listener already; else the errno of seccomp(2).
pub fn install_listener(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    const MODE_FILTER: u32 = 1;
    // Once its call was received, only a deadly signal takes a process out of its wait (Linux 5.19). Without it a
    // runtime that sends itself signals all the time, as Go does, would begin a slow call again and again.
    match set_filter(MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE, program) {
        Err(Errno::INVAL) => set_filter(MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER, program),
        other => other,
    }
}

const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

fn set_filter(operation: u32, flags: libc::c_ulong, program: &[Instruction]) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = Program { length, instructions: program.as_ptr() };
    // SAFETY: `program` says where the instructions are and how many, and both outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel just made this descriptor for us and nobody else owns it. It is close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Has waiter and listener wake each other on one processor (Linux 6.6), which takes a fifth of the time.
///
/// # Errors
/// `EINVAL` from a kernel that cannot.
pub fn wake_on_one_processor(listener: BorrowedFd<'_>) -> Result<(), Errno> {
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: the argument is the value itself.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The next call that waits. Blocks while none does.
///
/// # Errors
/// `ENOENT` when it went away meanwhile; else the errno of ioctl(2).
pub fn receive(listener: BorrowedFd<'_>) -> Result<Notification, Errno> {
    #[repr(C)]
    #[derive(Default)]
    struct Raw {
        id: u64,
        pid: u32,
        flags: u32,
        number: i32,
        arch: u32,
        instruction_pointer: u64,
        arguments: [u64; 6],
    }
    // The kernel refuses one that is not all zero.
    let mut raw = Raw::default();
    // SAFETY: `raw` has the layout and the size of struct seccomp_notif, and outlives the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut raw) };
    if result != 0 {
        return Err(last_errno());
    }
    Ok(Notification { id: raw.id, thread: raw.pid, number: i64::from(raw.number), arguments: raw.arguments })
}

/// Does the call still wait? Until this says so, its thread's number may be another's by now.
pub fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel only reads the eight bytes of `id`, which outlives the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID as _, &raw const id) };
    result == 0
}

/// # Errors
/// `ENOENT` when nobody waits any more; else the errno of ioctl(2).
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> Result<(), Errno> {
    #[repr(C)]
    struct Raw {
        id: u64,
        value: i64,
        error: i32,
        flags: u32,
    }
    const CONTINUE: u32 = 1;
    let raw = match answer {
        Answer::Continue => Raw { id, value: 0, error: 0, flags: CONTINUE },
        Answer::Fail(errno) => Raw { id, value: 0, error: -errno.raw_os_error(), flags: 0 },
    };
    // SAFETY: `raw` has the layout and the size of struct seccomp_notif_resp, and outlives the call.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const raw) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Reads another process's memory into `buffer`; says how much there was.
///
/// # Errors
/// `EFAULT` for an address that is not mapped; else the errno of process_vm_readv(2).
pub fn read_memory(thread: u32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` is all of `buffer`, which nobody else uses meanwhile; `remote` is an address of another process,
    // which the kernel checks.
    let read = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            thread as i32,
            &raw const local,
            1usize,
            &raw const remote,
            1usize,
            0usize,
        )
    };
    usize::try_from(read).map_err(|_| last_errno())
}
