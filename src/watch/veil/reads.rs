//! What of the hidden was looked up: folded by name, for a report at the end.

use super::Caller;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::SystemTime;

/// So many names are kept; a command can ask for any number.
const KEPT: usize = 1000;

/// A hidden name that exists on the host, and that the command looked up. The kernel remembers that it is absent, so
/// that a second look-up is rarely seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenRead {
    pub path: PathBuf,
    pub dir: bool,
    pub why: Why,
    /// Of the first look-up, as the thread, numbered as inside.
    pub at: SystemTime,
    pub pid: u32,
    /// How many look-ups were seen.
    pub times: u64,
}

/// Why it is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// By a rule or an entry of the policy.
    Policy,
    /// Another name of a hidden file: no rule names it.
    SecondName,
    /// A directory that the caller may not list: what hides in it nobody can tell, so it hides as a whole.
    Unsearchable,
}

#[derive(Debug, Default)]
pub struct Reads {
    list: Vec<HiddenRead>,
    known: HashMap<PathBuf, usize>,
}

impl Reads {
    pub(super) fn denied(&mut self, path: PathBuf, dir: bool, why: Why, caller: Caller) {
        // The kernel has no number for who is outside: the guard looks at what it is to hide.
        if caller.pid == 0 {
            return;
        }
        if let Some(&index) = self.known.get(&path) {
            self.list[index].times += 1;
        } else if self.list.len() < KEPT {
            self.known.insert(path.clone(), self.list.len());
            let at = SystemTime::now();
            self.list.push(HiddenRead { path, dir, why, at, pid: caller.pid, times: 1 });
        }
    }

    /// In the order of the first look-up.
    pub fn into_list(self) -> Vec<HiddenRead> {
        self.list
    }
}
