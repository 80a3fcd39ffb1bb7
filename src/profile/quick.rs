//! Reads a built-in profile at every launch, past the TOML parser: of the language it knows only what these texts use,
//! and leaves any other text to the reader. A test holds the two against each other.

use super::read::Sheet;
use super::schema::{Grant, Origin, Text, Written};
use super::value;

/// A value and, for each string of a list, its line.
enum Value<'a> {
    Text(&'a str),
    Number(&'a str),
    Bool(bool),
    List(Vec<(&'a str, u32)>),
    Table(Vec<(&'a str, &'a str, u32)>),
}

/// What the text, called `file` in every origin, says; `None` where it has more than is known here.
pub(super) fn sheet(file: &'static str, text: &'static str) -> Option<Sheet> {
    let mut scan = Scan { rest: text, line: 1 };
    let mut out = Sheet::default();
    let mut table = "";
    while scan.skip_to_next() {
        if scan.eat('[') {
            table = scan.word()?;
            scan.eat(']').then_some(())?;
            continue;
        }
        let line = scan.line;
        let key = scan.word()?;
        scan.skip_spaces();
        scan.eat('=').then_some(())?;
        scan.skip_spaces();
        let value = scan.value()?;
        let full = if table.is_empty() { key.to_string() } else { format!("{table}.{key}") };
        set(&mut out, file, &full, line, value)?;
        out.keys.push((full, line));
    }
    Some(out)
}

fn set(out: &mut Sheet, file: &'static str, key: &str, line: u32, value: Value<'static>) -> Option<()> {
    let origin = |line| Origin::Profile { file: Text::Borrowed(file), line };
    let texts = |list: Vec<(&'static str, u32)>| -> Vec<Written<Text>> {
        list.into_iter().map(|(text, line)| Written::new(Text::Borrowed(text), origin(line))).collect()
    };
    let profile = &mut out.profile;
    match (key, value) {
        ("description", Value::Text(text)) => profile.description = Some(text.to_string()),
        ("extends", Value::List(list)) => {
            out.extends = list.into_iter().map(|(name, line)| Written::new(name.to_string(), origin(line))).collect();
        }
        ("filesystem.hide", Value::List(list)) => profile.filesystem.hide = texts(list),
        ("filesystem.freeze", Value::List(list)) => profile.filesystem.freeze = texts(list),
        ("filesystem.build_dirs", Value::List(list)) => profile.filesystem.build_dirs = texts(list),
        ("filesystem.no_backup", Value::List(list)) => profile.filesystem.no_backup = texts(list),
        ("filesystem.grant", Value::List(list)) => {
            for (text, line) in list {
                let (glob, access) = value::split_grant(text).ok()?;
                profile.filesystem.grant.push(Written::new(Grant { glob: glob.into(), access }, origin(line)));
            }
        }
        ("filesystem.home", Value::Text(text)) => {
            profile.filesystem.home = Some(Written::new(value::parse_word(text).ok()?, origin(line)));
        }
        ("filesystem.git", Value::Text(text)) => {
            profile.filesystem.git = Some(Written::new(value::parse_word(text).ok()?, origin(line)));
        }
        ("filesystem.toolchains", Value::Bool(on)) => {
            profile.filesystem.toolchains = Some(Written::new(on, origin(line)));
        }
        ("network.mode", Value::Text(text)) => {
            profile.network.mode = Some(Written::new(value::parse_word(text).ok()?, origin(line)));
        }
        ("environment.pass", Value::List(list)) => profile.environment.pass = texts(list),
        ("environment.deny", Value::List(list)) => profile.environment.deny = texts(list),
        ("environment.set", Value::Table(pairs)) => {
            for (name, text, line) in pairs {
                profile.environment.set.insert(name.to_string(), Written::new(text.to_string(), origin(line)));
            }
        }
        ("run.mode", Value::Text(text)) => {
            profile.run.mode = Some(Written::new(value::parse_word(text).ok()?, origin(line)));
        }
        ("run.diff", Value::Text(text)) => {
            profile.run.diff = Some(Written::new(value::parse_word(text).ok()?, origin(line)));
        }
        (key, Value::Text(text) | Value::Number(text)) => {
            profile.limits.set(key.strip_prefix("limits.")?, text, origin(line)).ok()?;
        }
        (_, Value::Bool(_) | Value::List(_) | Value::Table(_)) => return None,
    }
    Some(())
}

struct Scan<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Scan<'a> {
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn eat(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    /// Past blanks, lines and comments. False at the end.
    fn skip_to_next(&mut self) -> bool {
        loop {
            self.skip_spaces();
            if self.eat('\n') {
                self.line += 1;
            } else if self.rest.starts_with('#') {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else {
                return !self.rest.is_empty();
            }
        }
    }

    /// A bare key, or a value without quotes.
    fn word(&mut self) -> Option<&'a str> {
        let end = self.rest.bytes().position(|byte| !byte.is_ascii_alphanumeric() && byte != b'_')?;
        (end > 0).then(|| self.take(end))
    }

    /// A string on one line, without escapes.
    fn text(&mut self) -> Option<&'a str> {
        self.eat('"').then_some(())?;
        let text = self.take(self.rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | b'\n'))?);
        // An empty or a removing entry is for the reader to judge; so is `"""`.
        (self.eat('"') && !text.is_empty() && !text.starts_with('!')).then_some(text)
    }

    fn value(&mut self) -> Option<Value<'a>> {
        if self.rest.starts_with('"') {
            return self.text().map(Value::Text);
        }
        if self.eat('[') {
            let mut list = Vec::new();
            while self.skip_to_next() && !self.eat(']') {
                let line = self.line;
                list.push((self.text()?, line));
                self.skip_to_next();
                if !self.eat(',') && !self.rest.starts_with(']') {
                    return None;
                }
            }
            return Some(Value::List(list));
        }
        if self.eat('{') {
            let mut pairs = Vec::new();
            loop {
                self.skip_spaces();
                let line = self.line;
                let name = self.word()?;
                self.skip_spaces();
                self.eat('=').then_some(())?;
                self.skip_spaces();
                pairs.push((name, self.text()?, line));
                self.skip_spaces();
                if self.eat('}') {
                    return Some(Value::Table(pairs));
                }
                self.eat(',').then_some(())?;
            }
        }
        match self.word()? {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            word if word.bytes().all(|byte| byte.is_ascii_digit()) => Some(Value::Number(word)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BUILT_IN;
    use super::super::builtin::PROGRAMS;
    use super::super::read::{Author, read};
    use super::*;

    #[test]
    fn says_of_every_built_in_profile_what_the_reader_says() {
        for (name, text) in BUILT_IN {
            let (quick, whole) = (sheet(name, text).expect(name), read(name, text, Author::User).unwrap());
            assert_eq!(quick.profile, whole.profile, "{name}");
            assert_eq!(quick.extends, whole.extends, "{name}");
            assert_eq!(quick.keys, whole.keys, "{name}");
            assert!(whole.removals.is_empty() && whole.notices.is_empty(), "{name}");
            let programs: Vec<&str> =
                PROGRAMS.iter().filter(|(claimant, _)| claimant == name).map(|(_, program)| *program).collect();
            assert_eq!(whole.profile.programs, programs, "{name}");
        }
    }

    #[test]
    fn leaves_what_it_does_not_know_to_the_reader() {
        let texts = [
            "x = 1",
            "[filesystem]\nrw = [\"a\"]",
            "[filesystem]\nhide = [\"!a\"]",
            "[filesystem]\nhide = ['a']",
            "[filesystem]\nhide = [\"a\\n\"]",
            "[filesystem]\nhide = [\"a\" \"b\"]",
            "[filesystem]\nhide = [\"\"]",
            "description = \"\"\"a\"\"\"",
            "filesystem.hide = [\"a\"]",
            "[limits]\ntime = 1.5",
        ];
        for text in texts {
            assert!(sheet("x", text).is_none(), "{text}");
        }
        assert_eq!(
            sheet("x", "[filesystem]\nhide = [\n  # c\n  \"a\",\n]\n").unwrap().profile.filesystem.hide.len(),
            1
        );
    }
}
