//! One value of a profile file: its type, its syntax, its line.

use super::error::{LoadError, Notice, Place};
use super::keys;
use super::merge::Entry;
use super::read::{Author, Key, Reader, Removal, Value, in_order};
use super::schema::{Grant, Origin, PathEntry, Written};
use super::value::{self, ValueError, Word};
use std::ops::Range;
use std::path::PathBuf;
use toml::de::{DeInteger, DeTable};

/// The text itself, once `check` is content with it.
pub(super) fn checked<T: From<String>>(
    text: &str,
    check: impl Fn(&str) -> Result<(), ValueError>,
) -> Result<T, ValueError> {
    check(text).map(|()| text.to_string().into())
}

/// A grant of a file, which has to have the form of a path below a root.
pub(super) fn grant(text: &str) -> Result<Grant, ValueError> {
    let grant = value::parse_grant(text)?;
    value::check_pattern(&grant.glob).map(|()| grant)
}

/// An integer in decimal digits, whatever base it was written in. One that fits nowhere stays as it is, for the error.
pub(super) fn decimal(number: &DeInteger<'_>) -> String {
    let parsed = u64::from_str_radix(number.as_str(), number.radix());
    parsed.map_or_else(|_| number.as_str().to_string(), |value| value.to_string())
}

impl Reader {
    pub(super) fn table<'v, 'i>(&self, key: &Key<'_>, value: &'v Value<'i>) -> Result<&'v DeTable<'i>, LoadError> {
        value.get_ref().as_table().ok_or_else(|| self.wrong(key, value, "a table"))
    }

    /// One variable of `set`. Its name is a name, not a pattern.
    pub(super) fn variable(&self, name: &Key<'_>, value: &Value<'_>) -> Result<Written<String>, LoadError> {
        let text = self.string(name, value)?;
        if name.name.is_empty() || name.name.contains(['=', '\0']) {
            let reason = ValueError::Name { text: name.name.to_string() };
            return Err(self.bad(name, &name.span, reason));
        }
        if text.contains('\0') {
            return Err(self.bad(name, &value.span(), ValueError::Nul));
        }
        Ok(Written::new(text.to_string(), self.origin(&name.span)))
    }

    pub(super) fn string<'v>(&self, key: &Key<'_>, value: &'v Value<'_>) -> Result<&'v str, LoadError> {
        value.get_ref().as_str().ok_or_else(|| self.wrong(key, value, "a string"))
    }

    pub(super) fn boolean(&mut self, key: &Key<'_>, value: &Value<'_>) -> Result<Written<bool>, LoadError> {
        self.note(key);
        let found = value.get_ref().as_bool().ok_or_else(|| self.wrong(key, value, "true or false"))?;
        Ok(Written::new(found, self.origin(&key.span)))
    }

    pub(super) fn word<T: Word>(&mut self, key: &Key<'_>, value: &Value<'_>) -> Result<Written<T>, LoadError> {
        self.note(key);
        let found = value::parse_word(self.string(key, value)?);
        let found = found.map_err(|reason| self.bad(key, &value.span(), reason))?;
        Ok(Written::new(found, self.origin(&key.span)))
    }

    /// A list of strings, each of which `parse` understands.
    pub(super) fn list<T: Entry>(
        &mut self,
        key: &Key<'_>,
        value: &Value<'_>,
        parse: impl Fn(&str) -> Result<T, ValueError>,
    ) -> Result<Vec<Written<T>>, LoadError> {
        self.entries(key, value, "a list of strings", |reader, item| {
            let text = item.get_ref().as_str().ok_or_else(|| reader.wrong(key, item, "a list of strings"))?;
            parse(text).map_err(|reason| reader.bad(key, &item.span(), reason))
        })
    }

    pub(super) fn ports(&mut self, key: &Key<'_>, value: &Value<'_>) -> Result<Vec<Written<u16>>, LoadError> {
        self.entries(key, value, "a list of ports", |reader, item| {
            let number = item.get_ref().as_integer().ok_or_else(|| reader.wrong(key, item, "a list of ports"))?;
            match u16::from_str_radix(number.as_str(), number.radix()) {
                Ok(port) if port > 0 => Ok(port),
                Ok(_) | Err(_) => {
                    Err(reader.bad(key, &item.span(), ValueError::Port { text: number.as_str().to_string() }))
                }
            }
        })
    }

    pub(super) fn paths(&mut self, key: &Key<'_>, value: &Value<'_>) -> Result<Vec<Written<PathEntry>>, LoadError> {
        self.entries(key, value, "a list of paths", |reader, item| match item.get_ref().as_table() {
            Some(table) => reader.path_table(key, item, table),
            None => {
                let path = item.get_ref().as_str().ok_or_else(|| reader.wrong(key, item, "a list of paths"))?;
                value::check_text(path).map_err(|reason| reader.bad(key, &item.span(), reason))?;
                Ok(PathEntry { path: path.into(), optional: false, why: None })
            }
        })
    }

    pub(super) fn path_table(
        &self,
        list: &Key<'_>,
        item: &Value<'_>,
        table: &DeTable<'_>,
    ) -> Result<PathEntry, LoadError> {
        let mut out = PathEntry { path: PathBuf::new(), optional: false, why: None };
        for (key, value) in in_order("", table) {
            match key.name {
                "path" => {
                    let path = self.string(&key, value)?;
                    out.path = path.into();
                    value::check_text(path).map_err(|reason| self.bad(&key, &value.span(), reason))?;
                }
                "optional" => {
                    let found = value.get_ref().as_bool();
                    out.optional = found.ok_or_else(|| self.wrong(&key, value, "true or false"))?;
                }
                "why" => out.why = Some(self.string(&key, value)?.to_string()),
                _ => {
                    let place = self.source.place(&key.span);
                    let near = value::nearest(key.name, ["path", "optional", "why"]);
                    let suggestion = near.map_or_else(
                        || "an entry holds path, optional, why".to_string(),
                        |near| format!("did you mean `{near}`?"),
                    );
                    let table = format!("an entry of `{}`", list.full());
                    return Err(LoadError::UnknownKey { place, table, key: key.name.to_string(), suggestion });
                }
            }
        }
        if out.path.as_os_str().is_empty() {
            return Err(LoadError::NoPath { place: self.source.place(&item.span()), key: list.full() });
        }
        Ok(out)
    }

    /// The entries of a list; those that start with `!` go to the removals.
    pub(super) fn entries<T: Entry>(
        &mut self,
        key: &Key<'_>,
        value: &Value<'_>,
        wanted: &'static str,
        parse: impl Fn(&Reader, &Value<'_>) -> Result<T, LoadError>,
    ) -> Result<Vec<Written<T>>, LoadError> {
        self.note(key);
        let items = value.get_ref().as_array().ok_or_else(|| self.wrong(key, value, wanted))?;
        let mut out: Vec<Written<T>> = Vec::new();
        for item in items.iter() {
            let place = self.source.place(&item.span());
            if let Some(entry) = item.get_ref().as_str().and_then(|text| text.strip_prefix('!')) {
                self.sheet.removals.push(Removal { key: key.full(), entry: entry.to_string(), place });
                continue;
            }
            let parsed = parse(self, item)?;
            if out.iter().any(|earlier| earlier.value.same(&parsed)) {
                let text = format!("`{}` is listed twice in `{}`; the later one counts", parsed.name(), key.full());
                self.sheet.notices.push(Notice { place, text });
                out.retain(|earlier| !earlier.value.same(&parsed));
            }
            out.push(Written::new(parsed, self.origin(&item.span())));
        }
        Ok(out)
    }

    // What follows names places.

    pub(super) fn note(&mut self, key: &Key<'_>) {
        self.sheet.keys.push((key.full(), self.source.place(&key.span).line));
    }

    pub(super) fn origin(&self, span: &Range<usize>) -> Origin {
        let Place { file, line } = self.source.place(span);
        match self.author {
            Author::User => Origin::Profile { file: file.into(), line },
            Author::Repository => Origin::Repository { file: file.into(), line },
        }
    }

    pub(super) fn unknown(&self, key: &Key<'_>) -> LoadError {
        let table = if key.table.is_empty() { String::new() } else { format!("[{}]", key.table) };
        LoadError::UnknownKey {
            place: self.source.place(&key.span),
            table,
            key: key.name.to_string(),
            suggestion: keys::suggestion(key.table, key.name),
        }
    }

    pub(super) fn wrong(&self, key: &Key<'_>, value: &Value<'_>, wanted: &'static str) -> LoadError {
        let found = match value.get_ref().type_str() {
            "string" => "a string",
            "integer" => "an integer",
            "float" => "a float",
            "boolean" => "a boolean",
            "array" => "a list",
            "table" => "a table",
            _ => "a date",
        };
        let (place, key) = (self.source.place(&value.span()), key.name.to_string());
        LoadError::WrongType { place, key, wanted, found }
    }

    pub(super) fn bad(&self, key: &Key<'_>, span: &Range<usize>, reason: ValueError) -> LoadError {
        LoadError::BadValue { place: self.source.place(span), key: key.name.to_string(), reason }
    }
}
