//! Ways to a hidden file that lead around its path: descriptors, magic links, handles, other processes, memory.

use super::{MODES, lines};
use crate::common::Place;

fn place() -> Place {
    let place = Place::new();
    for secret in ["p/.env", "p/sub/.env.local", "p/sub/deep/server.key", "p/.ssh/config"] {
        place.write(secret, "sentinel\n");
    }
    place.write("p/visible", "visible\n");
    place
}

/// Each way prints the content outside (all but those that only the box's own processes make sense for) and nothing of it
/// inside.
#[test]
fn magic_links_and_descriptors() {
    let place = place();
    let p = place.text("p");
    let ways = [
        "cat /proc/self/cwd/.env",
        "cat /proc/thread-self/cwd/.env",
        "cat /proc/self/task/*/cwd/.env",
        &format!("cat /proc/self/root{p}/.env"),
        &format!("cat /proc/$$/root{p}/sub/.env.local"),
        "sleep 9 & cat /proc/$!/cwd/.env; kill $!",
        "exec 7<.; cat /proc/self/fd/7/.env",
        "exec 7<sub; cat /dev/fd/7/deep/server.key",
        "exec 7<sub; mv sub sub2; cat /proc/self/fd/7/.env.local; mv sub2 sub",
        "cd sub; mv ../sub ../sub3; cat .env.local deep/server.key; mv ../sub3 ../sub",
        "cd sub/deep; cat ../../.env",
        "exec 7<.env; cat <&7",
        "exec 7<>.env; cat <&7",
        "cd .ssh; cat config",
        "cat .ssh/../.env .ssh/config",
        "cp .env copy; cat copy; rm -f copy",
        "cp -l .env copy; cat copy; rm -f copy",
        "cp -a . /dev/shm/all; cat /dev/shm/all/.env; rm -rf /dev/shm/all",
        "tar cf - . | tar xOf - ./.env",
        "dd if=.env status=none; dd if=sub/.env.local iflag=direct,nonblock status=none",
        "bash .env 2>&1 | grep -o sentinel; . ./.env 2>&1 | grep -o sentinel",
        "grep -rh sentinel . .ssh sub/deep",
        "find . -name '.env*' -exec cat {} +",
        "$0 reopen-path .env",
        "$0 at-empty-path .env",
        "$0 map .env",
        "$0 handle-of .env",
    ];
    for mode in MODES {
        for way in ways {
            let way = way.replace("$0", "$PROBE");
            let run = |start: &str| {
                let mut command = place.command("bash");
                command.args(["-c", &format!("{start} bash -c \"$WAY\"")]).env("WAY", &way);
                place.finish(command, b"")
            };
            let output = run(&format!("$AGENTBOX run {mode} -q --env PROBE=$PROBE --rw $T/p --ro $T/bin --"));
            assert!(output.status != 125 && !output.timed_out, "{mode} {way}: {output}");
            assert!(!output.stdout.contains("sentinel"), "{mode} {way}: {output}");
            let bare = run("");
            assert!(bare.stdout.contains("sentinel"), "the twin of {way}: {bare}");
        }
    }
    assert_eq!(place.read("p/.env"), "sentinel\n");
}

/// What the user redirects is the user's own choice: it can be read, and it cannot be opened again for writing.
#[test]
fn a_hidden_file_as_standard_input() {
    let place = place();
    for mode in MODES {
        let run = format!("$AGENTBOX run {mode} -q --rw $T/p --ro $T/bin --");
        place.sh(&format!("{run} cat <.env")).ok().out_is("sentinel");
        place.sh(&format!("{run} $PROBE reopen 0 + open-read /proc/self/fd/0 <.env")).ok().out_is("EACCES\nok");
        let name = place.sh(&format!("{run} sh -c 'cat .env /proc/self/fd/0/../.env; readlink /proc/self/fd/0' <.env"));
        assert!(!name.stdout.contains("sentinel"), "{mode}: {name}");
    }
    place.sh("$PROBE reopen 0 <.env").ok().out_is("ok");
}

/// The launcher's own processes show the command nothing that it does not see itself.
#[test]
fn pid_1_leads_to_no_hidden_file() {
    let place = place();
    let p = place.text("p");
    for mode in MODES {
        let words = format!(
            "read /proc/1/root{p}/.env + enter /proc/1/cwd .env + open-read /proc/1/fd/0 + list /proc/1/map_files + \
             readlink /proc/1/root + open-read /proc/1/fd/5"
        );
        let output = place.boxed_in(mode, &[], &words.split(' ').collect::<Vec<_>>());
        for answer in lines(&output, 6) {
            // Which numbers its descriptors have root may list.
            assert!(["EACCES", "EPERM", "ENOENT"].contains(&answer), "{mode}: {output}");
        }
    }
    let words = format!("read /proc/self/root{p}/.env + enter /proc/self/cwd .env");
    let bare = place.bare(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(lines(&bare, 2), ["=sentinel"; 2], "{bare}");
}
