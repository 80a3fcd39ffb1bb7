//! The process environment, read once.

use super::Failure;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Everything that a run takes from the process it was started in.
#[derive(Debug)]
pub struct Env {
    pub args: Vec<OsString>,
    pub vars: BTreeMap<OsString, OsString>,
    /// The working directory as the kernel names it; an error text when it was deleted.
    pub cwd: Result<PathBuf, String>,
}

impl Env {
    pub(super) fn read() -> Result<Env, Failure> {
        let cwd = std::env::current_dir().map_err(|err| err.to_string());
        Ok(Env { args: std::env::args_os().collect(), vars: std::env::vars_os().collect(), cwd })
    }

    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// An absolute path from a variable; an unset, empty or relative one counts as unset, as the XDG basedir
    /// specification demands.
    fn dir(&self, name: &str) -> Option<PathBuf> {
        self.var(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// `$XDG_STATE_HOME/agentbox`, else `~/.local/state/agentbox`.
    pub fn state_dir(&self) -> Option<PathBuf> {
        let base = self.dir("XDG_STATE_HOME").or_else(|| Some(self.dir("HOME")?.join(".local/state")))?;
        Some(base.join("agentbox"))
    }

    /// `$XDG_CONFIG_HOME/agentbox`, else `~/.config/agentbox`.
    pub fn config_dir(&self) -> Option<PathBuf> {
        let base = self.dir("XDG_CONFIG_HOME").or_else(|| Some(self.dir("HOME")?.join(".config")))?;
        Some(base.join("agentbox"))
    }
}
