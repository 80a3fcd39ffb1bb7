//! What a root holds that must be hidden or frozen at launch: the walk of `path`, judged by the name rules.

use super::names::{Inside, NameVerdict, Scratch};
use super::{Entry, EntryKind, Policy};
use crate::path::{self, Found, ScanNotice, Verdict};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

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

/// Walks `entry` once for all rules. `skip` are paths below it that are mounted or judged apart; `live` also finds
/// sockets, which only a bind mount lets through.
///
/// # Errors
/// The errno of opening the root.
pub fn scan(policy: &Policy, entry: &Entry, skip: &[PathBuf], live: bool) -> Result<Findings, Errno> {
    let own = policy
        .entries
        .iter()
        .map(|other| &other.path)
        .filter(|path| **path != entry.path && path.starts_with(&entry.path));
    let mut judge = NameJudge {
        policy,
        root_len: entry.path.as_os_str().len(),
        skip: own.chain(skip).map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
        live,
        read_only: entry.kind == EntryKind::Ro,
        scratch: Scratch::default(),
    };
    let (found, notices) = path::scan(&entry.path, Inside::default(), &mut judge)?;
    Ok(Findings { found, notices })
}
