//! What the guard has to know, from the plan that is about to be carried out.

use super::run::Settings;
use crate::enforce::LayerDirs;
use crate::path::Kind;
use crate::plan::RootStep;
use crate::watch::guard::{Hides, Root, Setup};
use std::path::{Path, PathBuf};

/// The roots whose names were judged at the launch alone, and how each hides one. None without mounts.
pub(super) fn setup<'a>(settings: &Settings<'a>, layers: &[LayerDirs]) -> Setup<'a> {
    let Settings { plan, policy, .. } = *settings;
    let named = |at: &Path| policy.entry(at).filter(|entry| entry.kind.has_names() && entry.file == Some(Kind::Dir));
    let root = |step: &RootStep| {
        let (at, id, bound, hides) = if let RootStep::Bind { at, id, writable, .. } = step {
            (at, id, true, Hides::Mask { writable: *writable })
        } else if let RootStep::Overlay { at, id, layer, .. } = step {
            let upper = layer.and_then(|layer| layers.get(layer)).map(|layer| layer.upper.clone());
            // Without a layer there is no place for a whiteout.
            (at, id, false, upper.map_or(Hides::Mask { writable: false }, |upper| Hides::Whiteout { upper }))
        } else {
            return None;
        };
        named(at).map(|_| Root { path: at.clone(), id: *id, bound, hides })
    };
    Setup {
        names: &policy.names,
        roots: plan.root.iter().filter_map(root).collect(),
        hidden: plan.hidden().into_iter().map(|(path, _)| path).collect(),
        apart: policy.entries.iter().map(|entry| entry.path.clone()).collect::<std::collections::HashSet<PathBuf>>(),
        since: settings.since,
    }
}
