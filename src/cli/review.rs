//! What the subcommands that review sessions share: the store, and the session that is meant.

use super::failure::say;
use super::{Env, Failure, Status};
use crate::policy::Mode;
use crate::session::settle::{Direction, Fault, Recovered, SettleError, Stop};
use crate::session::{Record, Remark, State, Store, StoreError, Stored, quote};
use std::path::Path;

/// A store error as the user's: the status of a usage error, and the remedy.
pub fn failure(err: StoreError) -> Failure {
    let hint = err.hint();
    Failure::new(Status::USAGE, err).hinted(hint)
}

/// The store, where there is one. Looking makes none.
pub fn store(env: &Env) -> Result<Option<Store>, Failure> {
    let Some(dir) = env.state_dir() else {
        let failure = Failure::new(Status::USAGE, anyhow::anyhow!("no state directory: HOME is not set"));
        return Err(failure.hint("set XDG_STATE_HOME to a directory that is yours and can be written"));
    };
    Store::look(&dir).map_err(failure)
}

pub fn cwd(env: &Env) -> Result<&Path, Failure> {
    match &env.cwd {
        Ok(cwd) => Ok(cwd),
        Err(err) => Err(Failure::new(Status::USAGE, anyhow::anyhow!("cannot tell the working directory: {err}"))),
    }
}

/// The session that `selector` names, or the latest of this project.
pub fn find(env: &Env, selector: Option<&str>) -> Result<(Store, Stored), Failure> {
    let missing = || match selector {
        Some(selector) => Ok(StoreError::Unknown { selector: selector.to_owned() }),
        None => cwd(env).map(|cwd| StoreError::NoneHere { cwd: cwd.to_path_buf() }),
    };
    let Some(store) = store(env)? else { return Err(failure(missing()?)) };
    // Without a working directory a session can still be named.
    let here = if selector.is_some() { Path::new("/") } else { cwd(env)? };
    let stored = store.find(selector, here).map_err(failure)?;
    Ok((store, stored))
}

/// The record of a session, without which nothing of it can be judged.
pub fn record(stored: &Stored) -> Result<&Record, Failure> {
    stored.record.as_ref().ok_or_else(|| {
        let why = match &stored.state {
            State::Broken(why) => why.as_str(),
            State::Running
            | State::Pending
            | State::Applied
            | State::Undone
            | State::Unfinished
            | State::Interrupted => "its record cannot be read yet",
        };
        let error = anyhow::anyhow!("session {}: {why}", stored.id);
        Failure::new(Status::USAGE, error).hint(format!("agentbox discard {} deletes it", stored.id))
    })
}

/// A live run has no layer to be reviewed.
pub fn layered(stored: &Stored, record: &Record) -> Result<(), Failure> {
    if record.mode != Mode::Live {
        return Ok(());
    }
    let error = anyhow::anyhow!("session {} was a live run: it has no layer, its changes are made", stored.id);
    let kept = stored.dir.join("backup");
    Err(Failure::new(Status::USAGE, error).hint(format!("what was there before is in {}", kept.display())))
}

/// Where a settlement is to fail, for tests: `settle:N:kill` or `settle:N:enospc`.
pub fn fault(env: &Env) -> Result<Fault, Failure> {
    let Some(text) = env.var("AGENTBOX_TEST_FAIL").filter(|text| !text.is_empty()) else { return Ok(Fault::default()) };
    let parts: Vec<&str> = text.to_str().unwrap_or_default().split(':').collect();
    let stop = match parts.as_slice() {
        ["settle", step, "kill"] => step.parse().ok().map(|step| Fault::at(step, Stop::Kill)),
        ["settle", step, "enospc"] => step.parse().ok().map(|step| Fault::at(step, Stop::NoSpace)),
        _ => None,
    };
    stop.ok_or_else(|| {
        Failure::new(Status::USAGE, anyhow::anyhow!("AGENTBOX_TEST_FAIL: unknown point {}", text.display()))
            .hint("settle:N:kill or settle:N:enospc; unset it for a real run")
    })
}

/// One line for each path that was left out, by name and rule.
pub fn tell(what: &str, remarks: &[Remark]) {
    for remark in remarks {
        say(&crate::report::one_line(&format!(
            "agentbox: {what}: {}: {}",
            quote::text(remark.path.as_os_str()),
            remark.text
        )));
    }
}

pub fn tell_recovered(recovered: Option<Recovered>) {
    let name = |direction| match direction {
        Direction::Apply => "apply",
        Direction::Undo => "undo",
    };
    match recovered {
        Some(Recovered::Finished(direction)) => {
            say(&format!("agentbox: an {} that was killed has been finished", name(direction)));
        }
        Some(Recovered::TakenBack(direction)) => {
            say(&format!("agentbox: an {} that was killed has been taken back", name(direction)));
        }
        None => {}
    }
}

/// A settlement that did nothing: with 123 where the host or the disk was in the way, else as any failure of a review.
pub fn unsettled(id: &str, err: SettleError) -> Failure {
    let mut hint = None;
    let status = match &err {
        SettleError::Conflicts { conflicts, refused } => {
            tell("conflict", conflicts);
            tell("refused", refused);
            hint = Some(format!(
                "look with `agentbox diff {id}`; --only GLOB applies the rest, --force applies over them, undo brings them back"
            ));
            Status::LEFT_OUT
        }
        SettleError::Stopped { .. } => Status::LEFT_OUT,
        SettleError::Busy | SettleError::Session { .. } | SettleError::Changes(_) | SettleError::NothingDone => {
            Status::USAGE
        }
    };
    Failure::new(status, anyhow::Error::new(err).context(format!("session {id}"))).hinted(hint)
}
