//! Paths that lead out of the roots.

use super::{MODES, Twin, held_with, lines};
use crate::common::Place;

fn place() -> Place {
    let place = Place::new();
    place.write("out/sentinel", "sentinel\n");
    place.write("home/.ssh/id_ed25519", "sentinel\n");
    place
}

/// What is not granted does not exist, for every kind of access.
#[test]
fn outside_the_roots() {
    let place = place();
    let (out, home) = (place.text("out"), place.text("home"));
    let before = place.fingerprint("out");
    held_with(
        &place,
        &[],
        &[
            (&format!("read {out}/sentinel"), "ENOENT", Twin::Bare("=sentinel")),
            (&format!("stat {out}/sentinel"), "ENOENT", Twin::Bare("ok")),
            (&format!("open-path {out}/sentinel"), "ENOENT", Twin::Bare("ok")),
            (&format!("list {out}"), "ENOENT", Twin::Bare("=sentinel")),
            (&format!("open-write {out}/sentinel"), "ENOENT", Twin::Bare("ok")),
            (&format!("chmod 0o600 {out}/sentinel"), "ENOENT", Twin::Bare("ok")),
            (&format!("chmod 0o644 {out}/sentinel"), "ENOENT", Twin::Bare("ok")),
            (&format!("enter {out} sentinel"), "ENOENT", Twin::Bare("=sentinel")),
            (&format!("read {home}/.ssh/id_ed25519"), "ENOENT", Twin::Bare("=sentinel")),
        ],
    );
    assert_eq!(place.read("out/sentinel"), "sentinel\n");
    assert_eq!(before.lines().count(), place.fingerprint("out").lines().count());
    for mode in MODES {
        place.boxed_in(mode, &[], &["create", &format!("{out}/new"), "+", "unlink", &format!("{out}/sentinel")]);
        assert!(!place.has("out/new") && place.has("out/sentinel"), "{mode}");
        place.boxed_in(mode, &["--ro", &out], &["read", &format!("{out}/sentinel")]).ok().out_is("=sentinel");
    }
}

/// A link never widens a grant: by absolute or relative target, to a file or a directory, in a chain, or made inside.
#[test]
fn links_to_the_outside() {
    let place = place();
    let out = place.text("out");
    place.symlink(format!("{out}/sentinel"), "p/file");
    place.symlink("../out", "p/dir");
    place.symlink("dir", "p/chain");
    place.symlink("/", "p/root");
    place.symlink("/proc/self/root", "p/magic");
    held_with(
        &place,
        &[],
        &[
            ("read file", "ENOENT", Twin::Bare("=sentinel")),
            ("open-write file", "ENOENT", Twin::Bare("ok")),
            ("read dir/sentinel", "ENOENT", Twin::Bare("=sentinel")),
            ("read chain/sentinel", "ENOENT", Twin::Bare("=sentinel")),
            (&format!("read root{out}/sentinel"), "ENOENT", Twin::Bare("=sentinel")),
            (&format!("read magic{out}/sentinel"), "ENOENT", Twin::Bare("=sentinel")),
            ("symlink ../out made", "ok", Twin::Bare("ok")),
            ("read made/sentinel", "ENOENT", Twin::Bare("=sentinel")),
            ("unlink made", "ok", Twin::Bare("ok")),
        ],
    );
    assert_eq!(place.read("out/sentinel"), "sentinel\n");
}

/// Up and out of the working directory.
#[test]
fn dot_dot() {
    let place = place();
    held_with(
        &place,
        &[],
        &[
            ("read ../out/sentinel", "ENOENT", Twin::Bare("=sentinel")),
            ("enter .. out/sentinel", "ENOENT", Twin::Bare("=sentinel")),
            ("enter /proc/self/cwd/.. out/sentinel", "ENOENT", Twin::Bare("=sentinel")),
            ("open-read ../p", "ok", Twin::Bare("ok")),
        ],
    );
}

/// Every spelling of a granted path works, and of a path that is not granted none.
#[test]
fn spellings() {
    let place = place();
    place.write("p/sub/file", "mine\n");
    let (p, out) = (place.text("p"), place.text("out"));
    let alias = place.symlink(place.path("p"), "alias").display().to_string();
    let spellings =
        [format!("{p}/sub/../sub/file"), format!("//{p}//sub/./file"), format!("/proc/self/root{p}/sub/file")];
    let tries = spellings.iter().map(|path| format!("read {path}")).collect::<Vec<_>>();
    let mut tries = tries.iter().map(|words| (words.as_str(), "=mine", Twin::Bare("=mine"))).collect::<Vec<_>>();
    let outside = format!("read {p}/../out/./sentinel");
    tries.push((&outside, "ENOENT", Twin::Bare("=sentinel")));
    held_with(&place, &[], &tries);
    for mode in MODES {
        let output = place.run(
            &[mode, "--rw", &alias, "--ro", &place.text("bin")],
            &[&place.text("bin/probe"), "read", &format!("{p}/sub/file"), "+", "read", &format!("{out}/sentinel")],
        );
        assert_eq!(lines(&output, 2), ["=mine", "ENOENT"], "{mode}: {output}");
    }
}

/// A file cannot be carried out of the roots, nor one from outside be linked in.
#[test]
fn carrying_over_the_border() {
    let place = place();
    place.write("p/mine", "mine\n");
    let out = place.text("out");
    let before = place.fingerprint("out");
    for mode in MODES {
        let output = place.boxed_in(
            mode,
            &[],
            &[
                "rename",
                "mine",
                &format!("{out}/mine"),
                "+",
                "link",
                "mine",
                &format!("{out}/mine"),
                "+",
                "link",
                &format!("{out}/sentinel"),
                "stolen",
                "+",
                "rename",
                &format!("{out}/sentinel"),
                "stolen",
            ],
        );
        assert_eq!(lines(&output, 4), ["ENOENT"; 4], "{mode}: {output}");
        assert_eq!(place.fingerprint("out"), before, "{mode}");
        assert!(!place.has("p/stolen"), "{mode}");
    }
    let twin = place.bare(&["link", &format!("{out}/sentinel"), "stolen", "+", "link", "mine", &format!("{out}/mine")]);
    twin.ok().out_is("ok\nok");
}

/// HOME is private: what is written there does not arrive, and the host's names are not seen.
#[test]
fn home_is_private() {
    let place = place();
    place.write("home/.bashrc", "sentinel\n");
    let home = place.text("home");
    for mode in MODES {
        let output = place.boxed_in(
            mode,
            &[],
            &["read", &format!("{home}/.bashrc"), "+", "write", &format!("{home}/.bashrc"), "x"],
        );
        assert_eq!(lines(&output, 2), ["ENOENT", "ok"], "{mode}: {output}");
        assert_eq!(place.read("home/.bashrc"), "sentinel\n", "{mode}");
    }
    place.bare(&["read", &format!("{home}/.bashrc")]).ok().out_is("=sentinel");
}

/// agentbox's own state and configuration are never visible inside, even in a root that holds them.
#[test]
fn own_state() {
    let place = place();
    place.dry(&[], &["sh", "-c", "echo x >made"]).ok();
    let state = place.text("home/.local/state/agentbox");
    assert!(place.has("home/.local/state/agentbox"), "the session is kept there");
    place.write("home/.config/agentbox/profiles/mine.toml", "description = \"mine\"\n");
    let home = place.text("home");
    for policy in [&[][..], &["--ro", &home], &["--rw", &home, "--grant-home"]] {
        // an overlay cannot lie below itself: a dry run says so
        let modes = if policy.contains(&"--rw") { &MODES[..1] } else { &MODES };
        for mode in modes {
            let config = format!("{home}/.config/agentbox/profiles/mine.toml");
            let output = place.boxed_in(mode, policy, &["list", &state, "+", "read", &config]);
            for answer in lines(&output, 2) {
                assert!(["ENOENT", "EACCES"].contains(&answer), "{mode} {policy:?}: {output}");
            }
        }
    }
    assert!(place.bare(&["list", &state]).ok().out().starts_with('='));
}

/// The working directory must lie in a root, and HOME, its ancestors and `/` are no writable roots.
#[test]
fn roots_that_are_refused() {
    let place = place();
    let ran = |policy: &[&str], why: &str| {
        let output = place.live(policy, &["touch", &place.text("p/ran")]);
        output.status_is(125);
        assert!(!place.has("p/ran"), "{policy:?}");
        assert!(output.stderr.contains(why), "{policy:?} says {why}: {output}");
    };
    let (home, dir) = (place.text("home"), place.dir().display().to_string());
    ran(&["--rw", &home], &home);
    ran(&["--rw", &dir], &dir);
    ran(&["--rw", "/"], "/");
    ran(&["--rw", &place.text("out")], &place.text("p"));
    ran(&["--rw", &place.text("p"), "--ro", "/no/such/path"], "/no/such/path");
    place.live(&[], &["touch", &place.text("p/ran")]).ok();
    assert!(place.has("p/ran"));
    let gone = place.sh("mkdir $T/out/gone; cd $T/out/gone; rmdir $T/out/gone; $AB -- touch $T/p/ran2");
    gone.status_is(125);
    assert!(!place.has("p/ran2"));
}

/// A helper that the launcher would find through PATH can be planted by a project: it runs nothing by name.
#[test]
fn helpers_planted_in_path() {
    let place = place();
    let names = [
        "mount",
        "umount",
        "fusermount",
        "fusermount3",
        "newuidmap",
        "newgidmap",
        "git",
        "diff",
        "ip",
        "nft",
        "unshare",
        "nsenter",
        "bwrap",
        "sh",
        "bash",
        "env",
        "cat",
        "cp",
        "rm",
        "uname",
        "id",
        "getent",
        "which",
        "systemd-run",
        "loginctl",
        "setpriv",
        "slirp4netns",
        "pasta",
        "socat",
        "tty",
        "stty",
        "less",
        "pager",
        "find",
    ];
    for name in names {
        place.write(format!("p/node_modules/.bin/{name}"), "#!/bin/sh\n: >$T/out/planted\n");
    }
    place.sh("chmod 755 node_modules/.bin/*").ok();
    let planted = "PATH=$T/p/node_modules/.bin:$PATH";
    for mode in MODES {
        place.sh(&format!("{planted} $AGENTBOX run {mode} --rw $T/p -- /bin/sh -c '/bin/echo x >made'")).ok();
        place.sh(&format!("{planted} $AGENTBOX explain {mode} -- /bin/true")).ok();
        place.sh(&format!("{planted} $AGENTBOX diff"));
        place.sh(&format!("{planted} $AGENTBOX doctor"));
        assert!(!place.has("out/planted"), "{mode}");
    }
    place.sh(&format!("{planted}; mount")).ok();
    assert!(place.has("out/planted"), "the plant works");
}

/// Files of the system that hold secrets are not there, and what is there of it cannot be changed, by root neither.
#[test]
fn system_files() {
    let place = place();
    let secrets =
        ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/boot", "/var/lib", "/var/log", "/root/.bashrc"];
    let words = secrets.map(|path| format!("stat {path}")).join(" + ");
    let words = words.split(' ').collect::<Vec<_>>();
    for mode in MODES {
        let output = place.boxed_in(mode, &[], &words);
        assert_eq!(lines(&output, secrets.len()), ["ENOENT"; 8], "{mode}: {output}");
        let output = place.boxed_in(
            mode,
            &[],
            &[
                "open-write",
                "/usr/bin/env",
                "+",
                "create",
                "/usr/bin/agentbox-it-new",
                "+",
                "open-write",
                "/etc/hosts",
                "+",
                "create",
                "/etc/agentbox-it-new",
                "+",
                "create",
                "/agentbox-it-new",
                "+",
                "open-write",
                "/etc/passwd",
            ],
        );
        for answer in lines(&output, 6) {
            // an ordinary user is refused by the file's mode first, Landlock speaks before the mount does, and the kernel
            // before both where another test is executing the program
            assert!(["EROFS", "EACCES", "ETXTBSY"].contains(&answer), "{mode}: {output}");
        }
        place
            .boxed_in(mode, &[], &["open-read", "/usr/bin/env", "+", "open-read", "/etc/passwd"])
            .ok()
            .out_is("ok\nok");
    }
    place.bare(&["stat", "/etc/shadow", "+", "stat", "/var/lib"]).ok().out_is("ok\nok");
    if crate::common::is_root() {
        place.bare(&["open-write", "/etc/hosts", "+", "open-write", "/etc/passwd"]).ok().out_is("ok\nok");
    }
}
