//! The veil: the middle layer of an overlay root. It is asked for each name that is looked up in a directory it serves,
//! and answers
//!
//! * for a hidden name a character device 0:0, which overlay takes for a whiteout: the name is absent, whether it exists
//!   now, later or never;
//! * for a directory with a hidden name somewhere below it a directory, so that it is asked again there;
//! * for anything else that there is nothing, for good: from there on overlay uses the real tree alone.
//!
//! Nothing is walked before the launch. It reads the host's tree alone, and never fails open: what it cannot look at is
//! absent.

mod process;
mod reads;

pub use process::Service;
pub use reads::{HiddenRead, Why};

use reads::Seen;

use super::fuse::{Attributes, Caller, Entry, Life, Listed, Node, ROOT, Statistics, Tree};
use crate::path::{FileId, open_plain};
use crate::policy::{Index, Inside, Links, Look, Looker, Policy};
use rustix::fs::{AtFlags, CWD, FileType, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// All whiteouts are one node: nothing asks which, and a command that looks up a million hidden names costs nothing.
const WHITEOUT: Node = Node::MAX;
/// The name of a root but the first, in the top directory: longer than any that comes through an overlay.
const LENGTH_OF_ROOT: usize = 256;
/// More hidden names than that in one listing are kept by the kernel, and their later reads not told.
const TOLD_OF_A_LISTING: usize = 64;
/// How often, at most, the roots are walked again because a file with several names was met that no walk knows.
const INDEX_AGAIN: Duration = Duration::from_secs(2);

/// The ids of the host as the box has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    Same,
    /// Root and this id have changed their numbers.
    Swapped(u32),
}

/// The clock of file times stands still between two ticks.
const TICK: Duration = Duration::from_millis(10);

pub struct Veil<'a> {
    roots: Vec<Root<'a>>,
    /// Not before the first directory, or file with several names, is looked up.
    walked: Option<Walked>,
    /// By node, from [`ROOT`], which is the first root's own.
    directories: Vec<Directory>,
    nodes: HashMap<PathBuf, Node>,
    ids: Ids,
    seen: Seen,
}

struct Root<'a> {
    path: &'a Path,
    looker: Looker<'a>,
    index: Index,
}

/// When the roots were walked, and the hidden files with more than one name that the walk came by: each other name of
/// one shows the same bytes.
struct Walked {
    ids: HashSet<FileId>,
    at: Instant,
    /// What changed since then the walk may not have seen.
    since: SystemTime,
}

/// A directory that is served: of the real one what the judge knows in it, and how it looked last.
struct Directory {
    root: usize,
    path: PathBuf,
    inside: Inside,
    last: Attributes,
}

impl<'a> Veil<'a> {
    /// A veil for these roots, with one connection for all: its top directory is the first root's, and holds besides one
    /// for each of the others.
    pub fn new(policy: &'a Policy, roots: &'a [PathBuf], ids: Ids) -> Veil<'a> {
        let root = |path: &'a PathBuf| Root { path, looker: Looker::new(policy, path), index: Index::default() };
        let first = roots.first().map(|path| Directory {
            root: 0,
            path: path.clone(),
            inside: Inside::default(),
            last: plain_directory(ROOT),
        });
        Veil {
            nodes: roots.first().map(|path| (path.clone(), ROOT)).into_iter().collect(),
            roots: roots.iter().map(root).collect(),
            walked: None,
            directories: first.into_iter().collect(),
            ids,
            seen: Seen::default(),
        }
    }

    /// The directory of another root, at which nothing is judged: it is the root's own path.
    fn root(&mut self, name: &OsStr) -> Entry {
        let number = name.to_str().and_then(|name| name.parse::<usize>().ok());
        let Some((number, root)) = number.and_then(|number| Some((number, self.roots.get(number)?))) else {
            return Entry::Absent;
        };
        let path = root.path.to_path_buf();
        match stat(&path) {
            Ok(found) => self.serve(number, path, Inside::default(), &found),
            Err(_) => Entry::Absent,
        }
    }

    /// Serves a directory, by the number that it always had.
    fn serve(&mut self, root: usize, path: PathBuf, inside: Inside, found: &Stat) -> Entry {
        let next = ROOT + self.directories.len() as Node;
        let node = *self.nodes.entry(path.clone()).or_insert(next);
        let attributes = self.ids.attributes(node, found);
        if node == next {
            self.directories.push(Directory { root, path, inside, last: attributes.clone() });
        }
        Entry::Found { attributes, name_life: Life::Run }
    }

    fn directory(&self, node: Node) -> Option<&Directory> {
        self.directories.get(usize::try_from(node.checked_sub(ROOT)?).ok()?)
    }

    fn judge(&mut self, caller: Caller, parent: Node, name: &OsStr) -> Entry {
        let Some(directory) = self.directory(parent) else { return hidden(Life::Once) };
        let (number, inside) = (directory.root, directory.inside);
        let path = directory.path.join(name);
        // As a directory, for that alone can be a way; what the rules say of a plain name does not depend on it.
        match self.roots[number].looker.look(inside, path.as_os_str().as_bytes(), true) {
            Look::Hidden => self.denied(caller, path),
            Look::Covered => Entry::Absent,
            Look::Way(below) => match stat(&path) {
                Ok(found) if is(&found, FileType::Directory) => self.serve(number, path, below, &found),
                _ => self.denied(caller, path),
            },
            Look::Visible(below) => match stat(&path) {
                Ok(found) if is(&found, FileType::Directory) => match self.holds_hidden(number, below, &path, &found) {
                    Ok(false) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Entry::Absent,
                    Ok(true) => self.serve(number, path, below, &found),
                    Err(_) => {
                        self.seen.denied(path, true, Why::Unsearchable, caller);
                        hidden(Life::Once)
                    }
                },
                Ok(found) if self.is_second_name(&found) && !self.is_asked_for(number, &path) => {
                    self.seen.denied(path, false, Why::SecondName, caller);
                    hidden(Life::Once)
                }
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Entry::Absent,
                Err(_) => hidden(Life::Once),
            },
        }
    }

    /// Walks all roots once, and once more only where a hidden file has more than one name.
    fn walk(&mut self) -> &Walked {
        let (at, since) = (Instant::now(), SystemTime::now());
        let mut links = Links::default();
        for root in &mut self.roots {
            root.index = root.looker.index();
            links.extend(std::mem::take(&mut root.index.links));
        }
        if !links.ids.is_empty() {
            for root in &mut self.roots {
                root.looker.index_second_names(&links, &mut root.index);
            }
        }
        self.walked.insert(Walked { ids: links.ids, at, since })
    }

    fn holds_hidden(&mut self, root: usize, inside: Inside, path: &Path, found: &Stat) -> Result<bool, Errno> {
        let since = match &self.walked {
            Some(walked) => walked.since,
            None => self.walk().since,
        };
        let Root { looker, index, .. } = &mut self.roots[root];
        // The walk came by a directory that has been as it is since before. What appears in it later is the guard's.
        let known = if changed(found) < since { index.holds(path.as_os_str().as_bytes()) } else { None };
        match known {
            Some(true) => Ok(true),
            Some(false) => Ok(looker.is_way_to_hidden(path)),
            None => looker.holds_hidden(inside, path),
        }
    }

    fn is_asked_for(&mut self, root: usize, path: &Path) -> bool {
        self.roots[root].looker.is_asked_for(path.as_os_str().as_bytes())
    }

    /// Is this another name of a hidden file?
    fn is_second_name(&mut self, found: &Stat) -> bool {
        if !is(found, FileType::RegularFile) || found.st_nlink < 2 {
            return false;
        }
        let id = FileId { dev: found.st_dev, ino: found.st_ino };
        match &self.walked {
            Some(walked) if walked.ids.contains(&id) => true,
            Some(walked) if walked.at.elapsed() < INDEX_AGAIN => false,
            Some(_) | None => self.walk().ids.contains(&id),
        }
    }

    fn denied(&mut self, caller: Caller, path: PathBuf) -> Entry {
        if let Some(names) = caller.listing {
            return hidden(if names > TOLD_OF_A_LISTING { Life::Run } else { Life::Once });
        }
        // What is not there would not have been read without the veil either.
        if let Ok(found) = stat(&path) {
            self.seen.denied(path, is(&found, FileType::Directory), Why::Policy, caller);
        }
        hidden(Life::Once)
    }
}

impl Tree for Veil<'_> {
    fn look_up(&mut self, caller: Caller, parent: Node, name: &OsStr) -> Entry {
        if parent == ROOT && name.len() == LENGTH_OF_ROOT { self.root(name) } else { self.judge(caller, parent, name) }
    }

    fn attributes(&mut self, node: Node) -> Result<Attributes, Errno> {
        if node == WHITEOUT {
            return Ok(whiteout());
        }
        let ids = self.ids;
        let directory = self.directory(node).ok_or(Errno::STALE)?;
        // Gone on the host: it looks as it did, as a directory does that somebody holds open.
        let Ok(found) = stat(&directory.path) else { return Ok(directory.last.clone()) };
        if !is(&found, FileType::Directory) {
            return Ok(directory.last.clone());
        }
        let attributes = ids.attributes(node, &found);
        let index = usize::try_from(node - ROOT).map_err(|_| Errno::STALE)?;
        self.directories[index].last = attributes.clone();
        Ok(attributes)
    }

    fn list(&mut self, node: Node) -> Result<Vec<Listed>, Errno> {
        let Some(directory) = self.directory(node) else { return Ok(Vec::new()) };
        let (number, inside, path) = (directory.root, directory.inside, directory.path.clone());
        let looker = &mut self.roots[number].looker;
        let mut listed = Vec::new();
        let mut judged = path.as_os_str().as_bytes().to_vec();
        judged.push(b'/');
        let start = judged.len();
        for (name, kind) in names(&path)? {
            judged.truncate(start);
            judged.extend_from_slice(name.as_bytes());
            let dir = kind == FileType::Directory;
            if looker.look(inside, &judged, dir) == Look::Hidden {
                listed.push(Listed::whiteout(WHITEOUT, name));
            }
        }
        Ok(listed)
    }

    fn statistics(&mut self, node: Node) -> Statistics {
        let path = self.directory(node).map(|directory| self.roots[directory.root].path);
        let Some(found) = path.or(self.roots.first().map(|root| root.path)).and_then(|at| rustix::fs::statvfs(at).ok())
        else {
            return Statistics::default();
        };
        Statistics {
            blocks: found.f_blocks,
            free: found.f_bfree,
            available: found.f_bavail,
            files: found.f_files,
            files_free: found.f_ffree,
            block_size: found.f_frsize as u32,
        }
    }
}

impl Ids {
    fn inside(self, id: u32) -> u32 {
        match self {
            Ids::Swapped(other) if id == 0 => other,
            Ids::Swapped(other) if id == other => 0,
            Ids::Swapped(_) | Ids::Same => id,
        }
    }

    /// The attributes of a real directory, which a merged one shows as its topmost layer has them.
    fn attributes(self, node: Node, found: &Stat) -> Attributes {
        let time = |seconds, nanoseconds: u64| (seconds, nanoseconds as u32);
        Attributes {
            node,
            mode: found.st_mode,
            links: found.st_nlink as u32,
            uid: self.inside(found.st_uid),
            gid: self.inside(found.st_gid),
            size: found.st_size.cast_unsigned(),
            blocks: found.st_blocks.cast_unsigned(),
            block_size: found.st_blksize as u32,
            times: [
                time(found.st_atime, found.st_atime_nsec),
                time(found.st_mtime, found.st_mtime_nsec),
                time(found.st_ctime, found.st_ctime_nsec),
            ],
        }
    }
}

fn hidden(name_life: Life) -> Entry {
    Entry::Found { attributes: whiteout(), name_life }
}

fn whiteout() -> Attributes {
    Attributes { mode: FileType::CharacterDevice.as_raw_mode(), ..plain_directory(WHITEOUT) }
}

fn plain_directory(node: Node) -> Attributes {
    Attributes {
        node,
        mode: FileType::Directory.as_raw_mode() | 0o755,
        links: 1,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        size: 0,
        blocks: 0,
        block_size: 4096,
        times: [(0, 0); 3],
    }
}

fn changed(found: &Stat) -> SystemTime {
    let seconds = u64::try_from(found.st_ctime).unwrap_or(0);
    UNIX_EPOCH + Duration::new(seconds, found.st_ctime_nsec as u32) + TICK
}

fn is(found: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

/// No component is followed: a link that the host put on the way since leads nowhere.
fn stat(path: &Path) -> Result<Stat, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some((parent, name)) = path.parent().zip(path.file_name()) else { return rustix::fs::stat(path) };
    let parent = open_plain(CWD, parent, flags | OFlags::DIRECTORY, ResolveFlags::empty())?;
    rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn names(path: &Path) -> Result<Vec<(OsString, FileType)>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let open = |unseen| open_plain(CWD, path, flags | unseen, ResolveFlags::empty());
    let fd: OwnedFd = match crate::path::without_trace(open) {
        Ok(fd) => fd,
        // Gone on the host: there is nothing left to hide.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let mut buffer = vec![MaybeUninit::<u8>::uninit(); 32 * 1024];
    let mut entries = RawDir::new(fd.as_fd(), &mut buffer);
    let mut out = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            out.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
        }
    }
    Ok(out)
}
