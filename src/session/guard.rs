//! What the guard has to know, from the plan that is about to be carried out.

use super::run::Settings;
use crate::enforce::LayerDirs;
use crate::path::Kind;
use crate::plan::RootStep;
use crate::watch::guard::{Hides, Root, Setup};
use std::collections::HashSet;
use std::path::PathBuf;

/// Is there a root whose names are judged at the launch alone?
pub(super) fn is_wanted(settings: &Settings<'_>) -> bool {
    settings.plan.root.iter().any(|step| root(settings, &[], step).is_some())
}

/// The roots whose names were judged at the launch alone, and how each hides one. None without mounts.
pub(super) fn setup<'a>(settings: &Settings<'a>, layers: &[LayerDirs]) -> Setup<'a> {
    let Settings { plan, policy, .. } = *settings;
    Setup {
        names: &policy.names,
        roots: plan.root.iter().filter_map(|step| root(settings, layers, step)).collect(),
        hidden: plan.hidden().into_iter().map(|(path, _)| path).collect(),
        apart: policy.entries.iter().map(|entry| entry.path.clone()).collect::<HashSet<PathBuf>>(),
        since: settings.since,
    }
}

fn root(settings: &Settings<'_>, layers: &[LayerDirs], step: &RootStep) -> Option<Root> {
    let (at, id, bound, hides) = if let RootStep::Bind { at, id, writable, .. } = step {
        (at, id, true, Hides::Mask { writable: *writable })
    } else if let RootStep::Overlay { at, id, layer, .. } = step {
        let upper = layer.and_then(|layer| layers.get(layer)).map(|layer| layer.upper.clone());
        // Without a layer there is no place for a whiteout.
        (at, id, false, upper.map_or(Hides::Mask { writable: false }, |upper| Hides::Whiteout { upper }))
    } else {
        return None;
    };
    let entry = settings.policy.entry(at)?;
    let guarded = entry.kind.has_names() && entry.file == Some(Kind::Dir);
    guarded.then(|| Root { path: at.clone(), id: *id, bound, hides })
}
