//! Every key a profile knows, and what to suggest for one that it does not.

use super::value::nearest;

/// The tables and their keys; the empty name is the top level. A test holds this list against the reader.
pub(super) const KEYS: &[(&str, &[&str])] = &[
    ("", &["description", "extends", "programs"]),
    (
        "filesystem",
        &["rw", "ro", "scratch", "home", "git", "hide", "grant", "freeze", "build_dirs", "no_backup", "toolchains"],
    ),
    ("network", &["mode", "tcp_connect", "tcp_bind", "sockets"]),
    ("environment", &["pass", "deny", "set"]),
    ("limits", super::value::LIMIT_KEYS),
    ("run", &["mode", "diff", "nested", "degraded"]),
];

/// What people write who know the flag, or another program, and the key that they mean.
const ALIASES: &[(&str, &str)] = &[
    ("net", "[network] mode"),
    ("env", "[environment] pass"),
    ("socket", "[network] sockets"),
    ("limit", "[limits]"),
    ("read", "[filesystem] ro"),
    ("write", "[filesystem] rw"),
    ("profile", "extends"),
];

/// The hint for a key that is unknown in `table`: the same key in its own table, a known other word for it, the nearest
/// key here, the nearest key elsewhere, or else the keys of this table.
pub(super) fn suggestion(table: &str, key: &str) -> String {
    let lower = key.to_lowercase().replace('-', "_");
    let found = elsewhere(|candidate| candidate == lower)
        .or_else(|| ALIASES.iter().find(|(word, _)| *word == lower).map(|(_, meant)| format!("`{meant}`")))
        .or_else(|| nearest(&lower, here(table)).map(|near| named(table, near, table)))
        .or_else(|| {
            let all = KEYS.iter().flat_map(|(_, keys)| keys.iter().copied());
            nearest(&lower, all).and_then(|near| elsewhere(|candidate| candidate == near))
        });
    match found {
        Some(found) => format!("did you mean {found}?"),
        None if table.is_empty() => format!("a profile holds {}", here("").join(", ")),
        None => format!("[{table}] holds {}", here(table).join(", ")),
    }
}

/// The keys of one table; at the top level also the tables.
fn here(table: &str) -> Vec<&'static str> {
    let keys = KEYS.iter().filter(|(name, _)| *name == table).flat_map(|(_, keys)| keys.iter().copied());
    let tables = KEYS.iter().map(|(name, _)| *name).filter(|name| table.is_empty() && !name.is_empty());
    keys.chain(tables).collect()
}

/// Every key, in any table, that fits.
fn elsewhere(fits: impl Fn(&str) -> bool) -> Option<String> {
    let mut found = Vec::new();
    for (table, keys) in KEYS {
        found.extend(keys.iter().filter(|key| fits(key)).map(|key| named(table, key, "")));
    }
    if found.is_empty() { None } else { Some(found.join(" or ")) }
}

/// A key as seen from the table `from`: its own table goes without saying.
fn named(table: &str, key: &str, from: &str) -> String {
    let is_table = KEYS.iter().any(|(name, _)| *name == key);
    match table {
        "" if is_table => format!("`[{key}]`"),
        _ if table == from => format!("`{key}`"),
        _ => format!("`[{table}] {key}`"),
    }
}
