//! `--json`: one object for programs.

use super::body::{Body, Texts};
use super::changes::{Change, Entry, FileKind, LayerChanges, Remark};
use super::hunks::Budget;
use super::osjson;
use super::record::Counts;
use super::{body, stat};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Raised when a reader of the old form would misread the new one.
const VERSION: u32 = 1;

pub fn render(layers: &[LayerChanges], out: &mut dyn Write) -> io::Result<()> {
    let budget = Budget::start();
    let mut texts = Texts::default();
    let roots: Vec<Value> = layers.iter().map(|layer| root(layer, &mut texts, &budget)).collect();
    let object = json!({ "version": VERSION, "roots": roots, "counts": Counts::of(layers) });
    serde_json::to_writer(&mut *out, &object)?;
    writeln!(out)
}

fn root(layer: &LayerChanges, texts: &mut Texts, budget: &Budget) -> Value {
    let changes: Vec<Value> = layer.changes.iter().map(|item| change(layer, item, texts, budget)).collect();
    let remarks = |list: &[Remark]| -> Vec<Value> {
        let remark = |remark: &Remark| json!({ "path": osjson::value(remark.path.as_os_str()), "text": remark.text });
        list.iter().map(remark).collect()
    };
    json!({
        "root": osjson::value(layer.root.as_os_str()),
        "changes": changes,
        "kept": layer.kept.iter().map(|path| osjson::value(path.as_os_str())).collect::<Vec<_>>(),
        "refused": remarks(&layer.refused),
        "notes": remarks(&layer.notes),
    })
}

fn change(layer: &LayerChanges, change: &Change, texts: &mut Texts, budget: &Budget) -> Value {
    let mut object = json!({
        "path": osjson::value(change.path.as_os_str()),
        "kind": change.kind.name(),
        "old": change.old.as_ref().map(entry),
        "new": change.new.as_ref().map(entry),
    });
    let (mut added, mut removed, mut is_text, mut why) = (0, 0, true, Body::Text);
    for item in body::of(change).into_iter().flatten() {
        let row = stat::row(layer, &item, texts, budget);
        added += row.added;
        removed += row.removed;
        if row.body != Body::Text {
            (is_text, why) = (false, row.body);
        }
    }
    if let Value::Object(map) = &mut object {
        if is_text {
            map.insert("added".to_owned(), added.into());
            map.insert("removed".to_owned(), removed.into());
        } else {
            map.insert("not_shown".to_owned(), reason(why).into());
        }
    }
    object
}

/// Why there are no lines to count.
fn reason(body: Body) -> &'static str {
    match body {
        Body::Text => "text",
        Body::Binary => "binary",
        Body::Large => "large",
        Body::Dir => "directory",
        Body::Special => "special",
        Body::Unreadable => "unreadable",
    }
}

fn entry(entry: &Entry) -> Value {
    let mut object = json!({
        "type": entry.kind.name(),
        "mode": format!("{:04o}", entry.mode),
        "size": entry.size,
    });
    if let (Value::Object(map), FileKind::Symlink(target)) = (&mut object, &entry.kind) {
        map.insert("target".to_owned(), osjson::value(target));
    }
    object
}
