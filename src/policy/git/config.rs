//! The syntax of git's configuration files (git-config(1), "Syntax"): text in, entries out; nothing is opened here.
//!
//! A parser of our own, for what is needed is three keys of a file of a dozen lines, and the crates that read all of
//! git's configuration bring a repository's whole machinery along.

/// One `key = value`, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Lower-cased.
    pub section: String,
    /// As written: it tells cases apart.
    pub subsection: Option<Vec<u8>>,
    /// Lower-cased.
    pub key: String,
    /// `None` for a key alone, which means true.
    pub value: Option<Vec<u8>>,
}

impl Setting {
    /// Is it this key of a section without a subsection?
    pub fn is(&self, section: &str, key: &str) -> bool {
        self.subsection.is_none() && self.section == section && self.key == key
    }
}

/// Everything up to the first line that is no configuration: git itself stops there, with an error.
pub fn parse(text: &[u8]) -> Vec<Setting> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut parser = Parser { rest: text, section: None, out: Vec::new() };
    while parser.line().is_some() {}
    parser.out
}

/// A value as it can be written behind `key = `.
pub fn quoted(value: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    out
}

struct Parser<'a> {
    rest: &'a [u8],
    section: Option<(String, Option<Vec<u8>>)>,
    out: Vec<Setting>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        // A line may end as on Windows.
        match self.rest {
            [b'\r', b'\n', ..] => Some(b'\n'),
            [first, ..] => Some(*first),
            [] => None,
        }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        let length = if byte == b'\n' && self.rest[0] == b'\r' { 2 } else { 1 };
        self.rest = &self.rest[length..];
        Some(byte)
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n' && byte.is_ascii_whitespace()) {
            self.next();
        }
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    /// One header, setting or comment. `None` at the end and at what cannot be read.
    fn line(&mut self) -> Option<()> {
        self.skip_blanks();
        match self.peek()? {
            b'\n' => {
                self.next();
            }
            b'#' | b';' => self.skip_line(),
            b'[' => self.header()?,
            byte if byte.is_ascii_alphabetic() => self.setting()?,
            _ => return None,
        }
        Some(())
    }

    fn header(&mut self) -> Option<()> {
        self.next();
        let mut name = String::new();
        loop {
            match self.next()? {
                b']' => {
                    // The old form: `[branch.main]`, without cases.
                    let (section, sub) = match name.split_once('.') {
                        Some((section, sub)) => (section.to_owned(), Some(sub.as_bytes().to_vec())),
                        None => (name, None),
                    };
                    self.section = Some((section, sub));
                    return Some(());
                }
                byte if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' => {
                    name.push(char::from(byte.to_ascii_lowercase()));
                }
                byte if byte != b'\n' && byte.is_ascii_whitespace() => break,
                _ => return None,
            }
        }
        self.skip_blanks();
        if self.next()? != b'"' {
            return None;
        }
        let mut sub = Vec::new();
        loop {
            match self.next()? {
                b'"' => break,
                b'\n' => return None,
                b'\\' => sub.push(self.next().filter(|byte| *byte != b'\n')?),
                byte => sub.push(byte),
            }
        }
        if self.next()? != b']' {
            return None;
        }
        self.section = Some((name, Some(sub)));
        Some(())
    }

    fn setting(&mut self) -> Option<()> {
        let mut key = String::new();
        while let Some(byte) = self.peek().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            key.push(char::from(byte.to_ascii_lowercase()));
            self.next();
        }
        self.skip_blanks();
        let value = match self.peek() {
            None | Some(b'\n' | b'#' | b';') => {
                self.skip_line();
                None
            }
            Some(b'=') => {
                self.next();
                Some(self.value()?)
            }
            Some(_) => return None,
        };
        let (section, subsection) = self.section.clone()?;
        self.out.push(Setting { section, subsection, key, value });
        Some(())
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        self.skip_blanks();
        let mut out = Vec::new();
        // Blanks count once something follows them.
        let mut kept = 0;
        let mut quoted = false;
        loop {
            match self.next() {
                None | Some(b'\n') if quoted => return None,
                None | Some(b'\n') => break,
                Some(b'#' | b';') if !quoted => {
                    self.skip_line();
                    break;
                }
                Some(b'"') => {
                    quoted = !quoted;
                    kept = out.len();
                }
                Some(b'\\') => {
                    match self.next()? {
                        b'\n' => continue,
                        b't' => out.push(b'\t'),
                        b'n' => out.push(b'\n'),
                        b'b' => out.push(8),
                        byte @ (b'\\' | b'"') => out.push(byte),
                        _ => return None,
                    }
                    kept = out.len();
                }
                Some(byte) => {
                    out.push(byte);
                    if quoted || !byte.is_ascii_whitespace() {
                        kept = out.len();
                    }
                }
            }
        }
        out.truncate(kept);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(String, Option<String>)> {
        let name = |setting: &Setting| match &setting.subsection {
            Some(sub) => format!("{}.{}.{}", setting.section, String::from_utf8_lossy(sub), setting.key),
            None => format!("{}.{}", setting.section, setting.key),
        };
        let value = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        parse(text.as_bytes()).into_iter().map(|setting| (name(&setting), setting.value.map(value))).collect()
    }

    fn one(text: &str) -> Option<String> {
        let found = all(text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        found[0].1.clone()
    }

    #[test]
    fn values_as_git_reads_them() {
        for (written, meant) in [
            ("[user]\nname=N", "N"),
            ("[USER]\n\tName =  Jane Q. Doe  \n", "Jane Q. Doe"),
            ("[user] name = x # comment\n", "x"),
            ("[user]\nname = \"a # b\" ; c\n", "a # b"),
            ("[user]\nname = a\"  \"\n", "a  "),
            ("[user]\nname = a\\\nb\n", "ab"),
            ("[user]\nname = \\\"x\\\\\\t\n", "\"x\\\t"),
            ("\u{feff}[user]\r\nname = crlf\r\n", "crlf"),
            ("[user]\nname =\n", ""),
        ] {
            assert_eq!(one(written).as_deref(), Some(meant), "{written:?}");
        }
        assert_eq!(one("[core]\nbare\n"), None);
    }

    #[test]
    fn sections() {
        assert_eq!(all("[includeIf \"gitdir:~/W \\\"x/\"]\npath=a")[0].0, "includeif.gitdir:~/W \"x/.path");
        assert_eq!(all("[Branch.Main]\nremote=o")[0].0, "branch.main.remote");
        assert_eq!(all("# c\n; c\n[a]\nb=1\n[c] d=2\ne=3").len(), 3);
    }

    #[test]
    fn what_is_no_configuration_ends_it() {
        for text in ["[user\nname=x", "[user]\nname=\"x", "[user]\nname=\\q", "name=x", "[a \"b]\nc=d", "[a]\n=x"] {
            assert_eq!(all(text), [], "{text:?}");
        }
        assert_eq!(all("[a]\nb=1\n!!\nc=2").len(), 1);
    }

    #[test]
    fn a_quoted_value_comes_back() {
        let name = "a \"b\" \\ c # d ; \n e ".as_bytes();
        let text = [b"[user]\nname = ", quoted(name).as_slice()].concat();
        assert_eq!(parse(&text)[0].value.as_deref(), Some(name));
    }
}
