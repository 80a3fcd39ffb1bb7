//! What of a policy a session keeps, so that its diff is judged by the rules that the run had.

use super::names::{Inside, NameRule, NameRules, NameVerdict, Scratch};
use super::{EntryKind, Policy};
use crate::path::pattern::PatternError;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Entries with name rules, and hidden paths: bytes, for a path need not be UTF-8.
    roots: Vec<(Vec<u8>, bool)>,
    rules: Vec<NameRule>,
    build_dirs: Vec<String>,
}

impl Policy {
    pub fn record(&self) -> Record {
        let kept = self.entries.iter().filter(|entry| entry.kind.has_names() || entry.kind == EntryKind::Hide);
        Record {
            roots: kept
                .map(|entry| (entry.path.as_os_str().as_bytes().to_vec(), entry.kind == EntryKind::Hide))
                .collect(),
            rules: self.names.rules.clone(),
            build_dirs: self.names.build_dirs.clone(),
        }
    }
}

/// Judges names by a record.
pub struct RecordJudge {
    roots: Vec<(PathBuf, bool)>,
    names: NameRules,
    scratch: RefCell<Scratch>,
}

impl Record {
    /// # Errors
    /// A pattern that does not compile: the record was changed by hand.
    pub fn judge(self) -> Result<RecordJudge, PatternError> {
        let roots = self.roots.into_iter().map(|(path, hide)| (OsString::from_vec(path).into(), hide)).collect();
        let names = NameRules::new(self.rules, self.build_dirs)?;
        Ok(RecordJudge { roots, names, scratch: RefCell::new(Scratch::default()) })
    }
}

impl RecordJudge {
    /// Was the absolute host path invisible to the command?
    pub fn hides(&self, path: &Path, dir: bool) -> bool {
        let at = self.roots.iter().filter(|(root, _)| path.starts_with(root));
        let Some((root, hide)) = at.max_by_key(|(root, _)| root.as_os_str().len()) else { return false };
        if *hide {
            return true;
        }
        let (root_len, bytes) = (root.as_os_str().len(), path.as_os_str().as_bytes());
        let mut inside = Inside::default();
        let mut scratch = self.scratch.borrow_mut();
        let ends = (root_len + 1..bytes.len()).filter(|&at| bytes[at] == b'/').chain([bytes.len()]);
        for end in ends.filter(|&end| end > root_len) {
            let is_dir = dir || end < bytes.len();
            let (verdict, below) = self.names.judge(inside, &bytes[..end], root_len, is_dir, &mut scratch);
            if matches!(verdict, NameVerdict::Hidden(_)) {
                return true;
            }
            inside = below;
        }
        false
    }
}
