//! Limits: the profile's and the command line's, with defaults that stop a bomb and let a build pass.

use crate::profile;
use std::time::Duration;

/// All limits, resolved. `None` is unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub processes: Option<u64>,
    /// Bytes: of the whole box where a cgroup holds it, else of writable private memory a process (RLIMIT_DATA).
    pub memory: Option<u64>,
    /// Bytes that all private writable places hold together.
    pub tmp: u64,
    pub file_size: Option<u64>,
    pub open_files: Option<u64>,
    pub time: Option<Duration>,
    /// Bytes of the largest file that a live run backs up, and of all that it backs up.
    pub backup_file: u64,
    pub backup_total: u64,
    /// Given on the command line: the report then says what holds them.
    pub asked: Asked,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    pub processes: bool,
    pub memory: bool,
}

/// A build of a large project stays below this; a fork bomb does not.
const PROCESSES: u64 = 4096;
/// RAM-backed, so never more than half of the memory.
const TMP: u64 = 4 << 30;

/// A copy of this size holds the command up for less than a second.
const BACKUP_FILE: u64 = 256 << 20;
const BACKUP_TOTAL: u64 = 4 << 30;

/// Enough for the directories that every box has.
const SMALLEST_TMP: u64 = 64 << 10;

impl Limits {
    /// Those of a run that sets none, on a host with this much memory.
    pub fn default_on(memory: u64) -> Limits {
        let none = profile::Limits::default();
        Limits::resolve([&none, &none], None, memory)
    }

    /// `sources` are the command line and the profile; `tightest` is the repository's file: it can only lower what the others say.
    pub fn resolve(sources: [&profile::Limits; 2], tightest: Option<&profile::Limits>, memory: u64) -> Limits {
        type Pick = fn(&profile::Limits) -> Option<u64>;
        let pick = |field: Pick, default: u64| {
            let chosen = sources.iter().find_map(|source| field(source)).unwrap_or(default);
            tightest.and_then(field).map_or(chosen, |tight| tight.min(chosen))
        };
        let finite = |value: u64| (value != u64::MAX).then_some(value);
        let tmp = pick(|limits| limits.tmp.as_ref().map(|tmp| tmp.value), TMP.min(memory / 2));
        Limits {
            processes: finite(pick(|limits| limits.processes.as_ref().map(|n| n.value), PROCESSES)),
            memory: finite(pick(|limits| limits.memory.as_ref().map(|n| n.value), memory / 4 * 3)),
            // To tmpfs 0 means no limit at all.
            tmp: if tmp == u64::MAX { memory } else { tmp.max(SMALLEST_TMP) },
            file_size: finite(pick(|limits| limits.file_size.as_ref().map(|n| n.value), u64::MAX)),
            open_files: finite(pick(|limits| limits.open_files.as_ref().map(|n| n.value), u64::MAX)),
            time: finite(pick(|limits| limits.time.as_ref().map(|n| n.value), u64::MAX)).map(Duration::from_secs),
            backup_file: pick(|limits| limits.backup_file.as_ref().map(|n| n.value), BACKUP_FILE),
            backup_total: pick(|limits| limits.backup_total.as_ref().map(|n| n.value), BACKUP_TOTAL),
            asked: Asked { processes: sources[0].processes.is_some(), memory: sources[0].memory.is_some() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Origin, Written};

    #[test]
    fn the_first_source_wins_and_the_repository_only_lowers() {
        let set = |n| Some(Written::new(n, Origin::BuiltIn("test".into())));
        let cli = profile::Limits { processes: set(10), ..profile::Limits::default() };
        let file = profile::Limits { processes: set(20), memory: set(u64::MAX), ..profile::Limits::default() };
        let repository = profile::Limits { processes: set(99), memory: set(5), ..profile::Limits::default() };
        let limits = Limits::resolve([&cli, &file], Some(&repository), 8 << 30);
        assert_eq!((limits.processes, limits.memory, limits.tmp), (Some(10), Some(5), 4 << 30));
        assert_eq!(limits.asked, Asked { processes: true, memory: false });
        let free = Limits::resolve([&cli, &file], None, 1 << 30);
        assert_eq!((free.memory, free.tmp), (None, 1 << 29));
    }
}
