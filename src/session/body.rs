//! The content of one side-by-side change, as far as a diff can show it.

use super::changes::{Change, Entry, FileKind, Kind, LayerChanges};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A larger file is named with its sizes only.
pub const LARGE: u64 = 8 * 1024 * 1024;
/// git's own test: a NUL this near to the start makes a file binary (buffer_is_binary).
const BINARY_PROBE: usize = 8000;

/// One side-by-side entry of a diff. A change of type is two: the deletion of the old, the creation of the new.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    pub path: &'a Path,
    pub old: Option<&'a Entry>,
    pub new: Option<&'a Entry>,
    pub unreadable: bool,
    /// Both sides are known to hold the same bytes: there is nothing to read.
    pub same: bool,
}

impl Item<'_> {
    pub fn is_deletion(&self) -> bool {
        self.new.is_none()
    }

    pub fn kind(&self) -> Option<&FileKind> {
        self.new.or(self.old).map(|entry| &entry.kind)
    }
}

/// The items of a layer in the order of a diff: deletions first, so that the loss is what the reader meets.
pub fn items(layer: &LayerChanges) -> Vec<Item<'_>> {
    let mut items = Vec::with_capacity(layer.changes.len());
    for change in &layer.changes {
        items.extend(of(change).into_iter().flatten());
    }
    items.sort_by_key(|item| !item.is_deletion());
    items
}

/// The one or two items of a change.
pub fn of(change: &Change) -> [Option<Item<'_>>; 2] {
    let item = |old, new| Item {
        path: &change.path,
        old,
        new,
        unreadable: change.unreadable,
        same: change.kind == Kind::ModeChanged,
    };
    let (old, new) = (change.old.as_ref(), change.new.as_ref());
    match change.kind {
        Kind::TypeChanged => [Some(item(old, None)), Some(item(None, new))],
        Kind::Deleted => [Some(item(old, None)), None],
        Kind::Created | Kind::Modified | Kind::ModeChanged => [Some(item(old, new)), None],
    }
}

/// What can be shown of an item. Texts are in the buffers that were passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Both sides are text; an absent side is empty.
    Text,
    Binary,
    Large,
    Dir,
    /// A device, FIFO or socket.
    Special,
    Unreadable,
}

/// Buffers that are used again for each item.
#[derive(Debug, Default)]
pub struct Texts {
    pub old: Vec<u8>,
    pub new: Vec<u8>,
}

/// Reads both sides of an item.
pub fn load(layer: &LayerChanges, item: &Item<'_>, texts: &mut Texts) -> Body {
    texts.old.clear();
    texts.new.clear();
    match item.kind() {
        Some(FileKind::Dir) => return Body::Dir,
        Some(FileKind::Fifo | FileKind::Socket | FileKind::Device) | None => return Body::Special,
        Some(FileKind::File | FileKind::Symlink(_)) => {}
    }
    if item.unreadable {
        return Body::Unreadable;
    }
    if item.same {
        return Body::Text;
    }
    for (tree, entry, text) in [(&layer.host, item.old, &mut texts.old), (&layer.upper, item.new, &mut texts.new)] {
        let Some(entry) = entry else { continue };
        if let FileKind::Symlink(target) = &entry.kind {
            text.extend_from_slice(target.as_bytes());
            continue;
        }
        if entry.size > LARGE {
            return Body::Large;
        }
        let Ok(file) = tree.file(item.path) else { return Body::Unreadable };
        text.reserve(usize::try_from(entry.size).unwrap_or(0) + 1);
        // It may have grown since it was looked at.
        if file.take(LARGE + 1).read_to_end(text).is_err() {
            return Body::Unreadable;
        }
        if text.len() as u64 > LARGE {
            return Body::Large;
        }
    }
    let binary = |text: &[u8]| text[..text.len().min(BINARY_PROBE)].contains(&0);
    let is_link = matches!(item.kind(), Some(FileKind::Symlink(_)));
    if !is_link && (binary(&texts.old) || binary(&texts.new)) { Body::Binary } else { Body::Text }
}
