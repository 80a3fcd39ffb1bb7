//! Tries what a box needs, with the very calls that a run makes, in a process that is then thrown away. For `doctor`
//! alone: no run starts with a trial.

use super::isolate::{self, Trusted};
use super::mount::{
    MountError, attach_at, call, clone_tree, new_file_system, overlay, relative, set_attributes, source,
};
use super::root::{Rooted, fresh_proc, over_everything};
use super::{Group, LayerDirs, StepError, landlock, pid1, seccomp, wire};
use crate::plan::doctor::{Attempt, Refused, Trial};
use crate::plan::{Cgroup, Isolate, LandlockPlan, Namespace, PathRule, Rights};
use crate::sys::{self, Child, CloneFlags, Fork, MountAttr};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const NAMESPACES: [Namespace; 7] = [
    Namespace::User,
    Namespace::Mount,
    Namespace::Pid,
    Namespace::Ipc,
    Namespace::Uts,
    Namespace::Cgroup,
    Namespace::Net,
];

/// The trials of a process inside, in their order: what it reports is an index into this.
const INSIDE: [Trial; 10] = [
    Trial::Loopback,
    Trial::Private,
    Trial::Mounts,
    Trial::Proc,
    Trial::Devpts,
    Trial::Overlay,
    Trial::StateLayer,
    Trial::Privileges,
    Trial::Landlock,
    Trial::Seccomp,
];

/// Names below a layer's trial directory: the tree that the overlay lies over, with `file`, `gone` and `dir` in it.
pub const LOWER: &str = "lower";

type Result<T> = std::result::Result<T, Refused>;

impl From<MountError> for Refused {
    fn from(error: MountError) -> Refused {
        let errno = match &error {
            MountError::Errno(_, errno) => Some(errno.raw_os_error()),
            MountError::Changed => None,
        };
        Refused { errno, text: error.to_string() }
    }
}

impl From<StepError> for Refused {
    fn from(error: StepError) -> Refused {
        Refused { errno: None, text: format!("{}: {}", error.step, error.cause) }
    }
}

fn refused(what: &str, errno: Errno) -> Refused {
    Refused { errno: Some(errno.raw_os_error()), text: format!("{what}: {errno}") }
}

/// Tries everything. `layer` names empty directories on the state directory's file system, and `lower` a tree there;
/// without them that trial is left out. The caller must have a single thread.
pub fn probe(isolate: &Isolate, layer: Option<(&LayerDirs, &Path)>, abi: u32) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    if let Some(plan) = &isolate.cgroup {
        let result = born_in_group(isolate, plan);
        attempts.push(Attempt { trial: Trial::Cgroup, result });
    }
    match in_namespaces(isolate, layer, abi, &mut attempts) {
        Ok(()) => attempts.push(Attempt { trial: Trial::Clone, result: Ok(()) }),
        Err(err) => {
            attempts.push(Attempt { trial: Trial::Clone, result: Err(err) });
            alone(isolate, &mut attempts);
        }
    }
    // Without namespaces, and where a trial before them ended the process, they can still be had.
    if !attempts.iter().any(|attempt| attempt.trial == Trial::Seccomp) {
        let seal = forked(|report| seal(report, abi, In::TheHost));
        attempts.retain(|attempt| !seal.iter().any(|again| again.trial == attempt.trial));
        attempts.extend(seal);
    }
    attempts
}

/// Err is clone3's own; all else is among the attempts.
fn in_namespaces(
    isolate: &Isolate,
    layer: Option<(&LayerDirs, &Path)>,
    abi: u32,
    attempts: &mut Vec<Attempt>,
) -> Result<()> {
    let (outside, inside) = wire::pair().map_err(|errno| refused("socketpair", errno))?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| refused("pipe2", errno))?;
    match sys::clone3(isolate::flags(isolate), None) {
        Err(errno) => Err(refused("clone3", errno)),
        Ok(Child::Inside) => {
            drop(read);
            if pid1::bind_to_parent(inside.as_fd(), outside).is_ok() && Trusted::await_map(&inside).is_ok() {
                let report = Reporter(write);
                mounts(&report, layer);
                seal(&report, abi, In::Namespaces);
            }
            sys::exit_now(0)
        }
        Ok(Child::Outside { pidfd, pid }) => {
            drop((inside, write));
            let mapped = isolate::write_maps(pid, isolate).map_err(Refused::from);
            if mapped.is_ok() {
                // A child that is dead already says so by the end of its pipe.
                wire::send_order(outside.as_fd(), wire::Order::Proceed, wire::Wait::Yes).ok();
            }
            let failed = mapped.is_err();
            // Unmapped it waits for the order that does not come: the channel's end ends it. Otherwise that end must not
            // come before its last report.
            let outside = if failed { None } else { Some(outside) };
            attempts.push(Attempt { trial: Trial::IdMap, result: mapped.map_err(eperm_of_map) });
            attempts.extend(received(read, if failed { &[] } else { &INSIDE }));
            let wait = rustix::process::WaitId::PidFd(pidfd.as_fd());
            rustix::process::waitid(wait, rustix::process::WaitIdOptions::EXITED).ok();
            drop(outside);
            Ok(())
        }
    }
}

/// A map is refused for want of a capability, whatever the words.
fn eperm_of_map(error: Refused) -> Refused {
    Refused { errno: error.errno.or(Some(Errno::PERM.raw_os_error())), text: error.text }
}

/// A process that ends at once, born into a group with the limits of a run.
fn born_in_group(isolate: &Isolate, plan: &Cgroup) -> Result<()> {
    let group = Group::make(plan)?;
    match sys::clone3(CloneFlags(0), Some(group.fd())) {
        Ok(Child::Inside) => sys::exit_now(0),
        Ok(Child::Outside { pidfd, .. }) => {
            let wait = rustix::process::WaitId::PidFd(pidfd.as_fd());
            rustix::process::waitid(wait, rustix::process::WaitIdOptions::EXITED).ok();
            Ok(())
        }
        Err(errno) => Err(group.refused(isolate, errno).into()),
    }
}

/// Which of the namespaces is it that cannot be had?
fn alone(isolate: &Isolate, attempts: &mut Vec<Attempt>) {
    for namespace in NAMESPACES {
        let flags = super::isolate::flags(&Isolate {
            cgroup: None,
            namespaces: vec![Namespace::User, namespace],
            ids: isolate.ids.clone(),
            loopback: false,
        });
        let result = match sys::clone3(CloneFlags(flags.0), None) {
            Ok(Child::Inside) => sys::exit_now(0),
            Ok(Child::Outside { pidfd, .. }) => {
                let wait = rustix::process::WaitId::PidFd(pidfd.as_fd());
                rustix::process::waitid(wait, rustix::process::WaitIdOptions::EXITED).ok();
                Ok(())
            }
            Err(errno) => Err(refused("clone3", errno)),
        };
        attempts.push(Attempt { trial: Trial::Alone(namespace), result });
    }
}

/// Runs trials in a plain child.
fn forked(trials: impl FnOnce(&Reporter)) -> Vec<Attempt> {
    let Ok((read, write)) = pipe_with(PipeFlags::CLOEXEC) else { return Vec::new() };
    match sys::fork() {
        Err(_) => Vec::new(),
        Ok(Fork::Child) => {
            drop(read);
            trials(&Reporter(write));
            sys::exit_now(0)
        }
        Ok(Fork::Parent { child }) => {
            drop(write);
            let attempts = received(read, &[]);
            rustix::process::waitpid(rustix::process::Pid::from_raw(child), rustix::process::WaitOptions::empty()).ok();
            attempts
        }
    }
}

/// Tells the parent, one line a trial: index, errno (0 where it went well, -1 where there is none), text.
struct Reporter(OwnedFd);

impl Reporter {
    fn tell(&self, trial: Trial, result: &Result<()>) {
        let Some(index) = INSIDE.iter().position(|known| *known == trial) else { return };
        let line = match result {
            Ok(()) => format!("{index} 0 \n"),
            Err(err) => format!("{index} {} {}\n", err.errno.unwrap_or(-1), err.text.replace('\n', " ")),
        };
        // A parent that does not listen is dead, and the death signal is on its way.
        rustix::io::write(&self.0, line.as_bytes()).ok();
    }
}

/// The reports, and for each of `expected` that did not come the news that the process ended before it.
fn received(read: OwnedFd, expected: &[Trial]) -> Vec<Attempt> {
    let mut text = String::new();
    std::fs::File::from(read).read_to_string(&mut text).ok();
    let mut attempts: Vec<Attempt> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ' ');
            let trial = *INSIDE.get(fields.next()?.parse::<usize>().ok()?)?;
            let result = match fields.next()?.parse::<i32>().ok()? {
                0 => Ok(()),
                errno => {
                    let errno = Some(errno).filter(|errno| *errno > 0);
                    Err(Refused { errno, text: fields.next().unwrap_or_default().to_owned() })
                }
            };
            Some(Attempt { trial, result })
        })
        .collect();
    // One that was left out on purpose says so with no report between others; only an early end loses the last ones.
    if !expected.is_empty() && !attempts.iter().any(|attempt| attempt.trial == Trial::Seccomp) {
        let reached =
            attempts.iter().filter_map(|attempt| INSIDE.iter().position(|trial| *trial == attempt.trial)).max();
        for trial in expected.iter().skip(reached.map_or(0, |last| last + 1)) {
            let text = "the process that tried it was killed".to_owned();
            attempts.push(Attempt { trial: *trial, result: Err(Refused { errno: None, text }) });
        }
    }
    attempts
}

fn mounts(report: &Reporter, layer: Option<(&LayerDirs, &Path)>) {
    report.tell(Trial::Loopback, &sys::loopback_up().map_err(|errno| refused("bring loopback up", errno)));
    let private = mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC);
    report.tell(Trial::Private, &private.map_err(|errno| refused("make every mount private", errno)));
    if private.is_err() {
        // What follows would change mounts that are not this process's own.
        return;
    }
    report.tell(Trial::Mounts, &mount_calls().map_err(Refused::from));
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    report.tell(Trial::Proc, &fresh_proc(attributes).map(drop).map_err(Refused::from));
    let options = [("ptmxmode", "0666"), ("mode", "0620")];
    report.tell(Trial::Devpts, &new_file_system("devpts", &options, attributes).map(drop).map_err(Refused::from));
    report.tell(Trial::Overlay, &overlay_on_tmpfs().map_err(Refused::from));
    if let Some((dirs, lower)) = layer {
        let tried = || {
            let lower = source(lower, None)?;
            overlay_works(lower.as_fd(), &source(&dirs.upper, None)?, &source(&dirs.work, None)?)
        };
        report.tell(Trial::StateLayer, &tried().map_err(Refused::from));
    }
}

/// A tmpfs over "/", as the new root is, and in it a read-only copy of the whole tree.
fn mount_calls() -> std::result::Result<(), MountError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let new = new_file_system("tmpfs", &[("mode", "0755"), ("size", "1m")], attributes)?;
    call("mkdirat", mkdirat(&new, "tree", Mode::RWXU))?;
    call("move_mount", over_everything(&new))?;
    let tree = call("open_tree", clone_tree(CWD, Path::new("/"), true))?;
    call("mount_setattr", set_attributes(tree.as_fd(), MountAttr::RDONLY | MountAttr::NOSUID | MountAttr::NODEV))?;
    call("move_mount", attach_at(&tree, new.as_fd(), Path::new("/tree")))
}

fn overlay_on_tmpfs() -> std::result::Result<(), MountError> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let scratch = new_file_system("tmpfs", &[("mode", "0755"), ("size", "1m")], attributes)?;
    call("move_mount", over_everything(&scratch))?;
    let open = |name: &str| {
        call("mkdirat", mkdirat(&scratch, name, Mode::RWXU))?;
        call("openat", openat(&scratch, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))
    };
    let (lower, upper, work) = (open(LOWER)?, open("upper")?, open("work")?);
    fill_lower(lower.as_fd())?;
    overlay_works(lower.as_fd(), &upper, &work)
}

/// What [`overlay_works`] wants to find below.
pub(super) fn fill_lower(lower: BorrowedFd<'_>) -> std::result::Result<(), MountError> {
    for name in ["file", "gone"] {
        call("mknodat", mknodat(lower, name, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0))?;
    }
    call("mkdirat", mkdirat(lower, "dir", Mode::RWXU))
}

/// Mounts, copies a file up, removes one (a whiteout), and puts a new directory in an old one's place (an attribute).
fn overlay_works(lower: BorrowedFd<'_>, upper: &OwnedFd, work: &OwnedFd) -> std::result::Result<(), MountError> {
    let merged = overlay(&[lower], Some((upper, work)), MountAttrFlags::empty())?;
    let file = openat(&merged, relative(Path::new("file")), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    drop(call("copy up", file)?);
    call("whiteout", unlinkat(&merged, "gone", AtFlags::empty()))?;
    call("rmdir", unlinkat(&merged, "dir", AtFlags::REMOVEDIR))?;
    call("opaque directory", mkdirat(&merged, "dir", Mode::RWXU))
}

#[derive(Clone, Copy)]
enum In {
    Namespaces,
    TheHost,
}

/// The last stage: what is given up here is given up for good, so it comes last.
fn seal(report: &Reporter, abi: u32, place: In) {
    let dropped = match place {
        In::Namespaces => Rooted(()).drop_privileges(false).map(drop).map_err(Refused::from),
        // Dropping the bounding set needs a capability that only the own namespace gives to everyone.
        In::TheHost => rustix::thread::set_no_new_privs(true).map_err(|errno| refused("no_new_privs", errno)),
    };
    report.tell(Trial::Privileges, &dropped);
    // Landlock and seccomp want it even where the rest of that step failed.
    rustix::thread::set_no_new_privs(true).ok();
    let rules = vec![PathRule { at: "/".into(), dir: true, rights: Rights::Read, id: None }];
    let plan = LandlockPlan { abi, files: true, rules, ports: None, no_tcp: false };
    report.tell(Trial::Landlock, &landlock::restrict(&plan, &[]).map_err(Refused::from));
    report.tell(Trial::Seccomp, &seccomp::install(false, &[]).map_err(Refused::from));
}

/// Fills the directory that [`probe`] gets as the lower layer.
///
/// # Errors
/// The errno of the call that failed.
pub fn prepare_lower(lower: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    fill_lower(lower).map_err(|error| match error {
        MountError::Errno(_, errno) => errno,
        MountError::Changed => Errno::IO,
    })
}
