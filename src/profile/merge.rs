//! How profiles become one: lists unite, scalars override, `"!x"` takes `x` out of what came before.

use super::error::LoadError;
use super::read::{Removal, Sheet};
use super::schema::{Grant, GrantAccess, Layer, Limits, PathEntry, Profile, Text, Written};
use super::value::{Word, nearest};
use std::collections::BTreeSet;

/// An entry of a list: when two are the same entry, and what it is called.
pub(super) trait Entry {
    /// The same entry again. The later one replaces the earlier, so that a grant's access or a path's `optional` can
    /// be changed.
    fn same(&self, other: &Self) -> bool;
    fn name(&self) -> String;
    /// Whether `"!entry"` means this one.
    fn is(&self, entry: &str) -> bool {
        self.name() == entry
    }
}

impl Entry for String {
    fn same(&self, other: &String) -> bool {
        self == other
    }
    fn name(&self) -> String {
        self.clone()
    }
}

impl Entry for Text {
    fn same(&self, other: &Text) -> bool {
        self == other
    }
    fn name(&self) -> String {
        self.to_string()
    }
}

impl Entry for PathEntry {
    fn same(&self, other: &PathEntry) -> bool {
        self.path == other.path
    }
    fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

impl Entry for Grant {
    fn same(&self, other: &Grant) -> bool {
        self.glob == other.glob
    }
    fn name(&self) -> String {
        let access = match self.access {
            GrantAccess::Ro => "ro",
            GrantAccess::Rw => "rw",
        };
        format!("{}:{access}", self.glob)
    }
    /// With the access or without it.
    fn is(&self, entry: &str) -> bool {
        self.glob == entry || self.name() == entry
    }
}

impl Entry for u16 {
    fn same(&self, other: &u16) -> bool {
        self == other
    }
    fn name(&self) -> String {
        self.to_string()
    }
}

impl Entry for Layer {
    fn same(&self, other: &Layer) -> bool {
        self == other
    }
    fn name(&self) -> String {
        Layer::WORDS.iter().find(|(_, layer)| layer == self).map(|(word, _)| (*word).to_string()).unwrap_or_default()
    }
}

/// The profiles merged so far.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub profile: Profile,
    /// What was taken out already, by key: two profiles may agree to remove the same entry.
    removed: BTreeSet<(String, String)>,
}

impl Merged {
    /// Puts one more sheet on top. Its removals reach what lies below, never its own entries.
    pub fn add(&mut self, name: &str, sheet: Sheet) -> Result<(), LoadError> {
        for removal in &sheet.removals {
            self.remove(removal)?;
        }
        let (base, top) = (&mut self.profile, sheet.profile);
        base.names.push(name.to_string());
        over(&mut base.description, top.description);
        for program in top.programs {
            if !base.programs.contains(&program) {
                base.programs.push(program);
            }
        }
        let (below, above) = (&mut base.filesystem, top.filesystem);
        unite(&mut below.rw, above.rw);
        unite(&mut below.ro, above.ro);
        unite(&mut below.scratch, above.scratch);
        over(&mut below.home, above.home);
        over(&mut below.git, above.git);
        unite(&mut below.hide, above.hide);
        unite(&mut below.grant, above.grant);
        unite(&mut below.freeze, above.freeze);
        unite(&mut below.build_dirs, above.build_dirs);
        unite(&mut below.no_backup, above.no_backup);
        over(&mut below.toolchains, above.toolchains);
        let (below, above) = (&mut base.network, top.network);
        over(&mut below.mode, above.mode);
        unite(&mut below.tcp_connect, above.tcp_connect);
        unite(&mut below.tcp_bind, above.tcp_bind);
        unite(&mut below.sockets, above.sockets);
        let (below, above) = (&mut base.environment, top.environment);
        unite(&mut below.pass, above.pass);
        unite(&mut below.deny, above.deny);
        below.set.extend(above.set);
        limits(&mut base.limits, top.limits);
        let (below, above) = (&mut base.run, top.run);
        over(&mut below.mode, above.mode);
        over(&mut below.diff, above.diff);
        over(&mut below.nested, above.nested);
        unite(&mut below.degraded, above.degraded);
        Ok(())
    }

    /// A removal that finds nothing is refused: a slip in `"!x"` would leave `x` standing.
    fn remove(&mut self, removal: &Removal) -> Result<(), LoadError> {
        let known = (removal.key.clone(), removal.entry.clone());
        let entry = removal.entry.as_str();
        let profile = &mut self.profile;
        let (found, names) = match removal.key.as_str() {
            "programs" => {
                let names = profile.programs.clone();
                profile.programs.retain(|program| program != entry);
                (names.len() != profile.programs.len(), names)
            }
            "filesystem.rw" => take(&mut profile.filesystem.rw, entry),
            "filesystem.ro" => take(&mut profile.filesystem.ro, entry),
            "filesystem.scratch" => take(&mut profile.filesystem.scratch, entry),
            "filesystem.hide" => take(&mut profile.filesystem.hide, entry),
            "filesystem.grant" => take(&mut profile.filesystem.grant, entry),
            "filesystem.freeze" => take(&mut profile.filesystem.freeze, entry),
            "filesystem.build_dirs" => take(&mut profile.filesystem.build_dirs, entry),
            "filesystem.no_backup" => take(&mut profile.filesystem.no_backup, entry),
            "network.tcp_connect" => take(&mut profile.network.tcp_connect, entry),
            "network.tcp_bind" => take(&mut profile.network.tcp_bind, entry),
            "network.sockets" => take(&mut profile.network.sockets, entry),
            "environment.pass" => take(&mut profile.environment.pass, entry),
            "environment.deny" => take(&mut profile.environment.deny, entry),
            "run.degraded" => take(&mut profile.run.degraded, entry),
            _ => (false, Vec::new()),
        };
        if found {
            self.removed.insert(known);
        } else if !self.removed.contains(&known) {
            return Err(LoadError::RemovesNothing {
                place: removal.place.clone(),
                key: removal.key.clone(),
                entry: removal.entry.clone(),
                nearest: nearest(entry, names.iter().map(String::as_str)).map(str::to_string),
            });
        }
        Ok(())
    }
}

fn over<T>(below: &mut Option<T>, above: Option<T>) {
    if above.is_some() {
        *below = above;
    }
}

fn unite<T: Entry>(below: &mut Vec<Written<T>>, above: Vec<Written<T>>) {
    if below.is_empty() {
        // A sheet holds no entry twice.
        *below = above;
        return;
    }
    for entry in above {
        match below.iter_mut().find(|earlier| earlier.value.same(&entry.value)) {
            Some(earlier) => *earlier = entry,
            None => below.push(entry),
        }
    }
}

/// Takes the entry out; says whether it was there, and what was.
fn take<T: Entry>(list: &mut Vec<Written<T>>, entry: &str) -> (bool, Vec<String>) {
    let names: Vec<String> = list.iter().map(|written| written.value.name()).collect();
    list.retain(|written| !written.value.is(entry));
    (list.len() != names.len(), names)
}

fn limits(below: &mut Limits, above: Limits) {
    over(&mut below.processes, above.processes);
    over(&mut below.memory, above.memory);
    over(&mut below.tmp, above.tmp);
    over(&mut below.file_size, above.file_size);
    over(&mut below.open_files, above.open_files);
    over(&mut below.time, above.time);
    over(&mut below.backup_file, above.backup_file);
    over(&mut below.backup_total, above.backup_total);
}
