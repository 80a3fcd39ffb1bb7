//! Facts about the kernel and the caller, probed once into one value. Probing forks nothing and changes nothing.

mod account;
mod cgroup;
mod mounts;
mod sockets;
mod system;

pub use account::Account;
pub use cgroup::{Cgroups, Controllers, Delegation};
pub use mounts::{Mount, MountsError, below as mounts_below, shown as mount_of};
pub use sockets::{Sockets, bound as bound_sockets};
pub use system::{Machine, Setting, System, is_filtered};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A directory of the root directory that programs need: a real one or a link such as `bin -> usr/bin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemDir {
    Dir(PathBuf),
    Link { at: PathBuf, target: PathBuf },
}

/// An entry of `/etc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcEntry {
    pub name: OsString,
    pub link: bool,
    pub dir: bool,
}

/// What this kernel and caller are.
#[derive(Debug, Clone)]
pub struct Facts {
    pub uid: u32,
    pub gid: u32,
    /// May it map ids beside its own (CAP_SETUID, CAP_SETGID and, for uid 0, CAP_SETFCAP: user_namespaces(7))? Root in
    /// some containers, and in a box, may not.
    pub maps_ids: bool,
    pub account: Account,
    pub system: Vec<SystemDir>,
    pub etc: Vec<EtcEntry>,
    /// The highest Landlock ABI of the kernel; 0 when it has none.
    pub landlock_abi: u32,
    /// Physical memory in bytes.
    pub memory: u64,
    pub mounts: Vec<Mount>,
    pub cgroups: Cgroups,
    /// The ids that exist in the caller's own user namespace: (first, count), for users and for groups.
    pub uid_ranges: Vec<(u32, u32)>,
    pub gid_ranges: Vec<(u32, u32)>,
}

/// Names at the root that are shown read-only where they exist.
/// Of nix without the daemon's socket: it builds for whoever can connect.
const SYSTEM: [&str; 10] =
    ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix/store", "nix/var/nix/profiles"];

impl Facts {
    /// Looks at the host.
    ///
    /// # Errors
    /// When the mount table cannot be read: submounts of a root would be missed.
    pub fn probe() -> Result<Facts, MountsError> {
        let uid = rustix::process::getuid().as_raw();
        let gid = rustix::process::getgid().as_raw();
        let mounts = mounts::read()?;
        Ok(Facts {
            uid,
            gid,
            maps_ids: maps_ids(),
            account: Account::lookup(uid, gid),
            system: system_dirs(),
            etc: list_etc().unwrap_or_default(),
            landlock_abi: crate::sys::landlock_abi(),
            memory: physical_memory(),
            cgroups: cgroup::probe(&mounts),
            mounts,
            // Only a privileged caller maps more than itself.
            uid_ranges: if uid == 0 { id_ranges("/proc/self/uid_map") } else { Vec::new() },
            gid_ranges: if uid == 0 { id_ranges("/proc/self/gid_map") } else { Vec::new() },
        })
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

fn maps_ids() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETFCAP;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

fn system_dirs() -> Vec<SystemDir> {
    let look = |name: &&str| {
        let at = Path::new("/").join(name);
        let stat = rustix::fs::statat(rustix::fs::CWD, &at, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            let target = rustix::fs::readlink(&at, Vec::new()).ok()?;
            return Some(SystemDir::Link { at, target: PathBuf::from(OsStr::from_bytes(target.as_bytes())) });
        }
        (kind == FileType::Directory).then_some(SystemDir::Dir(at))
    };
    SYSTEM.iter().filter_map(look).collect()
}

fn list_etc() -> Result<Vec<EtcEntry>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/etc", flags, Mode::empty())?;
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 32 * 1024];
    let mut entries = RawDir::new(&fd, &mut buffer);
    let mut out = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let kind = entry.file_type();
        out.push(EtcEntry {
            name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
            link: kind == FileType::Symlink,
            dir: kind == FileType::Directory,
        });
    }
    Ok(out)
}

fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "the field's width depends on the architecture")]
    let total = u64::from(info.totalram);
    total.saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// The ranges of user_namespaces(7)'s map: inside id, outside id, count.
fn id_ranges(file: &str) -> Vec<(u32, u32)> {
    let text = String::from_utf8(crate::sys::read_whole(file).unwrap_or_default()).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let first = fields.next()?.parse().ok()?;
        Some((first, fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
