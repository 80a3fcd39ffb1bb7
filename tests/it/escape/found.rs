//! Ways out that were found by attacking the finished box. Each came through once.

use crate::common::{Place, is_root, skip};

const MODES: [&str; 2] = ["--live", "--dry-run"];

/// A command that may write where agentbox keeps its configuration could plant a profile that the next run obeys.
#[test]
fn planting_the_own_configuration() {
    let place = Place::new();
    place.mkdir("home/.config");
    let config = place.text("home/.config");
    let plant = "mkdir -p agentbox/profiles && echo x >agentbox/profiles/default.toml";
    // Not there yet, so that nothing could be laid over it: refused.
    let refused = place.live(&["--rw", &config, "--chdir", &config], &["sh", "-c", plant]);
    refused.status_is(125).err_has("overlap");
    assert!(!place.has("home/.config/agentbox"));
    // There: hidden, and it and the way to it stay where they are.
    place.mkdir("home/.config/agentbox");
    let boxed = place.live(
        &["--rw", &config, "--chdir", &config],
        &[
            "sh",
            "-c",
            &format!("({plant}) 2>/dev/null || echo kept; mv agentbox away 2>/dev/null || echo stays; echo own >mine"),
        ],
    );
    boxed.ok().out_is("kept\nstays");
    assert!(place.has("home/.config/mine"), "the rest of the root is writable");
    assert!(!place.has("home/.config/agentbox/profiles"));
    // Where it really lies, when it is a link.
    place.sh("mv $HOME/.config/agentbox $T/p/dotfiles; ln -s $T/p/dotfiles $HOME/.config/agentbox").ok();
    let linked = place.live(
        &[],
        &["sh", "-c", "echo x >dotfiles/x 2>/dev/null || echo kept; mv dotfiles d 2>/dev/null || echo stays"],
    );
    linked.ok().out_is("kept\nstays");
    assert!(!place.has("p/dotfiles/x"));
}

/// Secrets are handed to containers as files and directories that are mounted: the name counts, whatever lies there.
#[test]
fn hidden_names_that_are_mounts() {
    if !is_root() {
        // Only root can mount on the host; the root run covers this.
        return;
    }
    let place = Place::new();
    let script = r#"
        touch .env; echo S >../envfile; mkdir secrets plain; mount --bind ../envfile .env; mount -t tmpfs none secrets; echo S >secrets/key
        mount -t tmpfs none plain; echo S >plain/id_rsa; echo seen >plain/file
        cat .env secrets/key plain/id_rsa | tr '\n' ' '
        $AB -q -- sh -c 'cat .env secrets/key plain/id_rsa plain/file; echo W >.env' 2>/dev/null
        $AB -q --ro . --rw $T/out --chdir $T/out -- sh -c 'cd ../p; cat .env secrets/key plain/id_rsa plain/file' 2>/dev/null
        cat ../envfile
        ${AB% --live} -q --ro . --rw $T/out --chdir $T/out -- sh -c 'cd ../p; cat .env secrets/key plain/id_rsa plain/file' 2>/dev/null
        ${AB% --live} -q -- true; echo $?
    "#;
    let output = place.sh(&format!("unshare -m bash -c {}", quoted(script)));
    output.ok().out_is("S S S seen\nseen\nS\nseen\n125");
    output.err_has("mounted in it");
}

fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', r"'\''"))
}

/// What cannot be listed cannot be searched for secrets, and the command could chmod it first.
#[test]
fn directories_that_cannot_be_listed() {
    for mode in MODES {
        let place = Place::new();
        place.sh("mkdir shut entered; echo S >shut/.env; echo S >entered/.env; chmod 000 shut; chmod 111 entered").ok();
        let output = place.run(
            &[mode, "--diff", "none"],
            &["sh", "-c", "cat entered/.env; chmod 700 shut; cat shut/.env; cat .[!.]* 2>/dev/null; echo end"],
        );
        output.ok().out_is("end");
        if !is_root() {
            output.err_has("cannot be searched");
        }
        place.sh("chmod 700 shut entered; cat shut/.env entered/.env").ok().out_is("S\nS");
    }
}

/// A repository may hold a file whose name is a pattern: it does not take the pattern away.
#[test]
fn a_file_with_the_name_of_a_pattern() {
    let place = Place::new();
    place.sh("echo S >db.sqlite; touch '*.sqlite'").ok();
    for mode in MODES {
        let output = place.run(&[mode, "-q", "--hide", "*.sqlite"], &["sh", "-c", "cat db.sqlite || echo hidden"]);
        output.ok().out_is("hidden");
        place.run(&[mode, "-q"], &["cat", "db.sqlite"]).ok().out_is("S");
    }
}

/// A /proc or /sys that is mounted in a project (a tree for chroot) is the host's, and root could set the machine there.
#[test]
fn kernel_file_systems_below_a_root() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let script = r#"
        mkdir -p tree/proc; mount -t proc proc tree/proc; head -c 1 tree/proc/version >/dev/null && echo twin
        $AB -q -- sh -c '(exec 3>>tree/proc/sys/kernel/core_pattern) 2>/dev/null && echo OPEN; ls tree/proc 2>/dev/null'
        $AB -q --rw tree/proc --chdir tree/proc -- true; echo $?
    "#;
    let output = place.sh(&format!("unshare -m bash -c {}", quoted(script)));
    output.ok().out_is("twin\n125");
    output.err_has("file system of the kernel");
}

/// A repository's own file cannot lift a limit by a number that means "no limit" further down.
#[test]
fn a_limit_of_nothing() {
    let place = Place::new();
    place.write("p/agentbox.toml", "[limits]\ntmp = 0\n");
    let output =
        place.live(&["-q", "--limit", "tmp=10M"], &["sh", "-c", "head -c 20M /dev/zero >/tmp/big || echo full"]);
    output.ok().out_is("full");
}

/// A full or closed stderr is no reason to lose the command's status: the command could make it so.
#[test]
fn stderr_that_takes_nothing() {
    let place = Place::new();
    if std::fs::symlink_metadata("/dev/full").is_err() {
        return skip("no /dev/full");
    }
    place.sh("${AB% --live} -- sh -c 'echo x >f; exit 3' 2>/dev/full").status_is(3);
    place.sh("$AB -- no-such-command 2>/dev/full").status_is(127);
    place.sh("$AB -- sh -c 'exit 4' 2>&-").status_is(4);
}

/// The report goes where the user said, not where a link of the repository leads, and waits for no reader.
#[test]
fn a_report_through_a_link() {
    let place = Place::new();
    place.sh("echo precious >../victim; ln -s ../victim report; mkfifo pipe").ok();
    place.live(&["--report", "report"], &["true"]).status_is(125).err_has("--report");
    place.live(&["--report", "pipe"], &["true"]).status_is(125).err_has("--report");
    assert_eq!(place.read("victim"), "precious\n");
    place.live(&["--report", "fresh"], &["true"]).ok();
    assert!(place.read("p/fresh").contains("\"version\":1"));
}
