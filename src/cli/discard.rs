use super::failure::say;
use super::{Env, Failure, Status, review};

/// Throw away what sessions changed
///
/// Deletes the sessions for good and asks nothing. A session whose command still runs is refused.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ids or unique prefixes [default: the latest session of this project]
    #[arg(value_name = "SESSION")]
    sessions: Vec<String>,
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let selectors: Vec<Option<&str>> =
        if args.sessions.is_empty() { vec![None] } else { args.sessions.iter().map(|id| Some(id.as_str())).collect() };
    // All are found before one is deleted: a misspelled one must not leave half of the work done.
    let mut found = Vec::new();
    for selector in selectors {
        found.push(review::find(env, selector)?);
    }
    found.sort_by(|(_, a), (_, b)| a.id.cmp(&b.id));
    found.dedup_by(|(_, a), (_, b)| a.id == b.id);
    for (store, stored) in &found {
        store.remove(stored).map_err(review::failure)?;
        say(&format!("agentbox: discarded session {}", stored.id));
    }
    Ok(Status::OK)
}
