//! Glob patterns over names and paths, without case.
//!
//! A pattern without a slash names a file or directory at any depth below a root; one with a slash is relative to the
//! root; one that starts with a slash is absolute. Matching lower-cases both sides, for `.ENV` is a secret as well.

pub use globset::escape;
use globset::{GlobBuilder, GlobMatcher};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::ffi::OsStr;
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
    /// Lower-cased, without the parts that only say where it is anchored.
    body: Cow<'static, str>,
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
    pub fn parse(text: impl Into<Cow<'static, str>>) -> Result<Pattern, PatternError> {
        let text = text.into();
        let bad = |reason: &str| PatternError { text: text.to_string(), reason: reason.to_owned() };
        let (anchor, body) = match &text {
            // Of a built-in profile's text nothing is copied where nothing changes.
            Cow::Borrowed(text) => split(text).map(|(anchor, body)| (anchor, folded(body))),
            Cow::Owned(text) => split(text).map(|(anchor, body)| (anchor, Cow::Owned(body.to_lowercase()))),
        }
        .ok_or_else(|| bad("it is empty"))?;
        let pattern = Pattern { weight: literal_characters(&body), body, anchor };
        // Only what has more than stars and plain classes in it can be malformed: compiling costs more than all else at
        // a launch.
        if pattern.body.contains(['[', ']', '{', '}', '\\']) && Part::list(&pattern.body).is_none() {
            compile(&pattern.body).map_err(|reason| bad(&reason))?;
        }
        Ok(pattern)
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
        let mut pattern = Pattern::parse(globset::escape(text))?;
        pattern.weight = u16::MAX;
        Ok(pattern)
    }

    /// How many characters the pattern says literally: of two patterns that match, the one that says more wins.
    pub fn weight(&self) -> u16 {
        self.weight
    }
}

/// What a pattern says beside where it is anchored; `None` for an empty one.
fn split(text: &str) -> Option<(Anchor, &str)> {
    let trimmed = text.strip_suffix('/').unwrap_or(text);
    let trimmed = trimmed.strip_prefix("./").unwrap_or(trimmed);
    let anchor = match trimmed.find('/') {
        None if trimmed.is_empty() => return None,
        None => Anchor::Name,
        Some(0) => Anchor::Absolute,
        Some(_) => Anchor::Root,
    };
    // `**/NAME` says no more than `NAME`: judged as a name it costs less on every entry of a tree.
    match trimmed.strip_prefix("**/") {
        Some(rest) if !rest.contains('/') && !rest.is_empty() => Some((Anchor::Name, rest)),
        _ => Some((anchor, trimmed)),
    }
}

fn folded(text: &'static str) -> Cow<'static, str> {
    let is_folded = text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
    if is_folded { Cow::Borrowed(text) } else { Cow::Owned(text.to_lowercase()) }
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
            // The character behind it is literal.
            '\\' if chars.next().is_none() => {}
            _ if depth == 0 => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

/// Does a glob of another program's match all of a path? One that does not compile matches nothing.
pub fn matches_whole(glob: &str, path: &OsStr, any_case: bool) -> bool {
    let glob = GlobBuilder::new(glob).literal_separator(true).case_insensitive(any_case).build();
    glob.is_ok_and(|glob| glob.compile_matcher().is_match(Path::new(path)))
}

fn compile(glob: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|err| err.kind().to_string())
}

/// A part of a glob that is plain enough to be matched here: no braces, no escapes, nothing beyond ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Byte(u8),
    /// `?`
    Any,
    /// `*`
    Many,
    /// `[a-c_]`, and with true `[!a-c_]`.
    Class(bool, Vec<(u8, u8)>),
}

impl Part {
    /// The parts of a glob; `None` for one that only the whole machinery understands, or that is malformed.
    fn list(glob: &str) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        let mut rest = glob.as_bytes();
        while let Some((&first, tail)) = rest.split_first() {
            rest = tail;
            parts.push(match first {
                b'*' => Part::Many,
                b'?' => Part::Any,
                b'[' => {
                    let end = rest.iter().position(|&byte| byte == b']')?;
                    let (inside, behind) = (&rest[..end], &rest[end + 1..]);
                    rest = behind;
                    match inside.split_first() {
                        Some((b'!' | b'^', inside)) => Part::Class(true, ranges(inside)?),
                        _ => Part::Class(false, ranges(inside)?),
                    }
                }
                b']' | b'{' | b'}' | b'\\' => return None,
                byte if byte.is_ascii() => Part::Byte(byte),
                _ => return None,
            });
        }
        Some(parts)
    }

    fn takes(&self, byte: u8) -> bool {
        match self {
            Part::Byte(own) => *own == byte,
            Part::Any | Part::Many => true,
            Part::Class(but, ranges) => ranges.iter().any(|&(from, to)| (from..=to).contains(&byte)) != *but,
        }
    }

    /// Matches a name, which holds no slash. Of several stars only the last one that was met can have to take more.
    fn all_match(parts: &[Part], name: &[u8]) -> bool {
        let (mut at, mut next) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match parts.get(next) {
                Some(Part::Many) => {
                    star = Some((next, at));
                    next += 1;
                }
                Some(part) if part.takes(name[at]) => {
                    at += 1;
                    next += 1;
                }
                Some(_) | None => match &mut star {
                    Some((behind, from)) => {
                        *from += 1;
                        (at, next) = (*from, *behind + 1);
                    }
                    None => return false,
                },
            }
        }
        parts[next..].iter().all(|part| *part == Part::Many)
    }
}

/// The ranges of a class of letters, digits and underscores.
fn ranges(class: &[u8]) -> Option<Vec<(u8, u8)>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut out = Vec::new();
    let mut rest = class;
    while let Some((&from, tail)) = rest.split_first() {
        let (to, tail) = match tail {
            [b'-', to, tail @ ..] => (*to, tail),
            tail => (from, tail),
        };
        if !plain(from) || !plain(to) || from > to {
            return None;
        }
        out.push((from, to));
        rest = tail;
    }
    (!out.is_empty()).then_some(out)
}

/// What one name can be compared with. All but the last are a comparison of bytes; a compiled glob costs a hundred
/// times as much to make, so it is made when a name first comes near it.
#[derive(Debug, Clone)]
enum NameForm {
    Exact(Vec<u8>),
    /// `a*b`, either side possibly empty.
    Around(Vec<u8>, Vec<u8>),
    Plain(Vec<Part>),
    Complex {
        glob: String,
        compiled: Compiled,
    },
}

/// A glob that is compiled when it is first needed.
type Compiled = OnceCell<Option<Box<GlobMatcher>>>;

impl NameForm {
    fn of(glob: &str) -> NameForm {
        if !glob.contains(['?', '[', ']', '{', '}', '\\']) {
            match glob.split_once('*') {
                None => return NameForm::Exact(glob.as_bytes().to_vec()),
                Some((before, after)) if !after.contains('*') => {
                    return NameForm::Around(before.as_bytes().to_vec(), after.as_bytes().to_vec());
                }
                Some(_) => {}
            }
        }
        match Part::list(glob) {
            Some(parts) => NameForm::Plain(parts),
            None => NameForm::Complex { glob: glob.to_owned(), compiled: OnceCell::new() },
        }
    }

    fn matches(&self, name: &[u8]) -> bool {
        match self {
            NameForm::Exact(text) => text == name,
            NameForm::Around(before, after) => {
                name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
            }
            NameForm::Plain(parts) => Part::all_match(parts, name),
            NameForm::Complex { glob, compiled } => is_match(compiled, glob, name),
        }
    }
}

enum Edge {
    First(u8),
    Last(u8),
    None,
}

impl Edge {
    /// A byte that every match of a glob begins with, else one that it ends with. Read off the text: most patterns of a
    /// set never meet a name that comes near them, and so are never taken apart.
    fn of(glob: &str) -> Edge {
        let literal = |byte: Option<&u8>| byte.copied().filter(|b| b.is_ascii() && !b"*?[]{}\\,".contains(b));
        // Behind a backslash the last byte is literal as well, but then the one before is not: leave it.
        let last = if glob.contains('\\') { None } else { literal(glob.as_bytes().last()) };
        match (literal(glob.as_bytes().first()), last) {
            (Some(first), _) => Edge::First(first),
            (None, Some(last)) => Edge::Last(last),
            (None, None) => Edge::None,
        }
    }
}

fn is_match(compiled: &Compiled, glob: &str, text: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    // It was checked when it was parsed.
    let matcher = compiled.get_or_init(|| compile(glob).ok().map(Box::new));
    matcher.as_ref().is_some_and(|matcher| matcher.is_match(Path::new(std::ffi::OsStr::from_bytes(text))))
}

/// One pattern of a set. What compares names is made of its text when a name first comes near it.
#[derive(Debug, Clone)]
struct Member {
    body: Cow<'static, str>,
    anchor: Anchor,
    name: OnceCell<NameForm>,
    path: Compiled,
}

impl Member {
    fn new(pattern: Pattern) -> Member {
        Member { body: pattern.body, anchor: pattern.anchor, name: OnceCell::new(), path: OnceCell::new() }
    }

    /// The part that a name is compared with; `None` for one that says nothing by itself: it is cut out of braces.
    fn name_part(&self) -> Option<&str> {
        let whole = self.anchor != Anchor::Name && self.body.contains('{');
        if whole { None } else { self.body.rsplit('/').next() }
    }

    fn edge(&self) -> Edge {
        self.name_part().map_or(Edge::None, Edge::of)
    }

    fn takes(&self, name: &[u8]) -> bool {
        let form = || match self.name_part() {
            None => NameForm::Around(Vec::new(), Vec::new()),
            // Within a name two stars say no more than one.
            Some(name) if name.contains("**") => NameForm::of(&name.replace("**", "*")),
            Some(name) => NameForm::of(name),
        };
        self.name.get_or_init(form).matches(name)
    }
}

/// Many patterns, asked at once. They lie in buckets by a byte that a matching name begins or ends with, so that most
/// names of a tree meet few of them or none.
#[derive(Debug, Clone, Default)]
pub struct PatternSet {
    members: Vec<Member>,
    first: Buckets,
    last: Buckets,
    rest: Vec<u16>,
}

/// Numbers by a byte: those of byte `b` stand from `starts[b]` up to `starts[b + 1]`.
#[derive(Debug, Clone, Default)]
struct Buckets {
    starts: Vec<u16>,
    numbers: Vec<u16>,
}

impl Buckets {
    fn new(mut pairs: Vec<(u8, u16)>) -> Buckets {
        pairs.sort_unstable();
        let mut starts = Vec::with_capacity(257);
        for (at, &(byte, _)) in pairs.iter().enumerate() {
            starts.resize(starts.len().max(usize::from(byte) + 1), at as u16);
        }
        starts.resize(257, pairs.len() as u16);
        Buckets { starts, numbers: pairs.into_iter().map(|(_, number)| number).collect() }
    }

    fn of(&self, byte: u8) -> &[u16] {
        let byte = usize::from(byte);
        match self.starts.get(byte..byte + 2) {
            Some(&[from, to]) => &self.numbers[usize::from(from)..usize::from(to)],
            _ => &[],
        }
    }
}

impl PatternSet {
    pub fn new(patterns: Vec<Pattern>) -> PatternSet {
        let mut set = PatternSet { members: patterns.into_iter().map(Member::new).collect(), ..PatternSet::default() };
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (index, member) in set.members.iter().enumerate() {
            let index = index as u16;
            match member.edge() {
                Edge::First(byte) => first.push((byte, index)),
                Edge::Last(byte) => last.push((byte, index)),
                Edge::None => set.rest.push(index),
            }
        }
        set.first = Buckets::new(first);
        set.last = Buckets::new(last);
        set
    }

    /// Appends to `hits` the ids of all patterns that match the entry. `absolute` is its path, of which everything
    /// behind `root_len` bytes and a slash is relative to the root; `folded` saves an allocation a call.
    pub fn matches(&self, absolute: &[u8], root_len: usize, folded: &mut Vec<u8>, hits: &mut Vec<usize>) {
        hits.clear();
        let name_at = absolute.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
        let name = &absolute[name_at..];
        let (Some(&first), Some(&last)) = (name.first(), name.last()) else { return };
        if self.members.is_empty() {
            return;
        }
        lower(name, folded);
        // A byte beyond ASCII may fold to one within: then the folded name's own edges count, which are these.
        let first = folded.first().copied().unwrap_or(first);
        let last = folded.last().copied().unwrap_or(last);
        let near = self.first.of(first).iter().chain(self.last.of(last)).chain(&self.rest);
        for &index in near {
            let member = &self.members[usize::from(index)];
            let path = || member.anchor == Anchor::Name || path_matches(member, absolute, root_len);
            if member.takes(folded) && path() {
                hits.push(usize::from(index));
            }
        }
    }
}

fn path_matches(member: &Member, absolute: &[u8], root_len: usize) -> bool {
    let glob = &*member.body;
    // Lower-casing can change the length of non-ASCII text: the root is cut off before it.
    let path = match member.anchor {
        Anchor::Absolute => absolute,
        Anchor::Root | Anchor::Name => absolute.get(root_len + 1..).unwrap_or_default(),
    };
    let mut folded = Vec::new();
    lower(path, &mut folded);
    if !glob.contains(['*', '?', '[', ']', '{', '}', '\\']) {
        return glob.as_bytes() == folded;
    }
    is_match(&member.path, glob, &folded)
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
        let patterns: Vec<Pattern> = patterns.iter().map(|text| Pattern::parse(text.to_string()).unwrap()).collect();
        let set = PatternSet::new(patterns);
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
    fn forms_with_stars_match_as_compiled_globs_do() {
        let globs = [
            "a",
            "a*",
            "*a",
            "a*b",
            "*",
            "*a*",
            "a?b",
            "[ab]c",
            "{a,b}c",
            "**",
            ".*",
            "*.p",
            "ab*ba",
            "x{1,2}/y.{p,q}",
            "*[!b]a",
            "[!a]*b",
            "[^a-b]*",
            "*a*b*",
            "a??*",
            "*.[a-q]",
            "[]a]*",
            "[a-]b",
            "a**b",
            "*[ab][!c]*",
            "[!a]",
            "a\\*",
            "ü*",
        ];
        let names = [
            "ü", "üb", "a*", "]b", "-b", "bXa", "", "a", "b", "ab", "aab", "aba", "abba", "abxba", "ac", "bc", ".a",
            "x.p", "a.p.p", "aXb", "ba",
        ];
        for glob in globs.iter().filter(|glob| !glob.contains('/')) {
            let compiled = compile(glob).unwrap();
            for name in names.iter().filter(|name| !name.is_empty()) {
                let expected = compiled.is_match(name.to_lowercase());
                let found = !hits(&[glob], &format!("/r/{name}")).is_empty();
                assert_eq!(found, expected, "{glob} on {name}");
            }
        }
        assert_eq!(hits(&["x{1,2}/y.{p,q}"], "/r/x2/y.q"), [0]);
        assert_eq!(hits(&["a/{b/c,d}"], "/r/a/b/c"), [0]);
        assert_eq!(hits(&["a/**"], "/r/a/b/c"), [0]);
        assert_eq!(hits(&["a/**/z"], "/r/a/z"), [0]);
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
