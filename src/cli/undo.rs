use super::failure::say;
use super::{Env, Failure, Status, review};
use crate::session::settle::{Direction, Recovered, SettleError, Settling};

/// Take back what a session's apply changed on the host
///
/// Every file that was changed, made or removed is as it was before, with its mode, times and attributes. What you
/// changed since is left as it is and named; the exit status is then 123. The session's changes are back in its layer:
/// `agentbox apply` applies them again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix [default: the latest of this project]
    session: Option<String>,
    /// Put back also what was changed since; `agentbox` keeps what it replaces with the session
    #[arg(long)]
    force: bool,
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let fault = review::fault(env)?;
    let (_, stored) = review::find(env, args.session.as_deref())?;
    review::layered(&stored, review::record(&stored)?)?;
    let failed = |err| review::unsettled(&stored.id, err);
    let settling = Settling::open(&stored.dir, stored.layers(), false).map_err(failed)?;
    let recovered = settling.recover(Direction::Undo, &fault).map_err(failed)?;
    review::tell_recovered(recovered);
    let settled = match settling.undo(args.force, &fault) {
        // What was to be undone has just been taken back, or an undo finished.
        Err(SettleError::NothingDone)
            if matches!(recovered, Some(Recovered::TakenBack(_) | Recovered::Finished(_))) =>
        {
            return Ok(Status::OK);
        }
        other => other.map_err(failed)?,
    };
    review::tell("left as it is", &settled.conflicts);
    say(&format!("agentbox: undone {}: {} names", stored.id, settled.summary.changed));
    Ok(if settled.conflicts.is_empty() { Status::OK } else { Status::LEFT_OUT })
}
