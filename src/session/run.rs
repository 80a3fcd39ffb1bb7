//! One run: session layers, signals, terminal, launch, wait.

use super::backup::{Kept, Rules, Service, Start};
use super::changes::{self, ChangesError};
use super::guard;
use super::signals::Signals;
use super::supervise::{Outcome, Outside, SuperviseError, Watched, supervise};
use super::terminal::{DirectoryAsStdio, Terminal, check_stdio};
use super::tmpdir::TmpDir;
use super::{Counts, Layer, LayerChanges, NewSession, Note, Session, Store, StoreError, judge};
use crate::enforce::{Group, Injected, Launch, Launched, LayerDirs, Reached, StepError, Surroundings, launch};
use crate::plan::{IdMap, NOBODY, Plan};
use crate::policy::{Mode, Policy};
use crate::watch::guard::Guard;
use crate::watch::veil::{self, HiddenRead, Ids, Veil};
use std::cell::OnceCell;
use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

pub struct Settings<'a> {
    pub plan: &'a Plan,
    pub policy: &'a Policy,
    pub state_dir: Option<PathBuf>,
    pub injected: Option<Injected>,
    /// Asked only when the launch is refused.
    pub around: &'a dyn Fn() -> Surroundings,
    /// Where the service says at the time what it cannot keep.
    pub say: fn(&str),
    /// When the search for hidden names began.
    pub since: SystemTime,
}

/// Why a run did not begin, or could not be watched.
#[derive(Debug)]
pub enum RunError {
    NoStateDir,
    /// The state directory lies inside a writable root: its layers would be visible, and an overlay over itself.
    StateInRoot {
        state: PathBuf,
        root: PathBuf,
    },
    Store(StoreError),
    /// The policy cannot be written down.
    Record(serde_json::Error),
    Stdio(DirectoryAsStdio),
    Signals(nix::errno::Errno),
    Launch(StepError),
    Supervise(SuperviseError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NoStateDir => write!(f, "no state directory for the session: HOME is not set"),
            RunError::StateInRoot { state, root } => {
                write!(f, "the state directory {} lies inside the writable root {}", state.display(), root.display())
            }
            RunError::Store(err) => err.fmt(f),
            RunError::Record(err) => write!(f, "cannot write the policy down: {err}"),
            RunError::Stdio(err) => err.fmt(f),
            RunError::Signals(errno) => write!(f, "cannot hold signals back: {errno}"),
            RunError::Launch(err) => err.fmt(f),
            RunError::Supervise(err) => err.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl RunError {
    pub fn hint(&self) -> Option<String> {
        match self {
            RunError::NoStateDir => Some("set XDG_STATE_HOME to a directory that is yours, or run with --live".into()),
            RunError::StateInRoot { .. } => Some("point XDG_STATE_HOME outside of the root, or run with --live".into()),
            RunError::Store(err) => err.hint(),
            RunError::Launch(err) => err.hint.clone(),
            RunError::Stdio(_) => Some("redirect it from or to a file, a pipe or /dev/null".into()),
            RunError::Record(_) | RunError::Signals(_) | RunError::Supervise(_) => None,
        }
    }
}

/// A run that ended, with its session where there is one.
pub struct Finished {
    pub outcome: Outcome,
    /// The limits of the whole box that it ran into.
    pub reached: Reached,
    /// What the guard has to tell.
    pub notes: Vec<Note>,
    /// Hidden names that the command looked up, where the veil saw it.
    pub hidden_reads: Vec<HiddenRead>,
    session: Option<Session>,
    /// Of a live run.
    pub kept: Kept,
}

impl Finished {
    pub fn session_id(&self) -> Option<&str> {
        self.session.as_ref().or(self.kept.session.as_ref()).map(Session::id)
    }

    pub fn has_layers(&self) -> bool {
        self.session.is_some()
    }

    /// What the command changed, judged by the rules of its own run.
    ///
    /// # Errors
    /// The layer that cannot be read.
    pub fn changes(&self) -> Result<Vec<LayerChanges>, ChangesError> {
        let Some(session) = &self.session else { return Ok(Vec::new()) };
        // Most runs change nothing that a rule would have to be asked about.
        let judge_of_run = OnceCell::new();
        let judge = || judge_of_run.get_or_init(|| judge(&session.record().policy));
        let read = |layer| {
            let mut found = changes::read(layer, &|path, dir| judge().seen(path, dir))?;
            found.forget_written_by_the_box(|path| judge().written_by_the_box(path));
            found.remark_obeyed(|path| judge().obeyed(path));
            Ok(found)
        };
        session.layers().iter().map(read).collect()
    }

    /// Writes the end of the run down; a session that changed nothing is gone.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn settle(self, status: u8, counts: Counts, nothing: bool) -> Result<(), StoreError> {
        match self.session.or(self.kept.session) {
            // What was applied while it ran can still be undone.
            Some(session) if nothing && !session.was_settled() => session.spare(),
            Some(mut session) => session.finish(super::Outcome { status, counts }),
            None => Ok(()),
        }
    }

    /// Removes the session of a command that never ran.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn discard(self) -> Result<(), StoreError> {
        self.session.or(self.kept.session).map_or(Ok(()), Session::discard)
    }
}

/// Runs the plan to its end.
///
/// # Errors
/// What kept the command from running; what the box itself reports is in the outcome.
pub fn run(settings: &Settings<'_>) -> Result<Finished, RunError> {
    check_stdio().map_err(RunError::Stdio)?;
    let session = new_session(settings)?;
    // Without mounts alone, and then without a session. It is removed when this function ends, however it does.
    let _tmp = settings.plan.tmp.as_deref().map(TmpDir::make).transpose().map_err(RunError::Store)?;
    match run_in(settings, session.as_ref()) {
        Ok(ended) => {
            let BoxEnded { outcome, reached, notes, hidden_reads, kept } = ended;
            Ok(Finished { outcome, reached, notes, hidden_reads, session, kept })
        }
        Err(err) => {
            if let Some(session) = session {
                // The first error is the one to tell; a session that stays behind is listed and can be discarded.
                session.discard().ok();
            }
            Err(err)
        }
    }
}

/// A box that ended.
struct BoxEnded {
    outcome: Outcome,
    reached: Reached,
    notes: Vec<Note>,
    hidden_reads: Vec<HiddenRead>,
    kept: Kept,
}

fn run_in(settings: &Settings<'_>, session: Option<&Session>) -> Result<BoxEnded, RunError> {
    let layers: Vec<LayerDirs> = session
        .iter()
        .flat_map(|session| session.layers())
        .map(|Layer { upper, work, .. }| LayerDirs { upper: upper.clone(), work: work.clone() })
        .collect();
    // Before the clone: a signal in between would end the launcher and leave its caller without a word.
    let signals = Signals::block().map_err(RunError::Signals)?;
    let terminal = Terminal::find();
    let inside = terminal.as_ref().and_then(Terminal::share);
    let launched = launch(Launch {
        plan: settings.plan,
        layers: &layers,
        terminal: inside,
        injected: settings.injected,
        around: settings.around,
        guarded: guard::is_wanted(settings),
    })
    .map_err(RunError::Launch)?;
    let Launched { pid, pidfd, channel, group, mount_namespace } = launched;
    let start = || start(settings);
    let mut service = Service::new(&start, settings.say);
    let mut guard = match mount_namespace {
        Some(namespace) => Guard::new(|| guard::setup(settings, &layers), namespace),
        None => Guard::none(),
    };
    let asked_to_end = settings.plan.isolate.namespaces.is_empty();
    let watched = Watched { pid, pidfd, channel, asked_to_end };
    let mut veil = veil_of(settings);
    let outcome = supervise(
        &watched,
        &signals,
        terminal,
        settings.plan.time_limit,
        Outside { guard: &mut guard, service: &mut service, veil: &mut veil },
    );
    // Also where the supervisor gave up: what was kept stays, as the session of a run that was cut short.
    let kept = service.finish();
    let outcome = outcome.map_err(RunError::Supervise)?;
    // Before the layers are read: its process holds the box's mounts.
    let notes = guard.end();
    let hidden_reads = veil.end();
    let reached = group.as_ref().map_or(Reached::default(), Group::reached);
    // The box is gone, and now its group.
    drop(group);
    // It fails for no reason that a run can have; signals would only stay blocked until the exit.
    signals.release().ok();
    Ok(BoxEnded { outcome, reached, notes, hidden_reads, kept })
}

/// Nothing is asked before pid 1 has handed a connection out.
fn veil_of<'a>(settings: &Settings<'a>) -> veil::Service<'a> {
    let ids = match settings.plan.isolate.ids {
        IdMap::All { swapped: true, .. } => Ids::Swapped(NOBODY),
        IdMap::All { swapped: false, .. } | IdMap::Own { .. } | IdMap::Kept => Ids::Same,
    };
    veil::Service::new(Veil::new(settings.policy, settings.plan.veiled(), ids))
}

/// What the notification service needs, put together when the first change comes.
fn start(settings: &Settings<'_>) -> Result<Start, String> {
    let Settings { policy, plan, .. } = settings;
    let new = NewSession {
        mode: Mode::Live,
        command: plan.exec.command.clone(),
        profiles: policy.profiles.clone(),
        roots: policy.writable_roots().map(|root| root.path.clone()).collect(),
        policy: serde_json::value::to_raw_value(&policy.record()).map_err(|err| err.to_string())?,
        created: SystemTime::now(),
    };
    Ok(Start { rules: Rules::of(policy), new, state_dir: settings.state_dir.clone() })
}

fn new_session(settings: &Settings<'_>) -> Result<Option<Session>, RunError> {
    let plan = settings.plan;
    if plan.layers.is_empty() {
        return Ok(None);
    }
    let Some(dir) = &settings.state_dir else { return Err(RunError::NoStateDir) };
    if let Some(root) = plan.layers.iter().find(|root| dir.starts_with(root)) {
        return Err(RunError::StateInRoot { state: dir.clone(), root: root.clone() });
    }
    let store = Store::open(dir).map_err(RunError::Store)?;
    if let Some(root) = plan.layers.iter().find(|root| store.dir().starts_with(root)) {
        return Err(RunError::StateInRoot { state: store.dir().to_path_buf(), root: root.clone() });
    }
    let new = NewSession {
        mode: Mode::DryRun,
        command: plan.exec.command.clone(),
        profiles: settings.policy.profiles.clone(),
        roots: plan.layers.clone(),
        policy: serde_json::value::to_raw_value(&settings.policy.record()).map_err(RunError::Record)?,
        created: SystemTime::now(),
    };
    store.create(&new).map(Some).map_err(RunError::Store)
}
