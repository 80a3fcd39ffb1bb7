//! What of the hidden was looked up: folded by name, for a report at the end.

use super::Caller;
use rustix::net::{SendFlags, send};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// The look-ups of the hidden, where they are seen. Tells the supervisor.
#[derive(Debug, Default)]
pub(super) struct Seen {
    known: HashMap<PathBuf, HiddenRead>,
    supervisor: Option<OwnedFd>,
}

impl Seen {
    pub fn told_to(&mut self, supervisor: OwnedFd) {
        self.supervisor = Some(supervisor);
    }

    pub fn denied(&mut self, path: PathBuf, dir: bool, why: Why, caller: Caller) {
        // The kernel has no number for who is outside: the guard looks at what it is to hide.
        if caller.pid == 0 || (self.known.len() >= KEPT && !self.known.contains_key(&path)) {
            return;
        }
        let new = || HiddenRead { path: path.clone(), dir, why, at: SystemTime::now(), pid: caller.pid, times: 0 };
        let read = self.known.entry(path.clone()).or_insert_with(new);
        read.times += 1;
        // Ever more seldom: who looks up one name in a loop does not keep the supervisor busy.
        if read.times.is_power_of_two()
            && let Some(supervisor) = &self.supervisor
        {
            // It fails for one that is gone, or does not read.
            send(supervisor, &read.packet(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok();
        }
    }
}

/// What the supervisor was told, in the order of the first look-up.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub list: Vec<HiddenRead>,
    known: HashMap<PathBuf, usize>,
}

impl Told {
    pub fn take(&mut self, packet: &[u8]) {
        let Some(read) = HiddenRead::of_packet(packet) else { return };
        match self.known.get(&read.path) {
            Some(&index) => self.list[index].times = read.times,
            None => {
                self.known.insert(read.path.clone(), self.list.len());
                self.list.push(read);
            }
        }
    }
}

impl HiddenRead {
    fn packet(&self) -> Vec<u8> {
        let why = match self.why {
            Why::Policy => 0,
            Why::SecondName => 1,
            Why::Unsearchable => 2,
        };
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut out = vec![u8::from(self.dir), why];
        out.extend(self.pid.to_le_bytes());
        out.extend(self.times.to_le_bytes());
        out.extend(at.as_secs().to_le_bytes());
        out.extend(at.subsec_nanos().to_le_bytes());
        out.extend(self.path.as_os_str().as_bytes());
        out
    }

    fn of_packet(packet: &[u8]) -> Option<HiddenRead> {
        let ([dir, why], rest) = packet.split_first_chunk::<2>()?;
        let (pid, rest) = rest.split_first_chunk::<4>()?;
        let (times, rest) = rest.split_first_chunk::<8>()?;
        let (seconds, rest) = rest.split_first_chunk::<8>()?;
        let (nanos, path) = rest.split_first_chunk::<4>()?;
        Some(HiddenRead {
            path: PathBuf::from(OsStr::from_bytes(path)),
            dir: *dir != 0,
            why: match why {
                0 => Why::Policy,
                1 => Why::SecondName,
                _ => Why::Unsearchable,
            },
            at: UNIX_EPOCH + Duration::new(u64::from_le_bytes(*seconds), u32::from_le_bytes(*nanos)),
            pid: u32::from_le_bytes(*pid),
            times: u64::from_le_bytes(*times),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_arrives_folded() {
        let at = UNIX_EPOCH + Duration::new(7, 9);
        let read = |path: &str, times| HiddenRead {
            path: path.into(),
            dir: path == "/p/d",
            why: Why::SecondName,
            at,
            pid: 3,
            times,
        };
        let mut told = Told::default();
        for sent in [read("/p/b", 1), read("/p/d", 1), read("/p/b", 2)] {
            told.take(&sent.packet());
        }
        told.take(b"short");
        assert_eq!(told.list, [read("/p/b", 2), read("/p/d", 1)]);
    }
}
