//! The first stage: namespaces, id maps, loopback.

use super::wire::{self, Order, Wait};
use super::{Injected, StepError, USERNS_HINT};
use crate::plan::{IdMap, Isolate, Namespace};
use crate::sys::{self, CloneFlags};
use std::io::Write;
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
    let write = |file: &str, content: &str| {
        let path = format!("/proc/{pid}/{file}");
        // One write(2): the kernel takes a map whole or not at all (user_namespaces(7)).
        let mut options = std::fs::OpenOptions::new();
        let result = options.write(true).open(&path).and_then(|mut map| map.write_all(content.as_bytes()));
        // Ubuntu lets the namespace be made and then takes its capabilities: this is where it shows.
        result.map_err(|err| StepError::new(isolate, format!("writing {path}: {err}")).hint(USERNS_HINT))
    };
    let same = |ranges: &[(u32, u32)]| -> String {
        ranges.iter().map(|(first, count)| format!("{first} {first} {count}\n")).collect()
    };
    match &isolate.ids {
        IdMap::All { uids, gids } => {
            write("uid_map", &same(uids))?;
            write("gid_map", &same(gids))
        }
        IdMap::Own { uid, gid } => {
            // Before gid_map, or the kernel refuses it to an ordinary user: dropping a group could widen access.
            write("setgroups", "deny")?;
            write("uid_map", &format!("{uid} {uid} 1"))?;
            write("gid_map", &format!("{gid} {gid} 1"))
        }
    }
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
        if isolate.loopback {
            let step = "bring loopback up";
            if injected == Some(Injected::Netns) {
                return Err(StepError::new(step, "Operation not permitted (injected)"));
            }
            sys::loopback_up().map_err(|errno| StepError::new(step, errno))?;
        }
        Ok(Isolated(()))
    }
}
