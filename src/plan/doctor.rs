//! What `doctor` tries, and what the outcome means. Pure: `enforce` carries the trials out, this judges them.

use super::{Isolate, Limits, Namespace, hints};
use crate::host::{Cgroups, Controllers, Facts, Machine, Setting, System};
use std::path::{Path, PathBuf};

/// One thing that a box needs of the kernel, tried for real in a process that is thrown away. In the order of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// One clone3 with every namespace of a box.
    Clone,
    /// A namespace by itself, tried only after `Clone` failed.
    Alone(Namespace),
    /// The same into a group of its own, with the limits of a run: only where a run would do so.
    Cgroup,
    IdMap,
    Loopback,
    /// The first use of a capability over the new namespaces.
    Private,
    /// fsopen, open_tree, mount_setattr, move_mount.
    Mounts,
    Proc,
    Devpts,
    /// An overlay with `userxattr` on a tmpfs: copy up, whiteout, opaque directory.
    Overlay,
    /// The same with its layers where the sessions' lie.
    StateLayer,
    /// Capabilities dropped from all sets, no_new_privs.
    Privileges,
    Landlock,
    Seccomp,
}

/// Why a trial failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The system call's errno, where one failed.
    pub errno: Option<i32>,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub trial: Trial,
    pub result: Result<(), Refused>,
}

/// The group, the namespaces and the map that a run of this user gets by default.
pub fn isolate(facts: &Facts) -> Isolate {
    use Namespace::{Cgroup, Ipc, Mount, Net, Pid, User, Uts};
    let ids = super::compile::ids(facts, false);
    let cgroup = super::compile::cgroup(&facts.cgroups, &Limits::default_on(facts.memory));
    Isolate { cgroup, namespaces: vec![User, Mount, Pid, Ipc, Uts, Cgroup, Net], ids, loopback: true }
}

/// Where sessions would lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    pub path: Option<PathBuf>,
    /// Why it cannot be used, and what to do.
    pub problem: Option<(String, Option<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Ok,
    Missing,
    Warn,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub name: &'static str,
    /// Without it `run` refuses (exit 125), unless a flag gives it up.
    pub required: bool,
    pub state: State,
    pub detail: String,
    /// What to do, a line each, to be copied as it stands.
    pub fix: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub release: String,
    pub landlock_abi: u32,
    pub layers: Vec<Layer>,
}

impl Diagnosis {
    /// Is every required layer there?
    pub fn is_ok(&self) -> bool {
        self.layers.iter().all(|layer| !layer.required || layer.state != State::Missing)
    }
}

/// The rights of Landlock by the ABI that brought them.
pub const LANDLOCK_RIGHTS: [(u32, &str); 6] =
    [(1, "files"), (2, "refer"), (3, "truncate"), (4, "tcp"), (5, "ioctl_dev"), (9, "resolve_unix")];
/// Landlock's scopes by the ABI that brought them.
pub const LANDLOCK_SCOPES: [(u32, &str); 2] = [(6, "abstract_unix_socket"), (6, "signal")];

struct Judge<'a> {
    system: &'a System,
    cgroups: &'a Cgroups,
    attempts: &'a [Attempt],
    nested: bool,
    layers: Vec<Layer>,
}

/// Judges the trials. `nested`: this process runs in another agentbox.
pub fn diagnose(system: &System, cgroups: &Cgroups, attempts: &[Attempt], state: &StateDir, nested: bool) -> Diagnosis {
    let mut judge = Judge { system, cgroups, attempts, nested, layers: Vec::new() };
    judge.namespaces();
    judge.mounts();
    judge.seal();
    judge.kernel();
    judge.caller(state);
    Diagnosis { release: system.release.clone(), landlock_abi: system.landlock_abi, layers: judge.layers }
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EOPNOTSUPP: i32 = 95;

impl Judge<'_> {
    fn refused(&self, trial: Trial) -> Option<&Refused> {
        self.attempts.iter().find(|attempt| attempt.trial == trial)?.result.as_ref().err()
    }

    fn tried(&self, trial: Trial) -> bool {
        self.attempts.iter().any(|attempt| attempt.trial == trial)
    }

    fn add(&mut self, name: &'static str, required: bool, state: State, detail: impl Into<String>, fix: Vec<String>) {
        self.layers.push(Layer { name, required, state, detail: detail.into(), fix });
    }

    /// A layer that stands or falls with one trial.
    fn by_trial(&mut self, name: &'static str, trial: Trial, good: &str, fix: &[&str]) {
        let fix = fix.iter().map(|line| (*line).to_owned()).collect();
        match self.refused(trial) {
            Some(refused) => {
                let detail = refused.text.clone();
                self.add(name, true, State::Missing, detail, fix);
            }
            None if self.tried(trial) => self.add(name, true, State::Ok, good, Vec::new()),
            None => self.add(name, true, State::Missing, "not tried: a layer above is missing", Vec::new()),
        }
    }

    /// Were the namespaces made and their capabilities taken, as by Ubuntu's AppArmor switch?
    fn stripped(&self) -> Option<&Refused> {
        let denied = |refused: &&Refused| matches!(refused.errno, Some(EPERM | EACCES));
        self.refused(Trial::Private).filter(denied).or_else(|| self.refused(Trial::IdMap).filter(denied))
    }

    fn namespaces(&mut self) {
        let alone = |namespace| self.refused(Trial::Alone(namespace)).is_some();
        let user_refused = alone(Namespace::User) || self.refused(Trial::IdMap).is_some() || self.stripped().is_some();
        if user_refused {
            let why = self.refused(Trial::Clone).or_else(|| self.stripped()).or_else(|| self.refused(Trial::IdMap));
            let detail = why.map_or(String::new(), |refused| refused.text.clone());
            let fix = self.userns_fix();
            self.add("userns", true, State::Missing, format!("blocked: {detail}"), fix);
        } else {
            let map =
                if self.system.is_root { "as root, all ids mapped" } else { "as an ordinary user, own id mapped" };
            self.add("userns", true, State::Ok, map, Vec::new());
        }
        let good = self.refused(Trial::Clone).is_none() && !user_refused;
        let lost: Vec<String> = [Namespace::Mount, Namespace::Pid, Namespace::Ipc, Namespace::Uts, Namespace::Cgroup]
            .into_iter()
            .filter(|namespace| self.refused(Trial::Alone(*namespace)).is_some())
            .map(|namespace| namespace.to_string())
            .collect();
        let net_lost = self.refused(Trial::Alone(Namespace::Net)).is_some();
        if user_refused {
            self.add("pidns", true, State::Missing, "not tried: a layer above is missing", Vec::new());
        } else if !lost.is_empty() {
            let fix = vec![format!("a kernel with {} namespaces (CONFIG_NAMESPACES)", lost.join(", "))];
            self.add("pidns", true, State::Missing, format!("no {} namespace", lost.join(", ")), fix);
        } else if good || net_lost {
            self.add("pidns", true, State::Ok, "pid, mount, ipc, uts and cgroup namespaces", Vec::new());
        } else {
            self.add("pidns", true, State::Missing, "not tried: a layer above is missing", Vec::new());
        }
        if net_lost && !user_refused {
            self.add("netns", true, State::Missing, "no network namespace", vec![hints::NETNS.to_owned()]);
        } else if self.stripped().is_some() {
            self.add("netns", true, State::Missing, "not tried: a layer above is missing", Vec::new());
        } else {
            self.by_trial("netns", Trial::Loopback, "own network, loopback up", &[hints::NETNS]);
        }
    }

    fn mounts(&mut self) {
        self.by_trial("mounts", Trial::Mounts, "open_tree, move_mount, mount_setattr (Linux 5.12)", &[hints::KERNEL]);
        self.by_trial("proc", Trial::Proc, "a fresh /proc", &[hints::PROC]);
        self.by_trial("devpts", Trial::Devpts, "a devpts of its own", &["a kernel with CONFIG_UNIX98_PTYS"]);
        let layers = self.attempts.iter().find(|attempt| attempt.trial == Trial::StateLayer);
        if self.refused(Trial::Overlay).is_some() && layers.is_some_and(|attempt| attempt.result.is_ok()) {
            self.add("overlay", true, State::Ok, "userxattr (Linux 5.11), but not on a tmpfs (Linux 6.6)", Vec::new());
        } else {
            self.overlay();
        }
        if self.tried(Trial::StateLayer) {
            self.by_trial("layers", Trial::StateLayer, "the state directory can hold session layers", &[hints::LAYERS]);
        }
    }

    fn overlay(&mut self) {
        let fix = match self.refused(Trial::Overlay) {
            Some(refused) if refused.errno == Some(EOPNOTSUPP) => hints::LAYERS,
            Some(_) | None => hints::OVERLAY_KERNEL,
        };
        self.by_trial(
            "overlay",
            Trial::Overlay,
            "userxattr (Linux 5.11): copies up, whiteouts, opaque directories",
            &[fix],
        );
    }

    fn seal(&mut self) {
        let fix = &["a kernel with no_new_privs (Linux 3.5); a container that lets securebits be set"];
        self.by_trial("no_new_privs", Trial::Privileges, "no capabilities, no_new_privs, securebits locked", fix);
        let abi = self.system.landlock_abi;
        if abi == 0 {
            let fix = vec![
                "a kernel with CONFIG_SECURITY_LANDLOCK, and `landlock` in the boot parameter lsm=".to_owned(),
                hints::LANDLOCK.to_owned(),
            ];
            self.add("landlock", true, State::Missing, "this kernel has none, or it is switched off", fix);
        } else {
            let there = |list: &[(u32, &'static str)]| {
                list.iter().filter(|(since, _)| *since <= abi).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
            };
            let scopes = there(&LANDLOCK_SCOPES);
            let scopes = if scopes.is_empty() { "none (ABI 6)" } else { &scopes };
            let good = format!("ABI {abi}; rights: {}; scopes: {scopes}", there(&LANDLOCK_RIGHTS));
            self.by_trial("landlock", Trial::Landlock, &good, &[hints::LANDLOCK]);
        }
        let fix = &["a kernel with CONFIG_SECCOMP_FILTER", hints::SECCOMP];
        if self.system.filters {
            self.by_trial("seccomp", Trial::Seccomp, "filters", fix);
        } else {
            let fix = fix.iter().map(|line| (*line).to_owned()).collect();
            self.add("seccomp", true, State::Missing, "no filters", fix);
        }
        if self.system.notifications {
            self.add("notify", false, State::Ok, "seccomp user notification", Vec::new());
        } else {
            let fix = vec!["Linux 5.0 or newer".to_owned()];
            self.add("notify", false, State::Warn, "no seccomp user notification", fix);
        }
    }

    fn kernel(&mut self) {
        match &self.system.fuse {
            Ok(()) => self.add("fuse", false, State::Ok, "/dev/fuse can be opened", Vec::new()),
            Err(why) => {
                let fix = vec!["sudo modprobe fuse; sudo chmod 0666 /dev/fuse (docker: --device /dev/fuse)".to_owned()];
                let detail = format!("/dev/fuse: {why}; hidden names are whiteouts from a scan");
                self.add("fuse", false, State::Warn, detail, fix);
            }
        }
        self.cgroup();
        let system = self.system;
        let settings = [&system.max_user_namespaces, &system.unprivileged_userns_clone, &system.apparmor_restrict];
        let shown: Vec<String> =
            settings.into_iter().map(|s| format!("{}={}", s.name, s.value.as_deref().unwrap_or("absent"))).collect();
        self.add("limits", false, State::Ok, shown.join(" "), Vec::new());
        let tiocsti = self.system.legacy_tiocsti.value.as_deref();
        let detail = match tiocsti {
            Some("0") => "dev.tty.legacy_tiocsti=0: the kernel refuses TIOCSTI",
            Some(_) => "dev.tty.legacy_tiocsti=1: seccomp refuses TIOCSTI inside",
            None => "the kernel has no such setting: seccomp refuses TIOCSTI inside",
        };
        self.add("tiocsti", false, State::Ok, detail, Vec::new());
        let machine = match &self.system.machine {
            _ if self.nested => "in another agentbox".to_owned(),
            Machine::Plain => "no container and no WSL seen".to_owned(),
            Machine::Container(mark) => format!("in a container ({mark})"),
            Machine::Wsl1 => "WSL 1".to_owned(),
            Machine::Wsl2 => "WSL 2".to_owned(),
        };
        self.add("machine", false, State::Ok, machine, Vec::new());
    }

    /// What each limit covers here.
    fn cgroup(&mut self) {
        let processes = if self.system.is_root { "pid_max" } else { "RLIMIT_NPROC" };
        let memory = "memory: per process (RLIMIT_DATA)";
        let rlimits = format!("{memory}; processes: the whole box ({processes})");
        match self.cgroups {
            Cgroups::Open(found) => {
                let covers = match found.controllers {
                    Controllers { memory: true, pids: true } => "memory and processes: the whole box".to_owned(),
                    Controllers { memory: true, pids: false } => {
                        format!("memory: the whole box; processes: the whole box ({processes})")
                    }
                    Controllers { memory: false, .. } => format!("processes: the whole box; {memory}"),
                };
                let detail = format!("v2, groups are made below {}; {covers}", super::shown(&found.parent));
                match self.refused(Trial::Cgroup) {
                    // A run would refuse as well.
                    Some(refused) => {
                        let detail = format!("v2: {}", refused.text);
                        self.add("cgroup", true, State::Missing, detail, vec![hints::CGROUP.to_owned()]);
                    }
                    None => self.add("cgroup", false, State::Ok, detail, Vec::new()),
                }
            }
            Cgroups::Closed(why) => {
                let fix = vec![hints::DELEGATE.to_owned()];
                self.add("cgroup", false, State::Warn, format!("v2: {why}; {rlimits}"), fix);
            }
            Cgroups::None => self.add("cgroup", false, State::Ok, format!("no v2 group; {rlimits}"), Vec::new()),
        }
    }

    fn caller(&mut self, state: &StateDir) {
        match (&state.path, &state.problem) {
            (Some(path), None) => self.add("state", false, State::Ok, super::shown(path), Vec::new()),
            (path, problem) => {
                let (why, fix) = problem.clone().unwrap_or_else(|| {
                    let fix = "set XDG_STATE_HOME to a directory that is yours".to_owned();
                    ("HOME is not set".to_owned(), Some(fix))
                });
                let place = path.as_deref().map_or(String::new(), |path| format!("{}: ", super::shown(path)));
                let detail = format!("{place}{why}; runs with --live only");
                self.add("state", false, State::Warn, detail, fix.into_iter().collect());
            }
        }
    }

    /// From the most particular cause to the most general one.
    fn userns_fix(&self) -> Vec<String> {
        if self.nested {
            return vec![hints::NESTED.to_owned()];
        }
        let mut fix = vec![hints::USERNS.to_owned()];
        let is = |setting: &Setting, value: &str| setting.value.as_deref() == Some(value);
        let system = self.system;
        if is(&system.apparmor_restrict, "1") && !system.is_root {
            fix.push(
                "AppArmor restricts user namespaces here. As root, put this into /etc/apparmor.d/agentbox:".into(),
            );
            fix.extend(apparmor_profile(&system.program));
            fix.push("then: sudo apparmor_parser -r /etc/apparmor.d/agentbox".into());
        }
        if is(&system.max_user_namespaces, "0") {
            fix.push(
                "sudo sysctl -w user.max_user_namespaces=15000 (opens them to every program: your own choice)".into(),
            );
        }
        if is(&system.unprivileged_userns_clone, "0") {
            fix.push(
                "sudo sysctl -w kernel.unprivileged_userns_clone=1 (opens them to every program: your own choice)"
                    .into(),
            );
        }
        // A limit of the kernel's answers so, and no flag of a container changes it.
        let limited = self.refused(Trial::Clone).is_some_and(|refused| refused.errno == Some(ENOSPC));
        match &system.machine {
            Machine::Container(_) if limited => {}
            Machine::Container(_) => fix.push(
                "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                 --security-opt systempaths=unconfined ..."
                    .into(),
            ),
            Machine::Wsl1 => fix.push("WSL 1 has no Linux kernel: wsl --set-version DISTRIBUTION 2".into()),
            Machine::Wsl2 => fix.push("WSL 2: a kernel with CONFIG_USER_NS=y; update it with: wsl --update".into()),
            Machine::Plain => {}
        }
        if system.is_root && self.refused(Trial::IdMap).is_some() {
            fix.push(hints::ROOT_MAP.to_owned());
        }
        fix
    }
}

/// An AppArmor profile that lets one program, and no other, make user namespaces.
fn apparmor_profile(program: &Path) -> Vec<String> {
    let path = super::shown(program).replace('"', "\\\"");
    vec![
        "    abi <abi/4.0>,".to_owned(),
        "    include <tunables/global>".to_owned(),
        format!("    profile agentbox \"{path}\" flags=(unconfined) {{"),
        "      userns,".to_owned(),
        "    }".to_owned(),
    ]
}
