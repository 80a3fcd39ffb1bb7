//! Changes as text: a patch that `git apply` takes, with `#` lines for what a patch cannot say.

use super::body::{Body, Item, Texts, items, load};
use super::changes::{Entry, FileKind, LayerChanges};
use super::hunks::{Budget, Delta};
use super::{json, quote, stat};
use similar::DiffOp;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

/// Lines of context around a change, as git and diff show.
const CONTEXT: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Full,
    Stat,
    /// One changed name a line, quoted; with `nul`, raw names that each end in a NUL.
    NameOnly {
        nul: bool,
    },
    /// One object on one line.
    Json,
}

#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub format: Format,
    /// The reader is a terminal: nothing of the content may drive it.
    pub terminal: bool,
    pub color: bool,
    /// Columns for `--stat`.
    pub width: usize,
}

impl Style {
    /// For a file or a pipe.
    pub fn plain(format: Format) -> Style {
        Style { format, terminal: false, color: false, width: 80 }
    }
}

/// Writes what changed. Nothing at all where nothing changed, but for JSON.
///
/// # Errors
/// Those of `out`. A file that cannot be read is said to be so in the text.
pub fn render(layers: &[LayerChanges], style: Style, out: &mut dyn Write) -> io::Result<()> {
    match style.format {
        Format::Full => full(layers, style, out),
        Format::Stat => stat::render(layers, style, out),
        Format::NameOnly { nul } => names(layers, nul, out),
        Format::Json => json::render(layers, out),
    }
}

/// The layers that have something to say, and the line that tells them apart where there are several.
pub fn sections(layers: &[LayerChanges]) -> impl Iterator<Item = (Option<String>, &LayerChanges)> {
    let several = layers.iter().filter(|layer| !layer.is_empty()).count() > 1;
    let title = move |layer: &LayerChanges| several.then(|| format!("# root: {}", quote::path(&layer.root)));
    layers.iter().filter(|layer| !layer.is_empty()).map(move |layer| (title(layer), layer))
}

fn names(layers: &[LayerChanges], nul: bool, out: &mut dyn Write) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    for (title, layer) in sections(layers) {
        for change in &layer.changes {
            // Of several roots each name must say which.
            let path = if title.is_some() { layer.root.join(&change.path) } else { change.path.clone() };
            if nul {
                let name = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
                out.write_all(name.as_os_str().as_bytes())?;
                out.write_all(b"\0")?;
            } else {
                writeln!(out, "{}", quote::path(&path))?;
            }
        }
    }
    Ok(())
}

fn full(layers: &[LayerChanges], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let budget = Budget::start();
    let mut texts = Texts::default();
    for (title, layer) in sections(layers) {
        let mut patch = Patch { style, out, line: String::new() };
        if let Some(title) = title {
            patch.meta(&title)?;
        }
        let items = items(layer);
        let told = parents(&items);
        for item in &items {
            let body = load(layer, item, &mut texts);
            match body {
                Body::Text => patch.text(item, &texts, &budget)?,
                Body::Dir if told.contains(item.path) && item.old.is_none() != item.new.is_none() => {}
                Body::Dir | Body::Binary | Body::Large | Body::Special | Body::Unreadable => {
                    patch.comment(item, body)?
                }
            }
        }
        remarks(layer, |line| patch.meta(line))?;
    }
    Ok(())
}

/// Directories below which the diff shows a name: a patch makes and removes those by itself.
fn parents<'a>(items: &[Item<'a>]) -> HashSet<&'a Path> {
    let mut parents = HashSet::new();
    for item in items.iter().filter(|item| item.kind() != Some(&FileKind::Dir)) {
        for parent in item.path.ancestors().skip(1) {
            if !parents.insert(parent) {
                break;
            }
        }
    }
    parents
}

/// The lines for what is no change to be applied.
pub fn remarks(layer: &LayerChanges, mut line: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    for path in &layer.kept {
        line(&format!("# kept: {} (hidden from the command)", quote::path(path)))?;
    }
    for (what, list) in [("refused", &layer.refused), ("note", &layer.notes)] {
        for remark in list {
            line(&format!("# {what}: {}: {}", quote::path(&remark.path), remark.text))?;
        }
    }
    Ok(())
}

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[m";

struct Patch<'a> {
    style: Style,
    out: &'a mut dyn Write,
    line: String,
}

impl Patch<'_> {
    fn colored(&mut self, color: &str, line: &str) -> io::Result<()> {
        if self.style.color { writeln!(self.out, "{color}{line}{RESET}") } else { writeln!(self.out, "{line}") }
    }

    fn meta(&mut self, line: &str) -> io::Result<()> {
        self.colored(BOLD, line)
    }

    fn comment(&mut self, item: &Item<'_>, body: Body) -> io::Result<()> {
        let line = comment(item, body);
        self.meta(&line)
    }

    fn text(&mut self, item: &Item<'_>, texts: &Texts, budget: &Budget) -> io::Result<()> {
        let (a, b) = (quote::name("a/", item.path), quote::name("b/", item.path));
        let mut delta = Delta::of(&texts.old, &texts.new, budget);
        let groups = similar::group_diff_ops(std::mem::take(&mut delta.ops), CONTEXT);
        let (old, new) = (item.old.map(git_mode), item.new.map(git_mode));
        let mode = mode_comment(item);
        // A finer mode than git knows, and nothing else: no empty header.
        if !(groups.is_empty() && old == new) {
            self.meta(&format!("diff --git {a} {b}"))?;
            match (old, new) {
                (None, Some(new)) => self.meta(&format!("new file mode {new:o}"))?,
                (Some(old), None) => self.meta(&format!("deleted file mode {old:o}"))?,
                (Some(old), Some(new)) if old != new => {
                    self.meta(&format!("old mode {old:o}"))?;
                    self.meta(&format!("new mode {new:o}"))?;
                }
                (_, _) => {}
            }
        }
        if !groups.is_empty() {
            // A blank in a name: git ends the name with a tab there, and reads it so.
            let tab = |name: &str| if name.contains(' ') && !name.starts_with('"') { "\t" } else { "" };
            let side = |entry: Option<u32>, name: &str| match entry {
                Some(_) => format!("{name}{}", tab(name)),
                None => "/dev/null".to_owned(),
            };
            self.meta(&format!("--- {}", side(old, &a)))?;
            self.meta(&format!("+++ {}", side(new, &b)))?;
        }
        for ops in &groups {
            self.hunk(ops, &delta)?;
        }
        if let Some(mode) = mode {
            self.meta(&mode)?;
        }
        Ok(())
    }

    fn hunk(&mut self, ops: &[DiffOp], delta: &Delta<'_>) -> io::Result<()> {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return Ok(()) };
        let old = range(first.old_range().start, last.old_range().end);
        let new = range(first.new_range().start, last.new_range().end);
        self.colored(CYAN, &format!("@@ -{old} +{new} @@"))?;
        for op in ops {
            match op {
                DiffOp::Equal { .. } => self.lines(b' ', "", &delta.old[op.old_range()])?,
                DiffOp::Delete { .. } => self.lines(b'-', RED, &delta.old[op.old_range()])?,
                DiffOp::Insert { .. } => self.lines(b'+', GREEN, &delta.new[op.new_range()])?,
                DiffOp::Replace { .. } => {
                    self.lines(b'-', RED, &delta.old[op.old_range()])?;
                    self.lines(b'+', GREEN, &delta.new[op.new_range()])?;
                }
            }
        }
        Ok(())
    }

    fn lines(&mut self, sign: u8, color: &str, lines: &[&[u8]]) -> io::Result<()> {
        for line in lines {
            let whole = line.strip_suffix(b"\n");
            if self.style.terminal || self.style.color {
                self.shown(sign, color, whole.unwrap_or(line))?;
            } else {
                self.out.write_all(&[sign])?;
                self.out.write_all(line)?;
                if whole.is_none() {
                    self.out.write_all(b"\n")?;
                }
            }
            if whole.is_none() {
                writeln!(self.out, "\\ No newline at end of file")?;
            }
        }
        Ok(())
    }

    fn shown(&mut self, sign: u8, color: &str, line: &[u8]) -> io::Result<()> {
        self.line.clear();
        self.line.push(char::from(sign));
        if self.style.terminal {
            quote::visible(&mut self.line, line);
        } else {
            self.line.push_str(&String::from_utf8_lossy(line));
        }
        let line = std::mem::take(&mut self.line);
        let written = if color.is_empty() { writeln!(self.out, "{line}") } else { self.colored(color, &line) };
        self.line = line;
        written
    }
}

/// `start,length` as unified diffs count: from 1, the length left out when it is 1, and an empty range before its line.
fn range(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        len => format!("{},{len}", start + 1),
    }
}

/// git knows two modes of files and one of symlinks.
fn git_mode(entry: &Entry) -> u32 {
    if matches!(entry.kind, FileKind::Symlink(_)) {
        0o120_000
    } else if entry.mode & 0o100 != 0 {
        0o100_755
    } else {
        0o100_644
    }
}

/// Permission bits that a patch cannot carry.
fn mode_comment(item: &Item<'_>) -> Option<String> {
    let path = quote::path(item.path);
    match (item.old, item.new) {
        (_, Some(new)) if matches!(new.kind, FileKind::Symlink(_)) => None,
        (Some(old), Some(new)) if old.mode != new.mode && (old.mode ^ new.mode) & !0o111 != 0 => {
            Some(format!("# mode: {path}: {:04o} -> {:04o}", old.mode, new.mode))
        }
        (Some(old), Some(new)) if old.mode != new.mode && git_mode(old) == git_mode(new) => {
            Some(format!("# mode: {path}: {:04o} -> {:04o}", old.mode, new.mode))
        }
        (None, Some(new)) if new.mode & 0o7000 != 0 || new.mode & 0o400 == 0 => {
            Some(format!("# mode: {path}: {:04o}", new.mode))
        }
        (_, _) => None,
    }
}

/// The line for an item that a patch cannot carry.
fn comment(item: &Item<'_>, body: Body) -> String {
    let path = quote::path(item.path);
    let what = match body {
        Body::Text => "text",
        Body::Binary => "binary",
        Body::Large => "large",
        Body::Dir => "directory",
        Body::Special => item.kind().map_or("special", FileKind::name),
        Body::Unreadable => "unreadable",
    };
    let verb = match (item.old, item.new) {
        (None, Some(_)) => " created",
        (Some(_), None) => " deleted",
        (_, _) => "",
    };
    let sized = matches!(body, Body::Binary | Body::Large | Body::Unreadable);
    let mut line = format!("# {what}{verb}: {path}");
    if sized {
        let size = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.size);
        line.push_str(&format!(" ({} -> {} bytes)", size(item.old), size(item.new)));
    }
    match (item.old, item.new) {
        (Some(old), Some(new)) if old.mode != new.mode => {
            line.push_str(&format!(" (mode {:04o} -> {:04o})", old.mode, new.mode));
        }
        (None, Some(new)) if body != Body::Dir => line.push_str(&format!(" (mode {:04o})", new.mode)),
        (_, _) => {}
    }
    line
}
