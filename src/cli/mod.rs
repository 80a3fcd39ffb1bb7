//! What the user types. Reads the environment once, turns arguments into the typed request of a room below, and turns
//! what comes back into text and an exit status. No rule, no path judgement and no kernel call lives here.

mod apply;
mod diff;
mod discard;
mod doctor;
mod env;
mod explain;
mod failure;
mod out;
mod policy;
mod profile;
mod review;
mod run;
mod sessions;
mod undo;
mod why;

pub use env::Env;
pub use failure::{Failure, Status};

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Bound the damage of any single bad decision of an AI agent to a space you chose and can recover from
#[derive(Debug, Parser)]
#[command(name = "agentbox", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Explain(explain::Args),
    Why(why::Args),
    Diff(diff::Args),
    Apply(apply::Args),
    Undo(undo::Args),
    Discard(discard::Args),
    Sessions(sessions::Args),
    Profile(profile::Args),
    Doctor(doctor::Args),
}

/// The whole program: arguments in, exit status out.
pub fn main() -> ExitCode {
    let env = match Env::read() {
        Ok(env) => env,
        Err(failure) => return failure.report(),
    };
    let cli = match Cli::try_parse_from(&env.args) {
        Ok(cli) => cli,
        Err(err) => return failure::usage(&err, &env),
    };
    let outcome = match cli.command {
        Command::Run(args) => run::run(&args, &env),
        Command::Explain(args) => explain::run(&args, &env),
        Command::Why(args) => why::run(&args, &env),
        Command::Diff(args) => diff::run(&args, &env),
        Command::Apply(args) => apply::run(&args, &env),
        Command::Undo(args) => undo::run(&args, &env),
        Command::Discard(args) => discard::run(&args, &env),
        Command::Sessions(args) => sessions::run(&args, &env),
        Command::Profile(args) => profile::run(&args, &env),
        Command::Doctor(args) => doctor::run(&args, &env),
    };
    match outcome {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}
