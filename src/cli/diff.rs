use super::{Env, Failure, Status, out, review};
use crate::path::{lexical, resolve};
use crate::session::diff::{Format, Style, render};
use crate::session::{LayerChanges, changes, judge};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Show what a session changed, as a patch
///
/// The patch goes to stdout and can be given to `git apply` in the root; deletions come first. Lines that start with
/// `#` tell what a patch cannot: binary and large files, modes, names that were kept or refused. Works while the
/// command still runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix [default: the latest of this project]
    session: Option<String>,
    /// Show the number of changed lines a file
    #[arg(long, conflicts_with_all = ["name_only", "json"])]
    stat: bool,
    /// Show only the names, quoted as git does; with several roots, absolute
    #[arg(long, conflicts_with = "json")]
    name_only: bool,
    /// With --name-only: end each name with a NUL and quote nothing
    #[arg(short = 'z', long = "null", requires = "name_only")]
    nul: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Show only what is at or below these paths; they come after `--`
    #[arg(last = true)]
    paths: Vec<OsString>,
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    let (_, stored) = review::find(env, args.session.as_deref())?;
    let record = review::record(&stored)?;
    review::layered(&stored, record)?;
    let judge = judge(&record.policy);
    let judged = |path: &Path, dir: bool| judge.seen(path, dir);
    let wanted = wanted(args, env)?;
    let mut layers = Vec::new();
    for layer in stored.layers() {
        let mut found = changes::read(&layer, &judged).map_err(|err| {
            Failure::new(Status::USAGE, anyhow::Error::new(err).context(format!("session {}", stored.id)))
        })?;
        found.forget_written_by_the_box(|path| judge.written_by_the_box(path));
        found.remark_obeyed(|path| judge.obeyed(path));
        retain(&mut found, &wanted);
        layers.push(found);
    }
    out::print(|out| render(&layers, style(args, env), out))
}

fn style(args: &Args, env: &Env) -> Style {
    let format = if args.json {
        Format::Json
    } else if args.name_only {
        Format::NameOnly { nul: args.nul }
    } else if args.stat {
        Format::Stat
    } else {
        Format::Full
    };
    let terminal = out::is_terminal();
    // https://no-color.org: any value but the empty one.
    let plain = env.var("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env.var("TERM").is_some_and(|term| term == "dumb");
    Style { format, terminal, color: terminal && !plain, width: out::width() }
}

fn retain(found: &mut LayerChanges, wanted: &[PathBuf]) {
    if !wanted.is_empty() {
        found.retain(|path| wanted.iter().any(|want| path.starts_with(want)));
    }
}

/// The paths as the host names them. The last component stays as typed: a changed symlink is a name, not its target.
fn wanted(args: &Args, env: &Env) -> Result<Vec<PathBuf>, Failure> {
    if args.paths.is_empty() {
        return Ok(Vec::new());
    }
    let cwd = review::cwd(env)?;
    Ok(args.paths.iter().map(|path| canonical(Path::new(path), cwd)).collect())
}

fn canonical(path: &Path, cwd: &Path) -> PathBuf {
    let full = cwd.join(path);
    let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else { return lexical(&full) };
    match resolve(parent, cwd) {
        Ok(found) => found.path.join(Path::new(name)),
        // It may exist in the session only.
        Err(_) => lexical(&full),
    }
}
