//! `docs/profiles.md` says what the code does.

use super::super::keys::KEYS;
use super::super::read::{Author, read};
use super::super::{BUILT_IN, Loader, built_in};
use super::Dir;

const PAGE: &str = include_str!("../../../docs/profiles.md");

/// The blocks `<!-- list: PROFILE KEY -->`, each with the words of the fenced text below it.
fn lists() -> Vec<(&'static str, Vec<&'static str>)> {
    let blocks = PAGE.split("<!-- list: ").skip(1);
    let block = |block: &'static str| {
        let (name, rest) = block.split_once(" -->\n```text\n").unwrap();
        (name, rest.split_once("\n```").unwrap().0.split_whitespace().collect())
    };
    blocks.map(block).collect()
}

#[test]
fn the_lists_of_the_page_are_those_of_the_profiles() {
    let mut seen = Vec::new();
    for (name, on_page) in lists() {
        let (profile, key) = name.split_once(' ').unwrap();
        let sheet = read(profile, built_in(profile).unwrap(), Author::User).unwrap().profile;
        let texts = |list: Vec<super::super::Written<super::super::Text>>| {
            list.into_iter().map(|text| text.value.into_owned()).collect()
        };
        let in_file: Vec<String> = match key {
            "filesystem.hide" => texts(sheet.filesystem.hide),
            "filesystem.freeze" => texts(sheet.filesystem.freeze),
            "filesystem.build_dirs" => texts(sheet.filesystem.build_dirs),
            "filesystem.no_backup" => texts(sheet.filesystem.no_backup),
            "environment.pass" => texts(sheet.environment.pass),
            "environment.deny" => texts(sheet.environment.deny),
            "filesystem.grant" => {
                use super::super::merge::Entry as _;
                sheet.filesystem.grant.iter().map(|grant| grant.value.name()).collect()
            }
            _ => panic!("no list {key}"),
        };
        assert_eq!(on_page, in_file, "docs/profiles.md, {name}");
        seen.push(name);
    }
    assert_eq!(
        seen,
        [
            "base filesystem.hide",
            "default filesystem.grant",
            "base filesystem.freeze",
            "strict filesystem.freeze",
            "strict filesystem.hide",
            "base filesystem.build_dirs",
            "base filesystem.no_backup",
            "base environment.pass",
            "base environment.deny",
        ]
    );
}

#[test]
fn the_page_has_every_key_and_every_profile() {
    for (table, keys) in KEYS {
        let section = match *table {
            "" => PAGE.split_once("### Top level").unwrap().1,
            _ => PAGE.split_once(&format!("### `[{table}]`")).unwrap_or_else(|| panic!("no section {table}")).1,
        };
        let section = section.split("\n##").next().unwrap();
        for key in *keys {
            assert!(section.contains(&format!("\n| `{key}` |")), "{table}.{key}");
        }
    }
    for (name, _) in BUILT_IN {
        assert!(PAGE.contains(&format!("\n| `{name}` |")), "{name}");
    }
}

#[test]
fn the_example_of_the_page_loads() {
    let example = PAGE.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let dir = Dir::new("example");
    dir.file("example.toml", example);
    let (profile, notices) = Loader::new(Some(dir.0.clone())).load(&["example".to_string()]).unwrap();
    assert_eq!(profile.description.as_deref(), Some("my project"));
    assert!(notices.is_empty());
}
