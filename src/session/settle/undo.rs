//! The way back: from what settlements did to the steps that undo them, as far as nobody changed the names since.

use super::engine::Root;
use super::journal::{After, Settlement};
use super::meta::{self, Meta};
use super::step::{New, Seen, Source, Step};
use crate::session::changes::{ChangesError, Remark};
use crate::session::tree;
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What stood at a name before the first of the settlements, and what the last of them left there.
struct Past {
    before: Before,
    after: After,
    /// The last settlement took its object out of the layer.
    from_layer: bool,
}

#[derive(Clone)]
enum Before {
    Nothing,
    Object(Source),
    Dir(Meta),
    /// The same thing, with this metadata. The flag: a directory.
    Same(Meta, bool),
}

#[derive(Debug, Default)]
pub struct WayBack {
    pub steps: Vec<Step>,
    /// By absolute host path: what was changed since, and is left as it is.
    pub conflicts: Vec<Remark>,
}

type Key = (usize, PathBuf);

/// Folds settlements, oldest first, into one past for each name.
fn past(settlements: &[(Settlement, Vec<Step>)]) -> Result<BTreeMap<Key, Past>, Errno> {
    let mut all: BTreeMap<Key, Past> = BTreeMap::new();
    for (settlement, steps) in settlements {
        let mut now: BTreeMap<Key, Past> = BTreeMap::new();
        for (i, (step, after)) in steps.iter().zip(settlement.after()?).enumerate() {
            let stored = || Before::Object(Source::Stored { settlement: settlement.number, object: i });
            let before = match (&step.new, &step.before, step.old) {
                (New::Same(_), Some(meta), old) => Before::Same(meta.clone(), old.is_some_and(|old| old.dir)),
                (New::Gone, Some(meta), Some(Seen { dir: true, .. })) => Before::Dir(meta.clone()),
                (New::Gone | New::Object { .. }, _, Some(Seen { dir: false, .. })) => stored(),
                (_, _, _) => Before::Nothing,
            };
            let from_layer = matches!(step.new, New::Object { from: Source::Layer, .. });
            let key = (step.root, step.path.clone());
            match now.get_mut(&key) {
                // What went and what came in its place: the first says what was, the second what is.
                Some(first) => (first.after, first.from_layer) = (after, from_layer),
                None => {
                    now.insert(key, Past { before, after, from_layer });
                }
            }
        }
        for (key, new) in now {
            match all.get_mut(&key) {
                Some(known) => {
                    // Metadata alone was changed first, and then the whole: the stored one has the later metadata.
                    if matches!(known.before, Before::Same(..)) && !matches!(new.before, Before::Same(..)) {
                        known.before = new.before;
                    }
                    (known.after, known.from_layer) = (new.after, new.from_layer);
                }
                None => {
                    all.insert(key, new);
                }
            }
        }
    }
    Ok(all)
}

struct Walk<'a> {
    roots: &'a [Root],
    ours: &'a HashMap<Key, Vec<After>>,
    force: bool,
    out: WayBack,
    /// Directories that are to go.
    going: BTreeMap<Key, (Seen, Meta)>,
    /// Names that go from each directory.
    leaving: HashMap<Key, BTreeSet<std::ffi::OsString>>,
}

/// # Errors
/// A name of the host, or the journal, that cannot be read.
pub fn way_back(
    roots: &[Root],
    settlements: &[(Settlement, Vec<Step>)],
    ours: &HashMap<Key, Vec<After>>,
    force: bool,
) -> Result<WayBack, ChangesError> {
    let journal = |errno| ChangesError::Look { path: PathBuf::from("the session's journal"), errno };
    let all = past(settlements).map_err(journal)?;
    let mut walk =
        Walk { roots, ours, force, out: WayBack::default(), going: BTreeMap::new(), leaving: HashMap::new() };
    // A directory that comes back comes before what was in it.
    for (key, past) in &all {
        walk.name(key, past)?;
    }
    walk.directories()?;
    walk.parents()?;
    let mut out = walk.out;
    out.steps.sort_by(|a, b| {
        let gone = |step: &Step| step.new != New::Gone;
        a.root.cmp(&b.root).then_with(|| a.path.cmp(&b.path)).then_with(|| gone(a).cmp(&gone(b)))
    });
    out.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

impl Walk<'_> {
    fn error(&self, key: &Key, errno: Errno) -> ChangesError {
        ChangesError::Look { path: self.roots[key.0].path.join(&key.1), errno }
    }

    fn conflict(&mut self, key: &Key, why: &str) {
        let path = self.roots[key.0].path.join(&key.1);
        self.out.conflicts.push(Remark { path, text: why.to_owned() });
    }

    fn now(&self, key: &Key) -> Result<Option<(OwnedFd, Stat)>, ChangesError> {
        let host = &self.roots[key.0].host;
        let hold = || match (key.1.parent(), key.1.file_name()) {
            (Some(parent), Some(name)) => meta::hold(host.place(parent)?, name),
            (_, _) => host.place(Path::new("")),
        };
        match hold() {
            Ok(fd) => {
                let stat = rustix::fs::statat(&fd, "", AtFlags::EMPTY_PATH).map_err(|errno| self.error(key, errno))?;
                Ok(Some((fd, stat)))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(self.error(key, errno)),
        }
    }

    fn step(&mut self, key: &Key, old: Option<Seen>, before: Option<Meta>, new: New, home: bool) {
        let home = home && new_displaces(&new, old);
        self.out.steps.push(Step { root: key.0, path: key.1.clone(), old, before, new, home });
    }

    fn leaves(&mut self, key: &Key) {
        if let (Some(parent), Some(name)) = (key.1.parent(), key.1.file_name()) {
            self.leaving.entry((key.0, parent.to_path_buf())).or_default().insert(name.to_owned());
        }
    }

    fn name(&mut self, key: &Key, past: &Past) -> Result<(), ChangesError> {
        let now = self.now(key)?;
        let stat = now.as_ref().map(|(_, stat)| *stat);
        let as_left = match (&stat, past.after) {
            (None, None) => true,
            (Some(stat), Some((ino, ctime))) => {
                // Inside a directory that nobody may enter the time could not be read.
                let now = (stat.st_ino, meta::ctime(stat));
                let ours = || self.ours.get(key).is_some_and(|ours| ours.contains(&Some(now)));
                stat.st_ino == ino && (ctime == (0, 0) || now.1 == ctime) || ours()
            }
            (_, _) => false,
        };
        let same_thing = stat.map(|stat| stat.st_ino) == past.after.map(|(ino, _)| ino);
        if let Before::Same(meta, dir) = &past.before {
            return self.metadata(key, now, as_left, same_thing, meta, *dir);
        }
        let is_dir = stat.as_ref().is_some_and(meta::is_dir);
        // What is in a directory changes its times, and is judged name by name.
        let untouched = as_left || is_dir && same_thing;
        if let (Some(_), Before::Dir(_)) = (&stat, &past.before)
            && is_dir
        {
            // It was made again.
            return Ok(());
        }
        if stat.is_none() && matches!(past.before, Before::Nothing) {
            return Ok(());
        }
        if !untouched && (!self.force || is_dir) {
            let why = match (&stat, past.after) {
                (None, _) => "was removed since",
                (Some(_), None) => "was made again since",
                (Some(_), Some(_)) => "was changed since",
            };
            self.conflict(key, why);
            return Ok(());
        }
        let old = stat.as_ref().map(Seen::of);
        if let (true, Some((fd, stat))) = (is_dir, &now) {
            let meta = Meta::of(fd.as_fd(), stat).map_err(|errno| self.error(key, errno))?;
            if matches!(past.before, Before::Nothing | Before::Object(_)) {
                self.going.insert(key.clone(), (Seen::of(stat), meta));
                self.leaves(key);
            }
        }
        match &past.before {
            Before::Nothing if is_dir => {}
            Before::Nothing => {
                self.leaves(key);
                self.step(key, old, None, New::Gone, past.from_layer);
            }
            Before::Object(from) => {
                let old = old.filter(|_| !is_dir);
                self.step(key, old, None, New::Object { from: from.clone(), meta: None }, past.from_layer);
            }
            Before::Dir(meta) => {
                if old.is_some() {
                    self.step(key, old, None, New::Gone, past.from_layer);
                }
                self.step(key, None, None, New::Dir(meta.clone()), false);
            }
            Before::Same(..) => {}
        }
        Ok(())
    }

    fn metadata(
        &mut self,
        key: &Key,
        now: Option<(OwnedFd, Stat)>,
        as_left: bool,
        same_thing: bool,
        meta: &Meta,
        dir: bool,
    ) -> Result<(), ChangesError> {
        let Some((fd, stat)) = now.filter(|_| same_thing) else {
            // Of a directory only the times would have come back.
            if !dir {
                self.conflict(key, "was replaced since");
            }
            return Ok(());
        };
        let before = Meta::of(fd.as_fd(), &stat).map_err(|errno| self.error(key, errno))?;
        if as_left || self.force {
            self.step(key, Some(Seen::of(&stat)), Some(before), New::Same(meta.clone()), false);
        } else if !dir {
            self.conflict(key, "was changed since");
        } else if before.mode != meta.mode {
            // Names came or went since: the directory keeps its times.
            let meta = Meta { mode: meta.mode, ..before.clone() };
            self.step(key, Some(Seen::of(&stat)), Some(before), New::Same(meta), false);
        }
        Ok(())
    }

    /// Directories go, deepest first, where nothing else is in them.
    fn directories(&mut self) -> Result<(), ChangesError> {
        let going = std::mem::take(&mut self.going);
        for (key, (seen, meta)) in going.into_iter().rev() {
            let host = &self.roots[key.0].host;
            let names = host.dir(&key.1).and_then(|dir| tree::names(dir.as_fd()));
            let leaving = self.leaving.get(&key);
            let empty = match names {
                Ok(names) => names.iter().all(|name| leaving.is_some_and(|leaving| leaving.contains(name.os()))),
                // It will be known when it is removed.
                Err(Errno::ACCESS) => true,
                Err(errno) => return Err(self.error(&key, errno)),
            };
            if empty {
                self.step(&key, Some(seen), Some(meta), New::Gone, false);
                continue;
            }
            self.conflict(&key, "holds names that were made since");
            if let (Some(parent), Some(name)) = (key.1.parent(), key.1.file_name()) {
                let above = self.leaving.entry((key.0, parent.to_path_buf())).or_default();
                above.remove(name);
            }
            // What stood there before cannot come back while it is there.
            self.out.steps.retain(|step| (step.root, &step.path) != (key.0, &key.1));
        }
        Ok(())
    }

    /// Every directory in which something is done, so that its mode and times are put back.
    fn parents(&mut self) -> Result<(), ChangesError> {
        let known: BTreeSet<Key> = self
            .out
            .steps
            .iter()
            .filter(|step| matches!(step.new, New::Same(_) | New::Dir(_)) || step.removes_dir())
            .map(|step| (step.root, step.path.clone()))
            .collect();
        let changed = self.out.steps.iter().filter(|step| !matches!(step.new, New::Same(_)));
        let parents: BTreeSet<Key> =
            changed.filter_map(|step| Some((step.root, step.path.parent()?.to_path_buf()))).collect();
        let missing: Vec<Key> = parents.difference(&known).cloned().collect();
        let mut homeless = Vec::new();
        for key in missing {
            match self.now(&key)? {
                Some((fd, stat)) if meta::is_dir(&stat) => {
                    let before = Meta::of(fd.as_fd(), &stat).map_err(|errno| self.error(&key, errno))?;
                    self.step(&key, Some(Seen::of(&stat)), Some(before.clone()), New::Same(before), false);
                }
                Some(_) | None => homeless.push(key),
            }
        }
        for home in homeless {
            let lost: Vec<Key> = (self.out.steps.iter())
                .filter(|step| step.root == home.0 && step.path.starts_with(&home.1) && step.path != home.1)
                .map(|step| (step.root, step.path.clone()))
                .collect();
            for key in &lost {
                self.conflict(key, "its directory was removed since");
            }
            self.out.steps.retain(|step| !lost.iter().any(|key| (key.0, &key.1) == (step.root, &step.path)));
        }
        Ok(())
    }
}

fn new_displaces(new: &New, old: Option<Seen>) -> bool {
    matches!(new, New::Gone | New::Object { .. }) && old.is_some_and(|old| !old.dir)
}
