use super::explain::compile;
use super::policy::PolicyArgs;
use super::{Env, Failure, Status, out};
use crate::policy::{Access, Decision};
use std::path::PathBuf;

/// Say whether the box would let a path be read or written, by which rule, and the flag that would grant it
///
/// Exit status: 0 when every path is allowed, 1 when any is denied.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Ask for writing instead of reading
    #[arg(long)]
    write: bool,
    /// Print one JSON object a path
    #[arg(long)]
    json: bool,
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let mut resolved = args.policy.resolve(env, None, Status::USAGE)?;
    let twin = args.paths.iter().any(|path| resolved.policy.may_be_second_name(path));
    if resolved.policy.without_mounts() || twin {
        // What holds there is only what a run would not be refused for; and whose name it is only a walk can tell.
        compile(&mut resolved.policy, &resolved.facts, Vec::new(), Status::USAGE)?;
    }
    let policy = resolved.policy;
    let access = if args.write { Access::Write } else { Access::Read };
    let decisions: Vec<Decision> = args.paths.iter().map(|path| policy.decide_asked(path, access)).collect();
    out::print(|out| {
        for decision in &decisions {
            if args.json {
                writeln!(out, "{}", crate::report::decision_json(decision))?;
            } else {
                writeln!(out, "{}", crate::report::one_line(&decision.to_string()))?;
            }
        }
        Ok(())
    })?;
    Ok(if decisions.iter().all(|decision| decision.allowed) { Status::OK } else { Status::NO })
}
