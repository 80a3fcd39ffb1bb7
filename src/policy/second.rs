//! Second names: a hard link to a hidden file holds the same bytes, and one to a frozen file the same way to write them.
//!
//! The first walk looks at the link count of what it hides or freezes. Only where a file has a name that the walk did
//! not come by are the roots walked again, and that walk compares the inode numbers of the listings, judging and looking
//! at nothing else. What bind mounts show under other paths the mount table tells (`alias`).

use super::names::{Inside, Scratch};
use super::scan::{NameJudge, inside_at, survey};
use super::{Access, Entry, EntryKind, Finding, Policy, Section, alias};
use crate::host::Mount;
use crate::path::{self, FileId, Found, Kind, Linked, Verdict};
use crate::profile::Origin;
use rustix::fs::FileType;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// So many files are looked at inside of hidden directories. The rest goes unseen, and that is said.
const MOST: usize = 20_000;
/// Of `.git`, what is packed: not even a second name of it reads as the file that was committed.
const PACKED: [&[u8]; 2] = [b"objects", b"lfs"];

/// A file that is hidden or frozen and has other names.
#[derive(Debug)]
struct Original {
    /// The name that the rule matched.
    path: PathBuf,
    origin: Origin,
    hidden: bool,
    linked: Linked,
    /// The names that were come by so far.
    seen: u64,
}

/// The files that are hidden or frozen and have other names, by their identity.
#[derive(Debug, Default)]
pub struct Originals {
    files: HashMap<FileId, Original>,
    /// The files that may still be looked at inside of hidden directories.
    left: usize,
    /// Hidden directories in which not every file was looked at.
    unseen: Vec<PathBuf>,
}

impl Originals {
    /// Those among what the walk found, in the hidden directories that it did not enter, and among the hidden paths.
    #[must_use]
    pub fn collect(policy: &Policy, mounts: &[Mount], surveys: &[(usize, Vec<Section>)]) -> Originals {
        let mut out = Originals { left: MOST, ..Originals::default() };
        let mut inner = HiddenDirs { skip: HashSet::new(), git: false, left: 0 };
        for (_, sections) in surveys {
            for found in sections.iter().flat_map(|section| &section.findings.found) {
                let (Finding::Hidden(rule) | Finding::Frozen(rule)) = found.rule else { continue };
                let hidden = matches!(found.rule, Finding::Hidden(_));
                let origin = &policy.names.rules[rule].origin;
                if let Some(linked) = found.linked {
                    out.add(&found.path, origin, hidden, linked);
                } else if hidden && found.kind == Some(Kind::Dir) {
                    out.enter(&found.path, origin, mounts, &mut inner);
                }
            }
        }
        let chosen = |entry: &&Entry| entry.kind == EntryKind::Hide && !matches!(entry.origin, Origin::BuiltIn(_));
        for entry in policy.entries.iter().filter(chosen) {
            match entry.file {
                Some(Kind::Dir) => out.enter(&entry.path, &entry.origin, mounts, &mut inner),
                Some(Kind::File) => {
                    if let Some(linked) = path::linked(&entry.path) {
                        out.add(&entry.path, &entry.origin, true, linked);
                    }
                }
                Some(Kind::Socket | Kind::Device | Kind::Fifo) | None => {}
            }
        }
        out
    }

    fn add(&mut self, path: &Path, origin: &Origin, hidden: bool, linked: Linked) {
        let new = |linked| Original { path: path.to_path_buf(), origin: origin.clone(), hidden, linked, seen: 1 };
        match self.files.entry(linked.id) {
            Vacant(place) => drop(place.insert(new(linked))),
            Occupied(mut known) if known.get().hidden == hidden => known.get_mut().seen += 1,
            // Of a file that is both no name may be read, so the frozen one is to be come by again.
            Occupied(mut known) if hidden => drop(known.insert(new(linked))),
            Occupied(_) => {}
        }
    }

    fn enter(&mut self, dir: &Path, origin: &Origin, mounts: &[Mount], inner: &mut HiddenDirs) {
        if inner.skip.is_empty() {
            inner.skip = mounts.iter().map(|mount| mount.at.as_os_str().as_bytes().to_vec()).collect();
        }
        if inner.skip.contains(dir.as_os_str().as_bytes()) {
            return;
        }
        inner.left = self.left;
        inner.git = dir.file_name().is_some_and(|name| name.as_bytes() == b".git");
        // What the caller cannot list it cannot look for, nor can the command.
        let found = path::scan(dir, (), inner).map(|(found, _)| found).unwrap_or_default();
        self.left = inner.left;
        if self.left == 0 {
            self.unseen.push(dir.to_path_buf());
        }
        for (path, linked) in found.into_iter().filter_map(|found| found.linked.map(|linked| (found.path, linked))) {
            self.add(&path, origin, true, linked);
        }
    }

    /// The hidden name of the file, where it has one: for whoever judges names as they are looked up.
    #[must_use]
    pub fn hidden_name(&self, file: FileId) -> Option<&Path> {
        self.files.get(&file).filter(|original| original.hidden).map(|original| original.path.as_path())
    }

    /// The inode numbers, as listings have them, of files that have a name which nobody came by yet.
    fn wanted(&self) -> HashSet<u64> {
        let open = self.files.values().filter(|original| original.seen < original.linked.names);
        open.flat_map(|original| [original.linked.listed, original.linked.id.ino]).collect()
    }
}

/// Every file of a hidden directory, as long as there are not too many.
struct HiddenDirs {
    skip: HashSet<Vec<u8>>,
    git: bool,
    left: usize,
}

impl path::Judge for HiddenDirs {
    type State = ();
    type Rule = ();

    fn judge(&mut self, (): (), path: &[u8], kind: FileType, _: u64) -> (Verdict<()>, Option<()>) {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        match kind {
            _ if self.left == 0 => (Verdict::Skip, None),
            FileType::Directory if self.skip.contains(path) || (self.git && PACKED.contains(&name)) => {
                (Verdict::Skip, None)
            }
            FileType::Directory => (Verdict::Pass(()), None),
            FileType::RegularFile
            | FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                self.left -= 1;
                (Verdict::IfLinked, Some(()))
            }
        }
    }
}

/// Looks for the inode numbers alone among the names that are visible.
struct TwinJudge<'a> {
    names: NameJudge<'a>,
    wanted: &'a HashSet<u64>,
}

impl path::Judge for TwinJudge<'_> {
    type State = Inside;
    type Rule = bool;

    /// The flag says that the name is frozen already.
    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType, ino: u64) -> (Verdict<Inside>, Option<bool>) {
        let dir = kind == FileType::Directory;
        if !dir && !self.wanted.contains(&ino) {
            return (Verdict::Skip, None);
        }
        match self.names.judge(inside, path, kind, ino) {
            (Verdict::Pass(below) | Verdict::Report(below), _) if dir => (Verdict::Pass(below), None),
            (Verdict::Pass(_) | Verdict::Report(_) | Verdict::IfLinked, finding) => {
                (Verdict::IfLinked, Some(matches!(finding, Some(Finding::Frozen(_)))))
            }
            (Verdict::Stop | Verdict::Skip, _) => (Verdict::Skip, None),
        }
    }
}

/// Adds the other names of hidden files to the hidden paths of the policy, and those of frozen files to the read-only
/// ones. `surveys` are those of the policy's entries, and are so still when this returns.
pub fn second_names(policy: &mut Policy, mounts: &[Mount], surveys: &mut Vec<(usize, Vec<Section>)>) {
    let originals = Originals::collect(policy, mounts, surveys);
    for dir in &originals.unseen {
        policy.notices.push(format!(
            "{} is hidden, but holds so many files that not all were looked at: other names of them (hard links) show",
            dir.display()
        ));
    }
    let mut added = twins(policy, &originals, surveys);
    added.extend(other_mounts(policy, mounts, surveys, &added));
    if added.is_empty() {
        return;
    }
    // A frozen directory becomes a root of its own, so what is hidden in it is looked for from there.
    for entry in added.iter_mut().filter(|entry| entry.kind == EntryKind::Ro && entry.file == Some(Kind::Dir)) {
        match survey(policy, entry, mounts, true) {
            Ok(sections) => surveys.push((usize::MAX, sections)),
            Err(_) => entry.kind = EntryKind::Hide,
        }
    }
    policy.entries.append(&mut added);
    // One a path, and hidden before read-only.
    let order = |entry: &Entry| entry.kind != EntryKind::Hide;
    policy.entries.sort_by(|a, b| a.path.cmp(&b.path).then(order(a).cmp(&order(b))));
    policy.entries.dedup_by(|later, first| later.path == first.path);
    for (index, sections) in surveys.iter_mut() {
        let path = sections.first().map_or(Path::new(""), |section| &section.path);
        *index = policy.entries.binary_search_by(|entry| entry.path.as_path().cmp(path)).unwrap_or(*index);
    }
    surveys.sort_by_key(|(index, _)| *index);
    surveys.dedup_by_key(|(index, _)| *index);
}

fn twins(policy: &Policy, originals: &Originals, surveys: &[(usize, Vec<Section>)]) -> Vec<Entry> {
    let wanted = originals.wanted();
    let mut out = Vec::new();
    if wanted.is_empty() {
        return out;
    }
    let mut scratch = Scratch::default();
    for (index, sections) in surveys {
        let Some(entry) = policy.entries.get(*index) else { continue };
        let root_len = entry.path.as_os_str().len();
        let places: Vec<&Path> = sections.iter().map(|section| section.path.as_path()).collect();
        for section in sections.iter().filter(|section| section.dir && !section.unavailable) {
            let inside = if section.path == entry.path {
                Some(Inside::default())
            } else {
                inside_at(policy, entry, &section.path)
            };
            let names = NameJudge::new(policy, entry, &section.path, &places, false);
            let mut judge = TwinJudge { names, wanted: &wanted };
            // The first walk came through here; what is gone since is no name any more.
            let found = inside.and_then(|inside| path::scan(&section.path, inside, &mut judge).ok());
            for (twin, linked) in found.into_iter().flat_map(|(found, _)| found).filter_map(with_links) {
                let Some(original) = originals.files.get(&linked.id) else { continue };
                let asked = policy.names.is_asked_for(twin.path.as_os_str().as_bytes(), root_len, &mut scratch);
                let settled = !original.hidden && (twin.rule || entry.kind == EntryKind::Ro);
                if !asked && !settled && twin.path != original.path {
                    out.push(original.as_entry(twin, &entry.path));
                }
            }
        }
    }
    out
}

/// What is hidden or frozen, at the other paths that bind mounts give it.
fn other_mounts(policy: &Policy, mounts: &[Mount], surveys: &[(usize, Vec<Section>)], twins: &[Entry]) -> Vec<Entry> {
    let shared = alias::shared(policy, mounts);
    let mut out = Vec::new();
    if shared.is_empty() {
        return out;
    }
    let mut scratch = Scratch::default();
    let mut add = |path: &Path, kind: &EntryKind, origin: &Origin| {
        for at in alias::aliases(policy, mounts, &shared, path) {
            let access = if *kind == EntryKind::Hide { Access::Read } else { Access::Write };
            let root_len = policy.entry_at(&at).map_or(0, |root| root.path.as_os_str().len());
            let asked = policy.names.is_asked_for(at.as_os_str().as_bytes(), root_len, &mut scratch);
            // What is there to hide or to freeze: neither what is hidden or frozen by its own name, nor nothing.
            let Some((id, file)) = path::found(&at) else { continue };
            if !asked && policy.decide(&at, access).allowed {
                let what = if *kind == EntryKind::Hide { "hidden" } else { "frozen" };
                let why = Some(format!("another mount of what is {what} at {}", path.display()));
                let (kind, origin) = (kind.clone(), origin.clone());
                out.push(Entry { path: at, kind, origin, why, file: Some(file), id: Some(id) });
            }
        }
    };
    for found in surveys.iter().flat_map(|(_, sections)| sections).flat_map(|section| &section.findings.found) {
        match found.rule {
            Finding::Hidden(rule) => add(&found.path, &EntryKind::Hide, &policy.names.rules[rule].origin),
            Finding::Frozen(rule) if !found.link => add(&found.path, &EntryKind::Ro, &policy.names.rules[rule].origin),
            Finding::Frozen(_) | Finding::Pinned | Finding::Socket | Finding::Unsearchable => {}
        }
    }
    let chosen = |entry: &&Entry| entry.kind == EntryKind::Hide;
    for entry in policy.entries.iter().filter(chosen).chain(twins) {
        add(&entry.path, &entry.kind, &entry.origin);
    }
    out
}

fn with_links<R>(found: Found<R>) -> Option<(Found<R>, Linked)> {
    let linked = found.linked?;
    Some((found, linked))
}

impl Original {
    fn as_entry(&self, twin: Found<bool>, root: &Path) -> Entry {
        let name = self.path.strip_prefix(root).unwrap_or(&self.path).display();
        let (kind, what) = if self.hidden { (EntryKind::Hide, "hidden") } else { (EntryKind::Ro, "frozen") };
        Entry {
            path: twin.path,
            kind,
            origin: self.origin.clone(),
            why: Some(format!("hard link to a {what} file: {name}")),
            file: twin.kind,
            id: Some(self.linked.id),
        }
    }
}

impl Policy {
    /// May `path` be another name of a hidden or frozen file? Only a walk of the roots can tell.
    #[must_use]
    pub fn may_be_second_name(&self, path: &Path) -> bool {
        let found = path::resolve(path, &self.cwd).ok();
        found.is_some_and(|found| {
            self.decide_resolved(&found, Access::Read).allowed
                && self.entry_at(found.path.as_path()).is_some_and(|entry| entry.kind.has_names())
                && path::linked(found.path.as_path()).is_some()
        })
    }
}
