use super::run::surroundings;
use super::{Env, Failure, Status, out};
use crate::enforce::Surroundings;
use crate::host::{Facts, System};
use crate::plan::doctor::{diagnose, isolate};
use crate::session::examine;

/// Say what this kernel and host can enforce, and how to fix what they cannot
///
/// Every layer is tried for real, in a process that is thrown away; nothing is left behind.
/// Exit status: 0 when all required layers are there, 1 when one is missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let facts = Facts::probe().map_err(|err| Failure::new(Status::USAGE, err))?;
    let system = System::probe();
    let isolate = isolate(&facts);
    let (attempts, state) = examine(env.state_dir().as_deref(), &isolate, facts.landlock_abi);
    let diagnosis = diagnose(&system, &facts.cgroups, &attempts, &state, surroundings(env) == Surroundings::Box);
    out::print(|out| {
        if args.json {
            writeln!(out, "{}", crate::report::doctor_json(&diagnosis))
        } else {
            crate::report::doctor_text(&diagnosis, out)
        }
    })?;
    Ok(if diagnosis.is_ok() { Status::OK } else { Status::NO })
}
