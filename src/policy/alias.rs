//! The same tree under another path: a bind mount inside a root, or a root that is one, shows what is hidden or frozen
//! elsewhere under names that the rules may not know. The mount table tells where, and no file need be looked at.

use super::{Entry, Policy};
use crate::host::{Mount, mount_of};
use std::path::{Path, PathBuf};

/// The mounts that show something inside of the roots and share their file system with another one.
pub(super) fn shared<'a>(policy: &Policy, mounts: &'a [Mount]) -> Vec<&'a Mount> {
    let roots = || policy.entries.iter().filter(|entry| entry.kind.has_names());
    let mut out: Vec<&Mount> = Vec::new();
    for entry in roots() {
        let below = mounts.iter().filter(|mount| mount.at != entry.path && mount.at.starts_with(&entry.path));
        out.extend(mount_of(mounts, &entry.path).into_iter().chain(below));
    }
    let twice = |mount: &Mount| {
        let same = |other: &&Mount| {
            other.device == mount.device && (other.root.starts_with(&mount.root) || mount.root.starts_with(&other.root))
        };
        mounts.iter().filter(same).nth(1).is_some()
    };
    out.retain(|mount| !mount.is_off_limits() && twice(mount));
    out.sort_by(|a, b| a.at.cmp(&b.at));
    out.dedup_by(|a, b| std::ptr::eq(*a, *b));
    out
}

/// The other visible paths of what stands at `path`, strictly below a root: one that the user named is what was asked
/// for.
pub(super) fn aliases(policy: &Policy, mounts: &[Mount], shared: &[&Mount], path: &Path) -> Vec<PathBuf> {
    let Some(own) = mount_of(mounts, path) else { return Vec::new() };
    let Ok(rest) = path.strip_prefix(&own.at) else { return Vec::new() };
    let place = join(&own.root, rest);
    let elsewhere = |mount: &&&Mount| !std::ptr::eq(**mount, own) && mount.device == own.device;
    let mut out = Vec::new();
    for mount in shared.iter().filter(elsewhere) {
        let alias = match place.strip_prefix(&mount.root) {
            Ok(rest) => join(&mount.at, rest),
            // Only something below it is mounted there, and all of that is hidden.
            Err(_) if mount.root.starts_with(&place) => mount.at.clone(),
            Err(_) => continue,
        };
        let shows = mount_of(mounts, &alias).is_some_and(|shown| std::ptr::eq(shown, *mount));
        let inside = |entry: &Entry| entry.kind.has_names() && entry.path != alias;
        if shows && policy.entry_at(&alias).is_some_and(inside) {
            out.push(alias);
        }
    }
    out
}

/// Without the slash at the end that joining nothing makes.
fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { base.to_path_buf() } else { base.join(rest) }
}
