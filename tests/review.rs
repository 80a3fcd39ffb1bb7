//! The review of a session on the real kernel: upper layers made by real commands on a real overlay, read, told as a
//! patch, and given to git.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use agentbox::policy::Seen;
use agentbox::session::diff::{Format, Style, render};
use agentbox::session::{
    Counts, FileKind, Kind, Layer, LayerChanges, NewSession, Outcome, Session, State, Store, StoreError, changes,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// A directory of this test alone, gone with it.
fn program() -> PathBuf {
    std::env::var_os("AGENTBOX_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_agentbox").into(), PathBuf::from)
}

struct Temp(PathBuf);

impl Temp {
    fn new() -> Temp {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("agentbox-review-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        fs::create_dir(&dir).unwrap();
        for name in ["root", "out", "pool"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        Temp(dir)
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn store(&self) -> Store {
        Store::open(&self.0.join("state")).unwrap()
    }

    fn session(&self) -> Session {
        self.store().create(&new_session(&self.root())).unwrap()
    }

    /// Runs a script in the merged root of a new session; what it left is copied to `out`.
    fn run(&self, script: impl AsRef<OsStr>) -> Session {
        let session = self.session();
        self.run_in(&session.layers()[0], script);
        session
    }

    fn run_in(&self, layer: &Layer, script: impl AsRef<OsStr>) {
        let setup = "merged=$1/merged; mkdir -p \"$merged\" || exit 90
            mount -t overlay overlay -o \"userxattr,lowerdir=$2,upperdir=$3,workdir=$4\" \"$merged\" || exit 91
            cd \"$merged\" || exit 92
            sh -c \"$5\"
            cp -a \"$merged/.\" \"$1/out\" || exit 93";
        let run = Command::new("unshare")
            .args(["-Urm", "sh", "-c", setup, "sh"])
            .args([self.0.as_os_str(), layer.root.as_os_str(), layer.upper.as_os_str(), layer.work.as_os_str()])
            .arg(script)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        // A session's layers hold directories of mode 000.
        Command::new("chmod").arg("-R").arg("u+rwx").arg(&self.0).output().unwrap();
        Command::new("rm").arg("-rf").arg(&self.0).output().unwrap();
    }
}

fn new_session(root: &Path) -> NewSession {
    NewSession {
        mode: agentbox::policy::Mode::DryRun,
        command: vec!["true".into()],
        profiles: vec!["default".into()],
        roots: vec![root.to_path_buf()],
        policy: serde_json::value::to_raw_value(&serde_json::json!({})).unwrap(),
        created: SystemTime::now(),
    }
}

fn read(session: &Session) -> LayerChanges {
    changes::read(&session.layers()[0], &|_, _| Seen::Open).unwrap()
}

/// Hides dotfiles, as the default policy does.
fn read_hiding(session: &Session) -> LayerChanges {
    let hidden = |path: &Path, _: bool| match path.file_name() {
        Some(name) if name.as_bytes().starts_with(b".") => Seen::Hidden,
        _ => Seen::Open,
    };
    changes::read(&session.layers()[0], &hidden).unwrap()
}

fn told(layer: &LayerChanges) -> Vec<(Kind, &str)> {
    layer.changes.iter().map(|change| (change.kind, change.path.to_str().unwrap())).collect()
}

fn text(layers: &[LayerChanges], style: Style) -> String {
    let mut out = Vec::new();
    render(layers, style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn full(layer: LayerChanges) -> String {
    text(&[layer], Style::plain(Format::Full))
}

fn git_apply(dir: &Path, patch: &Path, check: bool) -> Output {
    let mut git = Command::new("git");
    git.current_dir(dir).env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap()).env("GIT_CONFIG_GLOBAL", "/dev/null");
    git.args(["apply", "--whitespace=nowarn"]).args(check.then_some("--check")).arg(patch).output().unwrap()
}

/// Every file and symlink below a directory: what git knows of it.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (char, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().to_path_buf();
            if meta.is_dir() {
                todo.push(path);
            } else if meta.is_symlink() {
                found.insert(name, ('l', fs::read_link(&path).unwrap().into_os_string().into_vec()));
            } else {
                let kind = if meta.permissions().mode() & 0o100 != 0 { 'x' } else { 'f' };
                found.insert(name, (kind, fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// The patch of what ran, taken by git in the root and in a copy of it, gives what the command saw at its end.
/// Says whether there was anything to take.
fn assert_patch_gives_the_merged_tree(temp: &Temp, session: &Session, what: &dyn std::fmt::Debug) -> bool {
    let layer = read(session);
    assert!(layer.refused.is_empty() && layer.kept.is_empty(), "{what:?}: {layer:?}");
    let replaces_a_link = layer.changes.iter().any(|change| {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
        matches!(old.kind, FileKind::Symlink(_)) && new.is_dir()
    });
    let mut patch = Vec::new();
    render(&[layer], Style::plain(Format::Full), &mut patch).unwrap();
    let file = temp.0.join("patch");
    fs::write(&file, &patch).unwrap();
    let copy = temp.0.join("copy");
    assert!(Command::new("cp").arg("-a").arg(temp.root()).arg(&copy).status().unwrap().success());
    let any = patch.windows(10).any(|at| at == b"diff --git");
    if any {
        let told = || String::from_utf8_lossy(&patch).into_owned();
        let check = git_apply(&temp.root(), &file, true);
        // Where a directory takes the place of a symlink, git looks for the new names through the old link, and gives
        // up when that leads to itself or over another link.
        let said = String::from_utf8_lossy(&check.stderr);
        let limits = ["Too many levels of symbolic links", "is beyond a symbolic link"];
        if replaces_a_link && limits.iter().any(|limit| said.contains(limit)) {
            return false;
        }
        assert!(check.status.success(), "{what:?}: {check:?}\n{}", told());
        let apply = git_apply(&copy, &file, false);
        assert!(apply.status.success(), "{what:?}: {apply:?}\n{}", told());
    }
    let (got, wanted) = (snapshot(&copy), snapshot(&temp.0.join("out")));
    for name in got.keys().chain(wanted.keys()) {
        assert_eq!(got.get(name), wanted.get(name), "{what:?}: {name:?}\n{}", String::from_utf8_lossy(&patch));
    }
    any
}

#[test]
fn kinds_of_changes() {
    let temp = Temp::new();
    for (path, content) in [("keep", "k\n"), ("edit", "one\ntwo\n"), ("gone", "g\n"), ("mode", "m\n"), ("turn", "t\n")]
    {
        temp.file(path, content);
    }
    temp.file("dir/a", "a\n");
    temp.file("dir/sub/b", "b\n");
    temp.file("opaque/old", "o\n");
    temp.file("opaque/both", "same\n");
    symlink("keep", temp.root().join("link")).unwrap();
    let session = temp.run(
        "touch keep; echo three >> edit; rm gone; chmod 755 mode; rm turn; ln -s edit turn; rm -rf dir
        rm -rf opaque; mkdir opaque; echo same > opaque/both; echo n > opaque/new; ln -sfn edit link
        mkdir empty; : > blank; mkfifo pipe",
    );
    let layer = read(&session);
    assert_eq!(
        told(&layer),
        [
            (Kind::Created, "blank"),
            (Kind::Deleted, "dir"),
            (Kind::Deleted, "dir/a"),
            (Kind::Deleted, "dir/sub"),
            (Kind::Deleted, "dir/sub/b"),
            (Kind::Modified, "edit"),
            (Kind::Created, "empty"),
            (Kind::Deleted, "gone"),
            (Kind::Modified, "link"),
            (Kind::ModeChanged, "mode"),
            (Kind::Created, "opaque/new"),
            (Kind::Deleted, "opaque/old"),
            (Kind::Created, "pipe"),
            (Kind::TypeChanged, "turn"),
        ]
    );
    let turn = layer.changes.last().unwrap();
    assert_eq!(turn.old.as_ref().unwrap().kind, FileKind::File);
    assert_eq!(turn.new.as_ref().unwrap().kind, FileKind::Symlink("edit".into()));
    assert_eq!(Counts::of(&[layer]), Counts { created: 4, modified: 4, deleted: 6, kept: 0, refused: 0 });
    let patch = full(read(&session));
    let at = |line: &str| patch.find(line).unwrap_or_else(|| panic!("{line} in\n{patch}"));
    assert!(at("deleted file mode 100644\n--- a/turn") < at("diff --git a/blank b/blank\nnew file mode 100644\n"));
    at("diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n");
    at("new file mode 120000\n--- /dev/null\n+++ b/turn\n@@ -0,0 +1 @@\n+edit\n\\ No newline at end of file\n");
    at("# directory created: empty\n");
    at("# fifo created: pipe");
    assert!(!patch.contains("keep b/keep"), "{patch}");
    assert!(!patch.contains("# root:"), "{patch}");
}

#[test]
fn nothing_changed_says_nothing() {
    let temp = Temp::new();
    temp.file("a", "a\n");
    let session = temp.run("touch a; cat a; echo b > b; rm b; mkdir d; rmdir d");
    let layer = read(&session);
    assert!(layer.is_empty(), "{layer:?}");
    assert_eq!(full(layer), "");
}

#[test]
fn names_as_git_quotes_them_and_every_line_end() {
    let temp = Temp::new();
    let names: [&[u8]; 10] = [
        b"with space",
        b"tab\there",
        b"new\nline",
        b"quo\"te",
        b"back\\slash",
        "h\u{e9}llo \u{2603}".as_bytes(),
        b"\xff\xfebytes",
        b" lead",
        b"trail ",
        b"a b/a b",
    ];
    let mut script = OsString::new();
    for (n, name) in names.iter().enumerate() {
        let path = temp.root().join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, if n % 2 == 0 { "no end" } else { "one\r\ntwo\r\n" }).unwrap();
        let name = quoted(name);
        let step = match n % 4 {
            0 => [b"chmod +x ".as_slice(), &name, b"\n"].concat(),
            1 => [b"printf 'three\\rfour' >> ".as_slice(), &name, b"\n"].concat(),
            2 => [b"rm ".as_slice(), &name, b"\n"].concat(),
            _ => [
                b"cp ".as_slice(),
                &name,
                b" ",
                &name,
                b".new; mv ",
                &name,
                b" moved-",
                &n.to_string().into_bytes(),
                b"\n",
            ]
            .concat(),
        };
        script.push(OsString::from_vec(step));
    }
    let session = temp.run(&script);
    assert!(assert_patch_gives_the_merged_tree(&temp, &session, &"names"));
}

fn quoted(name: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in name {
        if *byte == b'\'' { out.extend(b"'\\''") } else { out.push(*byte) }
    }
    out.push(b'\'');
    out
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn pick(&mut self, list: &[&'static [u8]]) -> &'static [u8] {
        list[self.below(list.len())]
    }
}

#[test]
fn random_trees_and_commands() {
    let mut patches = 0;
    for seed in 0..24 {
        let temp = Temp::new();
        let mut random = Random(seed * 7919 + 1);
        let script = random_tree_and_script(&temp, &mut random);
        let session = temp.run(&script);
        patches += u32::from(assert_patch_gives_the_merged_tree(&temp, &session, &script));
    }
    assert!(patches >= 20, "only {patches} of 24 runs changed anything");
}

const NAMES: [&[u8]; 9] = [b"a", b"b.txt", b"c d", b"e\tf", b"g\"h", b"i\nj", "\u{fc}".as_bytes(), b"\xfe", b"k'l"];

fn random_text(random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..random.below(30) {
        let line: &[u8] =
            random.pick(&[b"one\n", b"two\n", b"three\r\n", b"\n", b"fo\x1bur\n", b"-- x\n", b"\\ y\n", b"\xff\xfe\n"]);
        text.extend(line);
    }
    if random.below(3) == 0 {
        text.extend(b"last");
    }
    text
}

fn random_path(random: &mut Random) -> Vec<u8> {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| random.pick(&NAMES)).collect::<Vec<_>>().join(&b'/')
}

fn random_tree_and_script(temp: &Temp, random: &mut Random) -> OsString {
    for n in 0..6 {
        fs::write(temp.0.join(format!("pool/{n}")), random_text(random)).unwrap();
    }
    for _ in 0..40 {
        let path = temp.root().join(OsStr::from_bytes(&random_path(random)));
        // A name that is already a file cannot hold more.
        if fs::create_dir_all(path.parent().unwrap()).is_err() || fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        if random.below(6) == 0 {
            symlink(OsStr::from_bytes(random.pick(&NAMES)), &path).unwrap();
        } else {
            fs::write(&path, random_text(random)).unwrap();
            let mode = if random.below(4) == 0 { 0o755 } else { 0o644 };
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
    }
    let mut script = Vec::new();
    for _ in 0..30 {
        let (path, other) = (quoted(&random_path(random)), quoted(&random_path(random)));
        let pool = quoted(temp.0.join(format!("pool/{}", random.below(6))).as_os_str().as_bytes());
        let join = |parts: &[&[u8]]| parts.concat();
        let step = match random.below(12) {
            0 => join(&[b"echo more >> ", &path]),
            1 => join(&[b"cp ", &pool, b" ", &path]),
            2 => join(&[b"rm -rf ", &path]),
            3 => join(&[b"rm -rf ", &path, b"; mkdir ", &path, b" && cp ", &pool, b" ", &path, b"/a"]),
            4 => join(&[b"ln -sfn ", &quoted(random.pick(&NAMES)), b" ", &path]),
            5 => join(&[b"test -f ", &path, b" -a ! -h ", &path, b" && chmod +x ", &path]),
            6 => join(&[b"test -f ", &path, b" -a ! -h ", &path, b" && chmod -x ", &path]),
            7 => join(&[b"mv -T ", &path, b" ", &other]),
            8 => join(&[b"touch -h ", &path]),
            9 => join(&[b"rm -rf ", &path, b"; cp ", &pool, b" ", &path]),
            10 => join(&[b"sed -i 2d ", &path]),
            _ => join(&[b"mkdir -p ", &path, b" && cp ", &pool, b" ", &path, b"/b.txt"]),
        };
        script.extend(step);
        script.push(b'\n');
    }
    OsString::from_vec(script)
}

#[test]
fn hidden_names_below_a_removed_directory_are_kept() {
    let temp = Temp::new();
    temp.file("app/.env", "SECRET=1\n");
    temp.file("app/main.js", "x\n");
    temp.file("app/src/lib.js", "y\n");
    temp.file("other/.env", "SECRET=2\n");
    temp.file("other/old.js", "z\n");
    temp.file("file/.env", "SECRET=3\n");
    temp.file(".own", "SECRET=4\n");
    let session = temp.run("rm -rf app other file; mkdir other; echo f > file; echo mine > .own; echo new > .new");
    let layer = read_hiding(&session);
    let kept: Vec<&Path> = layer.kept.iter().map(PathBuf::as_path).collect();
    assert_eq!(kept, [Path::new("app/.env"), Path::new("file/.env"), Path::new("other/.env")]);
    assert_eq!(
        told(&layer),
        [
            (Kind::Created, ".new"),
            (Kind::Deleted, "app/main.js"),
            (Kind::Deleted, "app/src"),
            (Kind::Deleted, "app/src/lib.js"),
            (Kind::Deleted, "other/old.js"),
        ]
    );
    let refused: Vec<&Path> = layer.refused.iter().map(|remark| remark.path.as_path()).collect();
    assert_eq!(refused, [Path::new(".own"), Path::new("file")]);
    let patch = full(layer);
    assert!(patch.contains("# kept: app/.env (hidden from the command)\n"), "{patch}");
    assert!(!patch.contains("SECRET"), "{patch}");
    // The twin: with nothing hidden, the same layer tells of everything.
    assert!(full(read(&session)).contains("-SECRET=1"));
}

#[test]
fn a_whiteout_at_a_hidden_name_is_no_deletion() {
    let temp = Temp::new();
    temp.file(".env", "SECRET\n");
    temp.file("d/.env", "SECRET\n");
    let session = temp.run("rm .env d/.env");
    assert!(read_hiding(&session).is_empty());
    assert_eq!(told(&read(&session)), [(Kind::Deleted, ".env"), (Kind::Deleted, "d/.env")]);
}

#[test]
fn foreign_marks_of_overlayfs_are_refused() {
    let temp = Temp::new();
    temp.file("a", "a\n");
    temp.file("d/x", "x\n");
    temp.file("own", "o\n");
    let session = temp.run("echo b >> a; echo y >> d/x; touch own");
    let upper = &session.layers()[0].upper;
    let set = |path: &str, name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(upper.join(path), name, value, flags).unwrap();
    };
    set("a", "user.overlay.metacopy", b"");
    set("d", "user.overlay.redirect", b"/etc");
    set("own", "user.overlay.overlay.redirect", b"mine");
    let layer = read(&session);
    assert_eq!(told(&layer), []);
    let refused: Vec<(&Path, bool)> =
        layer.refused.iter().map(|remark| (remark.path.as_path(), remark.text.contains("user.overlay."))).collect();
    assert_eq!(refused, [(Path::new("a"), true), (Path::new("d"), true)]);
    assert_eq!(layer.notes.len(), 1);
    assert_eq!(layer.notes[0].text, "extended attributes changed: user.overlay.redirect");
}

#[test]
fn binary_large_and_unreadable_files_are_named() {
    let temp = Temp::new();
    temp.file("bin", "a\0b");
    temp.file("locked", "x\n");
    temp.file("tool", "\x7fELF\0");
    let session = temp.run(
        "chmod +x tool; printf 'a\\0cc' > bin; head -c 9000000 /dev/zero | tr '\\0' x > large; echo yy > locked; chmod 000 locked",
    );
    let patch = full(read(&session));
    assert!(patch.contains("# binary: bin (3 -> 4 bytes)\n"), "{patch}");
    assert!(patch.contains("# large created: large (0 -> 9000000 bytes) (mode 0644)\n"), "{patch}");
    assert!(patch.contains("diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n"), "{patch}");
    if rustix::process::geteuid().is_root() {
        assert!(patch.contains("# mode: locked: 0644 -> 0000\n"), "{patch}");
    } else {
        assert!(patch.contains("# unreadable: locked (2 -> 3 bytes) (mode 0644 -> 0000)\n"), "{patch}");
    }
    assert!(patch.len() < 1000, "{patch}");
}

#[test]
fn content_cannot_drive_a_terminal() {
    let temp = Temp::new();
    temp.file("a", "one\n");
    let session = temp.run("printf 'x\\033[2Jy\\r\\n' >> a");
    let style = Style { terminal: true, ..Style::plain(Format::Full) };
    assert!(text(&[read(&session)], style).contains("+x\\x1b[2Jy\\x0d\n"));
    assert!(full(read(&session)).contains("+x\x1b[2Jy\r\n"));
    let style = Style { terminal: true, color: true, ..style };
    assert!(text(&[read(&session)], style).contains("\x1b[32m+x\\x1b[2Jy\\x0d\x1b[m\n"));
}

#[test]
fn other_forms() {
    let temp = Temp::new();
    temp.file("a", "one\ntwo\n");
    temp.file("b", "x\n");
    let session = temp.run("echo three >> a; rm b; printf '\\0' > n\u{e9}w");
    let stat = text(&[read(&session)], Style::plain(Format::Stat));
    assert_eq!(
        stat,
        " b            | 1 -\n a            | 1 +\n \"n\\303\\251w\" | Bin 0 -> 1 bytes\n 3 files changed, 1 insertion(+), 1 deletion(-)\n"
    );
    let names = text(&[read(&session)], Style::plain(Format::NameOnly { nul: false }));
    assert_eq!(names, "a\nb\n\"n\\303\\251w\"\n");
    let names = text(&[read(&session)], Style::plain(Format::NameOnly { nul: true }));
    assert_eq!(names, "a\0b\0n\u{e9}w\0");
    let json: serde_json::Value = serde_json::from_str(&text(&[read(&session)], Style::plain(Format::Json))).unwrap();
    assert_eq!(json["version"], 1);
    let changes = &json["roots"][0]["changes"];
    assert_eq!(changes[0]["path"], "a");
    assert_eq!(changes[0]["added"], 1);
    assert_eq!(changes[1]["kind"], "deleted");
    assert_eq!(changes[1]["old"]["mode"], "0644");
    assert_eq!(changes[2]["not_shown"], "binary");
}

#[test]
fn several_roots_have_a_section_each() {
    let temp = Temp::new();
    let other = temp.0.join("other root");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("f"), "f\n").unwrap();
    temp.file("f", "f\n");
    let new = NewSession { roots: vec![temp.root(), other.clone()], ..new_session(&temp.root()) };
    let session = temp.store().create(&new).unwrap();
    for layer in session.layers() {
        temp.run_in(layer, "echo g >> f");
    }
    let layers: Vec<LayerChanges> =
        session.layers().iter().map(|layer| changes::read(layer, &|_, _| Seen::Open).unwrap()).collect();
    let patch = text(&layers, Style::plain(Format::Full));
    let first = patch.find(&format!("# root: {}\n", temp.root().display())).unwrap();
    let second = patch.find(&format!("# root: {}\n", other.display())).unwrap();
    assert!(first < second);
    assert_eq!(patch.matches("diff --git a/f b/f\n").count(), 2);
}

#[test]
fn as_deep_as_the_kernel_allows() {
    let temp = Temp::new();
    let session = temp.session();
    // One level at a time: no path of this length can be named at once.
    let flags = rustix::fs::OFlags::DIRECTORY;
    let mut dir = rustix::fs::open(&session.layers()[0].upper, flags, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&dir, "d", rustix::fs::Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "d", flags, rustix::fs::Mode::empty()).unwrap();
    }
    drop(dir);
    let layer = read(&session);
    assert!(layer.changes.len() > 2000, "{}", layer.changes.len());
    assert!(layer.refused.len() == 1, "{:?}", layer.refused);
    let id = session.id().to_owned();
    drop(session);
    let store = temp.store();
    store.remove(&store.find(Some(&id), &temp.root()).unwrap()).unwrap();
    assert!(fs::read_dir(store.dir()).unwrap().next().is_none());
}

#[test]
fn the_store_keeps_what_it_was_given() {
    let temp = Temp::new();
    let store = temp.store();
    assert_eq!(fs::metadata(temp.0.join("state")).unwrap().permissions().mode() & 0o7777, 0o700);
    fs::set_permissions(temp.root(), PermissionsExt::from_mode(0o2751)).unwrap();
    let odd = OsString::from_vec(b"\xff\n\"x".to_vec());
    let new = NewSession { command: vec!["sh".into(), odd.clone()], ..new_session(&temp.root()) };
    let mut session = store.create(&new).unwrap();
    let layer = &session.layers()[0];
    assert_eq!(fs::metadata(&layer.upper).unwrap().permissions().mode() & 0o7777, 0o2751);
    assert!(fs::symlink_metadata(&layer.work).unwrap().is_dir());
    let id = session.id().to_owned();
    let found = store.find(Some(&id[..9]), Path::new("/")).unwrap();
    assert_eq!((found.id.as_str(), &found.state), (id.as_str(), &State::Running));
    assert_eq!(found.layers(), session.layers());
    assert!(matches!(store.remove(&found), Err(StoreError::Running { .. })));
    session.finish(Outcome { status: 3, counts: Counts { created: 1, ..Counts::default() } }).unwrap();
    drop(session);
    let found = store.find(None, &temp.root().join("below")).unwrap();
    assert_eq!(found.state, State::Pending);
    let record = found.record.as_ref().unwrap();
    assert_eq!(record.command, ["sh".into(), odd]);
    assert_eq!(record.outcome.unwrap().status, 3);
    assert!(matches!(store.find(None, &temp.0), Err(StoreError::NoneHere { .. })));
    assert!(matches!(store.find(Some("zz"), &temp.0), Err(StoreError::Unknown { .. })));
    store.remove(&found).unwrap();
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn the_latest_session_of_the_project_is_the_one_meant() {
    let temp = Temp::new();
    let store = temp.store();
    let other = temp.0.join("out");
    let ago = |secs: u64| SystemTime::now() - Duration::from_secs(secs);
    let make = |root: &Path, created| {
        let session = store.create(&NewSession { created, ..new_session(root) }).unwrap();
        session.id().to_owned()
    };
    let (_old, new) = (make(&temp.root(), ago(90)), make(&temp.root(), ago(30)));
    let elsewhere = make(&other, ago(1));
    assert_eq!(store.find(None, &temp.root()).unwrap().id, new);
    assert_eq!(store.find(None, &temp.root()).unwrap().state, State::Interrupted);
    assert_eq!(store.find(None, &other).unwrap().id, elsewhere);
    // Of seventeen ids two begin with the same digit.
    let ids: Vec<String> = (0..17).map(|_| make(&other, ago(1))).collect();
    let same = |digit: &str| ids.iter().filter(|id| id.starts_with(digit)).count();
    let shared = ids.iter().map(|id| &id[..1]).find(|digit| same(digit) > 1).unwrap();
    assert!(matches!(store.find(Some(shared), &other), Err(StoreError::Ambiguous { ids, .. }) if ids.len() > 1));
    assert_eq!(store.find(Some(&ids[3][..9]), &other).unwrap().id, ids[3]);
}

#[test]
fn broken_sessions_are_listed_and_discarded() {
    let temp = Temp::new();
    let store = temp.store();
    let target = temp.0.join("pool");
    for (name, record) in [("0001", None), ("0002", Some("{")), ("0003", Some("{\"version\":9}")), (".new-0004", None)]
    {
        fs::create_dir(store.dir().join(name)).unwrap();
        if let Some(record) = record {
            fs::write(store.dir().join(name).join("session.json"), record).unwrap();
        }
    }
    symlink(&target, store.dir().join("0005")).unwrap();
    fs::create_dir_all(store.dir().join("0001/layers/0/work/work")).unwrap();
    fs::set_permissions(store.dir().join("0001/layers/0/work/work"), PermissionsExt::from_mode(0o000)).unwrap();
    symlink(&target, store.dir().join("0001/link")).unwrap();
    fs::write(target.join("stays"), "").unwrap();
    let list = store.list().unwrap();
    assert_eq!(list.len(), 5);
    for stored in list {
        assert!(matches!(stored.state, State::Broken(_)), "{stored:?}");
        store.remove(&stored).unwrap();
    }
    assert!(store.list().unwrap().is_empty());
    fs::symlink_metadata(target.join("stays")).unwrap();
}

#[test]
fn discarding_copes_with_what_a_command_leaves() {
    let temp = Temp::new();
    temp.file("d/a", "a\n");
    temp.file("e/b", "b\n");
    let session = temp.run("echo x > d/new; chmod 555 d; mkdir f; echo y > f/g; chmod 000 f; rm -rf e; ln -s / up");
    session.discard().unwrap();
    assert!(temp.store().list().unwrap().is_empty());
}

#[test]
fn a_state_directory_of_others_is_refused() {
    let temp = Temp::new();
    symlink(temp.0.join("pool"), temp.0.join("link")).unwrap();
    assert!(matches!(Store::open(&temp.0.join("link")), Err(StoreError::NotADirectory { .. })));
    fs::set_permissions(temp.0.join("pool"), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(Store::open(&temp.0.join("pool")), Err(StoreError::Loose { .. })));
    let foreign = if rustix::process::geteuid().is_root() {
        let nobody = temp.0.join("nobody");
        fs::create_dir(&nobody).unwrap();
        std::os::unix::fs::chown(&nobody, Some(65534), None).unwrap();
        nobody
    } else {
        PathBuf::from("/usr")
    };
    assert!(matches!(Store::open(&foreign), Err(StoreError::Foreign { .. })));
}

struct Cli<'a>(&'a Temp);

impl Cli<'_> {
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let run = Command::new(program())
            .args(args)
            .current_dir(self.0.root())
            .env("XDG_STATE_HOME", self.0.0.join("xdg"))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.code().unwrap(), text(run.stdout), text(run.stderr))
    }
}

#[test]
fn the_command_line() {
    let temp = Temp::new();
    temp.file("a", "a\n");
    temp.file("d/b", "b\n");
    let cli = Cli(&temp);
    assert_eq!(cli.run(&["sessions"]), (0, String::new(), String::new()));
    let (status, out, err) = cli.run(&["diff"]);
    assert_eq!((status, out.as_str()), (2, ""));
    let root = temp.root();
    assert_eq!(
        err,
        format!(
            "agentbox: no session with a writable root at or above {}\nagentbox: hint: name a session; agentbox sessions lists them\n",
            root.display()
        )
    );
    assert!(fs::symlink_metadata(temp.0.join("xdg")).is_err(), "looking made a state directory");

    let store = Store::open(&temp.0.join("xdg/agentbox")).unwrap();
    let mut session = store.create(&new_session(&root)).unwrap();
    temp.run_in(&session.layers()[0], "echo x >> a; rm d/b");
    let id = session.id().to_owned();
    let running = cli.run(&["diff"]);
    assert_eq!(running.0, 0);
    assert!(running.1.contains("diff --git a/d/b b/d/b\ndeleted file mode 100644\n"), "{}", running.1);
    let (status, _, err) = cli.run(&["discard"]);
    assert_eq!(
        (status, err),
        (2, format!("agentbox: session {id} is running\nagentbox: hint: end its command first\n"))
    );
    let counts = Counts { created: 0, modified: 1, deleted: 1, kept: 0, refused: 0 };
    session.finish(Outcome { status: 0, counts }).unwrap();
    drop(session);

    assert_eq!(cli.run(&["diff", &id]), running);
    assert_eq!(cli.run(&["diff", &id[..9], "--name-only", "--", "d"]).1, "d/b\n");
    assert_eq!(cli.run(&["diff", "--name-only", "--", "a", "nowhere"]).1, "a\n");
    let (_, line, _) = cli.run(&["sessions"]);
    assert!(line.starts_with(&id) && line.ends_with("pending      dry-run  default  +0 ~1 -1  true\n"), "{line}");
    let json: serde_json::Value = serde_json::from_str(&cli.run(&["sessions", "--json"]).1).unwrap();
    assert_eq!(json["sessions"][0]["id"], id.as_str());
    assert_eq!(json["sessions"][0]["counts"]["deleted"], 1);
    assert_eq!(cli.run(&["discard", &id, "zz"]).0, 2);
    assert_eq!(cli.run(&["discard", &id]), (0, String::new(), format!("agentbox: discarded session {id}\n")));
    assert_eq!(cli.run(&["sessions"]).1, "");
    assert_eq!(fs::read(root.join("a")).unwrap(), b"a\n");
    // Nobody reads on: no error, no panic.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut closed = Command::new(program());
    closed.args(["sessions", "--json"]).env("XDG_STATE_HOME", temp.0.join("xdg")).stdout(writer);
    let closed = closed.output().unwrap();
    assert!(closed.status.success() && closed.stderr.is_empty(), "{closed:?}");
}
