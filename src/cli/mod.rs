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
use std::ffi::OsString;
use std::mem::ManuallyDrop;
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

/// `run` alone: to put all the other subcommands together takes as long as to parse this one.
#[derive(Debug, Parser)]
#[command(name = "agentbox run", disable_version_flag = true)]
struct Run {
    #[command(flatten)]
    args: run::Args,
}

fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    if args.get(1).is_some_and(|arg| arg == "run") {
        // What it does not take, `--help` too, is for the whole parser to say.
        if let Ok(Run { args }) = Run::try_parse_from(&args[1..]) {
            return Ok(Cli { command: Command::Run(args) });
        }
    }
    Cli::try_parse_from(args)
}

/// The whole program: arguments in, exit status out.
pub fn main() -> ExitCode {
    let env = match Env::read() {
        // Never dropped, like what follows from it: the process ends with it.
        Ok(env) => ManuallyDrop::new(env),
        Err(failure) => return failure.report(),
    };
    let cli = match parse(&env.args) {
        Ok(cli) => ManuallyDrop::new(cli),
        Err(err) => return failure::usage(&err, &env),
    };
    let outcome = match &cli.command {
        Command::Run(args) => run::run(args, &env),
        Command::Explain(args) => explain::run(args, &env),
        Command::Why(args) => why::run(args, &env),
        Command::Diff(args) => diff::run(args, &env),
        Command::Apply(args) => apply::run(args, &env),
        Command::Undo(args) => undo::run(args, &env),
        Command::Discard(args) => discard::run(args, &env),
        Command::Sessions(args) => sessions::run(args, &env),
        Command::Profile(args) => profile::run(args, &env),
        Command::Doctor(args) => doctor::run(args, &env),
    };
    match outcome {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short way says of every command line what the whole parser says.
    #[test]
    fn run_is_parsed_alike_alone_and_among_the_others() {
        let lines = [
            "run true",
            "run --live -- ./true -x --ro /a",
            "run --rw a --ro b --ro=c -q -p strict --limit time=5 --fd 3 -- sh -c x",
            "run --report r --env A=b --hide *.pem cmd --live",
            "run --dry-run --live -- true",
            "run",
            "run --",
            "run --no-such -- true",
            "run --fd x -- true",
            "run --version",
            "run --help",
            "run -V -- true",
            "run help",
        ];
        for line in lines {
            let args: Vec<OsString> = ["agentbox"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
            let told = |outcome: Result<Cli, clap::Error>| match outcome {
                Ok(cli) => format!("{cli:?}"),
                Err(err) => err.to_string(),
            };
            assert_eq!(told(parse(&args)), told(Cli::try_parse_from(&args)), "{line}");
        }
    }
}
