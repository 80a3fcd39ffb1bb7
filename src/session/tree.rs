//! A directory tree seen through one held descriptor: every path is opened beneath it, and no component of a path may
//! be a symlink. Only the root stays open, so that a tree as deep as the kernel allows costs no more descriptors.

use crate::path::{open_plain, without_trace};
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How a directory is opened to be listed, itself and no symlink to it.
pub const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A held tree. Two of the same directory stay the same even when a path above them is moved.
#[derive(Debug)]
pub struct Tree(OwnedFd);

impl Tree {
    /// # Errors
    /// The errno of openat2(2); `ELOOP` when a component of `path` is a symlink.
    pub fn open(path: &Path) -> Result<Tree, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open_plain(rustix::fs::CWD, path, flags, ResolveFlags::empty()).map(Tree)
    }

    fn at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // A mount below the root is a tree of its own: an overlay shows the bare directory under it.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        loop {
            // EAGAIN: a rename elsewhere made the kernel unsure whether the walk stayed beneath (openat2(2)).
            match open_plain(self.0.as_fd(), path, flags | OFlags::CLOEXEC, resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    pub fn dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        without_trace(|unseen| self.at(path, OFlags::RDONLY | OFlags::DIRECTORY | unseen))
    }

    /// A directory in which names are made, moved and looked at; it need not be one that may be listed.
    pub fn place(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.at(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens a regular file. The name may have become a FIFO since it was looked at: never wait on one.
    pub fn file(&self, path: &Path) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let fd = without_trace(|unseen| self.at(path, flags | unseen))?;
        Ok(File::from(fd))
    }

    /// What a symlink says.
    pub fn link(&self, path: &Path) -> Result<OsString, Errno> {
        let fd = self.at(path, OFlags::PATH | OFlags::NOFOLLOW)?;
        Ok(OsString::from_vec(rustix::fs::readlinkat(&fd, "", Vec::new())?.into_bytes()))
    }

    pub fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.0, "", AtFlags::EMPTY_PATH)
    }
}

/// One name of a directory; `dir` is what d_type says, `None` where the file system does not tell.
#[derive(Debug)]
pub struct Name {
    pub name: CString,
    pub dir: Option<bool>,
}

impl Name {
    pub fn os(&self) -> &OsStr {
        OsStr::from_bytes(self.name.as_bytes())
    }
}

/// All names of an open directory, in the order of the file system.
pub fn names(dir: BorrowedFd<'_>) -> Result<Vec<Name>, Errno> {
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut reader = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut list = Vec::new();
    while let Some(entry) = reader.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = entry.file_type();
        let dir = (kind != FileType::Unknown).then_some(kind == FileType::Directory);
        list.push(Name { name: name.to_owned(), dir });
    }
    Ok(list)
}

/// `None` when the name is not there (any more).
pub fn stat(dir: BorrowedFd<'_>, name: &CString) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The names of an open file's extended attributes.
pub fn attributes(file: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    // Most files have none: ask with a small buffer first.
    let mut small = [0; 256];
    match rustix::fs::flistxattr(&file, &mut small[..]) {
        Ok(len) => Ok(split(&small[..len])),
        // XATTR_LIST_MAX, the most that the kernel returns.
        Err(Errno::RANGE) => {
            let mut large = vec![0; 64 * 1024];
            let len = rustix::fs::flistxattr(&file, &mut large[..])?;
            Ok(split(&large[..len]))
        }
        Err(Errno::NOTSUP) => Ok(Vec::new()),
        Err(errno) => Err(errno),
    }
}

fn split(list: &[u8]) -> Vec<Vec<u8>> {
    list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// The value of one extended attribute; `None` when it is gone or cannot be read.
pub fn attribute(file: impl AsFd, name: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![0; 64 * 1024];
    let len = rustix::fs::fgetxattr(&file, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// Do two files hold the same bytes? What is a hole in both is passed over: a disk image of a terabyte holds little.
pub fn same_content(a: &File, b: &File) -> std::io::Result<bool> {
    let (mut left, mut right) = ([0; 16 * 1024], [0; 16 * 1024]);
    let mut at = both_data(a, b, 0);
    while let Some(from) = at {
        let len = a.read_at(&mut left, from)?;
        if len == 0 {
            break;
        }
        match b.read_exact_at(&mut right[..len], from) {
            Ok(()) if left[..len] == right[..len] => {}
            Ok(()) => return Ok(false),
            Err(err) if err.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(err) => return Err(err),
        }
        let next = from + len as u64;
        // Only zeros can be in a hole: nobody is asked for one where there is none.
        at = if left[..len].iter().all(|&byte| byte == 0) { both_data(a, b, next) } else { Some(next) };
    }
    Ok(a.metadata()?.len() == b.metadata()?.len())
}

/// Where the next byte lies, from `at` on, that is no hole in either file; `None` is after the last.
fn both_data(a: &File, b: &File, at: u64) -> Option<u64> {
    let next = |file: &File| match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(found) => Some(found.max(at)),
        Err(Errno::NXIO) => None,
        // A file system that does not know holes.
        Err(_) => Some(at),
    };
    match (next(a), next(b)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file without a name, of a length, with some bytes in it.
    fn file(length: u64, bytes: &[(u64, u8)]) -> File {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/var/tmp", flags, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let file = File::from(fd);
        file.set_len(length).unwrap();
        for (at, byte) in bytes {
            file.write_all_at(&[*byte], *at).unwrap();
        }
        file
    }

    #[test]
    fn holes_are_passed_over() {
        // Read byte by byte these would take minutes.
        const HUGE: u64 = 1 << 40;
        let same = |a: &File, b: &File| {
            assert_eq!(same_content(a, b).unwrap(), same_content(b, a).unwrap());
            same_content(a, b).unwrap()
        };
        assert!(same(&file(HUGE, &[]), &file(HUGE, &[])));
        assert!(same(&file(HUGE, &[(0, 1), (HUGE / 2, 7)]), &file(HUGE, &[(0, 1), (HUGE / 2, 7)])));
        // Zeros that are written are not told from a hole.
        assert!(same(&file(HUGE, &[(HUGE / 2, 0)]), &file(HUGE, &[])));
        assert!(!same(&file(HUGE, &[(HUGE / 2, 7)]), &file(HUGE, &[])));
        assert!(!same(&file(HUGE, &[(HUGE / 2, 7)]), &file(HUGE, &[(HUGE / 2, 8)])));
        assert!(!same(&file(HUGE, &[(HUGE - 1, 1)]), &file(HUGE, &[(HUGE - 2, 1)])));
        assert!(!same(&file(HUGE, &[]), &file(HUGE - 1, &[])));
        assert!(!same(&file(70_000, &[(69_999, 1)]), &file(70_000, &[])));
        assert!(same(&file(0, &[]), &file(0, &[])));
    }
}
