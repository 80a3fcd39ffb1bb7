//! The watches on every directory concerned, and the verdict on each name that appears in one.
//!
//! A directory is watched first and listed then, so that no name slips in between. What must be hidden becomes a
//! [`Job`]; carrying one out is another's business.

use super::maker::{Maker, Makers};
use super::note::Note;
use super::{Hides, Setup};
use crate::path::{FileId, open_plain, without_trace};
use crate::policy::{Inside, NameVerdict, Scratch};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, statat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// Directories that one step takes on, so that whoever calls it stays responsive.
const VISITS: usize = 32;
/// Bytes of events that one step reads: few, for the first of them waits until the last is judged.
const EVENTS: usize = 4 * 1024;
/// File times come from a clock that ticks; a name may bear the time of the tick before.
const TICK: Duration = Duration::from_millis(20);
/// Where the limit of this user's watches stands.
const LIMIT: &str = "/proc/sys/fs/inotify/max_user_watches";

/// A name to be hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub root: usize,
    /// The watch that saw it, where there is one.
    pub watch: Option<i32>,
    /// Its directory, relative to the root.
    pub dir: PathBuf,
    pub name: OsString,
    /// Nobody knows whose it is: it is to be hidden on only if it is hidden now.
    pub unsure: bool,
}

/// The descriptors that the guard lives on. Shared, so that they can be kept while all others are closed.
#[derive(Debug)]
pub(super) struct Descriptors {
    pub inotify: OwnedFd,
    pub mount_namespace: OwnedFd,
    /// Each root on the host.
    pub hosts: Vec<OwnedFd>,
    /// The session layer of each root that has one.
    pub uppers: Vec<Option<OwnedFd>>,
}

/// How a directory is named to inotify_add_watch(2), which takes no descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// By /proc/self/fd.
    Proc,
    /// As the working directory: in the box's mount namespace /proc shows no process from outside.
    WorkingDirectory,
}

struct Watched {
    root: u16,
    /// What the name rules know in it, an index into `states`.
    state: u16,
    /// Relative to the root.
    path: Box<[u8]>,
}

struct Pending {
    root: u16,
    state: u16,
    path: Box<[u8]>,
    /// Look at every hidden name in it, whatever its time says.
    all: bool,
}

struct Moved {
    cookie: u32,
    root: u16,
    path: Box<[u8]>,
    dir: bool,
    /// It is hidden, and its mask moves along.
    known: bool,
}

enum Judged {
    /// Nothing of the guard's.
    Apart,
    Hidden,
    Visible(u16),
}

pub(super) struct Watcher<'a> {
    setup: Setup<'a>,
    makers: Box<dyn Makers>,
    descriptors: Rc<Descriptors>,
    pub reach: Reach,
    dirs: HashMap<i32, Watched>,
    states: Vec<Inside>,
    /// Names that are hidden, by the watch of their directory: they stay the same when it is moved.
    known: HashSet<(i32, Box<[u8]>)>,
    /// Directories to watch and list; those of dependency and build directories come last.
    todo: Vec<Pending>,
    todo_build: Vec<Pending>,
    moved: Vec<Moved>,
    /// Mounts of the host below the roots, from the time of the launch. Later ones do not show inside.
    mounts: Vec<(u16, Box<[u8]>)>,
    /// The first walk is under way.
    first: bool,
    /// Watches that dependency and build directories may take together with all others.
    most_with_build: usize,
    told_unwatched: bool,
    /// A hidden name was taken away, as editors do before they put it back.
    pub missing: bool,
    pub jobs: Vec<Job>,
    pub notes: Vec<Note>,
    scratch: Scratch,
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !dir.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// For openat2(2), which takes no empty path.
pub(super) fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

impl<'a> Watcher<'a> {
    /// Opens the roots. Nothing is watched before the first step.
    pub fn new(setup: Setup<'a>, mount_namespace: OwnedFd, makers: Box<dyn Makers>) -> Result<Watcher<'a>, String> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|errno| match errno {
            Errno::MFILE => "no more inotify instances (raise the sysctl fs.inotify.max_user_instances)".to_owned(),
            errno => format!("inotify_init1: {errno}"),
        })?;
        let mut hosts = Vec::new();
        let mut uppers = Vec::new();
        for root in &setup.roots {
            let at = |errno: Errno| format!("{}: {errno}", root.path.display());
            let host = open_dir(rustix::fs::CWD, &root.path, ResolveFlags::empty()).map_err(at)?;
            let stat = rustix::fs::fstat(&host).map_err(at)?;
            if root.id.is_some_and(|id| id != (FileId { dev: stat.st_dev, ino: stat.st_ino })) {
                return Err(format!("{}: something else stands there than at the launch", root.path.display()));
            }
            hosts.push(host);
            uppers.push(match &root.hides {
                Hides::Whiteout { upper } => Some(open_dir(rustix::fs::CWD, upper, ResolveFlags::empty()).map_err(at)?),
                Hides::Mask { .. } => None,
            });
        }
        let mut watcher = Watcher {
            descriptors: Rc::new(Descriptors { inotify, mount_namespace, hosts, uppers }),
            makers,
            reach: Reach::Proc,
            dirs: HashMap::new(),
            states: vec![Inside::default()],
            known: HashSet::new(),
            todo: Vec::new(),
            todo_build: Vec::new(),
            moved: Vec::new(),
            mounts: Vec::new(),
            first: true,
            most_with_build: most_with_build(),
            told_unwatched: false,
            missing: false,
            jobs: Vec::new(),
            notes: Vec::new(),
            scratch: Scratch::default(),
            setup,
        };
        watcher.walk_all(false);
        Ok(watcher)
    }

    pub fn descriptors(&self) -> &Rc<Descriptors> {
        &self.descriptors
    }

    pub fn setup(&self) -> &Setup<'a> {
        &self.setup
    }

    /// Is there something to do before the next event?
    pub fn has_work(&self) -> bool {
        !self.todo.is_empty() || !self.todo_build.is_empty()
    }

    /// Takes in what happened, and goes on with the walk a little.
    pub fn step(&mut self) {
        self.read_events();
        for _ in 0..VISITS {
            // What must be hidden is hidden before more is looked for.
            if !self.jobs.is_empty() {
                return;
            }
            let Some(next) = self.todo.pop().or_else(|| self.todo_build.pop()) else {
                self.walked();
                return;
            };
            self.visit(&next);
        }
    }

    /// A job was done: the name is hidden by now, whoever made it.
    pub fn hidden_now(&mut self, job: &Job) -> PathBuf {
        if let Some(watch) = job.watch {
            self.known.insert((watch, job.name.as_bytes().into()));
        }
        self.setup.roots[job.root].path.join(&job.dir).join(&job.name)
    }

    fn walk_all(&mut self, all: bool) {
        self.todo.clear();
        self.todo_build.clear();
        for root in 0..self.setup.roots.len() {
            self.todo.push(Pending { root: root as u16, state: 0, path: Box::default(), all });
        }
    }

    /// The walk is at its end: what was moved away and did not come back has left the roots.
    fn walked(&mut self) {
        self.first = false;
        for moved in std::mem::take(&mut self.moved) {
            if moved.dir {
                self.forget_below(moved.root, &moved.path);
            }
        }
    }

    /// Gives up the watches on a directory and all below it. Another that was made at its path meanwhile is found anew.
    fn forget_below(&mut self, root: u16, path: &[u8]) {
        let gone = |dir: &Watched| dir.root == root && is_below(&dir.path, path);
        let watches: Vec<i32> = self.dirs.iter().filter(|(_, dir)| gone(dir)).map(|(watch, _)| *watch).collect();
        let Some(state) = watches.iter().find_map(|watch| self.dirs.get(watch)).map(|dir| dir.state) else { return };
        for watch in watches {
            // It fails for a directory that is gone, and its watch with it.
            inotify::remove_watch(&self.descriptors.inotify, watch).ok();
            self.forget(watch);
        }
        if !path.is_empty() {
            self.todo.push(Pending { root, state, path: path.into(), all: true });
        }
    }

    fn forget(&mut self, watch: i32) {
        self.dirs.remove(&watch);
        self.known.retain(|(dir, _)| *dir != watch);
    }

    fn read_events(&mut self) {
        let descriptors = Rc::clone(&self.descriptors);
        let mut buffer = [MaybeUninit::<u8>::uninit(); EVENTS];
        let mut reader = Reader::new(descriptors.inotify.as_fd(), &mut buffer);
        // Until the buffer is empty, not the queue.
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            let (watch, flags, cookie) = (event.wd(), event.events(), event.cookie());
            self.event(watch, flags, cookie, name.as_deref());
            if reader.is_buffer_empty() {
                break;
            }
        }
    }

    fn event(&mut self, watch: i32, flags: ReadFlags, cookie: u32, name: Option<&[u8]>) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            // What was lost nobody knows: every name is looked at again.
            self.walk_all(true);
            return;
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.forget(watch);
            return;
        }
        let (Some(dir), Some(name)) = (self.dirs.get(&watch), name) else { return };
        let (root, state, path) = (dir.root, dir.state, join(&dir.path, name));
        let is_dir = flags.contains(ReadFlags::ISDIR);
        if flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE)
            && self.is_known(root, Some(watch), &path, name)
            && matches!(self.setup.roots[usize::from(root)].hides, Hides::Mask { .. })
        {
            self.missing = true;
        }
        if flags.contains(ReadFlags::DELETE) {
            return;
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            let known = self.is_known(root, Some(watch), &path, name);
            self.moved.push(Moved { cookie, root, path: path.into(), dir: is_dir, known });
            return;
        }
        if let Some(from) = self.moved.iter().position(|moved| moved.cookie == cookie && cookie != 0) {
            let from = self.moved.swap_remove(from);
            if from.known {
                self.known.insert((watch, name.into()));
            }
        }
        match self.judge(root, state, &path, is_dir) {
            Judged::Apart => {}
            // One that was moved may have brought its mask along.
            Judged::Hidden => self.found(root, Some(watch), &path, name, flags.contains(ReadFlags::MOVED_TO)),
            Judged::Visible(state) if is_dir => self.push(Pending { root, state, path: path.into(), all: true }),
            Judged::Visible(_) => {}
        }
        if self.moved.len() > 64 {
            // Moved out of the roots, all of them: to be forgotten at the end of the next walk at the latest.
            self.walked();
        }
    }

    fn push(&mut self, pending: Pending) {
        if self.states[usize::from(pending.state)].build {
            self.todo_build.push(pending);
        } else {
            self.todo.push(pending);
        }
    }

    fn absolute(&self, root: u16, path: &[u8]) -> Vec<u8> {
        let root = self.setup.roots[usize::from(root)].path.as_os_str().as_bytes();
        if path.is_empty() { root.to_vec() } else { join(root, path) }
    }

    fn judge(&mut self, root: u16, state: u16, path: &[u8], dir: bool) -> Judged {
        let absolute = self.absolute(root, path);
        if self.setup.hidden.contains(as_path(&absolute)) {
            return Judged::Hidden;
        }
        if self.setup.apart.contains(as_path(&absolute)) {
            return Judged::Apart;
        }
        let root_len = self.setup.roots[usize::from(root)].path.as_os_str().len();
        let inside = self.states[usize::from(state)];
        let (verdict, below) = self.setup.names.judge(inside, &absolute, root_len, dir, &mut self.scratch);
        match verdict {
            NameVerdict::Hidden(_) => Judged::Hidden,
            NameVerdict::Visible | NameVerdict::Frozen(_) | NameVerdict::Through(_) => {
                Judged::Visible(self.intern(below))
            }
        }
    }

    /// There are few different states, and many directories.
    fn intern(&mut self, state: Inside) -> u16 {
        // A frozen name is as visible as any other.
        let state = Inside { frozen: None, ..state };
        let at = self.states.iter().position(|known| *known == state).unwrap_or_else(|| {
            self.states.push(state);
            self.states.len() - 1
        });
        at as u16
    }

    fn is_known(&self, root: u16, watch: Option<i32>, path: &[u8], name: &[u8]) -> bool {
        self.setup.hidden.contains(as_path(&self.absolute(root, path)))
            || watch.is_some_and(|watch| self.known.contains(&(watch, name.into())))
    }

    /// A name that is to be hidden stands there. Whose is it, and is it hidden already? `older`: it may be from before,
    /// under another path.
    fn found(&mut self, root: u16, watch: Option<i32>, path: &[u8], name: &[u8], older: bool) {
        let mut unsure = false;
        let index = usize::from(root);
        let launched = self.setup.hidden.contains(as_path(&self.absolute(root, path)));
        let dir = as_path(path).parent().unwrap_or(Path::new("")).to_path_buf();
        let name = OsStr::from_bytes(name);
        match &self.setup.roots[index].hides {
            // Nothing inside can make a name there.
            Hides::Mask { writable: false } => {}
            Hides::Mask { writable: true } => {
                // What was hidden once is not the command's.
                if !self.is_known(root, watch, path, name.as_bytes()) {
                    let at = self.setup.roots[index].path.join(&dir);
                    match self.makers.maker(&at, name) {
                        Maker::Host => {}
                        Maker::Unknown if older => unsure = true,
                        Maker::Unknown | Maker::Command => return,
                    }
                }
            }
            // A whiteout from the launch hangs on the name. What lies in the layer the command made, or is hidden.
            Hides::Whiteout { .. } => {
                let upper = self.descriptors.uppers[index].as_ref();
                if launched || upper.is_some_and(|upper| holds(upper.as_fd(), &dir, name)) {
                    return;
                }
            }
        }
        self.jobs.push(Job { root: index, watch, dir, name: name.to_owned(), unsure });
    }

    /// Watches a directory, then lists it.
    fn visit(&mut self, pending: &Pending) {
        let Pending { root, state, path, all } = pending;
        let Some(fd) = self.open(*root, path) else { return };
        let watch = self.watch(*root, *state, path, fd.as_fd());
        let changed = *all || rustix::fs::fstat(&fd).is_ok_and(|stat| self.is_recent(&stat));
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); 16 * 1024];
        let mut entries = RawDir::new(&fd, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let is_dir = match entry.file_type() {
                FileType::Unknown => statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
                kind @ (FileType::Directory
                | FileType::RegularFile
                | FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice) => kind == FileType::Directory,
            };
            let path = join(path, name);
            match self.judge(*root, *state, &path, is_dir) {
                Judged::Apart | Judged::Visible(_) if !is_dir => {}
                Judged::Apart => {}
                Judged::Visible(state) => {
                    self.push(Pending { root: *root, state, path: path.into(), all: *all });
                }
                Judged::Hidden => {
                    let launched = self.is_known(*root, None, &path, name);
                    if let (true, Some(watch)) = (launched, watch) {
                        self.known.insert((watch, name.into()));
                    }
                    // A path that the launch did not find was moved here since, or made. One that it found and that
                    // nobody touched is as it was.
                    let touched = || {
                        let stat = statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                        *all || stat.is_ok_and(|stat| self.is_recent(&stat))
                    };
                    if !launched || changed && touched() {
                        self.found(*root, watch, &path, name, true);
                    }
                }
            }
        }
    }

    /// Was it changed since the launch hid what it found? Making, renaming or linking a name sets this time of the
    /// directory and of the file, and no program can set it back.
    fn is_recent(&self, stat: &Stat) -> bool {
        let seconds = Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
        let changed = SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(stat.st_ctime_nsec);
        changed + TICK >= self.setup.since
    }

    fn open(&mut self, root: u16, path: &[u8]) -> Option<OwnedFd> {
        let host = &self.descriptors.hosts[usize::from(root)];
        let at = or_dot(as_path(path));
        match open_dir(host.as_fd(), at, ResolveFlags::BENEATH | ResolveFlags::NO_XDEV) {
            Ok(fd) => Some(fd),
            Err(Errno::XDEV) => {
                let seen = self.mounts.iter().any(|(of, mount)| *of == root && is_below(path, mount));
                if !seen && !self.first {
                    return None;
                }
                let fd = open_dir(host.as_fd(), at, ResolveFlags::BENEATH).ok()?;
                if !seen {
                    self.mounts.push((root, path.into()));
                }
                Some(fd)
            }
            // Gone, replaced, or not to be listed by this user: then the command cannot either.
            Err(_) => None,
        }
    }

    fn watch(&mut self, root: u16, state: u16, path: &[u8], fd: BorrowedFd<'_>) -> Option<i32> {
        let build = self.states[usize::from(state)].build;
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let result = if build && self.dirs.len() >= self.most_with_build {
            Err(Errno::NOSPC)
        } else {
            match self.reach {
                Reach::Proc => {
                    inotify::add_watch(&self.descriptors.inotify, format!("/proc/self/fd/{}", fd.as_raw_fd()), flags)
                }
                Reach::WorkingDirectory => rustix::process::fchdir(fd)
                    .and_then(|()| inotify::add_watch(&self.descriptors.inotify, c".", flags)),
            }
        };
        match result {
            Ok(watch) => {
                self.dirs.insert(watch, Watched { root, state, path: path.into() });
                Some(watch)
            }
            Err(_) => {
                if !self.told_unwatched {
                    self.told_unwatched = true;
                    let first = as_path(&self.absolute(root, path)).to_path_buf();
                    let watched = u32::try_from(self.dirs.len()).unwrap_or(u32::MAX);
                    self.notes.push(Note::Unwatched { first, watched });
                }
                None
            }
        }
    }
}

fn open_dir(dir: BorrowedFd<'_>, path: &Path, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    without_trace(|unseen| open_plain(dir, path, flags | unseen, resolve))
}

/// Does the tree at a descriptor hold this name?
pub(super) fn holds(tree: BorrowedFd<'_>, dir: &Path, name: &OsStr) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_plain(tree, or_dot(dir), flags, ResolveFlags::BENEATH)
        .and_then(|dir| statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW))
        .is_ok()
}

/// Dependency and build directories are many, and seldom hold a secret: they leave half of the user's watches to the
/// user's editors.
fn most_with_build() -> usize {
    let limit = rustix::fs::open(LIMIT, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).and_then(|file| {
        let mut text = [0; 32];
        let length = rustix::io::read(&file, &mut text)?;
        Ok(text[..length]
            .iter()
            .filter(|byte| byte.is_ascii_digit())
            .fold(0, |all, digit| usize::saturating_mul(all, 10).saturating_add(usize::from(digit - b'0'))))
    });
    limit.unwrap_or(8192) / 2
}
