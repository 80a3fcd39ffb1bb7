//! Every kind of error, with its exact text and hint.

use super::super::keys::KEYS;
use super::super::{LoadError, Loader};
use super::{Dir, load, refused, sheet};

fn says(text: &str, message: &str, hint: Option<&str>) {
    let error = refused(text);
    assert_eq!(error.to_string(), message, "for {text:?}");
    assert_eq!(error.hint().as_deref(), hint, "for {text:?}");
}

#[test]
fn a_misspelled_key_is_refused_with_its_line_and_the_nearest_key() {
    says(
        "hidee = [\".env\"]\n",
        "reading profile x.toml:1: unknown key `hidee`",
        Some("did you mean `[filesystem] hide`?"),
    );
    says(
        "# why\n\n[filesystem]\nhidee = []\n",
        "reading profile x.toml:4: unknown key `hidee` in [filesystem]",
        Some("did you mean `hide`?"),
    );
    says("[filesystm]\n", "reading profile x.toml:1: unknown key `filesystm`", Some("did you mean `[filesystem]`?"));
    says("exten = []", "reading profile x.toml:1: unknown key `exten`", Some("did you mean `extends`?"));
}

#[test]
fn a_key_in_the_wrong_place_names_the_right_one() {
    says("hide = [\"[a\"]", "reading profile x.toml:1: unknown key `hide`", Some("did you mean `[filesystem] hide`?"));
    says("net = \"hots\"", "reading profile x.toml:1: unknown key `net`", Some("did you mean `[network] mode`?"));
    says(
        "mode = \"none\"",
        "reading profile x.toml:1: unknown key `mode`",
        Some("did you mean `[network] mode` or `[run] mode`?"),
    );
    says(
        "[network]\nrw = []",
        "reading profile x.toml:2: unknown key `rw` in [network]",
        Some("did you mean `[filesystem] rw`?"),
    );
}

#[test]
fn a_key_like_no_other_gets_the_list() {
    says(
        "[run]\nzzzzzz = 1",
        "reading profile x.toml:2: unknown key `zzzzzz` in [run]",
        Some("[run] holds mode, diff, nested, degraded"),
    );
    says(
        "zzzzzz = 1",
        "reading profile x.toml:1: unknown key `zzzzzz`",
        Some("a profile holds description, extends, programs, filesystem, network, environment, limits, run"),
    );
}

#[test]
fn an_unknown_key_of_a_path_entry_is_refused() {
    says(
        "[filesystem]\nro = [\n  \"/a\",\n  { path = \"/b\", optionl = true },\n]",
        "reading profile x.toml:4: unknown key `optionl` in an entry of `filesystem.ro`",
        Some("did you mean `optional`?"),
    );
    says(
        "[network]\nsockets = [{ why = \"x\" }]",
        "reading profile x.toml:2: an entry of `network.sockets` has no `path`",
        Some("write `{ path = \"...\", optional = true, why = \"...\" }`"),
    );
}

#[test]
fn the_first_error_of_the_file_is_the_one_reported() {
    says("zz = 1\naa = 1", "reading profile x.toml:1: unknown key `zz`", refused("zz = 1").hint().as_deref());
}

#[test]
fn wrong_types_name_what_is_wanted() {
    says(
        "[filesystem]\nhide = \".env\"",
        "reading profile x.toml:2: `hide` wants a list of strings, not a string",
        Some("write `hide = [\"...\"]`"),
    );
    says(
        "[filesystem]\nhide = [\n\".env\",\n1]",
        "reading profile x.toml:4: `hide` wants a list of strings, not an integer",
        None,
    );
    says("filesystem = 1.5", "reading profile x.toml:1: `filesystem` wants a table, not a float", None);
    says("description = []", "reading profile x.toml:1: `description` wants a string, not a list", None);
    says(
        "[filesystem]\ntoolchains = \"no\"",
        "reading profile x.toml:2: `toolchains` wants true or false, not a string",
        None,
    );
    says("[filesystem]\nrw = [[]]", "reading profile x.toml:2: `rw` wants a list of paths, not a list", None);
    says("[filesystem]\nrw = {}", "reading profile x.toml:2: `rw` wants a list of paths, not a table", None);
    says(
        "[filesystem]\nrw = [{path=\"a\", optional=1}]",
        "reading profile x.toml:2: `optional` wants true or false, not an integer",
        None,
    );
    says(
        "[network]\ntcp_bind = [\"80\"]",
        "reading profile x.toml:2: `tcp_bind` wants a list of ports, not a string",
        None,
    );
    says(
        "[limits]\ntime = true",
        "reading profile x.toml:2: `time` wants a whole number or a string, not a boolean",
        None,
    );
    says("[environment]\nset = { A = 1979-05-27 }", "reading profile x.toml:2: `A` wants a string, not a date", None);
}

#[test]
fn a_wrong_word_lists_the_right_ones() {
    says(
        "[network]\nmode = \"hots\"",
        "reading profile x.toml:2: bad value for `mode`: `hots` is not one of none, host",
        Some("did you mean `host`?"),
    );
    says(
        "[filesystem]\nhome = \"keep\"",
        "reading profile x.toml:2: bad value for `home`: `keep` is not one of private, read-only",
        None,
    );
    says(
        "[run]\ndegraded = [\"landlok\"]",
        "reading profile x.toml:2: bad value for `degraded`: `landlok` is not one of mounts, landlock, seccomp, netns, backup",
        Some("did you mean `landlock`?"),
    );
}

#[test]
fn a_bad_pattern_is_refused_with_its_line() {
    says(
        "[filesystem]\nhide = [\n  \".env\",\n  \"[a\",\n]",
        "reading profile x.toml:4: bad value for `hide`: `[a` is no pattern: unclosed character class; missing ']'",
        Some("did you mean `\\[a`, with no special meaning?"),
    );
    says(
        "[filesystem]\nfreeze = [\"/etc/x\"]",
        "reading profile x.toml:2: bad value for `freeze`: `/etc/x` can never match: patterns start below a root",
        Some("a pattern is a name at any depth, or a path below a root"),
    );
    for never in ["~/.aws", "a//b", "./a", "a/../b", "secrets/"] {
        let error = refused(&format!("[filesystem]\ngrant = [\"{never}:ro\"]"));
        assert!(error.to_string().contains("can never match"), "{never}: {error}");
    }
    says(
        "[filesystem]\ngrant = [\".github:rx\"]",
        "reading profile x.toml:2: bad value for `grant`: `.github:rx` ends in an unknown access `rx`",
        Some("did you mean `:ro`?"),
    );
    says("[environment]\npass = [\"\"]", "reading profile x.toml:2: bad value for `pass`: it is empty", None);
    says(
        "[environment]\npass = [\"A=1\"]",
        "reading profile x.toml:2: bad value for `pass`: `A=1` is no name of a variable",
        Some("a name holds neither `=` nor `/`"),
    );
}

#[test]
fn bad_numbers_are_refused() {
    says(
        "[limits]\nmemory = \"4Q\"",
        "reading profile x.toml:2: bad value for `memory`: `4Q` is no size",
        Some("sizes are bytes, or like 200M, 4G, 1GiB, unlimited"),
    );
    says(
        "[limits]\ntime = \"10 days\"",
        "reading profile x.toml:2: bad value for `time`: `10 days` is no duration",
        Some("durations are seconds, or like 10s, 5m, 2h, unlimited"),
    );
    says(
        "[limits]\nprocesses = -1",
        "reading profile x.toml:2: bad value for `processes`: `-1` is no count",
        Some("a count is a whole number, or unlimited"),
    );
    says(
        "[limits]\nprocesses = 0",
        "reading profile x.toml:2: bad value for `processes`: `processes` must be at least 1",
        None,
    );
    says(
        "[limits]\ntmp = \"99999999999T\"",
        "reading profile x.toml:2: bad value for `tmp`: `99999999999T` is too big",
        None,
    );
    says(
        "[network]\ntcp_connect = [443, 70000]",
        "reading profile x.toml:2: bad value for `tcp_connect`: `70000` is no port",
        Some("a port is a number from 1 to 65535"),
    );
}

#[test]
fn a_duplicate_key_and_bad_toml_have_a_line() {
    says("[run]\nnested = true\nnested = true", "reading profile x.toml:3: duplicate key", None);
    let error = refused("[filesystem]\nhide = [\n");
    assert!(error.to_string().starts_with("reading profile x.toml:2: unclosed array"), "{error}");
}

#[test]
fn text_of_a_file_cannot_reach_the_terminal_raw() {
    let error = refused("\"a\\u001b[2J\" = 1");
    assert_eq!(error.to_string(), "reading profile x.toml:1: unknown key `a\\u{1b}[2J`");
}

#[test]
fn the_list_of_keys_is_the_readers() {
    for (table, keys) in KEYS {
        for key in *keys {
            // A date is no value of any key: a known key complains about the type, an unknown one about the key.
            let text = format!("[{table}]\n{key} = 1979-05-27").replace("[]\n", "");
            let error = refused(&text);
            assert!(matches!(error, LoadError::WrongType { .. }), "{table}.{key}: {error}");
        }
    }
    sheet("[filesystem]\n[network]\n[environment]\n[limits]\n[run]\n");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = Dir::new("unreadable");
    let loader = dir.loader();
    let text = |name: &str| load(&loader, &[name]).unwrap_err().to_string();

    let missing = dir.at("none.toml");
    assert_eq!(text(&missing), format!("reading profile {missing}: No such file or directory (os error 2)"));

    let bytes = dir.file("bytes.toml", b"# a\n\xff\n");
    assert_eq!(text(&bytes.display().to_string()), format!("reading profile {}:2: not UTF-8", bytes.display()));

    let folder = dir.0.display().to_string() + "/";
    assert!(text(&folder).ends_with("Is a directory (os error 21)"), "{}", text(&folder));

    assert_eq!(text("/dev/zero"), "reading profile /dev/zero: more than 262144 bytes");
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let dir = Dir::new("unknown");
    dir.file("mine.toml", "");
    dir.file(".#mine.toml", "broken");
    let error = load(&dir.loader(), &["strct"]).unwrap_err();
    assert_eq!(error.to_string(), "reading profile: there is no profile `strct`");
    assert_eq!(
        error.hint().unwrap(),
        "did you mean `strict`? known profiles: mine, base, default, strict, offline-build, shell"
    );

    let from = dir.file("a.toml", "\nextends = [\n\"nobody\"]");
    let error = load(&Loader::new(None), &[&dir.at("a.toml")]).unwrap_err();
    assert_eq!(error.to_string(), format!("reading profile {}:3: there is no profile `nobody`", from.display()));
}
