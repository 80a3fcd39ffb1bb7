//! Text for a terminal: one line stays one line, and nothing of a path drives the terminal.

/// Control characters escaped.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_newline_in_a_name_does_not_forge_a_line() {
        assert_eq!(one_line("a\nb\x1b[1m ü"), "a\\nb\\u{1b}[1m ü");
    }
}
