//! The sessions of a user: where they lie, how one is made, found and listed.
//!
//! ```text
//! $XDG_STATE_HOME/agentbox/sessions/ID/          mode 0700, locked (flock) while the run lives
//!     session.json                               the record; written beside and renamed
//!     layers/N/upper, layers/N/work              of a dry run: one overlay layer a writable root
//!     backup/journal, backup/files/N             of a live run: what it changed, made when it first did
//! $XDG_STATE_HOME/agentbox/sessions/.spare[-N]/  the emptied directories of sessions that changed nothing
//! ```
//! Nothing here follows a symlink below the state directory.

use super::record::{NAME as RECORD, NewSession, Outcome, Record, errno_of};
use super::remove;
use super::settle::{self, Standing};
use super::store_error::StoreError;
use super::tree::{self, DIRECTORY};
use crate::path::{open_plain, resolve};
use crate::policy::Mode as Writes;
use rustix::fs::{AtFlags, CWD, FlockOperation, IFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A session that is being made; it gets its own name when it is whole.
const NEW: &str = ".new-";
/// A session that is being deleted; what is left of it after a crash can be discarded by this name.
pub(super) const GONE: &str = ".gone-";

/// The emptied skeleton of a session that changed nothing, for the next one with a single root: to make it again and to
/// delete it again would take as long as the rest of a launch. Invisible, and never more than these: as many runs at a
/// time find one.
const SPARES: [&str; 8] =
    [".spare", ".spare-1", ".spare-2", ".spare-3", ".spare-4", ".spare-5", ".spare-6", ".spare-7"];
/// What a mount leaves in its work directory, in the order in which it can be deleted.
const USUAL_WORK: [(&str, AtFlags); 4] = [
    ("work/work/incompat/volatile/dirty", AtFlags::empty()),
    ("work/work/incompat/volatile", AtFlags::REMOVEDIR),
    ("work/work/incompat", AtFlags::REMOVEDIR),
    ("work/work", AtFlags::REMOVEDIR),
];
/// A directory that has grown larger stays so on some file systems, and slow to list.
const LARGEST_SPARE: i64 = 64 * 1024;

const PRIVATE: Mode = Mode::RWXU;

/// One writable root and the layer that takes its writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub root: PathBuf,
    pub upper: PathBuf,
    pub work: PathBuf,
}

#[derive(Debug)]
pub struct Store {
    /// Canonical.
    dir: PathBuf,
    sessions: OwnedFd,
}

/// A session of this process. While it lives, nobody can discard it.
#[derive(Debug)]
pub struct Session {
    id: String,
    dir: PathBuf,
    layers: Vec<Layer>,
    record: Record,
    sessions: OwnedFd,
    /// The session's directory, locked.
    lock: OwnedFd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Running,
    /// The command ended; nothing was settled yet.
    Pending,
    /// Its changes were applied, or as many of them as were asked for.
    Applied,
    /// They were applied and taken back.
    Undone,
    /// An apply or undo was killed on its way: the next one sees to it.
    Unfinished,
    /// Its launcher was killed before it could write down the outcome.
    Interrupted,
    /// Half made or not readable; all that can be done with it is to discard it.
    Broken(String),
}

/// A session as it lies in the store.
#[derive(Debug, Clone)]
pub struct Stored {
    pub id: String,
    pub dir: PathBuf,
    pub state: State,
    pub record: Option<Record>,
}

impl Stored {
    pub fn layers(&self) -> Vec<Layer> {
        self.record.as_ref().map_or_else(Vec::new, |record| layers(&self.dir, record))
    }
}

fn layers(dir: &Path, record: &Record) -> Vec<Layer> {
    let layer = |(n, root): (usize, &PathBuf)| {
        let base = dir.join("layers").join(n.to_string());
        Layer { root: root.clone(), upper: base.join("upper"), work: base.join("work") }
    };
    layered(record).iter().enumerate().map(layer).collect()
}

/// The roots whose writes land in a layer.
fn layered(record: &Record) -> &[PathBuf] {
    match record.mode {
        Writes::DryRun => &record.roots,
        Writes::Live => &[],
    }
}

impl Store {
    /// Opens the store in the state directory `dir`, making it (mode 0700) where it is missing.
    ///
    /// # Errors
    /// When it cannot be made, is a symlink, belongs to another user, or others may write to it.
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        // The usual case, and a refusal before anything is made in a directory of somebody else's.
        if let Some(store) = Store::look(dir)? {
            return Ok(store);
        }
        make(&dir.join("sessions"))?;
        match Store::look(dir)? {
            Some(store) => Ok(store),
            None => Err(StoreError::io("open", &dir.join("sessions"), Errno::NOENT)),
        }
    }

    /// Opens the store where there is one; makes nothing.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn look(dir: &Path) -> Result<Option<Store>, StoreError> {
        let held = match rustix::fs::openat(CWD, dir, DIRECTORY, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(StoreError::NotADirectory { path: dir.to_path_buf() }),
            Err(errno) => return Err(StoreError::io("open", dir, errno)),
        };
        ours(&held, dir)?;
        let path = dir.join("sessions");
        let sessions = match rustix::fs::openat(&held, "sessions", DIRECTORY, Mode::empty()) {
            Ok(sessions) => sessions,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(StoreError::NotADirectory { path }),
            Err(errno) => return Err(StoreError::io("open", &path, errno)),
        };
        ours(&sessions, &path)?;
        // The paths of the layers go to mount(2) and are compared with the roots: let them be canonical.
        let found = resolve(&path, Path::new("/")).map_err(StoreError::Resolve)?;
        Ok(Some(Store { dir: found.path.into_path_buf(), sessions }))
    }

    /// Where the sessions lie, canonical.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a session, locked until the value is dropped. It appears in the store whole or not at all. Nothing is
    /// synced to disk: a launch must not wait for one.
    pub fn create(&self, new: &NewSession) -> Result<Session, StoreError> {
        let mut id = fresh_id(new.created)?;
        let mut staged = format!("{NEW}{id}");
        let io = |what, path: &str, errno| StoreError::io(what, &self.dir.join(path), errno);
        let sessions = self.sessions.try_clone().map_err(|err| io("open", &staged, errno_of(&err)))?;
        let spare =
            if new.roots.len() == 1 && new.mode == Writes::DryRun { self.take_spare(&staged) } else { Ok(None) };
        let reused = match spare {
            Ok(reused) => reused,
            Err(Unusable) => {
                // In case that the rest of the unusable one stands there still.
                id = fresh_id(new.created)?;
                staged = format!("{NEW}{id}");
                None
            }
        };
        let mut record = Record::of(new);
        let (lock, filled) = if let Some(lock) = reused {
            record.created = stamp(&lock).unwrap_or(new.created);
            let filled = self.refill(&lock, &staged, &record);
            (lock, filled)
        } else {
            rustix::fs::mkdirat(&self.sessions, &staged, PRIVATE).map_err(|errno| io("make", &staged, errno))?;
            let lock = rustix::fs::openat(&self.sessions, &staged, DIRECTORY, Mode::empty())
                .map_err(|errno| io("open", &staged, errno))?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
                .map_err(|errno| io("lock", &staged, errno))?;
            record.created = stamp(&lock).unwrap_or(new.created);
            let filled = self.fill(&lock, &staged, &record);
            (lock, filled)
        };
        let made = filled.and_then(|()| self.publish(&staged, id, new.created));
        let id = match made {
            Ok(id) => id,
            Err(err) => {
                // The first error is the one to tell; a leftover can be discarded by its name.
                remove::purge(self.sessions.as_fd(), OsStr::new(&staged)).ok();
                return Err(err);
            }
        };
        let dir = self.dir.join(&id);
        let layers = layers(&dir, &record);
        Ok(Session { id, dir, layers, record, sessions, lock })
    }

    fn fill(&self, dir: &OwnedFd, staged: &str, record: &Record) -> Result<(), StoreError> {
        let io = |what, path: &str, errno| StoreError::io(what, &self.dir.join(staged).join(path), errno);
        let mkdir = |path: &str| rustix::fs::mkdirat(dir, path, PRIVATE).map_err(|errno| io("make", path, errno));
        if !layered(record).is_empty() {
            mkdir("layers")?;
        }
        for n in 0..layered(record).len() {
            mkdir(&format!("layers/{n}"))?;
            mkdir(&format!("layers/{n}/upper"))?;
            mkdir(&format!("layers/{n}/work"))?;
        }
        self.refill(dir, staged, record)
    }

    /// Takes the spare skeleton, which a rename gives to one process alone, as the session that is being made, and
    /// empties what the last mount left in it.
    fn take_spare(&self, staged: &str) -> Result<Option<OwnedFd>, Unusable> {
        let take = |spare: &&str| {
            rustix::fs::renameat_with(&self.sessions, *spare, &self.sessions, staged, RenameFlags::NOREPLACE).is_ok()
        };
        // A file system without such a rename never gets one.
        if !SPARES.iter().any(take) {
            return Ok(None);
        }
        let ready = || -> Result<OwnedFd, Unusable> {
            let lock = rustix::fs::openat(&self.sessions, staged, DIRECTORY, Mode::empty())?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            // Overlay refuses a work directory with the mark of a volatile mount.
            let layer = rustix::fs::openat(&lock, "layers/0", DIRECTORY, Mode::empty())?;
            for (name, flags) in USUAL_WORK {
                // An ordinary user cannot see into them: then by the long way.
                rustix::fs::unlinkat(&layer, name, flags).ok();
            }
            remove::empty(layer.as_fd(), OsStr::new("work")).map_err(|_| Unusable)?;
            let upper = rustix::fs::openat(&layer, "upper", DIRECTORY, Mode::empty())?;
            if is_as_new(&upper)? { Ok(lock) } else { Err(Unusable) }
        };
        ready().map(Some).inspect_err(|_| {
            // A leftover can be discarded by its name.
            remove::purge(self.sessions.as_fd(), OsStr::new(staged)).ok();
        })
    }

    /// As [`Store::fill`], of a skeleton that has its directories.
    fn refill(&self, dir: &OwnedFd, staged: &str, record: &Record) -> Result<(), StoreError> {
        let io = |what, path: &str, errno| StoreError::io(what, &self.dir.join(staged).join(path), errno);
        for (n, root) in layered(record).iter().enumerate() {
            let upper = format!("layers/{n}/upper");
            let fd =
                rustix::fs::openat(dir, &upper, DIRECTORY, Mode::empty()).map_err(|errno| io("open", &upper, errno))?;
            mirror(root, &fd)?;
        }
        record.write(dir, RECORD).map_err(|errno| io("write", RECORD, errno))
    }

    /// Gives the whole session its name; another one when that is taken.
    fn publish(&self, staged: &str, mut id: String, created: SystemTime) -> Result<String, StoreError> {
        for _ in 0..32 {
            match rustix::fs::renameat_with(&self.sessions, staged, &self.sessions, &id, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(id),
                Err(Errno::EXIST) => id = fresh_id(created)?,
                Err(errno) => return Err(StoreError::io("name", &self.dir.join(&id), errno)),
            }
        }
        Err(StoreError::io("name", &self.dir.join(&id), Errno::EXIST))
    }

    /// All sessions, the latest first; broken ones last.
    pub fn list(&self) -> Result<Vec<Stored>, StoreError> {
        let mut list = Vec::new();
        for id in self.ids()? {
            list.extend(self.read(&id)?);
        }
        let created = |stored: &Stored| stored.record.as_ref().map(|record| record.created);
        list.sort_by(|a, b| created(b).cmp(&created(a)).then_with(|| b.id.cmp(&a.id)));
        Ok(list)
    }

    fn ids(&self) -> Result<Vec<String>, StoreError> {
        // A descriptor of its own: two readers of one share its position.
        let dir = rustix::fs::openat(&self.sessions, ".", DIRECTORY, Mode::empty())
            .and_then(|dir| tree::names(dir.as_fd()))
            .map_err(|errno| StoreError::io("list", &self.dir, errno))?;
        // Names that are not text are none of ours.
        let names = dir.into_iter().filter_map(|name| name.name.into_string().ok());
        Ok(names.filter(|name| !SPARES.contains(&name.as_str())).collect())
    }

    /// The session that `selector` names by its id or a unique prefix of it; without one, the latest dry run of this
    /// project, which is one with a writable root at or above `cwd`. A live run is only meant by its id.
    pub fn find(&self, selector: Option<&str>, cwd: &Path) -> Result<Stored, StoreError> {
        let Some(selector) = selector else {
            let here = |stored: &Stored| {
                let here = |record: &Record| layered(record).iter().any(|root| cwd.starts_with(root));
                stored.record.as_ref().is_some_and(here)
            };
            let found = self.list()?.into_iter().find(here);
            return found.ok_or_else(|| StoreError::NoneHere { cwd: cwd.to_path_buf() });
        };
        let unknown = || StoreError::Unknown { selector: selector.to_owned() };
        let mut ids = self.ids()?;
        if !ids.iter().any(|id| id == selector) {
            ids.retain(|id| id.starts_with(selector) && !selector.is_empty());
        } else {
            ids = vec![selector.to_owned()];
        }
        ids.sort();
        match ids.as_slice() {
            [] => Err(unknown()),
            [id] => self.read(id)?.ok_or_else(unknown),
            _ => Err(StoreError::Ambiguous { selector: selector.to_owned(), ids }),
        }
    }

    /// `None` when the session is gone meanwhile, or not there yet.
    fn read(&self, id: &str) -> Result<Option<Stored>, StoreError> {
        let dir = self.dir.join(id);
        let broken =
            |why: String| Stored { id: id.to_owned(), dir: dir.clone(), state: State::Broken(why), record: None };
        let held = match rustix::fs::openat(&self.sessions, id, DIRECTORY, Mode::empty()) {
            Ok(held) => held,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Ok(Some(broken(format!("cannot open it: {errno}")))),
        };
        let running = match rustix::fs::flock(&held, FlockOperation::NonBlockingLockShared) {
            Ok(()) => false,
            Err(Errno::WOULDBLOCK) => true,
            Err(errno) => return Err(StoreError::io("lock", &dir, errno)),
        };
        if id.starts_with('.') {
            // Being made or deleted at this moment, or left over from that.
            return Ok((!running).then(|| broken("half made".to_owned())));
        }
        let record = Record::read(&held);
        Ok(Some(match record {
            Ok(record) => {
                let settled = settle::look(held.as_fd()).map_err(|errno| StoreError::io("read", &dir, errno))?;
                let state = match (running, settle::standing(&settled), &record.outcome) {
                    (true, _, _) => State::Running,
                    (false, Standing::Unfinished, _) => State::Unfinished,
                    (false, Standing::Applied(_), _) => State::Applied,
                    (false, Standing::Undone(_), _) => State::Undone,
                    (false, Standing::Open, Some(_)) => State::Pending,
                    (false, Standing::Open, None) => State::Interrupted,
                };
                Stored { id: id.to_owned(), dir, state, record: Some(record) }
            }
            Err(_) if running => Stored { id: id.to_owned(), dir, state: State::Running, record: None },
            Err(why) => broken(why),
        }))
    }

    /// Deletes a session and all that is in its layers.
    ///
    /// # Errors
    /// `Running` while its command runs; else the call and the path that failed.
    pub fn remove(&self, session: &Stored) -> Result<(), StoreError> {
        remove::remove(self.sessions.as_fd(), &self.dir, &session.id)
    }
}

impl Session {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Canonical.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Did somebody apply changes of this session while it ran?
    pub fn was_settled(&self) -> bool {
        !matches!(rustix::fs::statat(&self.lock, settle::DIR, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
    }

    /// The session's directory.
    pub(super) fn held(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Writes down how the run ended. The session stays locked until the value is dropped.
    pub fn finish(&mut self, outcome: Outcome) -> Result<(), StoreError> {
        self.record.outcome = Some(outcome);
        let io = |errno| StoreError::io("write", &self.dir.join(RECORD), errno);
        self.record.write(&self.lock, ".session.json").map_err(io)?;
        rustix::fs::renameat(&self.lock, ".session.json", &self.lock, RECORD).map_err(io)
    }

    /// Deletes the session of this process, as one that changed nothing, or keeps its empty directories for the next.
    pub fn spare(self) -> Result<(), StoreError> {
        if self.layers.len() == 1 {
            let (from, to) = (&self.sessions, &self.sessions);
            let give =
                |spare: &str| rustix::fs::renameat_with(from, &self.id, to, spare, RenameFlags::NOREPLACE).is_ok();
            if SPARES.iter().any(|spare| give(spare)) {
                // Nothing of this run may stay in it. It fails when somebody took the spare already and cleared it.
                rustix::fs::unlinkat(&self.lock, RECORD, AtFlags::empty()).ok();
                return Ok(());
            }
        }
        self.discard()
    }

    /// Deletes the session of this process, whatever is in it.
    pub fn discard(self) -> Result<(), StoreError> {
        remove::purge_session(self.sessions.as_fd(), self.dir.parent().unwrap_or(&self.dir), &self.id)
    }
}

/// A spare that the next session cannot have.
struct Unusable;

impl From<Errno> for Unusable {
    fn from(_: Errno) -> Unusable {
        Unusable
    }
}

/// Is this upper directory one that nobody could tell from a new one once it has a root's mode, owner and times?
fn is_as_new(upper: &OwnedFd) -> Result<bool, Errno> {
    // What overlay itself remembers of an upper directory: its own number.
    let marks = tree::attributes(upper)?;
    if marks.iter().any(|name| name != b"user.overlay.uuid") {
        return Ok(false);
    }
    // chattr(1)'s: new directories below would inherit them.
    let odd = match rustix::fs::ioctl_getflags(upper) {
        Ok(flags) => flags.intersects(INHERITED),
        Err(Errno::NOTTY | Errno::NOTSUP | Errno::INVAL) => false,
        Err(errno) => return Err(errno),
    };
    let size = rustix::fs::fstat(upper)?.st_size;
    Ok(!odd && size <= LARGEST_SPARE && tree::names(upper.as_fd())?.is_empty())
}

const INHERITED: IFlags = IFlags::APPEND
    .union(IFlags::COMPRESSED)
    .union(IFlags::DIRSYNC)
    .union(IFlags::IMMUTABLE)
    .union(IFlags::NOATIME)
    .union(IFlags::NOCOW)
    .union(IFlags::NODUMP)
    .union(IFlags::SYNC);

/// Makes a directory with mode 0700 and, first, those above it. Symlinks above it are the user's own way to place
/// things and are followed; what stands at the end is judged by [`Store::look`].
pub(super) fn make(dir: &Path) -> Result<(), StoreError> {
    let mkdir = || rustix::fs::mkdirat(CWD, dir, PRIVATE);
    let made = match (mkdir(), dir.parent()) {
        (Err(Errno::NOENT), Some(parent)) => {
            make(parent)?;
            mkdir()
        }
        (made, _) => made,
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        // A read-only file system or a foreign parent does not matter where the directory is already there.
        Err(errno) => match rustix::fs::statat(CWD, dir, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::io("make", dir, errno)),
        },
    }
}

/// Refuses a directory that another user owns or may write to: he could swap a layer below us.
pub(super) fn ours(dir: &OwnedFd, path: &Path) -> Result<(), StoreError> {
    let stat = rustix::fs::fstat(dir).map_err(|errno| StoreError::io("look at", path, errno))?;
    let us = rustix::process::geteuid().as_raw();
    if stat.st_uid != us {
        return Err(StoreError::Foreign { path: path.to_path_buf(), owner: stat.st_uid, us });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(StoreError::Loose { path: path.to_path_buf(), mode: stat.st_mode & 0o7777 });
    }
    Ok(())
}

/// Now, by the clock that file systems stamp changes with: what the host changes later bears no earlier time, and what
/// it changed before no later one. A time that was looked at makes the kernel give the next change a finer one, and
/// all changes after that, of whatever file, come after it (multigrain timestamps, Linux 6.13; before that it is the
/// clock tick).
fn stamp(session: &OwnedFd) -> Result<SystemTime, Errno> {
    rustix::fs::fstat(session)?;
    rustix::fs::fchmod(session, PRIVATE)?;
    let stat = rustix::fs::fstat(session)?;
    let seconds = u64::try_from(stat.st_ctime).map_err(|_| Errno::INVAL)?;
    Ok(UNIX_EPOCH + Duration::new(seconds, u32::try_from(stat.st_ctime_nsec).unwrap_or(0)))
}

/// Gives the upper directory the root's mode, owner and times: a merged directory shows its topmost layer's.
fn mirror(root: &Path, upper: &OwnedFd) -> Result<(), StoreError> {
    let io = |errno| StoreError::io("look at", root, errno);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let host = open_plain(CWD, root, flags, rustix::fs::ResolveFlags::empty());
    let stat = host.and_then(|fd| rustix::fs::statat(&fd, "", AtFlags::EMPTY_PATH)).map_err(io)?;
    // Only root can give a file away; for anyone else the command finds itself the owner, as it would of a new file.
    match rustix::fs::fchown(
        upper,
        Some(rustix::fs::Uid::from_raw(stat.st_uid)),
        Some(rustix::fs::Gid::from_raw(stat.st_gid)),
    ) {
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
        Err(errno) => return Err(io(errno)),
    }
    // After chown, which clears set-id bits, and past the umask.
    rustix::fs::fchmod(upper, Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(io)?;
    let time = |sec, nsec| Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps {
        last_access: time(stat.st_atime, i64::try_from(stat.st_atime_nsec).unwrap_or(0)),
        last_modification: time(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
    };
    rustix::fs::futimens(upper, &times).map_err(io)
}

/// Ten hex digits: five random ones first, so that two or three of them name a session, and five that grow every 17
/// minutes, so that an old id does not come back.
fn fresh_id(created: SystemTime) -> Result<String, StoreError> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty()).map_err(StoreError::Random)?;
    let time = created.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() >> 10);
    Ok(format!("{:05x}{:05x}", u32::from_ne_bytes(random) & 0xf_ffff, time & 0xf_ffff))
}
