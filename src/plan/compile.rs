//! From policy, facts and findings to the ordered steps.

use super::git;
use super::{By, Cgroup, Exec, IdMap, Isolate, Namespace, Plan, RootStep, Seal, Whiteout, landlock, tier};
use crate::host::{Cgroups, Facts};
use crate::path::{Kind, is_at_or_below};
use crate::policy::{Access, Entry, EntryKind, Finding, Layer, Limits, Mode, NetMode, Policy, Section};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Devices that every program may want; none reaches hardware.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Directories on the way to a root refuse writes: a private place would swallow them without a word.
const WAY: u32 = 0o555;
/// Why a directory is hidden that the caller may not list.
const UNSEARCHABLE: &str = "cannot be searched for hidden names";
/// Links that /dev has everywhere.
const DEV_LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];
/// Of /proc what sets the kernel, and what shows of it more than a program needs.
const PROC_READ_ONLY: [&str; 4] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"];
const PROC_HIDDEN: [&str; 5] = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/acpi", "/proc/scsi"];

/// Compiles the plan. `surveys` holds, for the entries that have name rules, what each section of them holds.
pub fn compile(policy: &Policy, facts: &Facts, surveys: &[(usize, Vec<Section>)], command: Vec<OsString>) -> Plan {
    let bare = policy.without_mounts();
    let cgroup = cgroup(&facts.cgroups, &policy.limits).filter(|_| !bare);
    let (processes_by, memory_by) =
        if bare { tier::held_by(facts.is_root()) } else { held_by(facts.is_root(), cgroup.as_ref()) };
    let mut compiler = Compiler {
        policy,
        facts,
        surveys,
        places: policy.entries.iter().map(|entry| (entry.path.as_os_str().as_bytes(), entry)).collect(),
        steps: Vec::new(),
        processes_by,
        made: HashSet::new(),
        layers: Vec::new(),
        notices: policy.notices.clone(),
    };
    if policy.nested {
        compiler.notices.push("nested: no Landlock path rules, for any of them forbids every mount inside".into());
        if facts.is_root() {
            compiler.notices.push(format!("nested as root: the command has uid {} inside", super::NOBODY));
        }
    }
    if !bare {
        compiler.root();
    }
    let Compiler { steps, layers, mut notices, .. } = compiler;
    if !policy.degraded.contains(&Layer::Landlock) {
        notices.extend(landlock::lost(facts.landlock_abi));
    }
    let mut limits = policy.limits.clone();
    if let Some(group) = &cgroup {
        limits.memory = group.memory.or(limits.memory);
        limits.processes = group.processes.or(limits.processes);
    }
    let own_net = policy.net == NetMode::None && !policy.degraded.contains(&Layer::Netns);
    Plan {
        layers,
        isolate: if bare { tier::isolate() } else { isolate(facts, cgroup, own_net, policy.nested) },
        root: steps,
        seal: Seal {
            limits,
            processes_by,
            memory_by,
            fds: policy.fds.clone(),
            landlock: landlock::plan(policy, facts.landlock_abi),
            notify: policy.backs_up(),
            seccomp: !policy.degraded.contains(&Layer::Seccomp),
            nested: policy.nested,
            refused: tier::refused(policy, facts.landlock_abi),
            on_the_host: bare,
        },
        exec: Exec { command, environment: policy.environment.clone(), cwd: policy.cwd.clone() },
        time_limit: policy.limits.time,
        tmp: policy.tmp.clone(),
        lost: tier::lost(policy, facts),
        notices,
    }
}

/// How the ids of this caller map in a box.
pub(super) fn ids(facts: &Facts, nested: bool) -> IdMap {
    if facts.is_root() && facts.maps_ids {
        IdMap::All { uids: facts.uid_ranges.clone(), gids: facts.gid_ranges.clone(), swapped: nested }
    } else {
        IdMap::Own { uid: facts.uid, gid: facts.gid }
    }
}

/// The group of this box, where the host lets the caller make one and there is something for it to bound.
pub(super) fn cgroup(cgroups: &Cgroups, limits: &Limits) -> Option<Cgroup> {
    let Cgroups::Open(found) = cgroups else { return None };
    let bound = |counted: bool, limit: Option<u64>, ceiling: Option<u64>| {
        limit.into_iter().chain(ceiling).min().filter(|_| counted)
    };
    let memory = bound(found.controllers.memory, limits.memory, found.memory_ceiling);
    let processes = bound(found.controllers.pids, limits.processes, found.processes_ceiling);
    let any = memory.is_some() || processes.is_some();
    any.then(|| Cgroup { parent: found.parent.clone(), memory, processes })
}

/// What holds the limits on processes and on memory.
fn held_by(is_root: bool, cgroup: Option<&Cgroup>) -> (By, By) {
    let bounds = |field: fn(&Cgroup) -> Option<u64>| cgroup.and_then(field).is_some();
    let processes = match is_root {
        _ if bounds(|group| group.processes) => By::Cgroup,
        true => By::PidMax,
        false => By::Rlimit,
    };
    (processes, if bounds(|group| group.memory) { By::Cgroup } else { By::Rlimit })
}

fn isolate(facts: &Facts, cgroup: Option<Cgroup>, own_net: bool, nested: bool) -> Isolate {
    use Namespace::{Ipc, Mount, Net, Pid, User, Uts};
    let mut namespaces = vec![User, Mount, Pid, Ipc, Uts];
    if cgroup.is_none() {
        namespaces.push(Namespace::Cgroup);
    }
    if own_net {
        namespaces.push(Net);
    }
    let ids = ids(facts, nested);
    Isolate { cgroup, namespaces, ids, loopback: own_net }
}

struct Compiler<'a> {
    policy: &'a Policy,
    facts: &'a Facts,
    surveys: &'a [(usize, Vec<Section>)],
    /// The entries by their paths, which are canonical.
    places: HashMap<&'a [u8], &'a Entry>,
    steps: Vec<RootStep>,
    processes_by: By,
    /// The directories that the steps make.
    made: HashSet<PathBuf>,
    layers: Vec<PathBuf>,
    notices: Vec<String>,
}

impl Compiler<'_> {
    fn root(&mut self) {
        self.steps.push(RootStep::Rprivate);
        self.steps.push(RootStep::ScratchSpace { bytes: self.policy.limits.tmp });
        self.steps.push(RootStep::NewRoot);
        self.skeleton();
        self.steps.push(RootStep::SealRoot);
        for (index, entry) in self.policy.entries.iter().enumerate() {
            self.entry(index, entry);
        }
        self.steps.push(RootStep::PivotRoot);
        self.steps.push(RootStep::DetachOldRoot);
    }

    /// Everything that the root tmpfs itself holds: mount points, links, made-up files, and the system, which is
    /// sealed with it. After the seal nothing more can be made in it.
    fn skeleton(&mut self) {
        let mut made = HashSet::new();
        let policy = self.policy;
        for entry in &policy.entries {
            if self.holder(&entry.path).is_some() || (entry.kind == EntryKind::Hide) {
                continue;
            }
            let parent = entry.path.parent().unwrap_or(Path::new("/"));
            self.dirs(parent, Path::new("/"), 0o755, &mut made);
            match (&entry.kind, entry.file) {
                (EntryKind::Made(content), _) => {
                    self.steps.push(RootStep::File { at: entry.path.clone(), content: content.clone() });
                }
                (_, Some(Kind::Dir)) => self.dirs(&entry.path, Path::new("/"), 0o755, &mut made),
                _ => self.steps.push(RootStep::File { at: entry.path.clone(), content: Vec::new() }),
            }
            if entry.kind == EntryKind::System {
                self.steps.push(RootStep::System { from: entry.path.clone(), at: entry.path.clone() });
            }
            if entry.kind == EntryKind::Dev {
                self.dev_skeleton(&mut made);
            }
        }
        for link in &policy.links {
            if self.holder(&link.at).is_some() {
                continue;
            }
            self.dirs(link.at.parent().unwrap_or(Path::new("/")), Path::new("/"), 0o755, &mut made);
            self.steps.push(RootStep::Symlink { at: link.at.clone(), target: link.target.clone() });
        }
        self.made = made;
    }

    fn dev_skeleton(&mut self, made: &mut HashSet<PathBuf>) {
        self.dirs(Path::new("/dev/pts"), Path::new("/"), 0o755, made);
        for name in DEVICES.iter().chain(&["console"]) {
            self.steps.push(RootStep::File { at: Path::new("/dev").join(name), content: Vec::new() });
        }
        for (at, target) in DEV_LINKS {
            self.steps.push(RootStep::Symlink { at: at.into(), target: target.into() });
        }
    }

    /// The directories from `base` (which exists) down to `dir`, each once.
    fn dirs(&mut self, dir: &Path, base: &Path, mode: u32, made: &mut HashSet<PathBuf>) {
        if dir == base || !made.insert(dir.to_path_buf()) {
            return;
        }
        if let Some(parent) = dir.parent() {
            self.dirs(parent, base, mode, made);
        }
        self.steps.push(RootStep::Dir { at: dir.to_path_buf(), mode });
    }

    /// The mounted entry strictly above `path` in which it lies; `None` is the root tmpfs.
    fn holder(&self, path: &Path) -> Option<&Entry> {
        let mounted =
            |entry: &&Entry| !matches!(entry.kind, EntryKind::EmptyHome | EntryKind::Dev | EntryKind::Made(_));
        let at = |above: &Path| self.places.get(above.as_os_str().as_bytes()).copied();
        path.ancestors().skip(1).find_map(|above| at(above).filter(mounted))
    }

    /// Makes the mount point of an entry that lies in a private place: that is empty.
    fn mount_point(&mut self, path: &Path, dir: bool, mode: u32) {
        let base = match self.holder(path) {
            Some(Entry { path: base, kind: EntryKind::Private(_), .. }) => base.clone(),
            _ => return,
        };
        let mut made = std::mem::take(&mut self.made);
        let parent = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        self.dirs(&parent, &base, mode, &mut made);
        if dir {
            self.dirs(path, &base, mode, &mut made);
        } else {
            self.steps.push(RootStep::File { at: path.to_path_buf(), content: Vec::new() });
        }
        self.made = made;
    }

    fn entry(&mut self, index: usize, entry: &Entry) {
        let at = entry.path.clone();
        let dir = entry.file == Some(Kind::Dir);
        match &entry.kind {
            EntryKind::Dev => {
                self.steps.extend(DEVICES.map(|name| RootStep::Device { name }));
                self.steps.push(RootStep::Devpts);
                self.steps.push(RootStep::Terminal);
            }
            EntryKind::Proc => self.proc(),
            EntryKind::Private(place) => {
                self.mount_point(&at, true, WAY);
                self.steps.push(RootStep::Private { at: at.clone(), place: *place });
                self.links_in(entry);
            }
            EntryKind::System if self.holder(&at).is_none() => {}
            EntryKind::System | EntryKind::Socket => {
                self.mount_point(&at, dir, 0o755);
                let writable = entry.kind == EntryKind::Socket;
                self.steps.push(RootStep::Bind { from: at.clone(), at, writable, id: entry.id });
            }
            EntryKind::Scratch => {
                self.mount_point(&at, dir, WAY);
                self.steps.push(RootStep::Bind { from: at.clone(), at, writable: true, id: entry.id });
            }
            EntryKind::Rw | EntryKind::Ro => {
                self.mount_point(&at, dir, WAY);
                let surveys = self.surveys;
                let sections =
                    surveys.binary_search_by_key(&index, |(at, _)| *at).map_or(&[][..], |found| &surveys[found].1);
                self.root_mounts(entry, dir, sections);
            }
            EntryKind::Hide => self.hide(entry),
            EntryKind::EmptyHome => self.mount_point(&at, true, WAY),
            EntryKind::Made(content) => {
                if self.holder(&at).is_some_and(|holder| matches!(holder.kind, EntryKind::Private(_))) {
                    self.steps.push(RootStep::File { at, content: content.clone() });
                }
            }
        }
    }

    fn links_in(&mut self, entry: &Entry) {
        let policy = self.policy;
        for link in &policy.links {
            if self.holder(&link.at).is_some_and(|holder| holder.path == entry.path) {
                let parent = link.at.parent().unwrap_or(Path::new("/")).to_path_buf();
                let mut made = HashSet::new();
                self.dirs(&parent, &entry.path, 0o755, &mut made);
                self.made.extend(made);
                self.steps.push(RootStep::Symlink { at: link.at.clone(), target: link.target.clone() });
            }
        }
    }

    fn proc(&mut self) {
        if self.policy.nested {
            self.steps.push(RootStep::ProcForNested { writable: !self.facts.is_root() });
        }
        self.steps.push(RootStep::Proc);
        if let (By::PidMax, Some(processes)) = (self.processes_by, self.policy.limits.processes) {
            self.steps.push(RootStep::PidMax { processes });
        }
        self.steps.extend(PROC_READ_ONLY.map(|at| RootStep::ProcReadOnly { at }));
        self.steps.extend(PROC_HIDDEN.map(|at| RootStep::ProcHide { at }));
    }

    /// Mounts a root: live as it is with masks over what is hidden, in a dry run as overlays with whiteouts.
    fn root_mounts(&mut self, entry: &Entry, dir: bool, sections: &[Section]) {
        let writable = entry.kind == EntryKind::Rw;
        // The kernel refuses an overlay over a tree with a mount in it: for a read-only root masks do as well.
        let overlay = self.policy.mode == Mode::DryRun && dir && sections.len() == 1;
        let found = sections.iter().flat_map(|section| &section.findings.found);
        let hidden = found.into_iter().any(|found| matches!(found.rule, Finding::Hidden(_) | Finding::Unsearchable))
            || self
                .policy
                .entries_below(&entry.path)
                .any(|hide| self.is_whiteout(hide) && self.is_held_by(hide, entry));
        if overlay && (writable || hidden) {
            for (number, section) in sections.iter().enumerate() {
                let id = if number == 0 { entry.id } else { None };
                self.overlay_section(entry, section, writable, id);
            }
        } else if writable && !dir && self.policy.mode == Mode::DryRun {
            // A single file below a writable root is part of that root's overlay.
        } else {
            let writable = writable && (self.policy.mode == Mode::Live);
            self.steps.push(RootStep::Bind {
                from: entry.path.clone(),
                at: entry.path.clone(),
                writable,
                id: entry.id,
            });
            for pin in self.policy.pins.iter().filter(|pin| is_at_or_below(pin, &entry.path)) {
                self.steps.push(RootStep::Pin { at: pin.clone() });
            }
            sections.iter().for_each(|section| self.live_section(section));
        }
        git::indexes(self.policy, entry, &mut self.steps);
        for section in sections {
            self.unreadable(section);
        }
    }

    fn is_held_by(&self, hide: &Entry, entry: &Entry) -> bool {
        self.holder(&hide.path).is_some_and(|holder| holder.path == entry.path)
    }

    /// Is this hidden path a whiteout of an overlay? Not where something below it is granted: then it must exist.
    fn is_whiteout(&self, hide: &Entry) -> bool {
        let holder =
            || self.holder(&hide.path).is_some_and(|holder| holder.kind.has_names() && holder.file == Some(Kind::Dir));
        hide.kind == EntryKind::Hide
            && self.policy.mode == Mode::DryRun
            && holder()
            && self.granted_below(hide).is_empty()
    }

    fn granted_below(&self, hide: &Entry) -> Vec<(PathBuf, bool)> {
        let children = self.policy.entries_below(&hide.path).filter(|other| other.kind != EntryKind::Hide);
        children.map(|child| (child.path.clone(), child.file == Some(Kind::Dir))).collect()
    }

    fn overlay_section(&mut self, entry: &Entry, section: &Section, writable: bool, id: Option<crate::path::FileId>) {
        let at = section.path.clone();
        if section.unavailable {
            self.steps.push(RootStep::Mask { at, dir: section.dir, rule: "a mount that may not answer".into() });
            return;
        }
        if !section.dir {
            self.steps.push(RootStep::Bind { from: at.clone(), at, writable: false, id });
            return;
        }
        let whiteout = |found: &crate::path::Found<Finding>| match found.rule {
            Finding::Hidden(rule) => Some(Whiteout {
                at: found.path.strip_prefix(&section.path).unwrap_or(&found.path).to_path_buf(),
                rule: self.rule_text(rule),
            }),
            Finding::Unsearchable => Some(Whiteout {
                at: found.path.strip_prefix(&section.path).unwrap_or(&found.path).to_path_buf(),
                rule: UNSEARCHABLE.into(),
            }),
            Finding::Frozen(_) | Finding::Pinned | Finding::Socket => None,
        };
        let mut whiteouts: Vec<Whiteout> = section.findings.found.iter().filter_map(whiteout).collect();
        let hides = self.policy.entries_below(&entry.path);
        for hide in hides.filter(|hide| self.is_whiteout(hide) && self.is_held_by(hide, entry)) {
            if let Ok(at) = hide.path.strip_prefix(&section.path) {
                whiteouts.push(Whiteout { at: at.to_path_buf(), rule: hide.hidden_by() });
            }
        }
        whiteouts.sort_by(|a, b| a.at.cmp(&b.at));
        // What lies below a name that is hidden needs no whiteout, and has no directory to stand in.
        let mut outer: Option<PathBuf> = None;
        whiteouts.retain(|name| {
            let below = outer.as_ref().is_some_and(|outer| is_at_or_below(&name.at, outer));
            if !below {
                outer = Some(name.at.clone());
            }
            !below
        });
        let layer = writable.then(|| {
            self.layers.push(at.clone());
            self.layers.len() - 1
        });
        self.steps.push(RootStep::Overlay { lower: at.clone(), at, layer, whiteouts, id });
        self.freezes(section);
    }

    fn live_section(&mut self, section: &Section) {
        if section.unavailable {
            let rule = "a mount that may not answer".to_owned();
            self.steps.push(RootStep::Mask { at: section.path.clone(), dir: section.dir, rule });
            return;
        }
        self.freezes(section);
        let mut masks: Vec<RootStep> = Vec::new();
        for found in &section.findings.found {
            let rule = match found.rule {
                Finding::Hidden(rule) => self.rule_text(rule),
                Finding::Socket => "a socket of the host (grant: --socket)".into(),
                Finding::Unsearchable => UNSEARCHABLE.into(),
                Finding::Frozen(_) | Finding::Pinned => continue,
            };
            masks.push(git::mask(self.policy, &found.path, found.kind == Some(Kind::Dir), rule));
        }
        masks.sort_by(|a, b| mask_path(a).cmp(mask_path(b)));
        self.steps.extend(masks);
    }

    fn freezes(&mut self, section: &Section) {
        let mut held: Vec<(&PathBuf, Option<usize>)> = section
            .findings
            .found
            .iter()
            .filter_map(|found| match found.rule {
                // A link cannot be written through to a frozen place; removing it changes the link alone. Not so where
                // the host obeys what stands at the name itself: hooks that are a link would be replaced by others.
                Finding::Frozen(rule) if !found.link || git::freezes(self.policy, rule) => {
                    Some((&found.path, Some(rule)))
                }
                Finding::Pinned => Some((&found.path, None)),
                Finding::Frozen(_) | Finding::Hidden(_) | Finding::Socket | Finding::Unsearchable => None,
            })
            .collect();
        // A repository before what is frozen in it.
        held.sort();
        for (at, rule) in held {
            let at = at.clone();
            self.steps.push(match rule {
                Some(rule) => RootStep::Freeze { at, rule: self.rule_text(rule) },
                None => RootStep::Pin { at },
            });
        }
    }

    fn hide(&mut self, entry: &Entry) {
        let in_root =
            self.holder(&entry.path).is_some_and(|holder| holder.kind.has_names() || holder.kind == EntryKind::System);
        if !in_root {
            return;
        }
        if self.is_whiteout(entry) {
            return;
        }
        let children = self.granted_below(entry);
        if children.is_empty() {
            let way = entry.path.parent().unwrap_or(Path::new("/"));
            // Below a hidden directory there is nothing left to hide; what does not exist (one of agentbox's own, in a
            // read-only root) cannot be.
            if entry.id.is_none() || !self.policy.decide(way, Access::Read).allowed {
                return;
            }
            let rule = entry.hidden_by();
            self.steps.push(git::mask(self.policy, &entry.path, entry.file == Some(Kind::Dir), rule));
        } else {
            self.steps.push(RootStep::Shell { at: entry.path.clone(), children });
        }
    }

    fn unreadable(&mut self, section: &Section) {
        if section.unavailable {
            let path = section.path.display();
            self.notices
                .push(format!("{path} is a mount that may not answer, or one of the kernel's own: unavailable inside"));
        }
        for found in section.findings.found.iter().filter(|found| found.rule == Finding::Unsearchable) {
            self.notices.push(format!("{} is hidden as a whole: it {UNSEARCHABLE}", found.path.display()));
        }
    }

    fn rule_text(&self, rule: usize) -> String {
        let rule = &self.policy.names.rules[rule];
        format!("`{}` ({})", rule.text, rule.origin)
    }
}

fn mask_path(step: &RootStep) -> &Path {
    if let RootStep::Mask { at, .. } | RootStep::Twin { at, .. } = step { at } else { Path::new("") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Controllers, Delegation};

    fn open(memory: bool, pids: bool, memory_ceiling: Option<u64>) -> Cgroups {
        let controllers = Controllers { memory, pids };
        Cgroups::Open(Delegation { parent: "/g".into(), controllers, memory_ceiling, processes_ceiling: None })
    }

    fn limits(memory: Option<u64>, processes: Option<u64>) -> Limits {
        Limits { memory, processes, ..Limits::default_on(1 << 30) }
    }

    #[test]
    fn a_group_bounds_what_its_controllers_count() {
        let both = cgroup(&open(true, true, None), &limits(Some(5), Some(7))).unwrap();
        assert_eq!((both.memory, both.processes), (Some(5), Some(7)));
        let line =
            "cgroup /g/agentbox-PID-RANDOM for the whole box: memory.max 5, no swap, ended as a whole; pids.max 7";
        assert_eq!(both.to_string(), line);
        let pids = cgroup(&open(false, true, None), &limits(Some(5), Some(7))).unwrap();
        assert_eq!((pids.memory, pids.processes), (None, Some(7)));
        assert_eq!(cgroup(&open(true, true, None), &limits(None, None)), None);
        assert_eq!(cgroup(&open(false, true, None), &limits(Some(5), None)), None);
        for closed in [Cgroups::None, Cgroups::Closed(String::new())] {
            assert_eq!(cgroup(&closed, &limits(Some(5), Some(7))), None);
        }
        // A bound of the group that is left goes along.
        for memory in [None, Some(9)] {
            assert_eq!(cgroup(&open(true, true, Some(3)), &limits(memory, None)).unwrap().memory, Some(3));
        }
    }

    #[test]
    fn each_limit_says_what_it_covers() {
        let line = |is_root, group: Option<&Cgroup>| {
            let (processes_by, memory_by) = held_by(is_root, group);
            let limits = limits(Some(5), Some(7));
            let seal = Seal {
                limits,
                processes_by,
                memory_by,
                fds: vec![],
                landlock: None,
                notify: false,
                seccomp: true,
                nested: false,
                refused: vec![],
                on_the_host: false,
            };
            seal.lines().into_iter().find(|(name, _)| *name == "limits").unwrap().1
        };
        let both = Cgroup { parent: "/g".into(), memory: Some(5), processes: Some(7) };
        let whole = line(true, Some(&both));
        assert!(whole.contains("processes 7, the whole box (cgroup pids.max)"), "{whole}");
        assert!(
            whole.contains("memory 5 bytes, the whole box, private places included (cgroup memory.max)"),
            "{whole}"
        );
        let pids = Cgroup { memory: None, ..both };
        assert!(line(false, Some(&pids)).contains("memory 5 bytes, per process (RLIMIT_DATA)"));
        assert!(line(false, None).contains("processes 7, the whole box (RLIMIT_NPROC)"));
        assert!(line(true, None).contains("processes 7, the whole box (pid_max)"));
    }
}
