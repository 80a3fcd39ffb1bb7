//! The plan for people and for programs.

use super::one_line;
use crate::plan::{Plan, shown};
use crate::policy::{Decision, EntryKind, GitAccess, Mode, NetMode, Policy};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

pub(super) fn kind(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::System => "system",
        EntryKind::Made(_) => "made",
        EntryKind::Private(_) => "private",
        EntryKind::EmptyHome => "empty-home",
        EntryKind::Proc => "proc",
        EntryKind::Dev => "dev",
        EntryKind::Socket => "socket",
        EntryKind::Rw => "rw",
        EntryKind::Ro => "ro",
        EntryKind::Scratch => "scratch",
        EntryKind::Hide => "hide",
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::DryRun => "dry-run",
        Mode::Live => "live",
    }
}

fn net(net: NetMode) -> &'static str {
    match net {
        NetMode::None => "none",
        NetMode::Host => "host",
    }
}

pub(super) fn access(git: GitAccess) -> &'static str {
    match git {
        GitAccess::Ro => "ro",
        GitAccess::Rw => "rw",
    }
}

/// The repositories that can be used, each with the top of its working tree.
pub(super) fn repositories(policy: &Policy) -> Vec<Value> {
    let found = policy.git.iter().flat_map(|git| &git.repositories);
    found.map(|found| json!({ "path": shown(&found.common), "top": shown(&found.top) })).collect()
}

/// The whole plan as text.
///
/// # Errors
/// Those of `out`.
pub fn explain_text(
    policy: &Policy,
    plan: &Plan,
    links: &[(PathBuf, Decision)],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "profile  {}", policy.profiles.join(", "))?;
    writeln!(out, "mode     {}", mode(policy.mode))?;
    writeln!(out, "network  {}", net(policy.net))?;
    writeln!(out, "home     {}", shown(&policy.home))?;
    if let Some(git) = &policy.git {
        writeln!(out, "git      {} ({})", access(git.access), git.origin)?;
        for found in &git.repositories {
            writeln!(out, "repository  {} of {}", shown(&found.common), shown(&found.top))?;
        }
    }
    let asked = |entry: &&crate::policy::Entry| {
        entry.kind.is_root() || matches!(entry.kind, EntryKind::Hide | EntryKind::Socket)
    };
    for entry in policy.entries.iter().filter(asked) {
        let why = entry.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        writeln!(out, "{:<8} {} ({}{})", kind(&entry.kind), shown(&entry.path), entry.origin, one_line(&why))?;
    }
    for notice in &plan.notices {
        writeln!(out, "notice   {}", one_line(notice))?;
    }
    for lost in &plan.lost {
        writeln!(out, "lost     {}", one_line(lost))?;
    }
    let names: Vec<_> = policy.environment.iter().map(|(name, _)| name.to_string_lossy()).collect();
    writeln!(out, "environment  {}", one_line(&names.join(" ")))?;
    let mut stage = "";
    for (number, (of, _, line)) in plan.lines().into_iter().enumerate() {
        if of != stage {
            writeln!(out, "{of}:")?;
            stage = of;
        }
        writeln!(out, "  {:>3}  {}", number + 1, one_line(&line))?;
    }
    let hidden = plan.hidden();
    if !hidden.is_empty() {
        writeln!(out, "hidden names:")?;
        for (path, rule) in hidden {
            writeln!(out, "       {} by {}", shown(&path), one_line(rule))?;
        }
    }
    if !links.is_empty() {
        writeln!(out, "links that lead to nothing inside:")?;
        for (path, decision) in links {
            let remedy = decision.remedy.as_deref().unwrap_or("nothing");
            writeln!(out, "       {}: {} (grant: {})", shown(path), one_line(&decision.rule), one_line(remedy))?;
        }
    }
    Ok(())
}

/// The whole plan as one object. Paths are as shown: one line, control characters escaped.
pub fn explain_json(policy: &Policy, plan: &Plan, links: &[(PathBuf, Decision)]) -> Value {
    let steps: Vec<Value> = plan
        .lines()
        .into_iter()
        .map(|(stage, name, line)| json!({ "stage": stage, "step": name, "text": line }))
        .collect();
    let entries: Vec<Value> = policy
        .entries
        .iter()
        .map(|entry| json!({ "path": shown(&entry.path), "kind": kind(&entry.kind), "origin": entry.origin.to_string(), "why": entry.why }))
        .collect();
    let hidden: Vec<Value> =
        plan.hidden().into_iter().map(|(path, rule)| json!({ "path": shown(&path), "rule": rule })).collect();
    let names: Vec<String> = policy.environment.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    json!({
        "version": 1,
        "profiles": policy.profiles,
        "mode": mode(policy.mode),
        "network": net(policy.net),
        "home": shown(&policy.home),
        "git": policy.git.as_ref().map(|git| access(git.access)),
        "repositories": repositories(policy),
        "cwd": shown(&policy.cwd),
        "entries": entries,
        "environment": names,
        "notices": plan.notices,
        "lost": plan.lost,
        "hidden": hidden,
        "links_outside": links.iter().map(|(path, decision)| json!({ "path": shown(path), "rule": decision.rule, "remedy": decision.remedy })).collect::<Vec<_>>(),
        "steps": steps,
    })
}

/// A decision as one object.
pub fn decision_json(decision: &Decision) -> Value {
    json!({
        "path": decision.path.to_string_lossy(),
        "access": decision.access,
        "verdict": if decision.allowed { "allowed" } else { "denied" },
        "rule": decision.rule,
        "origin": decision.origin,
        "remedy": decision.remedy,
    })
}
