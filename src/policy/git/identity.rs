//! Who commits, from the user's own configuration: the name and the address, and nothing else of it. Tokens in URLs,
//! credential helpers, signing keys and aliases stay outside.

use super::config::{self, Setting};
use super::read::own_file;
use super::repository::Repository;
use crate::path::pattern::{escape, matches_whole as matches};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// As git has it: includes nest no deeper.
const DEEPEST: usize = 10;
/// Files that are read in all, whatever includes what.
const MOST_FILES: usize = 64;

/// What is taken from the user's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: Option<Vec<u8>>,
    pub email: Option<Vec<u8>>,
    /// Redirected hooks, which the host runs: to be frozen, never to be shown.
    pub hooks: Option<PathBuf>,
}

impl Identity {
    /// The user's configuration as it holds for `repository`.
    pub fn read(home: &Path, vars: &BTreeMap<OsString, OsString>, repository: Option<&Repository>) -> Identity {
        let xdg = vars.get(OsStr::new("XDG_CONFIG_HOME")).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let xdg = xdg.unwrap_or_else(|| home.join(".config"));
        let mut reader = Reader { home, repository, left: MOST_FILES, found: Identity::default() };
        // Both are read, and the second has the last word.
        reader.file(&xdg.join("git/config"), 0);
        reader.file(&home.join(".gitconfig"), 0);
        reader.found
    }

    /// The file that says it inside, or `None` where there is nothing to say.
    pub fn text(&self) -> Option<Vec<u8>> {
        let lines = [("name", &self.name), ("email", &self.email)];
        let lines = lines.into_iter().filter_map(|(key, value)| value.as_ref().map(|value| (key, value)));
        let lines: Vec<u8> = lines
            .flat_map(|(key, value)| [b"\t", key.as_bytes(), b" = ", &config::quoted(value), b"\n"].concat())
            .collect();
        let said = !lines.is_empty();
        said.then(|| {
            [b"# Written by agentbox for this run: who commits, from the host's configuration.\n[user]\n", &lines[..]]
                .concat()
        })
    }
}

struct Reader<'a> {
    home: &'a Path,
    repository: Option<&'a Repository>,
    left: usize,
    found: Identity,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, depth: usize) {
        if depth > DEEPEST || self.left == 0 {
            return;
        }
        self.left -= 1;
        let Some(text) = own_file(path) else { return };
        for setting in config::parse(&text) {
            let Some(value) = &setting.value else { continue };
            if setting.is("user", "name") {
                self.found.name = Some(value.clone());
            } else if setting.is("user", "email") {
                self.found.email = Some(value.clone());
            } else if setting.is("core", "hookspath") {
                // What is relative is so to where a hook runs, not to this file.
                let hooks = Path::new(OsStr::from_bytes(value));
                self.found.hooks =
                    Some(hooks.strip_prefix("~").map_or(hooks.to_path_buf(), |rest| self.home.join(rest)));
            } else if setting.key == "path" && self.includes(&setting, path) {
                let next = self.expand(value, path);
                self.file(&next, depth + 1);
            }
        }
    }

    /// `~` is HOME; what is relative is so to the file that says it.
    fn expand(&self, value: &[u8], file: &Path) -> PathBuf {
        let path = Path::new(OsStr::from_bytes(value));
        match path.strip_prefix("~") {
            Ok(rest) => self.home.join(rest),
            Err(_) => file.parent().unwrap_or(Path::new("/")).join(path),
        }
    }

    fn includes(&self, setting: &Setting, file: &Path) -> bool {
        match (setting.section.as_str(), &setting.subsection) {
            ("include", None) => true,
            ("includeif", Some(condition)) => {
                let Ok(condition) = std::str::from_utf8(condition) else { return false };
                self.holds(condition, file)
            }
            _ => false,
        }
    }

    /// Conditions on where the repository lies and on its branch; any other (on its remotes) does not hold.
    fn holds(&self, condition: &str, file: &Path) -> bool {
        let Some((kind, pattern)) = condition.split_once(':') else { return false };
        let Some(repository) = self.repository else { return false };
        match kind {
            "gitdir" | "gitdir/i" => {
                let pattern = self.where_it_lies(pattern, file);
                matches(&pattern, repository.dir.as_os_str(), kind == "gitdir/i")
            }
            "onbranch" => {
                let head = super::read::Held::open(&repository.dir).ok().and_then(|held| held.line("HEAD"));
                let Some(head) = head else { return false };
                let branch = head.as_os_str().as_bytes().strip_prefix(b"ref: refs/heads/");
                let pattern = if pattern.ends_with('/') { format!("{pattern}**") } else { pattern.to_owned() };
                branch.is_some_and(|branch| matches(&pattern, OsStr::from_bytes(branch), false))
            }
            _ => false,
        }
    }

    /// A `gitdir` pattern, made absolute as git does.
    fn where_it_lies(&self, pattern: &str, file: &Path) -> String {
        let text = |path: PathBuf| escape(&path.to_string_lossy());
        let real = |path: &Path| {
            crate::path::resolve(path, Path::new("/")).map_or(path.to_path_buf(), |found| found.path.into_path_buf())
        };
        let mut out = if let Some(rest) = pattern.strip_prefix("~/") {
            format!("{}/{rest}", text(real(self.home)))
        } else if let Some(rest) = pattern.strip_prefix("./") {
            format!("{}/{rest}", text(real(file.parent().unwrap_or(Path::new("/")))))
        } else if pattern.starts_with('/') {
            pattern.to_owned()
        } else {
            format!("**/{pattern}")
        };
        if out.ends_with('/') {
            out.push_str("**");
        }
        out
    }
}
