//! The pages against the code: every escape test is in the table, and every test that the table names exists.

use std::collections::BTreeSet;
use std::process::Command;

const ESCAPES: &str = include_str!("../../docs/escapes.md");

/// The names of all tests, from the test program itself.
fn tests() -> BTreeSet<String> {
    let program = std::env::current_exe().expect("the test program has a path");
    let output = Command::new(program).arg("--list").output().expect("the test program lists its tests");
    let text = String::from_utf8(output.stdout).expect("names are text");
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The rows of the table as (trick, layer, tests).
fn rows(page: &str) -> Vec<(String, String, Vec<String>)> {
    let row = |line: &str| {
        let cells = line.trim().trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        match cells.as_slice() {
            [trick, layer, tests] if !trick.starts_with('-') && tests.contains('`') => {
                let tests = tests.split(", ").map(|name| name.trim_matches('`').to_owned()).collect();
                Some((trick.clone(), layer.clone(), tests))
            }
            _ => None,
        }
    };
    page.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

#[test]
fn escapes_table_and_tests_agree() {
    let tests = tests();
    assert!(tests.len() > 50, "the list of tests is complete");
    let rows = rows(ESCAPES);
    let named = rows.iter().flat_map(|(_, _, tests)| tests.iter().cloned()).collect::<BTreeSet<_>>();
    let missing = named.difference(&tests).collect::<Vec<_>>();
    assert!(missing.is_empty(), "docs/escapes.md names tests that do not exist: {missing:?}");
    let escapes = tests.into_iter().filter(|name| name.starts_with("escape::"));
    let unlisted = escapes.filter(|name| !named.contains(name)).collect::<Vec<_>>();
    assert!(unlisted.is_empty(), "escape tests that docs/escapes.md does not name: {unlisted:?}");
    for (trick, layer, _) in rows {
        assert!(!trick.is_empty() && !layer.is_empty(), "a row without trick or layer: {trick} {layer}");
    }
}

#[test]
fn the_table_reader_can_fail() {
    assert_eq!(rows("| trick | layer | test |\n|---|---|---|\n"), []);
    let read = rows("| a trick | seccomp | `escape::x`, `escape::y` |\n");
    let expected = vec!["escape::x".to_owned(), "escape::y".to_owned()];
    assert_eq!(read, [("a trick".to_owned(), "seccomp".to_owned(), expected)]);
}
