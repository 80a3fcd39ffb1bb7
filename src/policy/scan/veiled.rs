//! What is still looked for before a launch where the veil judges names: in a writable root the nearest frozen names, in a
//! read-only one whether it needs a veil at all. Neither grows with the tree.

use super::{Finding, Findings, NameJudge, Section};
use crate::path::{self, Judge, Verdict};
use crate::policy::{Entry, EntryKind, Inside, Policy};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::path::Path;

/// A read-only root of fewer names is searched, for a plain bind costs less than an overlay. Beyond it may hold one.
const SEARCHED: usize = 2000;

/// # Errors
/// The errno of opening the root.
pub(super) fn survey(policy: &Policy, entry: &Entry, mounts: &[&Path], live: bool) -> Result<Section, Errno> {
    let mut names = NameJudge::new(policy, entry, &entry.path, mounts, live);
    let section =
        |veiled, findings| Section { path: entry.path.clone(), dir: true, unavailable: false, veiled, findings };
    if entry.kind == EntryKind::Rw {
        let root_len = entry.path.as_os_str().len();
        let (mut found, _) = match policy.git {
            // Repositories are granted wherever they lie, and each has its own that must not be written.
            Some(_) => path::scan(&entry.path, Inside::default(), &mut names)?,
            None => path::scan(&entry.path, Inside::default(), &mut Frozen { names, root_len })?,
        };
        found.retain(|found| !matches!(found.rule, Finding::Hidden(_)));
        return Ok(section(true, Findings { found, notices: Vec::new() }));
    }
    let hides = policy.entries_below(&entry.path).any(|other| other.kind == EntryKind::Hide);
    let mut search = Search { names: &mut names, left: SEARCHED, hit: hides };
    let (found, notices) = path::scan(&entry.path, Inside::default(), &mut search)?;
    let others = policy.entries.iter().filter(|other| other.kind.has_names()).count() > 1;
    let linked = others && found.iter().any(|found| found.rule.is_none());
    let veiled = search.hit || linked || !notices.is_empty();
    if veiled {
        return Ok(section(true, Findings::default()));
    }
    let found = found.into_iter().filter_map(|found| {
        let path::Found { path, kind, rule, link, linked } = found;
        rule.map(|rule| path::Found { path, kind, rule, link, linked })
    });
    Ok(section(false, Findings { found: found.collect(), notices }))
}

/// Finds the frozen names of the root's own directory, and those of a granted `.git` there: the command is told at once
/// when it writes one. A deeper one is refused when the layer is read.
struct Frozen<'a> {
    names: NameJudge<'a>,
    root_len: usize,
}

impl Judge for Frozen<'_> {
    type State = Inside;
    type Rule = Finding;

    fn judge(&mut self, inside: Inside, path: &[u8], kind: FileType, ino: u64) -> (Verdict<Inside>, Option<Finding>) {
        let enters = self.enters(path);
        match self.names.judge(inside, path, kind, ino) {
            (Verdict::Pass(below), _) if enters => (Verdict::Pass(below), None),
            (Verdict::Report(below), Some(rule)) if enters => (Verdict::Report(below), Some(rule)),
            (Verdict::Report(_), Some(rule)) => (Verdict::Stop, Some(rule)),
            // What is hidden is the veil's.
            _ => (Verdict::Skip, None),
        }
    }
}

impl Frozen<'_> {
    /// git's own directory, without what in it is large and never frozen.
    fn enters(&self, path: &[u8]) -> bool {
        let mut parts = path[self.root_len..].split(|&byte| byte == b'/').filter(|part| !part.is_empty());
        parts.next().is_some_and(|first| first == b".git")
            && parts.all(|part| ![&b"objects"[..], b"refs", b"logs", b"lfs"].contains(&part))
    }
}

/// Ends at the first hidden name, or once it has seen enough. A file with several names may be a second name of what
/// another root hides.
struct Search<'s, 'a> {
    names: &'s mut NameJudge<'a>,
    left: usize,
    hit: bool,
}

impl Judge for Search<'_, '_> {
    type State = Inside;
    /// `None` is a visible file with several names.
    type Rule = Option<Finding>;

    fn judge(
        &mut self,
        inside: Inside,
        path: &[u8],
        kind: FileType,
        ino: u64,
    ) -> (Verdict<Inside>, Option<Option<Finding>>) {
        let (verdict, rule) = self.names.judge(inside, path, kind, ino);
        self.left = self.left.saturating_sub(1);
        self.hit |= self.left == 0 || matches!(rule, Some(Finding::Hidden(_)));
        match verdict {
            Verdict::Pass(_) if kind == FileType::RegularFile => (Verdict::IfLinked, Some(None)),
            Verdict::Pass(_) | Verdict::Report(_) | Verdict::Stop | Verdict::IfLinked | Verdict::Skip => {
                (verdict, rule.map(Some))
            }
        }
    }

    fn is_done(&self) -> bool {
        self.hit
    }
}
