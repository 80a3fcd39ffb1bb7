use super::{Env, Failure, Status};

#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_args: &Args, _env: &Env) -> Result<Status, Failure> {
    Ok(Status::OK)
}
