//! `--stat`: lines added and removed by file, in git's own form.

use super::body::{Body, Item, Texts, items, load};
use super::changes::{Entry, FileKind, LayerChanges};
use super::diff::{Style, remarks, sections};
use super::hunks::{Budget, Delta};
use super::quote;
use std::io::{self, Write};

/// What one item adds up to.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub body: Body,
    pub added: usize,
    pub removed: usize,
}

pub fn row(layer: &LayerChanges, item: &Item<'_>, texts: &mut Texts, budget: &Budget) -> Row {
    let body = load(layer, item, texts);
    let (added, removed) = if body == Body::Text { Delta::of(&texts.old, &texts.new, budget).counts() } else { (0, 0) };
    Row { body, added, removed }
}

pub fn render(layers: &[LayerChanges], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let budget = Budget::start();
    let mut texts = Texts::default();
    let (mut files, mut added, mut removed) = (0, 0, 0);
    for (title, layer) in sections(layers) {
        if let Some(title) = title {
            writeln!(out, "{title}")?;
        }
        let mut rows = Vec::new();
        for item in items(layer).iter().filter(|item| item.kind() != Some(&FileKind::Dir)) {
            let row = row(layer, item, &mut texts, &budget);
            added += row.added;
            removed += row.removed;
            rows.push((quote::path(item.path), column(item, &row), row));
        }
        files += rows.len();
        write_rows(&rows, style, out)?;
        remarks(layer, |line| writeln!(out, "{line}"))?;
    }
    if files > 0 {
        writeln!(out, "{}", summary(files, added, removed))?;
    }
    Ok(())
}

/// The middle column: a count of lines, or why there is none.
fn column(item: &Item<'_>, row: &Row) -> String {
    let size = |entry: Option<&Entry>| entry.map_or(0, |entry| entry.size);
    match row.body {
        Body::Text => (row.added + row.removed).to_string(),
        Body::Binary | Body::Large => format!("Bin {} -> {} bytes", size(item.old), size(item.new)),
        Body::Unreadable => "unreadable".to_owned(),
        Body::Dir | Body::Special => item.kind().map_or("special", FileKind::name).to_owned(),
    }
}

fn write_rows(rows: &[(String, String, Row)], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let total = |row: &Row| row.added + row.removed;
    let name = rows.iter().map(|(name, _, _)| name.len()).max().unwrap_or(0);
    let is_text = |row: &Row| row.body == Body::Text;
    let number = rows.iter().filter(|(_, _, row)| is_text(row)).map(|(_, column, _)| column.len()).max().unwrap_or(0);
    let most = rows.iter().map(|(_, _, row)| total(row)).max().unwrap_or(0);
    // " name | 12 +++--": what is left of the line, and never less than git leaves.
    let graph = style.width.saturating_sub(name + number + 5).max(10);
    for (path, column, row) in rows {
        write!(out, " {path:<name$} | ")?;
        if !is_text(row) {
            writeln!(out, "{column}")?;
            continue;
        }
        let (plus, minus) = scale(row, most, graph);
        let (plus, minus) = ("+".repeat(plus), "-".repeat(minus));
        let blank = if plus.is_empty() && minus.is_empty() { "" } else { " " };
        if style.color {
            writeln!(out, "{column:>number$}{blank}\x1b[32m{plus}\x1b[31m{minus}\x1b[m")?;
        } else {
            writeln!(out, "{column:>number$}{blank}{plus}{minus}")?;
        }
    }
    Ok(())
}

/// Shrinks the bars so that the longest fits, and leaves at least one sign for what is there.
fn scale(row: &Row, most: usize, graph: usize) -> (usize, usize) {
    let shrink = |count: usize| match count {
        0 => 0,
        count if most <= graph => count,
        count => (count * graph / most).max(1),
    };
    (shrink(row.added), shrink(row.removed))
}

fn summary(files: usize, added: usize, removed: usize) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let mut line = format!(" {files} file{} changed", plural(files));
    if added > 0 || removed == 0 {
        line.push_str(&format!(", {added} insertion{}(+)", plural(added)));
    }
    if removed > 0 || added == 0 {
        line.push_str(&format!(", {removed} deletion{}(-)", plural(removed)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_reads_as_gits() {
        assert_eq!(summary(1, 1, 0), " 1 file changed, 1 insertion(+)");
        assert_eq!(summary(2, 0, 2), " 2 files changed, 2 deletions(-)");
        assert_eq!(summary(2, 0, 0), " 2 files changed, 0 insertions(+), 0 deletions(-)");
        assert_eq!(summary(3, 5, 1), " 3 files changed, 5 insertions(+), 1 deletion(-)");
    }
}
