//! Steps as text: one line each, the same in `explain` and in an error about the step.

use super::{By, Cgroup, IdMap, Isolate, Namespace, Plan, RootStep, Seal};
use crate::policy::Private;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path on one line: control characters and backslashes escaped, all else as it is.
pub fn shown(path: &Path) -> String {
    let mut out = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' { out.extend(c.escape_default()) } else { out.push(c) }
        }
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Namespace::User => "user",
            Namespace::Mount => "mount",
            Namespace::Pid => "pid",
            Namespace::Ipc => "ipc",
            Namespace::Uts => "uts",
            Namespace::Cgroup => "cgroup",
            Namespace::Net => "net",
        })
    }
}

impl fmt::Display for Isolate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespaces.is_empty() {
            return write!(f, "fork: no namespaces, no id maps");
        }
        let names: Vec<String> = self.namespaces.iter().map(Namespace::to_string).collect();
        write!(f, "clone3: new namespaces {}; ", names.join(", "))?;
        match &self.ids {
            IdMap::All { swapped: false, .. } => {
                write!(f, "uid and gid map: every id that the caller's namespace has")
            }
            IdMap::All { swapped: true, .. } => {
                write!(f, "uid and gid map: every id that the caller's namespace has, root as {}", super::NOBODY)
            }
            IdMap::Own { uid, gid } => write!(f, "uid map: {uid} alone, gid map: {gid} alone, setgroups denied"),
            IdMap::Kept => write!(f, "no id maps"),
        }
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bounds = Vec::new();
        if let Some(bytes) = self.memory {
            bounds.push(format!("memory.max {bytes}, no swap, ended as a whole"));
        }
        if let Some(processes) = self.processes {
            bounds.push(format!("pids.max {processes}"));
        }
        let parent = shown(&self.parent);
        write!(f, "cgroup {parent}/agentbox-PID-RANDOM for the whole box: {}", bounds.join("; "))
    }
}

impl RootStep {
    /// The step's name, for JSON and for tests.
    pub fn name(&self) -> &'static str {
        match self {
            RootStep::Rprivate => "rprivate",
            RootStep::NewRoot => "new-root",
            RootStep::ScratchSpace { .. } => "scratch-space",
            RootStep::Dir { .. } => "dir",
            RootStep::File { .. } => "file",
            RootStep::Symlink { .. } => "symlink",
            RootStep::System { .. } => "system",
            RootStep::SealRoot => "seal-root",
            RootStep::Device { .. } => "device",
            RootStep::Devpts => "devpts",
            RootStep::Terminal => "terminal",
            RootStep::ProcForNested { .. } => "proc-for-nested",
            RootStep::Proc => "proc",
            RootStep::PidMax { .. } => "pid-max",
            RootStep::ProcReadOnly { .. } => "proc-read-only",
            RootStep::ProcHide { .. } => "proc-hide",
            RootStep::Private { .. } => "private",
            RootStep::Bind { .. } => "bind",
            RootStep::Overlay { .. } => "overlay",
            RootStep::Shell { .. } => "shell",
            RootStep::Pin { .. } => "pin",
            RootStep::Freeze { .. } => "freeze",
            RootStep::Mask { .. } => "mask",
            RootStep::Index { .. } => "index",
            RootStep::Twin { .. } => "twin",
            RootStep::PivotRoot => "pivot-root",
            RootStep::DetachOldRoot => "detach-old-root",
        }
    }
}

impl fmt::Display for RootStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RootStep::Rprivate => write!(f, "make every mount rprivate"),
            RootStep::NewRoot => write!(f, "a directory of that tmpfs for the new root"),
            RootStep::ScratchSpace { bytes } => {
                write!(f, "tmpfs of {} MiB for all private writable places", bytes >> 20)
            }
            RootStep::Dir { at, mode } => write!(f, "directory {} mode {mode:03o}", shown(at)),
            RootStep::File { at, content } if content.is_empty() => write!(f, "empty file {}", shown(at)),
            RootStep::File { at, content } => write!(f, "file {} ({} bytes)", shown(at), content.len()),
            RootStep::Symlink { at, target } => write!(f, "symlink {} -> {}", shown(at), shown(target)),
            RootStep::System { from, at } if from == at => write!(f, "bind {} read-only", shown(at)),
            RootStep::System { from, at } => write!(f, "bind {} at {} read-only", shown(from), shown(at)),
            RootStep::SealRoot => write!(f, "seal the new root: recursively read-only, nosuid, nodev"),
            RootStep::Device { name } => write!(f, "bind /dev/{name}"),
            RootStep::Devpts => write!(f, "devpts of its own at /dev/pts"),
            RootStep::Terminal => write!(f, "bind the terminal, if there is one, at /dev/console"),
            RootStep::ProcForNested { writable } => {
                let how = if *writable { "" } else { ", read-only" };
                write!(f, "an unreachable /proc, which lets boxes inside mount theirs{how}")
            }
            RootStep::Proc => write!(f, "fresh /proc of the own pid namespace"),
            RootStep::PidMax { processes } => write!(f, "pid_max of the own pid namespace: {processes} processes"),
            RootStep::ProcReadOnly { at } => write!(f, "{at} read-only"),
            RootStep::ProcHide { at } => write!(f, "hide {at}"),
            RootStep::Private { at, place } => {
                let what = match place {
                    Private::Home => "HOME",
                    Private::Tmp | Private::VarTmp | Private::Run | Private::Shm => "place",
                };
                write!(f, "private {what} {}: empty, writable, gone at the end", shown(at))
            }
            RootStep::Bind { from, at, writable, .. } => {
                let how = if *writable { "writable, live" } else { "recursively read-only" };
                if from == at {
                    write!(f, "bind {} {how}", shown(at))
                } else {
                    write!(f, "bind {} at {} {how}", shown(from), shown(at))
                }
            }
            RootStep::Overlay { at, layer, whiteouts, .. } => {
                let how = if layer.is_some() { "writes land in a session layer" } else { "read-only" };
                write!(f, "overlay over {}: {how}, {} names hidden", shown(at), whiteouts.len())
            }
            RootStep::Shell { at, children } => {
                write!(f, "hide {} but for {} granted below it", shown(at), children.len())
            }
            RootStep::Pin { at } => write!(f, "pin {}: it cannot be moved", shown(at)),
            RootStep::Freeze { at, rule } => write!(f, "freeze {} read-only by {rule}", shown(at)),
            RootStep::Mask { at, rule, .. } => write!(f, "hide {} by {rule}", shown(at)),
            RootStep::Index { at, bound, names, .. } => {
                let how = if *bound { "bound read-only over it" } else { "in the session layer" };
                write!(f, "index {} {how}: {names} hidden names are not checked out", shown(at))
            }
            RootStep::Twin { at, rule, .. } => {
                write!(f, "hide {} by {rule}, with its size and times for git", shown(at))
            }
            RootStep::PivotRoot => write!(f, "pivot_root into the new root"),
            RootStep::DetachOldRoot => write!(f, "detach the old root"),
        }
    }
}

impl Seal {
    /// The steps of the third stage, one line each, in order.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        let sets = if self.on_the_host { " (the bounding set where CAP_SETPCAP is held)" } else { "" };
        out.push(("capabilities", format!("drop all capabilities from all five sets, lock securebits{sets}")));
        out.push(("no-new-privs", "no_new_privs".to_owned()));
        out.push(("limits", self.limits_line()));
        let kept: Vec<String> = self.fds.iter().map(i32::to_string).collect();
        let kept = if kept.is_empty() { String::new() } else { format!(" but {}", kept.join(", ")) };
        out.push(("close-fds", format!("close every descriptor above 2{kept}")));
        match &self.landlock {
            Some(plan) => {
                let files = if plan.files {
                    format!("{} path rules", plan.rules.len())
                } else {
                    "no path rules (nested)".into()
                };
                let ports = plan.ports.as_ref().map_or(String::new(), |ports| {
                    let list = |ports: &[u16]| {
                        if ports.is_empty() {
                            "any".to_owned()
                        } else {
                            ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
                        }
                    };
                    format!(", tcp connect {}, tcp bind {}", list(&ports.connect), list(&ports.bind))
                });
                let ports = if plan.no_tcp { ", no tcp".to_owned() } else { ports };
                // Older ABIs are refused but in the tier without namespaces.
                let scopes =
                    if plan.abi >= 6 { "scopes abstract unix sockets and signals" } else { "no scopes before ABI 6" };
                out.push(("landlock", format!("landlock ABI {}: {files}, {scopes}{ports}", plan.abi)));
            }
            None => out.push(("landlock", "landlock: given up by --degraded".to_owned())),
        }
        if self.notify {
            let line = "the supervisor is told of calls that change files, before they are made: backups";
            out.push(("notify", line.to_owned()));
        }
        if self.seccomp {
            let rules = super::DENIED.len() + self.refused.iter().map(|list| list.len()).sum::<usize>();
            out.push(("seccomp", format!("seccomp: foreign ABIs killed, {rules} rules")));
        } else {
            out.push(("seccomp", "seccomp: given up by --degraded".to_owned()));
        }
        out.push(("verify", "read /proc/self/status back, refuse on any difference".to_owned()));
        out
    }

    /// What the limit on processes covers, and what holds it.
    pub fn processes_cover(&self) -> &'static str {
        match self.processes_by {
            By::Cgroup => "the whole box (cgroup pids.max)",
            By::PidMax => "the whole box (pid_max)",
            By::Rlimit => "the whole box (RLIMIT_NPROC)",
            By::UserRlimit => "with all else that the user runs (RLIMIT_NPROC)",
            By::Nothing => "not in force, for RLIMIT_NPROC does not bind root",
        }
    }

    /// What the limit on memory covers, and what holds it.
    pub fn memory_covers(&self) -> &'static str {
        match self.memory_by {
            By::Cgroup => "the whole box, private places included (cgroup memory.max)",
            By::PidMax | By::Rlimit | By::UserRlimit | By::Nothing => "per process (RLIMIT_DATA)",
        }
    }

    fn limits_line(&self) -> String {
        let limits = &self.limits;
        let show = |value: Option<u64>| value.map_or("unlimited".to_owned(), |value| value.to_string());
        let tmp = if self.on_the_host { "not bounded".to_owned() } else { format!("{} bytes together", limits.tmp) };
        let held = |limit: String, cover: &str| if limit == "unlimited" { limit } else { format!("{limit}, {cover}") };
        let memory = limits.memory.map_or("unlimited".to_owned(), |bytes| format!("{bytes} bytes"));
        format!(
            "limits: processes {}; memory {}; private places {tmp}; file size {}; open files {}",
            held(show(limits.processes), self.processes_cover()),
            held(memory, self.memory_covers()),
            show(limits.file_size),
            limits.open_files.map_or("as on the host".to_owned(), |n| n.to_string()),
        )
    }
}

impl Plan {
    /// All steps in order: stage, name, line.
    pub fn lines(&self) -> Vec<(&'static str, &'static str, String)> {
        let mut out = Vec::new();
        if let Some(cgroup) = &self.isolate.cgroup {
            out.push(("isolate", "cgroup", cgroup.to_string()));
        }
        let start = if self.isolate.namespaces.is_empty() { "fork" } else { "clone3" };
        out.push(("isolate", start, self.isolate.to_string()));
        if let Some(tmp) = &self.tmp {
            out.push(("isolate", "tmpdir", format!("{}: TMPDIR, made for this run and removed with it", shown(tmp))));
        }
        if self.isolate.cgroup.is_some() {
            out.push(("isolate", "cgroup-namespace", "an own cgroup namespace, whose root is that cgroup".to_owned()));
        }
        if self.isolate.loopback {
            out.push(("isolate", "loopback", "bring loopback up".to_owned()));
        }
        out.extend(self.root.iter().map(|step| ("root", step.name(), step.to_string())));
        out.extend(self.seal.lines().into_iter().map(|(name, line)| ("seal", name, line)));
        let command: Vec<String> = self.exec.command.iter().map(|arg| shown(Path::new(arg))).collect();
        out.push(("exec", "execve", format!("in {}: {}", shown(&self.exec.cwd), command.join(" "))));
        out
    }
}
