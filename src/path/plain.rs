//! Opening a path none of whose components is a symlink: openat2(2), or the same walk by hand where there is none.
//!
//! The walk is what an agentbox inside a box gets (`--nested`): openat2 answers ENOSYS there, because the mode of a file
//! that it makes is behind a pointer, where the outer filter cannot see a set-id bit. Letting the call through would
//! trade that wall for our own comfort. Some containers answer the same.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// Opens `path` below `dir`, or from the root directory where it is absolute. `resolve` is taken together with
/// `NO_SYMLINKS`; nothing is ever made.
///
/// # Errors
/// The errno of openat2(2): `ELOOP` for a symlink on the way, `EXDEV` for a step out of `BENEATH` or over `NO_XDEV`.
pub fn open_plain(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let all = resolve | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(dir, path, flags, Mode::empty(), all) {
        Err(Errno::NOSYS) => walk(dir, path, flags, resolve),
        other => other,
    }
}

fn walk(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let in_root = resolve.contains(ResolveFlags::IN_ROOT);
    let confined = in_root || resolve.contains(ResolveFlags::BENEATH);
    if path.is_absolute() && confined && !in_root {
        return Err(Errno::XDEV);
    }
    let names: Vec<&Path> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(Ok(Path::new(name))),
            // Where it leads depends on renames meanwhile, which only the kernel can check.
            Component::ParentDir if confined => Some(Err(Errno::XDEV)),
            Component::ParentDir => Some(Ok(Path::new(".."))),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect::<Result<_, _>>()?;
    let start = if path.is_absolute() && !in_root { Path::new("/") } else { Path::new(".") };
    let Some((last, way)) = names.split_last() else {
        return rustix::fs::openat(dir, start, flags, Mode::empty());
    };
    let mut at = rustix::fs::openat(dir, start, STEP, Mode::empty())?;
    let mount = if resolve.contains(ResolveFlags::NO_XDEV) { Some(mount_of(at.as_fd())?) } else { None };
    let same_mount = |fd: &OwnedFd| match mount {
        Some(mount) if mount_of(fd.as_fd())? != mount => Err(Errno::XDEV),
        _ => Ok(()),
    };
    for name in way {
        at = rustix::fs::openat(&at, *name, STEP, Mode::empty())?;
        if is_link(&at)? {
            return Err(Errno::LOOP);
        }
        same_mount(&at)?;
    }
    let found = rustix::fs::openat(&at, *last, flags | OFlags::NOFOLLOW, Mode::empty())?;
    // O_PATH with O_NOFOLLOW opens a link itself, which only a caller who asked for that may get.
    if !flags.contains(OFlags::NOFOLLOW) && is_link(&found)? {
        return Err(Errno::LOOP);
    }
    same_mount(&found)?;
    Ok(found)
}

fn is_link(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Symlink)
}

fn mount_of(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;

    /// The walk against the kernel's own answer.
    #[test]
    fn the_walk_answers_as_openat2_does() {
        let dir = std::env::temp_dir().join(format!("agentbox-plain-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let top = rustix::fs::open(&dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for name in ["a", "a/b"] {
            rustix::fs::mkdirat(&top, name, Mode::RWXU).unwrap();
        }
        rustix::fs::symlinkat("a", &top, "link").unwrap();
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = OFlags::PATH | OFlags::CLOEXEC;
        for (name, flags, resolve) in [
            ("a/b", read, ResolveFlags::BENEATH),
            (".", read, ResolveFlags::BENEATH),
            ("/a/b", path, ResolveFlags::IN_ROOT),
            ("/a", path, ResolveFlags::BENEATH),
            ("link", path, ResolveFlags::empty()),
            ("link", path | OFlags::NOFOLLOW, ResolveFlags::empty()),
            ("link", read, ResolveFlags::empty()),
            ("link/b", path, ResolveFlags::empty()),
            ("a/none", path, ResolveFlags::empty()),
            ("../x", path, ResolveFlags::BENEATH),
            ("a/b", path, ResolveFlags::NO_XDEV),
            ("/proc/self", path, ResolveFlags::empty()),
            ("/usr", path | OFlags::NOFOLLOW, ResolveFlags::empty()),
        ] {
            let all = resolve | ResolveFlags::NO_SYMLINKS;
            let id = |fd: Result<OwnedFd, Errno>| fd.map(|fd| rustix::fs::fstat(fd).unwrap().st_ino);
            let kernel = id(rustix::fs::openat2(&top, name, flags, Mode::empty(), all));
            let ours = id(walk(top.as_fd(), Path::new(name), flags, resolve));
            assert_eq!(ours, kernel, "{name} {flags:?} {resolve:?}");
        }
        let proc = rustix::fs::open("/", path, Mode::empty()).unwrap();
        let crossed = walk(proc.as_fd(), Path::new("proc/1"), path, ResolveFlags::NO_XDEV);
        assert_eq!(crossed.unwrap_err(), Errno::XDEV);
        assert!(walk(CWD, Path::new("/"), path, ResolveFlags::empty()).is_ok());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
