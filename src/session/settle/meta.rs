//! Mode, owner, times and extended attributes of a name: read from a layer or from the host, and put in place.

use crate::session::attributes::{Marks, is_own};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Seconds and nanoseconds.
pub type Time = (i64, u32);
/// Name and value of one extended attribute.
type Attribute = (Vec<u8>, Vec<u8>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// `07777`
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Time,
    pub mtime: Time,
    /// `None` where they cannot be read: they are then left alone.
    pub attributes: Option<Vec<Attribute>>,
}

pub fn is_kind(stat: &Stat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

pub fn is_dir(stat: &Stat) -> bool {
    is_kind(stat, libc::S_IFDIR)
}

pub fn is_link(stat: &Stat) -> bool {
    is_kind(stat, libc::S_IFLNK)
}

fn nanos(value: impl TryInto<u32>) -> u32 {
    value.try_into().unwrap_or(0)
}

pub fn mtime(stat: &Stat) -> Time {
    (stat.st_mtime, nanos(stat.st_mtime_nsec))
}

pub fn ctime(stat: &Stat) -> Time {
    (stat.st_ctime, nanos(stat.st_ctime_nsec))
}

/// The name itself, held without opening it: neither its mode nor its kind matters.
pub fn hold(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A held name as a path, for the calls that take no descriptor of this kind.
fn itself(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

impl Meta {
    pub fn of(fd: BorrowedFd<'_>, stat: &Stat) -> Result<Meta, Errno> {
        let attributes = if is_link(stat) { Some(Vec::new()) } else { own_attributes(fd)? };
        Ok(Meta {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            atime: (stat.st_atime, nanos(stat.st_atime_nsec)),
            mtime: mtime(stat),
            attributes,
        })
    }

    /// The metadata of a name of a layer, as the command knew it. What hostile marks say is the walk's to refuse; they
    /// are not taken over in any case.
    pub fn of_layer(fd: BorrowedFd<'_>, stat: &Stat) -> Result<Meta, Errno> {
        let mut meta = Meta::of(fd, stat)?;
        if let Some(list) = meta.attributes.take() {
            meta.attributes = Some(as_the_command_knew(list));
        }
        Ok(meta)
    }

    /// Would a plain run have left a difference? Reading a file is none.
    pub fn differs(&self, other: &Meta) -> bool {
        let attributes = match (&self.attributes, &other.attributes) {
            (Some(a), Some(b)) => a != b,
            (_, _) => false,
        };
        attributes || (self.mode, self.uid, self.gid, self.mtime) != (other.mode, other.uid, other.gid, other.mtime)
    }

    /// Puts all of it in place on a held name that is no symlink. Owner first, which clears set-id bits; times last,
    /// which every other call changes.
    pub fn put(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let now = rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH)?;
        let path = itself(fd);
        if (now.st_uid, now.st_gid) != (self.uid, self.gid) {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            rustix::fs::chownat(fd, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        let mut mode = rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH)?.st_mode & 0o7777;
        let chmod = |mode: u32| rustix::fs::chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty());
        if let Some(wanted) = &self.attributes
            && own_attributes(fd)?.as_ref() != Some(wanted)
        {
            // An owner without the permission to write may not change attributes either.
            chmod(mode | 0o600)?;
            put_attributes(&path, wanted, &own_attributes(fd)?.unwrap_or_default())?;
            mode = u32::MAX;
        }
        if mode != self.mode {
            chmod(self.mode)?;
        }
        rustix::fs::utimensat(CWD, &path, &self.times(), AtFlags::empty())
    }

    /// The same of a symlink: it has an owner and times.
    pub fn put_link(&self, dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<(), Errno> {
        let now = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (now.st_uid, now.st_gid) != (self.uid, self.gid) {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        rustix::fs::utimensat(dir, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn times(&self) -> Timestamps {
        let time = |(sec, nsec): Time| Timespec { tv_sec: sec, tv_nsec: nsec.into() };
        Timestamps { last_access: time(self.atime), last_modification: time(self.mtime) }
    }
}

/// Lets the owner of a held name read and write it, as far as its mode does not. Says what the mode was.
pub fn open_up(fd: BorrowedFd<'_>, bits: u32) -> Result<u32, Errno> {
    let mode = rustix::fs::statat(fd, "", AtFlags::EMPTY_PATH)?.st_mode & 0o7777;
    if mode & bits != bits {
        set_mode(fd, mode | bits)?;
    }
    Ok(mode)
}

pub fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmodat(CWD, itself(fd), Mode::from_raw_mode(mode), AtFlags::empty())
}

/// All attributes that mean something to a program; `None` when one cannot be read.
fn own_attributes(fd: BorrowedFd<'_>) -> Result<Option<Vec<Attribute>>, Errno> {
    let path = itself(fd);
    let mut list = Vec::new();
    for name in names(&path)? {
        if !is_own(&name) {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        match rustix::fs::getxattr(&path, &*name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                list.push((name, value));
            }
            Err(Errno::NODATA) => {}
            Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
    list.sort();
    Ok(Some(list))
}

fn names(path: &PathBuf) -> Result<Vec<Vec<u8>>, Errno> {
    let mut small = [0; 256];
    let split = |list: &[u8]| -> Vec<Vec<u8>> {
        list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    };
    match rustix::fs::listxattr(path, &mut small[..]) {
        Ok(len) => Ok(split(&small[..len])),
        Err(Errno::RANGE) => {
            let mut large = vec![0; 64 * 1024];
            let len = rustix::fs::listxattr(path, &mut large[..])?;
            Ok(split(&large[..len]))
        }
        Err(Errno::NOTSUP) => Ok(Vec::new()),
        Err(errno) => Err(errno),
    }
}

/// Without the overlay's own marks, and with the command's under the names that it gave them.
fn as_the_command_knew(list: Vec<Attribute>) -> Vec<Attribute> {
    let known = list.into_iter().filter_map(|(name, value)| Some((Marks::known_as(&name)?, value)));
    let mut list: Vec<Attribute> = known.collect();
    list.sort();
    list
}

fn put_attributes(path: &PathBuf, wanted: &[Attribute], now: &[Attribute]) -> Result<(), Errno> {
    for (name, _) in now.iter().filter(|(name, _)| !wanted.iter().any(|(other, _)| other == name)) {
        rustix::fs::removexattr(path, &**name)?;
    }
    for (name, value) in wanted.iter().filter(|pair| !now.contains(pair)) {
        rustix::fs::setxattr(path, &**name, value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Takes the overlay's marks off a file that was moved out of a layer.
pub fn take_off_marks(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let path = itself(fd);
    let marks: Vec<Vec<u8>> = names(&path)?.into_iter().filter(|name| Marks::is_mark(name)).collect();
    if marks.is_empty() {
        return Ok(());
    }
    let mode = open_up(fd, 0o600)?;
    for name in &marks {
        match rustix::fs::removexattr(&path, &**name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    if mode & 0o600 != 0o600 { set_mode(fd, mode) } else { Ok(()) }
}

/// Has the file an attribute whose name is stored in another form in the layer? Such a one cannot simply be moved.
pub fn has_escaped(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(names(&itself(fd))?.iter().any(|name| Marks::known_as(name).is_some_and(|known| known != *name)))
}
