//! Small files, most of them of /proc: without a size, and made anew at each opening.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// The whole file. One read where it fits, and one that finds the end: a buffer that grows from nothing asks more often.
///
/// # Errors
/// The errno of open(2) or read(2).
pub fn read_whole(path: impl AsRef<Path>) -> Result<Vec<u8>, Errno> {
    let fd = rustix::fs::open(path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut out = vec![0; 8 * 1024];
    let mut length = 0;
    loop {
        if length == out.len() {
            out.resize(2 * length, 0);
        }
        match rustix::io::read(&fd, &mut out[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    out.truncate(length);
    Ok(out)
}

/// A file that the kernel writes in one piece, as `/proc/self/status` and `/proc/self/stat`: one read has all of it. The
/// descriptor stays open until exec.
///
/// # Errors
/// The errno of open(2) or read(2), or `EFBIG` for one that does not fit.
pub fn read_proc_record(path: &str) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; 8 * 1024];
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let length = rustix::io::read(&fd, &mut out)?;
    std::mem::forget(fd);
    if length == out.len() {
        return Err(Errno::FBIG);
    }
    out.truncate(length);
    Ok(out)
}
