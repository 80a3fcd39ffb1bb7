//! The values that a profile and the command line share: patterns, grants, sizes, durations and words. Both sides
//! parse them here, so that `--limit memory=4G` and `memory = "4G"` cannot differ.

use super::schema::{
    DiffStyle, GitAccess, Grant, GrantAccess, HomeMode, Layer, Limits, Mode, NetMode, Origin, Written,
};
use std::fmt;

/// Why a value cannot be used. The text names the value; the place is the caller's to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueError {
    Empty,
    Nul,
    Glob { glob: String, reason: String },
    NotBelowRoot { glob: String, why: &'static str },
    Access { text: String, found: String },
    Size { text: String },
    Duration { text: String },
    Count { text: String },
    TooBig { text: String },
    Zero { key: String },
    Word { text: String, known: Vec<&'static str> },
    UnknownLimit { key: String },
    Name { text: String },
    Port { text: String },
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Empty => write!(f, "it is empty"),
            ValueError::Nul => write!(f, "it holds a NUL byte"),
            ValueError::Glob { glob, reason } => write!(f, "`{}` is no pattern: {}", shown(glob), shown(reason)),
            ValueError::NotBelowRoot { glob, why } => write!(f, "`{}` can never match: {why}", shown(glob)),
            ValueError::Access { text, found } => {
                write!(f, "`{}` ends in an unknown access `{}`", shown(text), shown(found))
            }
            ValueError::Size { text } => write!(f, "`{}` is no size", shown(text)),
            ValueError::Duration { text } => write!(f, "`{}` is no duration", shown(text)),
            ValueError::Count { text } => write!(f, "`{}` is no count", shown(text)),
            ValueError::TooBig { text } => write!(f, "`{}` is too big", shown(text)),
            ValueError::Zero { key } => write!(f, "`{key}` must be at least 1"),
            ValueError::Word { text, known } => {
                write!(f, "`{}` is not one of {}", shown(text), known.join(", "))
            }
            ValueError::UnknownLimit { key } => write!(f, "unknown limit `{}`", shown(key)),
            ValueError::Name { text } => write!(f, "`{}` is no name of a variable", shown(text)),
            ValueError::Port { text } => write!(f, "`{}` is no port", shown(text)),
        }
    }
}

impl std::error::Error for ValueError {}

impl ValueError {
    /// What to write instead, where that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            ValueError::Empty | ValueError::Nul | ValueError::TooBig { .. } | ValueError::Zero { .. } => None,
            ValueError::Glob { glob, .. } => Some(format!("did you mean `{}`, with no special meaning?", quoted(glob))),
            ValueError::NotBelowRoot { .. } => Some("a pattern is a name at any depth, or a path below a root".into()),
            ValueError::Access { found, .. } => Some(match nearest(found, ["ro", "rw"]) {
                Some(near) => format!("did you mean `:{near}`?"),
                None => "a colon comes before ro or rw; a name with a colon needs the access written out".into(),
            }),
            ValueError::Size { .. } => Some("sizes are bytes, or like 200M, 4G, 1GiB, unlimited".into()),
            ValueError::Duration { .. } => Some("durations are seconds, or like 10s, 5m, 2h, unlimited".into()),
            ValueError::Count { .. } => Some("a count is a whole number, or unlimited".into()),
            ValueError::Word { text, known } => {
                nearest(text, known.iter().copied()).map(|near| format!("did you mean `{near}`?"))
            }
            ValueError::UnknownLimit { key } => Some(match nearest(key, LIMIT_KEYS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("limits are {}", LIMIT_KEYS.join(", ")),
            }),
            ValueError::Name { .. } => Some("a name holds neither `=` nor `/`".into()),
            ValueError::Port { .. } => Some("a port is a number from 1 to 65535".into()),
        }
    }
}

/// Text of a file that others wrote, made safe for a terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// The candidate that a slip of the finger would turn into `word`, if there is one.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    let allowed = ((word.chars().count() + 1) / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The pattern that matches exactly this text.
fn quoted(text: &str) -> String {
    let special = |c: char| matches!(c, '[' | ']' | '{' | '}' | '*' | '?' | '\\');
    shown(&text.chars().flat_map(|c| if special(c) { vec!['\\', c] } else { vec![c] }).collect::<String>())
}

/// Whether the pattern can be compiled. It says nothing about what the pattern matches.
pub fn check_glob(glob: &str) -> Result<(), ValueError> {
    check_text(glob)?;
    // Stars and question marks alone are never malformed, and compiling is most of what loading a profile costs.
    if !glob.contains(['[', ']', '{', '}', '\\']) {
        return Ok(());
    }
    let built = globset::GlobBuilder::new(glob).literal_separator(true).case_insensitive(true).build();
    match built {
        Ok(_) => Ok(()),
        Err(error) => Err(ValueError::Glob { glob: glob.into(), reason: error.kind().to_string() }),
    }
}

/// A pattern of a file: it compiles, and it has the form of a path below a root. Anything else would match nothing and
/// protect nothing, in silence.
pub(super) fn check_pattern(glob: &str) -> Result<(), ValueError> {
    check_glob(glob)?;
    let never = |why| Err(ValueError::NotBelowRoot { glob: glob.into(), why });
    if glob.starts_with('/') || glob.starts_with("~/") || glob == "~" {
        return never("patterns start below a root");
    }
    if glob.ends_with('/') {
        return never("leave out the last slash; a directory's pattern covers what is in it");
    }
    if glob.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return never("it is no plain path");
    }
    Ok(())
}

/// Not empty and without NUL: what the kernel could take.
pub(super) fn check_text(text: &str) -> Result<(), ValueError> {
    match text {
        "" => Err(ValueError::Empty),
        text if text.contains('\0') => Err(ValueError::Nul),
        _ => Ok(()),
    }
}

/// `GLOB`, `GLOB:ro` or `GLOB:rw`. Any other ending after a colon is refused: it is more likely a slip than a name.
pub fn parse_grant(text: &str) -> Result<Grant, ValueError> {
    split_grant(text).map(|(glob, access)| Grant { glob: glob.to_owned().into(), access })
}

/// The glob, which is checked, and the access.
pub(super) fn split_grant(text: &str) -> Result<(&str, GrantAccess), ValueError> {
    let (glob, access) = match text.rsplit_once(':') {
        None => (text, GrantAccess::Ro),
        Some((glob, "ro")) => (glob, GrantAccess::Ro),
        Some((glob, "rw")) => (glob, GrantAccess::Rw),
        Some((_, found)) => return Err(ValueError::Access { text: text.into(), found: found.into() }),
    };
    check_glob(glob).map(|()| (glob, access))
}

/// Bytes. `K`, `M`, `G` and `T` are powers of 1024, with or without `B` or `iB`; `unlimited` is `u64::MAX`.
pub fn parse_size(text: &str) -> Result<u64, ValueError> {
    let bad = || ValueError::Size { text: text.into() };
    let lower = text.trim().to_ascii_lowercase();
    if lower == "unlimited" {
        return Ok(u64::MAX);
    }
    let (number, unit) = split_unit(&lower);
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    scaled(text, number, 1u64 << shift, bad)
}

/// Seconds. `s`, `m` and `h`; a bare number is seconds; `unlimited` is `u64::MAX`.
pub fn parse_duration(text: &str) -> Result<u64, ValueError> {
    let bad = || ValueError::Duration { text: text.into() };
    let lower = text.trim().to_ascii_lowercase();
    if lower == "unlimited" {
        return Ok(u64::MAX);
    }
    let (number, unit) = split_unit(&lower);
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(bad()),
    };
    scaled(text, number, seconds, bad)
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

fn scaled(text: &str, number: &str, unit: u64, bad: impl Fn() -> ValueError) -> Result<u64, ValueError> {
    if number.is_empty() {
        return Err(bad());
    }
    let too_big = || ValueError::TooBig { text: text.into() };
    let number: u64 = number.parse().map_err(|_| too_big())?;
    number.checked_mul(unit).ok_or_else(too_big)
}

fn parse_count(text: &str) -> Result<u64, ValueError> {
    match text.trim() {
        "unlimited" => Ok(u64::MAX),
        number => {
            let bad = || ValueError::Count { text: text.into() };
            if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(bad());
            }
            scaled(text, number, 1, bad)
        }
    }
}

/// The keys of `[limits]` and of `--limit`.
pub const LIMIT_KEYS: &[&str] =
    &["processes", "memory", "tmp", "file_size", "open_files", "time", "backup_file", "backup_total"];

impl Limits {
    /// Sets one limit from its text, as `--limit KEY=VALUE` and the profiles do.
    pub fn set(&mut self, key: &str, text: &str, origin: Origin) -> Result<(), ValueError> {
        let key = key.replace('-', "_");
        let (slot, value) = match key.as_str() {
            "processes" => (&mut self.processes, parse_count(text)?),
            "memory" => (&mut self.memory, parse_size(text)?),
            "tmp" => (&mut self.tmp, parse_size(text)?),
            "file_size" => (&mut self.file_size, parse_size(text)?),
            "open_files" => (&mut self.open_files, parse_count(text)?),
            "time" => (&mut self.time, parse_duration(text)?),
            "backup_file" => (&mut self.backup_file, parse_size(text)?),
            "backup_total" => (&mut self.backup_total, parse_size(text)?),
            _ => return Err(ValueError::UnknownLimit { key }),
        };
        // Nothing could start with none of these; no file and no private space can be meant.
        if value == 0 && !matches!(key.as_str(), "tmp" | "file_size" | "backup_file" | "backup_total") {
            return Err(ValueError::Zero { key });
        }
        *slot = Some(Written::new(value, origin));
        Ok(())
    }
}

/// A value that is one of a few words.
pub trait Word: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl Word for HomeMode {
    const WORDS: &'static [(&'static str, Self)] = &[("private", HomeMode::Private), ("read-only", HomeMode::ReadOnly)];
}

impl Word for GitAccess {
    const WORDS: &'static [(&'static str, Self)] = &[("ro", GitAccess::Ro), ("rw", GitAccess::Rw)];
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[("dry-run", Mode::DryRun), ("live", Mode::Live)];
}

impl Word for DiffStyle {
    const WORDS: &'static [(&'static str, Self)] =
        &[("full", DiffStyle::Full), ("stat", DiffStyle::Stat), ("none", DiffStyle::None)];
}

impl Word for NetMode {
    const WORDS: &'static [(&'static str, Self)] = &[("none", NetMode::None), ("host", NetMode::Host)];
}

impl Word for Layer {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("mounts", Layer::Mounts),
        ("landlock", Layer::Landlock),
        ("seccomp", Layer::Seccomp),
        ("netns", Layer::Netns),
        ("backup", Layer::Backup),
    ];
}

/// The value that this word stands for; the error lists the words and the nearest one.
pub fn parse_word<T: Word>(text: &str) -> Result<T, ValueError> {
    match T::WORDS.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(*value),
        None => Err(ValueError::Word { text: text.into(), known: T::WORDS.iter().map(|(word, _)| *word).collect() }),
    }
}

/// A name or glob of environment variables.
pub fn check_variable(name: &str) -> Result<(), ValueError> {
    check_text(name)?;
    if name.contains(['=', '/']) {
        return Err(ValueError::Name { text: name.into() });
    }
    check_glob(name)
}
