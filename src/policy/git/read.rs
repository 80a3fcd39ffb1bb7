//! Reading what may be anybody's: regular files alone, never waiting, never more than is asked for.

use crate::path::{open_plain, without_trace};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Pointers and configuration are a few lines; git itself takes no longer pointer.
pub const SMALL: u64 = 1 << 20;
/// A FIFO does not wait, a terminal does not become ours.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A file's bytes, and the times and the mode that it had.
pub struct Content {
    pub bytes: Vec<u8>,
    pub stat: rustix::fs::Stat,
}

/// A directory of a repository, held: nothing is read but beneath it, and no link is followed.
#[derive(Debug)]
pub struct Held(OwnedFd);

impl Held {
    /// # Errors
    /// The errno of the open: `ELOOP` where a component is a link by now.
    pub fn open(path: &Path) -> Result<Held, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open_plain(rustix::fs::CWD, path, flags, ResolveFlags::empty()).map(Held)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }

    /// The kind of the name below, links not followed; `None` where there is none.
    pub fn kind(&self, name: &str) -> Option<FileType> {
        let stat = rustix::fs::statat(&self.0, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    pub fn file(&self, name: &Path, most: u64) -> Option<Content> {
        let open = |unseen| open_plain(self.fd(), name, FLAGS | unseen, ResolveFlags::BENEATH);
        content(without_trace(open).ok()?, most)
    }

    /// A small file's only line, as a path.
    pub fn line(&self, name: &str) -> Option<PathBuf> {
        self.file(Path::new(name), SMALL).and_then(|found| as_path(&found.bytes))
    }

    /// The names in a directory below, up to so many.
    pub fn names(&self, dir: &str, most: usize) -> Vec<std::ffi::OsString> {
        use std::os::unix::ffi::OsStringExt;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(fd) = open_plain(self.fd(), Path::new(dir), flags, ResolveFlags::BENEATH) else { return Vec::new() };
        let Ok(list) = rustix::fs::Dir::new(fd) else { return Vec::new() };
        let names = list.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
        names.filter(|name| name != b"." && name != b"..").take(most).map(std::ffi::OsString::from_vec).collect()
    }
}

/// The text of a pointer, without the end of its line.
pub fn as_path(bytes: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let text = &bytes[..end];
    let plain = !text.is_empty() && !text.contains(&0);
    plain.then(|| PathBuf::from(std::ffi::OsStr::from_bytes(text)))
}

/// A file of the user's own, which may be a link to where it is kept.
pub fn own_file(path: &Path) -> Option<Vec<u8>> {
    content(rustix::fs::open(path, FLAGS, Mode::empty()).ok()?, SMALL).map(|found| found.bytes)
}

fn content(fd: OwnedFd, most: u64) -> Option<Content> {
    let stat = rustix::fs::fstat(&fd).ok()?;
    let size = u64::try_from(stat.st_size).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > most {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).ok()? + 1);
    File::from(fd).take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(Content { bytes, stat })
}
