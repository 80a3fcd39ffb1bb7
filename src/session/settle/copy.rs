//! Copies one name with all that belongs to it: content with its holes, owner, mode, times, attributes.

use super::meta::{self, Meta};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where the original lies, and how it is to be read.
#[derive(Debug, Clone, Copy)]
pub struct From<'a> {
    pub dir: BorrowedFd<'a>,
    pub name: &'a CStr,
    /// It carries the overlay's marks.
    pub layer: bool,
    /// Its mode may be changed for the moment, where the owner may not read it: nobody else looks.
    pub unseen: bool,
}

/// Makes `name` in `dir`, which must not be there yet, as a copy. A socket or a device is not copied.
pub fn copy(from: From<'_>, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let held = meta::hold(from.dir, from.name)?;
    let stat = rustix::fs::statat(&held, "", AtFlags::EMPTY_PATH)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => regular(from, &held, &stat, dir, name),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&held, "", Vec::new())?;
            rustix::fs::symlinkat(&target, dir, name)?;
            Meta::of(held.as_fd(), &stat)?.put_link(dir, name)
        }
        FileType::Fifo => {
            rustix::fs::mknodat(dir, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            of(from, &held, &stat)?.put(meta::hold(dir, name)?.as_fd())
        }
        FileType::Directory
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(Errno::OPNOTSUPP),
    }
}

fn of(from: From<'_>, held: &OwnedFd, stat: &Stat) -> Result<Meta, Errno> {
    if from.layer { Meta::of_layer(held.as_fd(), stat) } else { Meta::of(held.as_fd(), stat) }
}

fn regular(from: From<'_>, held: &OwnedFd, stat: &Stat, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open =
        || crate::path::without_trace(|unseen| rustix::fs::openat(from.dir, from.name, flags | unseen, Mode::empty()));
    let (source, meta) = match open() {
        Err(Errno::ACCESS) if from.unseen => {
            let mode = meta::open_up(held.as_fd(), 0o600)?;
            let opened = open().and_then(|file| Ok((file, of(from, held, stat)?)));
            meta::set_mode(held.as_fd(), mode)?;
            opened?
        }
        opened => (opened?, of(from, held, stat)?),
    };
    // The name may have been given to another file since it was held.
    if rustix::fs::fstat(&source)?.st_ino != stat.st_ino {
        return Err(Errno::AGAIN);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    content(&File::from(source), &made, stat)?;
    meta.put(made.as_fd())
}

/// The bytes, without filling the holes: shared where the file system can, else copied in the kernel.
fn content(from: &File, to: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size == 0 {
        return Ok(());
    }
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(u64::MAX);
    // A small file is not worth the question.
    if size > 64 * 1024 && rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    if blocks.saturating_mul(512) >= size {
        return range(from, to, 0, u64::MAX);
    }
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return range(from, to, at, u64::MAX),
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(start))?;
        range(from, to, start, end)?;
        at = end;
    }
    rustix::fs::ftruncate(to, size)
}

/// Copies up to `end` or the end of the file.
fn range(from: &File, to: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    let (mut read, mut written) = (start, start);
    while read < end {
        let most = usize::try_from(end - read).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), most) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                return by_hand(from, to, read, end);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn by_hand(from: &File, to: &OwnedFd, mut at: u64, end: u64) -> Result<(), Errno> {
    let mut buffer = vec![0; 128 * 1024];
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let len = match rustix::io::pread(from, &mut buffer[..most], at) {
            Ok(0) => return Ok(()),
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let mut done = 0;
        while done < len {
            done += rustix::io::pwrite(to, &buffer[done..len], at + done as u64)?;
        }
        at += len as u64;
    }
    Ok(())
}
