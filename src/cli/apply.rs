use super::failure::say;
use super::{Env, Failure, Status, review};
use crate::path::pattern::{Pattern, PatternSet};
use crate::session::settle::{Choice, Direction, Settled, Settling};
use crate::session::{judge, policy, quote};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Apply what a session changed to the host
///
/// Each path goes through the policy of its run once more: what that refuses is left out and named, and the exit status
/// is then 123. The rest is applied whole or not at all. Everything that is replaced or removed is kept: `agentbox undo`
/// brings it back. Works while the command still runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix [default: the latest of this project]
    session: Option<String>,
    /// Apply only what matches, at any depth where the glob has no slash; may be repeated
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Apply over what the host changed since the run began
    #[arg(long)]
    force: bool,
}

/// Why a repository stays as it is.
const MARKED: &str = "its index says of hidden files that they are not checked out, which would hold on the host as well: \
                      commit there, or run with --live";

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let only = only(&args.only)?;
    let fault = review::fault(env)?;
    let (_, stored) = review::find(env, args.session.as_deref())?;
    let record = review::record(&stored)?;
    review::layered(&stored, record)?;
    let Some(policy) = policy(&record.policy) else {
        let error = anyhow::anyhow!("session {}: the policy in its record cannot be read", stored.id);
        return Err(Failure::new(Status::USAGE, error).hint(format!("agentbox discard {} deletes it", stored.id)));
    };
    let failed = |err| review::unsettled(&stored.id, err);
    let settling = Settling::open(&stored.dir, stored.layers(), false).map_err(failed)?;
    let recovered = settling.recover(Direction::Apply, &fault).map_err(failed)?;
    review::tell_recovered(recovered);
    let judge = judge(&record.policy);
    let judged = |path: &Path, dir: bool| judge.seen(path, dir);
    let mut layers = settling.changes(&judged).map_err(|err| failed(err.into()))?;
    for layer in &mut layers {
        layer.forget_written_by_the_box(|path| judge.written_by_the_box(path));
        for dir in judge.marked_repositories() {
            layer.refuse_below(&dir, MARKED);
        }
    }
    let wanted = |path: &Path| only.as_ref().is_none_or(|only| only.takes(&record.roots, path));
    let choice = Choice { only: &wanted, force: args.force };
    let settled = settling.apply(&layers, &policy, record.created, &choice, &fault).map_err(failed)?;
    Ok(tell(&settled, &stored.id))
}

/// The globs of `--only`.
struct Only(PatternSet);

fn only(globs: &[String]) -> Result<Option<Only>, Failure> {
    if globs.is_empty() {
        return Ok(None);
    }
    let bad = |err| Failure::new(Status::USAGE, anyhow::anyhow!("--only: {err}"));
    let patterns = globs.iter().map(|glob| Pattern::parse(glob.clone())).collect::<Result<Vec<_>, _>>().map_err(bad)?;
    Ok(Some(Only(PatternSet::new(patterns))))
}

impl Only {
    /// Does a glob name the path, or a directory that it is in?
    fn takes(&self, roots: &[PathBuf], path: &Path) -> bool {
        let root = roots.iter().filter(|root| path.starts_with(root)).max_by_key(|root| root.as_os_str().len());
        let Some(root) = root else { return false };
        let (mut folded, mut hits) = (Vec::new(), Vec::new());
        let below = path.ancestors().take_while(|above| *above != root);
        below.into_iter().any(|above| {
            self.0.matches(above.as_os_str().as_bytes(), root.as_os_str().len(), &mut folded, &mut hits);
            !hits.is_empty()
        })
    }
}

fn tell(settled: &Settled, id: &str) -> Status {
    review::tell("refused", &settled.refused);
    for path in &settled.kept {
        say(&format!("agentbox: kept: {} (hidden from the command)", quote::text(path.as_os_str())));
    }
    let summary = settled.summary;
    let mut line = format!("agentbox: applied {id}: {} names", summary.changed);
    if summary.left > 0 {
        line.push_str(&format!("; {} left out", summary.left));
    }
    say(&line);
    if summary.changed > 0 {
        say(&format!("agentbox: take it back with `agentbox undo {id}`"));
    }
    if settled.refused.is_empty() { Status::OK } else { Status::LEFT_OUT }
}
