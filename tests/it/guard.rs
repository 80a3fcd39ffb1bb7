//! The guard: names that the host makes, replaces or moves in while the command runs.
//!
//! Each test that counts has a twin whose guard was killed, so that a guard that does nothing cannot pass.

use crate::common::{Bin, Place};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{OpenOptions, create_dir_all, hard_link, read_to_string, remove_dir_all, remove_file, rename, write};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until something holds.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A box that runs in the background and does what it is told: a shell that reads its commands from a pipe.
struct Run<'a> {
    place: &'a Place,
    child: Child,
    asked: u32,
}

impl<'a> Run<'a> {
    /// A shell in the box, in `T/p`, once it runs.
    #[track_caller]
    fn shell(place: &'a Place, policy: &[&str]) -> Run<'a> {
        let mut command = place.command(Bin::agentbox());
        command.arg("run").args(policy).args(["--report", &place.text("out/report"), "--", "bash", "-s"]);
        let mut run = Run::spawn(place, command);
        run.ask("true");
        run
    }

    fn spawn(place: &'a Place, mut command: Command) -> Run<'a> {
        let to = |name| std::fs::File::create(place.path(name)).expect("a file of the place");
        let child = command.stdin(Stdio::piped()).stdout(to("out/stdout")).stderr(to("out/stderr")).spawn().unwrap();
        Run { place, child, asked: 0 }
    }

    /// What a command prints in the box, on both of its outputs.
    #[track_caller]
    fn ask(&mut self, command: &str) -> String {
        self.asked += 1;
        let (begin, end) = (format!("<{}\n", self.asked), format!("{}>\n", self.asked));
        let text = format!("echo '<{0}'; {{ {command}; }} 2>&1; echo '{0}>'\n", self.asked);
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        let stdout = || self.place.read("out/stdout");
        until(&format!("{command}: {}", self.err()), || stdout().contains(&end));
        let all = stdout();
        let from = all.find(&begin).unwrap() + begin.len();
        all[from..all.find(&end).unwrap()].trim_end().to_owned()
    }

    /// Waits until a name cannot be read inside, and then that it stays so.
    #[track_caller]
    fn hides(&mut self, name: &str) {
        let start = Instant::now();
        let command = format!("cat {name}");
        loop {
            let said = self.ask(&command);
            if closed(&said) {
                break;
            }
            assert!(start.elapsed() < DEADLINE, "{name} stays readable: {said}: {}", self.err());
        }
        for _ in 0..20 {
            let said = self.ask(&command);
            assert!(closed(&said), "{name} is readable again: {said}");
        }
    }

    fn supervisor(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// The guard's process, once there is one.
    fn guard(&self) -> Option<i32> {
        children(self.supervisor()).into_iter().find(|pid| name(*pid) == "agentbox-guard")
    }

    #[track_caller]
    fn await_guard(&self) -> i32 {
        until("the guard has a process of its own", || self.guard().is_some());
        self.guard().unwrap()
    }

    /// Lets the shell end: its status, and what the run said on stderr.
    #[track_caller]
    fn end(mut self) -> (i32, String) {
        drop(self.child.stdin.take());
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < DEADLINE, "the run does not end: {}", self.err());
            std::thread::sleep(Duration::from_millis(2));
        };
        (status.code().unwrap_or(-1), self.err())
    }

    fn err(&self) -> String {
        self.place.read("out/stderr")
    }
}

fn closed(said: &str) -> bool {
    said.contains("No such file") || said.contains("Permission denied")
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn name(pid: i32) -> String {
    read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn children(of: i32) -> Vec<i32> {
    let all = read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Saves as an editor does, in a directory.
type Save = fn(&Path, &str);

fn put(path: &Path, content: &str) {
    write(path, content).unwrap();
}

fn rename_over(dir: &Path, content: &str) {
    put(&dir.join(".env.tmp"), content);
    rename(dir.join(".env.tmp"), dir.join(".env")).unwrap();
}

fn unlink_and_create(dir: &Path, content: &str) {
    remove_file(dir.join(".env")).unwrap();
    put(&dir.join(".env"), content);
}

fn truncate_and_write(dir: &Path, content: &str) {
    let mut file = OpenOptions::new().write(true).truncate(true).open(dir.join(".env")).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

fn backup_and_rename(dir: &Path, content: &str) {
    rename(dir.join(".env"), dir.join(".env~")).unwrap();
    put(&dir.join(".env"), content);
    remove_file(dir.join(".env~")).unwrap();
}

fn hard_link_swap(dir: &Path, content: &str) {
    hard_link(dir.join(".env"), dir.join(".env.bak")).unwrap();
    put(&dir.join(".env.new"), content);
    rename(dir.join(".env.new"), dir.join(".env")).unwrap();
    remove_file(dir.join(".env.bak")).unwrap();
}

const WAYS: [(&str, Save); 5] = [
    ("rename over", rename_over),
    ("unlink, create", unlink_and_create),
    ("truncate, write", truncate_and_write),
    ("backup, rename", backup_and_rename),
    ("hard link swap", hard_link_swap),
];

/// What a spinning reader saw.
#[derive(Debug)]
struct Seen {
    tries: u64,
    reads: u64,
    leaked: u64,
    median: u64,
    longest: u64,
    last: String,
}

/// `rounds` saves of one kind against a reader that spins on the name. The reader runs in the box; with `off` the
/// guard is killed first.
fn stress(policy: &[&str], save: Save, rounds: u32, off: bool) -> Seen {
    let place = Place::new();
    put(&place.path("p/.env"), "secret 0");
    put(&place.path("ref/state"), "spin");
    let (p, bin, state, probe) = (place.text("p"), place.text("bin"), place.text("ref/state"), place.text("bin/probe"));
    let mut command = place.command(Bin::agentbox());
    command.arg("run").args(policy.iter().map(|word| if *word == "P" { p.as_str() } else { word }));
    command.args(["--ro", &bin, "--ro", &place.text("ref"), "--"]).args([
        &probe,
        "spin",
        &state,
        &place.text("p/.env"),
    ]);
    let run = Run::spawn(&place, command);
    // Not before: a name that goes while the box is set up is a reason to refuse.
    until("the reader runs", || {
        let inside = children(run.supervisor()).into_iter().flat_map(children);
        inside.into_iter().any(|pid| name(pid) == "probe")
    });
    if off {
        // The guard's process exists from the first name on that it has to hide.
        until("a first save", || {
            unlink_and_create(&place.path("p"), "secret 0");
            run.guard().is_some()
        });
        kill(Pid::from_raw(run.guard().unwrap()), Signal::SIGKILL).unwrap();
        until("no guard", || run.guard().is_none());
        // It had hidden that one.
        unlink_and_create(&place.path("p"), "secret 0");
    } else {
        std::thread::sleep(Duration::from_millis(100));
    }
    for round in 1..=rounds {
        save(&place.path("p"), &format!("secret {round}"));
        std::thread::sleep(Duration::from_millis(3));
    }
    // In place: an overlay shows no replaced file.
    std::thread::sleep(Duration::from_millis(500));
    put(&place.path("ref/state"), "stop");
    let (status, errors) = run.end();
    assert_eq!(status, 0, "{errors}");
    let out = place.read("out/stdout");
    let words = out.split_whitespace().collect::<Vec<_>>();
    let number = |at: usize| words[at].parse().unwrap();
    Seen {
        tries: number(0),
        reads: number(1),
        leaked: number(2),
        median: number(3),
        longest: number(4),
        last: words[5].into(),
    }
}

fn show(root: &str, way: &str, rounds: u32, seen: &Seen) {
    let Seen { tries, reads, leaked, median, longest, .. } = seen;
    println!(
        "{root:10} {way:16} {leaked:5} contents of {rounds} saves came out, in {reads} of {tries} tries; open for {median} us a time, at most {longest}"
    );
}

fn rounds() -> u32 {
    if crate::common::full() { 1000 } else { 100 }
}

/// Live roots: a mask is dropped with the file that it covers, so a reader that spins can come between. In the end the
/// name is always hidden.
#[test]
fn saves_against_a_spinning_reader_live() {
    let elsewhere = Place::new();
    let other = elsewhere.text("p");
    for (root, policy) in [
        ("live", &["--live", "--rw", "P"][..]),
        ("read-only", &["--live", "--ro", "P", "--rw", &other, "--chdir", &other][..]),
    ] {
        for (way, save) in WAYS {
            let seen = stress(policy, save, rounds(), false);
            show(root, way, rounds(), &seen);
            assert_eq!(seen.last, "EACCES", "{root}: {way}: {seen:?}");
            let off = stress(policy, save, 20, true);
            show("no guard", way, 20, &off);
            assert_eq!(off.last, "read", "{root}: {way}: without the guard the name is open: {off:?}");
        }
    }
}

/// Overlays: a whiteout hangs on the name, so not one byte comes out.
#[test]
fn saves_against_a_spinning_reader_in_overlays() {
    let elsewhere = Place::new();
    let other = elsewhere.text("p");
    for (root, policy) in [
        ("dry run", &["--dry-run", "--rw", "P"][..]),
        ("dry run, read-only", &["--dry-run", "--ro", "P", "--rw", &other, "--chdir", &other][..]),
    ] {
        for (way, save) in WAYS {
            let seen = stress(policy, save, rounds(), false);
            show(root, way, rounds(), &seen);
            assert_eq!((seen.reads, seen.last.as_str()), (0, "ENOENT"), "{root}: {way}: {seen:?}");
        }
    }
}

/// A project with secrets in two places.
fn project() -> Place {
    let place = Place::new();
    put(&place.path("p/.env"), "secret");
    create_dir_all(place.path("p/sub/deep")).unwrap();
    put(&place.path("p/sub/deep/.env"), "secret");
    put(&place.path("p/sub/deep/plain"), "plain");
    // Older than the launch, as a project is.
    std::thread::sleep(Duration::from_millis(50));
    place
}

/// What was hidden is hidden again: replaced, in a directory that was moved, in a checkout that was made anew.
#[test]
fn names_that_were_hidden_stay_hidden_in_a_live_root() {
    let place = project();
    let p = place.path("p");
    let mut run = Run::shell(&place, &["--live"]);
    run.hides(".env");
    run.hides("sub/deep/.env");
    for (_, save) in WAYS {
        save(&p.join("sub/deep"), "secret again");
        run.hides("sub/deep/.env");
    }
    rename(p.join("sub"), p.join("moved")).unwrap();
    run.hides("moved/deep/.env");
    rename_over(&p.join("moved/deep"), "secret again");
    run.hides("moved/deep/.env");
    remove_dir_all(p.join("moved")).unwrap();
    create_dir_all(p.join("sub/deep")).unwrap();
    put(&p.join("sub/deep/.env"), "secret again");
    run.hides("sub/deep/.env");
    // An exchange of two names, which gives the mask away.
    put(&p.join("other"), "secret of another name");
    run.ask("cat other");
    nix::fcntl::renameat2(
        nix::fcntl::AT_FDCWD,
        &p.join("other"),
        nix::fcntl::AT_FDCWD,
        &p.join(".env"),
        nix::fcntl::RenameFlags::RENAME_EXCHANGE,
    )
    .unwrap();
    run.hides(".env");
    run.hides("other");
    let (status, errors) = run.end();
    assert!(errors.contains("hidden during the run: "), "{errors}");
    assert_eq!(status, 0, "{errors}");
    let report = place.read("out/report");
    assert!(report.contains("sub/deep/.env") && report.contains("\"unguarded\":[]"), "{report}");
}

/// The command moves the directory of a mask: the mask goes along, and holds under the new name.
#[test]
fn a_directory_that_the_command_moves_keeps_its_secrets() {
    let place = project();
    let p = place.path("p");
    let mut run = Run::shell(&place, &["--live"]);
    assert_eq!(run.ask("mv sub taken && cat taken/deep/plain"), "plain");
    run.hides("taken/deep/.env");
    run.hides("sub/deep/.env");
    for (_, save) in WAYS {
        save(&p.join("taken/deep"), "secret again");
        run.hides("taken/deep/.env");
    }
    assert!(run.ask("mv taken/deep/.env taken/deep/open").contains("busy"));
    assert!(run.ask("mkdir new && mv taken new/x && cat new/x/deep/plain").contains("plain"));
    rename_over(&p.join("new/x/deep"), "secret again");
    run.hides("new/x/deep/.env");
    assert_eq!(place.read("p/new/x/deep/.env"), "secret again");
}

/// In a read-only root whatever appears is the host's: files, dotfiles, directories that are moved in.
#[test]
fn names_that_appear_in_a_read_only_root_are_hidden() {
    let place = project();
    create_dir_all(place.path("out/moved/in")).unwrap();
    put(&place.path("out/moved/in/prod.key"), "secret");
    put(&place.path("out/moved/in/plain"), "plain");
    let elsewhere = Place::new();
    let other = elsewhere.text("p");
    let p = place.path("p");
    for mode in ["--live", "--dry-run"] {
        let mut run = Run::shell(&place, &[mode, "--ro", &place.text("p"), "--rw", &other, "--chdir", &other]);
        let at = |name: &str| p.join(name).display().to_string();
        run.hides(&at(".env"));
        put(&p.join("new.pem"), "secret");
        run.hides(&at("new.pem"));
        put(&p.join("sub/.netrc"), "secret");
        run.hides(&at("sub/.netrc"));
        create_dir_all(p.join("a/b/c")).unwrap();
        put(&p.join("a/b/c/id_rsa"), "secret");
        run.hides(&at("a/b/c/id_rsa"));
        rename(place.path("out/moved"), p.join("moved")).unwrap();
        run.hides(&at("moved/in/prod.key"));
        assert_eq!(run.ask(&format!("cat {}", at("moved/in/plain"))), "plain", "{mode}");
        run.end();
        assert_eq!(place.read("p/moved/in/prod.key"), "secret");
        rename(p.join("moved"), place.path("out/moved")).unwrap();
        remove_dir_all(p.join("a")).unwrap();
        remove_file(p.join("new.pem")).unwrap();
        remove_file(p.join("sub/.netrc")).unwrap();
    }
}

/// In a dry run new names of the host are hidden through the overlay. The command's own are its own; nothing of either
/// is a change that the command made.
#[test]
fn names_that_appear_in_a_dry_run_are_hidden_and_no_changes() {
    let place = project();
    create_dir_all(place.path("out/moved/in/.aws")).unwrap();
    put(&place.path("out/moved/in/.aws/credentials"), "secret");
    put(&place.path("out/moved/in/.env"), "secret");
    put(&place.path("out/moved/in/plain"), "plain");
    let p = place.path("p");
    let mut run = Run::shell(&place, &["--dry-run"]);
    put(&p.join("prod.key"), "secret");
    run.hides("prod.key");
    rename(place.path("out/moved"), p.join("moved")).unwrap();
    run.hides("moved/in/.env");
    run.hides("moved/in/.aws/credentials");
    // Looked up before it existed: the overlay remembers that, until the memory is wanted for something else.
    run.hides("late/.env");
    create_dir_all(p.join("late")).unwrap();
    put(&p.join("late/.env"), "secret");
    run.hides("late/.env");
    for (_, save) in WAYS {
        save(&p.join("sub/deep"), "secret again");
        run.hides("sub/deep/.env");
    }
    assert_eq!(run.ask("cat moved/in/plain"), "plain");
    assert_eq!(run.ask("echo mine >own.key && cat own.key"), "mine");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(run.ask("cat own.key"), "mine");
    assert_eq!(run.ask("echo mine >sub/.env && cat sub/.env"), "mine");
    let (status, errors) = run.end();
    assert_eq!(status, 0, "{errors}");
    // The host's own names, all there.
    for name in ["prod.key", "moved/in/.env", "moved/in/.aws/credentials", "late/.env"] {
        assert_eq!(place.read(Path::new("p").join(name)), "secret", "{name}");
    }
    let diff = place.agentbox(&["diff", "--name-only"]);
    diff.ok();
    let mut names = diff.out().lines().map(str::to_owned).collect::<Vec<_>>();
    names.retain(|line| !line.starts_with('#'));
    assert!(names.iter().all(|name| name.ends_with("own.key") || name.ends_with("sub/.env")), "{diff}");
    assert!(!diff.stdout.contains("prod.key") && !diff.stdout.contains("moved"), "{diff}");
}

/// In a live root nobody can tell the command's new names from the host's: both stay visible, as the docs say.
#[test]
fn new_names_in_a_live_root_stay_visible() {
    let place = project();
    let mut run = Run::shell(&place, &["--live"]);
    assert_eq!(run.ask("echo mine >own.key && cat own.key"), "mine");
    rename_over(&place.path("p"), "secret again");
    run.hides(".env");
    put(&place.path("p/host.key"), "of the host");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(run.ask("cat own.key; cat host.key"), "mine\nof the host");
}

/// Events that the kernel had to drop: every name is looked at again.
#[test]
fn a_queue_that_overflows_loses_no_name() {
    let place = project();
    let p = place.path("p");
    let mut run = Run::shell(&place, &["--live"]);
    rename_over(&p, "secret again");
    run.hides(".env");
    let guard = Pid::from_raw(run.await_guard());
    kill(guard, Signal::SIGSTOP).unwrap();
    let longest: usize = read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    for round in 0..longest / 3 + 10 {
        // Three events each, and no two in a row alike, for the kernel makes one of those.
        let name = if round % 2 == 0 { "a" } else { "b" };
        put(&p.join(name), "");
        rename(p.join(name), p.join("c")).unwrap();
    }
    rename_over(&p.join("sub/deep"), "secret again");
    assert_eq!(run.ask("cat sub/deep/.env"), "secret again", "the guard is stopped");
    kill(guard, Signal::SIGCONT).unwrap();
    run.hides("sub/deep/.env");
}

/// Where the kernel gives no more watches the run says so once, with the sysctl's name, and the rest is guarded.
#[test]
fn watches_that_run_out_are_told_once() {
    let place = project();
    for number in 0..20 {
        create_dir_all(place.path(format!("p/zz{number}"))).unwrap();
    }
    // A user namespace has a limit of its own, which its owner may set.
    let mut command = place.command("unshare");
    let script = "echo 10 >/proc/sys/user/max_inotify_watches && exec \"$@\"";
    command.args(["--user", "--map-root-user", "--mount", "bash", "-c", script, "bash"]).arg(Bin::agentbox());
    command.args(["run", "--live", "--report", &place.text("out/report"), "--", "bash", "-s"]);
    let mut run = Run::spawn(&place, command);
    run.ask("true");
    std::thread::sleep(Duration::from_millis(200));
    rename_over(&place.path("p"), "secret again");
    run.hides(".env");
    let (_, errors) = run.end();
    assert_eq!(errors.matches("fs.inotify.max_user_watches").count(), 1, "{errors}");
    assert!(place.read("out/report").contains("fs.inotify.max_user_watches"));
}

/// Nothing of the guard is to be seen inside, and it goes on while the supervisor is stopped.
#[test]
fn the_guards_process_is_out_of_reach() {
    let place = project();
    let mut run = Run::shell(&place, &["--live"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(run.guard(), None, "no process before there is a name to hide");
    rename_over(&place.path("p"), "secret again");
    run.hides(".env");
    let guard = run.await_guard();
    // Pid 1, the shell, and what it runs.
    let seen = run.ask("ls /proc | grep -c '^[0-9]'");
    assert!(["3", "4", "5"].contains(&seen.as_str()), "{seen}");
    assert!(!run.ask("cat /proc/[0-9]*/comm").contains("guard"));
    assert!(run.ask(&format!("kill -0 {guard}")).contains("No such process"));
    // Not dumpable: its files of /proc are root's, whoever runs it.
    let environ = std::fs::metadata(format!("/proc/{guard}/environ")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&environ), 0);
    kill(Pid::from_raw(run.supervisor()), Signal::SIGSTOP).unwrap();
    rename_over(&place.path("p/sub/deep"), "secret again");
    run.hides("sub/deep/.env");
    kill(Pid::from_raw(run.supervisor()), Signal::SIGCONT).unwrap();
}

/// Whoever is killed: the others end, or the run does, and nothing stays on the host.
#[test]
fn a_kill_leaves_nothing() {
    for (mode, whom) in [("--live", 0), ("--live", 1), ("--live", 2), ("--dry-run", 0)] {
        let place = project();
        let p = place.path("p");
        let mut run = Run::shell(&place, &[mode, "--ro", &place.text("ref")]);
        put(&place.path("ref/late.key"), "secret");
        run.hides(&place.text("ref/late.key"));
        rename_over(&p, "secret again");
        run.hides(".env");
        let before = place.fingerprint("p");
        let mounts = read_to_string("/proc/self/mountinfo").unwrap();
        let (supervisor, guard) = (run.supervisor(), run.await_guard());
        let init = children(supervisor).into_iter().find(|pid| *pid != guard).unwrap();
        let victim = match whom {
            0 => supervisor,
            1 => guard,
            _ => children(init)[0],
        };
        kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
        if victim == guard {
            until("the supervisor has noticed", || run.guard().is_none());
            assert_eq!(run.ask("echo on"), "on");
            let (_, errors) = run.end();
            assert!(errors.contains("names that appear during the run are not hidden"), "{errors}");
        } else {
            run.child.wait().unwrap();
        }
        for pid in [supervisor, guard, init] {
            until("every process is gone", || !Path::new(&format!("/proc/{pid}/ns")).exists() || name(pid).is_empty());
        }
        assert_eq!(place.fingerprint("p"), before);
        assert_eq!(read_to_string("/proc/self/mountinfo").unwrap(), mounts);
    }
}

/// User and system time of a process, in clock ticks.
fn ticks(pid: i32) -> u64 {
    let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let words = stat.rsplit(") ").next().unwrap().split(' ').collect::<Vec<_>>();
    words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
}

fn kilobytes(pid: i32, field: &str) -> u64 {
    let status = read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The watches of a process.
fn watches(pid: i32) -> usize {
    let all = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    let infos = all.filter_map(|info| read_to_string(info.path()).ok());
    infos.map(|info| info.lines().filter(|line| line.starts_with("inotify wd:")).count()).sum()
}

/// What the guard costs: a watch for each directory and no more, and little processor time while a build runs. The
/// figures are printed.
#[test]
fn what_the_guard_costs() {
    const DIRECTORIES: usize = 2000;
    let measure = |directories: usize| {
        let place = project();
        for number in 0..directories {
            create_dir_all(place.path(format!("p/d{}/e{number}", number % 20))).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut run = Run::shell(&place, &["--live"]);
        let supervisor = run.supervisor();
        let all = directories + directories.min(20) + 3;
        until("every directory is watched", || watches(supervisor) == all);
        let walked = ticks(supervisor);
        let memory = kilobytes(supervisor, "RssAnon:");
        let build = "for r in 1 2 3 4; do mkdir -p out/$r; for f in {1..400}; do echo >out/$r/$f.tmp; done; \
            for f in {1..100}; do mv out/$r/$f.tmp out/$r/$f.o; done; rm -rf out/$r; done; times";
        let start = Instant::now();
        let times = run.ask(build);
        let took = start.elapsed();
        let during = ticks(supervisor) - walked;
        assert!(run.guard().is_none(), "a build that touches no hidden name needs no process more");
        (memory, walked, during, took, times)
    };
    let (small, ..) = measure(0);
    let (large, walked, during, took, times) = measure(DIRECTORIES);
    let each = (large.saturating_sub(small) * 1024) as usize / DIRECTORIES;
    println!(
        "{DIRECTORIES} directories: {each} bytes each in the supervisor, start and walk {walked} ticks; a build of \
         {took:?} cost it {during} ticks (shell and children: {})",
        times.replace('\n', " ")
    );
    assert!(each < 1000, "{each} bytes a directory");
    let hundredths = u128::from(during) * 10;
    assert!(hundredths <= took.as_millis() / 2, "half of a processor for the guard: {during} ticks in {took:?}");
}
