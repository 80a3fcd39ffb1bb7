//! The end of the chain: execve, with the PATH search of execvp(3) done here, so that nothing runs by a guess.

use super::pid1;
use super::seal::Sealed;
use super::wire::{Failure, FailureKind};
use crate::plan::Exec;
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

impl Sealed {
    /// Executes the command; returns only the reason why not.
    pub fn exec(self, plan: &Exec) -> Failure {
        if let Err(errno) = rustix::process::chdir(&plan.cwd) {
            let text = format!("cannot change to the working directory {}: {errno}", plan.cwd.display());
            return Failure { kind: FailureKind::Setup, text, hints: vec!["use --chdir DIR".into()] };
        }
        let Some(name) = plan.command.first() else {
            return Failure { kind: FailureKind::Setup, text: "no command".into(), hints: Vec::new() };
        };
        let (Some(arguments), Some(environment)) = (strings(&plan.command), environment(plan)) else {
            let text = "an argument or a variable holds a NUL byte".into();
            return Failure { kind: FailureKind::Setup, text, hints: Vec::new() };
        };
        if let Err(errno) = pid1::unblock_signals() {
            let text = format!("clearing the signal mask: {errno}");
            return Failure { kind: FailureKind::Setup, text, hints: Vec::new() };
        }
        let mut worst = Errno::NOENT;
        for candidate in candidates(name, plan) {
            let Ok(path) = CString::new(candidate.into_vec()) else { continue };
            let errno = match nix::unistd::execve(&path, &arguments, &environment) {
                Ok(never) => match never {},
                Err(errno) => Errno::from_raw_os_error(errno as i32),
            };
            match errno {
                Errno::NOENT | Errno::NOTDIR => {}
                // A later directory may have one that can be executed.
                Errno::ACCESS => worst = errno,
                other => return refused(name, other),
            }
        }
        refused(name, worst)
    }
}

fn refused(name: &OsStr, errno: Errno) -> Failure {
    let name = Path::new(name).display();
    let kind = FailureKind::of_exec(errno);
    let text = if kind == FailureKind::NotFound {
        format!("command not found inside the box: {name}")
    } else {
        format!("cannot execute {name}: {errno}")
    };
    Failure { kind, text, hints: Vec::new() }
}

/// Where the command may lie: itself if it has a slash, else each directory of the box's own PATH.
fn candidates(name: &OsStr, plan: &Exec) -> Vec<OsString> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.to_owned()];
    }
    let path = plan.environment.iter().find(|(key, _)| key == "PATH").map(|(_, value)| value);
    let dirs = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    dirs.into_iter().map(|dir| dir.join(name).into_os_string()).collect()
}

fn strings(list: &[OsString]) -> Option<Vec<CString>> {
    list.iter().map(|item| CString::new(item.as_bytes()).ok()).collect()
}

fn environment(plan: &Exec) -> Option<Vec<CString>> {
    let join = |(key, value): &(OsString, OsString)| {
        let mut pair = key.as_bytes().to_vec();
        pair.push(b'=');
        pair.extend_from_slice(value.as_bytes());
        CString::new(pair).ok()
    };
    plan.environment.iter().map(join).collect()
}
