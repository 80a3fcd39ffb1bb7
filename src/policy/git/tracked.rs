//! The names that a repository tracks and the box does not show. git would take them for deleted, and commit that.

use super::super::names::{Inside, NameVerdict, Scratch};
use super::super::{Access, EntryKind, Policy};
use super::index::{Index, Unread};
use super::read::Held;
use super::repository::Repository;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A larger index is left alone, with a notice.
const LARGEST: u64 = 256 << 20;

/// An index that tracks hidden names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenIndex {
    pub at: PathBuf,
    /// The index with the skip-worktree bit on those names.
    pub content: Vec<u8>,
    /// The time of the host's, in seconds and nanoseconds: what git judges by whether an entry can be trusted.
    pub modified: (i64, i64),
    /// The names, absolute, in the order of the index.
    pub names: Vec<PathBuf>,
    /// One of them was written in the second of the index or later, so that git does not trust its size and time.
    pub racy: bool,
}

/// Why the hidden names of an index are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    Large,
    Split,
    Broken,
}

/// What the box shows of one directory of a working tree.
enum Shown {
    Nothing,
    /// Below a root whose path is so long.
    Judged(usize, Inside),
    /// Without name rules.
    All,
}

/// Reads the index of `repository`, and says what of it the policy hides. `None` where that is nothing.
///
/// # Errors
/// An index that is there and cannot be read.
pub fn hidden(policy: &Policy, repository: &Repository) -> Result<Option<HiddenIndex>, Unknown> {
    let Ok(held) = Held::open(&repository.dir) else { return Ok(None) };
    let Some(found) = held.file(Path::new("index"), LARGEST) else {
        return if held.kind("index").is_some() { Err(Unknown::Large) } else { Ok(None) };
    };
    let mut judge = TreeJudge::new(policy, &repository.top);
    let (mut numbers, mut names, mut racy) = (Vec::new(), Vec::new(), false);
    let index = Index::read(&found.bytes, repository.hash, |number, path, time| {
        if judge.hides(path) {
            racy |= i64::from(time) >= found.stat.st_mtime;
            numbers.push(number);
            names.push(repository.top.join(OsStr::from_bytes(path)));
        }
    });
    let index = index.map_err(|unread| match unread {
        Unread::Broken => Unknown::Broken,
        Unread::Split => Unknown::Split,
    })?;
    if numbers.is_empty() {
        return Ok(None);
    }
    let nanoseconds = i64::try_from(found.stat.st_mtime_nsec).unwrap_or(0);
    Ok(Some(HiddenIndex {
        at: repository.dir.join("index"),
        content: index.skipping(&numbers),
        modified: (found.stat.st_mtime, nanoseconds),
        names,
        racy,
    }))
}

struct TreeJudge<'a> {
    policy: &'a Policy,
    top: &'a Path,
    /// The paths of the policy's own entries below the working tree: each is judged by itself.
    entries: HashSet<&'a [u8]>,
    /// The directory that the last path lay in: an index is sorted.
    last: Option<(Vec<u8>, Shown)>,
    scratch: Scratch,
}

impl<'a> TreeJudge<'a> {
    fn new(policy: &'a Policy, top: &'a Path) -> TreeJudge<'a> {
        let entries = policy.entries_below(top).map(|entry| entry.path.as_os_str().as_bytes()).collect();
        TreeJudge { policy, top, entries, last: None, scratch: Scratch::default() }
    }

    /// Does the box hide this path of the index?
    fn hides(&mut self, path: &[u8]) -> bool {
        // The directories of a sparse index end in a slash, and are not checked out.
        if path.last().is_none_or(|&last| last == b'/') {
            return false;
        }
        let dir = path.iter().rposition(|&byte| byte == b'/').map_or(&[][..], |slash| &path[..slash]);
        let whole = self.top.join(OsStr::from_bytes(path));
        if self.entries.contains(whole.as_os_str().as_bytes()) {
            return !self.policy.decide(&whole, Access::Read).allowed;
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != dir) {
            let shown = self.shown(&self.top.join(OsStr::from_bytes(dir)));
            self.last = Some((dir.to_vec(), shown));
        }
        match &self.last {
            Some((_, Shown::Judged(root_len, inside))) => {
                let bytes = whole.as_os_str().as_bytes();
                let (verdict, _) = self.policy.names.judge(*inside, bytes, *root_len, false, &mut self.scratch);
                matches!(verdict, NameVerdict::Hidden(_))
            }
            Some((_, Shown::All)) => false,
            Some((_, Shown::Nothing)) | None => true,
        }
    }

    fn shown(&mut self, dir: &Path) -> Shown {
        let Some(entry) = self.policy.entry_at(dir) else { return Shown::Nothing };
        match entry.kind {
            EntryKind::Rw | EntryKind::Ro => {}
            EntryKind::Scratch | EntryKind::System => return Shown::All,
            EntryKind::Made(_)
            | EntryKind::Private(_)
            | EntryKind::EmptyHome
            | EntryKind::Proc
            | EntryKind::Dev
            | EntryKind::Socket
            | EntryKind::Hide => return Shown::Nothing,
        }
        let root_len = entry.path.as_os_str().len();
        let mut inside = Inside::default();
        let bytes = dir.as_os_str().as_bytes();
        let hidden = self.policy.names.along(bytes, root_len, true, &mut self.scratch, |verdict, below, _| {
            inside = below;
            if matches!(verdict, NameVerdict::Hidden(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if hidden.is_some() { Shown::Nothing } else { Shown::Judged(root_len, inside) }
    }
}
