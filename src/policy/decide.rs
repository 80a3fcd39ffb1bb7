//! The only judge: path and access in, decision out. Plan, `why` and `explain` rest on it.

use super::names::{NameVerdict, Scratch};
use super::{Effect, Entry, EntryKind, Policy};
use crate::path::{Kind, Link, ResolveError, Resolved, is_at_or_below, lexical, resolve};
use serde::Serialize;
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    Read,
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
        })
    }
}

/// Of the host's /dev, without mounts: none is hardware or another terminal.
pub const DEVICES_OF_HOST: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// A verdict with its reason. Its text is the one form that denials have everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    pub path: PathBuf,
    pub access: Access,
    pub allowed: bool,
    /// Why, in words.
    pub rule: String,
    /// Where the rule is written.
    pub origin: String,
    /// The flag that would grant it; `None` where nothing does.
    pub remedy: Option<String>,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.allowed { "allowed" } else { "denied" };
        write!(f, "{verdict} ({}): {}: {}", self.access, self.path.display(), self.rule)?;
        match &self.remedy {
            Some(remedy) if !self.allowed => write!(f, " (grant: {remedy})"),
            _ => Ok(()),
        }
    }
}

/// The flag that names `path`, quoted for a shell where it must be.
fn flag(name: &str, path: &Path, suffix: &str) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,=".contains(c);
    if text.chars().all(plain) {
        format!("{name} {text}{suffix}")
    } else {
        format!("{name} '{}{suffix}'", text.replace('\'', r"'\''"))
    }
}

impl Policy {
    /// Judges `asked` as the command would meet it: relative to the working directory, symlinks resolved first, and
    /// each link on the way must itself be visible.
    pub fn decide_asked(&self, asked: &Path, access: Access) -> Decision {
        let absolute = self.cwd.join(asked);
        // /proc and /dev inside are the box's own: the host's links there say nothing.
        let own = [Path::new("/proc"), Path::new("/dev")];
        let text = lexical(&absolute);
        if own.iter().any(|place| text.starts_with(place)) {
            return self.decide(&text, access);
        }
        let (path, links, kind) = match resolve(&absolute, Path::new("/")) {
            Ok(found) => (found.path.into_path_buf(), found.links, Some(found.kind)),
            Err(ResolveError::Missing { parent, rest, links, .. }) => (lexical(&parent.join(rest)), links, None),
            // What the caller cannot look at is judged as text: no link of it was followed.
            Err(ResolveError::Io { .. }) => (text, Vec::new(), None),
            Err(ResolveError::Loop { .. }) => {
                return self.denied(absolute, access, "a symlink loop", "the kernel", None);
            }
        };
        let mut decision = self.behind(&path, &links, kind, access);
        decision.path = absolute;
        decision
    }

    /// The same for a path that was resolved already.
    pub fn decide_resolved(&self, found: &Resolved, access: Access) -> Decision {
        self.behind(found.path.as_path(), &found.links, Some(found.kind), access)
    }

    fn behind(&self, path: &Path, links: &[Link], kind: Option<Kind>, access: Access) -> Decision {
        // Without mounts the host's links are followed as on the host: Landlock judges what they lead to.
        let hidden_links = if self.without_mounts() { &[] } else { links };
        for link in hidden_links {
            let made = self.links.iter().any(|made| made.at == link.at);
            if !made && !self.decide(&link.at, Access::Read).allowed {
                let rule = format!("the symlink {} on the way is not visible inside", link.at.display());
                return self.denied(path.into(), access, &rule, "default", Some(flag("--ro", path, "")));
            }
        }
        let decision = self.decide(path, access);
        let shown = |entry: &Entry| entry.kind.has_names() || entry.kind == EntryKind::System;
        let in_root = || !self.without_mounts() && self.entry_at(path).is_some_and(shown);
        if decision.allowed && kind == Some(Kind::Socket) && in_root() {
            // A bind mount would let it through, so it is masked there; behind an overlay nobody listens.
            let why = "a socket of the host";
            return self.denied(path.into(), access, why, "default", Some(flag("--socket", path, "")));
        }
        decision
    }

    /// Judges a canonical path.
    pub fn decide(&self, path: &Path, access: Access) -> Decision {
        let Some(entry) = self.entry_at(path) else { return self.outside(path, access) };
        match (&entry.kind, access) {
            (EntryKind::Hide, Access::Read)
                if entry.path == path && self.on_the_way(path) && !self.without_mounts() =>
            {
                self.allowed(entry, path, access, "holds only what is granted below it")
            }
            (EntryKind::Hide, _) => {
                let origin = entry.origin.to_string();
                let why = format!("hidden by {}", entry.hidden_by());
                let remedy = if entry.file == Some(Kind::Socket) { "--socket" } else { "--grant" };
                self.denied(path.into(), access, &why, &origin, Some(flag(remedy, path, "")))
            }
            (EntryKind::Rw | EntryKind::Ro, _) => self.in_root(entry, path, access),
            (EntryKind::Scratch, _) => self.allowed(entry, path, access, "scratch root"),
            (EntryKind::System, Access::Read) => self.allowed(entry, path, access, "read-only part of the system view"),
            (EntryKind::Made(_), Access::Read) => self.allowed(entry, path, access, "made up for this box"),
            (EntryKind::Socket, _) => self.allowed(entry, path, access, "granted socket"),
            (EntryKind::Made(_), Access::Write) if self.is_private_file(entry) => {
                self.allowed(entry, path, access, "private to the box, gone when it ends")
            }
            (EntryKind::System | EntryKind::Made(_), Access::Write) => {
                let origin = entry.origin.to_string();
                self.denied(path.into(), access, "read-only: not one of the writable roots", &origin, None)
            }
            (EntryKind::Private(_), Access::Write) if self.is_way_to_root(entry, path) => self.outside(path, access),
            (EntryKind::Private(_), Access::Write) => {
                self.allowed(entry, path, access, "private to the box, gone when it ends")
            }
            (EntryKind::Private(_) | EntryKind::EmptyHome, Access::Read) => {
                if path == entry.path || self.on_the_way(path) {
                    return self.allowed(entry, path, access, "private to the box");
                }
                self.outside(path, access)
            }
            (EntryKind::EmptyHome, Access::Write) => self.outside(path, access),
            (EntryKind::Proc, Access::Read) if self.without_mounts() => self.allowed(
                entry,
                path,
                access,
                "the host's /proc, without what the kernel keeps to a process itself:",
            ),
            (EntryKind::Proc, Access::Read) => self.allowed(entry, path, access, "the box's own /proc"),
            (EntryKind::Proc, Access::Write) if self.without_mounts() => {
                self.denied(path.into(), access, "the host's /proc is read-only", "--degraded mounts", None)
            }
            (EntryKind::Proc, Access::Write) => {
                if path.starts_with("/proc/self") || path.starts_with("/proc/thread-self") {
                    return self.allowed(entry, path, access, "the command's own entry of /proc");
                }
                self.denied(path.into(), access, "settings of the kernel are read-only", "the mount of /proc", None)
            }
            (EntryKind::Dev, _) => self.device(entry, path, access),
        }
    }

    /// Is `path` in a directory of a private place that exists only as the way to a root? Those refuse writes aloud,
    /// where a private directory would swallow them.
    fn is_way_to_root(&self, entry: &Entry, path: &Path) -> bool {
        let roots = || self.entries.iter().filter(|other| other.kind.is_root());
        path.ancestors()
            .take_while(|dir| dir.as_os_str().len() > entry.path.as_os_str().len())
            .any(|dir| roots().any(|root| is_at_or_below(&root.path, dir)))
    }

    fn device(&self, entry: &Entry, path: &Path, access: Access) -> Decision {
        const DEVICES: [&str; 10] =
            ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "stdin", "stdout", "stderr"];
        let name = path.strip_prefix("/dev").unwrap_or(path);
        if self.without_mounts() {
            let link = ["stdin", "stdout", "stderr"].iter().any(|link| name == Path::new(link));
            let granted = link || DEVICES_OF_HOST.iter().any(|device| path == Path::new(device));
            let why = "not one of the devices that are granted";
            return if granted {
                self.allowed(entry, path, access, "a harmless device of the host in")
            } else {
                self.denied(path.into(), access, why, "--degraded mounts", None)
            };
        }
        let known =
            DEVICES.iter().any(|device| name == Path::new(device)) || name.starts_with("pts") || name.starts_with("fd");
        let listing = access == Access::Read && (path == entry.path || self.on_the_way(path));
        if known || listing {
            return self.allowed(entry, path, access, "the box's own /dev");
        }
        self.denied(path.into(), access, "not one of the devices of the box", "the mount of /dev", None)
    }

    fn in_root(&self, entry: &Entry, path: &Path, access: Access) -> Decision {
        if self.without_mounts() {
            // A root that holds such a name is refused; one that appears later is open to the command.
            return match (access, &entry.kind) {
                (Access::Write, EntryKind::Ro) => self.in_read_only(entry, path),
                _ => self.allowed(entry, path, access, "names are not judged without mounts; inside the root"),
            };
        }
        let root_len = entry.path.as_os_str().len();
        let bytes = path.as_os_str().as_bytes();
        let mut frozen = None;
        let decided = self.names.along(bytes, root_len, true, &mut Scratch::default(), |verdict, _, last| {
            frozen = None;
            match verdict {
                NameVerdict::Hidden(rule) => return ControlFlow::Break(self.hidden(rule, path, access)),
                NameVerdict::Through(_) if last && access == Access::Read => {
                    let rule = "holds only what is granted below it";
                    return ControlFlow::Break(self.allowed(entry, path, access, rule));
                }
                NameVerdict::Through(rule) if last => return ControlFlow::Break(self.hidden(rule, path, access)),
                NameVerdict::Frozen(rule) => frozen = Some(rule),
                NameVerdict::Visible | NameVerdict::Through(_) => {}
            }
            ControlFlow::Continue(())
        });
        if let Some(decided) = decided {
            return decided;
        }
        match (access, &entry.kind, frozen) {
            (Access::Read, _, _) => self.allowed(entry, path, access, "inside a root"),
            (Access::Write, EntryKind::Ro, _) => self.in_read_only(entry, path),
            (Access::Write, _, Some(rule)) => {
                let rule = &self.names.rules[rule];
                let why = if rule.effect == Effect::GrantRo {
                    format!("granted read-only by `{}` ({})", rule.text, rule.origin)
                } else {
                    format!("frozen by `{}` ({}): the host obeys it later", rule.text, rule.origin)
                };
                self.denied(path.into(), access, &why, &rule.origin.to_string(), Some(flag("--grant", path, ":rw")))
            }
            (Access::Write, _, None) => self.allowed(entry, path, access, "inside a writable root"),
        }
    }

    fn in_read_only(&self, entry: &Entry, path: &Path) -> Decision {
        let origin = entry.origin.to_string();
        let why = entry.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let rule = format!("inside the read-only root {}{why}", entry.path.display());
        self.denied(path.into(), Access::Write, &rule, &origin, Some(flag("--rw", path, "")))
    }

    fn hidden(&self, rule: usize, path: &Path, access: Access) -> Decision {
        let rule = &self.names.rules[rule];
        let why = format!("hidden by `{}` ({})", rule.text, rule.origin);
        let suffix = if access == Access::Write { ":rw" } else { "" };
        self.denied(path.into(), access, &why, &rule.origin.to_string(), Some(flag("--grant", path, suffix)))
    }

    fn outside(&self, path: &Path, access: Access) -> Decision {
        // Without mounts a directory on the way can be passed and not be listed.
        let way = !self.without_mounts() && (path == Path::new("/") || self.on_the_way(path));
        if access == Access::Read && way {
            return Decision {
                path: path.into(),
                access,
                allowed: true,
                rule: "a directory on the way to a root".into(),
                origin: "default".into(),
                remedy: None,
            };
        }
        let name = if access == Access::Write { "--rw" } else { "--ro" };
        self.denied(path.into(), access, "outside the allowed roots", "default", Some(flag(name, path, "")))
    }

    fn denied(&self, path: PathBuf, access: Access, rule: &str, origin: &str, remedy: Option<String>) -> Decision {
        Decision { path, access, allowed: false, rule: rule.into(), origin: origin.into(), remedy }
    }

    fn allowed(&self, entry: &Entry, path: &Path, access: Access, rule: &str) -> Decision {
        Decision {
            path: path.into(),
            access,
            allowed: true,
            rule: format!("{rule} {}", entry.path.display()),
            origin: entry.origin.to_string(),
            remedy: None,
        }
    }
}
