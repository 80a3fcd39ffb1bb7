//! What a run must not leave: mounts, processes, files in the shared temporary directories.

use super::Place;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// The state of the host before a run: `let before = Leftovers::before(); ...; before.none(&place)`.
pub struct Leftovers {
    mounts: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Leftovers {
    pub fn before() -> Leftovers {
        Leftovers { mounts: mounts(), files: temporary() }
    }

    /// Asserts that there is no new mount, no process of the place, and no new file in /tmp, /var/tmp or /dev/shm.
    /// Processes get two seconds to go.
    #[track_caller]
    pub fn none(&self, place: &Place) {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let found = self.found(place);
            if found.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind:\n{}", found.join("\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn found(&self, place: &Place) -> Vec<String> {
        let mounts = mounts().difference(&self.mounts).map(|line| format!("mount {line}")).collect::<Vec<_>>();
        let files = temporary().difference(&self.files).map(|file| format!("file {file}")).collect::<Vec<_>>();
        [mounts, files, processes(place)].concat()
    }
}

/// The processes that this test binary started for the place: by session, working directory or command line.
pub fn processes(place: &Place) -> Vec<String> {
    let marker = place.dir().display().to_string();
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc is listed").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == own || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let marked = command.contains(&marker)
            || String::from_utf8_lossy(&environment).contains(&marker)
            || ["cwd", "exe"].iter().any(|link| {
                std::fs::read_link(entry.path().join(link)).is_ok_and(|to| to.starts_with(Path::new(&marker)))
            });
        if marked && !zombie(&entry.path()) {
            found.push(format!("process {pid} {command}"));
        }
    }
    found
}

fn zombie(proc: &Path) -> bool {
    let stat = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// The mounts of this namespace that a box could have left; others on the machine may come and go.
fn mounts() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("mountinfo is readable");
    table.lines().map(str::to_owned).collect()
}

/// Places of the test programs, of which another may be running beside this one.
const OF_TESTS: [&str; 7] = [
    super::place::PREFIX,
    "agentbox-process-",
    "agentbox-tier-",
    "agentbox-check.",
    "agentbox-resolve-",
    "agentbox-doctor-",
    "agentbox-review-",
];

/// Names in the shared temporary directories that speak of agentbox, but for the places of the tests themselves.
fn temporary() -> BTreeSet<String> {
    ["/tmp", "/var/tmp", "/dev/shm"]
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.contains("agentbox") && !OF_TESTS.iter().any(|prefix| name.starts_with(prefix))
        })
        .map(|entry| entry.path().display().to_string())
        .collect()
}
