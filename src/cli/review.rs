//! What the subcommands that review sessions share: the store, and the session that is meant.

use super::{Env, Failure, Status};
use crate::session::{Store, StoreError, Stored};
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
