//! What /proc, signals and shared memory tell about the host, or let touch.

use super::{MODES, Twin, held, lines};
use crate::common::{Place, is_root};
use std::process::Command;

/// Only the box's own processes are seen; the host's cannot be signalled, one by one or all at once.
#[test]
fn the_hosts_processes() {
    let place = Place::new();
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let all = "-1";
    for mode in MODES {
        let output = place.boxed_in(mode, &[], &["kill", &pid, "9", "+", "pids"]);
        let answers = lines(&output, 2);
        assert_eq!(answers[0], "ESRCH", "{output}");
        assert!(answers[1].split(' ').count() <= 4, "pid 1 and the probe: {output}");
        place.sh(&format!(
            "$AGENTBOX run {mode} --rw $T/p --ro $T/bin -- bash -c 'trap \"\" TERM; $0 kill {all} 15' $PROBE"
        ));
        assert!(sleeper.try_wait().unwrap().is_none(), "{mode}: the host's process lives");
    }
    place.bare(&["kill", &pid, "9"]).ok().out_is("ok");
    sleeper.wait().unwrap();
}

/// The signals go no further under `--net host` either.
#[test]
fn the_hosts_processes_with_the_hosts_network() {
    let place = Place::new();
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    place.boxed(&["--net", "host"], &["kill", &sleeper.id().to_string(), "9"]).ok().out_is("ESRCH");
    assert!(sleeper.try_wait().unwrap().is_none());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

/// Pid 1 of the box comes from outside: its environment, root, directory, memory, descriptors and program stay closed.
#[test]
fn pid_1_tells_nothing() {
    let place = Place::new().env("SECRETVAR", "sentinel");
    place.write("out/sentinel", "sentinel\n");
    let out = place.text("out");
    for mode in MODES {
        let root = format!("/proc/1/root{out}");
        let words = [
            &["enter", &root, "sentinel", "+", "enter", "/proc/1/cwd", "sentinel", "+"][..],
            &["open-read", "/proc/1/mem", "+", "open-write", "/proc/1/exe", "+", "readlink", "/proc/1/fd/5", "+"],
            &["readlink", "/proc/1/exe", "+", "open-read", "/proc/1/maps"],
        ];
        let output = place.boxed_in(mode, &[], &words.concat());
        for (n, answer) in lines(&output, 7).iter().enumerate() {
            // whose number a descriptor has is not told, whether there is one is to root
            assert!(*answer == "EACCES" || (n == 4 && *answer == "ENOENT"), "{mode}: {output}");
        }
        let output = place.boxed_in(mode, &[], &["read", "/proc/1/environ"]);
        assert!(["=", "EACCES"].contains(&output.ok().out()), "{mode}: {output}");
        let output = place.boxed_in(mode, &["--hide", "zzz*"], &["read", "/proc/1/cmdline"]);
        output.ok();
        for told in [out.as_str(), "--hide", "zzz", "--rw", "SECRETVAR"] {
            assert!(!output.stdout.contains(told), "{mode}: {told} on pid 1's command line: {output}");
        }
    }
    let own = place.bare(&["enter", &format!("/proc/self/root{out}"), "sentinel", "+", "read", "/proc/self/environ"]);
    let own = lines(&own, 2);
    assert!(own[0] == "=sentinel" && own[1].contains("SECRETVAR=sentinel"), "one's own is open: {own:?}");
}

/// The environment is built from an allow list: a key that the launcher was started with does not arrive, `--env`
/// passes it.
#[test]
fn secrets_in_the_environment() {
    let place =
        Place::new().env("MY_API_KEY", "sentinel").env("SSH_AUTH_SOCK", "/x").env("LD_LIBRARY_PATH", "/nowhere");
    for mode in MODES {
        let words =
            ["env", "MY_API_KEY", "+", "env", "SSH_AUTH_SOCK", "+", "env", "LD_LIBRARY_PATH", "+", "env", "AGENTBOX"];
        place.boxed_in(mode, &[], &words).ok().out_is("ENODATA\nENODATA\nENODATA\n=1");
        place.boxed_in(mode, &["--env", "MY_API_KEY"], &["env", "MY_API_KEY"]).ok().out_is("=sentinel");
        place.boxed_in(mode, &["--env", "A_B=c d"], &["env", "A_B"]).ok().out_is("=c d");
    }
    place.bare(&["env", "MY_API_KEY"]).ok().out_is("=sentinel");
}

/// /proc/sys is read-only, or a program of the agent's runs on the host at the next crash of anybody.
#[test]
fn kernel_settings() {
    let place = Place::new();
    let pattern = std::fs::read("/proc/sys/kernel/core_pattern").unwrap();
    for mode in MODES {
        for name in ["kernel/core_pattern", "kernel/hostname", "vm/drop_caches", "fs/binfmt_misc/register"] {
            let output = place.boxed_in(mode, &[], &["open-write", &format!("/proc/sys/{name}")]);
            assert!(["EROFS", "EACCES", "ENOENT"].contains(&output.ok().out()), "{mode} {name}: {output}");
        }
        let output = place.boxed_in(mode, &[], &["write", "/proc/sys/kernel/core_pattern", "|/bin/false"]);
        assert!(["EROFS", "EACCES"].contains(&output.ok().out()), "{mode}: {output}");
        place.boxed_in(mode, &[], &["open-read", "/proc/sys/kernel/pid_max"]).ok().out_is("ok");
    }
    assert_eq!(std::fs::read("/proc/sys/kernel/core_pattern").unwrap(), pattern);
    if is_root() {
        place.bare(&["open-write", "/proc/sys/kernel/core_pattern"]).ok().out_is("ok");
    }
}

/// The parts of /proc that act on or tell about the whole machine.
#[test]
fn machine_wide_files_in_proc() {
    let place = Place::new();
    let writes = ["/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/mtrr", "/proc/acpi/wakeup"];
    let reads = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi/scsi"];
    let refused = ["EACCES", "ENOENT", "EROFS", "EPERM"];
    for mode in MODES {
        for path in writes {
            let output = place.boxed_in(mode, &[], &["open-write", path]);
            assert!(refused.contains(&output.ok().out()), "{mode} {path}: {output}");
        }
        for path in reads {
            let output = place.boxed_in(mode, &[], &["read", path]);
            let nothing = output.ok().out() == "="; // covered by an empty file
            assert!(nothing || refused.contains(&output.out()), "{mode} {path}: {output}");
        }
        place
            .boxed_in(mode, &[], &["open-read", "/proc/cpuinfo", "+", "open-read", "/proc/meminfo"])
            .ok()
            .out_is("ok\nok");
    }
    let outside = place.bare(&["open-read", "/proc/keys", "+", "open-read", "/proc/key-users"]);
    outside.ok().out_is("ok\nok");
    if is_root() {
        let free = writes.iter().filter(|path| place.bare(&["open-write", path]).ok().out() == "ok");
        assert_ne!(free.count(), 0, "root may, outside");
    }
}

/// The launcher's own program file is not to be overwritten through anything that the box sees (CVE-2019-5736).
#[test]
fn the_launchers_program() {
    let place = Place::new();
    std::fs::copy(crate::common::Bin::agentbox(), place.path("out/agentbox")).unwrap();
    let before = place.fingerprint("out");
    for mode in MODES {
        let script = "for e in /proc/[0-9]*/exe; do $0 open-write $e; done";
        let output =
            place.sh(&format!("$T/out/agentbox run {mode} --rw $T/p --ro $T/bin -- bash -c '{script}' $PROBE"));
        output.ok();
        let answers = output.stdout.lines().collect::<Vec<_>>();
        assert!(answers.len() >= 2 && answers.iter().all(|answer| *answer != "ok"), "{mode}: {output}");
        assert_eq!(answers[0], "EACCES", "{mode}: pid 1 is closed: {output}");
        assert_eq!(place.fingerprint("out"), before, "{mode}");
    }
    place.bare(&["open-write", &place.text("out/agentbox")]).ok().out_is("ok");
}

/// System V shared memory and the host name belong to namespaces of their own.
#[test]
fn shared_memory() {
    let place = Place::new();
    let made = place.sh("ipcmk -M 4096 | grep -o '[0-9]*$'");
    let id = made.ok().out().to_owned();
    let segment = Segment(id.clone());
    let see = format!("ipcs -m -i {id} 2>&1 | grep -c bytes=4096");
    for mode in MODES {
        place.run(&[mode], &["sh", "-c", &see]).out_is("0");
    }
    place.sh(&see).ok().out_is("1");
    drop(segment);
}

/// A shared memory segment by its number, removed when dropped.
struct Segment(String);

impl Drop for Segment {
    fn drop(&mut self) {
        Command::new("ipcrm").args(["-m", &self.0]).status().ok();
    }
}

/// Files in /dev/shm, /tmp, /var/tmp and /run of the host are not seen, and what is made there does not arrive.
#[test]
fn shared_directories() {
    let place = Place::new();
    let name = format!("agentbox-it.shared.{}", std::process::id());
    for dir in ["/dev/shm", "/tmp", "/var/tmp"] {
        let (host, own) = (format!("{dir}/{name}"), format!("{dir}/{name}.own"));
        std::fs::write(&host, "sentinel\n").unwrap();
        let (read, make) = (format!("read {host}"), format!("write {own} x"));
        let words = [read.split(' ').collect::<Vec<_>>(), vec!["+"], make.split(' ').collect()].concat();
        for mode in MODES {
            place.boxed_in(mode, &[], &words).ok().out_is("ENOENT\nok");
            assert!(!std::path::Path::new(&own).exists(), "{mode} {own}");
        }
        place.bare(&["read", &host]).ok().out_is("=sentinel");
        std::fs::remove_file(&host).unwrap();
    }
}

/// /dev holds what programs need and nothing of the machine's.
#[test]
fn devices() {
    let place = Place::new();
    for mode in MODES {
        let output = place.boxed_in(mode, &[], &["list", "/dev"]);
        let known = ["core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"];
        let names = output.ok().out().trim_start_matches('=').split(' ').collect::<Vec<_>>();
        let strange = names
            .iter()
            .filter(|name| !known.contains(name) && !["urandom", "zero", "mqueue", "console"].contains(name));
        assert_eq!(strange.count(), 0, "{mode}: {output}");
        for needed in ["null", "zero", "urandom", "ptmx", "tty"] {
            assert!(names.contains(&needed), "{mode}: {needed} is missing: {output}");
        }
    }
    held(&[("open-write /dev/null", "ok", Twin::Bare("ok")), ("open-read /dev/urandom", "ok", Twin::Bare("ok"))]);
}

/// Of /sys only what runtimes read, and that read-only.
#[test]
fn sysfs() {
    let place = Place::new();
    let closed =
        ["/sys/kernel/debug", "/sys/kernel/security", "/sys/firmware", "/sys/block", "/sys/class/net", "/sys/bus"];
    for mode in MODES {
        for path in closed {
            let output = place.boxed_in(mode, &[], &["list", path]);
            assert!(["ENOENT", "EACCES"].contains(&output.ok().out()), "{mode} {path}: {output}");
        }
        for path in ["/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/sys/new"] {
            let output = place.boxed_in(mode, &[], &["open-write", path, "+", "create", path]);
            for answer in lines(&output, 2) {
                assert!(["ENOENT", "EACCES", "EROFS"].contains(&answer), "{mode} {path}: {output}");
            }
        }
    }
    assert!(place.bare(&["list", "/sys/class/net"]).ok().out().starts_with('='));
}
