//! The environment inside: from an allow list, never from what happens to be set.

use super::names::Scratch;
use super::{Entry, EntryKind, PolicyError};
use crate::path::pattern::{Pattern, PatternSet};
use crate::profile::{Profile, Text, Written};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the box itself knows of the caller.
pub(super) struct Caller<'a> {
    pub vars: &'a BTreeMap<OsString, OsString>,
    pub home: &'a Path,
    pub user: &'a str,
    pub shell: &'a str,
    pub cwd: &'a Path,
    /// PATH without what is not visible inside.
    pub path: &'a [PathBuf],
    pub tmp: &'a Path,
}

/// Patterns of one list, each with its weight.
struct List {
    set: PatternSet,
    weights: Vec<u16>,
}

impl List {
    fn new<'a>(entries: impl Iterator<Item = &'a Written<Text>>) -> Result<List, PolicyError> {
        let parse = |entry: &Written<Text>| {
            Pattern::parse(entry.value.clone())
                .map_err(|error| PolicyError::Pattern { origin: entry.origin.to_string(), error })
        };
        let patterns = entries.map(parse).collect::<Result<Vec<_>, _>>()?;
        let weights = patterns.iter().map(Pattern::weight).collect();
        let set = PatternSet::new(patterns);
        Ok(List { set, weights })
    }

    /// The weight of the most literal pattern that matches.
    fn weight(&self, name: &OsStr, scratch: &mut Scratch) -> Option<u16> {
        let Scratch { folded, hits } = scratch;
        self.set.matches(name.as_bytes(), 0, folded, hits);
        hits.iter().map(|&hit| self.weights[hit]).max()
    }
}

/// Builds the environment. `cli` beats `profile`; a repository's file only adds to what never passes.
pub(super) fn build(
    caller: &Caller<'_>,
    cli: &Profile,
    profile: &Profile,
    repository: Option<&Profile>,
    entries: &[Entry],
) -> Result<Vec<(OsString, OsString)>, PolicyError> {
    let asked = List::new(cli.environment.pass.iter())?;
    let pass = List::new(profile.environment.pass.iter())?;
    let deny = List::new(profile.environment.deny.iter())?;
    let repository_deny = List::new(repository.into_iter().flat_map(|file| &file.environment.deny))?;
    let mut out: BTreeMap<OsString, OsString> = BTreeMap::new();
    let scratch = &mut Scratch::default();
    for (name, value) in caller.vars {
        // Of pass and deny the more literal pattern wins: GIT_AUTHOR_NAME passes although GIT_* does not.
        let denied = deny.weight(name, scratch).into_iter().chain(repository_deny.weight(name, scratch)).max();
        let passes = match (pass.weight(name, scratch), denied) {
            (Some(pass), Some(deny)) => pass > deny,
            (Some(_), None) => true,
            (None, _) => false,
        };
        // The variable that names a granted socket is part of the grant.
        let socket = || entries.iter().any(|e| e.kind == EntryKind::Socket && e.path.as_os_str() == value.as_os_str());
        if asked.weight(name, scratch).is_some() || passes || socket() {
            out.insert(name.clone(), value.clone());
        }
    }
    for source in [profile, cli] {
        for (name, value) in &source.environment.set {
            let value = match value.value.strip_prefix("~/") {
                Some(rest) => caller.home.join(rest).into_os_string(),
                None => OsString::from(&value.value),
            };
            out.insert(name.into(), value);
        }
    }
    let path = std::env::join_paths(caller.path).unwrap_or_default();
    let mut fixed = |name: &str, value: &OsStr| out.insert(name.into(), value.to_owned());
    fixed("HOME", caller.home.as_os_str());
    fixed("USER", OsStr::new(caller.user));
    fixed("LOGNAME", OsStr::new(caller.user));
    fixed("PWD", caller.cwd.as_os_str());
    fixed("TMPDIR", caller.tmp.as_os_str());
    fixed("AGENTBOX", OsStr::new("1"));
    fixed("PATH", &path);
    out.entry("SHELL".into()).or_insert_with(|| caller.shell.into());
    Ok(out.into_iter().collect())
}
