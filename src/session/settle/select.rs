//! From what a layer says to the steps of its application: each path through the policy once more, and each name of the
//! host against what it was when the run began.

use super::journal::After;
use super::links::Links;
use super::meta::{self, Meta, Time};
use super::step::{New, Seen, Source, Step};
use crate::policy::{Access, Decision, Policy};
use crate::session::changes::{Change, ChangesError, FileKind, Kind, LayerChanges, Remark};
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const CAPABILITY: &[u8] = b"security.capability";

/// What is to be taken over, and how it is judged.
pub struct Question<'a> {
    pub layers: &'a [LayerChanges],
    pub policy: &'a Policy,
    /// When the run began.
    pub started: Time,
    /// What earlier settlements of this session left at a name: a change of theirs is none of the host's.
    pub ours: &'a HashMap<(usize, PathBuf), Vec<After>>,
    /// Of absolute host paths.
    pub only: &'a dyn Fn(&Path) -> bool,
    pub force: bool,
}

#[derive(Debug, Default)]
pub struct Selection {
    pub steps: Vec<Step>,
    /// By absolute host path: the rule that keeps it out.
    pub refused: Vec<Remark>,
    /// By absolute host path: what the host changed.
    pub conflicts: Vec<Remark>,
    /// Changes that are not taken over.
    pub left: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Taken,
    /// Not asked for.
    Unwanted,
    Refused(String),
    /// Something below it stays.
    Holds,
    /// Something above it is not there.
    Homeless,
}

struct Root<'a> {
    number: usize,
    layer: &'a LayerChanges,
    question: &'a Question<'a>,
    verdicts: Vec<Verdict>,
    out: &'a mut Selection,
    /// Files of the layer with several names, of which one keeps its place on the host: by inode.
    staying: Option<HashMap<u64, PathBuf>>,
    /// New objects by what they replace among several names of one file.
    twins: HashMap<u64, Vec<(usize, u64)>>,
}

pub fn select(question: &Question<'_>) -> Result<Selection, ChangesError> {
    let links = Links::new(question.layers, question.policy);
    let mut out = Selection::default();
    for (number, layer) in question.layers.iter().enumerate() {
        let verdicts = layer.changes.iter().map(|change| judge(question, layer, &links, change)).collect();
        let mut root = Root { number, layer, question, verdicts, out: &mut out, staying: None, twins: HashMap::new() };
        root.settle_parents();
        root.tell();
        root.steps()?;
    }
    // A parent before what is in it, and what goes before what comes at the same name.
    out.steps.sort_by(|a, b| {
        let key = |step: &Step| (step.root, step.new != New::Gone);
        a.root.cmp(&b.root).then_with(|| a.path.cmp(&b.path)).then_with(|| key(a).cmp(&key(b)))
    });
    Ok(out)
}

fn refusal(decision: &Decision) -> String {
    match &decision.remedy {
        Some(remedy) => format!("{} (grant: {remedy})", decision.rule),
        None => decision.rule.clone(),
    }
}

fn judge(question: &Question<'_>, layer: &LayerChanges, links: &Links<'_>, change: &Change) -> Verdict {
    let path = layer.root.join(&change.path);
    if !(question.only)(&path) {
        return Verdict::Unwanted;
    }
    let decision = question.policy.decide(&path, Access::Write);
    if !decision.allowed {
        return Verdict::Refused(refusal(&decision));
    }
    let Some(new) = &change.new else { return Verdict::Taken };
    let old_mode = change.old.as_ref().filter(|_| change.kind == Kind::ModeChanged).map_or(0, |old| old.mode);
    let set = new.mode & 0o6000 & !old_mode;
    match &new.kind {
        FileKind::Fifo => Verdict::Refused("a FIFO: no flag applies one".to_owned()),
        FileKind::Socket => Verdict::Refused("a socket: no flag applies one".to_owned()),
        FileKind::Device => Verdict::Refused("a device: no flag applies one".to_owned()),
        FileKind::File if set != 0 => {
            Verdict::Refused("a set-id bit: whoever runs it later would run it as another".to_owned())
        }
        FileKind::Dir if set != 0 && !inherits(layer, &change.path) => {
            Verdict::Refused("a set-id bit that its directory does not hand on".to_owned())
        }
        FileKind::File | FileKind::Dir => Verdict::Taken,
        FileKind::Symlink(target) => match links.leaves(&path, target) {
            Some(decision) => Verdict::Refused(format!("a symlink that leaves the roots: {}", refusal(&decision))),
            None => Verdict::Taken,
        },
    }
}

/// Is a directory above set-group-id on the host, so that a new one in it is so too?
fn inherits(layer: &LayerChanges, path: &Path) -> bool {
    path.ancestors().skip(1).find_map(|above| layer.host.place(above).ok()).is_some_and(|dir| {
        rustix::fs::statat(&dir, "", AtFlags::EMPTY_PATH).is_ok_and(|stat| stat.st_mode & libc::S_ISGID != 0)
    })
}

/// Capabilities of a file that the host's did not have.
fn gains_capability(new: &Meta, before: Option<&Meta>) -> bool {
    let of = |meta: &Meta| -> Option<Vec<u8>> {
        let found = meta.attributes.iter().flatten().find(|(name, _)| name == CAPABILITY);
        found.map(|(_, value)| value.clone())
    };
    of(new).is_some_and(|new| Some(new) != before.and_then(of))
}

fn is_new_dir(change: &Change) -> bool {
    matches!(change.kind, Kind::Created | Kind::TypeChanged) && change.new.as_ref().is_some_and(|new| new.is_dir())
}

fn loses_dir(change: &Change) -> bool {
    matches!(change.kind, Kind::Deleted | Kind::TypeChanged) && change.old.as_ref().is_some_and(|old| old.is_dir())
}

impl Root<'_> {
    /// A directory comes with what is in it, and goes only with all that is in it.
    fn settle_parents(&mut self) {
        let changes = &self.layer.changes;
        let index: HashMap<&Path, usize> =
            changes.iter().enumerate().map(|(i, change)| (change.path.as_path(), i)).collect();
        for (i, change) in changes.iter().enumerate().rev() {
            if self.verdicts[i] == Verdict::Taken || change.new.is_some() && change.old.is_none() {
                continue;
            }
            for above in change.path.ancestors().skip(1) {
                if let Some(&above) = index.get(above).filter(|above| loses_dir(&changes[**above])) {
                    self.verdicts[above] = Verdict::Holds;
                }
            }
        }
        for (i, change) in changes.iter().enumerate() {
            if self.verdicts[i] != Verdict::Taken || change.new.is_none() {
                continue;
            }
            let above: Vec<usize> = change.path.ancestors().skip(1).filter_map(|at| index.get(at).copied()).collect();
            let new_dirs: Vec<usize> = above.into_iter().filter(|above| is_new_dir(&changes[*above])).collect();
            if new_dirs.iter().any(|above| self.verdicts[*above] == Verdict::Holds) {
                self.verdicts[i] = Verdict::Homeless;
                continue;
            }
            // A plain directory alone is not applied for its own sake where a rule is against its name.
            if !changes[i].new.as_ref().is_some_and(|new| new.is_dir()) || new_dirs.is_empty() {
                for above in new_dirs {
                    self.verdicts[above] = Verdict::Taken;
                }
            }
        }
        // A directory that was allowed below one that was not.
        for i in 0..changes.len() {
            let barred = changes[i].path.ancestors().skip(1).any(|at| {
                index
                    .get(at)
                    .is_some_and(|above| is_new_dir(&changes[*above]) && self.verdicts[*above] != Verdict::Taken)
            });
            if barred && self.verdicts[i] == Verdict::Taken {
                self.verdicts[i] = Verdict::Homeless;
            }
        }
    }

    /// Names what is refused: of a whole new directory its own name.
    fn tell(&mut self) {
        let mut barred: HashSet<&Path> = HashSet::new();
        for (change, verdict) in self.layer.changes.iter().zip(&self.verdicts) {
            if *verdict != Verdict::Taken {
                self.out.left += 1;
            }
            let Verdict::Refused(why) = verdict else { continue };
            if is_new_dir(change) {
                barred.insert(&change.path);
            }
            if change.path.ancestors().skip(1).any(|above| barred.contains(above)) {
                continue;
            }
            self.out.refused.push(Remark { path: self.layer.root.join(&change.path), text: why.clone() });
        }
        for remark in &self.layer.refused {
            let path = self.layer.root.join(&remark.path);
            if (self.question.only)(&path) {
                self.out.left += 1;
                self.out.refused.push(Remark { path, text: remark.text.clone() });
            }
        }
    }

    fn error(&self, path: &Path, errno: Errno) -> ChangesError {
        ChangesError::Look { path: self.layer.root.join(path), errno }
    }

    fn conflict(&mut self, path: &Path, why: impl Into<String>) {
        if !self.question.force {
            self.out.conflicts.push(Remark { path: self.layer.root.join(path), text: why.into() });
        }
    }

    /// Did the host touch it since the run began?
    fn touched(&self, path: &Path, stat: &Stat) -> bool {
        let now = (stat.st_ino, meta::ctime(stat));
        let ours = self.question.ours.get(&(self.number, path.to_path_buf()));
        now.1 >= self.question.started && !ours.is_some_and(|ours| ours.contains(&Some(now)))
    }

    fn held(&self, tree: &crate::session::tree::Tree, path: &Path) -> Result<Option<(OwnedFd, Stat)>, ChangesError> {
        let hold = || {
            if path.as_os_str().is_empty() {
                return tree.place(path);
            }
            let dir = tree.place(path.parent().unwrap_or(Path::new("")))?;
            meta::hold(dir, path.file_name().unwrap_or_default())
        };
        match hold() {
            Ok(fd) => {
                let stat = rustix::fs::statat(&fd, "", AtFlags::EMPTY_PATH).map_err(|errno| self.error(path, errno))?;
                Ok(Some((fd, stat)))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(self.error(path, errno)),
        }
    }

    fn of_host(&self, path: &Path) -> Result<Option<(Seen, Stat, Meta)>, ChangesError> {
        let Some((fd, stat)) = self.held(&self.layer.host, path)? else { return Ok(None) };
        let meta = Meta::of(fd.as_fd(), &stat).map_err(|errno| self.error(path, errno))?;
        Ok(Some((Seen::of(&stat), stat, meta)))
    }

    fn of_layer(&self, path: &Path) -> Result<Option<(Stat, Meta)>, ChangesError> {
        let Some((fd, stat)) = self.held(&self.layer.upper, path)? else { return Ok(None) };
        let meta = Meta::of_layer(fd.as_fd(), &stat).map_err(|errno| self.error(path, errno))?;
        Ok(Some((stat, meta)))
    }

    fn step(&mut self, path: &Path, old: Option<Seen>, before: Option<Meta>, new: New) {
        let step = Step { root: self.number, path: path.to_path_buf(), old, before, new, home: false };
        self.out.steps.push(step);
    }

    fn steps(&mut self) -> Result<(), ChangesError> {
        let layer = self.layer;
        for (i, change) in layer.changes.iter().enumerate() {
            if self.verdicts[i] == Verdict::Taken {
                self.change(change)?;
            }
        }
        self.check_twins();
        let mut done: HashSet<PathBuf> = HashSet::new();
        let mut parents = BTreeSet::new();
        for step in self.out.steps.iter().filter(|step| step.root == self.number) {
            done.insert(step.path.clone());
            if !matches!(step.new, New::Same(_))
                && let Some(parent) = step.path.parent()
            {
                parents.insert(parent.to_path_buf());
            }
        }
        // What stays behind in a directory changed its times for the command alone.
        let tainted: HashSet<&Path> = (layer.changes.iter().zip(&self.verdicts))
            .filter(|(_, verdict)| **verdict != Verdict::Taken)
            .filter_map(|(change, _)| change.path.parent())
            .chain(layer.refused.iter().filter_map(|remark| remark.path.parent()))
            .collect();
        for path in &layer.quiet {
            let wanted = (self.question.only)(&layer.root.join(path)) || parents.contains(path);
            if wanted && !done.contains(path) && (parents.contains(path) || !tainted.contains(path.as_path())) {
                self.quiet(path, parents.contains(path))?;
                done.insert(path.clone());
            }
        }
        for parent in parents.into_iter().filter(|parent| !done.contains(parent)) {
            self.quiet(&parent, true)?;
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Result<(), ChangesError> {
        let path = change.path.as_path();
        let host = self.of_host(path)?;
        if let Some((seen, stat, _)) = &host
            && self.touched(path, stat)
            && !(seen.dir && change.kind == Kind::Deleted)
        {
            self.conflict(path, "changed on the host since the run began");
        }
        if host.is_none() != (change.kind == Kind::Created) {
            self.conflict(path, "changed on the host at this moment");
            return Ok(());
        }
        let old = host.as_ref().map(|(seen, _, _)| *seen);
        let before = host.map(|(_, _, meta)| meta);
        if change.kind == Kind::Deleted {
            let before = before.filter(|_| old.is_some_and(|old| old.dir));
            self.step(path, old, before, New::Gone);
            return Ok(());
        }
        // It may have gone while the command runs.
        let Some((upper, meta)) = self.of_layer(path)? else { return Ok(()) };
        if gains_capability(&meta, before.as_ref()) {
            let text = "file capabilities: whoever runs it later would have them".to_owned();
            self.out.refused.push(Remark { path: self.layer.root.join(path), text });
            self.out.left += 1;
            return Ok(());
        }
        if change.kind == Kind::ModeChanged {
            self.same(path, old, before, meta);
            return Ok(());
        }
        if change.kind == Kind::Created {
            self.check_directory(path)?;
        }
        let from = match self.twin(&upper)? {
            Some(twin) if !meta::is_dir(&upper) => Source::Linked(twin),
            Some(_) | None => Source::Layer,
        };
        let object = New::Object { from, meta: None };
        let new = if meta::is_dir(&upper) { New::Dir(meta) } else { object };
        let replaces = matches!(new, New::Object { .. }) && old.is_some_and(|old| !old.dir);
        if let (true, Some(seen)) = (replaces, old) {
            if seen.links > 1 {
                self.twins.entry(seen.ino).or_default().push((self.out.steps.len(), upper.st_ino));
            }
            self.step(path, old, None, new);
        } else {
            if old.is_some() {
                let before = before.filter(|_| old.is_some_and(|old| old.dir));
                self.step(path, old, before, New::Gone);
            }
            self.step(path, None, None, new);
        }
        Ok(())
    }

    /// The name of the host that a file of the layer is another name of: that one was not written, so it keeps its
    /// place, and the new name is linked to it.
    fn twin(&mut self, upper: &Stat) -> Result<Option<PathBuf>, ChangesError> {
        if upper.st_nlink < 2 {
            return Ok(None);
        }
        if self.staying.is_none() {
            let mode_only = |change: &&Change| change.kind == Kind::ModeChanged;
            let changes = self.layer.changes.iter().filter(mode_only).map(|change| &change.path);
            let mut staying = HashMap::new();
            for path in self.layer.quiet.iter().chain(changes) {
                let same = |stat: &Stat| !meta::is_dir(stat) && stat.st_nlink > 1;
                if let Some((_, stat)) = self.held(&self.layer.upper, path)?.filter(|(_, stat)| same(stat)) {
                    staying.insert(stat.st_ino, path.clone());
                }
            }
            self.staying = Some(staying);
        }
        Ok(self.staying.as_ref().and_then(|staying| staying.get(&upper.st_ino).cloned()))
    }

    /// A new name says nothing of what the host did to an old one: its directory does.
    fn check_directory(&mut self, path: &Path) -> Result<(), ChangesError> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if let Some((_, stat)) = self.held(&self.layer.host, parent)?
            && meta::is_dir(&stat)
            && self.touched(parent, &stat)
        {
            self.conflict(path, "its directory was changed on the host since the run began");
        }
        Ok(())
    }

    /// A file with several names was changed under one of them: the layer cannot say which of the others mean the same.
    fn check_twins(&mut self) {
        let twins = std::mem::take(&mut self.twins);
        for names in twins.into_values() {
            let Some(&(first, new)) = names.first() else { continue };
            let alike = names.iter().all(|(_, other)| *other == new);
            let links = self.out.steps[first].old.map_or(0, |old| old.links);
            if alike && usize::try_from(links).is_ok_and(|links| links == names.len()) {
                continue;
            }
            for (step, _) in names {
                let path = self.out.steps[step].path.clone();
                self.conflict(&path, "has other names (hard links) that would keep the old content");
            }
        }
    }

    fn same(&mut self, path: &Path, old: Option<Seen>, before: Option<Meta>, mut meta: Meta) {
        if let (true, Some(before)) = (path.as_os_str().is_empty(), &before) {
            // The launcher made the top directory of a layer: its owner and attributes say nothing.
            (meta.uid, meta.gid, meta.attributes) = (before.uid, before.gid, before.attributes.clone());
        }
        self.step(path, old, before, New::Same(meta));
    }

    /// Times, owner and attributes of what is otherwise the same; of a directory in which something is done, always.
    fn quiet(&mut self, path: &Path, parent: bool) -> Result<(), ChangesError> {
        let allowed = self.question.policy.decide(&self.layer.root.join(path), Access::Write).allowed;
        let Some((seen, stat, before)) = self.of_host(path)? else { return Ok(()) };
        let upper = self.of_layer(path)?.filter(|(upper, _)| meta::is_dir(upper) == seen.dir);
        let mut new = match upper {
            Some((_, meta)) if allowed => meta,
            Some(_) | None => before.clone(),
        };
        // Set-id bits and capabilities were not judged: a mode is told as a change of its own.
        new.mode = before.mode;
        if gains_capability(&new, Some(&before)) {
            new.attributes = before.attributes.clone();
        }
        let top = path.as_os_str().is_empty();
        let differs = if top { new.mtime != before.mtime } else { new.differs(&before) };
        if parent || differs && !self.touched(path, &stat) {
            self.same(path, Some(seen), Some(before), new);
        }
        Ok(())
    }
}
