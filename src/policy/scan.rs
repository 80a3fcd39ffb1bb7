//! What a root holds that must be hidden or frozen at launch: the walk of `path`, judged by the name rules.

use super::names::{Inside, NameVerdict, Scratch};
use super::{Access, Decision, Entry, EntryKind, Policy};
use crate::host::{Mount, mounts_below};
use crate::path::{self, Found, Kind, ScanNotice, Verdict, is_at_or_below};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The rule's index.
    Hidden(usize),
    Frozen(usize),
    /// A repository: it stays where it is, so that no other can take its name.
    Pinned,
    /// A socket of the host, which a bind mount would let through.
    Socket,
    /// A directory that the caller may not list: what hides in it nobody can tell, so it hides as a whole.
    Unsearchable,
}

/// All that one root holds.
#[derive(Debug, Default)]
pub struct Findings {
    pub found: Vec<Found<Finding>>,
    pub notices: Vec<ScanNotice>,
}

pub(super) struct NameJudge<'a> {
    policy: &'a Policy,
    root_len: usize,
    /// Entries of their own and mounts not to look into: the walk ends there.
    skip: HashSet<Vec<u8>>,
    /// Those of them that are entries of the policy.
    entries: HashSet<Vec<u8>>,
    live: bool,
    read_only: bool,
    scratch: Scratch,
}

impl<'a> NameJudge<'a> {
    pub(super) fn new(policy: &'a Policy, entry: &Entry, from: &Path, mounts: &[&Path], live: bool) -> NameJudge<'a> {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        // There are as many judges as roots: each must look at its own entries only.
        let entries: HashSet<Vec<u8>> = policy.entries_below(from).map(|other| bytes(&other.path)).collect();
        let below = |path: &&Path| *path != from && is_at_or_below(path, from);
        let mounts = mounts.iter().copied().filter(below).map(bytes);
        NameJudge {
            policy,
            root_len: entry.path.as_os_str().len(),
            skip: entries.iter().cloned().chain(mounts).collect(),
            entries,
            live,
            read_only: entry.kind == EntryKind::Ro,
            scratch: Scratch::default(),
        }
    }
}

impl NameJudge<'_> {
    /// An entry of its own is judged by itself. A mount is looked into apart, but its name counts here like any other:
    /// secrets are handed to containers as files and directories that are mounted.
    fn other(&mut self, inside: Inside, path: &[u8], kind: FileType) -> (Verdict<Inside>, Option<Finding>) {
        if self.entries.contains(path) {
            return (Verdict::Skip, None);
        }
        let dir = kind == FileType::Directory;
        match self.policy.names.judge(inside, path, self.root_len, dir, &mut self.scratch).0 {
            NameVerdict::Hidden(rule) => (Verdict::Stop, Some(Finding::Hidden(rule))),
            NameVerdict::Visible | NameVerdict::Frozen(_) | NameVerdict::Through(_) => (Verdict::Skip, None),
        }
    }
}

impl path::Judge for NameJudge<'_> {
    type State = Inside;
    type Rule = Finding;

    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType, _: u64) -> (Verdict<Inside>, Option<Finding>) {
        if !self.skip.is_empty() && self.skip.contains(path) {
            return self.other(inside, path, kind);
        }
        let dir = kind == FileType::Directory;
        let (verdict, below) = self.policy.names.judge(inside, path, self.root_len, dir, &mut self.scratch);
        match verdict {
            NameVerdict::Hidden(rule) => (Verdict::Stop, Some(Finding::Hidden(rule))),
            NameVerdict::Visible if dir && below.git.is_some() && inside.git.is_none() && !self.read_only => {
                (Verdict::Report(below), Some(Finding::Pinned))
            }
            NameVerdict::Through(_) => (Verdict::Pass(below), None),
            NameVerdict::Visible | NameVerdict::Frozen(_) if kind == FileType::Socket && self.live => {
                (Verdict::Stop, Some(Finding::Socket))
            }
            // A read-only root is frozen as a whole; inside a frozen directory all is.
            NameVerdict::Frozen(rule) if !self.read_only && inside.frozen != Some(rule) => {
                let verdict = if dir && below.settled { Verdict::Stop } else { Verdict::Report(below) };
                (verdict, Some(Finding::Frozen(rule)))
            }
            NameVerdict::Visible | NameVerdict::Frozen(_) if dir && below.settled => (Verdict::Skip, None),
            // Read-only with its directory, and not by another name.
            NameVerdict::Frozen(rule) if !self.read_only && !dir => (Verdict::IfLinked, Some(Finding::Frozen(rule))),
            NameVerdict::Visible | NameVerdict::Frozen(_) => (Verdict::Pass(below), None),
        }
    }
}

/// Collects symlinks that are visible, until there are many.
struct LinkJudge<'a> {
    names: NameJudge<'a>,
    left: usize,
}

impl path::Judge for LinkJudge<'_> {
    type State = Inside;
    type Rule = ();

    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType, ino: u64) -> (Verdict<Inside>, Option<()>) {
        match self.names.judge(inside, path, kind, ino).0 {
            Verdict::Pass(_) | Verdict::Report(_) | Verdict::IfLinked if kind == FileType::Symlink && self.left > 0 => {
                self.left -= 1;
                (Verdict::Stop, Some(()))
            }
            // A dependency directory is full of links of its own.
            Verdict::Pass(below) | Verdict::Report(below) if !below.build && self.left > 0 => {
                (Verdict::Pass(below), None)
            }
            Verdict::Pass(_) | Verdict::Report(_) | Verdict::IfLinked | Verdict::Stop | Verdict::Skip => {
                (Verdict::Skip, None)
            }
        }
    }
}

/// The symlinks of the roots that lead to where the box does not let look, each with the decision. For `explain`: it
/// walks the roots once more.
pub fn links_outside(policy: &Policy) -> Vec<(PathBuf, Decision)> {
    const MOST: usize = 2000;
    let mut out = Vec::new();
    for entry in policy.entries.iter().filter(|entry| entry.kind.has_names() && entry.file == Some(Kind::Dir)) {
        let mut judge = LinkJudge { names: NameJudge::new(policy, entry, &entry.path, &[], false), left: MOST };
        // A root that cannot be opened was refused before.
        let Ok((found, _)) = path::scan(&entry.path, Inside::default(), &mut judge) else { continue };
        for link in found {
            let decision = policy.decide_asked(&link.path, Access::Read);
            if !decision.allowed {
                out.push((link.path, decision));
            }
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

/// A root, or a mount below it, as the scan found it.
#[derive(Debug)]
pub struct Section {
    pub path: PathBuf,
    pub dir: bool,
    /// A mount whose file system may wait for another machine or program: not looked into, and masked.
    pub unavailable: bool,
    pub findings: Findings,
}

/// Walks `entry` and the mounts below it, each once for all rules. `live` also finds sockets, which only a bind mount
/// lets through.
///
/// # Errors
/// The errno of opening the root itself.
pub fn survey(policy: &Policy, entry: &Entry, mounts: &[Mount], live: bool) -> Result<Vec<Section>, Errno> {
    // A mount that belongs to a deeper entry is that entry's.
    let own = |mount: &&Mount| policy.entry_at(&mount.at).is_some_and(|deepest| deepest.path == entry.path);
    let mut below: Vec<&Mount> = mounts_below(mounts, &entry.path).filter(own).collect();
    below.sort_by(|a, b| a.at.cmp(&b.at));
    // Of mounts stacked on one path the last is the one that shows.
    below.reverse();
    below.dedup_by(|earlier, shown| earlier.at == shown.at);
    below.reverse();
    let dir = entry.file == Some(Kind::Dir);
    let places: Vec<&Path> = below.iter().map(|mount| mount.at.as_path()).collect();
    let findings =
        if dir { scan(policy, entry, &entry.path, Inside::default(), &places, live)? } else { Findings::default() };
    let mut sections = vec![Section { path: entry.path.clone(), dir, unavailable: false, findings }];
    for mount in &below {
        // Hidden by its name, or by that of a directory above: found there, and nothing of it is seen.
        let Some(inside) = inside_at(policy, entry, &mount.at) else { continue };
        // What lies below a mount that cannot be looked at cannot either.
        if sections.iter().any(|above| above.unavailable && mount.at.starts_with(&above.path)) {
            continue;
        }
        let mut section = Section {
            path: mount.at.clone(),
            dir: true,
            unavailable: mount.is_off_limits(),
            findings: Findings::default(),
        };
        if !section.unavailable {
            let kind = path::identity(&mount.at).map(|(_, kind)| kind);
            section.dir = kind == Ok(FileType::Directory);
            if live && kind == Ok(FileType::Socket) {
                section.findings.found.push(Found {
                    path: mount.at.clone(),
                    kind: Some(Kind::Socket),
                    link: false,
                    linked: None,
                    rule: Finding::Socket,
                });
            }
            match section.dir.then(|| scan(policy, entry, &mount.at, inside, &places, live)) {
                Some(Ok(findings)) => section.findings = findings,
                Some(Err(errno)) => {
                    section.findings.notices.push(ScanNotice { path: mount.at.clone(), errno });
                }
                None => {}
            }
        }
        sections.push(section);
    }
    Ok(sections)
}

/// What the name rules know inside the directory at `path`, or `None` when the way there is hidden.
pub(super) fn inside_at(policy: &Policy, entry: &Entry, path: &Path) -> Option<Inside> {
    let (root_len, bytes) = (entry.path.as_os_str().len(), path.as_os_str().as_bytes());
    let mut inside = Inside::default();
    let hidden = policy.names.along(bytes, root_len, true, &mut Scratch::default(), |verdict, below, _| {
        inside = below;
        if matches!(verdict, NameVerdict::Hidden(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    hidden.is_none().then_some(inside)
}

fn scan(
    policy: &Policy,
    entry: &Entry,
    from: &Path,
    inside: Inside,
    mounts: &[&Path],
    live: bool,
) -> Result<Findings, Errno> {
    let mut judge = NameJudge::new(policy, entry, from, mounts, live);
    let (mut found, notices) = path::scan(from, inside, &mut judge)?;
    let (refused, notices): (Vec<_>, Vec<_>) = notices.into_iter().partition(|notice| notice.errno == Errno::ACCESS);
    let hide = |notice: ScanNotice| Found {
        path: notice.path,
        kind: Some(Kind::Dir),
        link: false,
        linked: None,
        rule: Finding::Unsearchable,
    };
    found.extend(refused.into_iter().map(hide));
    Ok(Findings { found, notices })
}
