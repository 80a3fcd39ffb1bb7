//! The rooms of `src/` and what each may import, held against the code; the same for foreign crates and for `unsafe`.
//! The table is in `docs/architecture.md`, and here until that page has it.

use crate::common::source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Room, and the rooms that it may import.
const ROOMS: &str = "
| room | may import |
|---|---|
| cli | report session watch net enforce plan policy profile host path |
| report | session plan policy path |
| session | enforce watch net plan policy path sys |
| watch | policy path sys |
| net | policy sys |
| enforce | plan path sys |
| plan | policy host path |
| policy | profile host path |
| profile | path |
| host | sys path |
| path | sys |
| sys | |
";

/// Foreign crates and the rooms that own them. A crate that is not here may be used anywhere.
const CRATES: &[(&str, &[&str])] = &[
    ("clap", &["cli"]),
    ("anyhow", &["cli", "session"]),
    ("libc", &["sys", "path", "enforce", "host", "session"]),
    ("landlock", &["enforce"]),
    ("seccompiler", &["enforce"]),
    ("caps", &["enforce"]),
    ("toml", &["profile"]),
    ("strsim", &["profile"]),
    ("similar", &["session"]),
    ("globset", &["path", "profile"]),
];

type Table = BTreeMap<String, Vec<String>>;

/// The modules of each room, some of which bear the name of a crate.
type Modules = BTreeSet<(String, String)>;

/// Every room keeps to the table.
#[test]
fn rooms_import_what_they_may() {
    let Some(dir) = source() else { return };
    let table = std::fs::read_to_string(dir.join("docs/architecture.md")).map_or_else(
        |_| table(ROOMS),
        |page| {
            let from_page = table(&page);
            if from_page.is_empty() { table(ROOMS) } else { from_page }
        },
    );
    let files = files(&dir.join("src"));
    assert!(files.len() > 10, "the sources are there");
    for room in files.iter().filter_map(|(path, _)| room_of(path)) {
        assert!(table.contains_key(&room), "the room {room} is not in the table");
    }
    let modules = files.iter().filter_map(|(path, _)| Some((room_of(path)?, module_of(path)?))).collect::<Modules>();
    let found = files.iter().flat_map(|(path, text)| violations(path, text, &table, &modules)).collect::<Vec<_>>();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The checker sees what it is for.
#[test]
fn the_checker_can_fail() {
    let table = table(ROOMS);
    let modules = Modules::from([("plan".to_owned(), "landlock".to_owned())]);
    let of = |path: &str, text: &str| violations(Path::new(path), text, &table, &modules);
    let wrong = [
        ("path/resolve.rs", "use crate::policy::Policy;"),
        ("path/mod.rs", "pub use crate::policy;"),
        ("cli/run.rs", "use crate::{plan::Plan, sys::clone};"),
        ("cli/run.rs", "use crate::{\n    plan::{self, Plan},\n    sys,\n};"),
        ("net/mod.rs", "fn f() { crate::session::run() }"),
        ("plan/mod.rs", "use libc::c_int;"),
        ("plan/mod.rs", "fn f() { libc::getpid(); }"),
        ("policy/mod.rs", "fn f() { landlock::rules() }"),
        ("policy/mod.rs", "use clap::Parser;"),
        ("enforce/mod.rs", "fn f() { unsafe { g() } }"),
        ("enforce/mod.rs", "use super::super::session::Session;"),
    ];
    for (path, text) in wrong {
        assert_eq!(of(path, text).len(), 1, "{path}: {text}: {:?}", of(path, text));
    }
    let right = [
        ("path/resolve.rs", "use crate::sys;\nuse crate::path::Guest;"),
        ("cli/run.rs", "use crate::{plan::Plan, session};"),
        ("sys/clone.rs", "// SAFETY: nothing\nunsafe { libc::getpid() }"),
        ("plan/mod.rs", "// crate::session is above\n/// as unsafe as libc::system\nlet x = \"use crate::session\";"),
        ("lib.rs", "pub mod sys;"),
        ("plan/compile.rs", "use super::landlock;\nfn f() { landlock::rules() }"),
    ];
    for (path, text) in right {
        assert_eq!(of(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

/// What one file does that it may not.
fn violations(path: &Path, text: &str, table: &Table, modules: &Modules) -> Vec<String> {
    let Some(room) = room_of(path) else { return Vec::new() };
    let code = code(text);
    let mut found = Vec::new();
    let mut imported = imports(&code, "crate::");
    imported.extend(imports(&code, "super::super::").into_iter().filter(|name| table.contains_key(name)));
    imported.sort();
    imported.dedup();
    for other in imported {
        let allowed = table.get(&room).is_some_and(|allowed| allowed.contains(&other));
        if other != room && !allowed && table.contains_key(&other) {
            found.push(format!("{}: {room} imports {other}", path.display()));
        }
    }
    for (name, owners) in CRATES {
        if uses_crate(&code, name)
            && !modules.contains(&(room.clone(), (*name).to_owned()))
            && !owners.contains(&room.as_str())
        {
            found.push(format!("{}: {name} belongs to {}", path.display(), owners.join(", ")));
        }
    }
    if words(&code).any(|word| word == "unsafe") && room != "sys" {
        found.push(format!("{}: unsafe belongs to sys", path.display()));
    }
    found
}

/// The names right below `prefix`: `crate::a::b`, `crate::{a, b::c}`, `crate::{a::{x, y}, b}`.
fn imports(code: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1_u32;
            let mut flat = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ if depth == 1 => flat.push(c),
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            names.extend(flat.split(',').map(|part| first_word(part.trim())));
        } else {
            names.push(first_word(rest));
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Whether a path in the code starts with this crate.
fn uses_crate(code: &str, name: &str) -> bool {
    let prefix = format!("{name}::");
    code.match_indices(&prefix).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The text without comments, string contents and unit tests at the end of a file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let mut code = String::new();
    for line in text.lines() {
        let mut quoted = false;
        let mut previous = ' ';
        for c in line.chars() {
            match c {
                '"' if previous != '\\' && previous != '\'' => quoted = !quoted,
                '/' if previous == '/' && !quoted => {
                    code.pop();
                    break;
                }
                _ if quoted => {}
                c => code.push(c),
            }
            previous = c;
        }
        code.push('\n');
    }
    code
}

/// `src/ROOM.rs` and everything in `src/ROOM/`; `lib.rs` and `main.rs` are none.
fn room_of(path: &Path) -> Option<String> {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let first = parts.next()?;
    let room = first.strip_suffix(".rs").unwrap_or(&first).to_owned();
    (!["lib", "main"].contains(&room.as_str())).then_some(room)
}

/// The module that a file below a room is.
fn module_of(path: &Path) -> Option<String> {
    let inside = path.parent().is_some_and(|parent| parent != Path::new(""));
    inside.then(|| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
}

/// A Markdown table whose columns `room` and `may import` are named so. Words that are no room (commas, code marks)
/// are skipped; `all below but X` means every room but this one and X.
fn table(page: &str) -> Table {
    let cells =
        |line: &str| line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut rows = Vec::new();
    let mut columns = None;
    for line in page.lines() {
        let row = cells(line);
        let at = |name: &str| row.iter().position(|cell| cell == name);
        match (columns, at("room").zip(at("may import"))) {
            (None, Some(found)) => columns = Some(found),
            (Some((room, imports)), _) if line.trim_start().starts_with('|') => {
                if let Some((room, imports)) = row.get(room).zip(row.get(imports)) {
                    rows.push((room.trim_matches('`').to_owned(), imports.clone()));
                }
            }
            (Some(_), _) => break,
            (None, None) => {}
        }
    }
    rows.retain(|(room, _)| !room.starts_with('-'));
    let rooms = rows.iter().map(|(room, _)| room.clone()).collect::<Vec<_>>();
    let allowed = |room: &str, imports: &str| -> Vec<String> {
        let named = words(imports).map(str::to_owned).filter(|word| rooms.contains(word)).collect::<Vec<_>>();
        if imports.starts_with("all") {
            return rooms.iter().filter(|other| *other != room && !named.contains(other)).cloned().collect();
        }
        named
    };
    rows.iter().map(|(room, imports)| (room.clone(), allowed(room, imports))).collect()
}

/// Every source file by its path below `dir`.
fn files(dir: &Path) -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, base: &Path, into: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(dir).expect("a source directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, base, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                into.push((path.strip_prefix(base).expect("below src").to_owned(), text));
            }
        }
    }
    let mut found = Vec::new();
    walk(dir, dir, &mut found);
    found
}
