//! The third stage: capabilities in pid 1 already, everything else in the command's own process, last of all seccomp.

use super::root::Rooted;
use super::{Injected, StepError, landlock, listen, seccomp, verify};
use crate::plan::{By, Seal};
use crate::sys;
use caps::CapSet;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use std::os::fd::BorrowedFd;

/// Without capabilities and with no way to regain any.
pub(super) struct Unprivileged(());

/// With every layer on and read back.
pub(super) struct Sealed(pub(super) ());

impl Rooted {
    /// Drops all five sets. In pid 1, before the command is forked, for it needs none any more either.
    ///
    /// `on_the_host` there is no user namespace in which an ordinary user holds CAP_SETPCAP: its bounding set stays, and
    /// no_new_privs lets execve(2) gain nothing from it. The look back still wants the other sets empty.
    pub fn drop_privileges(self, on_the_host: bool) -> Result<Unprivileged, StepError> {
        let step = "drop all capabilities from all five sets, lock securebits";
        let fail = |what: &'static str| move |errno: Errno| StepError::new(step, format!("{what}: {errno}"));
        // Locked, uid 0 is an ordinary number to execve(2): it brings no capabilities back.
        let bits = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        let kept = |errno| on_the_host && errno == Errno::PERM;
        match rustix::thread::set_capabilities_secure_bits(bits) {
            Err(errno) if !kept(errno) => return Err(fail("securebits")(errno)),
            Ok(()) | Err(_) => {}
        }
        // Every number until the kernel knows no more: `caps` takes an error of the query for "not set".
        for number in 0..64 {
            match sys::drop_bounding(number) {
                Ok(()) => {}
                Err(Errno::INVAL) if number > 0 => break,
                Err(errno) if kept(errno) => break,
                Err(errno) => return Err(fail("bounding set")(errno)),
            }
        }
        caps::clear(None, CapSet::Ambient).map_err(|err| StepError::new(step, format!("ambient set: {err}")))?;
        // The other three in one call: `caps` reads and writes all three for each of them.
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).map_err(fail("permitted, effective and inheritable set"))?;
        rustix::thread::set_no_new_privs(true).map_err(|errno| StepError::new("no_new_privs", errno))?;
        Ok(Unprivileged(()))
    }
}

impl Unprivileged {
    /// In the command's process. Descriptors first, since rules are opened after; seccomp last, since it refuses what
    /// the other steps need; then the look back.
    pub fn seal(self, plan: &Seal, channel: BorrowedFd<'_>, injected: Option<Injected>) -> Result<Sealed, StepError> {
        sys::close_range_cloexec(3).map_err(|errno| StepError::new("close every descriptor above 2", errno))?;
        for &fd in &plan.fds {
            sys::keep_open(fd).map_err(|errno| {
                StepError::new(format!("pass descriptor {fd}"), errno)
                    .hint("--fd takes the number of an open descriptor")
            })?;
        }
        if let Some(rules) = &plan.landlock {
            if injected == Some(Injected::Landlock) {
                return Err(StepError::new("landlock", "Operation not supported (injected)"));
            }
            landlock::restrict(rules, &plan.fds)?;
        }
        if plan.notify {
            listen::install(channel)?;
        }
        if plan.seccomp {
            if injected == Some(Injected::Seccomp) {
                return Err(StepError::new("seccomp", "Invalid argument (injected)"));
            }
            seccomp::install(plan.nested, &plan.refused)?;
        }
        verify::read_back(plan)?;
        // After everything that needs descriptors or memory of its own, and still before exec: they are the command's.
        limits(plan)?;
        Ok(Sealed(()))
    }
}

fn limits(plan: &Seal) -> Result<(), StepError> {
    let limits = &plan.limits;
    let processes = limits.processes.filter(|_| matches!(plan.processes_by, By::Rlimit | By::UserRlimit));
    let memory = limits.memory.filter(|_| plan.memory_by == By::Rlimit);
    let all = [
        (Resource::RLIMIT_NPROC, processes, "processes"),
        (Resource::RLIMIT_DATA, memory, "memory"),
        (Resource::RLIMIT_FSIZE, limits.file_size, "file_size"),
        (Resource::RLIMIT_NOFILE, limits.open_files, "open_files"),
        // A crash in the box writes no core where the host's handler would take it.
        (Resource::RLIMIT_CORE, Some(0), "core"),
    ];
    for (resource, limit, name) in all {
        let Some(limit) = limit else { continue };
        let fail = |errno: nix::Error| StepError::new(format!("limit {name}={limit}"), errno);
        match setrlimit(resource, limit, limit) {
            // Above what the caller may have: then that holds.
            Err(nix::Error::EPERM) => {
                let (_, hard) = getrlimit(resource).map_err(fail)?;
                setrlimit(resource, limit.min(hard), limit.min(hard)).map_err(fail)?;
            }
            other => other.map_err(fail)?,
        }
    }
    Ok(())
}

/// Descriptors 0 to 2 and those passed on purpose, where open.
pub(super) fn kept_descriptors(fds: &[i32]) -> impl Iterator<Item = BorrowedFd<'static>> + '_ {
    [0, 1, 2].iter().chain(fds).filter_map(|&fd| sys::borrow_if_open(fd))
}
