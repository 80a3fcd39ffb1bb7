//! What this host can enforce, for people and for programs.

use super::one_line;
use crate::plan::doctor::{Diagnosis, LANDLOCK_RIGHTS, LANDLOCK_SCOPES, Layer, State};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Missing => "missing",
        State::Warn => "warn",
    }
}

/// One aligned line a layer, then the fixes.
///
/// # Errors
/// Those of `out`.
pub fn doctor_text(diagnosis: &Diagnosis, out: &mut dyn Write) -> io::Result<()> {
    let width = diagnosis.layers.iter().map(|layer| layer.name.len()).max().unwrap_or(0);
    writeln!(out, "{:<width$}  {:<7}  {}", "kernel", "", one_line(&diagnosis.release))?;
    for layer in &diagnosis.layers {
        writeln!(out, "{:<width$}  {:<7}  {}", layer.name, word(layer.state), one_line(&layer.detail))?;
    }
    let broken: Vec<&Layer> = diagnosis.layers.iter().filter(|layer| !layer.fix.is_empty()).collect();
    for layer in &broken {
        let need = if layer.required { "required" } else { "not required" };
        writeln!(out, "\n{} ({need}):", layer.name)?;
        for line in &layer.fix {
            writeln!(out, "  {}", one_line(line))?;
        }
    }
    let verdict = if diagnosis.is_ok() { "all required layers are there" } else { "a required layer is missing" };
    writeln!(out, "\n{verdict}")
}

/// The same as one object.
pub fn doctor_json(diagnosis: &Diagnosis) -> Value {
    let abi = diagnosis.landlock_abi;
    let mut landlock = Map::new();
    landlock.insert("abi".into(), json!(abi));
    for (since, right) in LANDLOCK_RIGHTS {
        landlock.insert(right.into(), json!(since <= abi));
    }
    let scopes: Vec<&str> = LANDLOCK_SCOPES.iter().filter(|(since, _)| *since <= abi).map(|(_, name)| *name).collect();
    landlock.insert("scopes".into(), json!(scopes));
    let layer = |layer: &Layer| {
        json!({
            "name": layer.name,
            "state": word(layer.state),
            "required": layer.required,
            "detail": layer.detail,
            "fix": layer.fix,
        })
    };
    json!({
        "version": 1,
        "ok": diagnosis.is_ok(),
        "kernel": diagnosis.release,
        "landlock": landlock,
        "layers": diagnosis.layers.iter().map(layer).collect::<Vec<_>>(),
    })
}
