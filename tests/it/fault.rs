//! Each layer made to fail: the run ends with 125 and one clear error, and the command has not run.

use crate::common::{Leftovers, Output, Place, full, has, skip};
use std::collections::BTreeMap;

/// A refusal: 125, an error in few lines, nothing on stdout, and no trace of the command.
#[track_caller]
fn refused(place: &Place, output: &Output, what: &str) {
    assert!(!output.timed_out, "{what}: {output}");
    assert_eq!(output.status, 125, "{what}: {output}");
    assert!(!place.has("p/ran"), "{what}: the command ran: {output}");
    assert_eq!(output.stdout, "", "{what}: {output}");
    let said = output.stderr.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>();
    assert!((1..=10).contains(&said.len()), "{what}: one clear error: {output}");
    let errors =
        said.iter().filter(|line| line.starts_with("agentbox: ") && !line.starts_with("agentbox: hint: ")).count();
    assert_eq!(errors, 1, "{what}: it is said once: {output}");
}

/// By the switch that exists for this, for each layer and in each mode.
#[test]
fn each_layer_by_switch() {
    for layer in ["userns", "mount", "seccomp", "landlock", "netns"] {
        let place = Place::new().env("AGENTBOX_TEST_FAIL", layer);
        let before = Leftovers::before();
        for mode in ["--live", "--dry-run"] {
            let output = place.run(&[mode], &["sh", "-c", "echo x >ran; echo out"]);
            refused(&place, &output, &format!("{mode} {layer}"));
        }
        before.none(&place);
    }
    let place = Place::new().env("AGENTBOX_TEST_FAIL", "no such layer");
    place.live(&[], &["sh", "-c", "echo x >ran"]);
    let place = Place::new();
    place.live(&[], &["sh", "-c", "echo x >ran; echo out"]).ok().out_is("out");
    assert_eq!(place.read("p/ran"), "x\n");
}

/// A failure that takes no protection away: the call, what its line in the trace has, and why the run may go on.
const HARMLESS: &[(&str, &str, &str)] = &[
    ("prctl", "PR_SET_NAME", "the name of a process or thread is decoration"),
    ("prctl", "PR_CAPBSET_READ", "an error ends the list of capabilities, and /proc/self/status is read back"),
    ("prctl", "PR_CAP_AMBIENT_IS_SET", "the ambient set is read back from /proc/self/status"),
    ("prctl", "PR_SET_VMA", "the name of a mapping is decoration"),
    ("fsopen", "\"proc\"", "a fresh /proc is asked for again, read-only, as a covered /proc of a container needs it"),
    ("fsconfig", "FSCONFIG_CMD_CREATE", "the same, for the second call that a fresh /proc takes"),
    ("fsmount", "FSMOUNT_CLOEXEC", "the same, for the third"),
    ("close_range", ", 0)", "pid 1 drops its own copies once the command runs; nothing inside can reach pid 1's"),
];

/// The calls that a launch rests on. What comes after the filter (limits, reading the state back) cannot be made to
/// fail this way: the call number that strace puts in place of the real one is itself killed by the filter.
const CALLS: &[&str] = &[
    "mount",
    "umount2",
    "pivot_root",
    "open_tree",
    "move_mount",
    "mount_setattr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "clone3",
    "unshare",
    "setns",
    "prctl",
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
    "seccomp",
    "capset",
    "close_range",
    "sethostname",
    "mkdirat",
    "symlinkat",
    "mknodat",
    "chdir",
    "fchdir",
    "umask",
    "chroot",
];

/// Makes the Nth call of one name fail in every process of the run, and gives what was hit.
fn inject(place: &Place, mode: &str, call: &str, n: u32) -> (Output, Vec<String>) {
    inject_as(place, mode, call, &format!("error=EPERM:when={n}"))
}

/// The same with what strace shall do to the call.
fn inject_as(place: &Place, mode: &str, call: &str, tampering: &str) -> (Output, Vec<String>) {
    let trace = place.text("out/trace");
    let mut command = place.command("strace");
    let agentbox = crate::common::Bin::agentbox();
    command.args(["-f", "-o", &trace, "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={call}:{tampering}")]);
    command.arg(agentbox).args(["run", mode, "--diff", "none", "--ro", &place.text("ref"), "--hide", "*.pem", "--"]);
    // it says "out" in a box that is whole: own processes, read-only tree, hidden name, filter
    let whole = "echo x >ran; [ $(ls -d /proc/[0-9]* | wc -l) -le 6 ] && ! cat key.pem 2>/dev/null \
        && ! (echo x >$0/new) 2>/dev/null && grep -q '^Seccomp:.2$' /proc/self/status \
        && ! (: >/proc/sys/kernel/core_pattern) 2>/dev/null && echo out";
    command.args(["sh", "-c", whole, &place.text("ref")]);
    let output = place.finish(command, b"");
    let lines = std::fs::read_to_string(&trace).unwrap_or_default();
    // strace writes a call in two lines when another process is heard in between: its arguments stand in the first.
    let mut begun = BTreeMap::new();
    let mut hits = Vec::new();
    for line in lines.lines() {
        let pid = line.split(' ').next().unwrap_or_default();
        if let Some(first) = line.strip_suffix("<unfinished ...>") {
            begun.insert(pid, first);
        } else if line.contains("(INJECTED)") {
            let whole = line.split_once(" resumed>").and_then(|(_, rest)| {
                let first: &str = begun.get(pid)?;
                Some(format!("{}{rest}", first.trim_end()))
            });
            hits.push(whole.unwrap_or_else(|| line.to_owned()));
        }
    }
    (output, hits)
}

/// One place, made afresh for each injection: the project, a reference tree, a hidden name.
fn prepared() -> Place {
    let place = Place::new();
    place.write("p/file", "sentinel\n");
    place.write("p/key.pem", "sentinel\n");
    place.write("ref/file", "sentinel\n");
    place
}

/// Every call of every name that a launch rests on fails once, at each of its indexes.
fn at_every_index(mode: &str, calls: &[&str]) {
    if !has("strace") {
        return skip("no strace");
    }
    let place = prepared();
    let (probe, _) = inject(&place, mode, "getpid", 10_000);
    if probe.status != 0 {
        return skip("strace cannot trace here");
    }
    place.sh("rm -f ran").ok();
    let before = Leftovers::before();
    let mut met = BTreeMap::new();
    let limit = if full() { 10_000 } else { 40 };
    for call in calls {
        let mut n = 1;
        loop {
            let (output, hits) = inject(&place, mode, call, n);
            let what = format!("{mode}: {call} number {n}: {}", hits.join("; "));
            if hits.is_empty() {
                output.ok();
                place.sh("rm -f ran").ok();
                break;
            }
            met.insert(*call, n);
            let harmless = |hit: &String| HARMLESS.iter().any(|(name, part, _)| name == call && hit.contains(part));
            // The guard's own calls come when the command runs already: a run that is not guarded says so.
            let unguarded = output.stderr.contains("names that appear during the run are not hidden");
            if output.status == 0 && (hits.iter().all(harmless) || unguarded) {
                output.out_is("out");
                if mode == "--live" {
                    assert_eq!(place.read("p/ran"), "x\n", "{what}");
                }
                place.sh("rm -f ran").ok();
            } else {
                refused(&place, &output, &what);
            }
            assert_eq!(
                place.read("p/file") + &place.read("p/key.pem") + &place.read("ref/file"),
                "sentinel\n".repeat(3)
            );
            // past the limit every seventh index stands for its neighbours
            n += if n > limit { 7 } else { 1 };
        }
    }
    before.none(&place);
    println!("{mode}: {met:?}");
}

/// Whether at least the calls that no launch can do without were made to fail; a filter of names that the launcher
/// no longer uses would test nothing.
#[test]
fn the_driver_hits_its_calls() {
    if !has("strace") {
        return skip("no strace");
    }
    let place = prepared();
    for call in ["clone3", "pivot_root", "landlock_restrict_self", "seccomp", "capset"] {
        let (output, hits) = inject(&place, "--live", call, 1);
        assert!(!hits.is_empty(), "{call} was not called: {output}");
        refused(&place, &output, call);
    }
    let (output, hits) = inject(&place, "--live", "clone3", 1000);
    assert!(hits.is_empty());
    output.ok().out_is("out");
}

/// A kernel that lacks a feature is no reason to run with less.
#[test]
fn missing_kernel_features() {
    if !has("strace") {
        return skip("no strace");
    }
    let place = prepared();
    let before = Leftovers::before();
    for call in
        ["clone3", "mount_setattr", "open_tree", "move_mount", "landlock_create_ruleset", "seccomp", "close_range"]
    {
        for errno in ["ENOSYS", "EOPNOTSUPP", "EINVAL"] {
            let (output, hits) = inject_as(&place, "--live", call, &format!("error={errno}"));
            assert!(!hits.is_empty(), "{call}: {output}");
            refused(&place, &output, &format!("{call} {errno}"));
        }
    }
    // an old Landlock that lacks rights and scopes
    for abi in [1, 3, 5] {
        let (output, hits) = inject_as(&place, "--live", "landlock_create_ruleset", &format!("retval={abi}:when=1"));
        assert!(!hits.is_empty(), "{output}");
        // refused, or at least what was lost is said
        assert!(output.stderr.contains("andlock"), "landlock version {abi}: {output}");
        if output.status != 0 {
            refused(&place, &output, &format!("landlock version {abi}"));
        }
        place.sh("rm -f ran").ok();
    }
    before.none(&place);
}

#[test]
fn every_call_live_first_half() {
    at_every_index("--live", &CALLS[..11]);
}

#[test]
fn every_call_live_second_half() {
    at_every_index("--live", &CALLS[11..]);
}

#[test]
fn every_call_dry_first_half() {
    at_every_index("--dry-run", &CALLS[..11]);
}

#[test]
fn every_call_dry_second_half() {
    at_every_index("--dry-run", &CALLS[11..]);
}
