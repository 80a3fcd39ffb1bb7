//! The report of one run.

use super::{denied, one_line};
use crate::plan::{By, Plan, Seal, shown};
use crate::policy::{Access, EntryKind, Layer, Mode, NetMode, Policy};
use crate::session::backup::Kept;
use crate::session::supervise::Outcome;
use crate::session::{Counts, HiddenRead, LayerChanges, Note, Reached};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What one run was and how it ended. `--report` writes it; `version` grows when a field changes its meaning.
#[derive(Debug)]
pub struct RunReport<'a> {
    pub outcome: Outcome,
    pub counts: Option<Counts>,
    policy: &'a Policy,
    plan: &'a Plan,
    session: Option<String>,
    /// Names of live roots that the host obeys later and that were made during the run, each with its rule.
    pub planted: Vec<(PathBuf, String)>,
    /// Limits of the whole box that it ran into.
    reached: Vec<String>,
    /// What the guard had to tell.
    notes: Vec<Note>,
    /// Hidden names that the command looked up.
    hidden_reads: Vec<HiddenRead>,
    /// Status and words of a command that did not run.
    refused: Option<(u8, String)>,
    /// Of a live run: what could not be kept of what it changed.
    backup: Value,
}

fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Mounts => "mounts",
        Layer::Landlock => "landlock",
        Layer::Seccomp => "seccomp",
        Layer::Netns => "netns",
        Layer::Backup => "backup",
        Layer::Veil => "veil",
    }
}

impl<'a> RunReport<'a> {
    pub fn new(policy: &'a Policy, plan: &'a Plan, outcome: &Outcome, session: Option<String>) -> RunReport<'a> {
        let outcome = outcome.clone();
        RunReport {
            outcome,
            counts: None,
            policy,
            plan,
            session,
            planted: Vec::new(),
            reached: Vec::new(),
            notes: Vec::new(),
            hidden_reads: Vec::new(),
            refused: None,
            backup: Value::Null,
        }
    }

    /// The command never ran: why, and the status that said so.
    pub fn did_not_run(&mut self, status: u8, why: &str) {
        self.session = None;
        self.refused = Some((status, why.to_owned()));
    }

    /// The box ran into limits that a cgroup holds.
    pub fn ran_into(&mut self, reached: Reached) {
        let limits = &self.plan.seal.limits;
        if let (true, Some(bytes)) = (reached.memory, limits.memory) {
            self.reached.push(format!("memory limit of {bytes} bytes reached: the kernel ended the whole box"));
        }
        if let (true, Some(processes)) = (reached.processes, limits.processes) {
            self.reached.push(format!("limit of {processes} processes reached"));
        }
    }

    /// What a live run could not keep of what it changed.
    pub fn kept(&mut self, kept: &Kept) {
        let lost = |(path, why): &(PathBuf, String)| json!({ "path": shown(path), "why": why });
        self.backup = json!({
            "off": kept.off,
            "lost": kept.lost.iter().map(lost).collect::<Vec<_>>(),
            "left_out": kept.left_out,
        });
    }

    /// What the guard had to tell of this run.
    pub fn guarded(&mut self, notes: Vec<Note>) {
        self.notes = notes;
    }

    fn hidden_during_run(&self) -> Vec<String> {
        let path = |note: &Note| if let Note::Hidden(path) = note { Some(shown(path)) } else { None };
        self.notes.iter().filter_map(path).collect()
    }

    fn unguarded(&self) -> Vec<String> {
        self.notes.iter().filter(|note| !matches!(note, Note::Hidden(_))).map(Note::to_string).collect()
    }

    fn guard_lines(&self) -> Vec<String> {
        const SHOWN: usize = 3;
        let mut lines = Vec::new();
        let hidden = self.hidden_during_run();
        if !hidden.is_empty() {
            let more = hidden.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let first = hidden[..hidden.len().min(SHOWN)].join(", ");
            lines.push(format!("made or replaced by the host, and hidden during the run: {first}{more}"));
        }
        lines.extend(self.unguarded());
        lines.iter().map(|line| format!("agentbox: {}", one_line(line))).collect()
    }

    /// Hidden names that the command looked up.
    pub fn looked_up(&mut self, reads: &[HiddenRead]) {
        self.hidden_reads = reads.to_vec();
    }

    /// Nothing was changed, so no session was kept.
    pub fn no_session(&mut self) {
        self.session = None;
    }

    pub fn json(&self) -> Value {
        let (policy, plan) = (self.policy, self.plan);
        let command: Vec<String> = plan.exec.command.iter().map(|arg| shown(Path::new(arg))).collect();
        let limits: Vec<String> =
            plan.seal.lines().into_iter().filter(|(name, _)| *name == "limits").map(|(_, line)| line).collect();
        let degraded: Vec<&str> = policy.degraded.iter().map(|layer| layer_name(*layer)).collect();
        let roots: Vec<Value> = policy
            .entries
            .iter()
            .filter(|entry| entry.kind.is_root())
            .map(|entry| {
                json!({ "path": shown(&entry.path), "access": super::explain::kind(&entry.kind), "origin": entry.origin.to_string() })
            })
            .collect();
        let mut value = json!({
            "version": 1,
            "command": command,
            "profiles": policy.profiles,
            "mode": match policy.mode { Mode::DryRun => "dry-run", Mode::Live => "live" },
            "network": if host_net(policy) { "host" } else { "none" },
            "roots": roots,
            "session": self.session,
            "names": judged(plan),
            "hidden": plan.veiled().is_empty().then(|| plan.hidden().len()),
            "hidden_reads": denied::json(&self.hidden_reads, policy),
            "git": policy.git.as_ref().map(|git| super::explain::access(git.access)),
            "repositories": super::explain::repositories(policy),
            "granted": policy.granted,
            "hide": policy.hidden_for_this_run,
            "degraded": degraded,
            "lost": plan.lost,
            "limits": limits,
            "reached": self.reached,
            "backup": self.backup,
            "planted": self.planted.iter().map(|(path, rule)| json!({ "path": shown(path), "rule": rule })).collect::<Vec<_>>(),
            "hidden_during_run": self.hidden_during_run(),
            "unguarded": self.unguarded(),
            "notices": plan.notices,
            "dropped_path": policy.dropped_path.iter().map(|dir| shown(dir)).collect::<Vec<_>>(),
            "changes": self.counts,
        });
        if let Outcome::Ended { ended, timed_out, duration } = &self.outcome {
            value["status"] = json!(if *timed_out { 124 } else { ended.status() });
            value["timed_out"] = json!(timed_out);
            value["seconds"] = json!(duration.as_secs_f64());
        }
        if let Some((status, why)) = &self.refused {
            value["status"] = json!(status);
            value["error"] = json!(why);
        }
        value
    }

    /// What is said at the end: grants of this run alone, and layers that were given up.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.planted.iter().take(TOLD).map(planted).collect();
        if let Some(more @ 1..) = self.planted.len().checked_sub(TOLD) {
            lines.push(format!("agentbox: and {more} more that the host obeys later: --report lists them"));
        }
        if !self.policy.granted.is_empty() {
            lines.push(format!("agentbox: granted for this run: {}", one_line(&self.policy.granted.join(", "))));
        }
        if !self.policy.degraded.is_empty() {
            let lost: Vec<&str> = self.policy.degraded.iter().map(|layer| layer_name(*layer)).collect();
            lines.push(format!("agentbox: ran without: {}", lost.join(", ")));
        }
        lines.extend(self.plan.lost.iter().map(|line| format!("agentbox: lost: {}", one_line(line))));
        let denied = denied::lines(&self.hidden_reads, self.policy);
        lines.extend(denied.iter().map(|line| format!("agentbox: {}", one_line(line))));
        lines.extend(held(&self.plan.seal).iter().chain(&self.reached).map(|line| format!("agentbox: {line}")));
        lines.extend(self.guard_lines());
        lines
    }
}

/// So many planted names are told; the rest is counted.
const TOLD: usize = 20;

fn planted((path, rule): &(PathBuf, String)) -> String {
    let path = shown(path);
    format!("agentbox: made or changed during the run, and the host obeys it later: {path}: {}", one_line(rule))
}

/// What holds the limits that the command line gave, where no cgroup does.
fn held(seal: &Seal) -> Vec<String> {
    let limits = &seal.limits;
    let mut lines = Vec::new();
    if let (true, Some(processes), false) = (limits.asked.processes, limits.processes, seal.processes_by == By::Cgroup)
    {
        lines.push(format!("limit processes={processes}: {}", seal.processes_cover()));
    }
    if let (true, Some(bytes), false) = (limits.asked.memory, limits.memory, seal.memory_by == By::Cgroup) {
        lines.push(format!("limit memory={bytes}: {}", seal.memory_covers()));
    }
    lines
}

/// When hidden names are judged: as they are looked up, or in a scan before the launch.
pub(super) fn judged(plan: &Plan) -> &'static str {
    if plan.veiled().is_empty() { "scan" } else { "veil" }
}

/// Does the command see the host's network, as asked or because its own was given up?
fn host_net(policy: &Policy) -> bool {
    policy.net == NetMode::Host || policy.degraded.contains(&Layer::Netns)
}

/// What is said before a run about its policy.
pub fn before_lines(policy: &Policy, command: &[OsString]) -> Vec<String> {
    let mut lines = Vec::new();
    if policy.without_mounts() {
        lines.push("agentbox: no mounts and no namespaces: Landlock, seccomp and the roots alone".to_owned());
    }
    if host_net(policy) {
        let reach = if policy.ports.connect.is_empty() {
            "every host, and services on its loopback, can be reached".to_owned()
        } else {
            let ports: Vec<String> = policy.ports.connect.iter().map(u16::to_string).collect();
            format!("TCP to port {} of every host and of its loopback, and UDP to any", ports.join(", "))
        };
        lines.push(format!("agentbox: the host's network is open: {reach}; abstract unix sockets cannot be reached"));
    }
    for dir in &policy.dropped_path {
        if crate::path::identity(dir).is_ok()
            && policy.entries.iter().any(|e| e.kind.is_root() && dir.starts_with(&e.path))
        {
            lines.push(format!("agentbox: PATH entry {} leads to a place that is not visible inside", shown(dir)));
        }
    }
    let git = command.first().and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == "git");
    let hidden = || {
        policy.writable_roots().any(|root| {
            let repository = root.path.join(".git");
            crate::path::identity(&repository).is_ok() && !policy.decide(&repository, Access::Read).allowed
        })
    };
    if git && hidden() {
        lines.push("agentbox: .git is hidden inside (grant: --git)".to_owned());
    }
    lines
}

/// The last lines of a live run that changed something.
pub fn live_lines(kept: &Kept, session: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let Counts { created, modified, deleted, .. } = kept.counts;
    let changed = format!("{created} created, {modified} modified, {deleted} deleted");
    if kept.session.is_some() {
        lines.push(format!("agentbox: live run {session}: {changed}; what was there before is kept"));
    }
    let lost = kept.lost.len();
    if lost > 0 {
        let files = if lost == 1 { "file" } else { "files" };
        lines.push(format!("agentbox: not backed up: {lost} {files}, named in the session's journal and in --report"));
    }
    if kept.left_out > 0 {
        let calls = if kept.left_out == 1 { "change" } else { "changes" };
        lines.push(format!("agentbox: not backed up: {} {calls} in directories of no_backup", kept.left_out));
    }
    lines
}

/// The last lines of a dry run.
pub fn dry_run_lines(layers: &[LayerChanges], session: &str, policy: &Policy) -> Vec<String> {
    let mut lines = Vec::new();
    if layers.iter().all(LayerChanges::is_empty) {
        lines.push("agentbox: dry run: nothing changed".to_owned());
    } else {
        let counts = Counts::of(layers);
        let mut line = format!(
            "agentbox: dry run {session}: {} created, {} modified, {} deleted; the host is unchanged",
            counts.created, counts.modified, counts.deleted
        );
        if counts.refused > 0 {
            line.push_str(&format!("; {} refused", counts.refused));
        }
        lines.push(line);
        lines.push(format!(
            "agentbox: take it over with `agentbox apply {session}`, see it again with `agentbox diff {session}`, drop it with `agentbox discard {session}`"
        ));
    }
    let scratch: Vec<String> =
        policy.entries.iter().filter(|e| e.kind == EntryKind::Scratch).map(|e| shown(&e.path)).collect();
    if !scratch.is_empty() {
        lines.push(format!("agentbox: scratch roots are live and not in this diff: {}", scratch.join(", ")));
    }
    lines
}
