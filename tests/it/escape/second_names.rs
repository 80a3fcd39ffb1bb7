//! Other names of what is hidden or frozen: hard links, symbolic links, bind mounts, and names that the command frees.

use super::{MODES, lines};
use crate::common::{Place, is_root};

/// What a look-up of a hidden name gives in this mode.
fn hidden(mode: &str) -> &'static str {
    if mode == "--live" { "EACCES" } else { "ENOENT" }
}

fn link(place: &Place, from: &str, to: &str) {
    let to = place.path(to);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::hard_link(place.path(from), to).unwrap();
}

/// Secrets with second names: of a file, of a file in a hidden directory, in another root, in a build directory.
fn linked() -> Place {
    let place = Place::new();
    for secret in ["p/.env", "p/.ssh/config", "p/sub/prod.key", "p/chosen"] {
        place.write(secret, "sentinel\n");
    }
    link(&place, "p/.env", "p/notes.txt");
    link(&place, "p/.env", "ref/other/notes.txt");
    link(&place, "p/.ssh/config", "p/sub/deep/c.txt");
    link(&place, "p/sub/prod.key", "p/node_modules/x/k.js");
    link(&place, "p/chosen", "p/chosen.too");
    place.write("p/visible", "visible\n");
    link(&place, "p/visible", "p/visible.too");
    place
}

/// Every name of a hidden file is hidden: in its root, in another, for a file of a hidden directory, for a path that was
/// hidden by hand. Files whose names are all visible stay.
#[test]
fn hard_links_to_hidden_files() {
    let place = linked();
    let (r, other) = (place.text("ref"), place.text("ref/other/notes.txt"));
    let names = ["notes.txt", &other, "sub/deep/c.txt", "node_modules/x/k.js", "chosen.too"];
    let words = names.map(|name| format!("read {name}")).join(" + ");
    let words = format!("{words} + read visible.too");
    let words = words.split(' ').collect::<Vec<_>>();
    for mode in MODES {
        for root in ["--ro", "--rw"] {
            let output = place.boxed_in(mode, &[root, &r, "--hide", "chosen"], &words);
            let answers = lines(&output, 6);
            assert_eq!(answers[..5], [hidden(mode); 5], "{mode} {root}: {output}");
            assert_eq!(answers[5], "=visible", "{mode} {root}: {output}");
        }
        // What the command line grants by its own name is what the user asked for.
        let output = place.boxed_in(mode, &["--ro", &r, "--grant", "notes.txt"], &words);
        assert_eq!(lines(&output, 6)[..2], ["=sentinel", hidden(mode)], "{mode}: {output}");
        // Nobody inside makes one.
        let output = place.boxed_in(mode, &[], &["link", ".env", "new", "+", "read", "new"]);
        assert!(!output.ok().stdout.contains("sentinel"), "{mode}: {output}");
    }
    let bare = place.bare(&words);
    assert_eq!(lines(&bare, 6)[..5], ["=sentinel"; 5], "{bare}");
    assert_eq!(place.read("p/notes.txt"), "sentinel\n");
}

/// `why` and `explain` say whose other name it is.
#[test]
fn hard_links_are_explained() {
    let place = linked();
    let p = place.text("p");
    let why = place.agentbox(&["why", "--rw", &p, "notes.txt"]);
    why.status_is(1).out_has("hard link to a hidden file: .env").out_has("--grant");
    place.agentbox(&["why", "--rw", &p, "visible.too"]).ok();
    let plan = place.agentbox(&["explain", "--rw", &p, "--", "true"]);
    plan.ok().out_has("sub/deep/c.txt by built-in:base").out_has("hard link to a hidden file: .ssh/config");
    assert!(!plan.stdout.contains("visible.too"), "{plan}");
}

/// Copies of a tree that share their files, as `cp -al` makes them, are hidden by their names: no walk is needed, and
/// no name that was made since is taken for another file's.
#[test]
fn hard_links_that_are_all_hidden() {
    let place = Place::new();
    place.write("p/a/.env", "sentinel\n");
    link(&place, "p/a/.env", "p/b/.env");
    let plan = place.agentbox(&["explain", "--rw", &place.text("p"), "--", "true"]);
    assert!(!plan.ok().stdout.contains("hard link"), "{plan}");
    for mode in MODES {
        let output = place.boxed_in(mode, &[], &["read", "a/.env", "+", "read", "b/.env"]);
        assert_eq!(lines(&output, 2), [hidden(mode); 2], "{mode}: {output}");
    }
}

/// A second name of a frozen file is read-only too, whether the file or its directory is frozen.
#[test]
fn hard_links_to_frozen_files() {
    let place = Place::new();
    place.write("p/.github/workflows/ci.yml", "sentinel\n");
    place.write("p/.tool-versions", "sentinel\n");
    link(&place, "p/.github/workflows/ci.yml", "p/sub/w.yml");
    link(&place, "p/.tool-versions", "p/versions");
    let before = place.fingerprint("p");
    for mode in MODES {
        for name in ["sub/w.yml", "versions"] {
            let words =
                format!("open-write {name} + truncate {name} + chmod 0o777 {name} + unlink {name} + read {name}");
            let output = place.boxed_in(mode, &[], &words.split(' ').collect::<Vec<_>>());
            let answers = lines(&output, 5);
            for answer in &answers[..4] {
                assert!(["EROFS", "EACCES", "EBUSY"].contains(answer), "{mode} {name}: {output}");
            }
            assert_eq!(answers[4], "=sentinel", "{mode} {name}: {output}");
            assert_eq!(place.fingerprint("p"), before, "{mode} {name}");
        }
        place.boxed_in(mode, &["--grant", "versions:rw"], &["open-write", "versions"]).ok().out_is("ok");
    }
    place.bare(&["open-write", "sub/w.yml"]).ok().out_is("ok");
}

/// The same tree mounted a second time shows what is hidden under names that no rule knows: a hidden directory at a
/// plain name, a path that was hidden by hand, one file over another.
#[test]
fn bind_mounts_of_the_same_tree() {
    if !is_root() {
        return; // only root can mount on the host: covered by the root run
    }
    let place = Place::new();
    for secret in ["p/.ssh/config", "p/plain/s", "p/.env", "p/visible"] {
        place.write(secret, "sentinel\n");
    }
    place.write("p/.github/workflows/ci.yml", "sentinel\n");
    for dir in ["ref/keys", "ref/alias", "ref/ci", "p/again"] {
        place.mkdir(dir);
    }
    place.write("ref/one", "");
    let script = r#"
        mount --bind $T/p/.ssh $T/ref/keys; mount --bind $T/p $T/ref/alias; mount --bind $T/p/.env $T/ref/one
        mount --bind $T/p/.github $T/ref/ci; mount --bind $T/p/plain $T/p/again
        tries="read $T/ref/keys/config + read $T/ref/alias/plain/s + read $T/ref/alias/.env + read $T/ref/one + read again/s"
        writes="+ open-write $T/ref/ci/workflows/ci.yml + read $T/ref/ci/workflows/ci.yml + read $T/ref/alias/visible"
        $AB --rw $T/p --ro $T/bin --rw $T/ref --hide plain -- $PROBE $tries $writes
        $PROBE $tries
    "#;
    let mut command = place.command("unshare");
    command.args(["-m", "--propagation", "private", "bash", "-c", script]);
    let output = place.finish(command, b"");
    let answers = lines(&output, 13);
    assert_eq!(answers[..5], ["EACCES"; 5], "{output}");
    assert_eq!(answers[5..8], ["EROFS", "=sentinel", "=sentinel"], "{output}");
    assert_eq!(answers[8..], ["=sentinel"; 5], "{output}");
}

/// A symbolic link to a hidden name, or to one of its other names, leads nowhere, made before or by the command.
#[test]
fn symbolic_links_to_hidden_names() {
    let place = linked();
    place.symlink(".env", "p/a");
    place.symlink("a", "p/b");
    place.symlink("notes.txt", "p/c");
    place.symlink(".ssh", "p/d");
    place.symlink(place.path("p/sub/../.env"), "p/e");
    place.symlink("/proc/self/cwd/.env", "p/f");
    for mode in MODES {
        let words = "read a + read b + read c + read d/config + read e + read f + symlink sub/prod.key made + read made \
            + unlink made";
        let output = place.boxed_in(mode, &[], &words.split(' ').collect::<Vec<_>>());
        let answers = lines(&output, 9);
        for answer in answers[..6].iter().chain([&answers[7]]) {
            assert!([hidden(mode), "ENOENT"].contains(answer), "{mode}: {output}");
        }
        assert_eq!((answers[6], answers[8]), ("ok", "ok"), "{mode}: {output}");
    }
    let bare = place.bare(&"read a + read b + read c + read d/config + read e + read f".split(' ').collect::<Vec<_>>());
    assert_eq!(lines(&bare, 6), ["=sentinel"; 6], "{bare}");
}

/// Whatever the command does with the directories above, the content shows under neither name: moved, exchanged,
/// copied, replaced by another, moved out of the root and back.
#[test]
fn directories_above_are_moved() {
    let tricks = [
        "mv sub sub2",
        "mv sub/deep sub/deep2",
        "mv sub/deep deep2",
        "mkdir other; mv -T other sub/deep",
        "mkdir other; $0 exchange sub other",
        "mv sub /tmp/; mv /tmp/sub sub3",
        "cp -r sub sub4",
        "cp -rl sub sub5",
        "mv sub away; mkdir -p sub/deep",
        "mv sub away; ln -s away sub",
        "rm -rf sub; mkdir -p sub/deep",
        "cd ..; mv p p2; mkdir p",
    ];
    for mode in MODES {
        for trick in tricks {
            let place = Place::new();
            place.write("p/sub/.env", "sentinel\n");
            place.write("p/sub/deep/server.key", "sentinel\n");
            place.write("p/sub/deep/visible", "visible\n");
            let script = format!(
                "{{ {trick}; }} >/dev/null 2>&1; grep -rsl sentinel / --include=.env --include=server.key \
                --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=opt; grep -rIs sentinel $1; exit 0"
            );
            let run = format!("$AGENTBOX run {mode} -q --rw $T/p --ro $T/bin -- bash -c '{script}' $PROBE $T");
            place.sh(&run).ok().out_is("");
            let kept = place.sh("find $T -type f ! -name visible -name '*[vy]' -exec cat {} +");
            assert_eq!(kept.stdout, "sentinel\nsentinel\n", "{mode} {trick}: {kept}");
        }
    }
    let place = Place::new();
    place.write("p/sub/.env", "sentinel\n");
    place.sh("mv sub sub2; grep -rs sentinel .").ok().out_is("./sub2/.env:sentinel");
}
