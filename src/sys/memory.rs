//! madvise(2) on this program's own code.

use std::ffi::c_void;

unsafe extern "C" {
    // Made by the linker: where the program begins, and where its code ends (end(3)).
    static __executable_start: u8;
    static etext: u8;
}

/// A process that has waited this long is likely to wait on.
pub const SHORT_WAIT: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Gives back the pages of the code: they are the file's, and come again from there when they are needed. For a process
/// that is about to wait for long.
pub fn forget_code() {
    const PAGE: usize = 4096;
    let start = (&raw const __executable_start).addr().next_multiple_of(PAGE);
    let end = (&raw const etext).addr() / PAGE * PAGE;
    if start < end {
        // SAFETY: between the two symbols lie read-only segments of the program's file, never written to since they
        // were mapped: what is read there next is what was there before. On larger pages the kernel refuses.
        unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
    }
}
