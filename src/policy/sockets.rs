//! Sockets of the host in directories that are too large to be walked: the system's and the toolchains'. A read-only
//! mount does not keep anybody from connecting. Those of a root are found by its walk.

use super::{Entry, EntryKind, Policy};
use crate::host::bound_sockets;
use crate::path::{Kind, found, is_at_or_below};
use crate::profile::Origin;
use std::path::Path;

/// The host's programs for all: what is bound there is a path that no daemon uses, and looking for it would cost every
/// launch a look at each socket.
const NEVER: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// Hides the sockets on which somebody listens now in a directory that is shown read-only without a walk.
pub fn hide_sockets(policy: &mut Policy) {
    // Without mounts nothing can be hidden below a directory, and the tier has its own answer to sockets.
    if policy.without_mounts() {
        return;
    }
    let walkless = |entry: &&Entry| {
        entry.kind == EntryKind::System
            && entry.file == Some(Kind::Dir)
            && !NEVER.iter().any(|dir| entry.path == Path::new(dir))
            && !entry.path.starts_with("/etc")
    };
    let dirs: Vec<&Path> = policy.entries.iter().filter(walkless).map(|entry| entry.path.as_path()).collect();
    if dirs.is_empty() {
        return;
    }
    let sockets = bound_sockets();
    let below = |path: &&Path| dirs.iter().any(|dir| is_at_or_below(path, dir));
    let mut hidden: Vec<Entry> = Vec::new();
    for path in sockets.paths().filter(below) {
        let Ok(real) = crate::path::resolve(path, Path::new("/")) else { continue };
        let at = real.path.as_path();
        // One that was granted, or that lies in a root below, has an answer already.
        let shown = policy.entry_at(at).is_some_and(|entry| entry.kind == EntryKind::System && entry.path != at);
        if let (true, Some((id, Kind::Socket))) = (shown, found(at)) {
            hidden.push(Entry {
                path: at.to_path_buf(),
                kind: EntryKind::Hide,
                origin: Origin::BuiltIn("default".into()),
                why: Some("a socket of the host".into()),
                file: Some(Kind::Socket),
                id: Some(id),
            });
        }
    }
    if !hidden.is_empty() {
        policy.entries.append(&mut hidden);
        policy.entries.sort_by(|a, b| a.path.cmp(&b.path));
        policy.entries.dedup_by(|later, first| later.path == first.path);
    }
}
