//! Where in the hierarchy of cgroup v2 this caller may make a group of its own, with the controllers that bound a whole
//! tree of processes. Reads only; a single call where /sys/fs/cgroup is something else.

use super::Mount;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";
/// The file system's magic number (statfs(2)).
const MAGIC: u64 = 0x6367_7270;

/// What this caller can do with cgroup v2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroups {
    /// /sys/fs/cgroup is not cgroup v2.
    None,
    /// It is, and this caller can make no group with a controller that it wants: why.
    Closed(String),
    Open(Delegation),
}

/// A group in which this caller may make another one and put a process of its own into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    pub parent: PathBuf,
    /// What a group made there can bound.
    pub controllers: Controllers,
    /// What already bounds the groups that a box leaves when it moves there: it must not gain by the move.
    pub memory_ceiling: Option<u64>,
    pub processes_ceiling: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controllers {
    pub memory: bool,
    pub pids: bool,
}

/// One group on the way from the caller's own to the top.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    dir: PathBuf,
    /// May the caller make groups in it and move processes within it?
    writable: bool,
    /// Those of its children.
    controllers: Controllers,
    /// It is a plain domain: the children of a threaded one take no process with memory to count.
    domain: bool,
    bounds: Bounds,
}

/// What somebody has set on a group; `None` is unbounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bounds {
    memory: Option<u64>,
    processes: Option<u64>,
    /// A bound that would be lost and that no group made here can carry on: its file.
    other: Option<&'static str>,
}

pub(super) fn probe(mounts: &[Mount]) -> Cgroups {
    let is_v2 = rustix::fs::statfs(MOUNT).is_ok_and(|stat| stat.f_type as u64 == MAGIC);
    if !is_v2 {
        return Cgroups::None;
    }
    // Seen from another cgroup namespace than the one it was mounted in, its paths are not those of /proc/self/cgroup.
    let whole = mounts.iter().rev().find(|mount| mount.at == Path::new(MOUNT)).is_some_and(|mount| mount.is_whole());
    if !whole {
        return Cgroups::Closed(format!("the groups at {MOUNT} are seen from another cgroup namespace"));
    }
    let own = std::fs::read("/proc/self/cgroup").ok().and_then(|text| own_group(&text));
    let Some(own) = own else { return Cgroups::Closed("the own group has no path in /proc/self/cgroup".into()) };
    choose(upwards(&own).map(|(dir, is_top)| look(dir, is_top)))
}

/// The path of the caller's own group in the v2 hierarchy, relative to the mount, from /proc/self/cgroup (cgroups(7)).
fn own_group(text: &[u8]) -> Option<PathBuf> {
    let path = text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"0::/"))?;
    let path = Path::new(OsStr::from_bytes(path));
    // A group outside of the own cgroup namespace is shown with `..`.
    path.components().all(|part| matches!(part, Component::Normal(_))).then(|| path.to_path_buf())
}

/// The directories from the own group up to the mount, which is the last.
fn upwards(own: &Path) -> impl Iterator<Item = (PathBuf, bool)> + '_ {
    own.ancestors().map(|group| (Path::new(MOUNT).join(group), group.as_os_str().is_empty()))
}

/// The nearest group that offers both controllers, else the nearest that offers one. Delegation is from the top down:
/// above the first group that is not the caller's there is none that is.
fn choose(groups: impl Iterator<Item = Group>) -> Cgroups {
    let mut left = Bounds::default();
    let mut best: Option<Delegation> = None;
    let mut nearest = None;
    for group in groups {
        nearest.get_or_insert_with(|| group.dir.clone());
        if !group.writable {
            break;
        }
        let Controllers { memory, pids } = group.controllers;
        if group.domain && (memory || pids) && (best.is_none() || (memory && pids)) {
            best = Some(Delegation {
                parent: group.dir.clone(),
                controllers: group.controllers,
                memory_ceiling: left.memory,
                processes_ceiling: left.processes,
            });
        }
        if memory && pids && best.is_some() {
            break;
        }
        left.memory = lower(left.memory, group.bounds.memory);
        left.processes = lower(left.processes, group.bounds.processes);
        if let Some(file) = group.bounds.other {
            if best.is_none() {
                let dir = group.dir.display();
                return Cgroups::Closed(format!("{dir} has a limit of its own ({file}), which a box must not leave"));
            }
            break;
        }
    }
    // A bound on what the chosen group cannot count would be lost by the move.
    let keeps = |found: &Delegation| {
        (found.controllers.memory || found.memory_ceiling.is_none())
            && (found.controllers.pids || found.processes_ceiling.is_none())
    };
    match best {
        Some(found) if keeps(&found) => Cgroups::Open(found),
        Some(found) => Cgroups::Closed(format!(
            "{} cannot carry on the limits of the group below it that this process is in",
            found.parent.display()
        )),
        None => {
            let own = nearest.unwrap_or_default();
            Cgroups::Closed(format!(
                "the group of this process, {}, and those above it are not this user's to divide",
                own.display()
            ))
        }
    }
}

fn lower(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn look(dir: PathBuf, is_top: bool) -> Group {
    let may = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
    // A process comes into a group only for who may write cgroup.procs of what the old and the new one have in common.
    let writable = may(&dir, Access::WRITE_OK | Access::EXEC_OK) && may(&dir.join("cgroup.procs"), Access::WRITE_OK);
    let mut group =
        Group { dir, writable, controllers: Controllers::default(), domain: false, bounds: Bounds::default() };
    if !writable {
        return group;
    }
    let text = |name: &str| read(&group.dir.join(name));
    group.controllers = controllers(&text("cgroup.subtree_control").unwrap_or_default());
    if group.controllers != Controllers::default() {
        // The top group has no type.
        group.domain = text("cgroup.type").map_or(is_top, |kind| kind == "domain");
    }
    if !(group.domain && group.controllers == Controllers { memory: true, pids: true }) {
        group.bounds = bounds(text);
    }
    group
}

fn controllers(list: &str) -> Controllers {
    let has = |name: &str| list.split_ascii_whitespace().any(|controller| controller == name);
    Controllers { memory: has("memory"), pids: has("pids") }
}

fn bounds(text: impl Fn(&str) -> Option<String>) -> Bounds {
    let number = |name: &str| text(name)?.parse().ok();
    let finite = |name: &str| text(name).is_some_and(|value| !value.starts_with("max"));
    Bounds {
        memory: number("memory.max"),
        processes: number("pids.max"),
        other: ["memory.high", "cpu.max"].into_iter().find(|name| finite(name)),
    }
}

/// A small file of the kernel's, in one read; `None` where this group has no such file.
fn read(path: &Path) -> Option<String> {
    let fd = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; 256];
    let length = rustix::io::read(&fd, &mut buffer).ok()?;
    std::str::from_utf8(&buffer[..length]).ok().map(|text| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Controllers = Controllers { memory: true, pids: true };
    const PIDS: Controllers = Controllers { memory: false, pids: true };
    const NEITHER: Controllers = Controllers { memory: false, pids: false };

    fn group(dir: &str, writable: bool, controllers: Controllers) -> Group {
        Group { dir: dir.into(), writable, controllers, domain: true, bounds: Bounds::default() }
    }

    fn open(parent: &str, controllers: Controllers) -> Cgroups {
        let parent = parent.into();
        Cgroups::Open(Delegation { parent, controllers, memory_ceiling: None, processes_ceiling: None })
    }

    fn why(found: Cgroups) -> String {
        let Cgroups::Closed(why) = found else { panic!("{found:?}") };
        why
    }

    #[test]
    fn the_own_group_is_the_line_of_hierarchy_zero() {
        let hybrid = b"9:name=systemd:/\n4:memory:/x\n0::/user.slice/a b.scope\n";
        assert_eq!(own_group(hybrid), Some("user.slice/a b.scope".into()));
        assert_eq!(own_group(b"0::/\n"), Some(PathBuf::new()));
        assert_eq!(own_group(b"0::/../../other\n"), None);
        assert_eq!(own_group(b"4:memory:/x\n"), None);
        let dirs: Vec<_> = upwards(Path::new("a/b")).collect();
        let expected = [("/sys/fs/cgroup/a/b", false), ("/sys/fs/cgroup/a", false), ("/sys/fs/cgroup/", true)];
        assert_eq!(dirs, expected.map(|(dir, top)| (PathBuf::from(dir), top)));
    }

    #[test]
    fn the_nearest_group_with_both_controllers_is_taken() {
        let systemd = [
            group("/app/x.scope", true, NEITHER),
            group("/app", true, BOTH),
            group("/user", true, BOTH),
            group("/", false, BOTH),
        ];
        assert_eq!(choose(systemd.into_iter()), open("/app", BOTH));
        let one = [group("/a/b/c", true, NEITHER), group("/a/b", true, PIDS), group("/a", true, BOTH)];
        assert_eq!(choose(one.clone().into_iter()), open("/a", BOTH));
        assert_eq!(choose(one.into_iter().take(2)), open("/a/b", PIDS));
        // A login that systemd does not delegate: nothing above the own group is asked.
        let login = [group("/session-3.scope", false, NEITHER), group("/user", true, BOTH)];
        assert!(why(choose(login.into_iter())).contains("/session-3.scope"));
        let mut threaded = group("/t", true, BOTH);
        threaded.domain = false;
        assert!(matches!(choose([threaded].into_iter()), Cgroups::Closed(_)));
    }

    #[test]
    fn a_box_gains_nothing_by_leaving_a_bounded_group() {
        let bounded = |memory, processes, other| {
            let mut own = group("/app/x.scope", true, NEITHER);
            own.bounds = Bounds { memory, processes, other };
            own
        };
        let Cgroups::Open(found) = choose([bounded(Some(5), Some(7), None), group("/app", true, BOTH)].into_iter())
        else {
            panic!()
        };
        assert_eq!((found.memory_ceiling, found.processes_ceiling), (Some(5), Some(7)));
        let cpu = choose([bounded(None, None, Some("cpu.max")), group("/app", true, BOTH)].into_iter());
        assert!(why(cpu).contains("cpu.max"));
        let memory = choose([bounded(Some(5), None, None), group("/app", true, PIDS)].into_iter());
        assert!(why(memory).contains("/app"));
    }

    #[test]
    fn files_of_a_group_are_read() {
        assert_eq!(controllers("cpuset cpu memory pids"), BOTH);
        assert_eq!(controllers("hugetlb pids"), PIDS);
        let file = |name: &str| match name {
            "memory.max" => Some("max".to_owned()),
            "pids.max" => Some("18953".to_owned()),
            "cpu.max" => Some("max 100000".to_owned()),
            _ => None,
        };
        assert_eq!(bounds(file), Bounds { memory: None, processes: Some(18_953), other: None });
        let capped = |name: &str| (name == "cpu.max").then(|| "50000 100000".to_owned());
        assert_eq!(bounds(capped).other, Some("cpu.max"));
    }
}
