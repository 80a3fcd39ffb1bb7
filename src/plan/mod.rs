//! Ordered steps and their rendering. Pure: a plan is compiled from a policy, the host's facts and what the scan found,
//! and says everything that `enforce` will do; it opens nothing and makes nothing.

mod compile;
pub mod doctor;
mod git;
pub mod hints;
mod landlock;
mod render;
mod syscalls;
mod tier;

pub use compile::compile;
pub use landlock::{PathRule, Rights};
pub use render::shown;
pub use syscalls::{DENIED, Denied, When};
pub use tier::{ON_THE_HOST, WITHOUT_NETWORK, WITHOUT_PATH_SOCKETS};

use crate::path::FileId;
pub use crate::policy::{Limits, Ports, Private};

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A namespace that the box has for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    User,
    Mount,
    Pid,
    Ipc,
    Uts,
    Cgroup,
    Net,
}

/// How ids map: an ordinary user maps itself alone, root all ids that its own namespace has, so that foreign owners keep
/// their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdMap {
    /// (first, count) of users and of groups.
    All {
        uids: Vec<(u32, u32)>,
        gids: Vec<(u32, u32)>,
        /// With `--nested`: root and [`NOBODY`] change their numbers. A namespace inside has to map the caller again,
        /// and the kernel lets nobody map a parent's uid 0 without CAP_SETFCAP, which no command here has
        /// (user_namespaces(7)).
        swapped: bool,
    },
    Own {
        uid: u32,
        gid: u32,
    },
    /// Without namespaces there is nothing to map.
    Kept,
}

/// The id that root takes inside with `--nested`.
pub const NOBODY: u32 = 65_534;

/// A group of cgroup v2 for this box alone, made by the supervisor, bounding all processes of the box together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Where it is made, under a name that nobody else takes.
    pub parent: PathBuf,
    /// Bytes; `None` is not bounded by it.
    pub memory: Option<u64>,
    pub processes: Option<u64>,
}

/// The first stage: namespaces, all from one clone3(2); none with `--degraded mounts`, and then a plain fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolate {
    /// The group that pid 1 is born into, where there is one. The cgroup namespace is then made inside, for its root is
    /// the group of the process that makes it.
    pub cgroup: Option<Cgroup>,
    pub namespaces: Vec<Namespace>,
    pub ids: IdMap,
    /// Bring loopback up in the own network namespace.
    pub loopback: bool,
}

/// A name that the overlay's lower layers must not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whiteout {
    /// Relative to the root.
    pub at: PathBuf,
    pub rule: String,
}

/// One step of the second stage, in the order of execution. Paths named `at` are inside, `from` on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootStep {
    /// Make every mount private: nothing propagates in or out.
    Rprivate,
    /// One tmpfs that all private writable places share, and its size in bytes. Between the old root and the new one,
    /// and detached with the old one: before Linux 6.15 nothing of a mount that is attached nowhere can be bound.
    ScratchSpace {
        bytes: u64,
    },
    /// A directory of the scratch space, bound over the old root.
    NewRoot,
    Dir {
        at: PathBuf,
        mode: u32,
    },
    File {
        at: PathBuf,
        content: Vec<u8>,
    },
    Symlink {
        at: PathBuf,
        target: PathBuf,
    },
    /// A read-only part of the system, sealed with the new root.
    System {
        from: PathBuf,
        at: PathBuf,
    },
    /// The new root and all of the system in it become read-only, no set-id, no devices: one call, submounts included.
    SealRoot,
    Device {
        name: &'static str,
    },
    /// A devpts of the box's own at /dev/pts.
    Devpts,
    /// The launcher's terminal at /dev/console, so that ttyname(3) finds it.
    Terminal,
    /// With `--nested`: one more fresh /proc, below where the next one goes and out of every path's reach. The kernel
    /// grants a namespace inside a /proc of its own only while some /proc that nothing covers is mounted here, and masks
    /// cover the visible one. For root it is read-only, and so is then every /proc that is mounted inside: uid 0 could
    /// write the machine's settings in /proc/sys, capabilities or not.
    ProcForNested {
        writable: bool,
    },
    /// A fresh /proc of the own pid namespace.
    Proc,
    /// As root, RLIMIT_NPROC does not bind: the pid namespace's own maximum does.
    PidMax {
        processes: u64,
    },
    ProcReadOnly {
        at: &'static str,
    },
    ProcHide {
        at: &'static str,
    },
    Private {
        at: PathBuf,
        place: Private,
    },
    /// A bind mount of a root, a toolchain or a socket.
    Bind {
        from: PathBuf,
        at: PathBuf,
        writable: bool,
        id: Option<FileId>,
    },
    /// An overlay over a root: session layer (if writable), whiteouts, the real tree.
    Overlay {
        lower: PathBuf,
        at: PathBuf,
        layer: Option<usize>,
        whiteouts: Vec<Whiteout>,
        id: Option<FileId>,
    },
    /// A hidden directory that has something granted below it: empty but for the way there.
    Shell {
        at: PathBuf,
        children: Vec<(PathBuf, bool)>,
    },
    /// A directory that must not be moved: a writable bind of itself, for a mount point cannot be renamed.
    Pin {
        at: PathBuf,
    },
    /// A visible name that is never written: a read-only bind of itself.
    Freeze {
        at: PathBuf,
        rule: String,
    },
    /// A hidden name of a live root: an empty file or directory of mode 000 over it, so that opening is refused.
    Mask {
        at: PathBuf,
        dir: bool,
        rule: String,
    },
    /// An index in which the hidden names that it tracks are marked as not checked out. Written through the overlay of a
    /// root, or bound read-only over the real one.
    Index {
        at: PathBuf,
        content: Vec<u8>,
        /// In seconds and nanoseconds.
        modified: (i64, i64),
        bound: bool,
        /// How many names are marked.
        names: usize,
    },
    /// A hidden name of a live root that git tracks: a mask which answers stat(2) as what it covers does. In a directory
    /// so do the names that are tracked, relative to it.
    Twin {
        at: PathBuf,
        dir: bool,
        names: Vec<PathBuf>,
        rule: String,
    },
    PivotRoot,
    /// Lazily: nothing of it is reachable any more, no path and no descriptor.
    DetachOldRoot,
}

/// What holds a limit, and so what the limit covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// All processes of the box together.
    Cgroup,
    /// All processes of the box, by the largest number that one can have.
    PidMax,
    /// Processes: all of the box, which is a user namespace of its own. Memory: each process by itself.
    Rlimit,
    /// Without a user namespace: all that the user runs, on the whole host.
    UserRlimit,
    /// Without a pid namespace nothing bounds root's.
    Nothing,
}

/// The third stage, in order: each is inherited by all that the command starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    pub limits: Limits,
    /// As root RLIMIT_NPROC is not set, for it would not bind.
    pub processes_by: By,
    pub memory_by: By,
    /// Descriptors beside 0, 1 and 2 that stay open.
    pub fds: Vec<i32>,
    pub landlock: Option<LandlockPlan>,
    /// The supervisor is told of calls that change files, before they are made.
    pub notify: bool,
    pub seccomp: bool,
    /// Lists of refused calls beside [`DENIED`].
    pub refused: Vec<&'static [Denied]>,
    /// On the host itself: no namespace, so a caller without CAP_SETPCAP keeps its bounding set, from which
    /// no_new_privs lets nothing be gained.
    pub on_the_host: bool,
    /// The command may make its own user namespaces and mounts.
    pub nested: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandlockPlan {
    pub abi: u32,
    /// Empty and `files` false with `--nested`: any file rule makes mount(2) fail below.
    pub files: bool,
    pub rules: Vec<PathRule>,
    /// Only with the host's network.
    pub ports: Option<Ports>,
    /// Every TCP connection and listening refused, where the ABI can.
    pub no_tcp: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    pub command: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
}

/// Everything that one run does, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Roots whose writes land in a session layer; `RootStep::Overlay::layer` counts into this.
    pub layers: Vec<PathBuf>,
    pub isolate: Isolate,
    pub root: Vec<RootStep>,
    pub seal: Seal,
    pub exec: Exec,
    pub time_limit: Option<Duration>,
    /// Without mounts: TMPDIR, made before the launch and removed after it.
    pub tmp: Option<PathBuf>,
    /// Without mounts: what was given up, one line a layer.
    pub lost: Vec<String>,
    /// Said before the run.
    pub notices: Vec<String>,
}

impl Plan {
    /// Every name that is hidden at launch, with its rule.
    pub fn hidden(&self) -> Vec<(PathBuf, &str)> {
        let mut out = Vec::new();
        for step in &self.root {
            if let RootStep::Mask { at, rule, .. } | RootStep::Twin { at, rule, .. } = step {
                out.push((at.clone(), rule.as_str()));
            } else if let RootStep::Overlay { at, whiteouts, .. } = step {
                out.extend(whiteouts.iter().map(|name| (at.join(&name.at), name.rule.as_str())));
            }
        }
        out
    }
}
