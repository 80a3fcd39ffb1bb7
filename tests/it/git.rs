//! The grant of git: what works inside, what stays shut, and what the host's repository is like afterwards.

use super::common::{Output, Place, has, skip};

/// Files are written a second before the index, so that git trusts their size and time; without that it wants to read
/// what is hidden.
const OLD: &str = "touch -d '2020-01-01' \"$@\"";

/// A repository in `T/p` with a secret and a plain file, committed.
fn place() -> Option<Place> {
    if !has("git") {
        skip("no git");
        return None;
    }
    let t = Place::new();
    t.write("home/.gitconfig", "[user]\nname = Nora\nemail = n@example.org\n");
    t.write("p/.env", "SECRET-4711\n");
    t.write("p/.aws/key", "SECRET-4712\n");
    t.write("p/a", "one\n");
    t.sh(&format!("set -- .env .aws/key a; {OLD}; git init -q -b main && git add -A && git commit -qm one")).ok();
    Some(t)
}

fn in_both(t: &Place, policy: &[&str], script: &str, check: impl Fn(&str, &Output)) {
    for mode in ["--dry-run", "--live"] {
        let p = t.text("p");
        let policy = [&[mode, "--diff", "none", "--rw", &p], policy].concat();
        check(mode, &t.run(&policy, &["sh", "-c", script]));
    }
}

#[test]
fn everyday_work() {
    let Some(t) = place() else { return };
    let script = "set -e; git status --porcelain; git config user.name; echo two > a; git commit -qam two
        git add -A; git status --porcelain; echo three > a; git stash -q; git stash pop -q; git checkout -q a
        git checkout -q -b host.key; echo b > b; git add b; git commit -qm b; git switch -q main; git merge -q host.key
        git checkout -q -b side HEAD~1; echo c > c; git add c; git commit -qm c; git rebase -q main; git branch -qD host.key
        git fetch -q . side; git tag v1; git gc -q; git worktree add -q tree; git -C tree log --oneline | wc -l
        git show --stat --format= HEAD~2 | head -1; git ls-files .env .aws/key";
    in_both(&t, &["--git"], script, |mode, out| {
        out.ok().out_is("Nora\n4\n a | 2 +-\n.aws/key\n.env");
        // Only what is said of pointers that a new working tree brings.
        out.err_has(".aws/key and 1 more").err_has("git show");
        assert!(!out.stderr.contains("deleted:"), "{mode}: {out}");
    });
    // The host's repository after the live run: everything is there, and nothing was committed away.
    t.sh("git fsck --strict --no-dangling && git show main:.env && git show side:.aws/key && git status --porcelain -uno && git log --oneline side | wc -l")
        .ok()
        .out_is("SECRET-4711\nSECRET-4712\n4");
    assert_eq!(t.read("p/.env"), "SECRET-4711\n");
}

#[test]
fn without_the_grant_there_is_no_repository_and_the_flag_is_named() {
    let Some(t) = place() else { return };
    for mode in ["--dry-run", "--live"] {
        let out = t.run(&[mode, "--rw", &t.text("p")], &["git", "log"]);
        out.status_is(128).err_has(".git is hidden inside (grant: --git)");
    }
    t.sh("git log --oneline | wc -l; git fsck").ok().out_is("1");
}

#[test]
fn a_dry_run_that_only_looks_changes_nothing() {
    let Some(t) = place() else { return };
    let before = t.fingerprint("p");
    let out = t.dry(&["--git", "--rw", &t.text("p")], &["git", "log", "--format=%s"]);
    out.ok().out_is("one").err_has("dry run: nothing changed");
    assert_eq!(t.fingerprint("p"), before);
}

#[test]
fn read_only() {
    let Some(t) = place() else { return };
    let before = t.fingerprint("p");
    let script = "git status --porcelain && git log --format=%s && git diff --stat; echo $GIT_OPTIONAL_LOCKS
        git commit -q --allow-empty -m x 2>/dev/null; echo $?; rm -rf .git 2>/dev/null; git fsck 2>&1 | head -1";
    in_both(&t, &["--git=ro"], script, |_, out| {
        out.ok().out_is("one\n0\n128");
    });
    assert_eq!(t.fingerprint("p"), before);
    // A read-only root, with a file that git would like to look at again.
    t.sh("mkdir ../kept && cd ../kept && git init -q && echo a > a && git add a && touch -d tomorrow a").ok();
    let before = t.fingerprint("kept");
    let (p, reference) = (t.text("p"), t.text("kept"));
    let out = t.live(&["--git", "--rw", &p, "--ro", &reference], &["git", "-C", &reference, "status", "--porcelain"]);
    out.ok().out_is("A  a");
    assert_eq!(t.fingerprint("kept"), before);
}

#[test]
fn a_key_of_a_profile_and_a_repository_that_narrows_it() {
    let Some(t) = place() else { return };
    let profile = t.write("home/g.toml", "extends = [\"default\"]\n[filesystem]\ngit = \"rw\"\n");
    let profile = profile.to_str().unwrap();
    let commit = ["git", "commit", "-q", "--allow-empty", "-m", "x"];
    t.dry(&["-p", profile], &commit).ok();
    t.dry(&["-p", profile, "--git=ro"], &commit).status_is(128);
    t.dry(&["--git", "--hide", ".git"], &commit).status_is(128);
    t.write("p/agentbox.toml", "[filesystem]\ngit = \"ro\"\n");
    t.dry(&["-p", profile], &commit).status_is(128);
    t.dry(&["-p", profile], &["git", "log", "--format=%s"]).ok().out_is("one");
    t.write("p/agentbox.toml", "[filesystem]\ngit = \"rw\"\n");
    t.dry(&[], &commit).status_is(128).err_has("filesystem.git");
    t.dry(&["--git=x"], &commit).status_is(125).err_has("--git");
}

#[test]
fn a_linked_working_tree_without_its_main_checkout() {
    let Some(t) = place() else { return };
    for (name, flag) in [("wt", "--no-relative-paths"), ("rel", "--relative-paths")] {
        // Before git 2.48 a pointer becomes relative by hand.
        t.sh(&format!("git worktree add -q {flag} ../{name} 2>/dev/null || git worktree add -q ../{name}")).ok();
    }
    t.sh(
        "echo 'gitdir: ../p/.git/worktrees/rel' > ../rel/.git; echo '../../../../rel/.git' > .git/worktrees/rel/gitdir",
    )
    .ok();
    let secret = t.text("p/a");
    // What was checked out in the second of the index is read again by git, which here it can do once.
    t.sh("sleep 1.1; for tree in wt rel; do git -C ../$tree status --porcelain; done").ok().out_is("");
    for (name, other) in [("wt", "rel"), ("rel", "wt")] {
        let root = t.text(name);
        let script = format!(
            "git status --porcelain; echo z > z && git add z && git commit -qm z && git log --oneline | wc -l
             cat {secret} 2>/dev/null; echo x >> {secret} 2>/dev/null; git worktree prune; ls $(git rev-parse --git-common-dir)/worktrees/{other}/HEAD | wc -l
             echo x > $(git rev-parse --git-common-dir)/hooks/post-commit || true"
        );
        for mode in ["--dry-run", "--live"] {
            let mut command = t.command(super::common::Bin::agentbox());
            command
                .current_dir(&root)
                .args(["run", mode, "--git", "--diff", "none", "--rw", &root, "--", "sh", "-c", &script]);
            t.finish(command, b"").ok().out_is("2\n1").err_has("hooks/post-commit");
        }
    }
    assert_eq!(t.read("p/a"), "one\n");
    t.sh("git log --oneline wt | wc -l; git log --oneline rel | wc -l; git worktree list | wc -l; git fsck; ls .git/hooks | grep -v sample")
        .out_is("2\n2\n3");
}

#[test]
fn a_submodule_and_an_update_from_a_source_beside_it() {
    let Some(t) = place() else { return };
    t.sh("git init -q -b main ../lib && cd ../lib && echo l > l && git add l && git commit -qm l").ok();
    t.sh("git -c protocol.file.allow=always submodule add -q ../lib lib && git commit -qm sub && git submodule deinit -f lib \
          && git submodule init").ok();
    let (p, lib) = (t.text("p"), t.text("lib"));
    let update = "git -c protocol.file.allow=always submodule update && cat lib/l";
    t.live(&["--git", "--rw", &p, "--ro", &lib], &["sh", "-c", update]).ok().out_has("l");
    let script = "cd lib && git commit -q --allow-empty -m in && git log --format=%s -1
        echo x >> $(git rev-parse --git-dir)/config || echo closed; echo 'gitdir: /tmp/x' > .git || echo closed
        mv .git x || echo closed";
    t.live(&["--git", "--rw", &p], &["sh", "-c", script]).ok().out_is("in\nclosed\nclosed\nclosed");
    t.sh("git submodule deinit -f lib && git -c protocol.file.allow=always submodule update --init").ok();
    // As the root of a run of its own: its repository lies in the other's.
    let root = t.text("p/lib");
    let mut command = t.command(super::common::Bin::agentbox());
    let script = "git log --format=%s -1 && git commit -q --allow-empty -m more && cat ../a; echo x >> $(git rev-parse --git-dir)/config";
    command.current_dir(&root).args(["run", "--live", "--git", "--rw", &root, "--", "sh", "-c", script]);
    let out = t.finish(command, b"");
    out.status_is(2).out_has("l").err_has("Read-only file system");
    assert!(!out.stdout.contains("one"), "{out}");
}

#[test]
fn a_part_of_a_repository_as_the_root() {
    let Some(t) = place() else { return };
    t.write("p/apps/x/f", "1\n");
    t.sh("git add -A && git commit -qm f && echo 2 > apps/x/f").ok();
    let (root, top) = (t.text("p/apps/x"), t.text("p"));
    let script = "git rev-parse --show-toplevel; git status --porcelain; git add -A && git commit -qm m && echo ok; ls -A; git show --stat --format= HEAD; cat ../../a";
    let run = |mode, more: &[&str]| {
        let mut command = t.command(super::common::Bin::agentbox());
        command.current_dir(&root).args(["run", mode, "--git", "--diff", "none", "--rw", &root]).args(more);
        command.args(["--", "sh", "-c", script]);
        t.finish(command, b"")
    };
    let out = run("--dry-run", &[]);
    out.status_is(1).out_has(&format!("{top}\n M apps/x/f\nok\nf\n apps/x/f | 2 +-\n 1 file changed"));
    // A live index cannot be marked: what is not there would be committed as deleted.
    run("--live", &[]).status_is(125).err_has(&format!("--ro {top}"));
    run("--live", &["--ro", &top]).ok().out_has("ok\nf\n").out_has("one");
    assert_eq!(t.sh("git show HEAD:a HEAD:.env").ok().out(), "one\nSECRET-4711");
}

#[test]
fn who_commits_and_nothing_else_of_the_hosts_configuration() {
    let Some(t) = place() else { return };
    t.sh("rm ../home/.gitconfig").ok();
    let work = format!("[includeIf \"gitdir:{}/\"]\npath = ~/dot/work\n", t.text("p"));
    t.write("home/dot/config", format!("[include]\npath = ~/dot/more\n{work}[credential]\nhelper = tok3n\n"));
    t.write(
        "home/dot/more",
        "[user]\nname = \"N \\\"Q\\\" # x\" ; c\nemail = wrong@x\n[url \"https://tok3n@host/\"]\ninsteadOf = h:\n",
    );
    t.write(
        "home/dot/work",
        "[user]\nemail = work@x\nsigningkey = tok3n\n[alias]\nx = !echo tok3n\n[core]\nhooksPath = myhooks\n",
    );
    t.symlink("dot/config", "home/.gitconfig");
    // git itself is the judge of what the files say.
    let (name, email) = (t.sh("git config user.name").out().to_owned(), t.sh("git config user.email").out().to_owned());
    t.mkdir("p/myhooks");
    let script = "git config user.name; git config user.email; git config --list | grep -c tok3n; cat ~/.gitconfig | grep -c tok3n
        echo x > myhooks/pre-commit; git commit -q --allow-empty -m x && git log -1 --format=%an";
    in_both(&t, &["--git"], script, |_, out| {
        out.ok().out_is(&format!("{name}\n{email}\n0\n0\n{name}"));
        out.err_has("myhooks/pre-commit");
    });
    assert!(!t.has("p/myhooks/pre-commit"));
    // What a repository says of itself goes before.
    t.sh("git config user.email own@x").ok();
    t.live(&["--git"], &["git", "config", "user.email"]).ok().out_is("own@x");
}

#[test]
fn nothing_hostile_holds_the_launch_up() {
    let Some(t) = place() else { return };
    let fast = t.timeout(std::time::Duration::from_secs(20));
    let run = |mode| fast.run(&[mode, "--git"], &["true"]);
    for (script, status) in [
        ("rm ../home/.gitconfig; mkfifo ../home/.gitconfig", 0),
        ("rm ../home/.gitconfig; ln -s /dev/zero ../home/.gitconfig", 0),
        (
            "rm ../home/.gitconfig; printf '[include]\\npath=.gitconfig\\n[include]\\npath=.gitconfig\\n' > ../home/.gitconfig",
            0,
        ),
        ("mv .git/config ../c; mkfifo .git/config", 0),
        ("rm .git/config; ln -s /dev/zero .git/config", 0),
        ("rm .git/config; cp ../c .git/config; mv .git/index ../i; mkfifo .git/index", 0),
        ("rm .git/index; truncate -s 100 .git/index", 0),
        ("truncate -s 300G .git/index", 0),
        ("printf 'DIRC\\0\\0\\0\\2\\377\\377\\377\\377aaaaaaaaaaaaaaaaaaaaaaaa' > .git/index", 0),
        ("mv .git ../g; mkfifo .git", 125),
        ("rm .git; ln -s ../g .git", 125),
        ("rm .git; ln -s /dev/zero .git", 125),
        ("rm .git; truncate -s 5G .git", 125),
        ("rm .git; echo gitdir: .git > .git", 125),
        ("rm .git; mkdir x; echo gitdir: x > .git; echo . > x/commondir", 125),
    ] {
        fast.sh(script).ok();
        for mode in ["--live", "--dry-run"] {
            let out = run(mode);
            assert_eq!((out.status, out.timed_out), (status, false), "{script}: {out}");
        }
    }
}
