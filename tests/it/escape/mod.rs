//! Tricks to get out, each with its positive twin. `docs/escapes.md` lists every test of this module.

mod around;
mod caps;
mod descriptors;
mod found;
mod git;
mod limits;
mod mounts;
mod names;
mod proc;
mod roots;
mod second_names;
mod sockets;
mod syscalls;
mod terminal;

use crate::common::{Output, Place, is_root};

/// The modes that a trick is tried in.
pub const MODES: [&str; 2] = ["--live", "--dry-run"];

/// How the same try fares without the box, which shows that it is the box that stops it.
#[derive(Debug, Clone, Copy)]
pub enum Twin<'a> {
    /// Outside, as this user.
    Bare(&'a str),
    /// Outside, in fresh namespaces that this user owns: what the launcher itself could do.
    Owner(&'a str),
    /// Outside, for root only: nobody else may, box or not. The suite runs as root too.
    Root(&'a str),
}

/// Each try (words of one probe call) gives its answer in the box, in every mode, and the twin's answer outside.
#[track_caller]
pub fn held(tries: &[(&str, &str, Twin)]) {
    held_with(&Place::new(), &[], tries);
}

/// The same in a given place and with more policy.
#[track_caller]
pub fn held_with(place: &Place, policy: &[&str], tries: &[(&str, &str, Twin)]) {
    let words = joined(tries.iter().map(|(words, _, _)| *words));
    for mode in MODES {
        let output = place.boxed_in(mode, policy, &words);
        let answers = lines(&output, tries.len());
        for ((words, expected, _), answer) in tries.iter().zip(answers) {
            assert_eq!(answer, *expected, "{words} in a {mode} box: {output}");
        }
    }
    twins(place, tries);
}

/// The twins alone.
#[track_caller]
fn twins(place: &Place, tries: &[(&str, &str, Twin)]) {
    fn of(twin: Twin<'_>) -> Option<(u8, &str)> {
        match twin {
            Twin::Bare(answer) => Some((0, answer)),
            Twin::Owner(answer) => Some((1, answer)),
            Twin::Root(answer) => is_root().then_some((0, answer)),
        }
    }
    for kind in [0, 1] {
        let these = tries.iter().filter_map(|(words, _, twin)| of(*twin).map(|(k, answer)| (k, *words, answer)));
        let these = these.filter(|(k, _, _)| *k == kind).collect::<Vec<_>>();
        if these.is_empty() {
            continue;
        }
        let words = joined(these.iter().map(|(_, words, _)| *words));
        let output = if kind == 0 { place.bare(&words) } else { owner(place, &words) };
        let answers = lines(&output, these.len());
        for ((_, words, expected), answer) in these.iter().zip(answers) {
            assert_eq!(answer, *expected, "the twin of {words}: {output}");
        }
    }
}

/// The probe in user, mount, network, pid, ipc and uts namespaces of its own, all capabilities held there.
pub fn owner(place: &Place, words: &[&str]) -> Output {
    let mut command = place.command("unshare");
    command.args(["-Urmnpiu", "--fork", "--mount-proc"]).arg(place.path("bin/probe")).args(words);
    place.finish(command, b"")
}

fn joined<'a>(tries: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut words = Vec::new();
    for each in tries {
        if !words.is_empty() {
            words.push("+");
        }
        words.extend(each.split(' '));
    }
    words
}

/// The lines of a probe that came to its end.
#[track_caller]
pub fn lines(output: &Output, count: usize) -> Vec<&str> {
    output.ok();
    let lines = output.stdout.lines().collect::<Vec<_>>();
    assert_eq!(lines.len(), count, "one line for each try: {output}");
    lines
}

/// The harness can fail: a wrong expectation of an answer or of a twin is a panic, and so is a probe that did not run.
#[test]
fn the_harness_can_fail() {
    let place = Place::new();
    let fails = |body: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err();
    assert!(!fails(&|| twins(&place, &[("ok", "", Twin::Bare("ok"))])), "a right expectation holds");
    assert!(fails(&|| twins(&place, &[("ok", "", Twin::Bare("EPERM"))])), "a wrong twin is seen");
    assert!(fails(&|| drop(lines(&place.sh("echo ok; exit 3"), 1))), "a wrong status is seen");
    assert!(fails(&|| drop(lines(&place.sh("true"), 1))), "a missing line is seen");
    assert!(fails(&|| drop(lines(&place.bare(&["no-such-try"]), 1))), "an unknown try is seen");
    assert!(!fails(&|| held(&[("ok", "ok", Twin::Bare("ok"))])), "a box that works holds");
    assert!(fails(&|| held(&[("ok", "EPERM", Twin::Bare("ok"))])), "a trick that is not stopped is seen");
    assert!(fails(&|| held(&[("open-read /", "ok", Twin::Bare("EPERM"))])), "a trick without a twin is seen");
}

/// The table names the layer that stops a trick: with that layer off, and the others on, the trick works again. So the
/// tests would see the layer fail.
#[test]
fn each_layer_is_needed() {
    let place = Place::new();
    place.write("out/data", "sentinel\n");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let off = |layer: &str, words: &[&str]| place.boxed(&["--degraded", layer], words).ok().out().to_owned();
    for (words, expected) in
        [(&["ptrace"][..], "ok"), (&["i386"], "ok"), (&["io-uring-setup"], "ok"), (&["tiocsti"], "ok")]
    {
        assert_eq!(off("seccomp", words), expected, "{words:?} without seccomp");
    }
    assert_eq!(off("netns", &["tcp", &to]), "ok", "the host's loopback without a network namespace");
    let reopened = place.sh("$AB --degraded landlock --rw $T/p --ro $T/bin -- $PROBE reopen 0 <$T/out/data");
    reopened.ok().out_is("ok");
}
