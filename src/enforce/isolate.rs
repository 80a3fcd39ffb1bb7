//! The first stage: namespaces, id maps, loopback.

use super::wire::{self, Order, Wait};
use super::{Injected, StepError};
use crate::plan::{IdMap, Isolate, NOBODY, Namespace, hints};
use crate::sys::{self, CloneFlags};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};

/// The clone flags of a stage.
pub(super) fn flags(isolate: &Isolate) -> CloneFlags {
    let bit = |namespace: &Namespace| match namespace {
        Namespace::User => CloneFlags::USER,
        Namespace::Mount => CloneFlags::MOUNT,
        Namespace::Pid => CloneFlags::PID,
        Namespace::Ipc => CloneFlags::IPC,
        Namespace::Uts => CloneFlags::UTS,
        Namespace::Cgroup => CloneFlags::CGROUP,
        Namespace::Net => CloneFlags::NET,
    };
    CloneFlags(isolate.namespaces.iter().map(bit).fold(0, |flags, bit| flags | bit))
}

/// Writes the box's id maps from outside, where the capability for the whole range is.
pub(super) fn write_maps(pid: i32, isolate: &Isolate) -> Result<(), StepError> {
    let hint = match &isolate.ids {
        IdMap::Own { uid: 0, .. } => hints::ROOT_MAP,
        IdMap::Own { .. } | IdMap::All { .. } | IdMap::Kept => hints::USERNS,
    };
    let write = |file: &str, content: &str| {
        let path = format!("/proc/{pid}/{file}");
        // One write(2): the kernel takes a map whole or not at all (user_namespaces(7)).
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let map = rustix::fs::open(&path, flags, Mode::empty());
        let result = map.and_then(|map| rustix::io::write(map, content.as_bytes()));
        // Ubuntu lets the namespace be made and then takes its capabilities: this is where it shows.
        result.map(drop).map_err(|err| StepError::new(isolate, format!("writing {path}: {err}")).hint(hint))
    };
    match &isolate.ids {
        IdMap::All { uids, gids, swapped } => {
            write("uid_map", &id_map(uids, *swapped))?;
            write("gid_map", &id_map(gids, *swapped))
        }
        IdMap::Kept => Ok(()),
        IdMap::Own { uid, gid } => {
            // Before gid_map, or the kernel refuses it to an ordinary user: dropping a group could widen access.
            write("setgroups", "deny")?;
            write("uid_map", &format!("{uid} {uid} 1"))?;
            write("gid_map", &format!("{gid} {gid} 1"))
        }
    }
}

/// The mount namespace of a box that waits for its map.
pub(super) fn mount_namespace(pid: i32) -> Result<OwnedFd, StepError> {
    let path = format!("/proc/{pid}/ns/mnt");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).map_err(|errno| StepError::new(path, errno))
}

/// A map that leaves every id its number; with `swapped` root and [`NOBODY`] change theirs.
fn id_map(ranges: &[(u32, u32)], swapped: bool) -> String {
    let mut out = String::new();
    for &(start, count) in ranges {
        let (start, count) = (u64::from(start), u64::from(count));
        let mut from = start;
        let end = start + count;
        for (id, other) in [(0, u64::from(NOBODY)), (u64::from(NOBODY), 0)] {
            if swapped && (from..end).contains(&id) {
                if id > from {
                    out.push_str(&format!("{from} {from} {}\n", id - from));
                }
                out.push_str(&format!("{other} {id} 1\n"));
                from = id + 1;
            }
        }
        if end > from {
            out.push_str(&format!("{from} {from} {}\n", end - from));
        }
    }
    out
}

/// The new process while it only waits.
pub(super) struct Trusted(());

/// In its namespaces, with ids mapped and capabilities over them.
pub(super) struct Isolated(());

impl Trusted {
    pub fn await_map(channel: &OwnedFd) -> Result<Trusted, StepError> {
        match wire::receive_order(channel.as_fd(), Wait::Yes) {
            Ok(Order::Proceed) => Ok(Trusted(())),
            // The supervisor failed and is about to say why, or is dead.
            Ok(_) | Err(_) => sys::exit_now(1),
        }
    }

    pub fn isolate(self, isolate: &Isolate, injected: Option<Injected>) -> Result<Isolated, StepError> {
        if isolate.cgroup.is_some() {
            // Made by clone3, its root would be the supervisor's group (cgroup_namespaces(7)).
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWCGROUP)
                .map_err(|errno| StepError::new("an own cgroup namespace", errno))?;
        }
        if isolate.loopback {
            let step = "bring loopback up";
            if injected == Some(Injected::Netns) {
                return Err(StepError::new(step, "Operation not permitted (injected)").hint(hints::NETNS));
            }
            sys::loopback_up().map_err(|errno| {
                let error = StepError::new(step, errno);
                // Ubuntu makes the namespaces and takes the capabilities over them: the first use of one shows it.
                if errno == rustix::io::Errno::PERM { error.hint(hints::USERNS) } else { error.hint(hints::NETNS) }
            })?;
        }
        Ok(Isolated(()))
    }
}

#[cfg(test)]
mod tests {
    use super::id_map;

    #[test]
    fn every_id_that_we_have_is_mapped_once() {
        assert_eq!(id_map(&[(0, u32::MAX)], false), "0 0 4294967295\n");
        let swapped = "65534 0 1\n1 1 65533\n0 65534 1\n65535 65535 4294901760\n";
        assert_eq!(id_map(&[(0, u32::MAX)], true), swapped);
        assert_eq!(id_map(&[(0, 1), (1, 65_533)], true), "65534 0 1\n1 1 65533\n");
    }
}
