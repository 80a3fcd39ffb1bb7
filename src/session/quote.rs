//! Names and content as text: quoted as git quotes names, escaped where a terminal would obey.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `prefix` and `path` as git writes them in a patch with core.quotePath on: bare, or in C quotes when a byte is a
/// control character, a quote, a backslash or not ASCII. What comes out is one line of printable ASCII.
pub fn name(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        return format!("{prefix}{}", path.display());
    }
    let mut out = format!("\"{prefix}");
    for byte in bytes {
        match byte {
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0b => out.push_str("\\v"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(char::from(*byte)),
            other => octal(&mut out, *other),
        }
    }
    out.push('"');
    out
}

fn octal(out: &mut String, byte: u8) {
    out.push('\\');
    for shift in [6, 3, 0] {
        out.push(char::from(b'0' + ((byte >> shift) & 7)));
    }
}

/// A path in a comment line or a list; the root itself is `.`.
pub fn path(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { name("", path) }
}

/// Text of the command for a human's eyes on one line.
pub fn text(text: &OsStr) -> String {
    let mut out = String::new();
    visible(&mut out, text.as_bytes());
    out
}

/// Appends one line of content as a terminal may safely show it: control characters, bytes that are no UTF-8, and
/// characters that reorder or hide text are spelled out.
pub fn visible(out: &mut String, line: &[u8]) {
    for chunk in line.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\t' => out.push('\t'),
                '\0'..='\x1f' | '\x7f' => hex(out, char),
                '\u{80}'..='\u{9f}' => hex(out, char),
                '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{61c}' => {
                    hex(out, char);
                }
                _ => out.push(char),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            write!(out, "\\x{byte:02x}").ok();
        }
    }
}

fn hex(out: &mut String, char: char) {
    let code = u32::from(char);
    if code < 0x80 {
        write!(out, "\\x{code:02x}").ok()
    } else {
        write!(out, "\\u{{{code:x}}}").ok()
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(bytes: &[u8]) -> String {
        name("a/", Path::new(OsStr::from_bytes(bytes)))
    }

    #[test]
    fn names_are_quoted_as_git_does() {
        assert_eq!(quoted(b"plain name.rs"), "a/plain name.rs");
        assert_eq!(quoted(b"tab\tquote\"back\\"), "\"a/tab\\tquote\\\"back\\\\\"");
        assert_eq!(quoted("é".as_bytes()), "\"a/\\303\\251\"");
        assert_eq!(quoted(b"\x01\x7f\xff\n"), "\"a/\\001\\177\\377\\n\"");
        assert_eq!(path(Path::new("")), ".");
    }

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        let mut out = String::new();
        visible(&mut out, b"a\x1b[31m\r\x07\xff\tb");
        assert_eq!(out, "a\\x1b[31m\\x0d\\x07\\xff\tb");
        assert_eq!(text(OsStr::new("x\u{202e}y\u{9b}")), "x\\u{202e}y\\u{9b}");
    }
}
