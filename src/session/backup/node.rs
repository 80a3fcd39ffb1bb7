//! What stood at a name: enough to put it back.

use super::super::osjson;
use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Which file it is. A number alone comes back once its file is gone; with the time of birth it does not, on every file
/// system that tells one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    pub dev: u64,
    pub ino: u64,
    /// Nanoseconds; 0 where the file system does not tell.
    pub born: i128,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    File,
    Dir,
    Symlink {
        #[serde(with = "osjson::one")]
        target: PathBuf,
    },
    Fifo,
    Socket,
    Device,
}

/// An extended attribute; bytes as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    #[serde(with = "osjson::one")]
    pub name: OsString,
    #[serde(with = "hex")]
    pub value: Vec<u8>,
}

/// Where the content is, below `backup/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stored {
    /// A second name of the file itself: linked or moved back, it is the same file, with its other names and attributes.
    Link(PathBuf),
    /// A copy of the content.
    Copy(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: Kind,
    /// Permission bits, set-id and sticky bits included.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub links: u32,
    /// Nanoseconds since 1970.
    pub modified: i128,
    pub identity: Identity,
    /// `None` where they were not about to change: they are then the file's own still, or come with a link.
    pub attributes: Option<Vec<Attribute>>,
    /// `None` where the content was not about to be lost, was stored by an earlier entry, or could not be stored: an
    /// entry `lost` says that.
    pub stored: Option<Stored>,
}

/// A look at a name that follows no symlink and opens nothing.
pub(super) fn look(dir: &OwnedFd, name: &OsStr) -> Result<Option<Statx>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    match rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(super) fn format_of(stat: &Statx) -> u32 {
    u32::from(stat.stx_mode) & libc::S_IFMT
}

pub(super) fn is_mount_point(stat: &Statx) -> bool {
    stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

impl Identity {
    pub(super) fn of(stat: &Statx) -> Identity {
        let told = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = if told { nanoseconds(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) } else { 0 };
        Identity { dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino, born }
    }
}

impl Node {
    /// Without attributes and content.
    pub(super) fn of(dir: &OwnedFd, name: &OsStr, stat: &Statx) -> Result<Node, Errno> {
        let kind = match format_of(stat) {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Dir,
            libc::S_IFLNK => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes();
                Kind::Symlink { target: OsString::from_vec(target).into() }
            }
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            _ => Kind::Device,
        };
        Ok(Node {
            kind,
            mode: u32::from(stat.stx_mode) & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            links: stat.stx_nlink,
            modified: nanoseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            identity: Identity::of(stat),
            attributes: None,
            stored: None,
        })
    }
}

pub(super) fn nanoseconds(sec: i64, nsec: u32) -> i128 {
    i128::from(sec) * 1_000_000_000 + i128::from(nsec)
}

/// The extended attributes of what is at a name and is no symlink. Through the magic link, which needs no permission to
/// open the file itself.
pub(super) fn attributes(dir: &OwnedFd, name: &OsStr) -> Result<Vec<Attribute>, Errno> {
    use rustix::fs::{Mode, OFlags};
    let held = rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
    let mut list = vec![0; 256];
    let length = loop {
        match rustix::fs::listxattr(path.as_str(), &mut list[..]) {
            Ok(length) => break length,
            // XATTR_LIST_MAX, the most that the kernel returns.
            Err(Errno::RANGE) if list.len() < 64 * 1024 => list.resize(64 * 1024, 0),
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
    };
    let names = list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut out = Vec::new();
    // Labels and capabilities are not the command's to change.
    for name in names.filter(|name| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")) {
        let Ok(text) = CString::new(name) else { continue };
        let mut value = vec![0; 64 * 1024];
        match rustix::fs::getxattr(path.as_str(), &text, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                out.push(Attribute { name: OsString::from_vec(name.to_vec()), value });
            }
            // Without permission to read it the command cannot have it changed either.
            Err(Errno::NODATA | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(out)
}

/// What stands at a host path.
pub(super) fn look_on_host(path: &std::path::Path) -> Result<Option<Statx>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&digits)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let digits = String::deserialize(from)?;
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes = digits.as_bytes().chunks(2).map(|two| pair(two).filter(|_| two.len() == 2)).collect::<Option<_>>();
        bytes.ok_or_else(|| D::Error::custom("not hexadecimal digits"))
    }
}
