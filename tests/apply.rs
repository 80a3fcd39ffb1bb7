//! Apply and undo on the real kernel: real dry runs, applied, taken back, killed on the way.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A project, a HOME and a state directory of one test, gone with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("agentbox-apply-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = Path::new("/var/tmp").join(name);
        fs::create_dir(&dir).unwrap();
        for name in ["p", "plain", "home", "out"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        Place(dir)
    }

    fn project(&self) -> PathBuf {
        self.0.join("p")
    }

    fn file(&self, path: &str) -> PathBuf {
        self.project().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap()
    }

    fn there(&self, path: &str) -> bool {
        fs::symlink_metadata(self.file(path)).is_ok()
    }

    /// A script on the host, in the project.
    fn host(&self, script: &str) {
        assert!(shell(&self.project(), script).status.success(), "{script}");
    }

    fn agentbox(&self, args: &[&str]) -> Output {
        self.failing("", args)
    }

    fn failing(&self, at: &str, args: &[&str]) -> Output {
        let program =
            std::env::var_os("AGENTBOX_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_agentbox").into(), PathBuf::from);
        let mut command = Command::new(program);
        command.args(args).current_dir(self.project()).env("HOME", self.0.join("home"));
        command.env("AGENTBOX_TEST_FAIL", at).env_remove("XDG_STATE_HOME").output().unwrap()
    }

    /// A dry run of a script in the project.
    fn dry(&self, script: &str) {
        let project = self.project();
        let ran =
            self.agentbox(&["run", "--dry-run", "-q", "--rw", project.to_str().unwrap(), "--", "sh", "-c", script]);
        assert!(ran.status.success(), "{script}: {ran:?}");
    }

    #[track_caller]
    fn ends(&self, args: &[&str], status: i32) -> String {
        let output = self.agentbox(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        text
    }

    /// The upper layer of the only session.
    fn upper(&self) -> PathBuf {
        let sessions = self.0.join("home/.local/state/agentbox/sessions");
        let mut found = fs::read_dir(sessions).unwrap().map(|entry| entry.unwrap().path());
        found.find(|path| path.join("session.json").exists()).unwrap().join("layers/0/upper")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        Command::new("chmod").arg("-R").arg("u+rwx").arg(&self.0).output().unwrap();
        Command::new("rm").arg("-rf").arg(&self.0).output().unwrap();
    }
}

fn shell(dir: &Path, script: &str) -> Output {
    Command::new("sh").arg("-c").arg(script).current_dir(dir).env("HOME", dir).output().unwrap()
}

/// A script as a plain run: outside of the box, and as there without the capabilities of root.
fn plain(dir: &Path, script: &str) -> Output {
    if !rustix::process::geteuid().is_root() {
        return shell(dir, script);
    }
    let without = ["--bounding-set=-all", "--inh-caps=-all", "sh", "-c", script];
    Command::new("setpriv").args(without).current_dir(dir).env("HOME", dir).output().unwrap()
}

/// All that can be told of a name: kind and mode, content, attributes, time of change, and the first name of its file.
type Told = (String, Vec<u8>, String, i128, PathBuf);

fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Told> {
    let mut found = BTreeMap::new();
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(at) = todo.pop() {
        let path = dir.join(&at);
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut content = Vec::new();
        if meta.is_symlink() {
            content = fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec();
        } else if meta.is_file() {
            content = readable(&path, &meta, |path| fs::read(path).unwrap());
        } else if meta.is_dir() {
            let mut names = readable(&path, &meta, |path| {
                fs::read_dir(path).unwrap().map(|entry| at.join(entry.unwrap().file_name())).collect::<Vec<_>>()
            });
            names.sort();
            names.reverse();
            todo.extend(names);
        }
        let attributes = if meta.is_symlink() || !has_attributes(&path) {
            String::new()
        } else {
            let list = Command::new("python3").arg("-c").arg(ATTRIBUTES).arg(&path).output().unwrap();
            String::from_utf8(list.stdout).unwrap()
        };
        let name =
            if meta.is_dir() { at.clone() } else { first.entry(meta.ino()).or_insert_with(|| at.clone()).clone() };
        let kind = format!("{:o} {}:{}", meta.mode(), meta.uid(), meta.gid());
        let time = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        found.insert(at, (kind, content, attributes, time, name));
    }
    found
}

const ATTRIBUTES: &str = "import os,sys; p=sys.argv[1]; print(sorted((n,os.getxattr(p,n)) for n in os.listxattr(p)))";

/// Without a process for each name: most have none.
fn has_attributes(path: &Path) -> bool {
    rustix::fs::listxattr(path, &mut [0_u8; 0][..]).is_ok_and(|len| len > 0)
}

/// What its owner may not read, for the moment.
fn readable<T>(path: &Path, meta: &fs::Metadata, read: impl FnOnce(&Path) -> T) -> T {
    let mode = meta.permissions().mode();
    let bits = if meta.is_dir() { 0o500 } else { 0o400 };
    if mode & bits == bits || rustix::process::geteuid().is_root() {
        return read(path);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode | bits)).unwrap();
    let result = read(path);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    result
}

/// The same without times, which two runs do not share, but for those that were set.
fn timeless(dir: &Path) -> BTreeMap<PathBuf, Told> {
    let year = 1_100_000_000 * 1_000_000_000;
    let mut found = snapshot(dir);
    for told in found.values_mut().filter(|told| told.3 > year) {
        told.3 = 0;
    }
    found
}

/// Enough of it to see what differs.
fn short(told: Option<&Told>) -> String {
    told.map_or("nothing".to_owned(), |(kind, content, attributes, time, first)| {
        let start = String::from_utf8_lossy(&content[..content.len().min(20)]);
        format!("{kind} {start:?} {} bytes {attributes} {time} {first:?}", content.len())
    })
}

#[track_caller]
fn same(left: &BTreeMap<PathBuf, Told>, right: &BTreeMap<PathBuf, Told>, what: &str) {
    let mut text = String::new();
    for (path, told) in left {
        if right.get(path) != Some(told) {
            writeln!(text, "{path:?}: {} != {}", short(Some(told)), short(right.get(path))).unwrap();
        }
    }
    for path in right.keys().filter(|path| !left.contains_key(*path)) {
        writeln!(text, "{path:?} alone on the right").unwrap();
    }
    assert!(text.is_empty(), "{what}:\n{text}");
}

const TREE: &str = "mkdir -p d/e gone/x keep; echo 1 >a; echo 2 >b; echo 3 >d/c; echo 4 >d/e/f; echo g >gone/x/y
    echo k >keep/k; ln -s a link; printf '\\0\\1' >bin; echo s >keep/.env; chmod 751 d; touch -d 2001-02-03 a d keep";
const WORK: &str =
    "echo X >>a; rm b; mv d/c d/n; ln -sf d link; chmod 600 keep/k; rm -rf gone; mkdir -p n/m; echo deep >n/m/f
    ln n/m/f n/g; echo 5 >d/e/g; rm -r d/e; echo now a file >d/e; chmod 500 n/m; touch -d 2002-02-02 n/g";

/// A dry run, applied, is a plain run; undone it never was; applied again it is a plain run again.
#[test]
fn apply_is_a_plain_run_and_undo_takes_it_back() {
    let place = Place::new();
    place.host(TREE);
    place.host("cp -a . ../plain");
    let before = snapshot(&place.project());
    assert!(plain(&place.0.join("plain"), WORK).status.success());
    place.dry(WORK);
    for _ in 0..2 {
        place.ends(&["apply"], 0);
        same(&timeless(&place.project()), &timeless(&place.0.join("plain")), "applied");
        assert_eq!(place.agentbox(&["diff"]).stdout, b"", "nothing is left to tell");
        let text = String::from_utf8(place.agentbox(&["sessions"]).stdout).unwrap();
        assert!(text.contains("  applied  "), "{text}");
        place.ends(&["undo"], 0);
        same(&snapshot(&place.project()), &before, "undone");
    }
    let text = String::from_utf8(place.agentbox(&["sessions"]).stdout).unwrap();
    assert!(text.contains("  undone  "), "{text}");
    assert!(place.ends(&["undo"], 2).contains("nothing of this session was applied"));
}

/// Numbers that come again from the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn name(&mut self) -> String {
        const NAMES: [&str; 8] = ["a", "b", "sp ace", "li\nne", "q\"uo'te", "-dash", "\u{e9}", "x"];
        const DIRS: [&str; 5] = ["", "d/", "d/e/", "new/", "new/er/"];
        let long = "l".repeat(200);
        let dir = DIRS[self.below(DIRS.len())];
        let at = self.below(NAMES.len() + 1);
        let name = NAMES.get(at).copied().unwrap_or(&long);
        format!("'./{dir}{}'", name.replace('\'', r"'\''"))
    }

    fn step(&mut self) -> String {
        let (a, b) = (self.name(), self.name());
        let n = self.below(1000);
        match self.below(17) {
            0 | 1 => format!("echo {n} >{a}"),
            2 => format!("echo {n} >>{a}"),
            3 => format!("truncate -s {} {a}", n * 100),
            4 => format!("echo {n} >./tmp; mv -Tf ./tmp {a}"),
            5 => format!("mv -Tf {a} {b}"),
            6 => format!("ln -T {a} {b}"),
            7 => format!("ln -sfT x{n} {a}"),
            // A directory that nobody may enter is named and left out.
            8 => format!("[ -d {a} ] || chmod {} {a}", ["600", "644", "755", "444"][n % 4]),
            9 => format!("rm -f {a}"),
            10 => format!("rm -rf {a}; mkdir {a}"),
            11 => format!("rm -rf {a}; echo {n} >{a}"),
            12 => format!("mkdir -p {a}/deep/er; echo {n} >{a}/deep/er/f"),
            13 => "rm -rf ./d/e; mkdir -p ./d/e".to_owned(),
            14 => "mkdir -p ./new/er".to_owned(),
            15 => format!("touch -h -d 2001-01-{:02} {a}", 1 + n % 28),
            _ => format!("python3 -c 'import os,sys; os.setxattr(sys.argv[1], \"user.t\", b\"{n}\")' {a}"),
        }
    }
}

/// The same random program run plain and in the box, applied, leaves the same; undone, nothing.
#[test]
fn random_programs_leave_what_a_plain_run_leaves() {
    for seed in 0..10 {
        let place = Place::new();
        place.host("mkdir -p d/e; for f in a b x 'sp ace' d/a d/b d/e/a d/e/x; do echo $f >\"$f\"; done; touch -d 2000-01-01 a d/e/x");
        place.host("cp -a . ../plain");
        let mut random = Random(seed);
        let mut program = String::from("exec 2>/dev/null\n");
        for _ in 0..30 {
            writeln!(program, "{}", random.step()).unwrap();
        }
        // A rename is refused for a directory of the host, and mv copies: its own time is then a new one.
        program.push_str("echo end >end; true");
        let before = snapshot(&place.project());
        plain(&place.0.join("plain"), &program);
        place.dry(&program);
        let said = place.ends(&["apply"], 0);
        same(
            &timeless(&place.project()),
            &timeless(&place.0.join("plain")),
            &format!("seed {seed}: {program}\n{said}"),
        );
        place.ends(&["undo"], 0);
        same(&snapshot(&place.project()), &before, &format!("undo of seed {seed}: {program}"));
    }
}

/// One of each kind of step: a settlement is stopped at every point of it, and each point is a run of its own.
const SMALL: &str =
    "mkdir -p d/e; echo 1 >a; echo 2 >b; echo 3 >d/e/f; ln -s a link; echo k >k; touch -d 2001-02-03 a d";
const SMALL_WORK: &str = "echo X >>a; rm b; ln -sf d link; chmod 600 k; rm -rf d/e; echo now a file >d/e; mkdir n; echo 4 >n/f; ln n/f n/g; chmod 500 n";

/// Runs the whole settlement again and again, stopped one step later each time, until it runs through.
fn stopped_everywhere(
    stop: &str,
    args: &[&str],
    prepare: impl Fn(&Place),
    mut check: impl FnMut(&Place, &Output, u64),
) {
    for step in 1.. {
        let place = Place::new();
        place.host(SMALL);
        place.dry(SMALL_WORK);
        prepare(&place);
        let output = place.failing(&format!("settle:{step}:{stop}"), args);
        if output.status.success() {
            assert!(step > 20, "only {step} steps");
            return;
        }
        check(&place, &output, step);
    }
}

fn wanted() -> (BTreeMap<PathBuf, Told>, Place) {
    let place = Place::new();
    place.host(SMALL);
    assert!(plain(&place.project(), SMALL_WORK).status.success());
    (timeless(&place.project()), place)
}

/// Killed at any of its steps, the next apply leaves all of it, and an undo after that nothing.
#[test]
fn an_apply_that_was_killed_is_finished_by_the_next() {
    let (wanted, _place) = wanted();
    stopped_everywhere(
        "kill",
        &["apply"],
        |_| {},
        |place, output, step| {
            assert!(output.status.code().is_none(), "{output:?}");
            place.ends(&["apply"], 0);
            same(&timeless(&place.project()), &wanted, &format!("killed at {step}"));
            place.ends(&["undo"], 0);
            let fresh = Place::new();
            fresh.host(SMALL);
            same(&timeless(&place.project()), &timeless(&fresh.project()), &format!("undone after a kill at {step}"));
        },
    );
}

/// Killed at any of its steps, an undo leaves what was before.
#[test]
fn an_apply_that_was_killed_is_taken_back_by_undo() {
    let fresh = Place::new();
    fresh.host(SMALL);
    let before = timeless(&fresh.project());
    let (wanted, _place) = wanted();
    stopped_everywhere(
        "kill",
        &["apply"],
        |_| {},
        |place, _, step| {
            place.agentbox(&["undo"]);
            same(&timeless(&place.project()), &before, &format!("killed at {step}"));
            place.ends(&["apply"], 0);
            same(&timeless(&place.project()), &wanted, &format!("applied after a kill at {step}"));
        },
    );
}

#[test]
fn an_undo_that_was_killed_is_finished_by_the_next() {
    let fresh = Place::new();
    fresh.host(SMALL);
    let before = timeless(&fresh.project());
    let (wanted, _place) = wanted();
    let prepare = |place: &Place| drop(place.ends(&["apply"], 0));
    stopped_everywhere("kill", &["undo"], prepare, |place, _, step| {
        place.ends(&["undo"], 0);
        same(&timeless(&place.project()), &before, &format!("killed at {step}"));
        place.ends(&["apply"], 0);
        same(&timeless(&place.project()), &wanted, &format!("applied after a kill at {step}"));
    });
}

/// A full disk at any step leaves everything as it was, and the session too.
#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    let (wanted, _place) = wanted();
    stopped_everywhere(
        "enospc",
        &["apply"],
        |_| {},
        |place, output, step| {
            let fresh = Place::new();
            fresh.host(SMALL);
            same(&timeless(&place.project()), &timeless(&fresh.project()), &format!("full at {step}: {output:?}"));
            place.ends(&["apply"], 0);
            same(&timeless(&place.project()), &wanted, &format!("after a full disk at {step}"));
        },
    );
}

/// What policy refuses is left out and named with the flag that would allow it; the rest is applied.
#[test]
fn refused_names_are_left_out_and_named() {
    let place = Place::new();
    place.write("package.json", "{}");
    place.dry(
        "echo x >ok; echo secret >.env; mkfifo pipe; mkdir -p .vscode; echo '{}' >.vscode/tasks.json; ln -s /etc/shadow out
        ln -s ../../../outside far; ln -s ok near; ln -s /usr/bin/env tool; mkdir sub; ln -s ../.. sub/up; ln -s up/up/x sub/two",
    );
    let text = place.ends(&["apply"], 123);
    for (name, why) in [
        ("/p/.env: ", "(grant: --grant "),
        ("/p/pipe: ", "a FIFO"),
        ("/p/out: ", "a symlink that leaves the roots: outside the allowed roots (grant: --ro /etc/shadow)"),
        ("/p/far: ", "a symlink that leaves the roots"),
        ("/p/sub/up: ", "a symlink that leaves the roots"),
        ("/p/sub/two: ", "a symlink that leaves the roots"),
    ] {
        let line =
            text.lines().find(|line| line.contains(&format!("refused: {}", place.0.display())) && line.contains(name));
        assert!(line.is_some_and(|line| line.contains(why)), "{name}: {text}");
        let path = name.trim_start_matches("/p/").trim_end_matches(": ");
        assert!(!place.there(path), "{path}");
    }
    for path in ["ok", "near", "tool", "sub"] {
        assert!(place.there(path), "{path}: {text}");
    }
    assert!(!place.there(".vscode"));
}

/// What the host changed meanwhile stops all of it, until the rest is selected or it is forced; undo brings it back.
#[test]
fn what_the_host_changed_is_a_conflict() {
    let place = Place::new();
    place.host("mkdir d; echo 1 >a; echo 1 >b; echo 1 >d/c; touch -d 2001-01-01 a b d/c; ln b twin; echo 1 >z");
    place.dry("echo 2 >a; echo 2 >d/c; echo 2 >new; echo 2 >b; rm z");
    place.host("echo host >d/c");
    let text = place.ends(&["apply"], 123);
    assert!(text.contains("conflict: ") && text.contains("/p/d/c: changed on the host"), "{text}");
    assert!(text.contains("/p/b: has other names"), "{text}");
    assert_eq!((place.read("a").as_str(), place.there("new"), place.there("z")), ("1\n", false, true));
    place.ends(&["apply", "--only", "a", "--only", "z"], 0);
    assert_eq!((place.read("a").as_str(), place.read("d/c").as_str(), place.there("z")), ("2\n", "host\n", false));
    // The first apply changed the directory that the next makes a name in: that is no conflict.
    place.ends(&["apply", "--only", "new"], 0);
    place.ends(&["apply", "--force"], 0);
    assert_eq!((place.read("d/c").as_str(), place.read("twin").as_str()), ("2\n", "1\n"));
    place.ends(&["undo"], 0);
    assert_eq!((place.read("a").as_str(), place.read("d/c").as_str(), place.there("new")), ("1\n", "host\n", false));
    assert_eq!(fs::metadata(place.file("b")).unwrap().ino(), fs::metadata(place.file("twin")).unwrap().ino());
}

/// What the user changed after an apply stays, and the rest comes back.
#[test]
fn undo_leaves_what_was_changed_since() {
    let place = Place::new();
    place.host("echo 1 >a; echo 1 >b; echo 1 >c");
    place.dry("echo 2 >a; rm b; mkdir n; echo 2 >n/x; echo 2 >c");
    place.ends(&["apply"], 0);
    place.host("echo mine >>a; echo mine >n/mine; rm c");
    let text = place.ends(&["undo"], 123);
    assert!(text.contains("/p/a: was changed since") && text.contains("/p/n: holds names"), "{text}");
    assert_eq!((place.read("a").as_str(), place.read("b").as_str()), ("2\nmine\n", "1\n"));
    assert!(place.there("n/mine") && !place.there("n/x") && !place.there("c"));
}

/// The command removed a directory that holds a name it could not see: that one stays, and so does the way to it.
#[test]
fn hidden_names_stay_where_their_directory_was_removed() {
    let place = Place::new();
    place.host("mkdir -p app/src; echo s >app/.env; echo 1 >app/a; echo 1 >app/src/b");
    place.dry("rm -rf app");
    let text = place.ends(&["apply"], 0);
    assert!(text.contains("kept: ") && text.contains("/p/app/.env"), "{text}");
    assert_eq!(place.read("app/.env"), "s\n");
    assert!(!place.there("app/a") && !place.there("app/src"));
    place.ends(&["undo"], 0);
    assert!(place.there("app/a") && place.there("app/src/b"));
}

/// While the command runs its layer stays as it is.
#[test]
fn apply_works_while_the_command_runs() {
    let place = Place::new();
    place.host("echo 1 >a; mkdir d");
    let (project, out) = (place.project(), place.0.join("out"));
    let script = format!(
        "echo 2 >a; echo 2 >d/n; touch {0}/up; for i in $(seq 500); do [ -e {0}/go ] && break; sleep .02; done; cat a d/n; echo 3 >>a",
        out.display()
    );
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let args =
                ["run", "--dry-run", "-q", "--rw", project.to_str().unwrap(), "--scratch", out.to_str().unwrap()];
            place.agentbox(&[&args[..], &["--", "sh", "-c", &script]].concat())
        });
        while !out.join("up").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        place.ends(&["apply"], 0);
        assert_eq!((place.read("a").as_str(), place.read("d/n").as_str()), ("2\n", "2\n"));
        fs::write(out.join("go"), "").unwrap();
        let ran = run.join().unwrap();
        assert_eq!(ran.stdout, b"2\n2\n", "{ran:?}");
    });
    place.ends(&["apply"], 0);
    assert_eq!(place.read("a"), "2\n3\n");
    place.ends(&["undo"], 0);
    assert_eq!((place.read("a").as_str(), place.there("d/n")), ("1\n", false));
}

/// A layer that a hostile command made by hand: nothing outside of the root is touched.
#[test]
fn a_hostile_layer_touches_nothing_outside() {
    let place = Place::new();
    place.host("mkdir d e; echo 1 >d/x; echo 1 >e/y; echo victim >../out/victim");
    place.dry("echo 2 >d/x; echo 2 >e/y; echo 2 >z");
    let upper = place.upper();
    let out = place.0.join("out");
    // A directory of the layer becomes a link to elsewhere; a file is sent elsewhere; a device; another set-id program.
    fs::remove_dir_all(upper.join("d")).unwrap();
    symlink(&out, upper.join("d")).unwrap();
    let path = upper.join("e/y");
    rustix::fs::setxattr(&path, c"user.overlay.redirect", b"/../out/victim", rustix::fs::XattrFlags::empty()).unwrap();
    fs::write(upper.join("run"), "").unwrap();
    fs::set_permissions(upper.join("run"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(out.join("victim"), upper.join("twin")).unwrap();
    let deep = "n".repeat(200);
    let mut at = upper.clone();
    for _ in 0..3 {
        at = at.join(&deep);
        fs::create_dir(&at).unwrap();
    }
    fs::write(at.join(format!("{}\n", "w".repeat(250))), "deep").unwrap();
    let before = snapshot(&out);
    let text = place.ends(&["apply"], 123);
    assert!(text.contains("/p/d: ") && text.contains("/p/e/y: ") && text.contains("/p/run: a set-id bit"), "{text}");
    same(&snapshot(&out), &before, "outside");
    // What stood in the directory is gone for the command; the link in its place is refused.
    assert_eq!((place.read("e/y").as_str(), place.there("d/x"), place.read("z").as_str()), ("1\n", false, "2\n"));
    assert!(fs::symlink_metadata(place.file("d")).unwrap().is_dir());
    // Another name of a file outside is a copy: writing to it later changes nothing there.
    fs::write(place.file("twin"), "later").unwrap();
    same(&snapshot(&out), &before, "outside, later");
    assert!(place.there(&format!("{deep}/{deep}/{deep}")));
}

/// In a dry run with git the index says of hidden tracked files that they are not checked out. On the host that would hide
/// their changes for good, so such a repository is left as it is; one without hidden tracked files is applied whole.
#[test]
fn a_repository_with_marks_for_hidden_files_stays_as_it_is() {
    let git = "git -c user.name=a -c user.email=a@b";
    for hidden in [true, false] {
        let place = Place::new();
        place.write("a.txt", "one\n");
        if hidden {
            place.write(".env", "secret\n");
        }
        place.host(&format!("git init -q . && git add -A && {git} commit -qm first"));
        let project = place.project();
        let script = format!("echo two >a.txt && {git} commit -qam second");
        let args = ["run", "--dry-run", "-q", "--git", "--rw", project.to_str().unwrap(), "--", "sh", "-c", &script];
        let ran = place.agentbox(&args);
        assert!(ran.status.success(), "{ran:?}");
        let told = place.ends(&["apply"], if hidden { 123 } else { 0 });
        assert_eq!(told.contains("commit there, or run with --live"), hidden, "{told}");
        assert_eq!(place.read("a.txt"), "two\n");
        let log = shell(&project, "git log --format=%s; git ls-files -t; git status --porcelain");
        let log = String::from_utf8(log.stdout).unwrap();
        let wanted = if hidden { "first\nH .env\nH a.txt\n M a.txt\n" } else { "second\nfirst\nH a.txt\n" };
        assert_eq!(log, wanted);
    }
}
