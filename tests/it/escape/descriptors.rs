//! Descriptors that come from outside.

use super::{MODES, lines};
use crate::common::Place;

/// A directory descriptor that leaks walks past every mask: none but 0 to 2 is open, `--fd N` passes one.
#[test]
fn inherited_descriptors() {
    let place = Place::new();
    place.write("out/sentinel", "sentinel\n");
    let with =
        |program: &str| format!("exec 7<$T/out 9>$T/out/log; {program} $PROBE fds + fchdir 7 sentinel + openat 7 ..");
    for mode in MODES {
        let agentbox = format!("$AGENTBOX run {mode} --rw $T/p --ro $T/bin");
        let output = place.sh(&with(&format!("{agentbox} --")));
        assert_eq!(lines(&output, 3), ["0 1 2", "EBADF", "EBADF"], "{mode}: {output}");
        let passed = place.sh(&format!("exec 9>$T/out/log; {agentbox} --fd 9 -- $PROBE fds"));
        assert_eq!(lines(&passed, 1), ["0 1 2 9"], "{mode}: {passed}");
    }
    let bare = place.sh(&with(""));
    let bare = lines(&bare, 3);
    assert!(bare[0].starts_with("0 1 2 ") && bare[0].contains(" 7 9"), "{bare:?}");
    assert_eq!(bare[1..], ["=sentinel", "ok"]);
}

/// A host directory on standard input is the same leak: the run is refused, or the directory cannot be entered.
#[test]
fn a_directory_on_standard_input() {
    let place = Place::new();
    place.write("out/sentinel", "sentinel\n");
    for mode in MODES {
        for fd in ["0<", "1<", "2<"] {
            let number = &fd[..1];
            let ran = place.sh(&format!(
                "$AGENTBOX run {mode} --rw $T/p --ro $T/bin -- bash -c '$0 fchdir {number} sentinel >$1/got' $PROBE $T/p {fd}$T/out"
            ));
            let got = if place.has("p/got") { place.read("p/got") } else { String::new() };
            assert!(!got.contains("sentinel") && !ran.stdout.contains("sentinel"), "{mode} {fd}: {got} {ran}");
        }
    }
    place.sh("$PROBE fchdir 0 sentinel <$T/out").ok().out_is("=sentinel");
}

/// `tool < file`: the read-only descriptor is opened again for writing by its name in /proc.
#[test]
fn reopening_standard_input() {
    let place = Place::new();
    place.write("out/data", "sentinel\n");
    let before = place.fingerprint("out");
    for mode in MODES {
        let output = place.sh(&format!("$AGENTBOX run {mode} --rw $T/p --ro $T/bin -- $PROBE reopen 0 <$T/out/data"));
        output.ok().out_is("EACCES");
        assert_eq!(place.fingerprint("out"), before, "{mode}");
    }
    place.sh("$PROBE reopen 0 <$T/out/data").ok().out_is("ok");
}

/// Redirections work as without a box: out, err, append, in.
#[test]
fn redirections_work() {
    let place = Place::new();
    place.write("out/in", "given\n");
    for mode in MODES {
        let boxed = format!("$AGENTBOX run {mode} -q --rw $T/p -- sh -c");
        place.sh(&format!("{boxed} 'cat; echo err >&2; echo more >>/dev/stdout' <$T/out/in >$T/out/o 2>$T/out/e")).ok();
        assert_eq!(place.read("out/o"), "given\nmore\n", "{mode}");
        assert!(place.read("out/e").contains("err\n"), "{mode}");
    }
}
