//! Finds profiles by name or file, follows `extends`, and merges them in order.

use super::builtin::{BUILT_IN, LABELS, PROGRAMS};
use super::error::{LoadError, Notice, Place};
use super::merge::Merged;
use super::narrow::narrow;
use super::quick;
use super::read::{Author, Sheet, read};
use super::schema::{Origin, Profile, Written};
use super::value::nearest;
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// A profile is a page of text. More is a mistake, or an attempt to make the launcher slow.
const LARGEST: u64 = 256 * 1024;
/// A stranger's: each pattern is compiled before the launch, and thousands of them would be felt.
const LARGEST_REPOSITORY: u64 = 64 * 1024;
/// No chain of `extends` that a person wrote is this long; symlinks could make one that never ends.
const MOST: usize = 64;
/// The profile of a run without `-p`.
const DEFAULT: &str = "default";
/// Before the name of a built-in profile, where it is a file's; also a way to name one that a user's file replaces.
const COMPILED_IN: &str = "built-in:";

/// Where profiles come from.
#[derive(Debug, Clone)]
pub struct Loader {
    user_dir: Option<PathBuf>,
}

/// One line of `profile list`.
#[derive(Debug)]
pub struct Listed {
    pub name: String,
    /// `built-in:NAME`, or the user's file.
    pub source: String,
    pub description: Option<String>,
    pub programs: Vec<String>,
    /// Why the file cannot be used.
    pub broken: Option<LoadError>,
}

/// The text a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    BuiltIn(&'static str, &'static str),
    File(PathBuf),
}

impl Found {
    fn label(&self) -> String {
        match self {
            Found::BuiltIn(name, _) => format!("{COMPILED_IN}{name}"),
            Found::File(path) => path.display().to_string(),
        }
    }
}

/// One request on its way through `extends`.
struct Walk {
    merged: Merged,
    notices: Vec<Notice>,
    done: Vec<Found>,
    /// From the `-p` argument to the profile being read.
    chain: Vec<(String, Found)>,
}

impl Loader {
    /// `user_dir` is `$XDG_CONFIG_HOME/agentbox/profiles`; it need not exist.
    pub fn new(user_dir: Option<PathBuf>) -> Loader {
        // Asked once, not for every name.
        Loader { user_dir: user_dir.filter(|dir| fs::symlink_metadata(dir).is_ok()) }
    }

    /// Loads the profiles that `-p` names, in order; none means `default`. A profile that is reached twice counts once,
    /// at its first place.
    pub fn load(&self, names: &[String]) -> Result<(Profile, Vec<Notice>), LoadError> {
        let mut walk = Walk { merged: Merged::default(), notices: Vec::new(), done: Vec::new(), chain: Vec::new() };
        if names.is_empty() {
            self.follow(DEFAULT, None, &mut walk)?;
        }
        for name in names {
            self.follow(name, None, &mut walk)?;
        }
        Ok((walk.merged.profile, walk.notices))
    }

    /// The profile that claims this program, whose directory does not matter. The user's profiles come before the
    /// built-in ones. A broken file is an error here too: nobody can tell whether it would have been the one.
    pub fn pick(&self, program: &str) -> Result<Option<String>, LoadError> {
        let program = program.rsplit('/').next().unwrap_or(program);
        let users = self.users_names()?;
        let mut names = Vec::new();
        for name in &users {
            let Some(file) = self.users_file(name) else { continue };
            if open(&Found::File(file))?.profile.programs.iter().any(|known| known == program) {
                names.push(name.clone());
            }
        }
        if names.is_empty() {
            let claims = PROGRAMS.iter().filter(|(_, known)| *known == program).map(|(name, _)| (*name).to_string());
            names = claims.filter(|name| !users.contains(name)).collect();
        }
        match names.as_slice() {
            [] => Ok(None),
            [name] => Ok(Some(name.clone())),
            _ => Err(LoadError::Ambiguous { program: program.to_string(), names }),
        }
    }

    /// Reads a repository's `agentbox.toml`, already in memory, and keeps what narrows. `path` is for messages only.
    pub fn repository(&self, text: &[u8], path: &Path) -> Result<(Profile, Vec<Notice>), LoadError> {
        let file = path.display().to_string();
        if text.len() as u64 > LARGEST_REPOSITORY {
            return Err(LoadError::TooLarge { file, bytes: LARGEST_REPOSITORY });
        }
        let sheet = read(&file, utf8(&file, text)?, Author::Repository)?;
        Ok(narrow(&file, sheet))
    }

    /// Every profile that a name reaches: the user's, then the built-in ones that none of them replaces.
    pub fn names(&self) -> Result<Vec<Listed>, LoadError> {
        let mut out = Vec::new();
        for name in self.known()? {
            let Some(found) = self.find(&name, None) else { continue };
            let source = found.label();
            let (description, programs, broken) = match open(&found) {
                Ok(sheet) => (sheet.profile.description, sheet.profile.programs, None),
                Err(error) => (None, Vec::new(), Some(error)),
            };
            out.push(Listed { name, source, description, programs, broken });
        }
        Ok(out)
    }

    /// Reads one profile after all that it extends.
    fn follow(&self, name: &str, from: Option<Place>, walk: &mut Walk) -> Result<(), LoadError> {
        let user = walk.chain.last().map(|(_, found)| found.clone());
        let Some(found) = self.find(name, user.as_ref()) else { return Err(self.unknown(name, from)) };
        let place = from.unwrap_or_else(|| Place { file: found.label(), line: 1 });
        if walk.done.contains(&found) {
            return Ok(());
        }
        if walk.chain.iter().any(|(_, earlier)| *earlier == found) {
            let names = walk.chain.iter().skip_while(|(_, earlier)| *earlier != found).map(|(name, _)| name.clone());
            return Err(LoadError::Circle { place, chain: names.chain([name.to_string()]).collect() });
        }
        if walk.chain.len() + walk.done.len() >= MOST {
            return Err(LoadError::TooMany { place, name: name.to_string() });
        }
        let sheet = open(&found)?;
        walk.chain.push((name.to_string(), found.clone()));
        for base in &sheet.extends {
            self.follow(&base.value, place_of(base), walk)?;
        }
        walk.chain.pop();
        walk.notices.extend(sheet.notices.iter().cloned());
        walk.done.push(found);
        walk.merged.add(name, sheet)
    }

    /// What a name means in `user`, the profile that extends it. A built-in profile extends built-in ones only, so that
    /// no user's file changes what it stands for; a user's file that has the name of a built-in one can extend that.
    fn find(&self, name: &str, user: Option<&Found>) -> Option<Found> {
        if name.contains('/') || name.ends_with(".toml") {
            let beside = match user {
                Some(Found::File(file)) => file.parent().map(|dir| dir.join(name)),
                Some(Found::BuiltIn(..)) | None => None,
            };
            return Some(Found::File(plain(&beside.unwrap_or_else(|| PathBuf::from(name)))));
        }
        if let Some(name) = name.strip_prefix(COMPILED_IN) {
            return compiled_in(name);
        }
        let in_user_dir = match user {
            Some(Found::BuiltIn(..)) => None,
            Some(Found::File(_)) | None => {
                self.users_file(name).filter(|file| user != Some(&Found::File(file.clone())))
            }
        };
        in_user_dir.map(Found::File).or_else(|| compiled_in(name))
    }

    /// The user's file of this name, if there is one. One that cannot be read is still the one that was meant.
    fn users_file(&self, name: &str) -> Option<PathBuf> {
        let file = self.user_dir.as_ref()?.join(format!("{name}.toml"));
        fs::symlink_metadata(&file).is_ok().then(|| plain(&file))
    }

    /// The names of all profiles.
    fn known(&self) -> Result<Vec<String>, LoadError> {
        let mut names = self.users_names()?;
        let built_in = BUILT_IN.iter().map(|(name, _)| (*name).to_string());
        let rest: Vec<String> = built_in.filter(|name| !names.contains(name)).collect();
        names.extend(rest);
        Ok(names)
    }

    /// The names of the user's own profiles.
    fn users_names(&self) -> Result<Vec<String>, LoadError> {
        let mut names = Vec::new();
        if let Some(dir) = &self.user_dir {
            let unreadable = |errno| LoadError::Unreadable { file: dir.display().to_string(), errno };
            match fs::read_dir(dir) {
                Ok(entries) => {
                    for entry in entries {
                        let file = entry.map_err(unreadable)?.file_name();
                        let name = file.to_str().and_then(|file| file.strip_suffix(".toml"));
                        // Editors leave dotfiles beside what is being edited.
                        names.extend(name.filter(|name| !name.starts_with('.')).map(str::to_string));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        names.sort();
        Ok(names)
    }

    fn unknown(&self, name: &str, place: Option<Place>) -> LoadError {
        // The name is the news here; a directory that cannot be listed only shortens the hint.
        let known = self.known().unwrap_or_else(|_| BUILT_IN.iter().map(|(name, _)| (*name).to_string()).collect());
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_string);
        LoadError::UnknownProfile { place, name: name.to_string(), known, nearest }
    }
}

fn compiled_in(name: &str) -> Option<Found> {
    let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
    Some(Found::BuiltIn(name, text))
}

fn place_of(written: &Written<String>) -> Option<Place> {
    match &written.origin {
        Origin::Profile { file, line } | Origin::Repository { file, line } => {
            Some(Place { file: file.to_string(), line: *line })
        }
        Origin::CommandLine(_) | Origin::BuiltIn(_) => None,
    }
}

/// The path without `.` and doubled slashes, so that one file has one spelling more often.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

fn open(found: &Found) -> Result<Sheet, LoadError> {
    match found {
        Found::BuiltIn(name, text) => {
            let label = LABELS.iter().find(|(known, _)| known == name).map_or(*name, |(_, label)| label);
            quick::sheet(label, text).map_or_else(|| read(label, text, Author::User), Ok)
        }
        Found::File(path) => {
            let file = found.label();
            let bytes = bytes(path).map_err(|errno| LoadError::Unreadable { file: file.clone(), errno })?;
            if bytes.len() as u64 > LARGEST {
                return Err(LoadError::TooLarge { file, bytes: LARGEST });
            }
            read(&file, utf8(&file, &bytes)?, Author::User)
        }
    }
}

/// At most one byte more than a profile may have: `-p /dev/zero` ends too. A pipe is fine, for `-p` may name one.
fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    fs::File::open(path)?.take(LARGEST + 1).read_to_end(&mut out)?;
    Ok(out)
}

fn utf8<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, LoadError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count();
        let line = u32::try_from(before + 1).unwrap_or(u32::MAX);
        LoadError::NotUtf8 { place: Place { file: file.to_string(), line } }
    })
}
