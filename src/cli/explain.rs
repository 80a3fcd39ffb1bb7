use super::policy::PolicyArgs;
use super::{Env, Failure, Status, out};
use crate::host::Facts;
use crate::plan::{self, Plan};
use crate::policy::{Entry, EntryKind, Policy, Section, hide_sockets, links_outside, second_names, survey};
use crate::profile::Mode;
use std::ffi::OsString;

/// Print the plan, every step in order, and stop: nothing runs, nothing is made
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The command that would run
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// May this root be a bind mount, through which a socket of the host could be reached? An overlay lets none through.
fn bound(policy: &Policy, entry: &Entry) -> bool {
    policy.mode == Mode::Live || entry.kind == EntryKind::Ro
}

/// Scans the roots and compiles the plan.
pub(super) fn compile(
    policy: &mut Policy,
    facts: &Facts,
    command: Vec<OsString>,
    status: Status,
) -> Result<Plan, Failure> {
    hide_sockets(policy);
    let mut surveys: Vec<(usize, Vec<Section>)> = Vec::new();
    for (index, entry) in policy.entries.iter().enumerate().filter(|(_, entry)| entry.kind.has_names()) {
        let sections = survey(policy, entry, &facts.mounts, bound(policy, entry)).map_err(|errno| {
            let error =
                anyhow::anyhow!("{}: cannot search {} for hidden names: {errno}", entry.origin, entry.path.display());
            Failure::new(status, error).hint("a root must be readable: what cannot be searched cannot be hidden in")
        })?;
        refuse_what_cannot_be_hidden_in(policy, entry, &sections, status)?;
        surveys.push((index, sections));
    }
    second_names(policy, &facts.mounts, &mut surveys);
    policy.check_tier(facts, &surveys).map_err(|err| {
        let hint = err.hint();
        Failure::new(status, err).hint(hint)
    })?;
    Ok(plan::compile(policy, facts, &surveys, command))
}

/// What the survey found that no plan can hold.
fn refuse_what_cannot_be_hidden_in(
    policy: &Policy,
    entry: &Entry,
    sections: &[Section],
    status: Status,
) -> Result<(), Failure> {
    if let Some(notice) = sections.iter().flat_map(|section| &section.findings.notices).next() {
        let path = notice.path.display();
        let error = anyhow::anyhow!("{}: cannot search {path} for hidden names: {}", entry.origin, notice.errno);
        return Err(
            Failure::new(status, error).hint("what cannot be searched cannot be hidden in: name a narrower root")
        );
    }
    let overlay = policy.mode == Mode::DryRun && entry.kind == EntryKind::Rw;
    if let (true, Some(mount)) = (overlay, sections.get(1)) {
        let (root, mount) = (entry.path.display(), mount.path.display());
        let error = anyhow::anyhow!("{}: no dry run of {root}: {mount} is mounted in it", entry.origin);
        return Err(Failure::new(status, error)
            .hint("the kernel makes no overlay over a tree with a mount in it: use --live, or name a narrower root"));
    }
    // A file has no directory to lay an overlay over, unless a writable root around it is one.
    let file = entry.file != Some(crate::path::Kind::Dir);
    let around = entry.path.parent().and_then(|parent| policy.entry_at(parent));
    if overlay && file && !around.is_some_and(|around| around.kind == EntryKind::Rw) {
        let error = anyhow::anyhow!("{}: no dry run of the single file {}", entry.origin, entry.path.display());
        return Err(Failure::new(status, error).hint("use --live, or name its directory with --rw"));
    }
    Ok(())
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let mut resolved = args.policy.resolve(env, args.command.first().map(OsString::as_os_str), Status::USAGE)?;
    let plan = compile(&mut resolved.policy, &resolved.facts, args.command.clone(), Status::USAGE)?;
    let links = links_outside(&resolved.policy);
    if args.json {
        let value = crate::report::explain_json(&resolved.policy, &plan, &links);
        out::print(|out| writeln!(out, "{value}"))
    } else {
        out::print(|out| crate::report::explain_text(&resolved.policy, &plan, &links, out))
    }
}
