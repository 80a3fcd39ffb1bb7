//! The grant of git (`--git`): a repository's history can be used inside, and nothing that the host obeys can be changed.
//!
//! `repository` finds what belongs to a root, `inner` and `names` say what of it is frozen, `tracked` and `index` keep
//! hidden files from being taken for deleted ones, `identity` takes a name and an address from the user's configuration.
//! Nothing of git's is run, here or anywhere else outside the box.

mod config;
mod identity;
mod index;
mod inner;
mod names;
mod read;
mod repository;
mod tracked;

pub use inner::Inner;
pub use names::GitNames;
pub use repository::{OtherTree, Repository};
pub use tracked::HiddenIndex;

use super::names::{Effect, NameRule, Rank};
use super::roots::Roots;
use super::{Entry, EntryKind, Policy, PolicyError, Private, Request};
use crate::path::{Kind, identity as identity_of, is_at_or_below};
use crate::profile::{GitAccess, Mode, Origin, Profile, Written};
use identity::Identity;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tracked::Unknown;

/// What frozen names of a repository are called where a rule is told.
const FROZEN: &str = ".git/hooks, config, info";

/// The grant, with the repositories that it was found to mean.
#[derive(Debug, Clone)]
pub struct Git {
    pub access: GitAccess,
    pub origin: Origin,
    pub repositories: Vec<Repository>,
    /// Their indexes that track hidden names.
    pub indexes: Vec<HiddenIndex>,
    rank: Rank,
    identity: Identity,
}

/// The key and its rank. A repository's own file turns read-write into read-only, and grants nothing.
fn wanted(request: &Request) -> Option<(Written<GitAccess>, Rank)> {
    let of = |profile: &Profile| profile.filesystem.git.clone();
    let cli = of(&request.cli).map(|written| (written, Rank::CommandLine));
    let (wanted, rank) = cli.or_else(|| of(&request.profile).map(|written| (written, Rank::Profile)))?;
    let narrower = request.repository.as_ref().and_then(of).filter(|_| wanted.value == GitAccess::Rw);
    Some((narrower.unwrap_or(wanted), rank))
}

impl Git {
    /// Finds the repositories of the roots, and makes roots of those that lie outside of them.
    pub(super) fn find(
        request: &Request,
        roots: &mut Roots<'_>,
        home: &Path,
        cwd: &Path,
    ) -> Result<Option<Git>, PolicyError> {
        let Some((Written { value: access, origin }, rank)) = wanted(request) else { return Ok(None) };
        let mut repositories: Vec<Repository> = Vec::new();
        let dirs = roots.entries.iter().map(|(_, entry)| entry).filter(|entry| entry.kind.has_names());
        let dirs: Vec<Entry> = dirs.filter(|entry| entry.file == Some(Kind::Dir)).cloned().collect();
        for root in &dirs {
            let found = repository::find(&root.path, home).map_err(|forged| PolicyError::Conflict {
                text: format!("{origin}: {forged}"),
                hint: "git is granted for repositories that belong to their roots: leave --git out, hide it with \
                       --hide .git, or mend the pointer with `git worktree repair`"
                    .into(),
            })?;
            let Some(found) = found else { continue };
            let kind =
                if access == GitAccess::Rw && root.kind == EntryKind::Rw { EntryKind::Rw } else { EntryKind::Ro };
            roots.repository(&found.common, kind.clone(), rank, &origin)?;
            roots.repository(&found.dir, kind, rank, &origin)?;
            if !repositories.contains(&found) {
                repositories.push(found);
            }
        }
        // Of several the one that the command starts in says who commits.
        let here = repositories.iter().find(|found| is_at_or_below(cwd, &found.top)).or(repositories.first());
        let identity = Identity::read(home, &request.vars, here);
        Ok(Some(Git { access, origin, repositories, indexes: Vec::new(), rank, identity }))
    }

    /// Adds the rules of the grant, and says how names are judged by them.
    pub(super) fn rules(&self, entries: &[Entry], rules: &mut Vec<NameRule>) -> GitNames {
        let mut push = |text: &str, literal, effect, rank| {
            rules.push(NameRule { text: text.to_owned().into(), literal, effect, rank, origin: self.origin.clone() });
            rules.len() - 1
        };
        let effect = match self.access {
            GitAccess::Rw => Effect::GrantRw,
            GitAccess::Ro => Effect::GrantRo,
        };
        let grant = push(".git", false, effect, self.rank);
        let freeze = push(FROZEN, false, Effect::Freeze, Rank::Profile);
        for found in &self.repositories {
            let hooks = self.identity.hooks.iter().map(|hooks| crate::path::lexical(&found.top.join(hooks)));
            for path in found.obeyed.iter().cloned().chain(hooks) {
                // A pattern is text; a root itself has no name to be judged by.
                let of_root = entries.iter().any(|entry| entry.kind.is_root() && entry.path == path);
                if let (Some(text), false) = (path.to_str(), of_root) {
                    push(text, true, Effect::Freeze, Rank::Profile);
                }
            }
        }
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let visible = |top: &Path| entries.iter().any(|entry| entry.kind.is_root() && is_at_or_below(top, &entry.path));
        let others = self.repositories.iter().flat_map(|found| &found.others);
        let own = |dir: &Path| self.repositories.iter().any(|found| found.dir == dir);
        let frozen = others.filter(|other| !visible(&other.top) && !own(&other.dir)).map(|other| bytes(&other.dir));
        let dirs = self.repositories.iter().flat_map(|found| [&found.common, &found.dir]);
        let mut dirs: Vec<Vec<u8>> = dirs.map(|dir| bytes(dir)).collect();
        dirs.sort();
        dirs.dedup();
        // The directory of a linked working tree is part of the repository's.
        let all = dirs.clone();
        dirs.retain(|dir| {
            !all.iter().any(|other| dir.len() > other.len() && dir.starts_with(&[other, &b"/"[..]].concat()))
        });
        GitNames { access: self.access, grant, freeze, dirs, frozen: frozen.collect() }
    }

    /// The file in HOME that says who commits. Not where HOME is a root: that has files of its own.
    pub(super) fn identity_file(&self, home: &Path, entries: &[(Rank, Entry)]) -> Option<Entry> {
        let covered = entries.iter().any(|(_, entry)| entry.kind.is_root() && is_at_or_below(home, &entry.path));
        let content = self.identity.text().filter(|_| !covered)?;
        Some(Entry {
            path: home.join(".gitconfig"),
            kind: EntryKind::Made(content),
            origin: Origin::BuiltIn("name and address of the host's git configuration".into()),
            why: None,
            file: Some(Kind::File),
            id: None,
        })
    }
}

/// What a session remembers of a file that the box wrote.
pub fn digest(bytes: &[u8]) -> String {
    sha1_smol::Sha1::from(bytes).digest().to_string()
}

/// Once the policy stands: what the repositories track of it that is hidden, what git is told, what is said.
pub(super) fn settle(policy: &mut Policy) -> Result<(), PolicyError> {
    let Some(git) = &policy.git else { return Ok(()) };
    let mut notices = Vec::new();
    let mut indexes = Vec::new();
    for found in &git.repositories {
        match tracked::hidden(policy, found) {
            Ok(None) => {}
            Ok(Some(index)) => {
                notices.push(told(&index));
                if index.racy && policy.mode == Mode::Live && git.access == GitAccess::Rw {
                    notices.push(format!("{}: written in the same second as a hidden file that it tracks, which git wants to read then: run `git status` outside once", index.at.display()));
                }
                indexes.push(index);
            }
            Err(unknown) => {
                let why = match unknown {
                    Unknown::Large => "too large, or no regular file",
                    Unknown::Split => "a split index",
                    Unknown::Broken => "not understood",
                };
                let index = found.dir.join("index");
                notices.push(format!("{}: {why}: hidden names that it tracks show as deleted", index.display()));
            }
        }
        for objects in &found.alternates {
            if !policy.decide(objects, super::Access::Read).allowed {
                let path = objects.display();
                notices.push(format!(
                    "{} borrows objects of {path}, which is not visible (grant: --ro {path})",
                    found.common.display()
                ));
            }
        }
    }
    if git.access == GitAccess::Rw && policy.mode == Mode::Live {
        outside(policy, &indexes)?;
    }
    let settings = settings(policy, git);
    let variables = variables(policy, git);
    add_settings(&mut policy.environment, settings, &variables);
    policy.notices.extend(notices);
    if let Some(git) = &mut policy.git {
        git.indexes = indexes;
    }
    Ok(())
}

fn told(index: &HiddenIndex) -> String {
    let first = index.names.first().map_or(Path::new(""), |name| name.as_path());
    let more = match index.names.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    format!(
        "git tracks hidden names: {}{more}; their content is in the history, where `git show` can print it",
        first.display()
    )
}

/// A live index is the host's: no name can be marked in it, so that a part of the working tree which is not there at all
/// would be committed as deleted.
fn outside(policy: &Policy, indexes: &[HiddenIndex]) -> Result<(), PolicyError> {
    for index in indexes {
        let rooted = |name: &Path| {
            policy.entry_at(name).is_some_and(|entry| entry.kind.has_names() || entry.kind == EntryKind::Hide)
        };
        if let Some(name) = index.names.iter().find(|name| !rooted(name)) {
            let top = policy.git.iter().flat_map(|git| &git.repositories).find(|found| name.starts_with(&found.top));
            let top = top.map_or(Path::new("/"), |found| &found.top).display();
            return Err(PolicyError::Conflict {
                text: format!(
                    "--git: {} is tracked and lies outside the roots: a live `git commit -a` would delete it",
                    name.display()
                ),
                hint: format!("add --ro {top} to show the rest of the working tree, make a dry run, or use --git=ro"),
            });
        }
    }
    Ok(())
}

/// What git is told in the box, over every configuration file.
fn settings(policy: &Policy, git: &Git) -> Vec<(&'static str, OsString)> {
    let mut out: Vec<(&'static str, OsString)> = vec![
        // It misses what the host makes below a directory of an overlay.
        ("core.untrackedCache", "false".into()),
        // The host's answers are about the host's tree, and a program of its own cannot be started.
        ("core.fsmonitor", "false".into()),
        // `info` is frozen: without this each `git gc` complains that it could not write there.
        ("repack.updateServerInfo", "false".into()),
    ];
    if policy.mode == Mode::Live {
        // A mask has the size and the time of what it covers, and no more.
        out.push(("core.checkStat", "minimal".into()));
        out.push(("core.trustctime", "false".into()));
    }
    for found in git.repositories.iter().filter(|found| found.foreign) {
        out.push(("safe.directory", found.top.clone().into_os_string()));
    }
    let has_file = policy.entry(&policy.home.join(".gitconfig")).is_some();
    if !has_file {
        // HOME is a root, where nothing can be put.
        let who = [("user.name", &git.identity.name), ("user.email", &git.identity.email)];
        out.extend(
            who.into_iter().filter_map(|(key, value)| Some((key, OsStr::from_bytes(value.as_ref()?).to_owned()))),
        );
    }
    out
}

/// Variables for which git has no setting.
fn variables(policy: &Policy, git: &Git) -> Vec<(&'static str, &'static str)> {
    let mut out = Vec::new();
    if git.access == GitAccess::Ro {
        out.push(("GIT_OPTIONAL_LOCKS", "0"));
    }
    // A root below the top of its repository is a mount of its own, above which git does not look by itself.
    let below = |found: &Repository| policy.entries_below(&found.top).any(|entry| entry.kind.has_names());
    if git.repositories.iter().any(below) {
        out.push(("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"));
    }
    out
}

/// Behind what the user passes in the same way, which stays.
fn add_settings(
    environment: &mut Vec<(OsString, OsString)>,
    settings: Vec<(&'static str, OsString)>,
    variables: &[(&str, &str)],
) {
    let mut all: BTreeMap<OsString, OsString> = std::mem::take(environment).into_iter().collect();
    let count = all.get(OsStr::new("GIT_CONFIG_COUNT")).and_then(|count| count.to_str()?.parse::<usize>().ok());
    let mut count = count.unwrap_or(0);
    let asked: Vec<OsString> =
        (0..count).filter_map(|n| all.get(OsStr::new(&format!("GIT_CONFIG_KEY_{n}"))).cloned()).collect();
    for (key, value) in settings {
        if asked.iter().any(|asked| asked.eq_ignore_ascii_case(key)) && key != "safe.directory" {
            continue;
        }
        all.insert(format!("GIT_CONFIG_KEY_{count}").into(), key.into());
        all.insert(format!("GIT_CONFIG_VALUE_{count}").into(), value);
        count += 1;
    }
    all.insert("GIT_CONFIG_COUNT".into(), count.to_string().into());
    for (name, value) in variables {
        all.entry((*name).into()).or_insert_with(|| (*value).into());
    }
    environment.extend(all);
}

impl Policy {
    /// Is this a made-up file in a private HOME, where the command may replace it?
    pub(super) fn is_private_file(&self, entry: &Entry) -> bool {
        let parent = entry.path.parent().and_then(|parent| self.entry_at(parent));
        parent.is_some_and(|parent| parent.kind == EntryKind::Private(Private::Home))
    }
}

impl Roots<'_> {
    /// A repository's directory becomes a root, unless one of at least its access holds it.
    fn repository(&mut self, dir: &Path, kind: EntryKind, rank: Rank, origin: &Origin) -> Result<(), PolicyError> {
        let above = self.entries.iter().map(|(_, entry)| entry).filter(|entry| is_at_or_below(dir, &entry.path));
        let deepest = above.max_by_key(|entry| entry.path.as_os_str().len()).map(|entry| &entry.kind);
        let enough = match deepest {
            Some(EntryKind::Rw | EntryKind::Scratch) => true,
            Some(EntryKind::Ro) => kind == EntryKind::Ro,
            _ => false,
        };
        if enough {
            return Ok(());
        }
        self.check(dir, &kind, &origin.to_string())?;
        let id = identity_of(dir).ok().map(|(id, _)| id);
        let why = Some("the repository of a root".into());
        let entry = Entry { path: dir.to_path_buf(), kind, origin: origin.clone(), why, file: Some(Kind::Dir), id };
        self.entries.push((rank, entry));
        Ok(())
    }
}
