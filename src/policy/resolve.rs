//! From what was typed and written to a policy: every contradiction and every missing path ends here.

use super::environment::{self, Caller};
use super::git::{self, Git};
use super::names::{Effect, NameRule, NameRules, Rank};
use super::roots::Roots;
use super::{Entry, EntryKind, Layer, Limits, Policy, PolicyError, Ports, Private, etc, tier, toolchain};
use crate::host::Facts;
use crate::path::{
    Kind, Link, ResolveError, Resolved, is_at_or_below, lexical, resolve as resolve_path, resolve_existing,
};
use crate::profile::{DiffStyle, GrantAccess, HomeMode, Mode, NetMode, Origin, Profile, Text, Written};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Everything a policy is made from. `cli` is the command line in the shape of a profile, so that both feed one path.
pub struct Request {
    pub cli: Profile,
    pub profile: Profile,
    pub repository: Option<Profile>,
    /// The working directory as the kernel names it, or why it has no name.
    pub cwd: Result<PathBuf, String>,
    pub chdir: Option<PathBuf>,
    pub vars: BTreeMap<OsString, OsString>,
    /// agentbox's own directories: never visible inside.
    pub own_dirs: Vec<PathBuf>,
    pub grant_home: bool,
    /// A fresh name for the one private directory of a run without mounts.
    pub tmp_dir: PathBuf,
    pub fds: Vec<i32>,
}

/// Resolves a request against the host.
///
/// # Errors
/// The first thing that cannot hold, with its remedy.
pub fn resolve(request: &Request, facts: &Facts) -> Result<Policy, PolicyError> {
    let (cli, profile) = (&request.cli, &request.profile);
    let started_in = request.cwd.clone().map_err(|reason| PolicyError::CwdGone { reason })?;
    let home = home(request, facts)?;
    let cwd = match &request.chdir {
        Some(dir) => {
            resolve_path(dir, &started_in).map_err(|error| PolicyError::Path { origin: "--chdir".into(), error })?
        }
        None => resolve_path(&started_in, Path::new("/"))
            .map_err(|error| PolicyError::CwdGone { reason: error.to_string() })?,
    };
    let bundles = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"];
    let bundles: Vec<PathBuf> =
        bundles.iter().filter_map(|name| request.vars.get(OsStr::new(name))).map(PathBuf::from).collect();
    let system = etc::view(facts, &home.path, &bundles);

    let mut roots = Roots::new(&started_in, &home.path, &request.own_dirs, request.grant_home);
    roots.collect(cli, Rank::CommandLine)?;
    roots.collect(profile, Rank::Profile)?;
    if let Some(repository) = &request.repository {
        roots.collect(repository, Rank::Repository)?;
    }
    roots.implicit(&cwd)?;
    let git = Git::find(request, &mut roots, &home.path, cwd.path.as_path())?;
    roots.grants_below_hidden();
    let path = search_path(&request.vars);
    let wants_toolchains = [cli, profile].iter().find_map(|p| p.filesystem.toolchains.as_ref()).is_none_or(|w| w.value);
    let mut resolved: Vec<(PathBuf, Option<Resolved>)> = Vec::with_capacity(path.len());
    for dir in path {
        // PATH often names a directory twice.
        let known = resolved.iter().find(|(known, _)| *known == dir).map(|(_, found)| found.clone());
        let found = known.unwrap_or_else(|| resolve_existing(&dir));
        resolved.push((dir, found));
    }
    let path = resolved;
    if wants_toolchains {
        toolchains(&mut roots, &path, &home.path, &request.vars);
    }

    let home_mode = pick(cli, profile, |p| p.filesystem.home.as_ref()).map_or(HomeMode::Private, |w| w.value);
    let home_mode = repository_only(request, |p| p.filesystem.home.as_ref()).map_or(home_mode, |w| w.value);
    let mode = pick(cli, profile, |p| p.run.mode.as_ref()).map_or(Mode::DryRun, |w| w.value);
    let mode = repository_only(request, |p| p.run.mode.as_ref()).map_or(mode, |w| w.value);
    let net = pick(cli, profile, |p| p.network.mode.as_ref()).map_or(NetMode::None, |w| w.value);
    let net = repository_only(request, |p| p.network.mode.as_ref()).map_or(net, |w| w.value);

    let pins = if mode == Mode::Live { roots.guard_own()? } else { Vec::new() };
    let Roots { mut entries, links: root_links, mut notices, literals, as_path, .. } = roots;
    let home_kind = match home_mode {
        HomeMode::Private => EntryKind::Private(Private::Home),
        HomeMode::ReadOnly => EntryKind::EmptyHome,
    };
    let degraded: Vec<Layer> = [cli, profile].iter().flat_map(|p| &p.run.degraded).map(|w| w.value).collect();
    let tmp = degraded.contains(&Layer::Mounts).then(|| may_be_made(&request.tmp_dir));
    let mut built_in = system.entries;
    built_in.push(place(home.path.clone(), home_kind, "private HOME"));
    let links = [home.links, cwd.links, root_links, system.links].concat();
    let (mut built_in, links) = match &tmp {
        // The links of the host are all there.
        Some(tmp) => (tier::entries(built_in, tmp), Vec::new()),
        None => (built_in, links),
    };
    let who_commits = git.as_ref().and_then(|git| git.identity_file(&home.path, &entries)).filter(|_| tmp.is_none());
    built_in.extend(who_commits);
    entries.extend(built_in.into_iter().map(|entry| (Rank::BuiltIn, entry)));
    let entries = settle(entries);
    no_kernel_roots(&entries, facts)?;
    let links = visible_links(&entries, links);
    let names = name_rules(request, literals, &as_path, git.as_ref().map(|git| (git, &entries[..])))?;
    let limits = Limits::resolve(
        [&cli.limits, &profile.limits],
        request.repository.as_ref().map(|file| &file.limits),
        facts.memory,
    );
    let mut policy = Policy {
        profiles: profile.names.clone(),
        mode,
        diff: pick(cli, profile, |p| p.run.diff.as_ref()).map_or(DiffStyle::Full, |w| w.value),
        entries,
        pins,
        links,
        names,
        no_backup: no_backup(request),
        git,
        net,
        ports: ports(cli, profile, net)?,
        environment: Vec::new(),
        limits,
        home_mode,
        cwd: cwd.path.into_path_buf(),
        nested: pick(cli, profile, |p| p.run.nested.as_ref()).is_some_and(|w| w.value),
        degraded,
        tmp,
        fds: request.fds.clone(),
        notices: Vec::new(),
        dropped_path: Vec::new(),
        hidden_for_this_run: cli.filesystem.hide.iter().map(|hide| hide.value.to_string()).collect(),
        granted: cli.filesystem.grant.iter().map(|grant| grant.value.glob.to_string()).collect(),
        home: home.path,
    };
    check_cwd(&policy, cwd.kind)?;
    let (seen, dropped): (Vec<_>, Vec<_>) = path.into_iter().partition(|(_, found)| {
        found.as_ref().is_some_and(|found| policy.decide_resolved(found, super::Access::Read).allowed)
    });
    let seen: Vec<PathBuf> = seen.into_iter().map(|(dir, _)| dir).collect();
    policy.dropped_path = dropped.into_iter().map(|(dir, _)| dir).collect();
    policy.dropped_path.sort();
    policy.dropped_path.dedup();
    let caller = Caller {
        vars: &request.vars,
        home: &policy.home,
        user: &facts.account.name,
        shell: &facts.account.shell,
        cwd: &logical_cwd(request, &policy),
        path: &seen,
        tmp: policy.tmp.as_deref().unwrap_or(Path::new("/tmp")),
    };
    policy.environment = environment::build(&caller, cli, profile, request.repository.as_ref(), &policy.entries)?;
    policy.notices.append(&mut notices);
    git::settle(&mut policy)?;
    Ok(policy)
}

fn pick<'a, T>(cli: &'a Profile, profile: &'a Profile, field: impl Fn(&'a Profile) -> Option<&'a T>) -> Option<&'a T> {
    field(cli).or_else(|| field(profile))
}

/// What the repository's file says where it may only narrow: the profile room let nothing else through.
fn repository_only<'a, T>(request: &'a Request, field: impl Fn(&'a Profile) -> Option<&'a T>) -> Option<&'a T> {
    request.repository.as_ref().and_then(field)
}

fn place(path: PathBuf, kind: EntryKind, what: &'static str) -> Entry {
    Entry { path, kind, origin: Origin::BuiltIn(what.into()), why: None, file: Some(Kind::Dir), id: None }
}

struct Home {
    path: PathBuf,
    links: Vec<Link>,
}

/// HOME, canonical. One that does not exist (service accounts) is taken as written: inside it exists.
fn home(request: &Request, facts: &Facts) -> Result<Home, PolicyError> {
    let set = request.vars.get(OsStr::new("HOME")).map(PathBuf::from).filter(|home| home.is_absolute());
    let asked = set.or_else(|| facts.account.home.clone()).ok_or(PolicyError::NoHome)?;
    match resolve_path(&asked, Path::new("/")) {
        // A service account's: the box has one of its own then, for the root directory is not the command's to write.
        Ok(found) if found.path.as_path() == Path::new("/") => {
            Ok(Home { path: Path::new("/home").join(&facts.account.name), links: Vec::new() })
        }
        Ok(Resolved { path, links, .. }) => Ok(Home { path: path.into_path_buf(), links }),
        Err(_) => Ok(Home { path: crate::path::lexical(&asked), links: Vec::new() }),
    }
}

/// Canonical as far as it exists.
fn may_be_made(path: &Path) -> PathBuf {
    match resolve_path(path, Path::new("/")) {
        Ok(found) => found.path.into_path_buf(),
        Err(ResolveError::Missing { parent, rest, .. }) => lexical(&parent.join(rest)),
        Err(_) => lexical(path),
    }
}

fn search_path(vars: &BTreeMap<OsString, OsString>) -> Vec<PathBuf> {
    const USUAL: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let path = vars.get(OsStr::new("PATH")).map_or(OsStr::new(USUAL), OsString::as_os_str);
    // A relative entry (or an empty one, which means the same) would let the project shadow every program.
    std::env::split_paths(path).filter(|dir| dir.is_absolute()).collect()
}

fn toolchains(
    roots: &mut Roots<'_>,
    path: &[(PathBuf, Option<Resolved>)],
    home: &Path,
    vars: &BTreeMap<OsString, OsString>,
) {
    let canonical: Vec<PathBuf> =
        path.iter().filter_map(|(_, found)| found.as_ref()).map(|found| found.path.as_path().to_path_buf()).collect();
    for grant in toolchain::grants(&canonical, home, vars) {
        // A directory of PATH itself, which mostly was canonical as it was written.
        let known = path.iter().filter_map(|(_, found)| found.as_ref());
        let known = known.filter(|found| found.links.is_empty()).find(|found| found.path.as_path() == grant).cloned();
        if let Some(found) = known.or_else(|| resolve_existing(&grant)) {
            // An activated virtual environment of the project is part of its root, not a toolchain.
            if roots.covers(found.path.as_path()) {
                continue;
            }
            roots.toolchain(found);
        }
    }
}

/// One entry a path: the source that ranks higher, then hide over read-only over read-write.
fn settle(mut entries: Vec<(Rank, Entry)>) -> Vec<Entry> {
    let strictness = |kind: &EntryKind| match kind {
        EntryKind::Hide => 0,
        EntryKind::Ro => 1,
        EntryKind::Rw => 2,
        EntryKind::Scratch => 3,
        EntryKind::Socket => 4,
        EntryKind::System
        | EntryKind::Made(_)
        | EntryKind::Private(_)
        | EntryKind::EmptyHome
        | EntryKind::Proc
        | EntryKind::Dev => 5,
    };
    // The program's own places give way to a root that the user names at the same path; its own hiding never does.
    let rank = |rank: Rank, kind: &EntryKind| match (rank, kind) {
        (Rank::BuiltIn, EntryKind::Hide) => 0,
        (Rank::CommandLine, _) => 1,
        (Rank::Profile, _) => 2,
        (Rank::Repository, _) => 3,
        (Rank::BuiltIn, _) => 4,
    };
    entries.sort_by(|(a_rank, a), (b_rank, b)| {
        let key = |r: Rank, e: &Entry| (rank(r, &e.kind), strictness(&e.kind));
        a.path.cmp(&b.path).then(key(*a_rank, a).cmp(&key(*b_rank, b)))
    });
    entries.dedup_by(|(_, later), (_, first)| later.path == first.path);
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// A root on a file system of the kernel's own would let the machine be set: for root, or by a bind mount of one.
fn no_kernel_roots(entries: &[Entry], facts: &Facts) -> Result<(), PolicyError> {
    for entry in entries.iter().filter(|entry| entry.kind.is_root()) {
        let at = facts.mounts.iter().filter(|mount| is_at_or_below(&entry.path, &mount.at));
        // Of mounts on one path the last is the one that shows.
        if let Some(mount) = at.max_by_key(|mount| mount.at.as_os_str().len()).filter(|mount| mount.is_kernel()) {
            return Err(PolicyError::Conflict {
                text: format!(
                    "{}: {} lies on {}, a file system of the kernel's own",
                    entry.origin,
                    entry.path.display(),
                    mount.kind
                ),
                hint: "the box has its own /proc and /dev; leave this root out".into(),
            });
        }
    }
    Ok(())
}

/// The links that must be made: those that no entry of the host holds already, each once, never at an entry's path.
fn visible_links(entries: &[Entry], links: Vec<Link>) -> Vec<Link> {
    let mut out: Vec<Link> = Vec::new();
    for link in links {
        let holder = entries
            .iter()
            .filter(|entry| is_at_or_below(&link.at, &entry.path))
            .max_by_key(|entry| entry.path.as_os_str().len());
        let free = holder.is_none_or(|entry| {
            entry.path != link.at && matches!(entry.kind, EntryKind::Private(_) | EntryKind::EmptyHome)
        });
        if free && !out.iter().any(|other| other.at == link.at) {
            out.push(without_detours(link));
        }
    }
    out.sort_by(|a, b| a.at.cmp(&b.at));
    out
}

/// A target such as `x/y/../z` needs a `y` that the box does not have: such a link is made to lead straight there.
fn without_detours(link: Link) -> Link {
    let names = link.target.components().skip_while(|part| *part == Component::ParentDir);
    if !names.into_iter().any(|part| part == Component::ParentDir) {
        return link;
    }
    match resolve_path(&link.at, Path::new("/")) {
        Ok(found) => Link { target: found.path.into_path_buf(), at: link.at },
        Err(_) => link,
    }
}

fn no_backup(request: &Request) -> Vec<String> {
    request.profile.filesystem.no_backup.iter().map(|name| name.value.to_string()).collect()
}

fn name_rules(
    request: &Request,
    mut rules: Vec<NameRule>,
    as_path: &[(Rank, String)],
    git: Option<(&Git, &[Entry])>,
) -> Result<NameRules, PolicyError> {
    let mut build_dirs = Vec::new();
    let sources = [(&request.cli, Rank::CommandLine), (&request.profile, Rank::Profile)];
    let repository = request.repository.as_ref().map(|file| (file, Rank::Repository));
    for (source, rank) in sources.into_iter().chain(repository) {
        let fs = &source.filesystem;
        let mut rule = |text: &Text, effect, origin: &Origin| {
            if as_path.iter().any(|(other, path)| *other == rank && path == text) {
                return;
            }
            rules.push(NameRule { text: text.clone(), literal: false, effect, rank, origin: origin.clone() });
        };
        for hide in &fs.hide {
            let effect = if hide.value == ".*" { Effect::HideDotfile } else { Effect::Hide };
            rule(&hide.value, effect, &hide.origin);
        }
        for grant in &fs.grant {
            let effect = match grant.value.access {
                GrantAccess::Ro => Effect::GrantRo,
                GrantAccess::Rw => Effect::GrantRw,
            };
            rule(&grant.value.glob, effect, &grant.origin);
        }
        fs.freeze.iter().for_each(|freeze| rule(&freeze.value, Effect::Freeze, &freeze.origin));
        build_dirs.extend(fs.build_dirs.iter().map(|dir| dir.value.clone()));
    }
    let git = git.map(|(git, entries)| git.rules(entries, &mut rules));
    let names = NameRules::new(rules, build_dirs).map(|names| names.with_git(git));
    names.map_err(|error| PolicyError::Pattern { origin: "name rules".into(), error })
}

fn ports(cli: &Profile, profile: &Profile, net: NetMode) -> Result<Ports, PolicyError> {
    let list = |field: fn(&Profile) -> &Vec<Written<u16>>| -> Vec<u16> {
        [cli, profile].iter().flat_map(|p| field(p)).map(|port| port.value).collect()
    };
    let ports = Ports { connect: list(|p| &p.network.tcp_connect), bind: list(|p| &p.network.tcp_bind) };
    if net == NetMode::None && !(cli.network.tcp_connect.is_empty() && cli.network.tcp_bind.is_empty()) {
        return Err(PolicyError::Conflict {
            text: "--tcp-connect and --tcp-bind limit the host's network, and there is none".into(),
            hint: "add --net host, or leave the ports out".into(),
        });
    }
    Ok(ports)
}

fn check_cwd(policy: &Policy, kind: Kind) -> Result<(), PolicyError> {
    let inside = policy.entry_at(&policy.cwd).is_some_and(|entry| match entry.kind {
        EntryKind::Rw | EntryKind::Ro | EntryKind::Scratch | EntryKind::System => true,
        EntryKind::Private(_) | EntryKind::EmptyHome => entry.path == policy.cwd,
        EntryKind::Made(_) | EntryKind::Proc | EntryKind::Dev | EntryKind::Socket | EntryKind::Hide => false,
    });
    let visible = inside && kind == Kind::Dir && policy.decide(&policy.cwd, super::Access::Read).allowed;
    if visible { Ok(()) } else { Err(PolicyError::CwdOutside { cwd: policy.cwd.clone() }) }
}

/// PWD as the user spelled it, where that spelling leads to the working directory.
fn logical_cwd(request: &Request, policy: &Policy) -> PathBuf {
    let spelled = request.vars.get(OsStr::new("PWD")).map(PathBuf::from).filter(|pwd| pwd.is_absolute());
    let same = |pwd: &PathBuf| resolve_path(pwd, Path::new("/")).is_ok_and(|r| r.path.as_path() == policy.cwd);
    match spelled {
        Some(pwd) if request.chdir.is_none() && same(&pwd) => pwd,
        _ => policy.cwd.clone(),
    }
}
