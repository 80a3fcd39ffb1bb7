//! What the command line and the profiles parse alike.

use super::super::{
    DiffStyle, GrantAccess, Layer, Limits, NetMode, Origin, ValueError, check_glob, check_variable, parse_duration,
    parse_grant, parse_size, parse_word,
};

#[test]
fn sizes_are_powers_of_1024() {
    let good = [
        ("0", 0),
        ("4096", 4096),
        ("1K", 1 << 10),
        ("200M", 200 << 20),
        ("4G", 4 << 30),
        ("4g", 4 << 30),
        ("1GiB", 1 << 30),
        ("1 GiB", 1 << 30),
        ("2T", 2 << 40),
        ("5B", 5),
        ("unlimited", u64::MAX),
    ];
    for (text, bytes) in good {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for text in ["", "G", "-1", "1.5G", "4Q", "4 G B", "0x10", "unlimitedly"] {
        assert_eq!(parse_size(text), Err(ValueError::Size { text: text.into() }), "{text}");
    }
    for text in ["99999999999999999999", "16777216T"] {
        assert_eq!(parse_size(text), Err(ValueError::TooBig { text: text.into() }), "{text}");
    }
}

#[test]
fn durations_are_seconds() {
    for (text, seconds) in [("7", 7), ("10s", 10), ("5m", 300), ("2h", 7200), ("unlimited", u64::MAX)] {
        assert_eq!(parse_duration(text), Ok(seconds), "{text}");
    }
    for text in ["", "m", "-5s", "1d", "5 min", "1h30m"] {
        assert_eq!(parse_duration(text), Err(ValueError::Duration { text: text.into() }), "{text}");
    }
}

#[test]
fn a_grant_without_a_suffix_is_read_only() {
    for (text, glob, access) in [
        (".env", ".env", GrantAccess::Ro),
        (".env:ro", ".env", GrantAccess::Ro),
        ("a/*:rw", "a/*", GrantAccess::Rw),
        ("a:b:rw", "a:b", GrantAccess::Rw),
    ] {
        let grant = parse_grant(text).unwrap();
        assert_eq!((&*grant.glob, grant.access), (glob, access), "{text}");
    }
    assert_eq!(parse_grant(":ro"), Err(ValueError::Empty));
    assert_eq!(parse_grant("a:"), Err(ValueError::Access { text: "a:".into(), found: String::new() }));
    assert_eq!(parse_grant("a:RW").unwrap_err().hint().unwrap(), "did you mean `:rw`?");
    assert!(matches!(parse_grant("[a:ro"), Err(ValueError::Glob { .. })));
}

#[test]
fn patterns_are_checked_before_they_are_used() {
    for good in ["*.pem", "[ab]", "**/x/**", "{a,b}", "\\[a", "ä*", "/abs/path"] {
        assert_eq!(check_glob(good), Ok(()), "{good}");
    }
    for bad in ["[a", "{a", "a}", "[z-a]", "a\\"] {
        assert!(matches!(check_glob(bad), Err(ValueError::Glob { .. })), "{bad}");
    }
    assert_eq!(check_glob(""), Err(ValueError::Empty));
    assert_eq!(check_glob("a\0"), Err(ValueError::Nul));
    // The hint is itself a pattern, for the text as it stands.
    let hint = check_glob("[a{b").unwrap_err().hint().unwrap();
    assert_eq!(hint, "did you mean `\\[a\\{b`, with no special meaning?");
    let matcher = globset::Glob::new("\\[a\\{b").unwrap().compile_matcher();
    assert!(matcher.is_match("[a{b"));
}

#[test]
fn variables_are_names_or_globs() {
    assert_eq!(check_variable("LC_*"), Ok(()));
    assert_eq!(check_variable(""), Err(ValueError::Empty));
    assert_eq!(check_variable("A=1"), Err(ValueError::Name { text: "A=1".into() }));
}

#[test]
fn words_are_exact() {
    assert_eq!(parse_word("host"), Ok(NetMode::Host));
    assert_eq!(parse_word("stat"), Ok(DiffStyle::Stat));
    assert_eq!(parse_word("netns"), Ok(Layer::Netns));
    let error = parse_word::<NetMode>("Host").unwrap_err();
    assert_eq!(error.to_string(), "`Host` is not one of none, host");
    assert_eq!(error.hint().unwrap(), "did you mean `host`?");
}

#[test]
fn limits_are_set_by_key() {
    let origin = || Origin::CommandLine("--limit".into());
    let mut limits = Limits::default();
    for (key, text) in [
        ("processes", "5"),
        ("memory", "1K"),
        ("tmp", "0"),
        ("file-size", "unlimited"),
        ("open_files", "unlimited"),
        ("time", "1m"),
    ] {
        limits.set(key, text, origin()).unwrap();
    }
    let values = [&limits.processes, &limits.memory, &limits.tmp, &limits.file_size, &limits.open_files, &limits.time];
    let values: Vec<u64> = values.iter().map(|limit| limit.as_ref().unwrap().value).collect();
    assert_eq!(values, [5, 1024, 0, u64::MAX, u64::MAX, 60]);
    assert_eq!(limits.time.unwrap().origin, origin());

    let mut limits = Limits::default();
    let error = limits.set("memry", "1", origin()).unwrap_err();
    assert_eq!(error.to_string(), "unknown limit `memry`");
    assert_eq!(error.hint().unwrap(), "did you mean `memory`?");
    let error = limits.set("zzzzzz", "1", origin()).unwrap_err();
    assert_eq!(
        error.hint().unwrap(),
        "limits are processes, memory, tmp, file_size, open_files, time, backup_file, backup_total"
    );
    assert_eq!(limits.set("time", "0", origin()), Err(ValueError::Zero { key: "time".into() }));
    assert_eq!(limits.set("processes", "5K", origin()), Err(ValueError::Count { text: "5K".into() }));
    assert_eq!(limits, Limits::default());
}
