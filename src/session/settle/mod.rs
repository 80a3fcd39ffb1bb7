//! Settling a session: its changes are applied to the host, or taken back again. Both are one engine and one journal,
//! so that a kill at any point leaves something that the next settlement finishes or takes back.

mod copy;
mod engine;
mod fault;
mod journal;
mod links;
mod meta;
mod select;
mod step;
mod undo;

pub use fault::{Fault, Stop};
pub use journal::{DIR, Direction, Listed, Phase, Summary, look};

use super::changes::{self, ChangesError, Judged, LayerChanges, Remark};
use super::quote;
use super::store::Layer;
use super::tree::{DIRECTORY, Tree};
use crate::policy::Policy;
use engine::{Engine, EngineError, Root};
use journal::{After, Journal};
use rustix::fs::{CWD, FlockOperation};
use rustix::io::Errno;
use select::{Question, select};
use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use step::Step;

/// What settlements of a session left at a name, whether they were taken back or not: that is none of the host's doing.
type Ours = HashMap<(usize, PathBuf), Vec<After>>;

/// A session that is settled by this process, and by no other.
#[derive(Debug)]
pub struct Settling {
    journal: Journal,
    layers: Vec<Layer>,
    roots: Vec<Root>,
    /// The command runs: its layer must stay as it is.
    running: bool,
    /// Nobody continues, deletes or prunes it meanwhile. `None` where the caller holds it.
    _lock: Option<OwnedFd>,
}

/// What is applied, and how.
pub struct Choice<'a> {
    /// Of absolute host paths.
    pub only: &'a dyn Fn(&Path) -> bool,
    /// Conflicts do not stop it.
    pub force: bool,
}

/// What a settlement did.
#[derive(Debug, Default)]
pub struct Settled {
    pub summary: Summary,
    /// By absolute host path, with the rule and the flag that would allow it.
    pub refused: Vec<Remark>,
    /// Hidden names that stay where the command removed their directory.
    pub kept: Vec<PathBuf>,
    /// What was left as it is, for the host changed it.
    pub conflicts: Vec<Remark>,
    /// What became of a settlement that was killed.
    pub recovered: Option<Recovered>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    Finished(Direction),
    TakenBack(Direction),
}

#[derive(Debug)]
pub enum SettleError {
    /// Another process settles the same session.
    Busy,
    Session {
        what: &'static str,
        path: PathBuf,
        errno: Errno,
    },
    Changes(ChangesError),
    /// The host changed what the layer changed: nothing was applied.
    Conflicts {
        conflicts: Vec<Remark>,
        refused: Vec<Remark>,
    },
    /// Stopped on the way. The flag says whether all is as it was; else the next settlement sees to it.
    Stopped {
        error: EngineError,
        clean: bool,
    },
    /// Nothing was applied, so nothing can be undone.
    NothingDone,
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &Path| quote::text(path.as_os_str());
        match self {
            SettleError::Busy => write!(f, "another agentbox settles this session at this moment"),
            SettleError::Session { what, path, errno } => write!(f, "cannot {what} {}: {errno}", name(path)),
            SettleError::Changes(err) => err.fmt(f),
            SettleError::Conflicts { conflicts, .. } => {
                write!(f, "{} changed on the host since the run began; nothing was applied", conflicts.len())
            }
            SettleError::Stopped { error: EngineError::Call { what, path, errno }, clean } => {
                write!(f, "cannot {what} {}: {errno}; {}", name(path), state(*clean))
            }
            SettleError::Stopped { error: EngineError::Changed { path }, clean } => {
                write!(f, "{} was changed on the host at this moment; {}", name(path), state(*clean))
            }
            SettleError::NothingDone => write!(f, "nothing of this session was applied"),
        }
    }
}

fn state(clean: bool) -> &'static str {
    if clean {
        "everything is as it was"
    } else {
        "it could not be taken back either: the next apply or undo of this session does that first"
    }
}

impl std::error::Error for SettleError {}

impl From<ChangesError> for SettleError {
    fn from(err: ChangesError) -> SettleError {
        SettleError::Changes(err)
    }
}

/// Whoever lists sessions holds the lock for a moment.
fn lock(dir: &OwnedFd) -> Result<bool, Errno> {
    for _ in 0..5 {
        match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(4)),
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

impl Settling {
    /// A session of the store. `held` says that this process holds its lock, and that its command ended.
    ///
    /// # Errors
    /// `Busy`; or what of the session or its roots cannot be opened.
    pub fn open(dir: &Path, layers: Vec<Layer>, held: bool) -> Result<Settling, SettleError> {
        let io = |what, path: &Path, errno| SettleError::Session { what, path: path.to_path_buf(), errno };
        let session = crate::path::open_plain(CWD, dir, DIRECTORY, rustix::fs::ResolveFlags::empty())
            .map_err(|errno| io("open the session", dir, errno))?;
        let idle = held || lock(&session).map_err(|errno| io("lock the session", dir, errno))?;
        let journal = match Journal::open(session.as_fd()) {
            Err(Errno::WOULDBLOCK) => return Err(SettleError::Busy),
            other => other.map_err(|errno| io("open the journal of", dir, errno))?,
        };
        let mut roots = Vec::new();
        for layer in &layers {
            let open = |path: &Path| Tree::open(path).map_err(|errno| io("open", path, errno));
            let (host, upper) = (open(&layer.root)?, open(&layer.upper)?);
            roots.push(Root { path: layer.root.clone(), host, upper: Some(upper) });
        }
        let lock = (!held && idle).then_some(session);
        Ok(Settling { journal, layers, roots, running: !idle, _lock: lock })
    }

    /// What the layers say now, by the one walk that a diff takes too.
    ///
    /// # Errors
    /// A layer or a root that cannot be read.
    pub fn changes(&self, judged: Judged<'_>) -> Result<Vec<LayerChanges>, ChangesError> {
        self.layers.iter().map(|layer| changes::read(layer, judged)).collect()
    }

    fn io(&self, what: &'static str) -> impl Fn(Errno) -> SettleError {
        move |errno| SettleError::Session { what, path: PathBuf::from("the session's journal"), errno }
    }

    /// Finishes or takes back what was killed. An undo takes an unfinished apply back.
    ///
    /// # Errors
    /// What could not be repaired.
    pub fn recover(&self, wanted: Direction, fault: &Fault) -> Result<Option<Recovered>, SettleError> {
        let list = self.journal.list().map_err(self.io("read"))?;
        let Some(last) = list.last().copied().filter(|last| !matches!(last.phase, Phase::Done(_))) else {
            return Ok(None);
        };
        let (settlement, steps) = self.journal.open_settlement(last).map_err(self.io("read"))?;
        let stores = self.stores(&list)?;
        let mut engine = Engine::new(&self.roots, &settlement, &stores, &steps, fault).map_err(stopped)?;
        let committed = engine.resume().map_err(stopped)?;
        let forward = committed
            && last.phase == Phase::Committed
            && !(wanted == Direction::Undo && last.direction == Direction::Apply);
        if forward {
            engine.forward(0).map_err(|error| SettleError::Stopped { error, clean: engine.clean })?;
            if last.direction == Direction::Undo {
                self.forget_applied(&list, last.number)?;
            }
            return Ok(Some(Recovered::Finished(last.direction)));
        }
        if committed {
            settlement.turn_back().map_err(self.io("write"))?;
        }
        engine.backward().map_err(stopped)?;
        self.journal.forget_taken_back(last, engine.left()).map_err(self.io("clear"))?;
        Ok(Some(Recovered::TakenBack(last.direction)))
    }

    fn stores(&self, list: &[Listed]) -> Result<HashMap<u32, OwnedFd>, SettleError> {
        let mut stores = HashMap::new();
        for listed in list {
            let (settlement, _) = self.journal.open_settlement(*listed).map_err(self.io("read"))?;
            stores.insert(listed.number, settlement.objects);
        }
        Ok(stores)
    }

    /// What settlements of this session left at each name.
    fn ours(&self) -> Result<Ours, SettleError> {
        let mut ours = Ours::new();
        for touched in self.journal.touched().map_err(self.io("read"))? {
            ours.entry((touched.root, touched.path)).or_default().push(touched.after);
        }
        for listed in self.journal.list().map_err(self.io("read"))? {
            let (settlement, steps) = self.journal.open_settlement(listed).map_err(self.io("read"))?;
            let after = settlement.after().map_err(self.io("read"))?;
            for (step, after) in steps.into_iter().zip(after) {
                ours.entry((step.root, step.path)).or_default().push(after);
            }
        }
        Ok(ours)
    }

    /// Applies what `choice` takes of the changes, judged by the policy once more, all or nothing.
    ///
    /// # Errors
    /// `Conflicts`, where nothing was done; `Stopped`, where it was taken back.
    pub fn apply(
        &self,
        layers: &[LayerChanges],
        policy: &Policy,
        began: SystemTime,
        choice: &Choice<'_>,
        fault: &Fault,
    ) -> Result<Settled, SettleError> {
        let began = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = (i64::try_from(began.as_secs()).unwrap_or(i64::MAX), began.subsec_nanos());
        let ours = self.ours()?;
        let question = Question { layers, policy, started, ours: &ours, only: choice.only, force: choice.force };
        let selection = select(&question)?;
        if !selection.conflicts.is_empty() {
            return Err(SettleError::Conflicts { conflicts: selection.conflicts, refused: selection.refused });
        }
        let kept = |layer: &LayerChanges| -> Vec<PathBuf> {
            layer.kept.iter().map(|path| layer.root.join(path)).filter(|path| (choice.only)(path)).collect()
        };
        let mut settled =
            Settled { refused: selection.refused, kept: layers.iter().flat_map(kept).collect(), ..Settled::default() };
        settled.summary.left = selection.left;
        if !selection.steps.is_empty() {
            settled.summary = self.carry_out(Direction::Apply, &selection.steps, selection.left, fault)?;
        }
        Ok(settled)
    }

    /// Takes back everything that was applied and not undone yet. What was changed since stays, unless `force`.
    ///
    /// # Errors
    /// `NothingDone`; `Stopped`, where all is as it was.
    pub fn undo(&self, force: bool, fault: &Fault) -> Result<Settled, SettleError> {
        let list = self.journal.list().map_err(self.io("read"))?;
        let applied: Vec<Listed> = applied(&list);
        if applied.is_empty() {
            return Err(SettleError::NothingDone);
        }
        let open = |listed: &Listed| self.journal.open_settlement(*listed).map_err(self.io("read"));
        let settlements = applied.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let way = undo::way_back(&self.roots, &settlements, &self.ours()?, force)?;
        let mut settled = Settled { conflicts: way.conflicts, ..Settled::default() };
        let left = settled.conflicts.len();
        // With nothing to do it is still written down: the session counts as undone.
        settled.summary = self.carry_out(Direction::Undo, &way.steps, left, fault)?;
        let list = self.journal.list().map_err(self.io("read"))?;
        let last = list.last().map_or(0, |last| last.number);
        if left == 0 {
            self.forget_applied(&list, last)?;
        }
        Ok(settled)
    }

    /// What was applied is undone: its store has nothing that anybody could want.
    fn forget_applied(&self, list: &[Listed], undone_by: u32) -> Result<(), SettleError> {
        for listed in list.iter().filter(|listed| listed.number < undone_by) {
            self.journal.forget(*listed).map_err(self.io("clear"))?;
        }
        Ok(())
    }

    fn carry_out(
        &self,
        direction: Direction,
        steps: &[Step],
        left: usize,
        fault: &Fault,
    ) -> Result<Summary, SettleError> {
        let stores = self.stores(&self.journal.list().map_err(self.io("read"))?)?;
        fault.point().map_err(self.io("write"))?;
        let settlement = self.journal.begin(direction, self.running, steps).map_err(self.io("write"))?;
        let mut engine = Engine::new(&self.roots, &settlement, &stores, steps, fault).map_err(stopped)?;
        let done = engine.run(left);
        let clean = engine.clean;
        done.map_err(|error| {
            if clean {
                // It did nothing, and need not be remembered; if it stays, the next settlement clears it.
                self.journal.forget_taken_back(settlement.listed(Phase::Begun), engine.left()).ok();
            }
            SettleError::Stopped { error, clean }
        })
    }
}

fn stopped(error: EngineError) -> SettleError {
    SettleError::Stopped { error, clean: false }
}

/// The applications that no undo came after.
fn applied(list: &[Listed]) -> Vec<Listed> {
    let undone = list.iter().rposition(|listed| listed.direction == Direction::Undo).map_or(0, |at| at + 1);
    list[undone..].to_vec()
}

/// What of a session is applied, as far as its journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was done yet.
    Open,
    /// All was applied that can be.
    Applied(Summary),
    Undone(Summary),
    /// Killed on its way.
    Unfinished,
}

/// How a session stands, for who lists it.
pub fn standing(list: &[Listed]) -> Standing {
    match list.last() {
        None => Standing::Open,
        Some(Listed { phase: Phase::Done(summary), direction: Direction::Apply, .. }) => Standing::Applied(*summary),
        Some(Listed { phase: Phase::Done(summary), direction: Direction::Undo, .. }) => Standing::Undone(*summary),
        Some(Listed { phase: Phase::Begun | Phase::Committed | Phase::Reverting, .. }) => Standing::Unfinished,
    }
}
