//! Landlock with every right and scope of the kernel's ABI. The rules are opened here, after the mounts exist: a rule
//! names an inode, and the host's are not those of the tmpfs and overlays inside.

use super::StepError;
use super::mount::{leak, source};
use super::seal::kept_descriptors;
use crate::plan::{LandlockPlan, PathRule, Rights, hints};
use crate::sys;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const STEP: &str = "landlock";

fn fail(error: impl std::fmt::Display) -> StepError {
    StepError::new(STEP, error).hint(hints::LANDLOCK)
}

/// Restricts this process, and all that it will start, for ever.
pub(super) fn restrict(plan: &LandlockPlan, passed: &[i32]) -> Result<(), StepError> {
    let Ok(number) = i32::try_from(plan.abi) else { return Err(fail("unknown ABI")) };
    if number == 0 {
        return Err(fail("this kernel has no Landlock"));
    }
    let abi = ABI::from(number);
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if plan.files {
        ruleset = ruleset.handle_access(AccessFs::from_all(abi)).map_err(fail)?;
    }
    let scopes = Scope::from_all(abi);
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes).map_err(fail)?;
    }
    if scopes.is_empty() && plan.ports.is_some() {
        // With a network of its own the box has abstract sockets of its own; with the host's only a scope keeps them apart.
        return Err(fail("no scopes (ABI 6, Linux 6.12): the host's abstract unix sockets would be within reach"));
    }
    let handled = handled_ports(plan, abi)?;
    if !handled.is_empty() {
        ruleset = ruleset.handle_access(handled).map_err(fail)?;
    }
    if !plan.files && scopes.is_empty() && handled.is_empty() {
        return Ok(());
    }
    let mut created = ruleset.create().map_err(fail)?;
    if let Some(ports) = &plan.ports {
        for (list, access) in [(&ports.connect, AccessNet::ConnectTcp), (&ports.bind, AccessNet::BindTcp)] {
            for &port in list {
                created = created.add_rule(NetPort::new(port, access)).map_err(fail)?;
            }
        }
    }
    // The crate has checked that the kernel handles all of it (HardRequirement). The rules on paths, of which there may
    // be a thousand, need no more of it than the bits.
    let Some(ruleset) = Option::<OwnedFd>::from(created) else { return Err(fail("no ruleset")) };
    if plan.files {
        for rule in &plan.rules {
            path_rule(ruleset.as_fd(), rule, abi)?;
        }
        for fd in kept_descriptors(passed) {
            descriptor_rule(ruleset.as_fd(), fd, abi)?;
        }
    }
    // With no_new_privs from pid 1, without which it is refused: whole, or not at all.
    sys::landlock_restrict(ruleset.as_fd()).map_err(fail)?;
    leak(ruleset);
    Ok(())
}

/// The TCP rights to handle: those with a list of ports. In an own network namespace none, for a bind on its loopback
/// is harmless.
fn handled_ports(plan: &LandlockPlan, abi: ABI) -> Result<BitFlags<AccessNet>, StepError> {
    let mut handled = BitFlags::EMPTY;
    if plan.no_tcp {
        // A second wall behind seccomp, where the ABI has it.
        return Ok(AccessNet::from_all(abi));
    }
    if let Some(ports) = &plan.ports {
        if !ports.connect.is_empty() {
            handled |= AccessNet::ConnectTcp;
        }
        if !ports.bind.is_empty() {
            handled |= AccessNet::BindTcp;
        }
    }
    if !handled.is_empty() && AccessNet::from_all(abi).is_empty() {
        return Err(fail("this kernel's Landlock has no TCP rules (ABI 4, Linux 6.7)"));
    }
    Ok(handled)
}

fn access(rights: Rights, abi: ABI) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    let files = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate;
    let wanted = match rights {
        Rights::List => AccessFs::ReadDir.into(),
        Rights::Read => read,
        Rights::Write => AccessFs::from_all(abi) & !BitFlags::from(AccessFs::IoctlDev),
        // connect(2) on a granted socket is a right of its own from ABI 9 on.
        Rights::Files => files | AccessFs::ResolveUnix,
        Rights::Terminal => files | AccessFs::IoctlDev,
    };
    wanted & AccessFs::from_all(abi)
}

fn path_rule(ruleset: BorrowedFd<'_>, rule: &PathRule, abi: ABI) -> Result<(), StepError> {
    let at = |error: &dyn std::fmt::Display| {
        let step = format!("{STEP}: rule for {}", rule.at.display());
        StepError::new(step, error)
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match rule.id {
        Some(id) => source(&rule.at, Some(id)).map_err(|error| at(&error))?,
        None => rustix::fs::open(&rule.at, flags, Mode::empty()).map_err(|error| at(&error))?,
    };
    let mut rights = access(rule.rights, abi);
    if !rule.dir {
        rights &= AccessFs::from_file(abi);
    }
    let added = match sys::landlock_allow(ruleset, fd.as_fd(), rights.bits()) {
        // A directory when the policy was resolved, and a file now: it has a file's rights and no more.
        Err(Errno::INVAL) if rule.dir => {
            sys::landlock_allow(ruleset, fd.as_fd(), (rights & AccessFs::from_file(abi)).bits())
        }
        other => other,
    };
    added.map_err(|error| at(&error))?;
    leak(fd);
    Ok(())
}

/// A file that the caller redirected can be opened again through /proc/self/fd (`> /dev/stdout`), in the way it was
/// opened first and in no other: a read-only stdin stays unwritable.
fn descriptor_rule(ruleset: BorrowedFd<'_>, fd: BorrowedFd<'_>, abi: ABI) -> Result<(), StepError> {
    let stat = rustix::fs::fstat(fd).map_err(fail)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let device = kind == FileType::CharacterDevice;
    // Pipes and sockets have no place in any tree: Landlock takes no rule for them and needs none.
    if !device && kind != FileType::RegularFile {
        return Ok(());
    }
    let flags = rustix::fs::fcntl_getfl(fd).map_err(fail)?;
    let mode = flags & OFlags::RWMODE;
    let mut rights = BitFlags::<AccessFs>::EMPTY;
    if mode != OFlags::WRONLY {
        rights |= AccessFs::ReadFile;
    }
    if mode != OFlags::RDONLY {
        rights |= AccessFs::WriteFile | AccessFs::Truncate;
    }
    if device {
        rights |= AccessFs::IoctlDev;
    }
    sys::landlock_allow(ruleset, fd, (rights & AccessFs::from_file(abi)).bits()).map_err(fail)
}
