//! Canonical host paths.
//!
//! A path is resolved component by component beneath held descriptors, and each symlink crossed is recorded, so that
//! every spelling the user knows can be rebuilt inside. Nothing here follows a link that it does not report.

use super::plain::open_plain;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// As many symlinks as the kernel itself follows (`MAXSYMLINKS`, path_resolution(7)).
const MAX_LINKS: usize = 40;

/// An absolute path of the host without a symlink, `.` or `..` in it. Only [`resolve`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath(PathBuf);

impl HostPath {
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, rest: &Path) -> PathBuf {
        self.0.join(rest)
    }

    pub fn into_path_buf(self) -> PathBuf {
        self.0
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// What the kernel knows a file by while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileId {
    pub dev: u64,
    pub ino: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Dir,
    File,
    Socket,
    Device,
    Fifo,
}

/// A symlink that a path crossed: where it stands (itself canonical but for its last component) and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub at: PathBuf,
    pub target: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Resolved {
    pub path: HostPath,
    pub links: Vec<Link>,
    pub id: FileId,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum ResolveError {
    /// `missing` does not exist below `parent`, which does.
    Missing {
        asked: PathBuf,
        parent: PathBuf,
        rest: PathBuf,
        links: Vec<Link>,
    },
    Loop {
        asked: PathBuf,
    },
    Io {
        asked: PathBuf,
        at: PathBuf,
        errno: Errno,
    },
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::Missing { asked, .. } => write!(f, "{}: no such file or directory", asked.display()),
            ResolveError::Loop { asked } => write!(f, "{}: too many symlinks", asked.display()),
            ResolveError::Io { asked, at, errno } => {
                write!(f, "{}: cannot look at {}: {errno}", asked.display(), at.display())
            }
        }
    }
}

impl std::error::Error for ResolveError {}

/// Joins `path` to `cwd` and removes `.` and doubled slashes. `..` stays: what it means depends on symlinks.
fn absolute(path: &Path, cwd: &Path) -> PathBuf {
    let joined = cwd.join(path);
    joined.components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

/// The path with `.` and `..` removed as text. Right only where no component is a symlink.
pub fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// Is `path` at `base` or below it? Both absolute and without `.` and doubled slashes: then this is a comparison of bytes,
/// which `Path::starts_with` is not.
pub fn is_at_or_below(path: &Path, base: &Path) -> bool {
    let (path, base) = (path.as_os_str().as_bytes(), base.as_os_str().as_bytes());
    let base = base.strip_suffix(b"/").unwrap_or(base);
    path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Resolves `path` (relative ones against `cwd`) to its canonical form.
///
/// # Errors
/// `Missing` when a component does not exist (with the deepest parent that does), `Loop`, or the errno of the call
/// that failed.
pub fn resolve(path: &Path, cwd: &Path) -> Result<Resolved, ResolveError> {
    let asked = absolute(path, cwd);
    // One call settles the usual case: no symlink anywhere on the way.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match open_plain(rustix::fs::CWD, &asked, flags, ResolveFlags::empty()) {
        Ok(fd) => finish(&asked, lexical(&asked), Vec::new(), &fd),
        Err(Errno::NOENT) => match missing(&asked) {
            Some(error) => Err(error),
            None => walk(&asked),
        },
        Err(Errno::LOOP) => match last_is_link(&asked) {
            Some(link) => through(&asked, link),
            None => walk(&asked),
        },
        Err(errno) => Err(ResolveError::Io { at: asked.clone(), asked, errno }),
    }
}

/// Resolves an absolute path, for who does not ask why it cannot be: of one that is missing the parents are not looked for.
pub fn resolve_existing(path: &Path) -> Option<Resolved> {
    let asked = absolute(path, Path::new("/"));
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match open_plain(rustix::fs::CWD, &asked, flags, ResolveFlags::empty()) {
        Ok(fd) => finish(&asked, lexical(&asked), Vec::new(), &fd).ok(),
        // No symlink was met on the way to what is missing.
        Err(Errno::NOENT) => None,
        Err(_) => resolve(&asked, Path::new("/")).ok(),
    }
}

/// The usual link: the last component, with none before it.
fn last_is_link(asked: &Path) -> Option<Link> {
    if asked.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let target = rustix::fs::readlink(asked, Vec::new()).ok()?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    open_plain(rustix::fs::CWD, asked.parent()?, flags, ResolveFlags::empty()).ok()?;
    Some(Link { at: lexical(asked), target: PathBuf::from(OsStr::from_bytes(target.as_bytes())) })
}

/// Goes on behind a link, if nothing but plain directories lies there; else walks from the start.
fn through(asked: &Path, link: Link) -> Result<Resolved, ResolveError> {
    // The link's own directory has no link in it, so `..` there means what it says; in the rest of the target it may
    // not, but that is plain as well or this fails.
    let parent = link.at.parent().unwrap_or(Path::new("/"));
    let target = parent.join(&link.target);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match open_plain(rustix::fs::CWD, &target, flags, ResolveFlags::empty()) {
        Ok(fd) => finish(asked, lexical(&target), vec![link], &fd),
        Err(_) => walk(asked),
    }
}

/// A path that does not exist, where no link is on the way to the deepest parent that does: a call a level from the
/// end, which is where it usually breaks off. `None` where a link is.
fn missing(asked: &Path) -> Option<ResolveError> {
    let mut parent = lexical(asked);
    let mut rest = Vec::new();
    if asked.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    while let Some(name) = parent.file_name().map(OsStr::to_owned) {
        parent.pop();
        rest.push(name);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match open_plain(rustix::fs::CWD, &parent, flags, ResolveFlags::empty()) {
            Ok(_) => {
                let rest = rest.iter().rev().collect();
                return Some(ResolveError::Missing { asked: asked.to_path_buf(), parent, rest, links: Vec::new() });
            }
            Err(Errno::NOENT) => {}
            Err(_) => return None,
        }
    }
    None
}

fn finish(asked: &Path, path: PathBuf, links: Vec<Link>, fd: &OwnedFd) -> Result<Resolved, ResolveError> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| ResolveError::Io {
        asked: asked.to_path_buf(),
        at: path.clone(),
        errno,
    })?;
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFDIR => Kind::Dir,
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFCHR | libc::S_IFBLK => Kind::Device,
        _ => Kind::File,
    };
    Ok(Resolved { path: HostPath(path), links, id: FileId { dev: stat.st_dev, ino: stat.st_ino }, kind })
}

/// The slow way: one component at a time, each opened beneath the last with O_NOFOLLOW.
fn walk(asked: &Path) -> Result<Resolved, ResolveError> {
    let io = |at: &Path, errno| ResolveError::Io { asked: asked.to_path_buf(), at: at.to_path_buf(), errno };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open_root = || rustix::fs::open("/", flags | OFlags::DIRECTORY, Mode::empty());
    let mut todo: Vec<PathBuf> = parts(asked);
    let mut at = PathBuf::from("/");
    // The directories held from the root down: `..` goes back to the one it came through.
    let mut held: Vec<OwnedFd> = vec![open_root().map_err(|errno| io(Path::new("/"), errno))?];
    let mut links = Vec::new();
    while let Some(part) = todo.pop() {
        if part == Path::new("..") {
            if held.len() > 1 {
                held.pop();
                at.pop();
            }
            continue;
        }
        let Some(dir) = held.last() else { break };
        let next = at.join(&part);
        let fd = match rustix::fs::openat(dir.as_fd(), &part, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                let rest = std::iter::once(part).chain(todo.into_iter().rev()).collect();
                return Err(ResolveError::Missing { asked: asked.to_path_buf(), parent: at, rest, links });
            }
            Err(errno) => return Err(io(&next, errno)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| io(&next, errno))?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFLNK {
            held.push(fd);
            at = next;
            continue;
        }
        if links.len() == MAX_LINKS {
            return Err(ResolveError::Loop { asked: asked.to_path_buf() });
        }
        let target = rustix::fs::readlinkat(&fd, "", Vec::new()).map_err(|errno| io(&next, errno))?;
        let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            held.truncate(1);
            at = PathBuf::from("/");
        }
        todo.extend(parts(&target));
        links.push(Link { at: next, target });
    }
    let Some(fd) = held.last() else { return Err(ResolveError::Loop { asked: asked.to_path_buf() }) };
    finish(asked, at, links, fd)
}

/// The components that remain to be walked, last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<PathBuf> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Temp(PathBuf);

    impl Temp {
        fn new(name: &str) -> Temp {
            let dir = PathBuf::from(format!("/var/tmp/agentbox-resolve-{name}-{}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            Temp(dir)
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn root() -> &'static Path {
        Path::new("/")
    }

    /// The fast ways must say what the slow walk says.
    fn both(path: &Path) -> Result<Resolved, String> {
        let fast = resolve(path, root()).map_err(|err| format!("{err:?}"));
        let slow = walk(path).map_err(|err| format!("{err:?}"));
        match (&fast, &slow) {
            (Ok(fast), Ok(slow)) => {
                assert_eq!(
                    (&fast.path, &fast.links, fast.id),
                    (&slow.path, &slow.links, slow.id),
                    "{}",
                    path.display()
                );
            }
            (Err(fast), Err(slow)) => assert_eq!(fast, slow),
            _ => panic!("{}: {fast:?} against {slow:?}", path.display()),
        }
        let existing = resolve_existing(path).map(|found| (found.path, found.links, found.id));
        assert_eq!(existing, slow.ok().map(|found| (found.path, found.links, found.id)), "{}", path.display());
        fast
    }

    #[test]
    fn fast_and_slow_agree() {
        let temp = Temp::new("agree");
        let at = |name: &str| temp.0.join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::File::create(at("real/file")).unwrap();
        symlink("real", at("link")).unwrap();
        symlink("link", at("two")).unwrap();
        symlink("real/file", at("to-file")).unwrap();
        symlink("../nowhere", at("dangling")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink(at("link/file"), at("far")).unwrap();
        assert!(both(&at("real/file")).unwrap().links.is_empty());
        assert_eq!(both(&at("link")).unwrap().links.len(), 1);
        assert_eq!(both(&at("two/file")).unwrap().links.len(), 2);
        assert_eq!(both(&at("two")).unwrap().path.as_path(), at("real"));
        assert_eq!(both(&at("to-file")).unwrap().kind, Kind::File);
        assert_eq!(both(&at("far")).unwrap().links.len(), 2);
        assert_eq!(both(&at("link/../real")).unwrap().path.as_path(), at("real"));
        both(&at("dangling")).unwrap_err();
        both(&at("missing/below")).unwrap_err();
        both(&at("link/missing/below")).unwrap_err();
        both(&at("loop")).unwrap_err();
        both(&at("real/file/below")).unwrap_err();
    }
}
