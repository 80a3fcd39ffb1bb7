//! Capabilities and users, of which nothing may be left, for root neither.

use super::{MODES, Twin, held, lines, owner};
use crate::common::{Place, is_root};

const NONE: &str = "0000000000000000";

/// All five sets are empty, and no_new_privs holds, also for root.
#[test]
fn five_empty_sets() {
    let place = Place::new();
    let words = ["status", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "+", "bounding"];
    let expected = format!("{NONE} {NONE} {NONE} {NONE} {NONE} 1\n=");
    for mode in MODES {
        place.boxed_in(mode, &[], &words).ok().out_is(&expected);
    }
    let free = owner(&place, &words);
    let free = lines(&free, 2);
    assert!(!free[0].contains(&format!("{NONE} {NONE} {NONE}")) && free[1] != "=", "an owner has some: {free:?}");
}

/// What init holds does not matter if nobody can become it: executing a program gives nothing back, set-id or not.
#[test]
fn exec_gives_nothing_back() {
    let place = Place::new();
    let probe = place.text("bin/probe");
    let script =
        format!("for p in su mount; do \"$(command -v $p)\" --version >/dev/null; done; {probe} status CapPrm CapEff");
    let (bin, p) = (place.text("bin"), place.text("p"));
    for mode in MODES {
        let output = place.run(&[mode, "--rw", &p, "--ro", &bin], &["sh", "-c", &script]);
        output.ok().out_is(&format!("{NONE} {NONE}"));
    }
}

/// The user is the same inside as outside, and cannot become another.
#[test]
fn the_same_user() {
    let place = Place::new();
    let ids = place.bare(&["ids"]);
    let another = if is_root() { "EPERM" } else { "EINVAL" }; // an ordinary user's map holds no other user
    for mode in MODES {
        let output = place.boxed_in(mode, &[], &["ids", "+", "setuid", "12", "+", "setgroups"]);
        assert_eq!(lines(&output, 3), [ids.out(), another, "EPERM"], "{mode}: {output}");
    }
    if is_root() {
        place.bare(&["setuid", "12", "+", "setgroups"]).ok().out_is("ok\nok");
    }
}

/// Root inside is not above file modes: another user's private file in the project stays closed.
#[test]
fn root_obeys_file_modes() {
    if !is_root() {
        return; // an ordinary user has no such power to lose
    }
    let place = Place::new();
    place.write("p/theirs", "sentinel\n");
    place.sh("chmod 600 theirs; chown 12:12 theirs; chmod 755 $T").ok();
    let before = place.fingerprint("p");
    for mode in MODES {
        let words = [
            "read",
            "theirs",
            "+",
            "open-write",
            "theirs",
            "+",
            "chmod",
            "0o644",
            "theirs",
            "+",
            "chown",
            "0",
            "theirs",
        ];
        place.boxed_in(mode, &[], &words).ok().out_is("EACCES\nEACCES\nEPERM\nEPERM");
        assert_eq!(place.fingerprint("p"), before, "{mode}");
    }
    place.bare(&["read", "theirs", "+", "open-write", "theirs"]).ok().out_is("=sentinel\nok");
}

/// Lowering one's own limits by prctl: securebits, the bounding set and keep-caps cannot be turned back on.
#[test]
fn securebits_are_locked() {
    held(&[
        ("prctl 28 0", "EPERM", Twin::Owner("ok")), // PR_SET_SECUREBITS
        ("prctl 24 0", "EPERM", Twin::Owner("ok")), // PR_CAPBSET_DROP
    ]);
}
