use super::failure::say;
use super::policy::load;
use super::{Env, Failure, Status, out};
use crate::profile::{Loader, Notice};
use crate::report::one_line;
use serde_json::json;
use std::path::Path;

/// List, show and check profiles
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List every profile that a name reaches, and where it comes from
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show profiles merged, each value with the place it was written
    Show {
        /// Names, or files (with a slash or ending in .toml); merged in this order
        #[arg(required = true, value_name = "NAME|FILE")]
        profiles: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Read profiles and say what is wrong with them
    ///
    /// Exit status: 0 when each can be used, 2 when one cannot.
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let loader = Loader::new(env.config_dir().map(|dir| dir.join("profiles")));
    match &args.command {
        Command::List { json } => list(&loader, *json),
        Command::Show { profiles, json } => show(&loader, profiles, *json),
        Command::Check { files } => check(&loader, files),
    }
}

fn list(loader: &Loader, as_json: bool) -> Result<Status, Failure> {
    let listed = loader.names().map_err(load(Status::USAGE))?;
    let broken = |listed: &crate::profile::Listed| listed.broken.as_ref().map(ToString::to_string);
    out::print(|out| {
        if as_json {
            let one = |listed: &crate::profile::Listed| {
                json!({
                    "name": listed.name,
                    "source": listed.source,
                    "description": listed.description,
                    "programs": listed.programs,
                    "error": broken(listed),
                })
            };
            let all: Vec<_> = listed.iter().map(one).collect();
            return writeln!(out, "{}", json!({ "version": 1, "profiles": all }));
        }
        let width = |of: fn(&crate::profile::Listed) -> &str| {
            listed.iter().map(|listed| one_line(of(listed)).chars().count()).max().unwrap_or(0)
        };
        let (name, source) = (width(|listed| &listed.name), width(|listed| &listed.source));
        for listed in &listed {
            let about = broken(listed).or_else(|| listed.description.clone()).unwrap_or_default();
            let line = format!("{:<name$}  {:<source$}  {about}", one_line(&listed.name), one_line(&listed.source));
            writeln!(out, "{}", one_line(line.trim_end()))?;
        }
        Ok(())
    })
}

fn show(loader: &Loader, names: &[String], as_json: bool) -> Result<Status, Failure> {
    let (profile, notices) = loader.load(names).map_err(load(Status::USAGE))?;
    notices.iter().for_each(tell);
    let shown = profile.shown();
    out::print(|out| {
        if as_json {
            let one = |shown: &crate::profile::Shown| {
                json!({
                    "key": shown.key,
                    "value": shown.value,
                    "origin": shown.origin.to_string(),
                    "why": shown.why,
                })
            };
            let value = json!({
                "version": 1,
                "profiles": profile.names,
                "description": profile.description,
                "programs": profile.programs,
                "values": shown.iter().map(one).collect::<Vec<_>>(),
            });
            return writeln!(out, "{value}");
        }
        writeln!(out, "profiles  {}", one_line(&profile.names.join(", ")))?;
        if let Some(description) = &profile.description {
            writeln!(out, "about     {}", one_line(description))?;
        }
        if !profile.programs.is_empty() {
            writeln!(out, "programs  {}", one_line(&profile.programs.join(", ")))?;
        }
        let width = shown.iter().map(|shown| shown.key.chars().count()).max().unwrap_or(0);
        for shown in &shown {
            let why = shown.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
            let line = format!("{:<width$}  {}  ({}{why})", shown.key, shown.value, shown.origin);
            writeln!(out, "{}", one_line(&line))?;
        }
        Ok(())
    })
}

fn check(loader: &Loader, files: &[String]) -> Result<Status, Failure> {
    let mut status = Status::OK;
    for file in files {
        let checked = loader.load(std::slice::from_ref(file)).and_then(|(_, mut notices)| {
            // A repository's own file only narrows: what of it would be left out without the user's trust?
            if Path::new(file).file_name().is_some_and(|name| name == "agentbox.toml") {
                let text = std::fs::read(file).unwrap_or_default();
                notices.extend(loader.repository(&text, Path::new(file))?.1);
            }
            Ok(notices)
        });
        match checked {
            Ok(notices) => notices.iter().for_each(tell),
            Err(err) => {
                // Each file has its say; the status tells that one failed.
                load(Status::USAGE)(err).report();
                status = Status::USAGE;
            }
        }
    }
    Ok(status)
}

fn tell(notice: &Notice) {
    say(&format!("agentbox: {}", one_line(&notice.to_string())));
}
