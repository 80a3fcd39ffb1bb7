//! Live backups: whatever a live run changed can be taken back by its journal alone.

use crate::backup_replay::{Replay, picture};
use crate::common::{Output, Place, is_root};
use agentbox::session::backup::{Journal, What};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn place() -> Place {
    let place = Place::new();
    let state = place.text("state");
    shown(place.env("XDG_STATE_HOME", state))
}

/// `$AB` with the probe inside.
fn shown(place: Place) -> Place {
    let agentbox = crate::common::Bin::agentbox();
    let run = format!("{} run --live --ro {} --env T --env PROBE", agentbox.display(), place.text("bin"));
    place.env("AB", run)
}

fn sessions(place: &Place) -> Vec<PathBuf> {
    sessions_in(&place.path("state"))
}

fn sessions_in(state: &Path) -> Vec<PathBuf> {
    let Ok(list) = std::fs::read_dir(state.join("agentbox/sessions")) else { return Vec::new() };
    let visible = |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    list.map(|entry| entry.unwrap().path()).filter(visible).collect()
}

#[track_caller]
fn journal(place: &Place) -> Journal {
    let sessions = sessions(place);
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    Journal::read(&sessions[0]).unwrap().expect("a journal")
}

/// The script runs live; then its journal takes it back, and nothing differs from before.
#[track_caller]
fn undone(place: &Place, script: &str) -> Output {
    let before = picture(&place.path("p"));
    let output = place.sh(script);
    let after = picture(&place.path("p"));
    assert_ne!(before, after, "the run changed something: {output}");
    Replay::back(&journal(place));
    assert_eq!(picture(&place.path("p")), before, "{output}");
    output
}

/// A tree with something of each kind, and a random program over it, always the same for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        // Knuth's MMIX constants.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn name(&mut self) -> String {
        let dirs = ["", "d1/", "d2/", "d1/sub/", "new/"];
        format!("{}{}", dirs[self.next(dirs.len())], ["a", "b", "c", "d1", "sub", "new", "l"][self.next(7)])
    }

    fn step(&mut self) -> String {
        let (a, b) = (self.name(), self.name());
        match self.next(18) {
            0 | 1 => format!("write {a} text{}", self.next(1000)),
            2 => format!("append {a} more{}", self.next(1000)),
            3 => format!("create {a}"),
            4 => format!("truncate {a}"),
            5 | 6 => format!("rename {a} {b}"),
            7 => format!("exchange {a} {b}"),
            8 | 9 => format!("unlink {a}"),
            10 => format!("rmdir {a}"),
            11 => format!("mkdir {a}"),
            12 => format!("link {a} {b}"),
            13 => format!("symlink {b} {a}"),
            14 => format!("chmod {} {a}", [0o700, 0o755, 0o711, 0o740][self.next(4)]),
            15 => format!("utime {a}"),
            // No FIFO: the next write to it would wait for a reader.
            _ => format!("setxattr {a}"),
        }
    }
}

fn plant(place: &Place) {
    for file in ["p/a", "p/b", "p/d1/a", "p/d1/c", "p/d1/sub/b", "p/d2/a", "p/d2/b"] {
        place.write(file, format!("old {file}\n"));
    }
    place.symlink("d1/a", "p/l");
    place.symlink("nowhere", "p/d2/l");
    std::fs::hard_link(place.path("p/a"), place.path("p/d2/c")).unwrap();
    std::fs::set_permissions(place.path("p/b"), std::fs::Permissions::from_mode(0o640)).unwrap();
    rustix::fs::setxattr(place.path("p/d1/a"), "user.probe", b"before", rustix::fs::XattrFlags::empty()).unwrap();
}

fn random_program(seed: u64, place: &Place) {
    plant(place);
    let mut random = Random(seed);
    let steps: Vec<String> = (0..120).map(|_| random.step()).collect();
    undone(place, &format!("$AB -- $PROBE {}", steps.join(" + ")));
}

fn seeds() -> u64 {
    if crate::common::full() { 200 } else { 8 }
}

/// Names are linked into the store where it is on the same file system.
#[test]
fn a_random_program_is_undone_byte_for_byte() {
    for seed in 1..=seeds() {
        random_program(seed, &place());
    }
}

/// And copied where it is not. A second name of a file that stays cannot come back then, so there is none.
#[test]
fn a_random_program_is_undone_from_another_file_system() {
    for seed in 101..=100 + seeds() {
        let state = PathBuf::from(format!("/dev/shm/agentbox-it.{}.{seed}", std::process::id()));
        std::fs::create_dir(&state).unwrap();
        let place = shown(Place::new().env("XDG_STATE_HOME", state.display().to_string()));
        plant(&place);
        std::fs::remove_file(place.path("p/d2/c")).unwrap();
        let mut random = Random(seed);
        let steps: Vec<String> = (0..120).map(|_| random.step()).filter(|step| !step.starts_with("link")).collect();
        let before = picture(&place.path("p"));
        let output = place.sh(&format!("$AB -- $PROBE {}", steps.join(" + ")));
        let found = sessions_in(&state);
        Replay::back(&Journal::read(&found[0]).unwrap().unwrap());
        let after = picture(&place.path("p"));
        std::fs::remove_dir_all(&state).unwrap();
        assert_eq!(after, before, "{seed}: {steps:?} {output}");
    }
}

#[test]
fn a_run_that_changes_nothing_leaves_nothing() {
    let place = place();
    place.write("p/a", "a");
    place.sh("$AB -- sh -c 'cat a; ls; test -w a'").ok().err_lacks("kept");
    assert!(!place.has("state"), "not even the state directory");
    // What it made and removed again, or opened for writing and left alone, is no change.
    place.sh("$AB -- sh -c 'echo x >n; mv n m; rm m; : >>a; mkdir d; rmdir d'").ok().err_lacks("kept");
    assert_eq!(sessions(&place), Vec::<PathBuf>::new());
}

#[test]
fn the_session_is_listed_and_a_diff_of_it_is_refused_in_words() {
    let place = place();
    place.write("p/a", "a");
    let ran = place.sh("$AB --report $T/report -- sh -c 'echo b >a; echo c >c'");
    ran.ok().err_has("1 created, 1 modified, 0 deleted; what was there before is kept");
    let listed = place.sh("agentbox sessions");
    listed.ok().out_has("finished").out_has("live").out_has("+1 ~1 -0");
    let id = sessions(&place)[0].file_name().unwrap().to_string_lossy().into_owned();
    assert!(place.read("report").contains(&format!("\"session\":\"{id}\"")), "{}", place.read("report"));
    place.sh(&format!("agentbox diff {id}")).status_is(2).err_has("live run");
    // A live run is never the one that is meant by no name.
    place.sh("agentbox discard").status_is(2);
    place.sh(&format!("agentbox discard {id}")).ok();
    assert_eq!(sessions(&place), Vec::<PathBuf>::new());
}

#[test]
fn the_unusual_ways_are_told_of() {
    let place = place();
    for name in ["fd", "mode", "bare", "static", "link"] {
        place.write(format!("p/{name}"), "old\n");
    }
    place.symlink("link", "p/through");
    place.symlink(place.path("p/link"), "p/absolute");
    let output = undone(
        &place,
        "$AB -- sh -c '$PROBE tmpfile . tmp + reopened fd new + fchmod 600 mode + bare bare; \
         cd /; echo 1 >$T/p/through; echo 2 >>$T/p/absolute; cd $T/p; exec 3<fd; echo 3 >/proc/self/fd/3; echo 4 >/dev/fd/3; \
         python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind(\\\"sock\\\")\"; true'",
    );
    output.ok().out_is("ok\nok\nok\nok");
    let entries = journal(&place).entries;
    let created = |name: &str| {
        let path = place.path(format!("p/{name}"));
        entries.iter().any(|entry| entry.what == What::Created { path: path.clone() })
    };
    assert!(created("tmp") && created("sock"), "{entries:?}");
}

/// A file that only the store holds any more is not to be changed through a descriptor from before.
#[test]
fn what_was_removed_cannot_be_written_behind_the_backup() {
    let place = place();
    place.write("p/a", "precious\n");
    let output = undone(&place, "$AB -- $PROBE write-deleted a spoilt");
    output.ok().out_is("EPERM");
    let twin = place.sh("echo precious >b; $PROBE write-deleted b spoilt");
    twin.ok().out_is("ok");
}

#[test]
fn many_threads_and_processes_lose_nothing() {
    let place = place();
    for thread in 0..8 {
        for n in 0..40 {
            place.write(format!("p/{thread}.{n}"), format!("old {thread} {n}\n"));
            place.write(format!("p/x.{thread}.{n}"), format!("old {thread} {n}\n"));
        }
    }
    let script = "$AB -- sh -c 'for i in 0 1 2 3 4 5 6 7; do (for n in $(seq 0 39); do echo $n >x.$i.$n; done) & done; \
         $PROBE threads . 8 40; wait'";
    undone(&place, script).ok().out_is("ok");
}

/// Programs that are killed while their call waits, or stopped, hold nobody up.
#[test]
fn killed_and_stopped_programs_hold_nobody_up() {
    let place = place().timeout(Duration::from_secs(60));
    (0..50).for_each(|n| drop(place.write(format!("p/{n}"), "old\n")));
    let script = "$AB -- sh -c 'for round in 1 2 3 4 5 6 7 8; do (while :; do for n in $(seq 0 49); do echo $round >$n; \
         done; done) & sleep .1; kill -9 $!; done; (while :; do echo s >7; done) & sleep .1; kill -STOP $!; echo t >8; \
         kill -9 $!; cat 8'";
    undone(&place, script).ok().out_is("t");
}

#[test]
fn odd_names_come_back() {
    let place = place();
    let long = "n".repeat(255);
    place.write(format!("p/{long}"), "old\n");
    place.write("p/line\nfeed \u{1b}[31m", "old\n");
    let bad = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe");
    std::fs::write(place.path("p").join::<&std::ffi::OsStr>(bad), "old\n").unwrap();
    let deep = "d/".repeat(300);
    place.write(format!("p/{deep}f"), "old\n");
    undone(
        &place,
        "$AB -- bash -c 'for f in *; do [ -f \"$f\" ] && echo new >\"$f\"; done; mv $(printf \"\\377\\376\") moved; \
         while cd d 2>/dev/null; do :; done; echo new >f; rm f; echo again >f'",
    );
}

#[test]
fn moves_between_roots_are_undone_in_both() {
    let place = place();
    place.write("p/dir/a", "old a\n");
    place.write("out/b", "old b\n");
    let before = (picture(&place.path("p")), picture(&place.path("out")));
    place.sh("$AB --rw $T/p --rw $T/out -- sh -c 'mv dir ../out/; mv ../out/b .; echo x >>../out/dir/a; ls'").ok();
    assert!(place.has("out/dir/a") && place.has("p/b"));
    Replay::back(&journal(&place));
    assert_eq!((picture(&place.path("p")), picture(&place.path("out"))), before);
}

/// A hidden name is covered by an empty file; that cover must never be kept as what was there.
#[test]
fn the_cover_of_a_hidden_name_is_never_a_backup() {
    let place = place();
    place.write("p/.env", "SECRET=1\n");
    place.write("p/a", "a");
    let output = place.sh("$AB -- sh -c 'echo x >.env; rm -f .env; mv .env b; chmod 600 .env; echo b >a'");
    output.ok();
    let env = place.path("p/.env");
    let text = format!("{:?}", journal(&place).entries);
    assert!(!text.contains(&env.display().to_string()), "{text}");
    assert_eq!(place.read("p/.env"), "SECRET=1\n");
}

/// The command must not hold the listener, for it could answer for the supervisor.
#[test]
fn the_command_has_no_descriptor_of_the_service() {
    let place = place();
    let output = place.sh("$AB -- sh -c 'echo x >a; for fd in /proc/$$/fd/*; do readlink $fd; done; grep Seccomp_filters /proc/self/status'");
    output.ok();
    assert!(!output.stdout.contains("seccomp notify"), "{output}");
    assert!(output.stdout.contains("Seccomp_filters:\t2"), "{output}");
}

/// Nothing is written unseen: with its listener the supervisor's death ends the box.
#[test]
fn the_death_of_the_supervisor_stops_the_command() {
    let place = place();
    place.write("p/a", "old\n");
    let script = "$AB -- sh -c 'i=0; while :; do i=$((i+1)); echo $i >n.$i; done' & \
         for _ in $(seq 200); do [ -e n.5 ] && break; sleep .05; done; kill -9 $!; wait $!; sleep .3; ls | sort >$T/one; \
         sleep .5; ls | sort >$T/two; cmp $T/one $T/two && agentbox sessions";
    let output = place.sh(script);
    output.ok().out_has("interrupted").out_has("live");
    let journal = journal(&place);
    for name in std::fs::read_dir(place.path("p")).unwrap().map(|entry| entry.unwrap().path()) {
        let told = |what: &What| matches!(what, What::Created { path } if *path == name);
        let known = name.ends_with("a") || journal.entries.iter().any(|entry| told(&entry.what));
        assert!(known, "{} was made and not told of", name.display());
    }
}

#[test]
fn limits_are_said_at_the_time_and_in_the_report() {
    let place = place();
    place.write("p/large", "x".repeat(5000));
    place.write("p/small", "small\n");
    place.write("p/node_modules/m/index.js", "old\n");
    let output = place.sh(
        "$AB --limit backup_file=4K --report $T/report -- sh -c 'echo y >large; echo y >small; echo y >node_modules/m/index.js'",
    );
    output.ok().err_has("not backed up:").err_has("/p/large: it is larger than backup_file=4096");
    output.err_has("1 change in directories of no_backup");
    let report = place.read("report");
    assert!(report.contains("\"left_out\":1") && report.contains("backup_file=4096"), "{report}");
    let entries = journal(&place).entries;
    let lost = |what: &What| matches!(what, What::Lost { path, .. } if path.ends_with("large"));
    assert!(entries.iter().any(|entry| lost(&entry.what)), "{entries:?}");
    // A file that is removed is kept by its second name, whatever its size.
    std::fs::remove_dir_all(place.path("state")).unwrap();
    undone(&place, "$AB --limit backup_file=4K -- rm large").ok();
}

#[test]
fn backups_can_be_given_up_and_are_off_without_a_place() {
    let place = place();
    place.write("p/a", "old\n");
    let output = place.sh("$AB --degraded backup -- sh -c 'echo x >a; grep Seccomp_filters /proc/self/status'");
    output.ok().err_has("ran without: backup").out_is("Seccomp_filters:\t1");
    assert!(!place.has("state"));
    let output = place.sh("XDG_STATE_HOME=/proc/none $AB -- sh -c 'echo y >a'");
    output.ok().err_has("nothing is backed up").err_has("/proc/none");
    assert_eq!(place.read("p/a"), "y\n");
}

/// The inner box goes without a listener, and says so, live around it or not; the outer one keeps what is changed there.
#[test]
fn a_nested_box_leaves_it_to_the_outer_one() {
    let place = place();
    place.write("p/a", "old\n");
    let agentbox = crate::common::Bin::agentbox().display().to_string();
    let script = format!(
        "$AB --nested --ro {agentbox} -- sh -c 'XDG_STATE_HOME=/tmp/s {agentbox} run --live -- sh -c \"echo x >a\"'"
    );
    let output = undone(&place, &script);
    output.ok().err_has("nothing is backed up here: the box around this one");
}

#[test]
fn the_landlock_tier_keeps_backups_too() {
    let place = place();
    plant(&place);
    let output = undone(&place, "$AB --degraded mounts -- sh -c 'echo x >a; rm -r d1; mv d2 d3; echo y >d3/b'");
    output.ok();
}

#[test]
fn git_and_cp_and_tar_are_undone() {
    let place = place();
    let setup = "git init -q .; git config user.email a@b; git config user.name n; for i in $(seq 60); do echo $i >f$i; done; \
         git add .; git commit -qm one; git checkout -qb two; seq 100 >f1; git rm -q f2; git commit -qam two; git checkout -q -";
    place.sh(setup).ok();
    undone(&place, "$AB --grant .git:rw -- sh -c 'git checkout -q two && git gc -q && tar cf t.tar f* && rm f3 && tar xf t.tar && cp -a f4 f5'")
        .ok();
    if is_root() {
        place.sh("git -c safe.directory='*' fsck").ok();
    }
}
