//! Name rules inside a root: what is hidden, what is visible but never written.
//!
//! Of the rules that match a name, the source that ranks higher wins, then the pattern with more literal characters,
//! then hide over read-only over read-write. Both the scan before a launch and `decide` judge through here, component
//! by component, so that they cannot disagree.

use super::git::{GitNames, Inner};
use crate::path::pattern::{Pattern, PatternError, PatternSet};
use crate::profile::{GitAccess, Origin, Text};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Invisible.
    Hide,
    /// Invisible, but not inside dependency, build and cache directories: the rule of the leading dot.
    HideDotfile,
    /// Visible, never written.
    GrantRo,
    /// Visible.
    GrantRw,
    /// Never written where it is visible.
    Freeze,
}

/// Which source a rule comes from: lower ranks beat higher ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rank {
    BuiltIn,
    CommandLine,
    Profile,
    Repository,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRule {
    pub text: Text,
    /// Matches this very path instead of a glob.
    pub literal: bool,
    pub effect: Effect,
    pub rank: Rank,
    pub origin: Origin,
}

/// What the judge knows of the directory it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inside {
    /// Somewhere above is a dependency, build or cache directory.
    pub build: bool,
    /// The rule that froze a directory above.
    pub frozen: Option<usize>,
    /// The rule that hides a directory above which exists only for what is granted below it.
    pub closed: Option<usize>,
    /// The length of the path of the granted git directory that this is, or lies in.
    pub git: Option<usize>,
    /// Nothing below has a verdict of its own: no walk need look.
    pub settled: bool,
}

/// The verdict on one name; the number is the rule's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameVerdict {
    Visible,
    Hidden(usize),
    Frozen(usize),
    /// A hidden directory on the way to something granted: it exists and holds that alone.
    Through(usize),
}

/// All name rules of a policy, compiled.
#[derive(Debug, Clone, Default)]
pub struct NameRules {
    pub rules: Vec<NameRule>,
    pub build_dirs: Vec<Text>,
    /// With the grant of git: how names are judged in a repository.
    pub git: Option<GitNames>,
    weights: Vec<u16>,
    set: PatternSet,
    build: PatternSet,
    /// Directories on the way to what a grant with a path names.
    through: PatternSet,
}

/// Buffers that one walk reuses.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) folded: Vec<u8>,
    pub(super) hits: Vec<usize>,
}

impl NameRules {
    /// # Errors
    /// The first pattern that does not compile.
    pub fn new(rules: Vec<NameRule>, build_dirs: Vec<Text>) -> Result<NameRules, PatternError> {
        let compile = |rule: &NameRule| {
            if rule.literal { Pattern::literal(Path::new(&*rule.text)) } else { Pattern::parse(rule.text.clone()) }
        };
        let patterns = rules.iter().map(compile).collect::<Result<Vec<_>, _>>()?;
        let build = build_dirs.iter().map(|text| Pattern::parse(text.clone())).collect::<Result<Vec<_>, _>>()?;
        Ok(NameRules {
            weights: patterns.iter().map(Pattern::weight).collect(),
            set: PatternSet::new(patterns),
            build: PatternSet::new(build),
            through: PatternSet::new(ways(&rules)?),
            rules,
            build_dirs,
            git: None,
        })
    }

    /// The same rules where repositories can be used.
    pub fn with_git(mut self, git: Option<GitNames>) -> NameRules {
        self.git = git;
        self
    }

    /// Judges the entry at the absolute `path`, which lies strictly below a root whose own path is `root_len` bytes
    /// long, and says what holds inside it.
    pub fn judge(
        &self,
        inside: Inside,
        path: &[u8],
        root_len: usize,
        dir: bool,
        scratch: &mut Scratch,
    ) -> (NameVerdict, Inside) {
        if let Some(git) = &self.git
            && let Some(judged) = self.judge_git(git, inside, path, root_len, dir, scratch)
        {
            return judged;
        }
        self.set.matches(path, root_len, &mut scratch.folded, &mut scratch.hits);
        let mut verdict = self.verdict(inside, &scratch.hits);
        let mut below = inside;
        if dir {
            if let NameVerdict::Hidden(rule) = verdict {
                self.through.matches(path, root_len, &mut scratch.folded, &mut scratch.hits);
                if !scratch.hits.is_empty() {
                    verdict = NameVerdict::Through(rule);
                    below.closed = Some(rule);
                }
            } else if verdict != NameVerdict::Visible || !scratch.hits.is_empty() {
                // Granted itself, so what is in it is judged by its own names again.
                below.closed = None;
            }
            if let NameVerdict::Frozen(rule) = verdict {
                below.frozen = Some(rule);
            }
            if !below.build {
                self.build.matches(path, root_len, &mut scratch.folded, &mut scratch.hits);
                below.build = !scratch.hits.is_empty();
            }
        }
        (verdict, below)
    }

    /// Judges a granted repository and what is in it; `None` for every other name.
    fn judge_git(
        &self,
        git: &GitNames,
        inside: Inside,
        path: &[u8],
        root_len: usize,
        dir: bool,
        scratch: &mut Scratch,
    ) -> Option<(NameVerdict, Inside)> {
        let frozen = |rule| (NameVerdict::Frozen(rule), Inside { frozen: Some(rule), settled: true, ..inside });
        let Some(length) = inside.git.or_else(|| git.holder(path)) else {
            if inside.closed.is_some() || !git.is_repository(path) {
                return None;
            }
            self.set.matches(path, root_len, &mut scratch.folded, &mut scratch.hits);
            // Hidden by name on the command line, which says it with more weight than a grant.
            let hides = |hit: &&usize| {
                matches!(self.rules[**hit].effect, Effect::Hide) && self.rules[**hit].rank <= Rank::CommandLine
            };
            if let Some(hit) = scratch.hits.iter().find(hides) {
                return Some((NameVerdict::Hidden(*hit), inside));
            }
            let below = Inside { git: Some(path.len()), ..inside };
            return Some(match (inside.frozen, git.access) {
                (Some(rule), _) => (NameVerdict::Frozen(rule), below),
                (None, GitAccess::Ro) => (NameVerdict::Frozen(git.grant), Inside { frozen: Some(git.grant), ..below }),
                (None, GitAccess::Rw) if dir => (NameVerdict::Visible, below),
                // A pointer to a repository.
                (None, GitAccess::Rw) => frozen(git.freeze),
            });
        };
        let inside = Inside { git: Some(length), ..inside };
        let inner = git.inner(path, length, dir);
        let below = Inside { settled: inside.settled || inner != Inner::Holds, ..inside };
        Some(match (inside.frozen, inner) {
            (Some(rule), _) => (NameVerdict::Frozen(rule), below),
            (None, Inner::Frozen) if !self.lifted(path) => frozen(git.freeze),
            (None, Inner::Frozen | Inner::Plain | Inner::Holds) => (NameVerdict::Visible, below),
        })
    }

    /// Does a grant of the command line name this very path, or a directory above it?
    fn lifted(&self, path: &[u8]) -> bool {
        let names = |rule: &&NameRule| {
            rule.literal
                && rule.effect == Effect::GrantRw
                && rule.rank == Rank::CommandLine
                && path.strip_prefix(rule.text.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.rules.iter().any(|rule| names(&rule))
    }

    /// Does the command line grant this very name? Then the user asked for it, whatever else it is a name of.
    pub fn is_asked_for(&self, path: &[u8], root_len: usize, scratch: &mut Scratch) -> bool {
        self.set.matches(path, root_len, &mut scratch.folded, &mut scratch.hits);
        scratch
            .hits
            .iter()
            .map(|&hit| &self.rules[hit])
            .any(|rule| rule.rank == Rank::CommandLine && matches!(rule.effect, Effect::GrantRo | Effect::GrantRw))
    }

    /// Judges a path component by component, as the scan descends, until `each` breaks off. It is told the verdict, what
    /// holds inside, and whether this is the last component, which is a directory if `dir` says so.
    pub fn along<B>(
        &self,
        path: &[u8],
        root_len: usize,
        dir: bool,
        scratch: &mut Scratch,
        mut each: impl FnMut(NameVerdict, Inside, bool) -> ControlFlow<B>,
    ) -> Option<B> {
        let mut inside = Inside::default();
        let slashes = (root_len + 1..path.len()).filter(|&at| path[at] == b'/');
        for end in slashes.chain([path.len()]).filter(|&end| end > root_len) {
            let last = end == path.len();
            let (verdict, below) = self.judge(inside, &path[..end], root_len, dir || !last, scratch);
            if let ControlFlow::Break(found) = each(verdict, below, last) {
                return Some(found);
            }
            inside = below;
        }
        None
    }

    fn verdict(&self, inside: Inside, hits: &[usize]) -> NameVerdict {
        let mut seen: Option<usize> = None;
        let freeze = self.freeze(inside, hits);
        for &hit in hits {
            let rule = &self.rules[hit];
            match rule.effect {
                Effect::HideDotfile if inside.build => {}
                Effect::Freeze => {}
                Effect::Hide | Effect::HideDotfile | Effect::GrantRo | Effect::GrantRw => {
                    if seen.is_none_or(|best| self.beats(hit, best)) {
                        seen = Some(hit);
                    }
                }
            }
        }
        let granted = seen.map(|rule| (rule, self.rules[rule].effect));
        match (granted, freeze) {
            (Some((rule, Effect::Hide | Effect::HideDotfile)), _) => NameVerdict::Hidden(rule),
            // In a dependency or build directory a read-only mount in the way would break the next install or clean.
            (Some((rule, Effect::GrantRo)), _) if inside.build && self.rules[rule].rank > Rank::CommandLine => {
                NameVerdict::Visible
            }
            (Some((rule, Effect::GrantRo)), _) => NameVerdict::Frozen(rule),
            // A freeze gives way to a read-write grant of a higher rank alone: the command line's.
            (Some((rule, Effect::GrantRw)), Some(freeze)) if self.rules[rule].rank < self.rules[freeze].rank => {
                NameVerdict::Visible
            }
            (None, _) if inside.closed.is_some() => NameVerdict::Hidden(inside.closed.unwrap_or_default()),
            (_, Some(freeze)) => NameVerdict::Frozen(freeze),
            _ => inside.frozen.map_or(NameVerdict::Visible, NameVerdict::Frozen),
        }
    }

    /// The strongest rule that freezes the name.
    fn freeze(&self, inside: Inside, hits: &[usize]) -> Option<usize> {
        let mut best: Option<usize> = None;
        for &hit in hits {
            let rule = &self.rules[hit];
            let holds = rule.effect == Effect::Freeze && (!inside.build || rule.rank <= Rank::CommandLine);
            if holds && best.is_none_or(|best| self.beats(hit, best)) {
                best = Some(hit);
            }
        }
        best
    }

    /// Does the host obey what stands at this very name, whether it is shown or hidden? The rule that says so, unless a
    /// grant of a higher rank lets the command write it.
    pub fn obeyed(&self, inside: Inside, path: &[u8], root_len: usize, scratch: &mut Scratch) -> Option<usize> {
        if let Some(git) = &self.git
            && let Some(length) = inside.git.or_else(|| git.holder(path))
        {
            let frozen = git.inner(path, length, false) == Inner::Frozen && !self.lifted(path);
            return frozen.then_some(git.freeze);
        }
        self.set.matches(path, root_len, &mut scratch.folded, &mut scratch.hits);
        let freeze = self.freeze(inside, &scratch.hits)?;
        let lifts =
            |&hit: &usize| self.rules[hit].effect == Effect::GrantRw && self.rules[hit].rank < self.rules[freeze].rank;
        (!scratch.hits.iter().any(lifts)).then_some(freeze)
    }

    fn beats(&self, challenger: usize, best: usize) -> bool {
        let key = |index: usize| {
            let strictness = match self.rules[index].effect {
                Effect::Hide | Effect::HideDotfile => 2,
                Effect::Freeze | Effect::GrantRo => 1,
                Effect::GrantRw => 0u8,
            };
            (std::cmp::Reverse(self.rules[index].rank), self.weights[index], strictness)
        };
        key(challenger) > key(best)
    }
}

/// The directories that lead to what grants with a path name: `**/.cargo` for `**/.cargo/config.toml`.
fn ways(rules: &[NameRule]) -> Result<Vec<Pattern>, PatternError> {
    let mut out = Vec::new();
    for rule in rules.iter().filter(|rule| matches!(rule.effect, Effect::GrantRo | Effect::GrantRw)) {
        let mut text = &*rule.text;
        while let Some((parent, _)) = text.rsplit_once('/') {
            let name = parent.rsplit('/').next().unwrap_or_default();
            // A wildcard alone names no directory that would have to exist.
            if !matches!(name, "" | "*" | "**") {
                out.push(if rule.literal {
                    Pattern::literal(parent.as_ref())?
                } else {
                    Pattern::parse(parent.to_owned())?
                });
            }
            text = parent;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &[(&str, Effect, Rank)]) -> NameRules {
        let rule = |(text, effect, rank): &(&str, Effect, Rank)| NameRule {
            text: text.to_string().into(),
            literal: false,
            effect: *effect,
            rank: *rank,
            origin: Origin::BuiltIn("test".into()),
        };
        NameRules::new(list.iter().map(rule).collect(), vec!["node_modules".into()]).unwrap()
    }

    fn judge(rules: &NameRules, inside: Inside, path: &str) -> NameVerdict {
        rules.judge(inside, path.as_bytes(), 2, false, &mut Scratch::default()).0
    }

    #[test]
    fn more_literal_wins_then_hide() {
        use Effect::{GrantRo, GrantRw, Hide, HideDotfile};
        let set = rules(&[
            (".*", HideDotfile, Rank::Profile),
            (".env.*", Hide, Rank::Profile),
            (".env.example", GrantRo, Rank::Profile),
            (".gitignore", GrantRw, Rank::Profile),
            ("same", GrantRw, Rank::Profile),
            ("same", Hide, Rank::Profile),
        ]);
        let at = |path| judge(&set, Inside::default(), path);
        assert_eq!(at("/r/a/.x"), NameVerdict::Hidden(0));
        assert_eq!(at("/r/.env.prod"), NameVerdict::Hidden(1));
        assert_eq!(at("/r/.env.example"), NameVerdict::Frozen(2));
        assert_eq!(at("/r/.gitignore"), NameVerdict::Visible);
        assert_eq!(at("/r/same"), NameVerdict::Hidden(5));
        assert_eq!(at("/r/plain"), NameVerdict::Visible);
    }

    #[test]
    fn the_command_line_beats_the_profile_and_the_profile_the_repository() {
        use Effect::{Freeze, GrantRw, Hide};
        let set = rules(&[
            (".env", Hide, Rank::Profile),
            ("*nv", GrantRw, Rank::CommandLine),
            ("package.json", Freeze, Rank::Profile),
            ("package.json", GrantRw, Rank::CommandLine),
            ("x", GrantRw, Rank::Profile),
            ("x", Hide, Rank::Repository),
        ]);
        let at = |path| judge(&set, Inside::default(), path);
        assert_eq!(at("/r/.env"), NameVerdict::Visible);
        assert_eq!(at("/r/package.json"), NameVerdict::Visible);
        assert_eq!(at("/r/x"), NameVerdict::Visible);
    }

    #[test]
    fn the_dotfile_rule_ends_in_build_directories_and_secrets_do_not() {
        let set = rules(&[(".*", Effect::HideDotfile, Rank::Profile), ("*.pem", Effect::Hide, Rank::Profile)]);
        let (_, inside) = set.judge(Inside::default(), b"/r/node_modules", 2, true, &mut Scratch::default());
        assert!(inside.build);
        assert_eq!(judge(&set, inside, "/r/node_modules/.bin"), NameVerdict::Visible);
        assert_eq!(judge(&set, inside, "/r/node_modules/a.pem"), NameVerdict::Hidden(1));
    }

    #[test]
    fn a_hidden_directory_holds_only_what_is_granted_below_it() {
        let set = rules(&[
            (".*", Effect::HideDotfile, Rank::Profile),
            ("**/.cargo/config.toml", Effect::GrantRo, Rank::Profile),
        ]);
        let (verdict, inside) = set.judge(Inside::default(), b"/r/a/.cargo", 2, true, &mut Scratch::default());
        assert_eq!(verdict, NameVerdict::Through(0));
        assert_eq!(judge(&set, inside, "/r/a/.cargo/config.toml"), NameVerdict::Frozen(1));
        assert_eq!(judge(&set, inside, "/r/a/.cargo/plain"), NameVerdict::Hidden(0));
        let (verdict, _) = set.judge(Inside::default(), b"/r/.other", 2, true, &mut Scratch::default());
        assert_eq!(verdict, NameVerdict::Hidden(0));
    }

    #[test]
    fn a_frozen_directory_freezes_what_is_in_it() {
        let set = rules(&[("hooks", Effect::Freeze, Rank::Profile)]);
        let (verdict, inside) = set.judge(Inside::default(), b"/r/hooks", 2, true, &mut Scratch::default());
        assert_eq!(verdict, NameVerdict::Frozen(0));
        assert_eq!(judge(&set, inside, "/r/hooks/x"), NameVerdict::Frozen(0));
    }
}
