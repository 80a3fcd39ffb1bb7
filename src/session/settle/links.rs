//! Where a symlink of a layer would lead, once the layer is applied: over names of the layer and of the host.

use crate::path::{ResolveError, lexical, resolve};
use crate::policy::{Access, Decision, Policy};
use crate::session::changes::{Change, FileKind, LayerChanges};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MOST: usize = 40;

pub struct Links<'a> {
    layers: &'a [LayerChanges],
    changes: Vec<HashMap<&'a Path, &'a Change>>,
    policy: &'a Policy,
}

enum Part {
    Up,
    Name(OsString),
}

/// The components of a target, the last first.
fn push(parts: &mut Vec<Part>, target: &Path) {
    let components: Vec<Part> = target
        .components()
        .filter_map(|part| match part {
            Component::ParentDir => Some(Part::Up),
            Component::Normal(name) => Some(Part::Name(name.to_owned())),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    parts.extend(components.into_iter().rev());
}

impl<'a> Links<'a> {
    pub fn new(layers: &'a [LayerChanges], policy: &'a Policy) -> Links<'a> {
        let by_path = |layer: &'a LayerChanges| layer.changes.iter().map(|c| (c.path.as_path(), c)).collect();
        Links { layers, changes: layers.iter().map(by_path).collect(), policy }
    }

    /// The refusal of a symlink at the absolute `link` that leads out of everything that was granted. A link to a name
    /// that is hidden inside a root stays inside.
    pub fn leaves(&self, link: &Path, target: &OsStr) -> Option<Decision> {
        let Some(end) = self.follow(link, Path::new(target)) else {
            return Some(self.policy.decide(Path::new("/"), Access::Write));
        };
        if self.policy.entry_at(&end).is_some() {
            return None;
        }
        let decision = self.policy.decide(&end, Access::Read);
        // A directory on the way to a root is seen inside, but what is beside the root is not.
        Some(if decision.allowed { self.policy.decide(&end, Access::Write) } else { decision })
    }

    /// `None` for a loop, which leads nowhere, and for a way that cannot be told.
    fn follow(&self, link: &Path, target: &Path) -> Option<PathBuf> {
        let mut at = if target.is_absolute() { PathBuf::from("/") } else { link.parent()?.to_path_buf() };
        let mut parts = Vec::new();
        push(&mut parts, target);
        let mut followed = 0;
        while let Some(part) = parts.pop() {
            let name = match part {
                Part::Up => {
                    at.pop();
                    continue;
                }
                Part::Name(name) => name,
            };
            at.push(name);
            let inside = self.layers.iter().position(|layer| at.starts_with(&layer.root));
            let Some(root) = inside else {
                if self.layers.iter().any(|layer| layer.root.starts_with(&at)) {
                    continue;
                }
                // Outside of the roots the layer has no say.
                for part in parts.iter().rev() {
                    match part {
                        Part::Up => at.push(".."),
                        Part::Name(name) => at.push(name),
                    }
                }
                return Some(match resolve(&at, Path::new("/")) {
                    Ok(found) => found.path.into_path_buf(),
                    Err(ResolveError::Missing { parent, rest, .. }) => lexical(&parent.join(rest)),
                    Err(ResolveError::Io { .. }) => lexical(&at),
                    Err(ResolveError::Loop { .. }) => return None,
                });
            };
            if let Some(next) = self.link_at(root, &at) {
                followed += 1;
                if followed > MOST {
                    return None;
                }
                at = if Path::new(&next).is_absolute() { PathBuf::from("/") } else { at.parent()?.to_path_buf() };
                push(&mut parts, Path::new(&next));
            }
        }
        Some(at)
    }

    /// What the symlink at an absolute path below a root will say.
    fn link_at(&self, root: usize, at: &Path) -> Option<OsString> {
        let layer = &self.layers[root];
        let path = at.strip_prefix(&layer.root).ok()?;
        match self.changes[root].get(path) {
            Some(change) => match change.new.as_ref().map(|new| &new.kind) {
                Some(FileKind::Symlink(target)) => Some(target.clone()),
                Some(FileKind::File | FileKind::Dir | FileKind::Fifo | FileKind::Socket | FileKind::Device) | None => {
                    None
                }
            },
            None => layer.host.link(path).ok(),
        }
    }
}
