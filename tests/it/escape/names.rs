//! Hidden names inside a root: absent in an overlay (ENOENT), closed under a mask (EACCES), and never readable.

use super::{MODES, lines};
use crate::common::Place;

fn place() -> Place {
    let place = Place::new();
    for secret in ["p/.env", "p/sub/.env.local", "p/sub/deep/server.key", "p/id_rsa", "p/secrets.json", "p/.ssh/config"]
    {
        place.write(secret, "sentinel\n");
    }
    place.write("p/visible", "visible\n");
    place.write("p/.gitignore", "visible\n");
    place
}

/// What a look-up of a hidden name gives in this mode.
fn hidden(mode: &str) -> &'static str {
    if mode == "--live" { "EACCES" } else { "ENOENT" }
}

/// By name, by other spellings, through links and magic links, by descriptor: the content does not come out.
#[test]
fn reading_a_hidden_name() {
    let place = place();
    place.symlink(".env", "p/link");
    place.symlink("sub/../.env", "p/chain");
    let paths = [
        ".env",
        "./.env",
        "sub/../.env",
        "link",
        "chain",
        "/proc/self/cwd/.env",
        "sub/.env.local",
        "sub/deep/server.key",
        "id_rsa",
        "secrets.json",
    ];
    let words = paths.map(|path| format!("read {path}")).join(" + ");
    let words = words.split(' ').collect::<Vec<_>>();
    for mode in MODES {
        let output = place.boxed_in(mode, &[], &words);
        assert_eq!(lines(&output, paths.len()), [hidden(mode); 10], "{mode}: {output}");
        let output = place.boxed_in(mode, &[], &["read", ".ssh/config", "+", "list", ".ssh"]);
        for answer in lines(&output, 2) {
            assert!([hidden(mode), "ENOENT"].contains(&answer), "{mode}: {output}");
        }
        let output = place.boxed_in(mode, &[], &["read", "visible", "+", "read", ".gitignore"]);
        assert_eq!(lines(&output, 2), ["=visible", "=visible"], "{mode}: {output}");
        let output = place.boxed_in(mode, &["--grant", ".env"], &["read", ".env", "+", "read", "sub/deep/server.key"]);
        assert_eq!(lines(&output, 2), ["=sentinel", hidden(mode)], "{mode}: granted: {output}");
    }
    let bare = place.bare(&words);
    assert_eq!(lines(&bare, paths.len()), ["=sentinel"; 10], "{bare}");
}

/// Every other access to a hidden name, and the file on the host is as it was.
#[test]
fn changing_a_hidden_name() {
    let place = place();
    let before = place.fingerprint("p");
    let tricks = [
        "open-write .env",
        "truncate .env",
        "chmod 0o666 .env",
        "chmod 0o777 sub/deep/server.key",
        "rename .env moved",
        "rename visible .env",
        "link .env linked",
        "unlink .env",
        "setxattr .env",
    ];
    for mode in MODES {
        for trick in tricks {
            let words =
                [&trick.split(' ').collect::<Vec<_>>()[..], &["+", "read", "moved", "+", "read", "linked"]].concat();
            let output = place.boxed_in(mode, &[], &words);
            let answers = lines(&output, 3);
            assert!(!answers.contains(&"=sentinel"), "{mode} {trick}: {output}");
            if mode == "--live" {
                let refused = ["EACCES", "EROFS", "EBUSY", "EPERM", "EXDEV"];
                assert!(refused.contains(&answers[0]), "{trick}: {output}");
            }
            if trick != "rename visible .env" || mode == "--live" {
                assert_eq!(place.fingerprint("p"), before, "{mode}: {trick}: {output}");
            }
        }
    }
    assert_eq!(place.read("p/.env"), "sentinel\n");
    place.boxed(&["--grant", ".env:rw"], &["open-write", ".env", "+", "rename", ".env", "moved"]).ok().out_is("ok\nok");
}

/// Moving the parent of a mask away frees neither name.
#[test]
fn moving_the_parent() {
    let place = place();
    for mode in MODES {
        let script = "mv sub other 2>/dev/null; for d in sub other; do $0 read $d/.env.local + read $d/deep/server.key; done; \
            mv other sub 2>/dev/null; mv sub/deep deep2 2>/dev/null; $0 read deep2/server.key + read sub/deep/server.key";
        let output = place.sh(&format!("$AGENTBOX run {mode} -q --rw $T/p --ro $T/bin -- bash -c '{script}' $PROBE"));
        for answer in lines(&output, 6) {
            assert!(["EACCES", "ENOENT"].contains(&answer), "{mode}: {output}");
        }
        place.sh("mv other sub; mv deep2 sub/deep; true");
    }
    place.sh("mv sub other; $PROBE read other/.env.local").ok().out_is("=sentinel");
}

/// The names are compared without regard to case.
#[test]
fn other_cases() {
    let place = Place::new();
    for name in [".ENV", "Server.KEY", "ID_RSA", "sub/Secrets.Json"] {
        place.write(format!("p/{name}"), "sentinel\n");
    }
    for mode in MODES {
        let output = place.boxed_in(
            mode,
            &[],
            &["read", ".ENV", "+", "read", "Server.KEY", "+", "read", "ID_RSA", "+", "read", "sub/Secrets.Json"],
        );
        assert_eq!(lines(&output, 4), [hidden(mode); 4], "{mode}: {output}");
    }
}

/// Two grants of the same tree, or a read-only one: the names are hidden under each.
#[test]
fn other_roots() {
    let place = place();
    place.write("ref/.env", "sentinel\n");
    place.write("ref/sub/x.pem", "sentinel\n");
    place.write("ref/visible", "visible\n");
    let (r, sub) = (place.text("ref"), place.text("ref/sub"));
    for mode in MODES {
        let words = format!("read {r}/.env + read {sub}/x.pem + read {r}/visible");
        let words = words.split(' ').collect::<Vec<_>>();
        for policy in
            [&["--ro", r.as_str()][..], &["--ro", &r, "--rw", &sub], &["--rw", &r, "--ro", &sub], &["--scratch", &r]]
        {
            let output = place.boxed_in(mode, policy, &words);
            let answers = lines(&output, 3);
            if policy[0] == "--scratch" {
                assert_eq!(answers[2], "=visible", "{mode} {policy:?}: {output}"); // hides nothing, by its definition
                continue;
            }
            for answer in &answers[..2] {
                assert!(["EACCES", "ENOENT"].contains(answer), "{mode} {policy:?}: {output}");
            }
            assert_eq!(answers[2], "=visible", "{mode} {policy:?}: {output}");
        }
    }
    place.bare(&["read", &format!("{r}/.env")]).ok().out_is("=sentinel");
}

/// A listing shows no hidden name in an overlay, and the visible ones in both modes.
#[test]
fn listings() {
    let place = place();
    let dry = place.boxed_in("--dry-run", &[], &["list", ".", "+", "list", "sub"]);
    assert_eq!(lines(&dry, 2), ["=.gitignore sub visible", "=deep"], "{dry}");
    let live = place.boxed(&[], &["list", "."]);
    assert!(live.ok().out().contains(".gitignore") && live.out().ends_with("visible"), "{live}");
    place.bare(&["list", "sub"]).ok().out_is("=.env.local deep");
}

/// `.git` holds every version of every secret: hidden unless granted.
#[test]
fn git_history() {
    if !crate::common::has("git") {
        return crate::common::skip("no git");
    }
    let place = place();
    place.sh("git init -q && git add -f .env && git -c user.name=t -c user.email=t@t commit -qm t").ok();
    for mode in MODES {
        let output = place.run(
            &[mode],
            &["sh", "-c", "git show HEAD:.env; cat .git/HEAD; find . -name '*.pack' -o -path '*objects*'"],
        );
        assert!(!output.stdout.contains("sentinel") && !output.stdout.contains("ref:"), "{mode}: {output}");
        assert!(!output.stdout.contains("objects"), "{mode}: {output}");
    }
    place.sh("git show HEAD:.env").ok().out_is("sentinel");
}

/// Names that run on the host later are readable and frozen: no write, no replacement, no removal.
#[test]
fn frozen_names() {
    let place = place();
    let names = [".github/workflows/ci.yml", "agentbox.toml", ".pre-commit-config.yaml", "chosen"];
    for name in names {
        place.write(format!("p/{name}"), if name == "agentbox.toml" { "description = \"t\"\n" } else { "sentinel\n" });
    }
    let before = place.fingerprint("p");
    for mode in MODES {
        for name in names {
            let words = format!(
                "open-write {name} + truncate {name} + unlink {name} + rename visible {name} + chmod 0o777 {name}"
            );
            let output = place.boxed_in(mode, &["--freeze", "chosen"], &words.split(' ').collect::<Vec<_>>());
            for answer in lines(&output, 5) {
                let refused = ["EROFS", "EACCES", "EBUSY", "EPERM", "EXDEV"];
                assert!(refused.contains(&answer), "{mode} {name}: {output}");
            }
            let read = place.boxed_in(mode, &["--freeze", "chosen"], &["open-read", name]);
            read.ok().out_is("ok");
            assert_eq!(place.fingerprint("p"), before, "{mode} {name}");
        }
    }
    place.boxed(&[], &["open-write", "chosen", "+", "rename", "chosen", "moved"]).ok().out_is("ok\nok");
}

/// What the host runs later and what was not there to be frozen: a live run names it at its end, a dry run beside its
/// diff. What stood there before, what a tool makes in a build directory and what was granted is not told.
#[test]
fn planted_names() {
    let script = "set -e; mkdir -p n/.husky deep/er .vscode .github/workflows; echo t >.envrc; echo t >.vscode/tasks.json; \
        echo t >.github/workflows/new.yml; echo t >n/.husky/pre-commit; echo t >deep/er/Jenkinsfile; echo t >plain; \
        ln -s plain mise.toml; mkdir -p made/.git/hooks; echo t >made/.git/hooks/pre-commit; echo t >.bazelrc; \
        mkdir -p node_modules/x; echo t >node_modules/x/.npmrc; mv sub gone; mkdir -p sub/.circleci; echo t >sub/.circleci/x";
    let planted = [
        ".bazelrc",
        ".envrc",
        ".github/workflows",
        ".vscode",
        "deep/er/Jenkinsfile",
        "made/.git",
        "mise.toml",
        "n/.husky",
        "sub/.circleci",
    ];
    for mode in MODES {
        let place = Place::new();
        place.write("p/.tool-versions", "sentinel\n");
        place.write("p/old/.husky/pre-commit", "sentinel\n");
        place.write("p/sub/x", "sentinel\n");
        if mode == "--live" {
            place.write("p/sub/.circleci/x", "sentinel\n");
        }
        std::thread::sleep(std::time::Duration::from_millis(50)); // older than the launch by the clock of file times
        let (p, report) = (place.text("p"), place.text("out/r.json"));
        let output = place.run(&[mode, "--rw", &p, "--report", &report], &["bash", "-c", script]);
        output.ok();
        for name in ["plain:", "old/", ".tool-versions", "node_modules/x/.npmrc:", "gone/"] {
            let told = output.stderr.lines().any(|line| line.contains("the host obeys") && line.contains(name));
            assert!(!told, "{mode} {name}: {output}");
        }
        for name in planted {
            let line = if mode == "--live" {
                let line = format!("the host obeys it later: {p}/{name}: ");
                assert!(place.read("out/r.json").contains(&format!("{p}/{name}\"")), "{name}: {output}");
                line
            } else {
                let name = if name == "made/.git" { "made/.git/hooks" } else { name };
                format!("# note: {name}: the host obeys this name later: frozen by ")
            };
            output.err_has(&line);
        }
        let few =
            place.run(&[mode, "--rw", &p, "--grant", ".bazelrc:rw"], &["sh", "-c", "echo u >.bazelrc; echo u >plain"]);
        few.ok().err_lacks("the host obeys");
        assert_eq!(place.read("p/old/.husky/pre-commit"), "sentinel\n");
    }
}

/// Around a frozen file the tools that would replace it fail with its name, all others do their work, and `why` has the
/// flag that lets it be written.
#[test]
fn tools_around_frozen_names() {
    if !crate::common::has("git") {
        return crate::common::skip("no git");
    }
    for mode in MODES {
        let place = Place::new();
        place
            .sh("git init -q -b main; git config user.name t; git config user.email t@t; echo one >.tool-versions; echo one >a; \
                git add -A; git commit -qm one; git checkout -q -b two; echo two >.tool-versions; echo two >a; \
                git commit -qam two; git checkout -q main")
            .ok();
        let run = |more: &str, command: &str| {
            place.sh(&format!("$AGENTBOX run {mode} -q --rw $T/p --grant .git:rw {more} -- sh -c '{command}'"))
        };
        let refused = run("", "git checkout -q two; cat .tool-versions");
        refused.out_is("one").err_has("unable to unlink old '.tool-versions'"); // git says so, and goes on
        place.sh("git checkout -q -f main; git reset -q --hard").ok();
        run("", "echo three >a; sed -i s/three/four/ a; git diff --stat; cat a").ok().out_has("four");
        place.sh("git checkout -q -f main").ok();
        let granted = run("--grant .tool-versions:rw", "git checkout -q two; echo $?; cat .tool-versions");
        granted.out_is("0\ntwo");
        let why = place.sh("$AGENTBOX why --rw $T/p --write .tool-versions");
        why.status_is(1).out_has("read-only").out_has(&format!("--grant {}/.tool-versions:rw", place.text("p")));
    }
}
