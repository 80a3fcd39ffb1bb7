use super::policy::PolicyArgs;
use super::{Env, Failure, Status, out};
use crate::host::Facts;
use crate::plan::{self, Plan};
use crate::policy::{Policy, Section, survey};
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
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Scans the roots and compiles the plan.
pub(super) fn compile(policy: &Policy, facts: &Facts, command: Vec<OsString>, status: Status) -> Result<Plan, Failure> {
    let mut surveys: Vec<(usize, Vec<Section>)> = Vec::new();
    for (index, entry) in policy.entries.iter().enumerate().filter(|(_, entry)| entry.kind.has_names()) {
        let sections = survey(policy, entry, &facts.mounts, policy.mode == Mode::Live).map_err(|errno| {
            let error =
                anyhow::anyhow!("{}: cannot search {} for hidden names: {errno}", entry.origin, entry.path.display());
            Failure::new(status, error).hint("a root must be readable: what cannot be searched cannot be hidden in")
        })?;
        surveys.push((index, sections));
    }
    Ok(plan::compile(policy, facts, &surveys, command))
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let resolved = args.policy.resolve(env, args.command.first().map(OsString::as_os_str), Status::USAGE)?;
    let plan = compile(&resolved.policy, &resolved.facts, args.command.clone(), Status::USAGE)?;
    if args.json {
        let value = crate::report::explain_json(&resolved.policy, &plan);
        out::print(|out| writeln!(out, "{value}"))
    } else {
        out::print(|out| crate::report::explain_text(&resolved.policy, &plan, out))
    }
}
