use super::explain::compile;
use super::failure::say;
use super::policy::PolicyArgs;
use super::{Env, Failure, Status};
use crate::enforce::{Injected, Surroundings};
use crate::policy::{Access, Policy, sweep};
use crate::profile::{DiffStyle, Mode};
use crate::report::RunReport;
use crate::session::diff::{Format, Style, render};
use crate::session::run::{Finished, RunError, Settings, run as run_box};
use crate::session::supervise::Outcome;
use crate::session::{Counts, LayerChanges, disarm};
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal, Write};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Run a command in the box
///
/// Exit status: the command's own; 128+n when signal n ended it; 124 time limit; 125 agentbox refused or failed and the
/// command did not run; 126 cannot execute; 127 not found. See docs/exit-codes.md.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Write what happened to a file, as one JSON object
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Say nothing but errors: no notices, no summary, no diff
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args, env: &Env) -> Result<Status, Failure> {
    run_in(args, env).map_err(|failure| {
        let told = failure.hints.iter().any(|hint| hint.contains("nested"));
        if failure.status == Status::REFUSED && !told && surroundings(env) == Surroundings::Box {
            // Paths that were never visible, namespaces, limits: what is refused here may be the outer box's doing.
            return failure.hint("this is nested inside another agentbox: nothing here can be wider than that one");
        }
        failure
    })
}

/// Another box's mark in the environment counts only with a filter on this process: a variable alone is anyone's.
pub(super) fn surroundings(env: &Env) -> Surroundings {
    match (crate::host::is_filtered(), env.var("AGENTBOX").is_some_and(|mark| mark == "1")) {
        (true, true) => Surroundings::Box,
        (true, false) => Surroundings::Filtered,
        (false, _) => Surroundings::Host,
    }
}

fn run_in(args: &Args, env: &Env) -> Result<Status, Failure> {
    let since = SystemTime::now();
    let injected = injected(env)?;
    let mut resolved = args.policy.resolve(env, args.command.first().map(OsString::as_os_str), Status::REFUSED)?;
    let plan = compile(&mut resolved.policy, &resolved.facts, args.command.clone(), Status::REFUSED)?;
    // Not dropped: the process ends with them, and to free them would copy what pid 1 still shares.
    let (resolved, plan) = (ManuallyDrop::new(resolved), ManuallyDrop::new(plan));
    let policy = &resolved.policy;
    // Opened before the run, so that a report that cannot be written is known before anything happened.
    let report_file = args.report.as_ref().map(open_report).transpose()?;
    if !args.quiet {
        before(policy, &plan.notices, &args.command);
    }
    let settings = Settings {
        plan: &plan,
        policy,
        state_dir: env.state_dir(),
        injected,
        around: &|| surroundings(env),
        since,
        say,
    };
    let mut finished = run_box(&settings).map_err(failure)?;
    let mut report = RunReport::new(policy, &plan, &finished.outcome, finished.session_id().map(str::to_owned));
    report.ran_into(finished.reached);
    report.guarded(std::mem::take(&mut finished.notes));
    let outcome = finished.outcome.clone();
    let status = match &outcome {
        Outcome::Failed(refused) => {
            let mut failure = Failure::new(Status(refused.kind.status()), anyhow::anyhow!("{}", refused.text));
            failure.hints.clone_from(&refused.hints);
            // Without mounts what is not granted is there, and cannot be executed.
            let barred = policy.without_mounts() && refused.kind.status() == Status::CANNOT_EXECUTE.0;
            if barred || refused.kind.status() == Status::NOT_FOUND.0 {
                failure.hints.extend(missing_because_of(policy, &args.command));
            }
            finished.discard().map_err(failure_of_store)?;
            report.did_not_run(refused.kind.status(), &refused.text);
            if let Some(file) = report_file {
                write_report(file, &report);
            }
            return Err(failure);
        }
        Outcome::Ended { timed_out: true, .. } => Status::TIME,
        Outcome::Ended { ended, .. } => Status(ended.status()),
    };
    report.planted =
        disarm(policy).into_iter().map(|(pointer, aside)| (pointer, moved_aside(aside.as_deref()))).collect();
    report.planted.extend(sweep(policy, &resolved.facts.mounts, since));
    settle(args, policy, finished, status, &mut report);
    if let Some(file) = report_file {
        write_report(file, &report);
    }
    Ok(status)
}

fn moved_aside(to: Option<&Path>) -> String {
    match to {
        Some(to) => format!("git would obey it: moved aside to {}", to.display()),
        None => "git obeys it, and it could not be moved aside: delete it before git is used".to_owned(),
    }
}

/// Says what the run changed, and writes the session's end down.
fn settle(args: &Args, policy: &Policy, finished: Finished, status: Status, report: &mut RunReport<'_>) {
    let lost = |err: anyhow::Error| {
        // The command has run: 125 would say that it has not.
        say(&format!("agentbox: {err:#}"));
    };
    let mut summary = Vec::new();
    if policy.mode == Mode::Live {
        report.counts = finished.kept.session.is_some().then_some(finished.kept.counts);
        report.kept(&finished.kept);
        let nothing = finished.kept.nothing;
        if nothing {
            report.no_session();
        } else if !args.quiet {
            summary = crate::report::live_lines(&finished.kept, finished.session_id().unwrap_or_default());
        }
        if let Err(err) = finished.settle(status.0, report.counts.unwrap_or_default(), nothing) {
            lost(err.into());
        }
    } else if policy.mode == Mode::DryRun && finished.has_layers() {
        summary = settle_dry(args, policy, finished, status, report, lost);
    }
    if let Outcome::Ended { timed_out: true, .. } = report.outcome {
        say("agentbox: time limit reached: the command was ended");
    }
    if !args.quiet {
        report.lines().into_iter().chain(summary).for_each(|line| say(&line));
    }
}

/// Reads the layers of a dry run, prints the diff, and writes the session's end down. The lines of its summary.
fn settle_dry(
    args: &Args,
    policy: &Policy,
    finished: Finished,
    status: Status,
    report: &mut RunReport<'_>,
    lost: impl Fn(anyhow::Error),
) -> Vec<String> {
    let mut summary = Vec::new();
    match finished.changes() {
        Ok(layers) => {
            report.counts = Some(Counts::of(&layers));
            if !args.quiet {
                print_diff(&layers, policy.diff);
                summary = crate::report::dry_run_lines(&layers, finished.session_id().unwrap_or_default(), policy);
            }
            let nothing = layers.iter().all(LayerChanges::is_empty);
            if nothing {
                report.no_session();
            }
            if let Err(err) = finished.settle(status.0, report.counts.unwrap_or_default(), nothing) {
                lost(err.into());
            }
        }
        Err(err) => lost(anyhow::Error::new(err).context("cannot read what the command changed")),
    }
    summary
}

fn print_diff(layers: &[LayerChanges], diff: DiffStyle) {
    let format = match diff {
        DiffStyle::Full => Format::Full,
        DiffStyle::Stat => Format::Stat,
        DiffStyle::None => return,
    };
    let terminal = std::io::stderr().is_terminal();
    let style = Style { format, terminal, color: terminal, width: 80 };
    let mut out = BufWriter::new(std::io::stderr().lock());
    // A closed stderr is no failure of the run: the session keeps the changes.
    let shown = render(layers, style, &mut out).and_then(|()| out.flush());
    drop(shown);
}

/// What is said before the run: notices, and what was given up.
fn before(policy: &Policy, notices: &[String], command: &[OsString]) {
    for notice in notices {
        say(&format!("agentbox: {}", crate::report::one_line(notice)));
    }
    for line in crate::report::before_lines(policy, command) {
        say(&line);
    }
}

/// What of the command exists on the host and not inside: a directory of PATH, the target of a link, an interpreter.
fn missing_because_of(policy: &Policy, command: &[OsString]) -> Vec<String> {
    let Some(name) = command.first() else { return Vec::new() };
    if !name.as_bytes().contains(&b'/') {
        let held = policy.dropped_path.iter().find(|dir| crate::path::identity(&dir.join(name)).is_ok());
        if let Some(dir) = held {
            return vec![format!("PATH entry {} is not visible inside (grant: --ro {0})", dir.display())];
        }
    }
    let seen =
        policy.environment.iter().find(|(key, _)| key == "PATH").map(|(_, path)| path.clone()).unwrap_or_default();
    let dirs =
        if name.as_bytes().contains(&b'/') { vec![policy.cwd.clone()] } else { std::env::split_paths(&seen).collect() };
    let mut hints = Vec::new();
    for path in dirs.iter().map(|dir| dir.join(name)) {
        let Ok(found) = crate::path::resolve(&path, &policy.cwd) else { continue };
        if !policy.decide_resolved(&found, Access::Read).allowed {
            let real = found.path.as_path();
            let dir = real.parent().unwrap_or(real);
            hints.push(format!(
                "{} leads to {}, which is not visible inside (grant: --ro {})",
                path.display(),
                real.display(),
                dir.display()
            ));
        } else if let Some(interpreter) = interpreter(found.path.as_path()) {
            let decision = policy.decide_asked(&interpreter, Access::Read);
            if !decision.allowed {
                hints.push(format!("the interpreter of {}: {decision}", path.display()));
            }
        }
        break;
    }
    hints
}

/// The program that a script's first line names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut head = [0; 256];
    let length = std::fs::File::open(script).ok()?.read(&mut head).ok()?;
    let line = head[..length].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let name = line.trim_ascii().split(|&b| b == b' ' || b == b'\t').next()?;
    Some(PathBuf::from(OsStr::from_bytes(name))).filter(|path| path.is_absolute())
}

fn injected(env: &Env) -> Result<Option<Injected>, Failure> {
    let Some(layer) = env.var("AGENTBOX_TEST_FAIL").filter(|layer| !layer.is_empty()) else { return Ok(None) };
    match layer.to_str() {
        Some("userns") => Ok(Some(Injected::Userns)),
        Some("mount") => Ok(Some(Injected::Mount)),
        Some("seccomp") => Ok(Some(Injected::Seccomp)),
        Some("landlock") => Ok(Some(Injected::Landlock)),
        Some("netns") => Ok(Some(Injected::Netns)),
        _ => {
            Err(Failure::new(Status::REFUSED, anyhow::anyhow!("AGENTBOX_TEST_FAIL: unknown layer {}", layer.display()))
                .hint("userns, mount, seccomp, landlock or netns; unset it for a real run"))
        }
    }
}

fn failure(err: RunError) -> Failure {
    let hint = err.hint();
    Failure::new(Status::REFUSED, err).hinted(hint)
}

fn failure_of_store(err: crate::session::StoreError) -> Failure {
    failure(RunError::Store(err))
}

fn open_report(path: &PathBuf) -> Result<std::fs::File, Failure> {
    use rustix::fs::{Mode, OFlags};
    // Not through a link that a repository brought, never waiting on a FIFO; and emptied only when it is written.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let bad = |why: &dyn std::fmt::Display| {
        Failure::new(Status::REFUSED, anyhow::anyhow!("--report: cannot write {}: {why}", path.display()))
            .hint("name a regular file in a directory of yours, not a link")
    };
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)).map_err(|errno| bad(&errno))?;
    Ok(std::fs::File::from(file))
}

fn write_report(mut file: std::fs::File, report: &RunReport<'_>) {
    // A terminal or a pipe cannot be emptied, and need not be.
    file.set_len(0).ok();
    if let Err(err) = writeln!(file, "{}", report.json()) {
        say(&format!("agentbox: --report: {err}"));
    }
}
