//! A child on its parent's memory, as posix_spawn(3) makes one: no page table is copied and no page twice. And signals
//! that such a child has to keep for the program that it becomes.

use super::mount::last_errno;
use rustix::io::Errno;
use std::convert::Infallible;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// Enough for all that a child does before exec, in a debug build as well; only what is touched becomes memory.
const STACK: usize = 512 * 1024;
const GUARD: usize = 64 * 1024;

/// Runs `child` in a new process on this one's memory, and goes on once that has executed a program or ended. The
/// child has descriptors, signal dispositions and a mask of its own, but what it writes to memory stays: it must leave
/// nothing half done there when it executes or ends.
///
/// The caller must have a single thread, and every signal blocked: a handler that ran in the child would run on this
/// process's memory.
///
/// # Errors
/// The errno of mmap(2), mprotect(2) or clone(2).
pub fn vfork<F: FnOnce() -> Infallible>(child: F) -> Result<i32, Errno> {
    let mut child = Some(child);
    let top = new_stack()?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `top` is the end of a mapping of our own that nobody else uses and that is never unmapped. `child` outlives
    // the call, for the kernel holds this process until the child needs its memory no more. Nothing else runs on this
    // memory meanwhile, since there is one thread, and it waits.
    match unsafe { libc::clone(enter::<F>, top, flags, (&raw mut child).cast()) } {
        -1 => Err(last_errno()),
        pid => Ok(pid),
    }
}

extern "C" fn enter<F: FnOnce() -> Infallible>(child: *mut c_void) -> c_int {
    // SAFETY: it is the pointer that `vfork` passed to clone, to an `Option<F>` that outlives this process's use of it,
    // and the only other owner waits.
    let child = unsafe { &mut *child.cast::<Option<F>>() };
    // Taken, so that the parent, which shares it, drops nothing that the child has used.
    match child.take().map(|child| child()) {
        Some(never) => match never {},
        None => super::process::exit_now(1),
    }
}

/// The end of a stack, which grows down to a guard.
fn new_stack() -> Result<*mut c_void, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let whole = unsafe { libc::mmap(std::ptr::null_mut(), GUARD + STACK, libc::PROT_NONE, flags, -1, 0) };
    if whole == libc::MAP_FAILED {
        return Err(last_errno());
    }
    let bottom = whole.wrapping_byte_add(GUARD);
    // SAFETY: the pages are of the mapping that was just made.
    if unsafe { libc::mprotect(bottom, STACK, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        return Err(last_errno());
    }
    Ok(bottom.wrapping_byte_add(STACK))
}

static NOTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: c_int) {
    NOTED.store(true, Ordering::Relaxed);
}

/// Makes a signal with the default disposition leave a note instead of acting; an ignored one stays ignored. Execve(2)
/// gives it the default disposition again. For a child of [`vfork`] that must not be stopped while its parent waits.
///
/// # Errors
/// `EINVAL` for a number that is no signal, or SIGKILL or SIGSTOP.
pub fn note_signal(signal: i32) -> Result<(), Errno> {
    let handler: extern "C" fn(c_int) = note;
    // SAFETY: the handler does nothing but store to an atomic.
    let before = unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    if before == libc::SIG_ERR {
        return Err(last_errno());
    }
    if before == libc::SIG_IGN {
        // SAFETY: the disposition that it had a moment ago.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    Ok(())
}

/// Whether such a note was left, which is then gone.
pub fn take_noted_signal() -> bool {
    NOTED.swap(false, Ordering::Relaxed)
}
