//! A copy of a file's content: shared blocks where the file system can, else by the kernel, else by hand.

use crate::path::without_trace;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Copies the regular file `name` of `dir` to the new file `to` of `store`. Says how much there was.
///
/// # Errors
/// `EFBIG` when it holds more than `most` bytes; else the errno of the call that failed. Nothing is left behind.
pub(super) fn copy(dir: &OwnedFd, name: &OsStr, store: BorrowedFd<'_>, to: &str, most: u64) -> Result<u64, Errno> {
    // The name may have become a FIFO since it was looked at: never wait on one.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let from = without_trace(|unseen| rustix::fs::openat(dir, name, flags | unseen, Mode::empty()))?;
    if rustix::fs::fstat(&from)?.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let into = rustix::fs::openat(store, to, flags, Mode::RUSR | Mode::WUSR)?;
    fill(&from, &into, most).inspect_err(|_| {
        // A leftover is without a record, and goes with the session.
        rustix::fs::unlinkat(store, to, rustix::fs::AtFlags::empty()).ok();
    })
}

fn fill(from: &OwnedFd, into: &OwnedFd, most: u64) -> Result<u64, Errno> {
    if rustix::fs::ioctl_ficlone(into, from).is_ok() {
        return Ok(rustix::fs::fstat(into)?.st_size as u64);
    }
    let mut copied = 0;
    loop {
        const CHUNK: usize = 16 << 20;
        match rustix::fs::copy_file_range(from, None, into, None, CHUNK) {
            Ok(0) => break,
            Ok(length) => copied += length as u64,
            Err(Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::XDEV | Errno::INVAL | Errno::NOTSUP) => break,
            Err(errno) => return Err(errno),
        }
        if copied > most {
            return Err(Errno::FBIG);
        }
    }
    // From where the kernel stopped. Files of some file systems say that they are empty and are not.
    let mut buffer = vec![0; 128 * 1024];
    loop {
        let length = match rustix::io::read(from, &mut buffer[..]) {
            Ok(0) => return Ok(copied),
            Ok(length) => length,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            match rustix::io::write(into.as_fd(), rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        copied += length as u64;
        if copied > most {
            return Err(Errno::FBIG);
        }
    }
}
