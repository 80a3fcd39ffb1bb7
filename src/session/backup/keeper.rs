//! Keeps what a live run is about to change.
//!
//! Each file is kept once: the first entry of a file says how it was, and later ones only what became of its name. What
//! the command made itself needs no backup, only the word that it was not there.

use super::super::record::{Counts, NewSession};
use super::super::store::{Session, Store};
use super::copy::copy;
use super::journal::{Entry, What, Writer};
use super::node::{Identity, Node, Stored, attributes, format_of, is_mount_point, look, look_on_host, nanoseconds};
use super::own::Own;
use crate::path::open_plain;
use crate::path::pattern::{Pattern, PatternSet};
use crate::policy::Policy;
use crate::watch::made::Made;
use crate::watch::notify::{Caller, Change, Keeper, Place, Territory};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// So many losses are told one by one at the time; the journal has all.
const TOLD: usize = 10;

/// What is kept, by the policy.
#[derive(Debug)]
pub struct Rules {
    territory: Territory,
    left_out: PatternSet,
    /// The command can mount: a directory is then only what its path says if the host's is the same.
    mounts: bool,
    file: u64,
    total: u64,
}

impl Rules {
    pub fn of(policy: &Policy) -> Rules {
        // What the profile reader let pass parses.
        let patterns: Vec<Pattern> =
            policy.no_backup.iter().filter_map(|text| Pattern::parse(text.clone()).ok()).collect();
        Rules {
            territory: Territory::of(policy),
            left_out: PatternSet::new(patterns),
            mounts: policy.nested,
            file: policy.limits.backup_file,
            total: policy.limits.backup_total,
        }
    }

    /// Does `path` lie in a directory, below its root, that is left out? The directory itself does not.
    fn leaves_out(&self, path: &Path) -> bool {
        let Some(root) = self.territory.root_of(path) else { return false };
        let (bytes, root) = (path.as_os_str().as_bytes(), root.as_os_str().len());
        let (mut folded, mut hits) = (Vec::new(), Vec::new());
        let mut ends = bytes.iter().enumerate().skip(root + 1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        ends.any(|end| {
            self.left_out.matches(&bytes[..end], root, &mut folded, &mut hits);
            !hits.is_empty()
        })
    }
}

/// What a run changed and what of it was kept.
#[derive(Debug, Default)]
pub struct Kept {
    pub session: Option<Session>,
    pub counts: Counts,
    /// Nothing is left of what it changed.
    pub nothing: bool,
    /// Files whose content could not be kept, each with the reason.
    pub lost: Vec<(PathBuf, String)>,
    /// Changes in directories that are left out.
    pub left_out: u64,
    /// Why there are no backups.
    pub off: Option<String>,
}

/// The session of a run that has changed something.
#[derive(Debug)]
struct Open {
    session: Session,
    files: OwnedFd,
    journal: Writer,
    /// Stored so far.
    next: u64,
    bytes: u64,
}

/// How a name was before the run, as far as the counts need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    identity: Identity,
    changed: i128,
}

pub(super) struct Backup {
    rules: Rules,
    made: Arc<Made>,
    new: NewSession,
    state_dir: Option<PathBuf>,
    say: fn(&str),
    open: Option<Open>,
    off: Option<String>,
    own: Own,
    /// Files of the host whose content, attributes, and whose name alone were kept.
    contents: HashSet<Identity>,
    attributes: HashSet<Identity>,
    /// Directories of which only mode, owner and time were, for names in them changed.
    directories: HashSet<Identity>,
    linked: HashSet<Identity>,
    /// The names that changed, with how they were first.
    touched: BTreeMap<PathBuf, Option<Seen>>,
    lost: Vec<(PathBuf, String)>,
    left_out: u64,
}

impl Backup {
    pub fn new(rules: Rules, made: Arc<Made>, new: NewSession, state_dir: Option<PathBuf>, say: fn(&str)) -> Backup {
        Backup {
            rules,
            made,
            new,
            state_dir,
            say,
            open: None,
            off: None,
            own: Own::default(),
            contents: HashSet::new(),
            attributes: HashSet::new(),
            directories: HashSet::new(),
            linked: HashSet::new(),
            touched: BTreeMap::new(),
            lost: Vec::new(),
            left_out: 0,
        }
    }

    /// Writes down what the run left, and says what it came to.
    pub fn finish(mut self) -> Kept {
        let mut counts = Counts::default();
        let touched = std::mem::take(&mut self.touched);
        for (path, before) in touched {
            // What cannot be looked at any more is told as changed.
            let now = look_on_host(&path).ok().flatten();
            let seen = now.as_ref().map(Seen::of);
            match (before, seen) {
                (None, None) => continue,
                (None, Some(_)) => counts.created += 1,
                (Some(_), None) => counts.deleted += 1,
                (Some(before), Some(now)) if before == now => continue,
                (Some(_), Some(_)) => counts.modified += 1,
            }
            let now = now.as_ref().and_then(|stat| node_on_host(&path, stat));
            if let Some(open) = &mut self.open {
                let what = What::Left { path, now };
                let entry =
                    Entry { at: now_in_nanoseconds(), thread: 0, program: PathBuf::new(), call: String::new(), what };
                // The command has ended: what is not written is only missing for the look at conflicts.
                open.journal.write(&entry).ok();
            }
        }
        let nothing = counts == Counts::default();
        let Backup { open, off, lost, left_out, .. } = self;
        Kept { session: open.map(|open| open.session), counts, nothing, lost, left_out, off }
    }

    fn tell(&self, text: &str) {
        (self.say)(text);
    }

    /// The session, made at the first change. `None` when there can be none.
    fn open(&mut self) -> Result<Option<&mut Open>, Errno> {
        if self.open.is_none() && self.off.is_none() {
            match self.make() {
                Ok(open) => self.open = Some(open),
                Err(why) => {
                    self.tell(&format!("agentbox: nothing is backed up: {why}"));
                    self.off = Some(why);
                }
            }
        }
        Ok(self.open.as_mut())
    }

    fn make(&mut self) -> Result<Open, String> {
        let dir = self.state_dir.as_deref().ok_or("there is no state directory: set XDG_STATE_HOME")?;
        let store = Store::open(dir).map_err(|err| err.to_string())?;
        let session = store.create(&self.new).map_err(|err| err.to_string())?;
        let io = |errno: Errno| format!("{}: {errno}", session.dir().join("backup").display());
        let open = |at: &OwnedFd, name: &str| {
            rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        };
        rustix::fs::mkdirat(session.held(), "backup", Mode::RWXU).map_err(io)?;
        let held = session.held().try_clone_to_owned().map_err(|err| err.to_string())?;
        let backup = open(&held, "backup").map_err(io)?;
        rustix::fs::mkdirat(&backup, "files", Mode::RWXU).map_err(io)?;
        let files = open(&backup, "files").map_err(io)?;
        let journal = Writer::create(backup.as_fd()).map_err(io)?;
        Ok(Open { session, files, journal, next: 0, bytes: 0 })
    }

    fn write(&mut self, caller: &Caller<'_>, what: What) -> Result<(), Errno> {
        let Some(open) = self.open()? else { return Ok(()) };
        let at = now_in_nanoseconds();
        let entry = Entry { at, thread: caller.thread, program: caller.program(), call: caller.call.to_owned(), what };
        open.journal.write(&entry)
    }

    fn touch(&mut self, path: &Path, before: Option<&Statx>) {
        if !self.touched.contains_key(path) {
            self.touched.insert(path.to_path_buf(), before.map(Seen::of));
        }
    }

    /// What stands at a place whose name is about to go. The kernel refuses that for a mount point, as a frozen name is
    /// one: such a file must not even be linked, which would change its time.
    fn look_at_name(&self, at: &Place) -> Result<Option<Statx>, Errno> {
        let found = look(&at.dir, &at.name)?;
        if found.as_ref().is_some_and(is_mount_point) { Err(Errno::BUSY) } else { Ok(found) }
    }

    /// What stands at a place, if it is the host's own: over a hidden name lies a mask, which must never be taken for
    /// the file that it covers.
    fn look(&self, at: &Place) -> Result<Option<Statx>, Errno> {
        let found = look(&at.dir, &at.name)?;
        if let Some(stat) = found.as_ref().filter(|stat| is_mount_point(stat)) {
            let same =
                look_on_host(at.path()).ok().flatten().is_some_and(|host| Identity::of(&host) == Identity::of(stat));
            if !same {
                // The kernel lets nobody remove, rename or write it.
                return Err(Errno::ACCESS);
            }
        }
        Ok(found)
    }

    fn leave_out(&mut self, path: &Path) -> bool {
        let out = self.rules.leaves_out(path);
        self.left_out += u64::from(out);
        out
    }

    fn created(&mut self, caller: &Caller<'_>, at: &Place, new: bool) -> Result<(), Errno> {
        self.made.add(at.path());
        if self.leave_out(at.path()) {
            return Ok(());
        }
        self.directory(caller, at)?;
        self.write(caller, What::Created { path: at.path().to_path_buf() })?;
        self.touch(at.path(), None);
        if new {
            self.own.awaits(at.path());
        }
        Ok(())
    }

    /// The directory's own time changes with each name in it.
    fn directory(&mut self, caller: &Caller<'_>, at: &Place) -> Result<(), Errno> {
        let Some(path) = at.path().parent() else { return Ok(()) };
        let Some(stat) = look(&at.dir, OsStr::new(""))? else { return Ok(()) };
        if self.rules.territory.root_of(path).is_none() || self.own.is(path, &stat) {
            return Ok(());
        }
        let identity = Identity::of(&stat);
        if self.attributes.contains(&identity) || !self.directories.insert(identity) {
            return Ok(());
        }
        let before = Node::of(&at.dir, OsStr::new(""), &stat)?;
        self.write(caller, What::Attributes { path: path.to_path_buf(), before })
    }

    fn content(&mut self, caller: &Caller<'_>, at: &Place, stat: &Statx) -> Result<(), Errno> {
        let identity = Identity::of(stat);
        if self.contents.contains(&identity) || self.own.is(at.path(), stat) || self.leave_out(at.path()) {
            return Ok(());
        }
        let mut before = Node::of(&at.dir, &at.name, stat)?;
        before.attributes = Some(attributes(&at.dir, &at.name)?);
        before.stored = self.copied(caller, at, stat)?;
        self.write(caller, What::Content { path: at.path().to_path_buf(), before })?;
        self.touch(at.path(), Some(stat));
        // From here on a second name of it in the store holds the new content.
        self.linked.remove(&identity);
        self.contents.insert(identity);
        Ok(())
    }

    fn changed(&mut self, caller: &Caller<'_>, at: &Place, stat: &Statx) -> Result<(), Errno> {
        let identity = Identity::of(stat);
        if self.own.is(at.path(), stat) || self.leave_out(at.path()) {
            return Ok(());
        }
        if self.contents.contains(&identity) || self.attributes.contains(&identity) {
            self.touch(at.path(), Some(stat));
            return Ok(());
        }
        let mut before = Node::of(&at.dir, &at.name, stat)?;
        if format_of(stat) != libc::S_IFLNK {
            before.attributes = Some(attributes(&at.dir, &at.name)?);
        }
        self.write(caller, What::Attributes { path: at.path().to_path_buf(), before })?;
        self.touch(at.path(), Some(stat));
        self.attributes.insert(identity);
        Ok(())
    }

    fn removed(&mut self, caller: &Caller<'_>, at: &Place, stat: &Statx) -> Result<(), Errno> {
        self.made.remove(at.path());
        if self.own.is(at.path(), stat) {
            // The entry that it was made stands. If the call fails, the file is taken for the host's.
            if stat.stx_nlink == 1 {
                self.own.forget(stat);
            }
            // A directory may have held files of the host's, which go back through it.
            if format_of(stat) != libc::S_IFDIR || self.leave_out(at.path()) {
                return Ok(());
            }
            let before = Node::of(&at.dir, &at.name, stat)?;
            return self.write(caller, What::Removed { path: at.path().to_path_buf(), before });
        }
        if self.leave_out(at.path()) {
            return Ok(());
        }
        self.directory(caller, at)?;
        let before = self.node_that_goes(caller, at, stat)?;
        self.write(caller, What::Removed { path: at.path().to_path_buf(), before })?;
        self.touch(at.path(), Some(stat));
        Ok(())
    }

    /// A file of the host's that is about to lose its name.
    fn node_that_goes(&mut self, caller: &Caller<'_>, at: &Place, stat: &Statx) -> Result<Node, Errno> {
        let mut before = Node::of(&at.dir, &at.name, stat)?;
        if format_of(stat) == libc::S_IFDIR {
            before.attributes = Some(attributes(&at.dir, &at.name)?);
        }
        if format_of(stat) != libc::S_IFREG {
            return Ok(before);
        }
        let identity = Identity::of(stat);
        before.stored = self.second_name(at, &identity)?;
        if before.stored.is_some() {
            self.linked.insert(identity);
        } else {
            before.attributes = Some(attributes(&at.dir, &at.name)?);
            if !self.contents.contains(&identity) {
                before.stored = self.copied(caller, at, stat)?;
            }
        }
        Ok(before)
    }

    fn renamed(&mut self, caller: &Caller<'_>, from: &Place, to: &Place) -> Result<(), Errno> {
        let Some(moved) = self.look_at_name(from)? else { return Ok(()) };
        let replaced = self.look_at_name(to)?;
        if replaced.as_ref().is_some_and(|stat| Identity::of(stat) == Identity::of(&moved)) {
            // Two names of one file: the kernel does nothing.
            return Ok(());
        }
        let own = self.own.is(from.path(), &moved);
        let (out_from, out_to) = (self.leave_out(from.path()), self.leave_out(to.path()));
        if !(out_from && out_to) {
            self.directory(caller, from)?;
            self.directory(caller, to)?;
            let lost = replaced.as_ref().filter(|stat| !self.own.is(to.path(), stat));
            let replaced = lost.map(|stat| self.node_that_goes(caller, to, stat)).transpose()?;
            self.touch(from.path(), Some(&moved).filter(|_| !own));
            self.touch(to.path(), lost);
            let (from, to) = (from.path().to_path_buf(), to.path().to_path_buf());
            self.write(caller, What::Renamed { from, to, moved: Identity::of(&moved), replaced })?;
        }
        self.own.moved(from.path(), to.path());
        self.made.rename(from.path(), to.path());
        self.made.add(to.path());
        Ok(())
    }

    fn exchanged(&mut self, caller: &Caller<'_>, a: &Place, b: &Place) -> Result<(), Errno> {
        let (Some(was_a), Some(was_b)) = (self.look_at_name(a)?, self.look_at_name(b)?) else { return Ok(()) };
        if Identity::of(&was_a) == Identity::of(&was_b) {
            return Ok(());
        }
        let (out_a, out_b) = (self.leave_out(a.path()), self.leave_out(b.path()));
        if !(out_a && out_b) {
            self.directory(caller, a)?;
            self.directory(caller, b)?;
            let (own_a, own_b) = (self.own.is(a.path(), &was_a), self.own.is(b.path(), &was_b));
            self.touch(a.path(), Some(&was_a).filter(|_| !own_a));
            self.touch(b.path(), Some(&was_b).filter(|_| !own_b));
            let what = What::Exchanged {
                a: a.path().to_path_buf(),
                b: b.path().to_path_buf(),
                was_a: Identity::of(&was_a),
                was_b: Identity::of(&was_b),
            };
            self.write(caller, what)?;
        }
        self.own.moved(a.path(), b.path());
        self.own.moved(b.path(), a.path());
        self.made.exchange(a.path(), b.path());
        self.made.add(a.path());
        self.made.add(b.path());
        Ok(())
    }

    /// Gives the file a second name in the store, where both lie on one mount. Found by the host's own path: the box's
    /// mounts are others, and no link goes from one to the other.
    fn second_name(&mut self, at: &Place, identity: &Identity) -> Result<Option<Stored>, Errno> {
        let Some(open) = self.open()? else { return Ok(None) };
        let Some(parent) = at.path().parent() else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dir) = open_plain(CWD, parent, flags, ResolveFlags::empty()) else { return Ok(None) };
        if look(&dir, &at.name).ok().flatten().is_none_or(|stat| Identity::of(&stat) != *identity) {
            return Ok(None);
        }
        let name = open.next.to_string();
        match rustix::fs::linkat(&dir, &at.name, &open.files, &name, AtFlags::empty()) {
            Ok(()) => {
                open.next += 1;
                Ok(Some(Stored::Link(Path::new("files").join(name))))
            }
            // Another mount, a file system without links, or not one of ours (protected_hardlinks): a copy will do.
            Err(_) => Ok(None),
        }
    }

    /// Copies the content to the store. `None` when it cannot be kept, which is then said.
    fn copied(&mut self, caller: &Caller<'_>, at: &Place, stat: &Statx) -> Result<Option<Stored>, Errno> {
        let (file, total) = (self.rules.file, self.rules.total);
        let Some(open) = self.open()? else { return Ok(None) };
        let name = open.next.to_string();
        let most = file.min(total.saturating_sub(open.bytes));
        let why = if stat.stx_size > file {
            format!("it is larger than backup_file={file}")
        } else if stat.stx_size > most {
            format!("backup_total={total} is used up")
        } else {
            match copy(&at.dir, &at.name, open.files.as_fd(), &name, most) {
                Ok(bytes) => {
                    open.next += 1;
                    open.bytes += bytes;
                    return Ok(Some(Stored::Copy(Path::new("files").join(name))));
                }
                // The supervisor has no more rights to it than the command: one may write and not read it.
                Err(Errno::ACCESS | Errno::PERM) => "it cannot be read".to_owned(),
                Err(Errno::FBIG) => "it grew while it was copied".to_owned(),
                // The disk is full or broken: then the command must not go on and destroy what was not kept.
                Err(errno) => {
                    self.tell(&format!(
                        "agentbox: refused: {} cannot be backed up: {errno}",
                        super::super::quote::text(at.path().as_os_str())
                    ));
                    return Err(errno);
                }
            }
        };
        self.lose(caller, at.path(), why)?;
        Ok(None)
    }

    fn lose(&mut self, caller: &Caller<'_>, path: &Path, why: String) -> Result<(), Errno> {
        if self.lost.len() < TOLD {
            let shown = super::super::quote::text(path.as_os_str());
            self.tell(&format!("agentbox: not backed up: {shown}: {why}"));
        }
        self.lost.push((path.to_path_buf(), why.clone()));
        self.write(caller, What::Lost { path: path.to_path_buf(), why })
    }

    fn regular(&mut self, caller: &Caller<'_>, at: &Place, stat: &Statx) -> Result<(), Errno> {
        // A directory cannot be opened so, a symlink is not followed, and a FIFO, socket or device keeps nothing.
        if format_of(stat) == libc::S_IFREG { self.content(caller, at, stat) } else { Ok(()) }
    }
}

impl Keeper for Backup {
    fn territory(&self) -> &Territory {
        &self.rules.territory
    }

    fn before(&mut self, caller: &Caller<'_>, change: Change) -> Result<(), Errno> {
        // Below a frozen directory, for one: the kernel refuses it, and a link to keep the file would change its time.
        if change.places().into_iter().any(is_read_only) {
            return Ok(());
        }
        if self.rules.mounts && change.places().into_iter().any(|place| !is_on_host(place)) {
            return Ok(());
        }
        match change {
            Change::Open { at, creates, exclusive } => match self.look(&at)? {
                None if creates => self.created(caller, &at, true),
                Some(stat) if !exclusive => self.regular(caller, &at, &stat),
                None | Some(_) => Ok(()),
            },
            Change::Write(at) => match self.look(&at)? {
                Some(stat) => self.regular(caller, &at, &stat),
                None => Ok(()),
            },
            Change::Attributes(at) => match self.look(&at)? {
                Some(stat) => self.changed(caller, &at, &stat),
                None => Ok(()),
            },
            Change::Make(at) => match self.look(&at)? {
                None => self.created(caller, &at, true),
                Some(_) => Ok(()),
            },
            // The file behind the new name may be the host's.
            Change::Link(at) => match self.look(&at)? {
                None => self.created(caller, &at, false),
                Some(_) => Ok(()),
            },
            Change::Remove(at) => match self.look_at_name(&at)? {
                Some(stat) => self.removed(caller, &at, &stat),
                None => Ok(()),
            },
            Change::Rename { from, to } => self.renamed(caller, &from, &to),
            Change::Exchange { a, b } => self.exchanged(caller, &a, &b),
            // Of a file that only the store holds any more, by a descriptor from before: what the store has would change.
            Change::Nameless(fd) => match look(&fd, OsStr::new(""))? {
                Some(stat) if self.linked.contains(&Identity::of(&stat)) => Err(Errno::PERM),
                Some(_) | None => Ok(()),
            },
        }
    }
}

impl Seen {
    fn of(stat: &Statx) -> Seen {
        Seen { identity: Identity::of(stat), changed: nanoseconds(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec) }
    }
}

fn is_read_only(place: &Place) -> bool {
    rustix::fs::fstatvfs(&place.dir).is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Is the directory of this place the one that the host has at that path?
fn is_on_host(place: &Place) -> bool {
    let host = place.path().parent().and_then(|parent| look_on_host(parent).ok().flatten());
    let here = look(&place.dir, OsStr::new("")).ok().flatten();
    host.zip(here).is_some_and(|(host, here)| Identity::of(&host) == Identity::of(&here))
}

fn node_on_host(path: &Path, stat: &Statx) -> Option<Node> {
    let parent =
        open_plain(CWD, path.parent()?, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, ResolveFlags::empty());
    Node::of(&parent.ok()?, path.file_name()?, stat).ok()
}

fn now_in_nanoseconds() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}
