//! What a granted repository must not let change: everything that git on the host obeys.

use crate::common::{Place, has, skip};

fn place() -> Option<Place> {
    if !has("git") {
        skip("no git");
        return None;
    }
    let t = Place::new();
    t.write("home/.gitconfig", "[user]\nname = N\nemail = n@x\n");
    t.sh("git init -q -b main && echo a > a && git add a && git commit -qm a && git init -q sub && git -C sub commit -q --allow-empty -m s").ok();
    Some(t)
}

/// The tricks, each a shell command that succeeds outside of a box.
const HOOKS: [&str; 9] = [
    "echo x > .git/hooks/pre-commit",
    "echo x > x && mv x .git/hooks/pre-commit",
    "ln a .git/hooks/pre-commit",
    "mv .git/hooks .git/old && mkdir .git/hooks && echo x > .git/hooks/pre-commit",
    "mv .git moved && cp -r moved .git && echo x > .git/hooks/pre-commit",
    "rm -rf .git",
    "echo x > sub/.git/hooks/pre-commit",
    "mv sub/.git sub/moved",
    "chmod 777 .git/hooks",
];
const CONFIGURATION: [&str; 9] = [
    "git config core.pager evil",
    "git config core.hooksPath /tmp/x",
    "echo '[core] fsmonitor = evil' >> .git/config",
    "cp .git/config x && mv x .git/config",
    "rm .git/config",
    "echo '* filter=evil' > .git/info/attributes",
    "mv .git/info .git/old",
    "git -C sub config core.pager evil",
    "truncate -s 0 sub/.git/config",
];

fn closed(t: &Place, tricks: &[&str]) {
    let p = t.text("p");
    // The positive twin: each works on a copy without a box.
    for trick in tricks {
        t.sh(&format!("rm -rf ../copy && cp -a . ../copy && cd ../copy && ({trick})")).ok();
    }
    let before = t.fingerprint("p/.git/hooks") + &t.read("p/.git/config") + &t.read("p/sub/.git/config");
    for mode in ["--live", "--dry-run"] {
        for trick in tricks {
            let out = t.run(&[mode, "--git", "--diff", "none", "--rw", &p], &["sh", "-c", trick]);
            assert_ne!(out.status, 0, "{mode}: {trick}: {out}");
            assert_ne!(out.status, 125, "{mode}: {trick}: {out}");
        }
    }
    let after = t.fingerprint("p/.git/hooks") + &t.read("p/.git/config") + &t.read("p/sub/.git/config");
    assert_eq!(before, after);
    assert!(!t.has("p/.git/info/attributes"));
}

#[test]
fn hooks() {
    let Some(t) = place() else { return };
    closed(&t, &HOOKS);
}

#[test]
fn configuration() {
    let Some(t) = place() else { return };
    closed(&t, &CONFIGURATION);
    // Where they exist.
    t.sh("git config extensions.worktreeConfig true && git config --worktree x.y 1 && echo /nowhere > .git/objects/info/alternates").ok();
    closed(
        &t,
        &[
            "git config --worktree core.pager evil",
            "echo /x >> .git/objects/info/alternates",
            "rm .git/objects/info/alternates",
        ],
    );
}

#[test]
fn redirected_hooks_and_included_files() {
    let Some(t) = place() else { return };
    t.mkdir("p/tools/hooks");
    t.write("p/tools/gitconfig", "[core]\nabbrev = 8\n");
    t.sh("git config core.hooksPath tools/hooks && git config include.path ../tools/gitconfig").ok();
    closed(
        &t,
        &[
            "echo x > tools/hooks/pre-commit",
            "echo '[core] pager = evil' >> tools/gitconfig",
            "mv tools/hooks tools/old",
        ],
    );
    let out = t.live(&["--git"], &["sh", "-c", "echo x > tools/other && git config core.abbrev"]);
    out.ok().out_is("8");
}

#[test]
fn hooks_and_configuration_that_are_links() {
    let Some(t) = place() else { return };
    t.sh("mv .git/hooks ../hooks && ln -s ../../hooks .git/hooks && mv .git/config ../config && ln -s ../../config .git/config").ok();
    let p = t.text("p");
    for mode in ["--live", "--dry-run"] {
        for trick in [
            "rm .git/hooks",
            "mv .git/hooks x",
            "rm .git/config",
            "cp .git/HEAD x; mv x .git/config",
            "mkdir x && mv -T x .git/hooks",
            "mv .git x",
        ] {
            let out = t.run(&[mode, "--git", "--diff", "none", "--rw", &p], &["sh", "-c", trick]);
            assert!(out.status != 0 && out.status != 125, "{mode}: {trick}: {out}");
        }
    }
    assert!(t.path("p/.git/hooks").is_symlink() && t.path("p/.git/config").is_symlink());
    t.sh("rm .git/hooks .git/config").ok();
}

#[test]
fn pointers_that_are_planted() {
    let Some(t) = place() else { return };
    t.sh("git config extensions.worktreeConfig true").ok();
    let plant = "mkdir -p evil && cp -r .git/config evil && echo ../evil > .git/commondir
        echo '[core] pager = evil' > .git/config.worktree; echo /x > .git/objects/info/alternates";
    let out = t.live(&["--git"], &["sh", "-c", plant]);
    out.ok();
    for name in ["commondir", "config.worktree", "objects/info/alternates"] {
        out.err_has(&format!("{name}: git would obey it: moved aside"));
        assert!(!t.has(format!("p/.git/{name}")), "{name}");
        assert!(t.has(format!("p/.git/{name}.made-in-a-box")), "{name}");
    }
    t.sh("git config core.pager; git fsck && git log --format=%s").ok().out_is("a");
    let out = t.dry(&["--git"], &["sh", "-c", plant]);
    out.ok().err_has(".git/commondir: the host obeys this name later");
}

#[test]
fn a_repository_made_inside_is_named() {
    let Some(t) = place() else { return };
    let make = "git init -q new && echo '#!/bin/sh' > new/.git/hooks/pre-commit && cd new && git commit -q --allow-empty -m x && git log --oneline | wc -l";
    let out = t.live(&["--git"], &["sh", "-c", make]);
    out.ok().out_is("1").err_has("new/.git/hooks").err_has("new/.git/config");
}

#[test]
fn forged_pointers() {
    let Some(t) = place() else { return };
    t.write("home/.ssh/id_rsa", "SECRET");
    t.sh("git init -q -b main ../other && cd ../other && echo s > s && git add s && git commit -qm s && git worktree add -q ../linked").ok();
    let (ssh, other, linked) = (t.text("home/.ssh"), t.text("other/.git"), t.text("other/.git/worktrees/linked"));
    t.mkdir("forged/fake");
    for (pointer, more) in [
        (ssh.clone(), String::new()),
        (other.clone(), String::new()),
        (linked, String::new()),
        ("fake".to_owned(), format!("echo {ssh} > fake/commondir; echo ../.git > fake/gitdir")),
        ("fake".to_owned(), format!("echo {other} > fake/commondir; echo ../.git > fake/gitdir")),
    ] {
        t.sh(&format!("cd ../forged && echo 'gitdir: {pointer}' > .git; {more}")).ok();
        for mode in ["--live", "--dry-run"] {
            let mut command = t.command(crate::common::Bin::agentbox());
            let cat = format!("cat {ssh}/id_rsa {other}/config");
            command.current_dir(t.path("forged")).args(["run", mode, "--git", "--", "sh", "-c", &cat]);
            let out = t.finish(command, b"");
            out.status_is(125).out_is("").err_has("forged/.git points to");
        }
    }
    // The twin: a pointer that is pointed back to.
    let mut command = t.command(crate::common::Bin::agentbox());
    command.current_dir(t.path("linked")).args(["run", "--live", "--git", "--", "git", "log", "--format=%s"]);
    t.finish(command, b"").ok().out_is("s");
}
