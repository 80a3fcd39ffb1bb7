//! What of a policy a session keeps, so that its diff is judged by the rules that the run had.

use super::names::{Effect, NameRule, NameRules, NameVerdict, Rank, Scratch};
use super::{DiffStyle, Entry, EntryKind, HomeMode, Limits, Mode, NetMode, Policy, Ports};
use crate::path::pattern::PatternError;
use crate::profile::Origin;
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
    build_dirs: Cow<'a, [String]>,
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
            let text = (Cow::Borrowed(rule.text.as_str()), line(&rule.origin));
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
            NameRule { text: text.into_owned(), literal, effect, rank, origin }
        })
    }
}

impl Policy {
    pub fn record<'a>(&'a self) -> Record<'a> {
        let place =
            |entry: &'a Entry| Some((Cow::Borrowed(entry.path.as_os_str().as_bytes()), Place::of(&entry.kind)?));
        Record {
            places: self.entries.iter().filter_map(place).collect(),
            rules: Group::list(&self.names.rules),
            build_dirs: Cow::Borrowed(&self.names.build_dirs),
        }
    }
}

/// Judges names by a record.
pub struct RecordJudge {
    policy: Policy,
    scratch: RefCell<Scratch>,
}

impl Record<'_> {
    /// # Errors
    /// A pattern that does not compile: the record was changed by hand.
    pub fn judge(self) -> Result<RecordJudge, PatternError> {
        Ok(RecordJudge { policy: self.policy()?, scratch: RefCell::new(Scratch::default()) })
    }

    /// The policy as far as it was written down: what [`Policy::decide`] needs for paths of the host. What was the box's
    /// own is gone with it, so nothing leads there any more.
    ///
    /// # Errors
    /// As [`Record::judge`].
    pub fn policy(self) -> Result<Policy, PatternError> {
        let rules = self.rules.into_iter().flat_map(Group::rules).collect();
        let names = NameRules::new(rules, self.build_dirs.into_owned())?;
        let entry = |(path, place): (Cow<'_, [u8]>, Place)| Entry {
            path: PathBuf::from(OsString::from_vec(path.into_owned())),
            kind: place.kind(),
            origin: Origin::BuiltIn("the session's policy".to_owned()),
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
        })
    }
}

impl RecordJudge {
    /// Was the absolute host path invisible to the command?
    pub fn hides(&self, path: &Path, dir: bool) -> bool {
        let Some(entry) = self.policy.entry_at(path) else { return false };
        if !entry.kind.has_names() {
            return entry.kind == EntryKind::Hide;
        }
        let (root_len, bytes) = (entry.path.as_os_str().len(), path.as_os_str().as_bytes());
        let hidden = self.policy.names.along(bytes, root_len, dir, &mut self.scratch.borrow_mut(), |verdict, _, _| {
            if matches!(verdict, NameVerdict::Hidden(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        hidden.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back_as_they_were() {
        let rule = |text: &str, effect, origin| NameRule {
            text: text.into(),
            literal: false,
            effect,
            rank: Rank::Profile,
            origin,
        };
        let profile = |file: &str, line| Origin::Profile { file: file.into(), line };
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
