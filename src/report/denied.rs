//! Reads of hidden names that were denied, as values and as the few lines at the end of a run.

use crate::policy::{Access, Decision, Policy};
use crate::session::{HiddenRead, Why};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// So many are told at the end; the report has them all.
const TOLD: usize = 3;

/// Tools look for these wherever they are, and do without.
const PROBES: [&str; 12] = [
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".bzr",
    "_darcs",
    ".pijul",
    ".fossil",
    ".rgignore",
    ".fdignore",
    ".npmrc",
    ".yarnrc.yml",
];

/// The denial that a read met. Where no rule names it, nothing grants it either.
fn decision(read: &HiddenRead, policy: &Policy) -> Decision {
    let decision = policy.decide(&read.path, Access::Read);
    let rule = match read.why {
        Why::Policy => return decision,
        Why::SecondName => "another name of a hidden file",
        Why::Unsearchable => "it cannot be searched for hidden names",
    };
    Decision { allowed: false, rule: rule.to_owned(), remedy: None, ..decision }
}

fn is_probe(read: &HiddenRead) -> bool {
    read.path.file_name().is_some_and(|name| PROBES.iter().any(|probe| name == *probe))
}

pub(super) fn lines(reads: &[HiddenRead], policy: &Policy) -> Vec<String> {
    let told: Vec<&HiddenRead> = reads.iter().filter(|read| !is_probe(read)).collect();
    let mut lines: Vec<String> = told.iter().take(TOLD).map(|read| decision(read, policy).to_string()).collect();
    if let Some(more) = told.len().checked_sub(TOLD).filter(|more| *more > 0) {
        lines.push(format!("denied (read): {more} more hidden names (--report FILE lists them)"));
    }
    lines
}

pub(super) fn json(reads: &[HiddenRead], policy: &Policy) -> Value {
    let since_epoch =
        |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
    let one = |read: &HiddenRead| {
        let mut value = super::decision_json(&decision(read, policy));
        value["time"] = json!(since_epoch(read.at));
        value["pid"] = json!(read.pid);
        value["times"] = json!(read.times);
        value["probe"] = json!(is_probe(read));
        value
    };
    reads.iter().map(one).collect()
}
