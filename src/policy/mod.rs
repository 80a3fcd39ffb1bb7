//! The resolved policy: canonical, free of contradiction; and [`Policy::decide`], the only judge of path and access.
//!
//! This room resolves what the profile room read against the host's facts. It makes nothing and runs nothing.

mod alias;
mod decide;
mod environment;
mod error;
mod etc;
pub mod git;
mod limits;
mod names;
mod record;
mod resolve;
mod roots;
mod scan;
mod second;
mod sockets;
mod sweep;
mod tier;
mod toolchain;

/// The profile's own words that a policy keeps: rooms above this one take them from here.
pub use crate::profile::{DiffStyle, GitAccess, HomeMode, Layer, Mode, NetMode};
pub use decide::{Access, DEVICES_OF_HOST, Decision};
pub use error::PolicyError;
pub use git::digest;
pub use limits::{Asked, Limits};
pub use names::{Effect, Inside, NameRule, NameRules, NameVerdict, Rank, Scratch};
pub use record::{Record, RecordJudge};
pub use resolve::{Request, resolve};
pub use scan::{Finding, Findings, Section, links_outside, survey};
pub use second::{Originals, second_names};
pub use sockets::hide_sockets;
pub use sweep::sweep;

use crate::path::{FileId, Kind, Link, is_at_or_below};
use crate::profile::Origin;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A private place: empty at the start, writable, gone at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Private {
    Tmp,
    VarTmp,
    Run,
    Shm,
    Home,
}

/// What stands at a path inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// The host's, read-only, without name rules: system directories, toolchains, picked files of /etc.
    System,
    /// A file that agentbox writes for the box.
    Made(Vec<u8>),
    Private(Private),
    /// A read-only HOME: empty but for what is granted in it.
    EmptyHome,
    Proc,
    Dev,
    /// A socket of the host.
    Socket,
    Rw,
    Ro,
    /// Writable, always live, without name rules.
    Scratch,
    Hide,
}

impl EntryKind {
    /// Do name rules hold below it?
    pub fn has_names(&self) -> bool {
        matches!(self, EntryKind::Rw | EntryKind::Ro)
    }

    /// Is it one of the user's roots?
    pub fn is_root(&self) -> bool {
        matches!(self, EntryKind::Rw | EntryKind::Ro | EntryKind::Scratch)
    }
}

/// One place of the view inside. The deepest entry at or above a path decides about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands inside; for what comes from the host also where it stands there.
    pub path: PathBuf,
    pub kind: EntryKind,
    pub origin: Origin,
    /// Why the profile has it.
    pub why: Option<String>,
    pub file: Option<Kind>,
    /// What the policy was resolved against: the mount is refused when something else stands there later.
    pub id: Option<FileId>,
}

impl Entry {
    /// The rule of a hidden path, and what the path has to do with it where its name does not say.
    pub fn hidden_by(&self) -> String {
        match &self.why {
            Some(why) => format!("{}: {why}", self.origin),
            None => self.origin.to_string(),
        }
    }
}

/// TCP ports that Landlock allows; empty means any. Only with the host's network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports {
    pub connect: Vec<u16>,
    pub bind: Vec<u16>,
}

/// A whole policy, ready to be planned.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Names of the profiles it was made of.
    pub profiles: Vec<String>,
    pub mode: Mode,
    pub diff: DiffStyle,
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// Directories of live roots that must stay where they are: the way to agentbox's own.
    pub pins: Vec<PathBuf>,
    /// Symlinks that make other spellings of the entries work. Never inside an entry of the host.
    pub links: Vec<Link>,
    pub names: NameRules,
    /// Directories whose files a live run does not back up.
    pub no_backup: Vec<String>,
    /// The repositories that can be used inside.
    pub git: Option<git::Git>,
    pub net: NetMode,
    pub ports: Ports,
    pub environment: Vec<(OsString, OsString)>,
    pub limits: Limits,
    pub home: PathBuf,
    pub home_mode: HomeMode,
    pub cwd: PathBuf,
    pub nested: bool,
    pub degraded: Vec<Layer>,
    /// Without mounts: the fresh directory that is TMPDIR. It is made by the run and removed with it.
    pub tmp: Option<PathBuf>,
    /// Descriptors that pass.
    pub fds: Vec<i32>,
    /// Said before the run.
    pub notices: Vec<String>,
    /// PATH entries that are not visible inside.
    pub dropped_path: Vec<PathBuf>,
    /// What was granted, and what was hidden, for this run alone: said in the report.
    pub granted: Vec<String>,
    pub hidden_for_this_run: Vec<String>,
}

impl Policy {
    /// The deepest entry at or above `path`.
    pub fn entry_at(&self, path: &Path) -> Option<&Entry> {
        path.ancestors().find_map(|at| self.entry(at))
    }

    /// The entry of this very path.
    pub fn entry(&self, path: &Path) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.path.as_path().cmp(path));
        found.ok().map(|index| &self.entries[index])
    }

    /// The entries strictly below `path`, in their order: sorted by path they stand together.
    pub fn entries_below(&self, path: &Path) -> impl Iterator<Item = &Entry> {
        let first = self.entries.partition_point(|entry| entry.path.as_path() <= path);
        self.entries[first..].iter().take_while(move |entry| entry.path.starts_with(path))
    }

    /// Is `path` a directory on the way to an entry, which exists inside because of it?
    pub fn on_the_way(&self, path: &Path) -> bool {
        let below = |other: &Path| is_at_or_below(other, path) && other.as_os_str().len() > path.as_os_str().len();
        self.entries_below(path).any(|entry| entry.kind != EntryKind::Hide)
            || self.links.iter().any(|link| below(&link.at))
    }

    /// Is the supervisor told of what the command changes, and backs it up? Without the deny list of system calls there
    /// are ways to change a file that it would not be told of.
    pub fn backs_up(&self) -> bool {
        let given_up = |layer| self.degraded.contains(&layer);
        let live = self.mode == Mode::Live && self.writable_roots().next().is_some();
        live && !given_up(Layer::Backup) && !given_up(Layer::Seccomp)
    }

    /// The writable roots that a dry run overlays.
    pub fn writable_roots(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.kind == EntryKind::Rw)
    }
}
