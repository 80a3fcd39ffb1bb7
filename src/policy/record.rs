//! What of a policy a session keeps, so that its diff is judged by the rules that the run had.

use super::git::{GitNames, digest};
use super::names::{Effect, Inside, NameRule, NameRules, NameVerdict, Rank, Scratch};
use super::{DiffStyle, Entry, EntryKind, HomeMode, Limits, Mode, NetMode, Policy, Ports};
use crate::path::pattern::PatternError;
use crate::profile::{Origin, Text};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Borrowed from the policy when it is written: a launch waits for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record<'a> {
    /// Bytes, for a path need not be UTF-8.
    places: Vec<(Cow<'a, [u8]>, Place)>,
    rules: Vec<Group<'a>>,
    build_dirs: Cow<'a, [Text]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    git: Option<Cow<'a, GitNames>>,
    /// Indexes that the box writes into the layer, with their digests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<(Cow<'a, [u8]>, String)>,
}

/// What of an entry's kind an apply has to know: where it may write, and where a symlink may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Place {
    Rw,
    Ro,
    Scratch,
    System,
    Hide,
}

impl Place {
    fn of(kind: &EntryKind) -> Option<Place> {
        match kind {
            EntryKind::Rw => Some(Place::Rw),
            EntryKind::Ro => Some(Place::Ro),
            EntryKind::Scratch => Some(Place::Scratch),
            EntryKind::System => Some(Place::System),
            EntryKind::Hide => Some(Place::Hide),
            // The box's own, and gone with it.
            EntryKind::Made(_)
            | EntryKind::Private(_)
            | EntryKind::EmptyHome
            | EntryKind::Proc
            | EntryKind::Dev
            | EntryKind::Socket => None,
        }
    }

    fn kind(self) -> EntryKind {
        match self {
            Place::Rw => EntryKind::Rw,
            Place::Ro => EntryKind::Ro,
            Place::Scratch => EntryKind::Scratch,
            Place::System => EntryKind::System,
            Place::Hide => EntryKind::Hide,
        }
    }
}

/// Rules that follow each other and differ in their text and line alone, as the entries of a list in a profile do.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Group<'a> {
    effect: Effect,
    rank: Rank,
    literal: bool,
    /// Of the first rule.
    origin: Cow<'a, Origin>,
    rules: Vec<(Cow<'a, str>, u32)>,
}

/// The line of an origin that has one.
fn line(origin: &Origin) -> u32 {
    match origin {
        Origin::Profile { line, .. } | Origin::Repository { line, .. } => *line,
        Origin::CommandLine(_) | Origin::BuiltIn(_) => 0,
    }
}

fn same_but_for_the_line(a: &Origin, b: &Origin) -> bool {
    match (a, b) {
        (Origin::Profile { file: a, .. }, Origin::Profile { file: b, .. })
        | (Origin::Repository { file: a, .. }, Origin::Repository { file: b, .. }) => a == b,
        _ => a == b,
    }
}

impl<'a> Group<'a> {
    fn takes(&self, rule: &NameRule) -> bool {
        (self.effect, self.rank, self.literal) == (rule.effect, rule.rank, rule.literal)
            && same_but_for_the_line(&self.origin, &rule.origin)
    }

    fn list(rules: &'a [NameRule]) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for rule in rules {
            let text = (Cow::Borrowed(&*rule.text), line(&rule.origin));
            match groups.last_mut().filter(|group| group.takes(rule)) {
                Some(group) => group.rules.push(text),
                None => groups.push(Group {
                    effect: rule.effect,
                    rank: rule.rank,
                    literal: rule.literal,
                    origin: Cow::Borrowed(&rule.origin),
                    rules: vec![text],
                }),
            }
        }
        groups
    }

    fn rules(self) -> impl Iterator<Item = NameRule> {
        let Group { effect, rank, literal, origin, rules } = self;
        let origin = origin.into_owned();
        rules.into_iter().map(move |(text, at)| {
            let mut origin = origin.clone();
            if let Origin::Profile { line, .. } | Origin::Repository { line, .. } = &mut origin {
                *line = at;
            }
            NameRule { text: text.into_owned().into(), literal, effect, rank, origin }
        })
    }
}

impl Policy {
    pub fn record<'a>(&'a self) -> Record<'a> {
        let place =
            |entry: &'a Entry| Some((Cow::Borrowed(entry.path.as_os_str().as_bytes()), Place::of(&entry.kind)?));
        let indexes = self.git.iter().flat_map(|git| &git.indexes);
        Record {
            places: self.entries.iter().filter_map(place).collect(),
            rules: Group::list(&self.names.rules),
            build_dirs: Cow::Borrowed(&self.names.build_dirs),
            git: self.names.git.as_ref().map(Cow::Borrowed),
            indexes: indexes.map(|index| (index.at.as_os_str().as_bytes().into(), digest(&index.content))).collect(),
        }
    }
}

/// What a name of a root is to the command, by the name rules alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Hidden,
    /// Visible, never written.
    Frozen,
    Open,
}

/// Judges names by a record.
pub struct RecordJudge {
    policy: Policy,
    indexes: Vec<(PathBuf, String)>,
    scratch: RefCell<Scratch>,
}

impl Record<'_> {
    /// # Errors
    /// A pattern that does not compile: the record was changed by hand.
    pub fn judge(self) -> Result<RecordJudge, PatternError> {
        let path = |path: &[u8]| PathBuf::from(OsString::from_vec(path.to_vec()));
        let indexes = self.indexes.iter().map(|(at, digest)| (path(at), digest.clone())).collect();
        Ok(RecordJudge { policy: self.policy()?, indexes, scratch: RefCell::new(Scratch::default()) })
    }

    /// The policy as far as it was written down: what [`Policy::decide`] needs for paths of the host. What was the box's
    /// own is gone with it, so nothing leads there any more.
    ///
    /// # Errors
    /// As [`Record::judge`].
    pub fn policy(self) -> Result<Policy, PatternError> {
        let rules = self.rules.into_iter().flat_map(Group::rules).collect();
        let git = self.git.map(Cow::into_owned);
        let names = NameRules::new(rules, self.build_dirs.into_owned())?.with_git(git);
        let entry = |(path, place): (Cow<'_, [u8]>, Place)| Entry {
            path: PathBuf::from(OsString::from_vec(path.into_owned())),
            kind: place.kind(),
            origin: Origin::BuiltIn("the session's policy".into()),
            why: None,
            file: None,
            id: None,
        };
        let mut entries: Vec<Entry> = self.places.into_iter().map(entry).collect();
        // They were written in this order, but a record is a file.
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Policy {
            profiles: Vec::new(),
            mode: Mode::DryRun,
            diff: DiffStyle::None,
            entries,
            pins: Vec::new(),
            links: Vec::new(),
            names,
            net: NetMode::None,
            ports: Ports::default(),
            environment: Vec::new(),
            limits: Limits::default_on(0),
            home: PathBuf::new(),
            home_mode: HomeMode::Private,
            cwd: PathBuf::from("/"),
            nested: false,
            degraded: Vec::new(),
            tmp: None,
            fds: Vec::new(),
            notices: Vec::new(),
            dropped_path: Vec::new(),
            granted: Vec::new(),
            hidden_for_this_run: Vec::new(),
            git: None,
            no_backup: Vec::new(),
        })
    }
}

impl RecordJudge {
    /// The git directories whose index the box marked before the command ran.
    pub fn marked_repositories(&self) -> impl Iterator<Item = &Path> {
        self.indexes.iter().filter_map(|(index, _)| index.parent())
    }

    /// The digest of what the box itself wrote at this path.
    pub fn written(&self, path: &Path) -> Option<&str> {
        self.indexes.iter().find(|(at, _)| at == path).map(|(_, digest)| digest.as_str())
    }

    /// The rule by which the host obeys what stands at this very name, in words.
    pub fn obeyed(&self, path: &Path) -> Option<String> {
        let entry = self.policy.entry_at(path).filter(|entry| entry.kind.has_names())?;
        let (root_len, bytes) = (entry.path.as_os_str().len(), path.as_os_str().as_bytes());
        if bytes.len() <= root_len {
            return None;
        }
        let scratch = &mut self.scratch.borrow_mut();
        let mut inside = Inside::default();
        let mut above = Inside::default();
        let names = &self.policy.names;
        names.along::<()>(bytes, root_len, true, scratch, |_, below, _| {
            (above, inside) = (inside, below);
            ControlFlow::Continue(())
        });
        let rule = &names.rules[names.obeyed(above, bytes, root_len, scratch)?];
        Some(format!("`{}` ({})", rule.text, rule.origin))
    }

    /// What the absolute host path was to the command.
    pub fn judge(&self, path: &Path, dir: bool) -> Seen {
        let Some(entry) = self.policy.entry_at(path) else { return Seen::Open };
        if !entry.kind.has_names() {
            return if entry.kind == EntryKind::Hide { Seen::Hidden } else { Seen::Open };
        }
        let (root_len, bytes) = (entry.path.as_os_str().len(), path.as_os_str().as_bytes());
        let mut frozen = false;
        let hidden = self.policy.names.along(bytes, root_len, dir, &mut self.scratch.borrow_mut(), |verdict, _, _| {
            frozen = matches!(verdict, NameVerdict::Frozen(_));
            if matches!(verdict, NameVerdict::Hidden(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match (hidden, frozen) {
            (Some(()), _) => Seen::Hidden,
            (None, true) => Seen::Frozen,
            (None, false) => Seen::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_as_they_were() {
        let rule = |text: &str, effect, origin| NameRule {
            text: text.to_owned().into(),
            literal: false,
            effect,
            rank: Rank::Profile,
            origin,
        };
        let profile = |file: &str, line| Origin::Profile { file: file.to_owned().into(), line };
        let rules = [
            rule("a", Effect::Hide, profile("x", 1)),
            rule("b", Effect::Hide, profile("x", 2)),
            rule("c", Effect::Freeze, profile("x", 3)),
            rule("d", Effect::Freeze, profile("y", 3)),
            rule("e", Effect::Freeze, Origin::CommandLine("--freeze".into())),
            NameRule { literal: true, ..rule("f", Effect::Freeze, Origin::CommandLine("--freeze".into())) },
        ];
        let groups = Group::list(&rules);
        assert_eq!(groups.len(), 5);
        let text = serde_json::to_string(&groups).unwrap();
        let back: Vec<Group<'_>> = serde_json::from_str(&text).unwrap();
        let back: Vec<NameRule> = back.into_iter().flat_map(Group::rules).collect();
        assert_eq!(back, rules);
    }
}
