//! The tier without mounts (`--degraded mounts`): Landlock alone, on the host's own tree. It can grant whole subtrees and
//! take nothing out of them, so whatever would need a mask, a whiteout or a read-only bind is refused here.

use super::{Entry, EntryKind, Finding, Layer, Policy, PolicyError, Private, Section};
use crate::host::Facts;
use crate::path::Kind;
use crate::profile::{Mode, NetMode, Origin};
use std::path::{Path, PathBuf};

/// The first ABI whose rules also hold for truncate(2): below it a file outside of the roots could be emptied.
const OLDEST: u32 = 3;
/// The first ABI that judges connect(2) to a socket by its path.
const PATH_SOCKETS: u32 = 9;
/// So many names are told; the rest is counted.
const TOLD: usize = 5;

const RULE: &str = "hiding inside a root cannot be had without mounts";

/// The system's part of the view, as the host has it: nothing is made up and no place is private but `tmp`.
pub(super) fn entries(system: Vec<Entry>, tmp: &Path) -> Vec<Entry> {
    let mut out: Vec<Entry> = system.into_iter().filter_map(of_host).collect();
    out.push(Entry {
        path: tmp.to_path_buf(),
        kind: EntryKind::Private(Private::Tmp),
        origin: Origin::BuiltIn("TMPDIR of this run".into()),
        why: None,
        file: Some(Kind::Dir),
        id: None,
    });
    out
}

fn of_host(entry: Entry) -> Option<Entry> {
    match entry.kind {
        EntryKind::Private(_) | EntryKind::EmptyHome => None,
        // Accounts are public; what else is made up (machine-id) stays out.
        EntryKind::Made(_) if ["/etc/passwd", "/etc/group"].map(Path::new).contains(&entry.path.as_path()) => {
            crate::path::identity(&entry.path).is_ok().then_some(Entry { kind: EntryKind::System, ..entry })
        }
        EntryKind::Made(_) => None,
        EntryKind::System
        | EntryKind::Proc
        | EntryKind::Dev
        | EntryKind::Socket
        | EntryKind::Rw
        | EntryKind::Ro
        | EntryKind::Scratch
        | EntryKind::Hide => Some(entry),
    }
}

impl Policy {
    /// Is this the tier of Landlock alone?
    pub fn without_mounts(&self) -> bool {
        self.degraded.contains(&Layer::Mounts)
    }

    /// In this tier: does no network hold without a namespace of its own, by refusing sockets?
    pub fn without_sockets(&self) -> bool {
        self.net == NetMode::None && !self.degraded.contains(&Layer::Netns)
    }

    /// Refuses what the tier without mounts cannot keep. Any other policy passes.
    ///
    /// # Errors
    /// What cannot be kept, by name, with the flags that help.
    pub fn check_tier(&self, facts: &Facts, surveys: &[(usize, Vec<Section>)]) -> Result<(), PolicyError> {
        if !self.without_mounts() {
            return Ok(());
        }
        self.check_flags(facts.landlock_abi)?;
        self.check_nesting()?;
        self.check_findings(surveys)
    }

    fn check_flags(&self, abi: u32) -> Result<(), PolicyError> {
        let sockets = self.entries.iter().any(|entry| entry.kind == EntryKind::Socket);
        if self.mode == Mode::DryRun {
            return refused("a dry run needs mounts", "add --live: writes then go to the real directories");
        }
        if self.nested {
            return refused("--nested needs namespaces", "leave --nested out");
        }
        if self.degraded.contains(&Layer::Landlock) || self.degraded.contains(&Layer::Seccomp) {
            let text = "Landlock and seccomp are all that is left without mounts";
            return refused(text, "leave --degraded landlock and --degraded seccomp out");
        }
        if abi < OLDEST {
            let text = format!("Landlock ABI {OLDEST} (Linux 6.2) is needed, this kernel has {abi}");
            return refused(&text, "see `agentbox doctor` for how to allow user namespaces");
        }
        if sockets && self.without_sockets() && abi < PATH_SOCKETS {
            let text = format!(
                "--socket needs Landlock ABI {PATH_SOCKETS} here, this kernel has {abi}: connect(2) is refused as a whole"
            );
            return refused(
                &text,
                "leave --socket out, or add --net host, with which every socket of the host is reachable",
            );
        }
        Ok(())
    }

    /// Rules of Landlock add up from the top: below a grant nothing can be granted less.
    fn check_nesting(&self) -> Result<(), PolicyError> {
        let writable = |kind: &EntryKind| matches!(kind, EntryKind::Rw | EntryKind::Scratch | EntryKind::Private(_));
        let readable = |kind: &EntryKind| writable(kind) || matches!(kind, EntryKind::Ro | EntryKind::System);
        for entry in &self.entries {
            let weaker = |above: &&Entry| {
                let hides = entry.kind == EntryKind::Hide && readable(&above.kind);
                let reads = matches!(entry.kind, EntryKind::Ro | EntryKind::System) && writable(&above.kind);
                above.path != entry.path && entry.path.starts_with(&above.path) && (hides || reads)
            };
            if let Some(above) = self.entries.iter().find(weaker) {
                let what = if entry.kind == EntryKind::Hide { "hidden" } else { "read-only" };
                let (path, above, origin) = (entry.path.display(), above.path.display(), &entry.origin);
                let text = format!("{path} cannot be {what} ({origin}) inside {above}: {RULE}");
                return refused(&text, "name narrower roots beside each other with --rw and --ro");
            }
        }
        Ok(())
    }

    fn check_findings(&self, surveys: &[(usize, Vec<Section>)]) -> Result<(), PolicyError> {
        for (index, sections) in surveys {
            let Some(root) = self.entries.get(*index) else { continue };
            let mut names = Vec::new();
            for section in sections {
                names.extend(self.unkept(section));
            }
            names.sort();
            if let Some((first, _)) = names.first() {
                return Err(self.names_refused(root, &names, first));
            }
        }
        Ok(())
    }

    /// The names of a section that a mount would hide or freeze, each with its reason.
    fn unkept(&self, section: &Section) -> Vec<(PathBuf, String)> {
        if section.unavailable {
            return vec![(section.path.clone(), "a mount that may not answer".into())];
        }
        let rule = |index: usize| {
            let rule = &self.names.rules[index];
            format!("`{}` ({})", rule.text, rule.origin)
        };
        let found = section.findings.found.iter().map(|found| {
            let why = match found.rule {
                Finding::Hidden(index) => format!("hidden by {}", rule(index)),
                Finding::Frozen(index) => format!("frozen by {}", rule(index)),
                Finding::Pinned => "a repository, whose hooks and configuration would be open".to_owned(),
                Finding::Socket => "a socket of the host".to_owned(),
                // Whoever owns it can open it for a search of its own later.
                Finding::Unsearchable => "cannot be searched for hidden names".to_owned(),
            };
            (found.path.clone(), why)
        });
        // What cannot be searched may hold anything, and whoever owns it can open it for the search later.
        let blind = section
            .findings
            .notices
            .iter()
            .map(|notice| (notice.path.clone(), format!("cannot be searched for hidden names: {}", notice.errno)));
        found.chain(blind).collect()
    }

    fn names_refused(&self, root: &Entry, names: &[(PathBuf, String)], first: &Path) -> PolicyError {
        let told: Vec<String> =
            names.iter().take(TOLD).map(|(path, why)| format!("{} ({why})", path.display())).collect();
        let more = names.len().saturating_sub(TOLD);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!("the root {} holds {}{more}: {RULE}", root.path.display(), told.join(", "));
        let hint = format!(
            "name a narrower root with --rw or --ro; or give each such name to the command for this run, as with --grant \
             {}:rw; or accept all that the directory holds with --scratch {}",
            first.display(),
            root.path.display()
        );
        PolicyError::Conflict { text: format!("--degraded mounts: {text}"), hint }
    }
}

fn refused(text: &str, hint: &str) -> Result<(), PolicyError> {
    Err(PolicyError::Conflict { text: format!("--degraded mounts: {text}"), hint: hint.into() })
}
