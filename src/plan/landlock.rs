//! Landlock as the second wall: the same grants as the mounts, as path rules inside.

use super::LandlockPlan;
use crate::path::{FileId, Kind};
use crate::policy::{DEVICES_OF_HOST, EntryKind, Layer, NetMode, Policy};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What a rule grants beneath its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rights {
    /// List directories, and no more: the mounts alone judge listing.
    List,
    /// Read and execute.
    Read,
    /// Everything that is no device's.
    Write,
    /// Read and write files that exist.
    Files,
    /// The same and ioctl(2): terminals.
    Terminal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    pub at: PathBuf,
    /// A file takes only the rights that are a file's.
    pub dir: bool,
    pub rights: Rights,
    /// Without mounts: what the policy judged. The rule is refused when something else stands there by then.
    pub id: Option<FileId>,
}

/// What an older kernel's Landlock cannot do, in words: said before the run, never lost in silence.
pub(super) fn lost(abi: u32) -> Option<String> {
    const SINCE: [(u32, &str); 4] = [
        (2, "moving files between directories"),
        (3, "truncation"),
        (5, "device ioctls"),
        (6, "scopes for abstract sockets and signals"),
    ];
    let lost: Vec<&str> = SINCE.iter().filter(|(since, _)| abi < *since).map(|(_, what)| *what).collect();
    // With none at all the run is refused, and that says it.
    (abi > 0 && !lost.is_empty())
        .then(|| format!("landlock ABI {abi} of this kernel has no rights for: {}", lost.join(", ")))
}

/// The rules for the policy's entries, or `None` where the layer was given up.
pub(super) fn plan(policy: &Policy, abi: u32) -> Option<LandlockPlan> {
    if policy.degraded.contains(&Layer::Landlock) {
        return None;
    }
    if policy.without_mounts() {
        return Some(on_the_host(policy, abi));
    }
    let mut rules = Vec::new();
    let mut places: HashSet<(&[u8], Rights)> = HashSet::new();
    let mut rule = |at: &'static str, rights| {
        places.insert((at.as_bytes(), rights));
        rules.push(PathRule { at: at.into(), dir: !at.starts_with("/dev/") || at == "/dev/pts", rights, id: None })
    };
    rule("/", Rights::List);
    rule("/dev", Rights::Files);
    rule("/dev/pts", Rights::Terminal);
    rule("/dev/tty", Rights::Terminal);
    // What ttyname(3) answers, to be opened by name (`stty -F`, gpg's pinentry).
    rule("/dev/console", Rights::Terminal);
    // `> /proc/self/oom_score_adj` and its like; the kernel's settings stay read-only by their mount.
    rule("/proc", Rights::Files);
    // All of /etc is picked or made: one rule on the directory that holds it.
    rule("/etc", Rights::Read);
    for entry in &policy.entries {
        let rights = match entry.kind {
            EntryKind::System | EntryKind::Made(_) | EntryKind::Ro => Rights::Read,
            EntryKind::Private(_) | EntryKind::Rw | EntryKind::Scratch => Rights::Write,
            EntryKind::Socket => Rights::Files,
            EntryKind::EmptyHome | EntryKind::Proc | EntryKind::Dev | EntryKind::Hide => continue,
        };
        // A rule holds for all beneath it: below another of the same rights it would say nothing new.
        let covered = entry.path.ancestors().any(|at| places.contains(&(at.as_os_str().as_bytes(), rights)));
        if !covered {
            places.insert((entry.path.as_os_str().as_bytes(), rights));
            rules.push(PathRule { at: entry.path.clone(), dir: entry.file == Some(Kind::Dir), rights, id: None });
        }
    }
    let ports = (policy.net == NetMode::Host).then(|| policy.ports.clone());
    Some(LandlockPlan { abi, files: !policy.nested, rules, ports, no_tcp: false })
}

/// Without mounts the rules are the only wall, and the tree is the host's: no right on `/`, which would be one on all
/// below it; of /dev single devices; /proc to read alone, for in it lie the kernel's settings.
fn on_the_host(policy: &Policy, abi: u32) -> LandlockPlan {
    let mut rules = Vec::new();
    for entry in &policy.entries {
        let rights = match entry.kind {
            EntryKind::System | EntryKind::Ro | EntryKind::Proc => Rights::Read,
            EntryKind::Private(_) | EntryKind::Rw | EntryKind::Scratch => Rights::Write,
            EntryKind::Socket => Rights::Files,
            EntryKind::Dev => {
                rules.extend(DEVICES_OF_HOST.iter().map(|device| PathRule {
                    at: device.into(),
                    dir: false,
                    rights: if *device == "/dev/tty" { Rights::Terminal } else { Rights::Files },
                    id: None,
                }));
                continue;
            }
            EntryKind::Made(_) | EntryKind::EmptyHome | EntryKind::Hide => continue,
        };
        let dir = entry.file == Some(Kind::Dir);
        rules.push(PathRule { at: entry.path.clone(), dir, rights, id: entry.id });
    }
    let offline = policy.without_sockets();
    let ports = (!offline).then(|| policy.ports.clone());
    LandlockPlan { abi, files: true, rules, ports, no_tcp: offline }
}
