use super::{Env, Failure, Status, out, review};
use crate::policy::Mode;
use crate::session::{Counts, State, Stored, os_value as os, quote};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

/// List the sessions: pending, applied, undone, running
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let list = match review::store(env)? {
        Some(store) => store.list().map_err(review::failure)?,
        None => Vec::new(),
    };
    if args.json {
        let sessions: Vec<Value> = list.iter().map(object).collect();
        return out::print(|out| writeln!(out, "{}", json!({ "version": 1, "sessions": sessions })));
    }
    let now = SystemTime::now();
    out::print(|out| list.iter().try_for_each(|stored| writeln!(out, "{}", line(stored, now))))
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::DryRun => "dry-run",
        Mode::Live => "live",
    }
}

fn state(stored: &Stored) -> &'static str {
    match stored.state {
        State::Running => "running",
        // What a live run changed is changed.
        State::Pending if stored.record.as_ref().is_some_and(|record| record.mode == Mode::Live) => "finished",
        State::Pending => "pending",
        State::Applied => "applied",
        State::Undone => "undone",
        State::Unfinished => "unfinished",
        State::Interrupted => "interrupted",
        State::Broken(_) => "broken",
    }
}

/// `id  age  state  mode  profile  counts  command`
fn line(stored: &Stored, now: SystemTime) -> String {
    let state = state(stored);
    let Some(record) = &stored.record else {
        let why = match &stored.state {
            State::Broken(why) => why.as_str(),
            State::Running
            | State::Pending
            | State::Applied
            | State::Undone
            | State::Unfinished
            | State::Interrupted => "",
        };
        return format!("{:<10}  {:>4}  {state:<11}  {why}", stored.id, "-");
    };
    let age = now.duration_since(record.created).map_or_else(|_| "now".to_owned(), age);
    let profile = if record.profiles.is_empty() { "-".to_owned() } else { record.profiles.join(",") };
    let counts = record.outcome.map_or_else(|| "-".to_owned(), |outcome| counts(outcome.counts));
    let command = command(&record.command);
    format!("{:<10}  {age:>4}  {state:<11}  {}  {profile}  {counts}  {command}", stored.id, mode(record.mode))
}

fn counts(counts: Counts) -> String {
    format!("+{} ~{} -{}", counts.created, counts.modified, counts.deleted)
}

/// The command on one line, each argument that a shell would split in quotes of its own.
fn command(command: &[OsString]) -> String {
    let word = |arg: &OsString| {
        let text = quote::text(arg);
        let plain = |char: char| char.is_ascii_alphanumeric() || "-_./=:,+@%".contains(char);
        if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{text}'") }
    };
    let text: Vec<String> = command.iter().map(word).collect();
    text.join(" ")
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        secs @ 0..60 => format!("{secs}s"),
        secs @ 60..3600 => format!("{}m", secs / 60),
        secs @ 3600..86_400 => format!("{}h", secs / 3600),
        secs => format!("{}d", secs / 86_400),
    }
}

fn object(stored: &Stored) -> Value {
    let mut object = json!({ "id": stored.id, "state": state(stored), "dir": os(stored.dir.as_os_str()) });
    let Value::Object(map) = &mut object else { return object };
    if let State::Broken(why) = &stored.state {
        map.insert("why".to_owned(), why.as_str().into());
    }
    if let Some(record) = &stored.record {
        let created = record.created.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        map.insert("created".to_owned(), created.into());
        map.insert("mode".to_owned(), mode(record.mode).into());
        map.insert("profiles".to_owned(), record.profiles.clone().into());
        map.insert("command".to_owned(), record.command.iter().map(|arg| os(arg)).collect());
        map.insert("roots".to_owned(), record.roots.iter().map(|root| os(root.as_os_str())).collect());
        map.insert("status".to_owned(), record.outcome.map(|outcome| outcome.status).into());
        map.insert("counts".to_owned(), json!(record.outcome.map(|outcome| outcome.counts)));
    }
    object
}
