//! `doctor` against what `run` really does, on the real kernel: as this user and, started as root, as an ordinary one.
//! Missing layers are made by wrappers around both.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

const NO_NAMESPACES: &[&str] =
    &["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"", "--"];

/// The user that a test runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Own,
    /// uid and gid 65534, from root.
    Ordinary,
}

fn users() -> Vec<User> {
    if rustix::process::geteuid().is_root() { vec![User::Own, User::Ordinary] } else { vec![User::Own] }
}

/// A project, a HOME and copies of the programs in a place that everyone can reach.
struct Place {
    dir: PathBuf,
    user: User,
}

impl Place {
    fn new(user: User) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("agentbox-doctor-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        for part in ["p", "home", "bin"] {
            fs::create_dir(dir.join(part)).unwrap();
            if user == User::Ordinary {
                std::os::unix::fs::chown(dir.join(part), Some(65_534), Some(65_534)).unwrap();
            }
        }
        let given = std::env::var_os("AGENTBOX_TEST_BIN").map(PathBuf::from);
        let program = given.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_agentbox").into());
        fs::copy(&program, dir.join("bin/agentbox")).unwrap();
        // Cargo builds the examples before the tests, beside the program; scripts/check puts all in one directory.
        let examples = if given.is_some() { program.clone() } else { program.with_file_name("examples").join("x") };
        fs::copy(examples.with_file_name("deny_syscall"), dir.join("bin/deny_syscall")).unwrap();
        Place { dir, user }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn project(&self) -> String {
        self.path("p")
    }

    fn agentbox(&self) -> String {
        self.path("bin/agentbox")
    }

    /// `wrapper... agentbox args...`
    fn start(&self, wrapper: &[&str], args: &[&str]) -> Output {
        let mut words: Vec<String> = match self.user {
            User::Own => Vec::new(),
            User::Ordinary => ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(String::from).into(),
        };
        words.extend(wrapper.iter().map(|word| (*word).to_owned()));
        words.push(self.agentbox());
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.project()).env("HOME", self.path("home"));
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        command.output().unwrap()
    }

    fn doctor(&self, wrapper: &[&str]) -> (i32, Value) {
        let output = self.start(wrapper, &["doctor", "--json"]);
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"));
        (output.status.code().unwrap(), json)
    }

    /// Runs a command that leaves a file, live; says the status, the errors and whether it ran.
    fn run(&self, wrapper: &[&str], flags: &[&str]) -> (i32, String, bool) {
        let ran = self.dir.join("p/ran");
        fs::remove_file(&ran).ok();
        let words: Vec<&str> = ["run", "--live"].iter().chain(flags).copied().chain(["--", "touch", "ran"]).collect();
        let output = self.start(wrapper, &words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), errors, ran.exists())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // An overlay's work directory has mode 000.
        Command::new("chmod").args(["-R", "u+rwX"]).arg(&self.dir).status().ok();
        fs::remove_dir_all(&self.dir).ok();
    }
}

fn state<'a>(json: &'a Value, name: &str) -> &'a str {
    layer(json, name)["state"].as_str().unwrap()
}

fn layer<'a>(json: &'a Value, name: &str) -> &'a Value {
    json["layers"].as_array().unwrap().iter().find(|layer| layer["name"] == name).unwrap_or_else(|| panic!("{name}"))
}

fn names_below(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    all
}

#[test]
fn all_is_well_here_for_doctor_and_for_run_and_nothing_stays_behind() {
    for user in users() {
        let place = Place::new(user);
        let (status, json) = place.doctor(&[]);
        assert_eq!((status, &json["ok"], &json["version"]), (0, &Value::from(true), &Value::from(1)), "{json:#}");
        for name in ["userns", "mounts", "proc", "overlay", "layers", "netns", "landlock", "seccomp", "state"] {
            assert_eq!(state(&json, name), "ok", "{user:?} {name}: {json:#}");
        }
        assert!(json["landlock"]["abi"].as_u64().unwrap() >= 1);
        assert_eq!(names_below(&place.dir.join("home")), Vec::<PathBuf>::new());
        assert_eq!(place.run(&[], &[]).0, 0);
        let text = place.start(&[], &["doctor"]);
        assert!(String::from_utf8_lossy(&text.stdout).contains("all required layers are there"));
    }
}

#[test]
fn without_a_state_directory_live_runs_and_doctor_go_on() {
    let place = Place::new(User::Own);
    let output = place.start(&["env", "-u", "HOME", "XDG_STATE_HOME=/proc/nowhere"], &["doctor", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), state(&json, "state")), (Some(0), "warn"), "{json:#}");
    assert!(layer(&json, "state")["fix"][0].as_str().unwrap().contains("XDG_STATE_HOME"));
}

#[test]
fn blocked_user_namespaces_are_told_alike_and_nothing_runs() {
    for user in users() {
        let place = Place::new(user);
        let (status, json) = place.doctor(NO_NAMESPACES);
        assert_eq!((status, state(&json, "userns")), (1, "missing"), "{json:#}");
        let (status, errors, ran) = place.run(NO_NAMESPACES, &[]);
        assert_eq!((status, ran), (125, false), "{errors}");
        assert!(errors.lines().count() <= 10, "{errors}");
        for word in ["user namespaces are blocked", "AppArmor", "sysctl", "agentbox doctor"] {
            assert!(errors.contains(word), "{word}: {errors}");
        }
        let fix = layer(&json, "userns")["fix"].as_array().unwrap();
        assert!(errors.contains(fix[0].as_str().unwrap()), "{errors}");
        assert!(fix.iter().any(|line| line.as_str().unwrap().contains("user.max_user_namespaces")));
        // What needs no namespace is still known.
        assert_eq!((state(&json, "landlock"), state(&json, "seccomp")), ("ok", "ok"));
    }
}

/// One that a container makes: parts of /proc covered. The kernel then grants no fresh one below.
#[test]
fn a_covered_proc_is_told_alike() {
    let covered = ["unshare", "-Urpfm", "--mount-proc", "sh", "-c"];
    let script = "mount --bind /proc/sys /proc/sys && exec unshare -Um --map-current-user \"$@\"";
    let wrapper: Vec<&str> = covered.into_iter().chain([script, "--"]).collect();
    for user in users() {
        let place = Place::new(user);
        let (status, json) = place.doctor(&wrapper);
        assert_eq!((status, state(&json, "proc")), (1, "missing"), "{json:#}");
        let (status, errors, ran) = place.run(&wrapper, &[]);
        assert_eq!((status, ran), (125, false), "{errors}");
        assert!(errors.contains("/proc") && errors.contains("outer container"), "{errors}");
        assert!(errors.contains(layer(&json, "proc")["fix"][0].as_str().unwrap()), "{errors}");
    }
}

#[test]
fn a_missing_layer_is_missing_for_both_and_given_up_only_on_demand() {
    for user in users() {
        let place = Place::new(user);
        let deny = place.path("bin/deny_syscall");
        for (call, name, flag) in [
            ("landlock_create_ruleset", "landlock", Some("landlock")),
            ("seccomp", "seccomp", Some("seccomp")),
            ("mount_setattr", "mounts", None),
            ("fsopen", "mounts", None),
            ("clone3", "userns", None),
        ] {
            let wrapper = [deny.as_str(), call];
            let (status, json) = place.doctor(&wrapper);
            assert_eq!((status, state(&json, name)), (1, "missing"), "{call}: {json:#}");
            let (status, errors, ran) = place.run(&wrapper, &[]);
            assert_eq!((status, ran), (125, false), "{call}: {errors}");
            assert!(errors.contains("hint: "), "{call}: {errors}");
            let Some(flag) = flag else { continue };
            let (status, errors, ran) = place.run(&wrapper, &["--degraded", flag]);
            assert_eq!((status, ran), (0, true), "{call}: {errors}");
            assert!(errors.contains(&format!("ran without: {flag}")), "{errors}");
        }
        // No layer hangs on openat2: there is a walk by hand.
        let (status, json) = place.doctor(&[&deny, "openat2"]);
        assert_eq!(status, 0, "{json:#}");
        assert_eq!(place.run(&[&deny, "openat2"], &[]).0, 0);
    }
}

#[test]
fn giving_up_the_network_is_said_and_the_rest_stays() {
    let place = Place::new(User::Own);
    let report = place.path("report");
    let (status, errors, _) = place.run(&[], &["--degraded", "netns", "--report", &report]);
    assert_eq!(status, 0, "{errors}");
    assert!(errors.contains("ran without: netns") && errors.contains("network is open"), "{errors}");
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!((&report["degraded"][0], &report["network"]), (&Value::from("netns"), &Value::from("host")));
    let (status, errors, ran) = place.run(&[], &["--degraded", "mounts"]);
    assert_eq!((status, ran), (0, true), "{errors}");
    assert!(errors.contains("ran without: mounts"), "{errors}");
}

#[test]
fn a_box_in_a_box_works_when_asked_for_and_is_told_otherwise() {
    for user in users() {
        let place = Place::new(user);
        let (project, bin, program) = (place.project(), place.path("bin"), place.agentbox());
        for outer in ["--live", "--dry-run"] {
            for inner in ["--live", "--dry-run"] {
                let script = "echo in > f && cat f && ls -d /proc/[0-9]* | wc -l";
                let outer_flags = ["run", outer, "--nested", "--rw", &project, "--ro", &bin, "--"];
                let inner_flags = [program.as_str(), "run", inner, "--rw", &project, "--", "sh", "-c", script];
                let words: Vec<&str> = outer_flags.into_iter().chain(inner_flags).collect();
                let output = place.start(&[], &words);
                assert_eq!(output.status.code(), Some(0), "{user:?} {outer} {inner}: {output:?}");
                let out = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(out.starts_with("in\n"), "{out}");
                // pid 1, the shell, ls and wc's shell at most: the fresh /proc of the inner box.
                assert!(out.lines().nth(1).unwrap().trim().parse::<u32>().unwrap() <= 5, "{out}");
                let kept = place.dir.join("p/f").exists();
                assert_eq!(kept, outer == "--live" && inner == "--live", "{outer} {inner}");
                fs::remove_file(place.dir.join("p/f")).ok();
            }
        }
        let plain = ["run", "--live", "--rw", &project, "--ro", &bin, "--", &program];
        for inner in [&["run", "--rw", "/etc", "--", "true"][..], &["run", "--live", "--", "true"]] {
            let words: Vec<&str> = plain.iter().chain(inner).copied().collect();
            let output = place.start(&[], &words);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(125), "{errors}");
            assert!(errors.contains("nested"), "{errors}");
        }
        let words: Vec<&str> = plain.iter().copied().chain(["doctor", "--json"]).collect();
        let output = place.start(&[], &words);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(layer(&json, "userns")["fix"][0].as_str().unwrap().contains("--nested"), "{json:#}");
    }
}

/// As root the command's uid is the machine's root: a writable /proc/sys would be the machine's settings.
#[test]
fn a_namespace_inside_a_box_gets_no_writable_proc_sys_as_root() {
    let place = Place::new(User::Own);
    let before = fs::read("/proc/sys/kernel/core_pattern").unwrap();
    let script = "mount -t proc none /proc 2>/dev/null && echo writable
        mount -t proc -o ro none /proc && echo read-only
        mount -o remount,bind,rw /proc 2>/dev/null && echo remounted
        (echo core > /proc/sys/kernel/core_pattern) 2>/dev/null && echo written
        (echo 1 > /proc/self/oom_score_adj) 2>/dev/null && echo own";
    let nested = ["unshare", "-Urmpf", "sh", "-c", script];
    let words: Vec<&str> = ["run", "--live", "--nested", "--"].into_iter().chain(nested).collect();
    let output = place.start(&[], &words);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if rustix::process::geteuid().is_root() {
        assert_eq!(out, "read-only\n", "{output:?}");
    } else {
        // The positive twin: an ordinary user's namespace mounts it as it likes, and the kernel judges by uid.
        assert!(out.starts_with("writable\n") && !out.contains("written"), "{output:?}");
    }
    assert_eq!(fs::read("/proc/sys/kernel/core_pattern").unwrap(), before);
}

#[test]
fn profiles_are_listed_shown_and_checked() {
    let place = Place::new(User::Own);
    let listed = place.start(&[], &["profile", "list"]);
    assert!(String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.starts_with("strict ")));
    let shown = place.start(&[], &["profile", "show", "strict", "--json"]);
    let json: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let home = json["values"].as_array().unwrap().iter().find(|value| value["key"] == "filesystem.home").unwrap();
    assert!(home["origin"].as_str().unwrap().starts_with("built-in:strict:"), "{home}");
    let bad = place.path("p/bad.toml");
    fs::write(&bad, "[filesystem]\nwr = [\".\"]\n").unwrap();
    let checked = place.start(&[], &["profile", "check", &bad, "default"]);
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(2), "{errors}");
    assert!(errors.contains("bad.toml:2") && errors.contains("did you mean `rw`?"), "{errors}");
    assert_eq!(place.start(&[], &["profile", "check", "default"]).status.code(), Some(0));
}
