//! Where launchers of this kind went wrong, other than by letting something out: starting, ending, odd trees.

use crate::common::{Leftovers, Place, is_root, skip};
use std::time::{Duration, Instant};

const MODES: [&str; 2] = ["--live", "--dry-run"];

/// A run leaves no mount, no process and no file, whether it ends well, badly, or by a signal.
#[test]
fn nothing_is_left() {
    let place = Place::new();
    let before = Leftovers::before();
    for mode in MODES {
        for (script, status) in
            [("true", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("sleep 60 & sleep 60 & exit 0", 0)]
        {
            let started = Instant::now();
            place.run(&[mode, "-q"], &["sh", "-c", script]).status_is(status);
            assert!(started.elapsed() < Duration::from_secs(20), "{mode} {script} does not wait for orphans");
            before.none(&place);
        }
        place.run(&[mode], &["/no/such/program"]).status_is(127);
        place.run(&[mode], &["/etc/passwd"]).status_is(126);
        place.run(&[mode, "--no-such-flag"], &["true"]).status_is(125);
        before.none(&place);
    }
}

/// The scan for hidden names and the diff read the user's tree, and leave no trace of it: not even an access time.
#[test]
fn access_times_stay() {
    let place = Place::new();
    place.sh("mkdir -p d/e; echo a >d/f; touch -a -d '3 days ago' d/f d/e d . ../ref; mkdir ../ref/s; touch -a -d '3 days ago' ../ref ../ref/s").ok();
    let times = || place.sh("stat -c '%n %x' . d d/e d/f ../ref ../ref/s").ok().stdout.clone();
    let before = times();
    let reference = place.text("ref");
    place.run(&["--dry-run", "--rw", ".", "--ro", &reference], &["sh", "-c", "echo b >d/f"]).ok();
    assert_eq!(times(), before, "after a dry run that changed a file");
    place.run(&["--live", "--rw", ".", "--ro", &reference], &["true"]).ok();
    assert_eq!(times(), before, "after a live run that did nothing");
    place.sh("ls d >/dev/null; cat d/f >/dev/null").ok();
    assert_ne!(times(), before, "access times are kept on this file system, or the rest shows nothing");
}

/// The check for leftovers sees a process, or it would pass whatever happens.
#[test]
fn the_check_for_leftovers_can_fail() {
    let place = Place::new();
    let before = Leftovers::before();
    let mut sleeper = place.command("sleep").arg("30").spawn().unwrap();
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| before.none(&place))).is_err();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(seen);
    before.none(&place);
}

/// SIGKILL of the launcher ends everything within a moment: nobody is left to clean up, so the kernel must.
#[test]
fn a_killed_launcher_takes_all_along() {
    let place = Place::new();
    let before = Leftovers::before();
    for mode in MODES {
        let script = "for i in 1 2 3; do setsid sleep 120 & done; echo up; exec sleep 120";
        let killed = place.sh(&format!(
            "$AGENTBOX run {mode} -q -- sh -c '{script}' >$T/out/log & for i in {{1..500}}; do test -s $T/out/log && break; sleep .01; done
            cat $T/out/log; kill -9 $!; wait $!; echo $?"
        ));
        killed.ok().out_is("up\n137");
        before.none(&place);
        place.sh("rm $T/out/log").ok();
    }
}

/// Thousands of secrets: one mask each must neither hit a limit nor take long.
#[test]
fn many_secrets() {
    let place = Place::new();
    place.sh("mkdir -p d{0..1499}; for d in d*; do echo sentinel >$d/.env; done").ok();
    for mode in MODES {
        let started = Instant::now();
        let output = place
            .run(&[mode, "-q"], &["sh", "-c", "cat d0/.env d700/.env d1499/.env 2>/dev/null; find . -type d | wc -l"]);
        output.ok().out_is("1501");
        assert!(started.elapsed() < Duration::from_secs(20), "{mode}: {:?}", started.elapsed());
    }
    place.sh("cat d*/.env | wc -l").ok().out_is("1500");
}

/// Characters that mean something to mount options, to patterns, to mountinfo or to a shell.
#[test]
fn odd_characters_in_paths() {
    for name in
        ["a:b", "a,b", "a\\b", "a b", "a\nb", "a'b\"c", "[x]*?", "$HOME", "-rf", "ä€", "a=b,upperdir=c", "{x,y}"]
    {
        let place = Place::new();
        let root = place.mkdir(format!("out/{name}")).into_os_string().into_string().unwrap();
        place.write(format!("out/{name}/.env"), "sentinel\n");
        place.write(format!("out/{name}/file"), "visible\n");
        place.write(format!("ref/{name}/file"), "visible\n");
        let tree = place.text(format!("ref/{name}"));
        for mode in MODES {
            let policy = [mode, "-q", "--rw", &root, "--ro", &tree, "--chdir", &root];
            let script = "cat file \"$0/file\"; cat .env 2>/dev/null; echo changed >file; echo x >\"$0/new\" 2>/dev/null; cat file";
            let output = place.run(&policy, &["sh", "-c", script, &tree]);
            output.ok().out_is("visible\nvisible\nchanged");
            let expected = if mode == "--live" { "changed\n" } else { "visible\n" };
            assert_eq!(place.read(format!("out/{name}/file")), expected, "{mode} {name:?}");
            assert!(!place.has(format!("ref/{name}/new")), "{mode} {name:?}");
            place.write(format!("out/{name}/file"), "visible\n");
        }
    }
}

/// Names that are not UTF-8 go through as bytes.
#[test]
fn names_that_are_no_text() {
    let place = Place::new();
    place.sh("mkdir $'b\\xff'; echo visible >$'b\\xff/f\\xfe'; echo sentinel >$'b\\xff/.env'").ok();
    for mode in MODES {
        let output = place.sh(&format!(
            "cd $'b\\xff' && $AGENTBOX run {mode} -q -- sh -c 'cat f*; cat .env 2>/dev/null; echo x >\"$0\"; ls | wc -l' $'n\\xfd'"
        ));
        assert_eq!(output.stdout.lines().next(), Some("visible"), "{mode}: {output}");
        assert!(!output.stdout.contains("sentinel"), "{mode}: {output}");
        output.ok();
        place.sh("rm -f $'b\\xff/n\\xfd'").ok();
    }
}

/// A working directory that is reached by a link: the box starts in the same place, and its name works.
#[test]
fn working_directory_through_a_link() {
    let place = Place::new();
    place.write("p/sub/file", "visible\n");
    place.symlink(place.path("p/sub"), "link");
    for mode in MODES {
        let output = place
            .sh(&format!("cd $T/link && $AGENTBOX run {mode} -q -- sh -c 'cat file; pwd -P; cd .; cat \"$PWD/file\"'"));
        output.ok().out_is(&format!("visible\n{}\nvisible", place.text("p/sub")));
    }
}

/// What the launcher does with signals for itself is not handed on: the command meets what it would meet without it.
#[test]
fn signal_state_is_clean() {
    let place = Place::new();
    let bare = place.sh("grep -E '^Sig(Blk|Ign)' /proc/self/status");
    let ignored = place.sh("trap '' HUP; grep -E '^Sig(Blk|Ign)' /proc/self/status");
    assert_ne!(bare.ok().stdout, ignored.ok().stdout);
    for mode in MODES {
        let grep = format!("$AGENTBOX run {mode} -q -- grep -E '^Sig(Blk|Ign)' /proc/self/status");
        place.sh(&grep).ok().out_is(bare.out());
        place.sh(&format!("trap '' HUP; {grep}")).ok().out_is(ignored.out()); // as nohup does it
        let output = place.run(&[mode, "-q"], &["sh", "-c", "yes | head -1"]);
        output.ok().out_is("y").err_lacks("roken");
    }
}

/// Orphans become pid 1's children, and it reaps them.
#[test]
fn zombies_are_reaped() {
    let place = Place::new();
    for mode in MODES {
        let script = "for i in 1 2 3 4 5; do sh -c 'sleep .05 & exit'; done; sleep .4; \
            cat /proc/[0-9]*/status | grep -c '^State:.*Z'; ls -d /proc/[0-9]* | wc -l";
        let output = place.run(&[mode, "-q"], &["sh", "-c", script]);
        let lines = output.ok().stdout.lines().collect::<Vec<_>>();
        assert_eq!(lines[0], "0", "{mode}: {output}");
        assert!(lines[1].parse::<u32>().unwrap() <= 5, "{mode}: {output}");
    }
}

/// Where parts of /proc are covered, as in a container, the kernel refuses a new one in a user namespace. Then it is
/// that or nothing: never a run that shows the host's.
#[test]
fn covered_proc() {
    let place = Place::new();
    let mut command = place.command("unshare");
    command.args([if is_root() { "-mpf" } else { "-Urmpf" }, "--mount-proc", "bash", "-c"]);
    command.arg(
        "mount -t tmpfs t /proc/fs || exit 99; sleep 30 & $AB -q -- sh -c 'ls -d /proc/[0-9]* | wc -l; touch ran'; \
        rc=$?; kill %1; exit $rc",
    );
    let output = place.finish(command, b"");
    match output.status {
        99 => skip("cannot cover a part of /proc here"),
        0 => assert!(output.out().parse::<u32>().unwrap() <= 4, "{output}"),
        _ => {
            output.status_is(125).err_has("/proc").err_has("container");
            assert!(!place.has("p/ran"), "{output}");
        }
    }
}

/// Ports by Landlock where the network is the host's: the granted one connects, another is EACCES.
#[test]
fn granted_ports() {
    let place = Place::new();
    let (one, two) =
        (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let (one, two) = (one.local_addr().unwrap(), two.local_addr().unwrap());
    let granted = one.port().to_string();
    let words = ["tcp", &one.to_string(), "+", "tcp", &two.to_string()].map(str::to_owned);
    let words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let output = place.boxed(&["--net", "host", "--tcp-connect", &granted], &words);
    assert!(["ok\nEACCES", "ECONNREFUSED\nEACCES"].contains(&output.ok().out()), "{output}");
}

/// Two boxes on the same project at once, and a hundred in a row, do not disturb each other.
#[test]
fn side_by_side() {
    let place = Place::new();
    place.write("p/.env", "sentinel\n");
    let before = Leftovers::before();
    for mode in MODES {
        let output = place.sh(&format!(
            "for i in {{1..12}}; do $AGENTBOX run {mode} -q --diff none -- sh -c \"cat .env 2>/dev/null; echo $i >f$i; cat f$i\" & done; wait"
        ));
        let mut seen = output.ok().stdout.lines().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>();
        seen.sort_unstable();
        assert_eq!(seen, (1..=12).collect::<Vec<_>>(), "{mode}: {output}");
    }
    before.none(&place);
    assert_eq!(place.read("p/.env"), "sentinel\n");
}
