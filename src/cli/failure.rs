//! Errors of the edge: one kind, one place where they become text.

use super::Env;
use crate::report::one_line;
use std::process::ExitCode;

/// Exit statuses that are agentbox's own (docs/exit-codes.md); any other is the command's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u8);

impl Status {
    pub const OK: Status = Status(0);
    /// `why`: denied. `doctor`: a required layer is missing.
    pub const NO: Status = Status(1);
    /// Usage or input error of every subcommand but `run`.
    pub const USAGE: Status = Status(2);
    /// `apply`, `undo`: some or all of it was left out, by the policy or for what the host changed.
    pub const LEFT_OUT: Status = Status(123);
    /// The time limit ended the command.
    pub const TIME: Status = Status(124);
    /// agentbox refused or failed; the command did not run.
    pub const REFUSED: Status = Status(125);
    pub const CANNOT_EXECUTE: Status = Status(126);
    pub const NOT_FOUND: Status = Status(127);
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status.0)
    }
}

/// An error on its way to the user: what failed, the status it ends with, and what to do next.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub error: anyhow::Error,
    pub hints: Vec<String>,
}

impl Failure {
    pub fn new(status: Status, error: impl Into<anyhow::Error>) -> Failure {
        Failure { status, error: error.into(), hints: Vec::new() }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hints.push(hint.into());
        self
    }

    /// The hint that an error of a room below may have.
    #[must_use]
    pub fn hinted(mut self, hint: Option<String>) -> Failure {
        self.hints.extend(hint);
        self
    }

    /// Prints the error and its hints to stderr, once, here.
    pub(super) fn report(&self) -> ExitCode {
        // A newline in a name must not forge a line of ours.
        say(&one_line(&format!("agentbox: {:#}", self.error)));
        for hint in &self.hints {
            say(&one_line(&format!("agentbox: hint: {hint}")));
        }
        self.status.into()
    }
}

/// A usage error of clap: help and version are no errors; `run` answers 125, so that no caller takes the status for
/// the command's own, all else 2.
pub(super) fn usage(err: &clap::Error, env: &Env) -> ExitCode {
    let printed = err.print();
    if !err.use_stderr() {
        return if printed.is_ok() { Status::OK.into() } else { Status::USAGE.into() };
    }
    let is_run = env.args.get(1).is_some_and(|arg| arg == "run");
    if is_run { Status::REFUSED.into() } else { Status::USAGE.into() }
}

/// One line on stderr. A closed stderr is no reason to fail: the status still tells.
pub fn say(line: &str) {
    use std::io::Write;
    // Not eprintln: it panics where stderr is full or gone, and the command could make it so.
    writeln!(std::io::stderr().lock(), "{line}").ok();
}
