//! What a profile can say. Every value carries the place it was written, for denials name it.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Text of a profile: of a built-in one it is borrowed from the program, where it is a launch's hundreds of patterns.
pub type Text = Cow<'static, str>;

/// Where a rule was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A flag of the command line, e.g. `--hide`.
    CommandLine(Text),
    /// A profile: built in, the user's, or given with `-p`. `file` is a path or `built-in:NAME`; `line` counts from 1.
    Profile { file: Text, line: u32 },
    /// The repository's own `agentbox.toml`, which may only narrow.
    Repository { file: Text, line: u32 },
    /// What the program itself always does, in words.
    BuiltIn(Text),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine(flag) => write!(f, "{flag}"),
            Origin::Profile { file, line } | Origin::Repository { file, line } => write!(f, "{file}:{line}"),
            Origin::BuiltIn(what) => write!(f, "{what}"),
        }
    }
}

/// A value and the place it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Written<T> {
    pub fn new(value: T, origin: Origin) -> Written<T> {
        Written { value, origin }
    }
}

/// A path of `rw`, `ro`, `scratch` or `sockets`: as written, with `~` for HOME and relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    pub path: PathBuf,
    /// A missing optional path is a notice, not an error.
    pub optional: bool,
    /// Why the profile grants it, for people who read `explain`.
    pub why: Option<String>,
}

/// What a `grant` pattern gives back of what is hidden. `GLOB` alone is read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantAccess {
    Ro,
    Rw,
}

/// `GLOB[:ro|:rw]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub glob: Text,
    pub access: GrantAccess,
}

/// What HOME is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HomeMode {
    /// An empty writable directory that ends with the run.
    Private,
    /// An empty directory that refuses writes aloud, but for what the profile grants in it.
    ReadOnly,
}

/// What of a repository can be used inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitAccess {
    /// It is read, without locks.
    Ro,
    /// Commits, branches, stashes; never hooks and configuration.
    Rw,
}

/// How writes below a writable root are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Overlay; the diff is shown at the end, the host stays as it is.
    DryRun,
    /// The real directory.
    Live,
}

/// How much of the diff `run` prints at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffStyle {
    Full,
    Stat,
    None,
}

/// Which network the command sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetMode {
    /// An own network namespace with nothing but loopback.
    None,
    /// The host's network.
    Host,
}

/// A layer that `--degraded` may give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// User, mount, pid and the other namespaces, with the private root: what remains is Landlock and seccomp.
    Mounts,
    Landlock,
    Seccomp,
    /// The own network namespace.
    Netns,
    /// Backups of what a live run changes.
    Backup,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filesystem {
    pub rw: Vec<Written<PathEntry>>,
    pub ro: Vec<Written<PathEntry>>,
    pub scratch: Vec<Written<PathEntry>>,
    pub home: Option<Written<HomeMode>>,
    /// The repositories of the roots: hidden unless this is given.
    pub git: Option<Written<GitAccess>>,
    /// Globs; a name without a slash matches at any depth. `.*` is the dotfile rule, which is off inside `build_dirs`.
    pub hide: Vec<Written<Text>>,
    pub grant: Vec<Written<Grant>>,
    /// Visible and readable, never writable.
    pub freeze: Vec<Written<Text>>,
    /// Names of dependency, build and cache directories, inside which the dotfile rule is off.
    pub build_dirs: Vec<Written<Text>>,
    /// Names of directories whose files a live run does not back up: what a tool makes and can make again.
    pub no_backup: Vec<Written<Text>>,
    /// Grant toolchains in HOME that are on PATH, read-only. On unless a profile says `toolchains = false`.
    pub toolchains: Option<Written<bool>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    pub mode: Option<Written<NetMode>>,
    /// With `mode = "host"`: the only TCP ports that may be connected to. Empty: any.
    pub tcp_connect: Vec<Written<u16>>,
    /// With `mode = "host"`: the only TCP ports that may be bound. Empty: any.
    pub tcp_bind: Vec<Written<u16>>,
    /// Sockets of the host that are reachable inside.
    pub sockets: Vec<Written<PathEntry>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names or globs (`LC_*`) that pass.
    pub pass: Vec<Written<Text>>,
    /// Globs that do not pass: of `pass` and `deny` the pattern with more literal characters wins, at a tie `deny`.
    /// `--env NAME` on the command line lifts them.
    pub deny: Vec<Written<Text>>,
    pub set: BTreeMap<String, Written<String>>,
}

/// Sizes in bytes; `None` means that the profile does not say, `u64::MAX` means `unlimited`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    pub processes: Option<Written<u64>>,
    /// Writable private memory of one process (RLIMIT_DATA).
    pub memory: Option<Written<u64>>,
    /// All private writable places together: /tmp, /var/tmp, HOME, /run, /dev/shm.
    pub tmp: Option<Written<u64>>,
    pub file_size: Option<Written<u64>>,
    pub open_files: Option<Written<u64>>,
    /// Seconds.
    pub time: Option<Written<u64>>,
    /// The largest file that a live run backs up.
    pub backup_file: Option<Written<u64>>,
    /// All that a live run backs up, together.
    pub backup_total: Option<Written<u64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    pub mode: Option<Written<Mode>>,
    pub diff: Option<Written<DiffStyle>>,
    pub nested: Option<Written<bool>>,
    pub degraded: Vec<Written<Layer>>,
}

/// One profile, or several merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// The names it was made of, in order of `-p` and `extends`, e.g. `default`.
    pub names: Vec<String>,
    pub description: Option<String>,
    /// Picked when the command's name matches and no `-p` is given.
    pub programs: Vec<String>,
    pub filesystem: Filesystem,
    pub network: Network,
    pub environment: Environment,
    pub limits: Limits,
    pub run: Run,
}
