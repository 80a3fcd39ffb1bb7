//! `agentbox why` against what really happens: for paths picked from a real tree, the verdict is compared with the
//! errno of a system call inside, in both modes.

use crate::common::Place;
use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::Path;

const PATHS: usize = 200;

/// xorshift: the same tree again for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).expect("48 bits") % below
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.next(from.len())]
    }
}

const FILES: &[&str] = &[
    "f1",
    "f2.rs",
    ".env",
    ".env.example",
    "x.pem",
    "x.pub",
    ".gitignore",
    "secrets.json",
    "id_rsa",
    "with space",
    "nöm",
    "a.tmp",
];
const DIRS: &[&str] = &["d0", "d1", "d2", ".hid", "node", "credentials"];

/// Three trees (granted rw, granted ro, not granted) with files, directories, and links between all of them.
fn tree(place: &Place, random: &mut Random) -> Vec<String> {
    let mut all = Vec::new();
    let mut dirs = Vec::new();
    for top in ["p", "ref", "out"] {
        let mut level = vec![place.text(top)];
        for _ in 0..3 {
            let mut next = Vec::new();
            for dir in &level {
                for name in FILES.iter().filter(|_| random.next(3) > 0) {
                    let path = format!("{dir}/{name}");
                    std::fs::write(&path, "content\n").unwrap();
                    all.push(path);
                }
                for name in DIRS.iter().filter(|_| random.next(2) > 0) {
                    let path = format!("{dir}/{name}");
                    std::fs::create_dir(&path).unwrap();
                    next.push(path);
                }
            }
            dirs.append(&mut level);
            level = next.into_iter().filter(|_| random.next(3) > 0).collect();
        }
        dirs.extend(level);
    }
    for fixed in
        ["p/d0/f1", "p/d0/.env", "p/d0/in/f1", "p/d1/f1", "ref/d0/f1", "ref/d0/.env", "ref/d1/f1", "out/f1", "out/f2"]
    {
        all.push(place.write(fixed, "content\n").display().to_string());
    }
    for n in 0..40 {
        let at = format!("{}/link{n}", random.pick(&dirs));
        let targets = if random.next(3) > 0 { &all } else { &dirs };
        let to = random.pick(targets).clone();
        if Path::new(&at).parent().unwrap().exists() && std::os::unix::fs::symlink(&to, &at).is_ok() {
            all.push(at.clone());
            if Path::new(&to).is_dir() {
                all.push(format!("{at}/f1"));
            }
        }
    }
    place.symlink("loop", "p/loop");
    place.symlink("/no/such/target", "p/dangling");
    all.extend([place.text("p/loop"), place.text("p/dangling")]);
    all.extend(dirs);
    all
}

/// Paths of every kind: of the tree, spelled in odd ways, not there yet, of the system, of HOME.
fn paths(place: &Place, random: &mut Random) -> Vec<String> {
    let all = tree(place, random);
    place.write("home/.ssh/id_ed25519", "content\n");
    place.write("home/.bashrc", "content\n");
    let mut paths =
        ["/", "/usr/bin/env", "/etc/passwd", "/etc/shadow", "/root", "/home", "/var/log", "/usr/lib", "/boot"]
            .map(str::to_owned)
            .to_vec();
    paths.extend(
        ["home/.ssh/id_ed25519", "home/.bashrc", "p", "ref", "out", "p/sock", "p/d0", "ref/d0", "out/f1"]
            .map(|p| place.text(p)),
    );
    while paths.len() < PATHS {
        let path = random.pick(&all).clone();
        let (dir, name) = path.rsplit_once('/').unwrap();
        paths.push(match random.next(8) {
            0 => format!("{dir}/./{name}"),
            1 => format!("{dir}//../{}/{name}", dir.rsplit_once('/').unwrap().1),
            2 => format!("{dir}/new{}", random.next(3)),
            _ => path,
        });
    }
    paths
}

/// The verdicts by path, of one access.
fn verdicts(
    place: &Place,
    mode: &str,
    policy: &[&str],
    access: &str,
    paths: &[&str],
) -> BTreeMap<String, (bool, String)> {
    let write: &[&str] = if access == "read" { &[] } else { &["--write"] };
    let why = [&["why", "--json"], policy, write, paths].concat();
    let output = place.agentbox(&why);
    let values: Vec<serde_json::Value> = match serde_json::from_str(&output.stdout) {
        Ok(serde_json::Value::Array(values)) => values,
        _ => output.stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect(),
    };
    assert_eq!(values.len(), paths.len(), "one answer a path: {output}");
    let denied = values.iter().any(|value| value["verdict"] == "denied");
    assert_eq!(output.status, i32::from(denied), "{mode} {access}");
    let mut map = BTreeMap::new();
    for (path, value) in paths.iter().zip(&values) {
        let verdict = value["verdict"].as_str().expect("a verdict");
        assert!(["allowed", "denied"].contains(&verdict), "{value}");
        assert!(value["rule"].is_string() && value["access"].is_string() && value["path"].is_string(), "{value}");
        assert!(value.get("remedy").is_some(), "a remedy, or null where no flag grants it: {value}");
        map.insert((*path).to_owned(), (verdict == "allowed", value.to_string()));
    }
    map
}

/// What the host itself answers, without a box: a path that is not there, or a link that leads nowhere, says nothing
/// about the policy.
fn there(path: &str) -> bool {
    std::fs::metadata(path).is_ok()
}

#[test]
fn why_agrees_with_the_kernel() {
    let seed = std::env::var("AGENTBOX_TEST_SEED").map_or(20_260_801, |seed| seed.parse().expect("a number"));
    let mut random = Random(seed);
    let place = Place::new();
    let paths = paths(&place, &mut random);
    let listener = UnixListener::bind(place.path("p/sock")).unwrap();
    let text = |rel: &str| place.text(rel);
    let (p, ro_in_rw, rw_in_ro_in_rw) = (text("p"), text("p/d0"), text("p/d0/in"));
    let (r, rw_in_ro, file, hidden, bin) = (text("ref"), text("ref/d0"), text("out/f1"), text("p/d1"), text("bin"));
    let policy = [
        ["--rw", p.as_str()],
        ["--ro", &ro_in_rw],
        ["--rw", &rw_in_ro_in_rw],
        ["--ro", &r],
        ["--rw", &rw_in_ro],
        ["--ro", &file],
        ["--ro", &bin],
        ["--hide", &hidden],
        ["--hide", "*.tmp"],
        ["--grant", "secrets.json:ro"],
    ]
    .concat();

    let mut differ = Vec::new();
    let mut counts = [0_usize; 2];
    for mode in ["--live", "--dry-run"] {
        for access in ["read", "write"] {
            let asked =
                paths.iter().map(String::as_str).filter(|path| access == "write" || there(path)).collect::<Vec<_>>();
            let verdicts = verdicts(&place, mode, &policy, access, &asked);
            let kind = |path: &str| match (access, there(path)) {
                ("read", _) => "read",
                (_, true) => "write",
                (_, false) => "create",
            };
            let list = asked.iter().map(|path| format!("{} {path}\n", kind(path))).collect::<String>();
            place.write("bin/list", list);
            let (probe, list) = (text("bin/probe"), text("bin/list"));
            let output = place.run(&[&[mode, "-q"], &policy[..]].concat(), &[&probe, "accesses", &list]);
            let answers = output.ok().stdout.lines().collect::<Vec<_>>();
            assert_eq!(answers.len(), asked.len(), "{output}");
            let bare = place.bare(&["accesses", &list]);
            for ((path, answer), bare) in asked.iter().zip(&answers).zip(bare.ok().stdout.lines()) {
                let (allowed, value) = &verdicts[*path];
                let refused = ["ENOENT", "EACCES", "EROFS", "EPERM", "ECONNREFUSED", "EXDEV"].contains(answer);
                if bare != "ok" {
                    continue; // the host refuses it too, whatever the policy says
                }
                if *answer == "ENOENT" && value.contains("private to the box") {
                    continue; // the place is writable, the host's directories on the way are not there
                }
                counts[usize::from(*allowed)] += 1;
                if (*allowed && *answer != "ok") || (!allowed && !refused) {
                    differ.push(format!("{mode} {} {path}: {answer}, but {value}", kind(path)));
                }
            }
        }
    }
    assert!(differ.is_empty(), "seed {seed}: {} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(counts.iter().all(|count| *count > 100), "both verdicts are met often: {counts:?}");
    drop(listener);
}
