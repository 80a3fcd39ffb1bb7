//! What the command planted in live roots: names that the host obeys later and that were not there to be frozen.
//!
//! The change time tells them apart, which nobody inside can set back: what was frozen at the launch keeps its own. A
//! directory in which nothing was made since the launch is only passed through.

use super::names::{Inside, NameVerdict, Scratch};
use super::{EntryKind, Mode, Policy};
use crate::host::Mount;
use crate::path::{self, Kind, Verdict, is_at_or_below};
use rustix::fs::{AtFlags, CWD, FileType, Stat};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clock of file times stands still between two ticks.
const TICK: Duration = Duration::from_millis(10);
const REPOSITORY: &str = "a repository: git on the host runs its hooks and obeys its configuration";

/// Looks through the writable live roots for frozen names that were made or changed since the launch, each with the rule
/// in words. A root that is gone holds none.
#[must_use]
pub fn sweep(policy: &Policy, mounts: &[Mount], since: SystemTime) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    if policy.mode != Mode::Live {
        return out;
    }
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(TICK);
    let roots = policy.entries.iter().filter(|entry| entry.kind == EntryKind::Rw && entry.file == Some(Kind::Dir));
    for root in roots {
        let below = |path: &&Path| *path != root.path && is_at_or_below(path, &root.path);
        let entries = policy.entries.iter().map(|entry| entry.path.as_path());
        let skip = entries.chain(mounts.iter().map(|mount| mount.at.as_path())).filter(below);
        let mut judge = SweepJudge {
            policy,
            root_len: root.path.as_os_str().len(),
            skip: skip.map(|path| path.as_os_str().as_bytes()).collect(),
            since,
            fresh: true,
            scratch: Scratch::default(),
        };
        let found = path::scan(&root.path, Inside::default(), &mut judge).map(|(found, _)| found);
        for planted in found.unwrap_or_default() {
            let why = match planted.rule {
                Some(rule) => {
                    let rule = &policy.names.rules[rule];
                    format!("frozen by `{}` ({})", rule.text, rule.origin)
                }
                None => REPOSITORY.to_owned(),
            };
            out.push((planted.path, why));
        }
    }
    out.sort();
    out
}

struct SweepJudge<'a> {
    policy: &'a Policy,
    root_len: usize,
    skip: HashSet<&'a [u8]>,
    since: Duration,
    /// Something was made in the directory that is being read.
    fresh: bool,
    scratch: Scratch,
}

impl SweepJudge<'_> {
    fn is_new(&self, stat: &Stat) -> bool {
        let seconds = u64::try_from(stat.st_ctime).unwrap_or(0);
        #[allow(clippy::useless_conversion, reason = "the field's width depends on the architecture")]
        let nanos = u32::try_from(stat.st_ctime_nsec).unwrap_or(0);
        Duration::new(seconds, nanos) >= self.since
    }

    fn is_new_at(&self, path: &[u8]) -> bool {
        let stat = rustix::fs::statat(CWD, OsStr::from_bytes(path), AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| self.is_new(&stat))
    }
}

impl path::Judge for SweepJudge<'_> {
    type State = Inside;
    /// `None` is a repository.
    type Rule = Option<usize>;

    fn enter(&mut self, dir: BorrowedFd<'_>) -> bool {
        let Ok(stat) = rustix::fs::fstat(dir) else { return true };
        self.fresh = self.is_new(&stat);
        // Two links are its name and its own dot: no directory is in it, on a file system that counts them at all.
        self.fresh || stat.st_nlink != 2
    }

    fn judge(
        &mut self,
        inside: Inside,
        path: &[u8],
        kind: FileType,
        _: u64,
    ) -> (Verdict<Inside>, Option<Option<usize>>) {
        let dir = kind == FileType::Directory;
        if (!dir && !self.fresh) || self.skip.contains(path) {
            return (Verdict::Skip, None);
        }
        let names = &self.policy.names;
        if self.fresh
            && let Some(rule) = names.obeyed(inside, path, self.root_len, &mut self.scratch)
            && self.is_new_at(path)
        {
            return (Verdict::Stop, Some(Some(rule)));
        }
        if !dir {
            return (Verdict::Skip, None);
        }
        let (verdict, below) = names.judge(inside, path, self.root_len, true, &mut self.scratch);
        match verdict {
            _ if below.settled => (Verdict::Skip, None),
            // What was hidden or frozen at the launch was closed or read-only.
            NameVerdict::Hidden(_) | NameVerdict::Frozen(_) if !self.fresh || !self.is_new_at(path) => {
                (Verdict::Skip, None)
            }
            NameVerdict::Hidden(_) if path.ends_with(b"/.git") => (Verdict::Stop, Some(None)),
            NameVerdict::Hidden(_) | NameVerdict::Frozen(_) | NameVerdict::Through(_) | NameVerdict::Visible => {
                (Verdict::Pass(below), None)
            }
        }
    }
}
