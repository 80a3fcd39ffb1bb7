//! Executes a plan, stage by stage: trusted > isolated > rooted > unprivileged > sealed > exec. Each stage consumes the
//! one before, so that a wrong order cannot be written. It decides nothing and adds no step that the plan lacks.

mod cgroup;
mod descendants;
mod error;
mod exec;
mod git;
mod isolate;
mod landlock;
mod listen;
mod mount;
pub mod pid1;
mod probe;
mod root;
mod seal;
mod seccomp;
mod shorten;
mod verify;
mod whiteout;
pub mod wire;

pub use cgroup::{Group, Reached};
pub use error::{StepError, Surroundings};
pub use probe::{prepare_lower, probe};

use crate::plan::{Plan, hints};
use crate::sys::{self, Child};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// The directories of one session layer.
#[derive(Debug, Clone)]
pub struct LayerDirs {
    pub upper: PathBuf,
    pub work: PathBuf,
}

/// A layer that `AGENTBOX_TEST_FAIL` makes fail: it can only make a run fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injected {
    Userns,
    Mount,
    Seccomp,
    Landlock,
    Netns,
}

/// The box, seen from outside.
#[derive(Debug)]
pub struct Launched {
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub channel: OwnedFd,
    /// Gone when dropped, once the box is.
    pub group: Option<Group>,
    /// The box's mount namespace, where it was asked for.
    pub mount_namespace: Option<OwnedFd>,
}

/// What a launch needs beside the plan.
pub struct Launch<'a> {
    pub plan: &'a Plan,
    pub layers: &'a [LayerDirs],
    pub terminal: Option<pid1::Terminal>,
    pub injected: Option<Injected>,
    /// Asked only when the launch is refused.
    pub around: &'a dyn Fn() -> Surroundings,
    /// Keep a way into the box's mount namespace.
    pub guarded: bool,
}

/// Starts the box: one clone3 with all namespaces, the uid map from outside, and the stages inside.
///
/// The caller must have a single thread, and must be the one that stays: the box dies with it.
///
/// # Errors
/// What failed before the stages began; what fails in them comes as a report on the channel.
pub fn launch(launch: Launch<'_>) -> Result<Launched, StepError> {
    let isolate = &launch.plan.isolate;
    let bare = isolate.namespaces.is_empty();
    if launch.injected == Some(Injected::Userns) && !bare {
        return Err(StepError::new(isolate, "Operation not permitted (injected)").hint(hints::USERNS));
    }
    let group = isolate.cgroup.as_ref().map(Group::make).transpose()?;
    let (outside, inside) = wire::pair().map_err(|errno| StepError::new("a channel to the box", errno))?;
    let group_fd = group.as_ref().map(Group::fd);
    // clone3 is what some containers refuse; without namespaces fork does.
    match if bare { sys::fork_with_pidfd() } else { sys::clone3(isolate::flags(isolate), group_fd) } {
        Ok(Child::Inside) => box_main(launch, outside, inside),
        Ok(Child::Outside { pid, pidfd }) => {
            drop(inside);
            // Without its map the box holds no privileges and waits; dropped, the channel ends it.
            isolate::write_maps(pid, isolate)?;
            // Now: once pid 1 is not dumpable, /proc/PID/ns is closed to an ordinary user.
            let mount_namespace = launch.guarded.then(|| isolate::mount_namespace(pid)).transpose()?;
            wire::send_order(outside.as_fd(), wire::Order::Proceed, wire::Wait::Yes)
                .map_err(|err| StepError::new(isolate, format!("the box died at once ({err:?})")))?;
            Ok(Launched { pid, pidfd, channel: outside, group, mount_namespace })
        }
        Err(errno) => {
            if let (Some(group), true) = (&group, cgroup::refuses(errno)) {
                return Err(group.refused(isolate, errno));
            }
            let error = StepError::new(isolate, errno);
            Err(match error::clone_hint(errno, (launch.around)()) {
                Some(hint) => error.hint(hint),
                None => error,
            })
        }
    }
}

/// Everything inside, up to pid 1's wait: never returns.
fn box_main(launch: Launch<'_>, outside: OwnedFd, inside: OwnedFd) -> ! {
    if pid1::bind_to_parent(inside.as_fd(), outside).is_err() {
        sys::exit_now(1);
    }
    let rooted = match stages(&launch, &inside) {
        Ok(rooted) => rooted,
        Err(error) => {
            wire::send_report(inside.as_fd(), &wire::Report::Failed(error.into()), wire::Wait::Yes).ok();
            sys::exit_now(1)
        }
    };
    let Launch { plan, terminal, injected, .. } = launch;
    let scope = if plan.isolate.namespaces.is_empty() { pid1::Scope::Descendants } else { pid1::Scope::Namespace };
    pid1::run(inside, terminal, scope, move |channel| match rooted.seal(&plan.seal, channel, injected) {
        Ok(sealed) => sealed.exec(&plan.exec),
        Err(error) => error.into(),
    })
}

fn stages(launch: &Launch<'_>, channel: &OwnedFd) -> Result<seal::Unprivileged, StepError> {
    let trusted = isolate::Trusted::await_map(channel)?;
    let isolated = trusted.isolate(&launch.plan.isolate, launch.injected)?;
    let rooted = isolated.root(launch)?;
    // After /proc/self/fd was needed for the overlays, before the command can look.
    pid1::hide().map_err(|errno| StepError::new("hide pid 1 from the command", errno))?;
    rooted.drop_privileges(launch.plan.seal.on_the_host)
}
