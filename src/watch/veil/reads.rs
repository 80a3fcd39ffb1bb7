//! What of the hidden was looked up: folded by name, for a report at the end.

use super::Caller;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// So many names are kept; a command can ask for any number.
const KEPT: usize = 1000;

/// A hidden name that exists on the host, and that the command looked up. The kernel remembers that it is absent, so
/// that a second look-up is rarely seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenRead {
    pub path: PathBuf,
    pub dir: bool,
    /// Another name of a hidden file: no rule names it.
    pub second_name: bool,
    /// Of the first look-up, as the thread, numbered as inside.
    pub at: SystemTime,
    pub pid: u32,
    /// How many look-ups were seen.
    pub times: u64,
}

#[derive(Debug, Default)]
pub struct Reads {
    list: Vec<HiddenRead>,
    known: HashMap<PathBuf, usize>,
}

impl Reads {
    pub(super) fn denied(&mut self, path: PathBuf, dir: bool, caller: Caller) {
        self.record(path, dir, false, caller);
    }

    pub(super) fn second_name(&mut self, path: &Path, caller: Caller) {
        self.record(path.to_path_buf(), false, true, caller);
    }

    fn record(&mut self, path: PathBuf, dir: bool, second_name: bool, caller: Caller) {
        if let Some(&index) = self.known.get(&path) {
            self.list[index].times += 1;
        } else if self.list.len() < KEPT {
            self.known.insert(path.clone(), self.list.len());
            let at = SystemTime::now();
            self.list.push(HiddenRead { path, dir, second_name, at, pid: caller.pid, times: 1 });
        }
    }

    /// In the order of the first look-up.
    pub fn into_list(self) -> Vec<HiddenRead> {
        self.list
    }
}
