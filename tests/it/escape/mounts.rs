//! Tricks on the mounts that the box is made of.

use super::{MODES, Twin, held_with, lines};
use crate::common::{Output, Place, is_root};

/// A place whose `ref` holds a file and a directory, to be granted read-only.
fn place() -> Place {
    let place = Place::new();
    place.write("ref/file", "sentinel\n");
    place.write("ref/dir/inner", "sentinel\n");
    place
}

/// Every way to change something in a read-only tree, by the errno of a read-only mount, and the tree is untouched.
#[test]
fn read_only_trees() {
    let place = place();
    let (tree, before) = (place.text("ref"), place.fingerprint("ref"));
    place.write("p/mine", "mine\n");
    let tricks = [
        "open-write ref/file",
        "create ref/new",
        "truncate ref/file",
        "unlink ref/file",
        "mkdir ref/new",
        "rename ref/file ref/other",
        "symlink / ref/new",
        "link ref/file ref/new",
        "chmod 0o600 ref/file",
        "utime ref/file",
        "setxattr ref/file",
        "fifo ref/new",
    ];
    let words = tricks.map(|words| words.replace("ref/", &format!("{tree}/"))).join(" + ");
    let words = words.split(' ').collect::<Vec<_>>();
    for mode in MODES {
        let output = place.boxed_in(mode, &["--ro", &tree], &words);
        for (trick, answer) in tricks.iter().zip(lines(&output, tricks.len())) {
            assert_eq!(answer, "EROFS", "{mode}: {trick}: {output}");
        }
        assert_eq!(place.fingerprint("ref"), before, "{mode}");
        let moved =
            place.boxed_in(mode, &["--ro", &tree], &["rename", &format!("{tree}/file"), &place.text("p/stolen")]);
        assert!(["EXDEV", "EROFS"].contains(&moved.ok().out()), "{mode}: out of the tree: {moved}");
        let linked =
            place.boxed_in(mode, &["--ro", &tree], &["link", &format!("{tree}/file"), &place.text("p/stolen")]);
        assert!(["EXDEV", "EROFS"].contains(&linked.ok().out()), "{mode}: out of the tree: {linked}");
        place.boxed_in(mode, &["--ro", &tree], &["read", &format!("{tree}/dir/inner")]).ok().out_is("=sentinel");
    }
    assert_eq!(place.fingerprint("ref"), before);
    let twins = ["open-write", "chmod 0o600", "utime"].map(|call| format!("{call} {tree}/file")).join(" + ");
    place.boxed(&["--rw", &tree], &twins.split(' ').collect::<Vec<_>>()).ok().out_is("ok\nok\nok");
}

/// In mount namespaces of their own, where this user may mount: a script that makes mounts and then runs agentbox.
fn with_mounts(place: &Place, script: &str) -> Output {
    let mut command = place.command("unshare");
    command.args([if is_root() { "-m" } else { "-Urm" }, "bash", "-ec", script]);
    place.finish(command, b"")
}

/// A mount below a read-only tree is read-only too: MS_REC is ignored on a remount, mount_setattr obeys it.
#[test]
fn submounts_of_read_only_trees() {
    let place = place();
    for mode in MODES {
        let output = with_mounts(
            &place,
            &format!(
                "mount -t tmpfs t $T/ref/dir; echo sentinel >$T/ref/dir/file
                $AGENTBOX run {mode} --rw $T/p --ro $T/bin --ro $T/ref -- \
                    $PROBE read $T/ref/dir/file + open-write $T/ref/dir/file + create $T/ref/dir/new + unlink $T/ref/dir/file
                cat $T/ref/dir/file; ls $T/ref/dir; $PROBE open-write $T/ref/dir/file"
            ),
        );
        assert_eq!(lines(&output, 7), ["=sentinel", "EROFS", "EROFS", "EROFS", "sentinel", "file", "ok"], "{output}");
    }
}

/// Flags that the kernel locks in a user namespace are kept, not dropped and not in the way.
#[test]
fn locked_flags_are_kept() {
    let place = place();
    for mode in MODES {
        for options in
            ["nosuid", "nodev", "noexec", "nosuid,nodev,noexec,noatime", "ro", "ro,nosuid,nodev,noexec,nodiratime"]
        {
            let output = with_mounts(
                &place,
                &format!(
                    "mount -t tmpfs t $T/ref; echo sentinel >$T/ref/file; mount -o remount,bind,{options} $T/ref
                    $AGENTBOX run {mode} --rw $T/p --ro $T/bin --ro $T/ref -- $PROBE read $T/ref/file + open-write $T/ref/file"
                ),
            );
            assert_eq!(lines(&output, 2), ["=sentinel", "EROFS"], "{mode} {options}: {output}");
        }
        let output = with_mounts(
            &place,
            &format!(
                "mount -t tmpfs t $T/out; cp /bin/true $T/out/true; mount -o remount,bind,noexec $T/out
                $AGENTBOX run {mode} --rw $T/p --ro $T/bin --rw $T/out -- $PROBE exec $T/out/true; mount -o remount,bind,exec $T/out
                $AGENTBOX run {mode} --rw $T/p --ro $T/bin --rw $T/out -- $PROBE exec $T/out/true"
            ),
        );
        assert_eq!(lines(&output, 2), ["EACCES", "exit status: 0"], "{mode}: {output}");
    }
}

/// Whoever owns the user namespace could clear a read-only flag or take a mask away: nobody inside does.
#[test]
fn undoing_the_mounts() {
    let place = place();
    place.write("p/.env", "sentinel\n");
    let (tree, mask, root) = (place.text("ref"), place.text("p/.env"), "/".to_owned());
    let tries = [
        format!("remount-rw {tree}"),
        format!("setattr-rw {tree}"),
        format!("umount {tree}"),
        format!("remount-rw {root}"),
        format!("umount {mask}"),
        "umount /proc/sys".to_owned(),
        "remount-rw /proc/sys".to_owned(),
        format!("nested remount-rw {tree}"),
        format!("nested umount {mask}"),
    ];
    let tries = tries.iter().map(|words| (words.as_str(), "EPERM", Twin::Root(""))).collect::<Vec<_>>();
    let words = super::joined(tries.iter().map(|(words, _, _)| *words));
    for mode in MODES {
        let output = place.boxed_in(mode, &["--ro", &tree], &words);
        assert_eq!(lines(&output, tries.len()), ["EPERM"; 9], "{mode}: {output}");
    }
    let twin = with_mounts(
        &place,
        "mount --bind $T/ref $T/ref; mount -o remount,bind,ro $T/ref; $PROBE open-write $T/ref/file + remount-rw $T/ref + umount $T/ref",
    );
    assert_eq!(lines(&twin, 3), ["EROFS", "ok", "ok"], "an owner can: {twin}");
}

/// The old root is gone: not mounted, not above the root, not below any process.
#[test]
fn the_old_root() {
    let place = Place::new();
    place.write("out/sentinel", "sentinel\n");
    let out = place.text("out/sentinel");
    let up = format!("/../../../../..{out}");
    let host = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut host = host.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let device = host.find(|fields| fields[4] == "/").unwrap()[2];
    held_with(&place, &[], &[(&format!("read {up}"), "ENOENT", Twin::Bare("=sentinel"))]);
    for mode in MODES {
        let output = place.boxed_in(mode, &[], &["list", "/", "+", "list", "/.."]);
        let answers = lines(&output, 2);
        assert_eq!(answers[0], answers[1], "{output}");
        for name in ["oldroot", "old_root", ".old", "put_old", "root ", "home ", "boot "] {
            assert!(!format!("{} ", answers[0]).contains(&format!(" {name}")), "{mode}: {name}: {output}");
        }
        let whole = |line: &str| {
            let fields = line.split(' ').collect::<Vec<_>>();
            fields[2] == device && fields[3] == "/"
        };
        let table = place.run(&[mode, "-q"], &["cat", "/proc/self/mountinfo"]);
        assert!(table.ok().stdout.lines().count() > 10, "{table}");
        assert!(!table.stdout.lines().any(whole), "{mode}: the host's whole root: {table}");
    }
}

/// A mount that the host makes during the run does not arrive: everything is private, not slave.
#[test]
fn mounts_made_later() {
    let place = place();
    for mode in MODES {
        let output = with_mounts(
            &place,
            &format!(
                "mount --make-rshared /; mount --bind $T/ref $T/ref; mount --make-shared $T/ref
                wait_for() {{ for i in {{1..500}}; do test -e $1 && break; sleep .02; done; }}
                $AGENTBOX run {mode} --scratch $T/p --ro $T/bin --ro $T/ref -- \
                    bash -c 'echo >up; for i in {{1..500}}; do test -e go && break; sleep .02; done; $0 list $1' $PROBE $T/ref/dir &
                wait_for $T/p/up; mount -t tmpfs t $T/ref/dir; echo sentinel >$T/ref/dir/late; echo >$T/p/go; wait $!
                $PROBE list $T/ref/dir; rm $T/p/go $T/p/up"
            ),
        );
        assert_eq!(lines(&output, 2), ["=inner", "=late"], "{mode}: {output}");
    }
}

/// Destinations are made without following links: a link that the project holds on the way to a nested grant does not
/// lead the mount elsewhere.
#[test]
fn links_on_the_way_to_a_mount() {
    let place = place();
    place.symlink(place.path("out"), "p/link");
    place.mkdir("out/sub");
    place.write("out/sub/file", "sentinel\n");
    let before = place.fingerprint("out");
    for mode in MODES {
        // the grant is for what the name leads to, and for no more of `out` than that
        let output = place.boxed_in(
            mode,
            &["--ro", &place.text("p/link/sub")],
            &[
                "read",
                &place.text("out/sub/file"),
                "+",
                "create",
                &place.text("out/new"),
                "+",
                "open-write",
                &place.text("out/sub/file"),
            ],
        );
        let answers = lines(&output, 3);
        assert_eq!(answers[0], "=sentinel", "{mode}: {output}");
        // what is above the mount is the box's own, private /var/tmp
        assert!(["EROFS", "EACCES", "ENOENT", "ok"].contains(&answers[1]), "{mode}: {output}");
        assert_eq!(answers[2], "EROFS", "{mode}: {output}");
        assert_eq!(place.fingerprint("out"), before, "{mode}");
    }
}

/// Nothing is made in the user's trees, during the run or by it, even when pid 1 is killed.
#[test]
fn nothing_is_left_in_the_trees() {
    let place = place();
    place.write("p/.env", "sentinel\n");
    place.write("p/sub/key.pem", "sentinel\n");
    let before = (place.fingerprint("p"), place.fingerprint("ref"));
    for mode in MODES {
        let boxed = format!(
            "$AGENTBOX run {mode} --rw $T/p --ro $T/ref --ro $T/ref/dir --hide 'none*' --hide '*.pem' --scratch $T/out -- \
            sh -c 'echo >$0; exec sleep 30' $T/out/up"
        );
        let during = place.sh(&format!(
            "rm -f $T/out/up; {boxed} & for i in {{1..500}}; do test -e $T/out/up && break; sleep .01; done; test -e $T/out/up && \
            find $T/p $T/ref | sort; kill -9 $!; wait $!"
        ));
        assert!(!during.timed_out, "{during}");
        let names = during.stdout.lines().map(|name| name.replace(&place.dir().display().to_string(), ""));
        let expected = ["/p", "/p/.env", "/p/sub", "/p/sub/key.pem", "/ref", "/ref/dir", "/ref/dir/inner", "/ref/file"];
        assert_eq!(names.collect::<Vec<_>>(), expected, "{mode}: {during}");
        assert_eq!((place.fingerprint("p"), place.fingerprint("ref")), before, "{mode}");
    }
}

/// A read-only directory in a writable root can be neither written, nor moved away, nor replaced, nor removed.
#[test]
fn read_only_in_writable() {
    let place = place();
    place.write("p/up/keep/file", "sentinel\n");
    let keep = place.text("p/up/keep");
    let before = place.fingerprint("p");
    for mode in MODES {
        let output = place.boxed_in(
            mode,
            &["--ro", &keep],
            &[
                "open-write",
                "up/keep/file",
                "+",
                "create",
                "up/keep/new",
                "+",
                "unlink",
                "up/keep/file",
                "+",
                "rename",
                "up/keep/file",
                "file",
                "+",
                "rename",
                "up/keep",
                "moved",
                "+",
                "rmdir",
                "up/keep",
                "+",
                "symlink",
                "/",
                "up/keep",
                "+",
                "read",
                "up/keep/file",
                "+",
                "create",
                "up/other",
                "+",
                "unlink",
                "up/other",
            ],
        );
        let answers = lines(&output, 10);
        assert_eq!(answers[..3], ["EROFS"; 3], "{mode}: {output}");
        assert!(["EXDEV", "EROFS"].contains(&answers[3]), "{mode}: {output}");
        assert!(["EBUSY", "EXDEV"].contains(&answers[4]), "{mode}: {output}");
        assert!(["EBUSY", "ENOTEMPTY"].contains(&answers[5]), "{mode}: {output}");
        assert_eq!(answers[6..], ["EEXIST", "=sentinel", "ok", "ok"], "{mode}: {output}");
        // its parent may be moved; the content is the same and read-only wherever it went
        let script = "mv up away 2>/dev/null; for d in up away; do echo x 2>/dev/null >$d/keep/file; done; rm -rf up away 2>/dev/null; exit 0";
        place
            .run(&[mode, "-q", "--diff", "none", "--rw", &place.text("p"), "--ro", &keep], &["bash", "-c", script])
            .ok();
        if place.has("p/away") {
            place.sh("mv away up").ok();
        }
        assert_eq!(place.read("p/up/keep/file"), "sentinel\n", "{mode}");
    }
    assert_eq!(before.lines().count(), place.fingerprint("p").lines().count());
    let free =
        place.boxed(&[], &["open-write", "up/keep/file", "+", "rename", "up/keep", "moved", "+", "read", "moved/file"]);
    free.ok().out_is("ok\nok\n=sentinel");
}
