//! The veil: hidden names judged as they are looked up. Late secrets, what is told, a supervisor that dies or stops, and
//! what tools see of a tree.

use crate::common::{Leftovers, Output, Place, has, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Is there a veil here? Without /dev/fuse names are whiteouts, and other tests hold those.
fn veil() -> bool {
    let there = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !there {
        skip("/dev/fuse cannot be opened");
    }
    there
}

fn report(place: &Place, policy: &[&str], command: &[&str]) -> (Output, Value) {
    let file = place.text("out/report");
    let output = place.dry(&[policy, &["--report", &file]].concat(), command);
    let value = serde_json::from_str(&place.read("out/report")).expect("the report is JSON");
    (output, value)
}

fn denied(report: &Value) -> Vec<String> {
    let path = |read: &Value| read["path"].as_str().expect("a path").rsplit('/').next().unwrap_or_default().to_owned();
    report["hidden_reads"].as_array().expect("a list").iter().map(path).collect()
}

/// A dry run of the probe whose standard input stays open until it is told to end.
fn start(place: &Place, policy: &[&str], args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let (p, bin, probe) = (place.text("p"), place.text("bin"), place.text("bin/probe"));
    let mut command = place.command(crate::common::Bin::agentbox());
    command.args(["run", "-q", "--dry-run", "--rw", &p, "--ro", &bin]).args(policy).args(["--", &probe]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("agentbox starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "spinning\n");
    (child, out)
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// All the ways in which programs save a file, in turn. Content appears under a hidden name in each round.
fn save(dir: &Path, round: usize) {
    let at = |name: &str| dir.join(name);
    let secret = b"SECRET=1\n";
    let write = |name: &str| std::fs::write(at(name), secret).expect("a save");
    let new = |from: &str, to: &str| std::fs::rename(at(from), at(to)).expect("a rename");
    let gone = |name: &str| std::fs::remove_file(at(name)).ok();
    match round % 6 {
        0 => {
            write("plain~");
            new("plain~", ".env");
        }
        1 => {
            gone(".env");
            write(".env");
        }
        2 => write(".env"),
        3 => {
            new(".env", ".env.bak");
            write(".env");
        }
        4 => {
            gone("key.pem");
            std::fs::hard_link(at(".env"), at("key.pem")).expect("a link");
            gone("swap.key");
            std::fs::hard_link(at("key.pem"), at("swap.key")).expect("a link");
            new("swap.key", ".env");
        }
        _ => {
            std::fs::create_dir_all(at("../moved")).expect("a directory");
            std::fs::write(at("../moved/in.pem"), secret).expect("a save");
            std::fs::rename(at("../moved/in.pem"), at("in.pem")).expect("a rename");
        }
    }
    // A name that nobody ever used before.
    std::fs::write(at(&format!("fresh.pem-{round}")), secret).ok();
}

/// Reads of a spinning reader inside while the host saves `rounds` times.
fn race(policy: &[&str], rounds: usize) -> Vec<u64> {
    let place = Place::new();
    let dir = place.mkdir("p/sub");
    place.write("p/sub/.env", "SECRET=0\n");
    let hide = ["--hide", "fresh.pem-*"];
    let names = [".env", ".env.bak", "key.pem", "swap.key", "in.pem"];
    let sub = place.text("p/sub");
    let spin = [&["spin-names", &sub, "fresh.pem"][..], &names].concat();
    let (mut child, mut out) = start(&place, &[&hide, policy].concat(), &spin);
    for round in 0..rounds {
        save(&dir, round);
    }
    drop(child.stdin.take());
    let mut line = String::new();
    out.read_to_string(&mut line).expect("the counts");
    assert!(child.wait().expect("agentbox ends").success());
    let counts = numbers(&line);
    assert!(counts.len() == 4 && counts[0] > 1000 && counts[2] > 10, "{line}");
    counts
}

/// Not one byte of a secret that the host saves, makes or moves in during a run is read, whichever way it is saved.
#[test]
fn late_secrets_never_show() {
    if !veil() {
        return;
    }
    let rounds = 6000;
    let counts = race(&[], rounds);
    let (opens, leaks, listings, flashes) = (counts[0], counts[1], counts[2], counts[3]);
    let line = format!("veil: {rounds} saves, {opens} opens: {leaks} leaks; {listings} listings: {flashes} flashes");
    println!("{line}");
    assert_eq!(leaks, 0, "{line}");
}

/// The race above sees content where nothing hides it.
#[test]
fn the_race_can_fail() {
    let counts = race(&["--grant", ".env"], 1000);
    assert!(counts[1] > 0, "a granted name is visible, and the reader saw nothing of it: {counts:?}");
}

/// A hidden read is a denial in the report, once a name, and a line at the end. A listing is none, and neither is a
/// look for what is not there.
#[test]
fn hidden_reads_are_told() {
    if !veil() {
        return;
    }
    let place = Place::new();
    for name in ["p/.env", "p/sub/key.pem", "p/.git/HEAD", "p/visible", "p/one.pem", "p/two.pem", "p/three.pem"] {
        place.write(name, "x\n");
    }
    let (output, list) = report(&place, &[], &["sh", "-c", "ls -la . sub; find . >/dev/null; cat .npmrc .absent"]);
    assert_eq!(denied(&list), [""; 0], "{output}");
    output.err_lacks("denied (");
    assert_eq!((&list["names"], &list["hidden"]), (&"veil".into(), &Value::Null), "{output}");
    let (output, list) =
        report(&place, &[], &["sh", "-c", "ls -a . >/dev/null; cat .env; cat .env sub/key.pem; test -e .git"]);
    assert_eq!(denied(&list), [".env", "key.pem", ".git"], "{output}");
    let env = place.text("p/.env");
    output.err_has(&format!("agentbox: denied (read): {env}: hidden by `.env` ("));
    output.err_has(&format!("(grant: --grant {env})"));
    output.err_lacks("/.git:");
    let first = &list["hidden_reads"][0];
    assert_eq!((&first["access"], &first["verdict"]), (&"read".into(), &"denied".into()), "{first}");
    assert!(first["pid"].as_u64() > Some(1) && first["time"].as_f64() > Some(1e9), "{first}");
    let (output, list) = report(&place, &[], &["sh", "-c", "cat .env *.pem one.pem two.pem three.pem sub/key.pem"]);
    assert_eq!(denied(&list).len(), 5, "{output}");
    output.err_has("agentbox: denied (read): 2 more hidden names (--report FILE lists them)");
    // Granted, it is none.
    let (_, list) = report(&place, &["--grant", ".env"], &["cat", ".env"]);
    assert_eq!(denied(&list), [""; 0]);
}

/// A file with a second name that is hidden is hidden under the first one too.
#[test]
fn second_names_are_hidden() {
    if !veil() {
        return;
    }
    let place = Place::new();
    place.write("p/.env", "sentinel\n");
    place.write("p/a", "1\n");
    for (old, new) in [("p/.env", "p/plain"), ("p/a", "p/b")] {
        std::fs::hard_link(place.path(old), place.path(new)).expect("a link");
    }
    // What was made in the moment of the launch the guard looks at as well, and who looks first is told.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (output, list) = report(&place, &[], &["sh", "-c", "cat a b; cat plain; ls"]);
    assert_eq!(output.stdout, "1\n1\na\nb\n", "{output}");
    assert_eq!(denied(&list), ["plain"], "{output}");
    output.err_has("another name of a hidden file");
    place.dry(&["--grant", ".env"], &["cat", "plain"]).ok().out_is("sentinel");
}

/// What the command makes under a hidden name is its own; attributes and numbers of served directories are the host's
/// and stay; a listing agrees with what stat says.
#[test]
fn the_tree_is_consistent() {
    if !veil() {
        return;
    }
    let place = Place::new();
    for name in ["p/sub/deep/.env", "p/sub/file", "p/clean/file", "p/.hidden/file"] {
        place.write(name, "host\n");
    }
    place.dry(&[], &["sh", "-c", "echo mine >sub/.env; cat sub/.env; cat sub/deep/.env"]).status_is(1).out_is("mine");
    assert!(!place.has("p/sub/.env"));
    let script = r#"stat -c '%a %u %g %Y' . sub sub/deep clean; ls -ai . sub | grep -v '\.\.' >a
        for name in . sub clean; do stat -c '%i' $name; done >one; find . -type f | sort | tr '\n' ' '
        for name in . sub clean; do stat -c '%i' $name; done | cmp one - && find . ! -path ./a ! -path ./one -printf '%i %p\n' | while read ino path; do
            test "$(stat -c %i "$path")" = $ino || echo "$path changes its number"; done"#;
    let bare = place.sh("stat -c '%a %u %g %Y' . sub sub/deep clean");
    let inside = place.dry(&["-q"], &["sh", "-c", script]);
    assert_eq!(inside.stdout, format!("{}./a ./clean/file ./one ./sub/file ", bare.stdout), "{inside}");
    // The host's changes of a directory show at once.
    let fresh = r#"stat -c %a sub; read line; stat -c %a sub; test "$(stat -c %Y sub)" -lt 1000000"#;
    let mut command = place.command(crate::common::Bin::agentbox());
    command.args(["run", "-q", "--dry-run", "--", "sh", "-c", fresh]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("agentbox starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    place.sh("chmod 700 sub; touch -d @999999 sub").ok();
    drop(child.stdin.take());
    out.read_to_string(&mut line).expect("the rest");
    let first = bare.stdout.lines().nth(1).and_then(|line| line.split(' ').next()).expect("a mode").to_owned();
    assert_eq!(line, format!("{first}\n700\n"));
    assert!(child.wait().expect("agentbox ends").success());
}

/// Removing or moving a directory with hidden names in it is never told as the removal of those.
#[test]
fn deleting_around_hidden_names() {
    if !veil() {
        return;
    }
    for (command, gone) in
        [("rm -rf app", true), ("rm app/file; rmdir app", true), ("mv app app2", true), ("ls -R", false)]
    {
        let place = Place::new();
        place.write("p/app/.env", "sentinel\n");
        place.write("p/app/file", "x\n");
        let before = place.fingerprint("p");
        let (output, list) = report(&place, &[], &["sh", "-c", command]);
        output.ok();
        assert!(!output.stderr.contains("a/app/.env"), "{command}: {output}");
        assert_eq!(output.stderr.contains("--- a/app/file"), gone, "{command}: {output}");
        assert_eq!(list["changes"]["kept"].as_u64(), Some(u64::from(gone)), "{command}: {output}");
        assert_eq!(place.fingerprint("p"), before, "{command}");
    }
}

/// A frozen name near the top is read-only inside; a deeper one is refused when the layer is read, and what leads to it
/// stays.
#[test]
fn deep_frozen_names_are_refused() {
    if !veil() {
        return;
    }
    for command in
        ["echo bad >a/b/mise.toml; echo good >a/b/plain", "rm -rf a/b/mise.toml; echo good >a/b/plain", "rm -rf a"]
    {
        let place = Place::new();
        for name in ["p/mise.toml", "p/a/b/mise.toml", "p/a/b/plain", "p/a/other"] {
            place.write(name, "old\n");
        }
        let (output, list) = report(&place, &[], &["sh", "-c", &format!("{command}; echo x >mise.toml")]);
        output.err_has("mise.toml: Read-only file system").err_has("# refused: a/b/mise.toml: frozen");
        output.err_lacks("+bad").err_lacks("a/a/b/mise.toml").err_has("a/a/b/plain");
        assert_eq!(list["changes"]["refused"], 1, "{command}: {output}");
        // The way to it stays: two files go, and no directory.
        if command == "rm -rf a" {
            assert_eq!(list["changes"]["deleted"], 2, "{command}: {output}");
        }
    }
}

/// Programs that walk trees see what there is, and nothing twice.
#[test]
fn tools_walk_the_tree() {
    if !veil() {
        return;
    }
    let place = Place::new();
    for name in ["a/b/c.txt", "a/.env", "a/b/key.pem", "x/y/z.txt", "x/f", ".gitignore", "Makefile"] {
        place.write(format!("p/{name}"), if name == "Makefile" { "all: x/f\n\t@echo made\n" } else { "text\n" });
    }
    let visible = "./.gitignore ./Makefile ./a/b/c.txt ./x/f ./x/y/z.txt ";
    let sorted = "sort | tr '\\n' ' '";
    let mut scripts = vec![
        format!("find . -type f | {sorted}"),
        format!("find . -type f -print0 | tar --null -T - -cf $TMPDIR/t.tar; tar -tf $TMPDIR/t.tar | {sorted}"),
        format!("tar -cf $TMPDIR/t.tar .; tar -tf $TMPDIR/t.tar | grep -v '/$' | {sorted}"),
        format!("cp -a . $TMPDIR/copy; cd $TMPDIR/copy; find . -type f | {sorted}"),
    ];
    let walk = "import os; print(*sorted(os.path.join(d, f) for d, _, fs in os.walk('.') for f in fs), end=' ')";
    if has("python3") {
        scripts.push(format!("python3 -c \"{walk}\""));
    }
    if has("rg") {
        scripts.push(format!("rg --files --hidden --no-ignore . | {sorted}"));
    }
    if has("rsync") {
        scripts.push(format!("rsync -a . $TMPDIR/r/; cd $TMPDIR/r; find . -type f | {sorted}"));
    }
    if has("node") {
        let walk = "console.log(fs.readdirSync('.', {recursive: true, withFileTypes: true}).filter(e => e.isFile()).map(e => './' + path.join(e.parentPath, e.name)).join('\\n'))";
        scripts.push(format!("node -e \"{walk}\" | {sorted}"));
    }
    for script in scripts {
        let output = place.dry(&["-q"], &["sh", "-c", &format!("TMPDIR=/tmp; {script}")]);
        assert_eq!(output.stdout, visible, "{script}: {output}");
    }
    place.dry(&["-q"], &["make", "-s"]).ok().out_is("made");
    let git = "git init -q . && git add -A && git status --porcelain && git -c user.name=n -c user.email=e commit -qm m && git status --porcelain && git ls-files | tr '\\n' ' '";
    let output = place.dry(&["-q"], &["sh", "-c", &format!("cp -a . /tmp/g && cd /tmp/g && {git}")]);
    assert!(output.stdout.ends_with(".gitignore Makefile a/b/c.txt x/f x/y/z.txt "), "{output}");
}

/// Dead, the supervisor takes everything along; stopped, it holds up nobody but the box.
#[test]
fn a_dead_or_stopped_supervisor_hangs_nothing() {
    if !veil() {
        return;
    }
    for stop_first in [false, true] {
        let before = Leftovers::before();
        let place = Place::new();
        for number in 0..200 {
            place.write(format!("p/d{number}/.env"), "x\n");
        }
        let sub = place.text("p");
        let (mut child, out) = start(&place, &[], &["spin-names", &sub, "fresh.pem", ".env"]);
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        if stop_first {
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("it lives");
            // What the host does in the very directories that are served goes on.
            let began = Instant::now();
            place.sh("find . -type f | wc -l; cat d7/.env; echo new >d7/other; rm -r d8; ls -la /proc/*/cwd >/dev/null 2>&1; df . >/dev/null").ok();
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it lives");
        // Kept open, or the command would end by itself.
        let input = child.stdin.take();
        child.wait().expect("it ends");
        // The command held the pipe: its end is the end of everything inside.
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut rest = String::new();
            let mut out = out;
            out.read_to_string(&mut rest).ok(); // cut off by the kill
            sender.send(rest).ok(); // nobody may wait any more
        });
        let rest = receiver.recv_timeout(Duration::from_secs(10)).expect("the command ends with the supervisor");
        assert_eq!(rest, "", "it was killed, stop first: {stop_first}");
        drop(input);
        before.none(&place);
    }
}

/// A launch looks at no more of a large tree than of a small one.
#[test]
fn a_launch_does_not_grow_with_the_tree() {
    if !veil() {
        return;
    }
    if !has("strace") {
        return skip("no strace");
    }
    let place = Place::new();
    place.write("p/sub/.env", "x\n");
    let listings = |place: &Place| {
        let script = "strace -f -qq -e trace=getdents64,openat,openat2 -o $T/out/calls $AGENTBOX run -q --dry-run -- /bin/true; wc -l <$T/out/calls";
        let output = place.sh(script);
        output.ok().out().parse::<u64>().expect("a number")
    };
    listings(&place);
    let small = listings(&place);
    for dir in 0..60 {
        for file in 0..20 {
            place.write(format!("p/sub/d{dir}/e/f{file}"), "x\n");
        }
    }
    let large = listings(&place);
    // The positive twin: a scan does grow.
    assert!(large <= small + 3, "{small} calls in a small tree, {large} in a large one");
    let scanned = place.sh("strace -f -qq -e trace=getdents64 -o $T/out/calls $AGENTBOX run -q --dry-run --degraded veil -- /bin/true; wc -l <$T/out/calls");
    assert!(scanned.ok().out().parse::<u64>().expect("a number") > 120, "{scanned}");
}

/// Where /dev/fuse cannot be had the scan hides what is there, and the run says what that leaves open.
#[test]
fn without_a_veil_names_are_whiteouts() {
    let place = Place::new();
    place.write("p/.env", "sentinel\n");
    let (output, list) = report(&place, &["--degraded", "veil"], &["cat", ".env"]);
    output.status_is(1).err_has("agentbox: ran without: veil");
    assert_eq!((&list["names"], &list["hidden"]), (&"scan".into(), &1.into()), "{list}");
    let explained = place.agentbox(&["explain", "--dry-run", "--degraded", "veil", "--", "true"]);
    explained.ok().out_has("1 names hidden").out_has(".env by `.env`");
    if veil() {
        let explained = place.agentbox(&["explain", "--dry-run", "--", "true"]);
        explained.ok().out_has("hidden names are judged when they are looked up").out_has(".env by `.env`");
    }
    if crate::common::is_root() && has("unshare") {
        let script = "mount -t tmpfs none /dev && mknod /dev/null c 1 3 && chmod 666 /dev/null && for d in zero full random urandom tty; do touch /dev/$d; done && $AGENTBOX explain --dry-run -- true | grep notice";
        let output = place.sh(&format!("unshare -m sh -c '{script}'"));
        output.ok().out_has("/dev/fuse").out_has("one that appears later is hidden a moment after");
    }
}

/// A read-only root in which something is hidden has the veil too, whether it is the first root or not; one without is a
/// plain bind.
#[test]
fn read_only_roots() {
    if !veil() {
        return;
    }
    let place = Place::new();
    for name in ["out/a/.env", "other/.env", "other/visible"] {
        place.write(name, "sentinel\n");
    }
    place.write("out/a/plain", "x\n");
    place.write("ref/plain", "x\n");
    place.sh("chmod 700 $T/out/a $T/other; chmod 751 $T/out").ok();
    let roots = ["out", "other", "ref"].map(|name| place.text(name));
    let policy: Vec<&str> = roots.iter().flat_map(|root| ["--ro", root.as_str()]).collect();
    let explained = place.agentbox(&[&["explain", "--dry-run"], &policy[..], &["--", "true"]].concat());
    for root in &roots[..2] {
        explained.ok().out_has(&format!("overlay over {root}: read-only, names hidden by the veil"));
    }
    explained.out_has(&format!("bind {} recursively read-only", roots[2]));
    let [out, other, reference] = &roots;
    let stat = ["-c", "%a %u %g %s %Y", out, &format!("{out}/a"), other, reference];
    let bare = place.sh(&format!("stat {} '{}' {}", stat[0], stat[1], stat[2..].join(" ")));
    place.dry(&policy, &[&["stat"], &stat[..]].concat()).ok().out_is(bare.ok().out());
    let script = "ls -A $1/a; ls -A $2; cat $2/visible; cat $1/a/.env $2/.env; echo x >$1/a/plain";
    let output = place.dry(&policy, &["sh", "-c", script, "sh", out, other]);
    output.out_is("plain\nvisible\nsentinel").err_has("denied (read)");
    assert!(output.stderr.contains("Read-only file system"), "{output}");
}
