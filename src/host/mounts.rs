//! The mount table, read once: which mounts lie below a root.

use crate::path::is_at_or_below;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub at: PathBuf,
    pub kind: String,
    /// The directory or file of its file system that it shows: `/` is all of it.
    pub root: PathBuf,
    /// Which file system that is, as `major:minor`.
    pub device: (u32, u32),
}

impl Mount {
    /// Does it show its file system from the root on?
    pub fn is_whole(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Is it a file system that is the kernel's own: one through which the machine is looked at and set?
    pub fn is_kernel(&self) -> bool {
        const KERNEL: [&str; 17] = [
            "proc",
            "sysfs",
            "devtmpfs",
            "devpts",
            "cgroup",
            "cgroup2",
            "debugfs",
            "tracefs",
            "securityfs",
            "selinuxfs",
            "bpf",
            "configfs",
            "efivarfs",
            "pstore",
            "binfmt_misc",
            "fusectl",
            "mqueue",
        ];
        KERNEL.contains(&self.kind.as_str())
    }

    /// A mount below a root that the box does not get: nothing of it may be looked at or set.
    pub fn is_off_limits(&self) -> bool {
        self.may_hang() || self.is_kernel()
    }

    /// May a look at this file system wait for another machine or program?
    pub fn may_hang(&self) -> bool {
        self.kind.starts_with("fuse")
            || matches!(self.kind.as_str(), "autofs" | "nfs" | "nfs4" | "cifs" | "smb3" | "9p")
    }
}

#[derive(Debug)]
pub struct MountsError(rustix::io::Errno);

impl fmt::Display for MountsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the mount table /proc/self/mountinfo: {}", self.0)
    }
}

impl std::error::Error for MountsError {}

pub(super) fn read() -> Result<Vec<Mount>, MountsError> {
    crate::sys::read_whole("/proc/self/mountinfo").map(|text| parse(&text)).map_err(MountsError)
}

/// Parses proc_pid_mountinfo(5): field 3 is the device, 4 the root of the mount, 5 the mount point, both with space, tab,
/// newline and backslash in octal; the type follows a lone dash.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|&b| b == b' ');
        let device = device(fields.nth(2)?)?;
        let root = unescape(fields.next()?);
        let at = unescape(fields.next()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Mount { at, kind: String::from_utf8_lossy(kind).into_owned(), root, device })
    };
    text.split(|&b| b == b'\n').filter_map(line).collect()
}

fn device(field: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = if first == b'\\' { tail.get(..3) } else { None };
        let code = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        if let Some(code) = code {
            out.push(code);
            rest = &tail[3..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// The mount that `path` lies on: of several at one place the last is the one that shows.
pub fn shown<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().filter(|mount| path.starts_with(&mount.at)).max_by_key(|mount| mount.at.as_os_str().len())
}

/// The mounts strictly below `root`, each once, topmost last.
pub fn below<'a>(mounts: &'a [Mount], root: &'a Path) -> impl Iterator<Item = &'a Mount> {
    mounts.iter().filter(move |mount| is_at_or_below(&mount.at, root) && mount.at != root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_optional_fields_are_read() {
        let text = b"36 35 98:0 / /mnt/a\\040b\\134c rw,noatime master:1 - ext3 /dev/root rw\n\
                     37 35 0:9 /.. /mnt/d rw - fuse.sshfs x rw\n";
        let mounts = parse(text);
        let first = Mount { at: "/mnt/a b\\c".into(), kind: "ext3".into(), root: "/".into(), device: (98, 0) };
        assert_eq!(mounts[0], first);
        assert!(mounts[0].is_whole() && !mounts[1].is_whole());
        assert!(mounts[1].may_hang() && !mounts[0].may_hang());
        assert_eq!(below(&mounts, Path::new("/mnt")).count(), 2);
        assert_eq!(below(&mounts, Path::new("/mnt/d")).count(), 0);
    }
}
