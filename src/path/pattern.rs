//! Glob patterns over names and paths, without case.
//!
//! A pattern without a slash names a file or directory at any depth below a root; one with a slash is relative to the
//! root; one that starts with a slash is absolute. Matching lower-cases both sides, for `.ENV` is a secret as well.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::fmt;
use std::path::Path;

/// Where a pattern is anchored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Name,
    Root,
    Absolute,
}

/// One checked glob.
#[derive(Debug, Clone)]
pub struct Pattern {
    glob: globset::Glob,
    anchor: Anchor,
    weight: u16,
}

/// A glob that does not compile, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    pub text: String,
    pub reason: String,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad pattern `{}`: {}", self.text, self.reason)
    }
}

impl std::error::Error for PatternError {}

impl Pattern {
    /// Compiles a glob: `*`, `?`, `[a-z]`, `{a,b}`, `**` across directories, `\` to take the next character literally.
    ///
    /// # Errors
    /// When the glob is empty or malformed.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let bad = |reason: &str| PatternError { text: text.to_owned(), reason: reason.to_owned() };
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let trimmed = trimmed.strip_prefix("./").unwrap_or(trimmed);
        if trimmed.is_empty() {
            return Err(bad("it is empty"));
        }
        let anchor = match trimmed.find('/') {
            None => Anchor::Name,
            Some(0) => Anchor::Absolute,
            Some(_) => Anchor::Root,
        };
        // `**/NAME` says no more than `NAME`: judged as a name it costs less on every entry of a tree.
        let (body, anchor) = match trimmed.strip_prefix("**/") {
            Some(rest) if !rest.contains('/') && !rest.is_empty() => (rest, Anchor::Name),
            _ => (trimmed, anchor),
        };
        let glob = GlobBuilder::new(&body.to_lowercase())
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|err| bad(&err.kind().to_string()))?;
        Ok(Pattern { glob, anchor, weight: literal_characters(body) })
    }

    /// The pattern that matches exactly this absolute path.
    ///
    /// # Errors
    /// When the path is no UTF-8: a glob is text.
    pub fn literal(path: &Path) -> Result<Pattern, PatternError> {
        let text = path.to_str().ok_or_else(|| PatternError {
            text: path.display().to_string(),
            reason: "a path in a pattern must be UTF-8".into(),
        })?;
        let mut pattern = Pattern::parse(&globset::escape(text))?;
        pattern.weight = u16::MAX;
        Ok(pattern)
    }

    /// How many characters the pattern says literally: of two patterns that match, the one that says more wins.
    pub fn weight(&self) -> u16 {
        self.weight
    }
}

/// Characters outside of wildcards, classes and alternatives.
fn literal_characters(glob: &str) -> u16 {
    let mut count = 0u16;
    let mut depth = 0u32;
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            '*' | '?' => {}
            '\\' => {
                if chars.next().is_some() && depth == 0 {
                    count = count.saturating_add(1);
                }
            }
            _ if depth == 0 => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

/// Many patterns, asked at once.
#[derive(Debug, Clone, Default)]
pub struct PatternSet {
    names: GlobSet,
    name_ids: Vec<usize>,
    paths: GlobSet,
    path_ids: Vec<usize>,
    absolute: GlobSet,
    absolute_ids: Vec<usize>,
    prefilter: Option<Box<Prefilter>>,
}

/// What a name must look like for any name pattern to match: a cheap no for most names of a tree.
#[derive(Debug, Clone)]
struct Prefilter {
    /// First bytes with which some pattern begins literally.
    first: [bool; 256],
    /// Last bytes with which some pattern that begins with a wildcard ends literally.
    last: [bool; 256],
}

impl PatternSet {
    /// # Errors
    /// When the patterns together are too large to compile.
    pub fn new(patterns: &[Pattern]) -> Result<PatternSet, PatternError> {
        let mut set = PatternSet::default();
        let mut builders = [GlobSetBuilder::new(), GlobSetBuilder::new(), GlobSetBuilder::new()];
        let mut prefilter = Prefilter { first: [false; 256], last: [false; 256] };
        for (id, pattern) in patterns.iter().enumerate() {
            let glob = pattern.glob.clone();
            match pattern.anchor {
                Anchor::Name => {
                    prefilter.admit(glob.glob().as_bytes());
                    builders[0].add(glob);
                    set.name_ids.push(id);
                }
                Anchor::Root => {
                    builders[1].add(glob);
                    set.path_ids.push(id);
                }
                Anchor::Absolute => {
                    builders[2].add(glob);
                    set.absolute_ids.push(id);
                }
            }
        }
        let build = |builder: &GlobSetBuilder| {
            builder.build().map_err(|err| PatternError { text: "all patterns".into(), reason: err.to_string() })
        };
        set.names = build(&builders[0])?;
        set.paths = build(&builders[1])?;
        set.absolute = build(&builders[2])?;
        set.prefilter = Some(Box::new(prefilter));
        Ok(set)
    }

    /// Appends to `hits` the ids of all patterns that match the entry. `absolute` is its path, of which everything
    /// behind `root_len` bytes and a slash is relative to the root; `scratch` saves an allocation a call.
    pub fn matches(&self, absolute: &[u8], root_len: usize, scratch: &mut Vec<u8>, hits: &mut Vec<usize>) {
        use std::os::unix::ffi::OsStrExt;
        hits.clear();
        let name_at = absolute.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let only_names = self.path_ids.is_empty() && self.absolute_ids.is_empty();
        if only_names && !self.may_match(&absolute[name_at..]) {
            return;
        }
        lower(absolute, scratch);
        let as_path = |bytes: &[u8]| Path::new(std::ffi::OsStr::from_bytes(bytes)).to_path_buf();
        let name_at = scratch.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        if self.may_match(&scratch[name_at..]) {
            let found = self.names.matches(as_path(&scratch[name_at..]));
            hits.extend(found.into_iter().map(|index| self.name_ids[index]));
        }
        if !self.path_ids.is_empty() {
            // Lower-casing can change the length of non-ASCII text: cut the root off before it.
            let relative = absolute.get(root_len + 1..).unwrap_or_default();
            let mut folded = Vec::new();
            lower(relative, &mut folded);
            let found = self.paths.matches(as_path(&folded));
            hits.extend(found.into_iter().map(|index| self.path_ids[index]));
        }
        if !self.absolute_ids.is_empty() {
            let found = self.absolute.matches(as_path(scratch));
            hits.extend(found.into_iter().map(|index| self.absolute_ids[index]));
        }
    }

    fn may_match(&self, name: &[u8]) -> bool {
        let Some(prefilter) = &self.prefilter else { return false };
        let (Some(first), Some(last)) = (name.first(), name.last()) else { return false };
        // A byte beyond ASCII may fold to anything: ask.
        !first.is_ascii()
            || !last.is_ascii()
            || prefilter.first[first.to_ascii_lowercase() as usize]
            || prefilter.last[last.to_ascii_lowercase() as usize]
    }
}

impl Prefilter {
    fn admit(&mut self, glob: &[u8]) {
        let special = |b: u8| matches!(b, b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b'\\' | b',') || !b.is_ascii();
        match (glob.first(), glob.last()) {
            (Some(&first), _) if !special(first) => self.first[first as usize] = true,
            (_, Some(&last)) if !special(last) => self.last[last as usize] = true,
            _ => {
                self.first = [true; 256];
                self.last = [true; 256];
            }
        }
    }
}

/// Lower-cases text as a whole; bytes that are no UTF-8 are lower-cased where they are ASCII.
fn lower(bytes: &[u8], out: &mut Vec<u8>) {
    out.clear();
    if bytes.is_ascii() {
        out.extend(bytes.iter().map(u8::to_ascii_lowercase));
        return;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => out.extend(text.to_lowercase().bytes()),
        Err(_) => out.extend(bytes.iter().map(u8::to_ascii_lowercase)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(patterns: &[&str], path: &str) -> Vec<usize> {
        let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        let set = PatternSet::new(&patterns).unwrap();
        let (mut scratch, mut hits) = (Vec::new(), Vec::new());
        set.matches(path.as_bytes(), "/r".len(), &mut scratch, &mut hits);
        hits.sort_unstable();
        hits
    }

    #[test]
    fn names_match_at_any_depth_without_case() {
        assert_eq!(hits(&[".env", "*.pem", "**/.env"], "/r/a/b/.ENV"), [0, 2]);
        assert_eq!(hits(&[".env", "*.pem"], "/r/a/tls.PEM"), [1]);
        assert_eq!(hits(&[".env", "*.pem", "id_rsa*"], "/r/a/plain.txt"), [0usize; 0]);
        assert_eq!(hits(&["ÜNI"], "/r/üni"), [0]);
    }

    #[test]
    fn a_slash_anchors_at_the_root_and_a_leading_one_at_the_file_system() {
        assert_eq!(hits(&["cfg/*.key"], "/r/cfg/a.key"), [0]);
        assert_eq!(hits(&["cfg/*.key"], "/r/x/cfg/a.key"), [0usize; 0]);
        assert_eq!(hits(&["cfg/*"], "/r/cfg/a/b"), [0usize; 0]);
        assert_eq!(hits(&["/r/x/*"], "/r/x/y"), [0]);
        assert_eq!(hits(&["**/certifi/**/*.pem"], "/r/v/certifi/x/c.pem"), [0]);
    }

    #[test]
    fn alternatives_and_wildcards_pass_the_prefilter() {
        assert_eq!(hits(&["{a,b}.x"], "/r/b.x"), [0]);
        assert_eq!(hits(&["?dd.[xy]"], "/r/add.y"), [0]);
        assert_eq!(hits(&["\\*"], "/r/*"), [0]);
        assert_eq!(hits(&["\\*"], "/r/a"), [0usize; 0]);
    }

    #[test]
    fn more_literal_characters_weigh_more() {
        let weight = |text| Pattern::parse(text).unwrap().weight();
        assert!(weight(".env.example") > weight(".env.*"));
        assert!(weight(".eslintrc*") > weight(".*"));
        assert_eq!(weight("{a,b}[cd]?*"), 0);
    }

    #[test]
    fn bad_globs_are_named() {
        assert_eq!(Pattern::parse("[a").unwrap_err().text, "[a");
        assert!(Pattern::parse("").is_err());
    }
}
