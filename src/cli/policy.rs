//! The policy flags, shared by every subcommand that needs a policy: raw arguments into a profile-shaped request.

use super::{Env, Failure, Status};
use crate::host::Facts;
use crate::policy::{self, Policy, Request};
use crate::profile::{
    DiffStyle, GitAccess, Grant, HomeMode, Layer, Loader, Mode, NetMode, Notice, Origin, PathEntry, Profile, Written,
    check_glob, check_variable, parse_grant, parse_word,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Use a profile: a name, or a file (with a slash or ending in .toml). May repeat
    #[arg(short, long = "profile", value_name = "NAME|FILE")]
    profile: Vec<String>,
    /// A writable root [default: the working directory]
    #[arg(long, value_name = "PATH")]
    rw: Vec<PathBuf>,
    /// A read-only root
    #[arg(long, value_name = "PATH")]
    ro: Vec<PathBuf>,
    /// A writable root that is always live and hides nothing
    #[arg(long, value_name = "PATH")]
    scratch: Vec<PathBuf>,
    /// Hide a path that exists, or else names by a glob
    #[arg(long, value_name = "GLOB")]
    hide: Vec<OsString>,
    /// Give back something hidden for this run: a path that exists, or else names by a glob. Read-only without a suffix
    #[arg(long, value_name = "GLOB[:ro|:rw]")]
    grant: Vec<OsString>,
    /// Keep names readable and unwritable
    #[arg(long, value_name = "GLOB")]
    freeze: Vec<OsString>,
    /// Let git be used: commits, branches and stashes, never hooks and configuration. `--git=ro` reads alone
    #[arg(long, value_name = "ro|rw", num_args = 0..=1, require_equals = true, default_missing_value = "rw")]
    git: Option<String>,
    /// The network: none, or the host's
    #[arg(long, value_name = "none|host")]
    net: Option<String>,
    /// With --net host: the only TCP ports to connect to. May repeat
    #[arg(long, value_name = "PORT")]
    tcp_connect: Vec<u16>,
    /// With --net host: the only TCP ports to bind. May repeat
    #[arg(long, value_name = "PORT")]
    tcp_bind: Vec<u16>,
    /// Let one unix socket of the host in
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// Pass a variable, or set it
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Pass an open descriptor
    #[arg(long, value_name = "N")]
    fd: Vec<i32>,
    /// HOME inside: private (empty, writable, gone afterwards) or read-only
    #[arg(long, value_name = "private|read-only")]
    home: Option<String>,
    /// Start in this directory
    #[arg(long, value_name = "DIR")]
    chdir: Option<PathBuf>,
    /// processes, memory, tmp, file_size, open_files, time, backup_file or backup_total
    #[arg(long, value_name = "KEY=VALUE")]
    limit: Vec<String>,
    /// Run without a layer that cannot be had: mounts, landlock, seccomp, netns or backup. The report says what was lost
    #[arg(long, value_name = "LAYER")]
    degraded: Vec<String>,
    /// Let the command make its own user namespaces and mounts
    #[arg(long)]
    nested: bool,
    /// Accept HOME, or a directory above it, as a writable root
    #[arg(long)]
    grant_home: bool,
    /// Writes land in a session layer; the diff is shown at the end and the host stays as it is [default]
    #[arg(long, conflicts_with = "live")]
    dry_run: bool,
    /// Writes go to the real directories
    #[arg(long)]
    live: bool,
    /// How much of the diff to show at the end of a dry run
    #[arg(long, value_name = "full|stat|none")]
    diff: Option<String>,
}

/// A policy with the facts it was resolved against and what was noticed on the way.
pub struct Resolved {
    pub policy: Policy,
    pub facts: Facts,
}

fn origin(flag: &'static str) -> Origin {
    Origin::CommandLine(flag.into())
}

impl PolicyArgs {
    /// Loads the profiles and resolves everything. `command` picks a profile by its name when none was named.
    pub fn resolve(&self, env: &Env, command: Option<&OsStr>, status: Status) -> Result<Resolved, Failure> {
        let loader = Loader::new(env.config_dir().map(|dir| dir.join("profiles")));
        let mut notices = Vec::new();
        let (profile, said) = loader.load(&self.names(&loader, command, status)?).map_err(load(status))?;
        notices.extend(said);
        let repository = self.repository(env, &loader, &mut notices, status)?;
        let cli = self.as_profile(status)?;
        let facts = Facts::probe().map_err(|err| Failure::new(status, err))?;
        let request = Request {
            cli,
            profile,
            repository,
            cwd: env.cwd.clone(),
            chdir: self.chdir.clone(),
            vars: env.vars.clone(),
            own_dirs: own_dirs(env, &facts),
            grant_home: self.grant_home,
            tmp_dir: tmp_dir(env),
            fds: self.fd.clone(),
        };
        let mut policy = policy::resolve(&request, &facts).map_err(|err| {
            let hint = err.hint();
            Failure::new(status, err).hint(hint)
        })?;
        policy.notices.splice(0..0, notices.iter().map(Notice::to_string));
        Ok(Resolved { policy, facts })
    }

    fn names(&self, loader: &Loader, command: Option<&OsStr>, status: Status) -> Result<Vec<String>, Failure> {
        if !self.profile.is_empty() {
            return Ok(self.profile.clone());
        }
        let name = command.and_then(|command| Path::new(command).file_name()).and_then(OsStr::to_str);
        let picked = name.map(|name| loader.pick(name)).transpose().map_err(load(status))?.flatten();
        Ok(picked.into_iter().collect())
    }

    /// The `agentbox.toml` of the directory that the run starts in: a stranger's text, that may only narrow.
    fn repository(
        &self,
        env: &Env,
        loader: &Loader,
        notices: &mut Vec<Notice>,
        status: Status,
    ) -> Result<Option<Profile>, Failure> {
        let Ok(cwd) = &env.cwd else { return Ok(None) };
        let dir = self.chdir.as_ref().map_or_else(|| cwd.clone(), |chdir| cwd.join(chdir));
        let path = dir.join("agentbox.toml");
        match read_small(&path) {
            Ok(Some(text)) => {
                let (profile, said) = loader.repository(&text, &path).map_err(load(status))?;
                notices.extend(said);
                Ok(Some(profile))
            }
            Ok(None) => Ok(None),
            Err(err) => Err(Failure::new(status, anyhow::anyhow!("cannot read {}: {err}", path.display()))
                .hint("a repository's agentbox.toml narrows the policy: it must be readable or absent")),
        }
    }

    /// The flags in the shape of a profile, so that both feed one path.
    fn as_profile(&self, status: Status) -> Result<Profile, Failure> {
        let bad = |flag: &str, err: &dyn std::fmt::Display| Failure::new(status, anyhow::anyhow!("{flag}: {err}"));
        let paths = |flag: &'static str, list: &[PathBuf]| -> Vec<Written<PathEntry>> {
            let entry = |path: &PathBuf| PathEntry { path: path.clone(), optional: false, why: None };
            list.iter().map(|path| Written::new(entry(path), origin(flag))).collect()
        };
        let mut out = Profile::default();
        let fs = &mut out.filesystem;
        fs.rw = paths("--rw", &self.rw);
        fs.ro = paths("--ro", &self.ro);
        fs.scratch = paths("--scratch", &self.scratch);
        out.network.sockets = paths("--socket", &self.socket);
        for hide in &self.hide {
            fs.hide.push(Written::new(glob("--hide", hide, status)?.into(), origin("--hide")));
        }
        for freeze in &self.freeze {
            fs.freeze.push(Written::new(glob("--freeze", freeze, status)?.into(), origin("--freeze")));
        }
        for grant in &self.grant {
            let text = text("--grant", grant, status)?;
            let grant = literal_grant(text).map_or_else(|| parse_grant(text), Ok);
            let grant = grant.map_err(|err| bad("--grant", &err).hinted(err.hint()))?;
            fs.grant.push(Written::new(grant, origin("--grant")));
        }
        fs.git = word::<GitAccess>("--git", self.git.as_deref(), status)?;
        fs.home = word::<HomeMode>("--home", self.home.as_deref(), status)?;
        out.network.mode = word::<NetMode>("--net", self.net.as_deref(), status)?;
        out.network.tcp_connect =
            self.tcp_connect.iter().map(|port| Written::new(*port, origin("--tcp-connect"))).collect();
        out.network.tcp_bind = self.tcp_bind.iter().map(|port| Written::new(*port, origin("--tcp-bind"))).collect();
        out.run.diff = word::<DiffStyle>("--diff", self.diff.as_deref(), status)?;
        for layer in &self.degraded {
            out.run.degraded.extend(word::<Layer>("--degraded", Some(layer), status)?);
        }
        out.run.nested = self.nested.then(|| Written::new(true, origin("--nested")));
        out.run.mode = match (self.dry_run, self.live) {
            (true, _) => Some(Written::new(Mode::DryRun, origin("--dry-run"))),
            (_, true) => Some(Written::new(Mode::Live, origin("--live"))),
            (false, false) => None,
        };
        for limit in &self.limit {
            let Some((key, value)) = limit.split_once('=') else {
                return Err(bad("--limit", &format!("`{limit}` is not KEY=VALUE")));
            };
            out.limits.set(key, value, origin("--limit")).map_err(|err| bad("--limit", &err).hinted(err.hint()))?;
        }
        for variable in &self.env {
            self.variable(variable, &mut out, status)?;
        }
        Ok(out)
    }

    fn variable(&self, variable: &OsStr, out: &mut Profile, status: Status) -> Result<(), Failure> {
        let text = text("--env", variable, status)?;
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        check_variable(name).map_err(|err| Failure::new(status, anyhow::anyhow!("--env: {err}")).hinted(err.hint()))?;
        match value {
            Some(value) => {
                out.environment.set.insert(name.into(), Written::new(value.into(), origin("--env")));
            }
            None => out.environment.pass.push(Written::new(name.to_owned().into(), origin("--env"))),
        }
        Ok(())
    }
}

/// A name that no other run has. With `--degraded mounts` a directory is made there.
fn tmp_dir(env: &Env) -> PathBuf {
    let mut random = [0; 8];
    // Without randomness the name may exist, and then making it fails.
    let got = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
    let number = if got.is_ok() { u64::from_ne_bytes(random) } else { u64::from(std::process::id()) };
    let uid = rustix::process::getuid().as_raw();
    let base = env.state_dir().map_or_else(|| PathBuf::from(format!("/var/tmp/agentbox-{uid}")), |dir| dir.join("tmp"));
    base.join(format!("{number:016x}"))
}

/// Everything of agentbox's that no command may see: state and configuration as the environment says and as they are
/// without it, and what links among the user's profiles lead to.
fn own_dirs(env: &Env, facts: &Facts) -> Vec<PathBuf> {
    let usual =
        facts.account.home.iter().flat_map(|home| [home.join(".local/state/agentbox"), home.join(".config/agentbox")]);
    let mut dirs: Vec<PathBuf> = env.state_dir().into_iter().chain(env.config_dir()).chain(usual).collect();
    // As the environment says they mostly are as they are without it: each is resolved.
    dirs.sort();
    dirs.dedup();
    let profiles = env.config_dir().and_then(|dir| std::fs::read_dir(dir.join("profiles")).ok());
    let links = profiles.into_iter().flatten().flatten().map(|entry| entry.path());
    let targets: Vec<PathBuf> = links
        .filter(|path| matches!(crate::path::identity(path), Ok((_, rustix::fs::FileType::Symlink))))
        .filter_map(|path| crate::path::resolve(&path, Path::new("/")).ok())
        .map(|found| found.path.into_path_buf())
        .collect();
    dirs.extend(targets);
    dirs
}

pub(super) fn load(status: Status) -> impl Fn(crate::profile::LoadError) -> Failure {
    move |err| {
        let hint = err.hint();
        Failure::new(status, err).hinted(hint)
    }
}

fn text<'a>(flag: &str, value: &'a OsStr, status: Status) -> Result<&'a str, Failure> {
    value.to_str().ok_or_else(|| {
        let shown = value.as_bytes().escape_ascii();
        Failure::new(status, anyhow::anyhow!("{flag}: `{shown}` is not UTF-8")).hint("patterns and variables are text")
    })
}

/// A pattern, or a path that exists: that is taken as it is, brackets and all.
fn glob(flag: &str, value: &OsStr, status: Status) -> Result<String, Failure> {
    let text = text(flag, value, status)?;
    if crate::path::identity(Path::new(text)).is_ok() {
        return Ok(text.to_owned());
    }
    check_glob(text).map_err(|err| Failure::new(status, anyhow::anyhow!("{flag}: {err}")).hinted(err.hint()))?;
    Ok(text.to_owned())
}

/// A grant whose text, without its suffix, is a path that exists.
fn literal_grant(text: &str) -> Option<Grant> {
    use crate::profile::GrantAccess::{Ro, Rw};
    let exists = |path: &str| crate::path::identity(Path::new(path)).is_ok();
    let cut = |suffix, access| text.strip_suffix(suffix).filter(|path| exists(path)).map(|path| (path, access));
    let whole = exists(text).then_some((text, Ro));
    let (path, access) = whole.or_else(|| cut(":ro", Ro)).or_else(|| cut(":rw", Rw))?;
    Some(Grant { glob: path.to_owned().into(), access })
}

fn word<T: crate::profile::Word>(
    flag: &'static str,
    value: Option<&str>,
    status: Status,
) -> Result<Option<Written<T>>, Failure> {
    let Some(text) = value else { return Ok(None) };
    let value =
        parse_word(text).map_err(|err| Failure::new(status, anyhow::anyhow!("{flag}: {err}")).hinted(err.hint()))?;
    Ok(Some(Written::new(value, origin(flag))))
}

/// A regular file of at most 1 MiB, not through a symlink, never waiting on a FIFO. `None` when there is none.
fn read_small(path: &Path) -> Result<Option<Vec<u8>>, String> {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    use std::io::Read;
    const LONGEST: u64 = 1 << 20;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err("it is a symlink".into()),
        Err(errno) => return Err(errno.to_string()),
    };
    let mut text = Vec::new();
    let read = std::fs::File::from(fd).take(LONGEST + 1).read_to_end(&mut text).map_err(|err| err.to_string())?;
    if read as u64 > LONGEST { Err("it is larger than 1 MiB".into()) } else { Ok(Some(text)) }
}
