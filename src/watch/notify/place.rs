//! What a path means to the process that uses it, found from outside: from its own root and directories, symlinks and
//! the magic links of /proc included.

use super::caller::Caller;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const SEARCH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = SEARCH.union(OFlags::DIRECTORY);
/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// A name in a directory, whether something stands there or not. Nothing at the name is followed.
#[derive(Debug)]
pub struct Place {
    pub dir: OwnedFd,
    pub name: OsString,
    /// As the process sees it, without symlinks. In a live root this is the host's path as well.
    path: PathBuf,
}

/// What a path or a descriptor means.
#[derive(Debug)]
pub enum Target {
    Named(Place),
    /// A file without a name: deleted, or never in a directory.
    Nameless(OwnedFd),
}

impl Place {
    fn new(dir: OwnedFd, name: &OsStr) -> Result<Place, Errno> {
        let path = path_of(dir.as_fd())?.join(name);
        Ok(Place { dir, name: name.to_owned(), path })
    }

    /// A path without symlinks, as the caller sees it.
    pub(super) fn of(caller: &Caller<'_>, path: &Path) -> Result<Place, Errno> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::BUSY) };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let dir = openat2(caller.root()?.as_fd(), parent, DIRECTORY, resolve)?;
        Ok(Place { dir, name: name.to_owned(), path: path.to_path_buf() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What stands there; `None` when nothing does.
    ///
    /// # Errors
    /// The errno of fstatat(2).
    pub fn stat(&self) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// The place that `path` means to the caller.
pub(super) fn find(caller: &Caller<'_>, dir: Option<i32>, path: &Path, follow: bool) -> Result<Target, Errno> {
    let base = if path.is_absolute() { caller.root()? } else { caller.base(dir)? };
    match quickly(caller, &base, path, follow) {
        // A magic link is refused as a loop, and /proc/self leads nowhere for a process outside of the box.
        Err(Errno::LOOP | Errno::NOENT) | Ok(None) => step_by_step(caller, base, path, follow),
        Ok(Some(target)) => Ok(target),
        Err(errno) => Err(errno),
    }
}

/// A few calls for nearly all paths. `None` where it takes a walk.
fn quickly(caller: &Caller<'_>, base: &OwnedFd, path: &Path, follow: bool) -> Result<Option<Target>, Errno> {
    let mut dir = dup(base)?;
    let mut path = path.to_path_buf();
    for _ in 0..=MOST_LINKS {
        let Some((parent, name)) = split(&path) else { return Ok(None) };
        dir = if path.is_absolute() {
            in_root(caller, &parent)?
        } else if parent.as_os_str().is_empty() {
            dir
        } else {
            match openat2(dir.as_fd(), &parent, DIRECTORY, ResolveFlags::NO_SYMLINKS) {
                // A symlink may be absolute, and then it starts at the caller's root.
                Err(Errno::LOOP) => in_root(caller, &path_of(dir.as_fd())?.join(&parent))?,
                other => other?,
            }
        };
        let link = if follow { rustix::fs::readlinkat(&dir, name.as_os_str(), Vec::new()) } else { Err(Errno::INVAL) };
        match link {
            Ok(_) if is_proc(dir.as_fd())? => return Ok(None),
            Ok(text) => path = PathBuf::from(OsString::from_vec(text.into_bytes())),
            // No symlink, or nothing at all.
            Err(Errno::INVAL | Errno::NOENT) => return Place::new(dir, &name).map(|place| Some(Target::Named(place))),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::LOOP)
}

fn in_root(caller: &Caller<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(caller.root()?.as_fd(), path, DIRECTORY, resolve)
}

/// The directory and the name. `None` for paths that end in no name: `/`, `.`, `a/..`.
fn split(path: &Path) -> Option<(PathBuf, OsString)> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/')? + 1;
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let name = &bytes[start..end];
    if name == b"." || name == b".." {
        return None;
    }
    Some((Path::new(OsStr::from_bytes(&bytes[..start])).to_path_buf(), OsStr::from_bytes(name).to_owned()))
}

/// Component by component, as the kernel walks for the caller.
fn step_by_step(caller: &Caller<'_>, base: OwnedFd, path: &Path, follow: bool) -> Result<Target, Errno> {
    let root = caller.root()?;
    let top = rustix::fs::fstat(&root)?;
    let mut at = base;
    // The next one last.
    let mut ahead: Vec<OsString> = Vec::new();
    put(&mut ahead, path);
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        if name == "." || name.is_empty() {
            continue;
        }
        if name == ".." {
            let here = rustix::fs::fstat(&at)?;
            if (here.st_dev, here.st_ino) != (top.st_dev, top.st_ino) {
                at = rustix::fs::openat(&at, "..", SEARCH, Mode::empty())?;
            }
            continue;
        }
        let last = ahead.is_empty();
        if last && !follow {
            return Place::new(at, &name).map(Target::Named);
        }
        let next = match rustix::fs::openat(&at, name.as_os_str(), SEARCH | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOENT) if last => return Place::new(at, &name).map(Target::Named),
            other => other?,
        };
        let stat = rustix::fs::fstat(&next)?;
        if stat.st_mode & 0o170_000 != 0o120_000 {
            if last {
                return Place::new(at, &name).map(Target::Named);
            }
            at = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        if !is_proc(at.as_fd())? {
            let text = rustix::fs::readlinkat(&next, "", Vec::new())?;
            let text = PathBuf::from(OsString::from_vec(text.into_bytes()));
            if text.is_absolute() {
                at = dup(&root)?;
            }
            put(&mut ahead, &text);
        } else if rustix::fs::fstat(&at)?.st_ino == PROC_ROOT {
            // Ordinary links, of which two are the reader's own.
            let text = if name == "self" || name == "thread-self" {
                caller.own_number(&name)?
            } else {
                OsString::from_vec(rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes())
            };
            put(&mut ahead, Path::new(&text));
        } else {
            // Magic: it leads to the file itself, whatever its text says.
            let found = rustix::fs::openat(&at, name.as_os_str(), SEARCH, Mode::empty())?;
            if last {
                return target_of(caller, found);
            }
            at = found;
        }
    }
    target_of(caller, at)
}

/// The root directory's number in every /proc.
const PROC_ROOT: u64 = 1;

fn put(ahead: &mut Vec<OsString>, path: &Path) {
    let names = path.as_os_str().as_bytes().split(|&byte| byte == b'/');
    let names: Vec<OsString> = names.map(|name| OsStr::from_bytes(name).to_owned()).collect();
    // Slashes at the end name the directory itself, and are no name.
    let end = names.iter().rposition(|name| !name.is_empty()).map_or(0, |at| at + 1);
    ahead.extend(names[..end].iter().rev().filter(|name| !name.is_empty()).cloned());
}

/// The name of an open file, if it still has one.
pub(super) fn target_of(caller: &Caller<'_>, file: OwnedFd) -> Result<Target, Errno> {
    let path = path_of(file.as_fd())?;
    let held = rustix::fs::fstat(&file)?;
    if held.st_nlink == 0 || !path.is_absolute() {
        return Ok(Target::Nameless(file));
    }
    match Place::of(caller, &path) {
        Ok(place) => {
            let same = place.stat()?.is_some_and(|stat| (stat.st_dev, stat.st_ino) == (held.st_dev, held.st_ino));
            Ok(if same { Target::Named(place) } else { Target::Nameless(file) })
        }
        Err(_) => Ok(Target::Nameless(file)),
    }
}

/// What the kernel calls an open file. For one of another mount namespace that is its path there.
fn path_of(file: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let text = rustix::fs::readlinkat(CWD, link, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
}

fn is_proc(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(rustix::fs::fstatfs(file)?.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

fn dup(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}

fn openat2(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
            // A rename elsewhere made the kernel unsure whether the walk stayed beneath (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_its_last_name() {
        let parts = |path: &str| split(Path::new(path)).map(|(dir, name)| (dir.display().to_string(), name));
        assert_eq!(parts("a"), Some((String::new(), "a".into())));
        assert_eq!(parts("a/b//"), Some(("a/".to_owned(), "b".into())));
        assert_eq!(parts("/b"), Some(("/".to_owned(), "b".into())));
        for none in ["/", "", ".", "a/..", "a/./"] {
            assert_eq!(parts(none), None, "{none}");
        }
    }
}
