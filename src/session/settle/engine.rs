//! Carries the steps of one settlement out, all or none of them.
//!
//! Everything new is staged beside the names of the user's under names of our own, everything old that cannot be moved
//! into the store is copied there, both reach the disk, and only then is one name after the other exchanged. What each
//! step finds tells how far it came, so that both ways can be walked again after a kill, from any point.
//!
//! Every name is reached beneath the held directory of its root, over no symlink and no mount.

use super::copy::{From, copy};
use super::fault::Fault;
use super::journal::{After, Settlement, Summary, Touched};
use super::meta::{self, Meta};
use super::step::{New, Seen, Source, Step};
use crate::session::attributes::marks;
use crate::session::remove;
use crate::session::tree::{self, Tree};
use rustix::fs::{AtFlags, Mode, RenameFlags, Stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// One root of the session, held.
#[derive(Debug)]
pub struct Root {
    pub path: PathBuf,
    pub host: Tree,
    pub upper: Option<Tree>,
}

/// Why a settlement stopped: the step's own path, what was done, and the kernel's answer.
#[derive(Debug)]
pub enum EngineError {
    Call {
        what: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    /// Somebody changed the name after it was judged.
    Changed {
        path: PathBuf,
    },
}

type Result<T, E = EngineError> = std::result::Result<T, E>;

pub struct Engine<'a> {
    roots: &'a [Root],
    settlement: &'a Settlement,
    /// Earlier settlements, from whose store objects are taken.
    stores: &'a HashMap<u32, OwnedFd>,
    steps: &'a [Step],
    /// The topmost new directory in which a step's name lies: it is staged there.
    tops: Vec<Option<usize>>,
    /// Of each root: can a rename lead from its layer, and to the store?
    moves: Vec<Moves>,
    /// The inodes that were staged.
    new: Vec<Option<u64>>,
    /// Nothing was done, or all of it was taken back: the journal may forget it.
    pub clean: bool,
    held: RefCell<Option<Held>>,
    /// Directories of the layers, as far as they were asked about.
    opaque: RefCell<HashMap<(usize, PathBuf), bool>>,
    fault: &'a Fault,
}

/// The directory that was opened last: steps are sorted, so the next one often lies there too.
struct Held {
    root: usize,
    path: PathBuf,
    dir: Rc<OwnedFd>,
}

#[derive(Debug, Clone, Copy)]
struct Moves {
    from_layer: bool,
    with_store: bool,
}

/// A name in a held directory.
struct Spot {
    dir: Rc<OwnedFd>,
    name: CString,
}

impl Spot {
    fn stat(&self) -> Result<Option<Stat>, Errno> {
        tree::stat(self.dir.as_fd(), &self.name)
    }

    fn hold(&self) -> Result<OwnedFd, Errno> {
        meta::hold(&*self.dir, &self.name)
    }
}

fn c_name(name: &OsStr) -> CString {
    // A path from readdir or from JSON of our own holds no NUL; one that did would name nothing.
    CString::new(name.as_bytes()).unwrap_or_default()
}

/// Is the rename of a name between two directories possible at all? The kernel compares the mounts before it looks for
/// the names, so that asking costs nothing.
fn can_move(from: &OwnedFd, to: &OwnedFd, nonce: &str) -> bool {
    let none = format!(".agentbox-{nonce}-none");
    matches!(rustix::fs::renameat(from, &none, to, &none), Err(Errno::NOENT))
}

/// A rename that replaces nothing.
fn shift(from: (BorrowedFd<'_>, &CString), to: (BorrowedFd<'_>, &CString)) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE) {
        // Some network and FUSE file systems know no flags.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match tree::stat(to.0, to.1)? {
            Some(_) => Err(Errno::EXIST),
            None => rustix::fs::renameat(from.0, from.1, to.0, to.1),
        },
        other => other,
    }
}

impl<'a> Engine<'a> {
    pub fn new(
        roots: &'a [Root],
        settlement: &'a Settlement,
        stores: &'a HashMap<u32, OwnedFd>,
        steps: &'a [Step],
        fault: &'a Fault,
    ) -> Result<Engine<'a>> {
        let mut moves = Vec::new();
        for root in roots {
            let open = |tree: &Tree| {
                let call = |errno| EngineError::Call { what: "open", path: root.path.clone(), errno };
                tree.place(Path::new("")).map_err(call)
            };
            let (host, nonce) = (open(&root.host)?, &settlement.head.nonce);
            let layer = root.upper.as_ref().map(open).transpose()?;
            let from_layer = |layer: OwnedFd| !settlement.head.mounted && can_move(&layer, &host, nonce);
            let from_layer = layer.is_some_and(from_layer);
            moves.push(Moves { from_layer, with_store: can_move(&host, &settlement.objects, nonce) });
        }
        let tops = tops(steps);
        let new = vec![None; steps.len()];
        Ok(Engine {
            roots,
            settlement,
            stores,
            steps,
            tops,
            moves,
            new,
            clean: false,
            held: RefCell::new(None),
            opaque: RefCell::default(),
            fault,
        })
    }

    /// The settlement from its first step: on an error everything is as it was.
    ///
    /// # Errors
    /// What stopped it. When it could not be taken back either, the next settlement does.
    pub fn run(&mut self, left: usize) -> Result<Summary> {
        if let Err(err) = self.stage() {
            self.take_back();
            return Err(err);
        }
        self.forward(left)
    }

    /// Finishes a committed settlement; one that cannot be finished is taken back.
    pub fn forward(&mut self, left: usize) -> Result<Summary> {
        match self.publish(left) {
            Ok(summary) => Ok(summary),
            Err(err) => {
                if self.settlement.turn_back().is_ok() {
                    self.take_back();
                }
                Err(err)
            }
        }
    }

    fn take_back(&mut self) {
        // The first error is the one to tell. What stays undone stays in the journal, and the next one takes it up.
        self.clean = self.backward().is_ok();
    }

    /// Reads the inodes of a settlement that was killed.
    pub fn resume(&mut self) -> Result<bool> {
        let committed = self.settlement.committed().map_err(|errno| self.journal(errno))?;
        match committed {
            Some(new) if new.len() == self.steps.len() => {
                self.new = new;
                Ok(true)
            }
            Some(_) => Err(self.journal(Errno::BADMSG)),
            None => Ok(false),
        }
    }

    fn journal(&self, errno: Errno) -> EngineError {
        EngineError::Call { what: "write the journal of", path: PathBuf::from("the session"), errno }
    }

    fn absolute(&self, step: &Step) -> PathBuf {
        self.roots[step.root].path.join(&step.path)
    }

    fn call(&self, i: usize, what: &'static str) -> impl Fn(Errno) -> EngineError + use<> {
        let path = self.absolute(&self.steps[i]);
        move |errno| EngineError::Call { what, path: path.clone(), errno }
    }

    // ---- names

    fn dir(&self, root: usize, path: &Path) -> Result<Rc<OwnedFd>, Errno> {
        let mut held = self.held.borrow_mut();
        if let Some(held) = held.as_ref().filter(|held| held.root == root && held.path == path) {
            return Ok(Rc::clone(&held.dir));
        }
        let dir = Rc::new(self.roots[root].host.place(path)?);
        *held = Some(Held { root, path: path.to_path_buf(), dir: Rc::clone(&dir) });
        Ok(dir)
    }

    /// Another directory may have taken the place of a held one.
    fn forget_dir(&self) {
        *self.held.borrow_mut() = None;
    }

    fn temp(&self, i: usize) -> String {
        format!(".agentbox-{}-{i}", self.settlement.head.nonce)
    }

    fn spot(&self, root: usize, path: &Path) -> Result<Spot, Errno> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
        Ok(Spot { dir: self.dir(root, parent)?, name: c_name(name) })
    }

    /// The name itself.
    fn name(&self, i: usize) -> Result<Spot, Errno> {
        self.spot(self.steps[i].root, &self.steps[i].path)
    }

    /// Where a step's object is staged: beside its name, or inside a directory that is staged itself.
    fn staged(&self, i: usize) -> Result<Spot, Errno> {
        let step = &self.steps[i];
        match self.tops[i] {
            Some(top) => {
                let above = &self.steps[top].path;
                let rest = step.path.strip_prefix(above).map_err(|_| Errno::INVAL)?;
                let at = above.parent().unwrap_or(Path::new("")).join(self.temp(top)).join(rest);
                self.spot(step.root, &at)
            }
            None => {
                let dir = self.dir(step.root, step.path.parent().unwrap_or(Path::new("")))?;
                Ok(Spot { dir, name: c_name(OsStr::new(&self.temp(i))) })
            }
        }
    }

    /// A third name, where two cannot be exchanged in one act.
    fn third(&self, i: usize) -> Result<Spot, Errno> {
        let step = &self.steps[i];
        let dir = self.dir(step.root, step.path.parent().unwrap_or(Path::new("")))?;
        Ok(Spot { dir, name: c_name(OsStr::new(&format!("{}-old", self.temp(i)))) })
    }

    fn in_layer(&self, i: usize) -> Result<Spot, Errno> {
        let step = &self.steps[i];
        let upper = self.roots[step.root].upper.as_ref().ok_or(Errno::NOENT)?;
        let dir = Rc::new(upper.place(step.path.parent().unwrap_or(Path::new("")))?);
        Ok(Spot { dir, name: c_name(step.path.file_name().unwrap_or_default()) })
    }

    fn object(&self, i: usize) -> Result<Spot, Errno> {
        let dir = self.settlement.objects.try_clone().map_err(|_| Errno::MFILE)?;
        Ok(Spot { dir: Rc::new(dir), name: c_name(OsStr::new(&i.to_string())) })
    }

    /// Where the new object of a step comes from.
    fn source(&self, i: usize) -> Result<Spot, Errno> {
        match &self.steps[i].new {
            New::Object { from: Source::Layer, .. } => self.in_layer(i),
            New::Object { from: Source::Stored { settlement, object }, .. } => {
                let store = self.stores.get(settlement).ok_or(Errno::NOENT)?;
                let dir = store.try_clone().map_err(|_| Errno::MFILE)?;
                Ok(Spot { dir: Rc::new(dir), name: c_name(OsStr::new(&object.to_string())) })
            }
            New::Object { from: Source::Linked(path), .. } => self.spot(self.steps[i].root, path),
            New::Gone | New::Dir(_) | New::Same(_) => Err(Errno::INVAL),
        }
    }

    fn takes_from_layer(&self, i: usize) -> bool {
        matches!(self.steps[i].new, New::Object { from: Source::Layer, .. })
    }

    // ---- staging: nothing of the user's changes

    fn stage(&mut self) -> Result<()> {
        self.open_up()?;
        self.back_up()?;
        let sources = self.sources()?;
        let mut linked: HashMap<(u64, u64), usize> = HashMap::new();
        for i in 0..self.steps.len() {
            match &self.steps[i].new {
                New::Object { .. } => self.stage_object(i, &sources, &mut linked)?,
                New::Dir(_) => self.stage_dir(i)?,
                New::Gone | New::Same(_) => {}
            }
        }
        self.staged_metas()?;
        self.sync()?;
        self.fault.point().map_err(|errno| self.journal(errno))?;
        self.settlement.commit(&self.new).map_err(|errno| self.journal(errno))
    }

    /// A directory that its owner may not change for the moment: its mode is put back when all is done.
    fn open_up(&self) -> Result<()> {
        for (i, step) in self.steps.iter().enumerate() {
            let (true, Some(before)) = (step.is_same_dir() || step.removes_dir(), &step.before) else { continue };
            if before.mode & 0o300 == 0o300 || rustix::process::geteuid().is_root() {
                continue;
            }
            self.fault.point().map_err(self.call(i, "change the mode of"))?;
            let open = self.hold(i).and_then(|fd| meta::open_up(fd.as_fd(), 0o700));
            match open {
                // It was removed already.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(self.call(i, "change the mode of")(errno)),
            }
        }
        Ok(())
    }

    /// The name of a step itself, of the root too.
    fn hold(&self, i: usize) -> Result<OwnedFd, Errno> {
        let step = &self.steps[i];
        if step.path.as_os_str().is_empty() {
            return self.roots[step.root].host.place(Path::new(""));
        }
        self.name(i)?.hold()
    }

    /// Copies what is to be displaced, where it cannot be moved into the store.
    fn back_up(&self) -> Result<()> {
        let mut linked: HashMap<(usize, u64), usize> = HashMap::new();
        for (i, step) in self.steps.iter().enumerate() {
            let Some(old) = step.old.filter(|_| step.displaces() && !self.moves[step.root].with_store) else {
                continue;
            };
            let fail = self.call(i, "back up");
            let object = self.object(i).map_err(&fail)?;
            if let Some(twin) = linked.get(&(step.root, old.ino)) {
                let twin = self.object(*twin).map_err(&fail)?;
                self.fault.point().map_err(&fail)?;
                rustix::fs::linkat(&*twin.dir, &twin.name, &*object.dir, &object.name, AtFlags::empty())
                    .map_err(&fail)?;
                continue;
            }
            let name = self.name(i).map_err(&fail)?;
            self.fault.point().map_err(&fail)?;
            let from = From { dir: name.dir.as_fd(), name: &name.name, layer: false, unseen: false };
            copy(from, object.dir.as_fd(), &object.name).map_err(&fail)?;
            if old.links > 1 {
                linked.insert((step.root, old.ino), i);
            }
        }
        Ok(())
    }

    /// What lies at the sources, and how many of the steps take each file.
    fn sources(&self) -> Result<Sources> {
        let mut sources = Sources { stats: Vec::new(), names: HashMap::new(), fixed: HashSet::new() };
        for (i, step) in self.steps.iter().enumerate() {
            let New::Object { .. } = step.new else {
                sources.stats.push(None);
                continue;
            };
            let fail = self.call(i, "look at the new content of");
            let stat = self.source(i).and_then(|spot| spot.stat()).map_err(&fail)?;
            let stat = stat.ok_or_else(|| fail(Errno::NOENT))?;
            let key = (stat.st_dev, stat.st_ino);
            *sources.names.entry(key).or_default() += 1;
            // All names of a file are moved, or it is copied once and linked.
            let parent = step.path.parent().unwrap_or(Path::new(""));
            if stat.st_nlink > 1 && self.takes_from_layer(i) && self.opaque(step.root, parent).map_err(&fail)? {
                sources.fixed.insert(key);
            }
            sources.stats.push(Some(stat));
        }
        Ok(sources)
    }

    fn stage_object(&mut self, i: usize, sources: &Sources, linked: &mut HashMap<(u64, u64), usize>) -> Result<()> {
        let fail = self.call(i, "stage");
        let Some(stat) = &sources.stats[i] else { return Ok(()) };
        let key = (stat.st_dev, stat.st_ino);
        let (source, staged) = (self.source(i).map_err(&fail)?, self.staged(i).map_err(&fail)?);
        let several = stat.st_nlink > 1;
        self.fault.point().map_err(&fail)?;
        if matches!(self.steps[i].new, New::Object { from: Source::Linked(_), .. }) {
            rustix::fs::linkat(&*source.dir, &source.name, &*staged.dir, &staged.name, AtFlags::empty())
                .map_err(&fail)?;
        } else if let Some(twin) = linked.get(&key) {
            let twin = self.staged(*twin).map_err(&fail)?;
            rustix::fs::linkat(&*twin.dir, &twin.name, &*staged.dir, &staged.name, AtFlags::empty()).map_err(&fail)?;
        } else {
            // A name that stays behind would share the file with the user's: then it is copied.
            // Out of the store all of it comes back, to whatever names it has on the host.
            let links = usize::try_from(stat.st_nlink).unwrap_or(usize::MAX);
            let whole = sources.names.get(&key) == Some(&links) && !sources.fixed.contains(&key);
            let moved = (whole || !self.takes_from_layer(i)) && self.move_in(i, &source, &staged).map_err(&fail)?;
            if !moved {
                let from = From {
                    dir: source.dir.as_fd(),
                    name: &source.name,
                    layer: self.takes_from_layer(i),
                    unseen: !self.settlement.head.mounted,
                };
                copy(from, staged.dir.as_fd(), &staged.name).map_err(&fail)?;
                if several {
                    linked.insert(key, i);
                }
            }
        }
        if let New::Object { meta: Some(meta), .. } = &self.steps[i].new {
            meta.put(staged.hold().map_err(&fail)?.as_fd()).map_err(&fail)?;
        }
        self.new[i] = staged.stat().map_err(&fail)?.map(|stat| stat.st_ino);
        Ok(())
    }

    /// Moves instead of copying, where both lie in one file system.
    fn move_in(&self, i: usize, source: &Spot, staged: &Spot) -> Result<bool, Errno> {
        let step = &self.steps[i];
        if self.takes_from_layer(i) {
            let here = (step.root, step.path.parent().unwrap_or(Path::new("")));
            if !self.moves[step.root].from_layer
                || self.opaque(here.0, here.1)?
                || meta::has_escaped(source.hold()?.as_fd())?
            {
                return Ok(false);
            }
        } else if !self.moves[step.root].with_store {
            return Ok(false);
        }
        match shift((source.dir.as_fd(), &source.name), (staged.dir.as_fd(), &staged.name)) {
            Ok(()) => {}
            // Subvolumes and project quotas: one mount, and yet no rename.
            Err(Errno::XDEV) => return Ok(false),
            Err(errno) => return Err(errno),
        }
        let held = staged.hold()?;
        if self.takes_from_layer(i) && !meta::is_link(&rustix::fs::statat(&held, "", AtFlags::EMPTY_PATH)?) {
            meta::take_off_marks(held.as_fd())?;
        }
        Ok(true)
    }

    /// Does a directory of the layer hide what the host has there? A name that left it would read as a deletion.
    fn opaque(&self, root: usize, path: &Path) -> Result<bool, Errno> {
        let key = (root, path.to_path_buf());
        if let Some(known) = self.opaque.borrow().get(&key) {
            return Ok(*known);
        }
        let above = match path.parent() {
            Some(parent) => self.opaque(root, parent)?,
            None => false,
        };
        let opaque = above || {
            let upper = self.roots[root].upper.as_ref().ok_or(Errno::NOENT)?;
            marks(upper.dir(path)?)?.opaque
        };
        self.opaque.borrow_mut().insert(key, opaque);
        Ok(opaque)
    }

    fn stage_dir(&mut self, i: usize) -> Result<()> {
        let fail = self.call(i, "stage");
        let staged = self.staged(i).map_err(&fail)?;
        self.fault.point().map_err(&fail)?;
        rustix::fs::mkdirat(&*staged.dir, &staged.name, Mode::RWXU).map_err(&fail)?;
        self.new[i] = staged.stat().map_err(&fail)?.map(|stat| stat.st_ino);
        Ok(())
    }

    /// The metadata of staged directories, when nothing more is made in them.
    fn staged_metas(&self) -> Result<()> {
        for i in (0..self.steps.len()).rev() {
            if let New::Dir(meta) = &self.steps[i].new {
                let fail = self.call(i, "set the mode and times of");
                let held = self.staged(i).and_then(|spot| spot.hold()).map_err(&fail)?;
                meta.put(held.as_fd()).map_err(&fail)?;
            }
        }
        self.forget_dir();
        Ok(())
    }

    /// Everything on disk: the staged and the stored.
    fn sync(&self) -> Result<()> {
        self.fault.point().map_err(|errno| self.journal(errno))?;
        for root in self.roots {
            let call = |errno| EngineError::Call { what: "sync", path: root.path.clone(), errno };
            let top = root.host.dir(Path::new("")).map_err(call)?;
            rustix::fs::syncfs(&top).map_err(call)?;
        }
        rustix::fs::syncfs(&self.settlement.objects).map_err(|errno| self.journal(errno))
    }

    // ---- forward: from the commit on

    fn publish(&mut self, left: usize) -> Result<Summary> {
        self.open_up()?;
        let mut after: Vec<After> = vec![None; self.steps.len()];
        // Deepest first, so that a directory is empty when its turn comes.
        for i in (0..self.steps.len()).rev() {
            if self.steps[i].new == New::Gone {
                self.remove(i)?;
            }
        }
        for i in 0..self.steps.len() {
            if self.tops[i].is_some() {
                continue;
            }
            match &self.steps[i].new {
                New::Object { .. } => self.put(i)?,
                New::Dir(_) => self.put_dir(i)?,
                New::Gone | New::Same(_) => {}
            }
        }
        for same_dirs in [false, true] {
            for i in (0..self.steps.len()).rev() {
                let step = &self.steps[i];
                if step.is_same_dir() != same_dirs {
                    continue;
                }
                match &step.new {
                    New::Same(meta) => after[i] = self.put_meta(i, meta)?,
                    New::Object { .. } | New::Dir(_) => after[i] = self.stands(i)?,
                    New::Gone => {}
                }
            }
        }
        self.sync()?;
        let bytes = self.steps.iter().filter(|step| step.displaces()).filter_map(|step| step.old);
        let bytes = bytes.map(|old| u64::try_from(old.size).unwrap_or(0)).sum();
        let changed = self.steps.iter().filter(|step| !matches!(step.new, New::Same(_))).count();
        let summary = Summary { changed, left, bytes };
        self.settlement.finish(&after, summary).map_err(|errno| self.journal(errno))?;
        Ok(summary)
    }

    fn put_meta(&self, i: usize, meta: &Meta) -> Result<After> {
        let fail = self.call(i, "set the mode and times of");
        self.fault.point().map_err(&fail)?;
        let held = self.hold(i).map_err(&fail)?;
        let stat = rustix::fs::statat(&held, "", AtFlags::EMPTY_PATH).map_err(&fail)?;
        if meta::is_link(&stat) {
            let name = self.name(i).map_err(&fail)?;
            meta.put_link(name.dir.as_fd(), &name.name).map_err(&fail)?;
        } else {
            meta.put(held.as_fd()).map_err(&fail)?;
        }
        let stat = rustix::fs::statat(&held, "", AtFlags::EMPTY_PATH).map_err(&fail)?;
        Ok(Some((stat.st_ino, meta::ctime(&stat))))
    }

    /// What stands at a name now. Inside a new directory that nobody may enter it is what was staged.
    fn stands(&self, i: usize) -> Result<After> {
        match self.name(i).and_then(|name| name.stat()) {
            Ok(stat) => Ok(stat.map(|stat| (stat.st_ino, meta::ctime(&stat)))),
            Err(Errno::ACCESS) => Ok(self.new[i].map(|ino| (ino, (0, 0)))),
            Err(errno) => Err(self.call(i, "look at")(errno)),
        }
    }

    /// Takes a name out of the way.
    fn remove(&self, i: usize) -> Result<()> {
        let step = &self.steps[i];
        let Some(old) = &step.old else { return Ok(()) };
        let fail = self.call(i, "remove");
        let name = match self.name(i) {
            // The directory that held it is gone already.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            other => other.map_err(&fail)?,
        };
        self.fault.point().map_err(&fail)?;
        if old.dir {
            self.forget_dir();
            // Another thing stands there already: it was put there before a kill.
            if name.stat().map_err(&fail)?.is_none_or(|stat| stat.st_ino != old.ino) {
                return Ok(());
            }
            return match rustix::fs::unlinkat(&*name.dir, &name.name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => Err(self.changed(i)),
                Err(errno) => Err(fail(errno)),
            };
        }
        let temp = self.beside(i).map_err(&fail)?;
        let stat = name.stat().map_err(&fail)?;
        if let Some(stat) = stat.filter(|stat| stat.st_ino == old.ino) {
            if !old.is(&stat) {
                return Err(self.changed(i));
            }
            shift((name.dir.as_fd(), &name.name), (temp.dir.as_fd(), &temp.name)).map_err(&fail)?;
        } else if stat.is_some() && !self.is_new(&step.path, step.root, stat.as_ref()) {
            return Err(self.changed(i));
        }
        self.dispose(i, &temp)
    }

    /// Is it what another step of the same name has put there?
    fn is_new(&self, path: &Path, root: usize, stat: Option<&Stat>) -> bool {
        let mut others = self.steps.iter().zip(&self.new);
        others.any(|(step, new)| {
            step.root == root && step.path == path && stat.is_some_and(|stat| *new == Some(stat.st_ino))
        })
    }

    fn changed(&self, i: usize) -> EngineError {
        EngineError::Changed { path: self.absolute(&self.steps[i]) }
    }

    /// The name beside a step's own; the same as where its object is staged, unless it lies in a staged directory.
    fn beside(&self, i: usize) -> Result<Spot, Errno> {
        let step = &self.steps[i];
        let dir = self.dir(step.root, step.path.parent().unwrap_or(Path::new("")))?;
        Ok(Spot { dir, name: c_name(OsStr::new(&self.temp(i))) })
    }

    /// Puts a staged object at its name.
    fn put(&self, i: usize) -> Result<()> {
        let fail = self.call(i, "replace");
        let (name, temp) = (self.name(i).map_err(&fail)?, self.beside(i).map_err(&fail)?);
        self.repair(i, &name, &temp).map_err(&fail)?;
        let staged = temp.stat().map_err(&fail)?;
        self.fault.point().map_err(&fail)?;
        if staged.as_ref().is_some_and(|stat| Some(stat.st_ino) == self.new[i]) {
            let there = name.stat().map_err(&fail)?;
            match (&self.steps[i].old, there) {
                (None, None) => {
                    return shift((temp.dir.as_fd(), &temp.name), (name.dir.as_fd(), &name.name)).map_err(&fail);
                }
                (Some(old), Some(stat)) if old.is(&stat) => {
                    self.exchange(i, &name, &temp).map_err(&fail)?;
                    let displaced = temp.stat().map_err(&fail)?;
                    if displaced.is_none_or(|stat| stat.st_ino != old.ino) {
                        // The host was faster by a moment: what it saved goes back to its name.
                        self.exchange(i, &name, &temp).map_err(&fail)?;
                        return Err(self.changed(i));
                    }
                }
                (_, _) => return Err(self.changed(i)),
            }
        }
        self.dispose(i, &temp)
    }

    fn put_dir(&self, i: usize) -> Result<()> {
        let fail = self.call(i, "make");
        let (name, temp) = (self.name(i).map_err(&fail)?, self.beside(i).map_err(&fail)?);
        self.fault.point().map_err(&fail)?;
        self.forget_dir();
        if temp.stat().map_err(&fail)?.is_some() {
            match shift((temp.dir.as_fd(), &temp.name), (name.dir.as_fd(), &name.name)) {
                Err(Errno::EXIST) => return Err(self.changed(i)),
                done => done.map_err(&fail)?,
            }
        }
        Ok(())
    }

    /// Exchanges two names in one act, or over a third one.
    fn exchange(&self, i: usize, name: &Spot, temp: &Spot) -> Result<(), Errno> {
        let flags = RenameFlags::EXCHANGE;
        match rustix::fs::renameat_with(&*name.dir, &name.name, &*temp.dir, &temp.name, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let third = self.third(i)?;
                shift((name.dir.as_fd(), &name.name), (third.dir.as_fd(), &third.name))?;
                shift((temp.dir.as_fd(), &temp.name), (name.dir.as_fd(), &name.name))?;
                shift((third.dir.as_fd(), &third.name), (temp.dir.as_fd(), &temp.name))
            }
            other => other,
        }
    }

    /// Finishes an exchange over a third name that was killed on its way.
    fn repair(&self, i: usize, name: &Spot, temp: &Spot) -> Result<(), Errno> {
        let third = self.third(i)?;
        if third.stat()?.is_none() {
            return Ok(());
        }
        let to = if name.stat()?.is_none() { name } else { temp };
        shift((third.dir.as_fd(), &third.name), (to.dir.as_fd(), &to.name))
    }

    /// Takes what was displaced into the store, or back into the layer that it came from.
    fn dispose(&self, i: usize, temp: &Spot) -> Result<()> {
        let fail = self.call(i, "store what stood at");
        let step = &self.steps[i];
        let Some(old) = &step.old else { return Ok(()) };
        let displaced = temp.stat().map_err(&fail)?;
        let Some(displaced) = displaced.filter(|stat| stat.st_ino == old.ino) else { return Ok(()) };
        let from = (temp.dir.as_fd(), &temp.name);
        self.fault.point().map_err(&fail)?;
        if step.home && self.moves[step.root].from_layer {
            let layer = self.in_layer(i);
            if layer.is_ok_and(|layer| shift(from, (layer.dir.as_fd(), &layer.name)).is_ok()) {
                return Ok(());
            }
        }
        let object = self.object(i).map_err(&fail)?;
        let to = (object.dir.as_fd(), &object.name);
        if self.moves[step.root].with_store {
            match shift(from, to) {
                Err(Errno::XDEV) => {}
                other => return other.map_err(&fail),
            }
        }
        if object.stat().map_err(&fail)?.is_none() {
            let from = From { dir: from.0, name: from.1, layer: false, unseen: true };
            copy(from, to.0, to.1).map_err(&fail)?;
        }
        let flags = if meta::is_dir(&displaced) { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(temp.dir.as_fd(), &temp.name, flags).map_err(&fail)
    }

    // ---- backward

    /// Puts everything back, from wherever it stopped.
    pub fn backward(&mut self) -> Result<()> {
        self.forget_dir();
        self.open_up()?;
        let count = self.steps.len();
        for i in (0..count).rev().filter(|i| self.tops[*i].is_none()) {
            match &self.steps[i].new {
                New::Object { .. } => self.unput(i)?,
                New::Dir(_) => self.unput_dir(i)?,
                New::Gone | New::Same(_) => {}
            }
        }
        for i in 0..count {
            if self.steps[i].new == New::Gone {
                self.bring_back(i)?;
            }
        }
        for i in (0..count).rev() {
            let step = &self.steps[i];
            let Some(before) = &step.before else { continue };
            if step.is_same_dir() || step.removes_dir() || self.is_before_or_after(i)? {
                self.put_meta(i, before)?;
            }
        }
        self.sync()
    }

    /// Has a file whose metadata alone is changed still the content that it had, and so the old or the new time?
    fn is_before_or_after(&self, i: usize) -> Result<bool> {
        let step = &self.steps[i];
        let (New::Same(new), Some(old)) = (&step.new, &step.old) else { return Ok(false) };
        let stat = self.name(i).and_then(|name| name.stat()).map_err(self.call(i, "look at"))?;
        Ok(stat.is_some_and(|stat| {
            let now = Seen::of(&stat);
            (now.ino, now.size) == (old.ino, old.size) && (now.mtime == old.mtime || now.mtime == new.mtime)
        }))
    }

    /// What stands at the names of a settlement that was taken back, where it is what stood there before: the change
    /// times are ours. Of a directory that cannot be told from a change of the host's in between.
    pub fn left(&self) -> Vec<Touched> {
        let mut left = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            let Some(old) = &step.old else { continue };
            let stat = self.hold(i).and_then(|held| rustix::fs::statat(&held, "", AtFlags::EMPTY_PATH));
            let Ok(stat) = stat else { continue };
            let now = Seen::of(&stat);
            if old.dir && now.dir || (now.size, now.mtime) == (old.size, old.mtime) {
                left.push(Touched {
                    root: step.root,
                    path: step.path.clone(),
                    after: Some((stat.st_ino, meta::ctime(&stat))),
                });
            }
        }
        left
    }

    /// Takes a published object away again, and brings back what it displaced.
    fn unput(&self, i: usize) -> Result<()> {
        let fail = self.call(i, "put back");
        let (name, temp) = match (self.name(i), self.beside(i)) {
            (Ok(name), Ok(temp)) => (name, temp),
            (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), _) => return Ok(()),
            (Err(errno), _) | (_, Err(errno)) => return Err(fail(errno)),
        };
        self.repair(i, &name, &temp).map_err(&fail)?;
        let there = name.stat().map_err(&fail)?;
        if self.new[i].is_some() && there.map(|stat| stat.st_ino) == self.new[i] {
            self.fault.point().map_err(&fail)?;
            match &self.steps[i].old {
                None => shift((name.dir.as_fd(), &name.name), (temp.dir.as_fd(), &temp.name)).map_err(&fail)?,
                Some(old) => {
                    self.displaced_to(i, old, &temp)?;
                    self.exchange(i, &name, &temp).map_err(&fail)?;
                }
            }
        }
        self.unstage(i, &temp)
    }

    /// Finds what a step displaced, and gives it the name beside.
    fn displaced_to(&self, i: usize, old: &Seen, temp: &Spot) -> Result<()> {
        let fail = self.call(i, "put back");
        let at_temp = temp.stat().map_err(&fail)?;
        if at_temp.as_ref().is_some_and(|stat| stat.st_ino == old.ino) {
            return Ok(());
        }
        if at_temp.is_some() {
            // A copy that was not finished.
            rustix::fs::unlinkat(&*temp.dir, &temp.name, AtFlags::empty()).map_err(&fail)?;
        }
        self.fault.point().map_err(&fail)?;
        let to = (temp.dir.as_fd(), &temp.name);
        if self.steps[i].home
            && let Ok(layer) = self.in_layer(i)
            && layer.stat().map_err(&fail)?.is_some_and(|stat| stat.st_ino == old.ino)
        {
            return shift((layer.dir.as_fd(), &layer.name), to).map_err(&fail);
        }
        let object = self.object(i).map_err(&fail)?;
        if self.moves[self.steps[i].root].with_store {
            match shift((object.dir.as_fd(), &object.name), to) {
                Err(Errno::XDEV) => {}
                other => return other.map_err(&fail),
            }
        }
        let from = From { dir: object.dir.as_fd(), name: &object.name, layer: false, unseen: true };
        copy(from, to.0, to.1).map_err(&fail)
    }

    /// Gives a staged object back to where it came from.
    fn unstage(&self, i: usize, staged: &Spot) -> Result<()> {
        let fail = self.call(i, "take back");
        let Some(stat) = staged.stat().map_err(&fail)? else { return Ok(()) };
        // Before the commit no inode is known, and only what was staged can be there.
        if self.new[i].is_some_and(|ino| ino != stat.st_ino) {
            return Ok(());
        }
        self.fault.point().map_err(&fail)?;
        if let Ok(source) = self.source(i)
            && source.stat().map_err(&fail)?.is_none()
        {
            return shift((staged.dir.as_fd(), &staged.name), (source.dir.as_fd(), &source.name)).map_err(&fail);
        }
        rustix::fs::unlinkat(&*staged.dir, &staged.name, AtFlags::empty()).map_err(&fail)
    }

    fn unput_dir(&self, i: usize) -> Result<()> {
        let fail = self.call(i, "put back");
        let (name, temp) = match (self.name(i), self.beside(i)) {
            (Ok(name), Ok(temp)) => (name, temp),
            (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), _) => return Ok(()),
            (Err(errno), _) | (_, Err(errno)) => return Err(fail(errno)),
        };
        self.forget_dir();
        let there = name.stat().map_err(&fail)?;
        if self.new[i].is_some() && there.map(|stat| stat.st_ino) == self.new[i] {
            self.fault.point().map_err(&fail)?;
            shift((name.dir.as_fd(), &name.name), (temp.dir.as_fd(), &temp.name)).map_err(&fail)?;
        }
        if temp.stat().map_err(&fail)?.is_none() {
            return Ok(());
        }
        // Modes of the command's own may bar the way in.
        for (k, step) in self.steps.iter().enumerate() {
            if (k == i || self.tops[k] == Some(i)) && matches!(step.new, New::Dir(_)) {
                let opened =
                    self.staged(k).and_then(|spot| spot.hold()).and_then(|fd| meta::open_up(fd.as_fd(), 0o700));
                match opened {
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(fail(errno)),
                }
            }
        }
        for k in (0..self.steps.len()).filter(|k| self.tops[*k] == Some(i)) {
            if matches!(self.steps[k].new, New::Object { .. }) {
                match self.staged(k) {
                    Ok(staged) => self.unstage(k, &staged)?,
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(fail(errno)),
                }
            }
        }
        self.forget_dir();
        remove::purge(temp.dir.as_fd(), OsStr::from_bytes(temp.name.as_bytes())).map_err(|(_, errno)| fail(errno))
    }

    /// Puts back what was removed.
    fn bring_back(&self, i: usize) -> Result<()> {
        let step = &self.steps[i];
        let Some(old) = &step.old else { return Ok(()) };
        let fail = self.call(i, "put back");
        let (name, temp) = (self.name(i).map_err(&fail)?, self.beside(i).map_err(&fail)?);
        if name.stat().map_err(&fail)?.is_some() {
            return Ok(());
        }
        self.fault.point().map_err(&fail)?;
        if old.dir {
            self.forget_dir();
            return rustix::fs::mkdirat(&*name.dir, &name.name, Mode::RWXU).map_err(&fail);
        }
        self.displaced_to(i, old, &temp)?;
        shift((temp.dir.as_fd(), &temp.name), (name.dir.as_fd(), &name.name)).map_err(&fail)
    }
}

struct Sources {
    stats: Vec<Option<Stat>>,
    /// How many steps take each file.
    names: HashMap<(u64, u64), usize>,
    /// Files of which a name must stay where it is.
    fixed: HashSet<(u64, u64)>,
}

fn tops(steps: &[Step]) -> Vec<Option<usize>> {
    let dirs: HashMap<(usize, &Path), usize> = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| matches!(step.new, New::Dir(_)))
        .map(|(i, step)| ((step.root, step.path.as_path()), i))
        .collect();
    let top = |step: &Step| {
        let mut above: Vec<&Path> = step.path.ancestors().skip(1).collect();
        above.reverse();
        above.into_iter().find_map(|path| dirs.get(&(step.root, path)).copied())
    };
    // What goes makes way for what is new, and lies in no new directory.
    steps.iter().map(|step| if step.new == New::Gone { None } else { top(step) }).collect()
}
