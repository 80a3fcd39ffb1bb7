//! What a root holds that must be hidden or frozen at launch: the walk of `path`, judged by the name rules.

use super::names::{Inside, NameVerdict, Scratch};
use super::{Entry, EntryKind, Policy};
use crate::host::{Mount, mounts_below};
use crate::path::{self, Found, Kind, ScanNotice, Verdict};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The rule's index.
    Hidden(usize),
    Frozen(usize),
    /// A socket of the host, which a bind mount would let through.
    Socket,
}

/// All that one root holds.
#[derive(Debug, Default)]
pub struct Findings {
    pub found: Vec<Found<Finding>>,
    pub notices: Vec<ScanNotice>,
}

struct NameJudge<'a> {
    policy: &'a Policy,
    root_len: usize,
    /// Entries of their own and mounts not to look into: the walk ends there.
    skip: HashSet<Vec<u8>>,
    live: bool,
    read_only: bool,
    scratch: Scratch,
}

impl path::Judge for NameJudge<'_> {
    type State = Inside;
    type Rule = Finding;

    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType) -> (Verdict<Inside>, Option<Finding>) {
        if !self.skip.is_empty() && self.skip.contains(path) {
            return (Verdict::Skip, None);
        }
        let dir = kind == FileType::Directory;
        let (verdict, below) = self.policy.names.judge(inside, path, self.root_len, dir, &mut self.scratch);
        match verdict {
            NameVerdict::Hidden(rule) => (Verdict::Stop, Some(Finding::Hidden(rule))),
            NameVerdict::Through(_) => (Verdict::Pass(below), None),
            NameVerdict::Visible | NameVerdict::Frozen(_) if kind == FileType::Socket && self.live => {
                (Verdict::Stop, Some(Finding::Socket))
            }
            // A read-only root is frozen as a whole; inside a frozen directory all is.
            NameVerdict::Frozen(rule) if !self.read_only && inside.frozen != Some(rule) => {
                (Verdict::Report(below), Some(Finding::Frozen(rule)))
            }
            NameVerdict::Visible | NameVerdict::Frozen(_) => (Verdict::Pass(below), None),
        }
    }
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
    let findings = if dir { scan(policy, entry, &entry.path, &below, live)? } else { Findings::default() };
    let mut sections = vec![Section { path: entry.path.clone(), dir, unavailable: false, findings }];
    for mount in &below {
        // What lies below a mount that cannot be looked at cannot either.
        if sections.iter().any(|above| above.unavailable && mount.at.starts_with(&above.path)) {
            continue;
        }
        let mut section =
            Section { path: mount.at.clone(), dir: true, unavailable: mount.may_hang(), findings: Findings::default() };
        if !section.unavailable {
            section.dir = matches!(path::identity(&mount.at), Ok((_, FileType::Directory)));
            match section.dir.then(|| scan(policy, entry, &mount.at, &below, live)) {
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

fn scan(policy: &Policy, entry: &Entry, from: &Path, mounts: &[&Mount], live: bool) -> Result<Findings, Errno> {
    let entries = policy.entries.iter().map(|other| other.path.as_path());
    let mounts = mounts.iter().map(|mount| mount.at.as_path());
    let skip = entries.chain(mounts).filter(|path| *path != from && path.starts_with(from));
    let mut judge = NameJudge {
        policy,
        root_len: entry.path.as_os_str().len(),
        skip: skip.map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
        live,
        read_only: entry.kind == EntryKind::Ro,
        scratch: Scratch::default(),
    };
    let (found, notices) = path::scan(from, Inside::default(), &mut judge)?;
    Ok(Findings { found, notices })
}
