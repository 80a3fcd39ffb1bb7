//! One profile file, read strictly: every key is known and every value has its type, or the file is refused with the
//! line. Walks the parsed TOML by hand, for each entry must carry its own line, in lists and inline tables too.

use super::error::{LoadError, Notice, Place};
use super::item;
use super::schema::{Environment, Filesystem, Limits, Network, Profile, Run, Written};
use super::value;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What one file says, before it is merged with others.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub extends: Vec<Written<String>>,
    pub profile: Profile,
    pub removals: Vec<Removal>,
    /// The keys that the file sets, `filesystem.hide` for one, in the order of the file.
    pub keys: Vec<(String, u32)>,
    pub notices: Vec<Notice>,
}

/// An entry `"!x"` of a list.
#[derive(Debug)]
pub(super) struct Removal {
    pub key: String,
    pub entry: String,
    pub place: Place,
}

/// Who wrote the file: only the kind of origin differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    User,
    Repository,
}

/// Reads the whole text of one file, called `file` in every origin and error.
pub(super) fn read(file: &str, text: &str, author: Author) -> Result<Sheet, LoadError> {
    let mut reader = Reader { source: Source::new(file, text), author, sheet: Sheet::default() };
    let table = DeTable::parse(text).map_err(|error| LoadError::Syntax {
        place: reader.source.place(&error.span().unwrap_or(0..0)),
        reason: error.message().to_string(),
    })?;
    reader.document(table.get_ref())?;
    Ok(reader.sheet)
}

/// The file's name and where its lines start.
pub(super) struct Source {
    file: String,
    starts: Vec<usize>,
}

impl Source {
    fn new(file: &str, text: &str) -> Source {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Source { file: file.into(), starts: std::iter::once(0).chain(newlines).collect() }
    }

    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        let line = self.starts.partition_point(|start| *start <= span.start);
        Place { file: self.file.clone(), line: u32::try_from(line).unwrap_or(u32::MAX) }
    }
}

pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// Where a value belongs: `table.key`, or just `key` at the top level.
pub(super) struct Key<'a> {
    pub table: &'a str,
    pub name: &'a str,
    pub span: Range<usize>,
}

impl Key<'_> {
    pub fn full(&self) -> String {
        if self.table.is_empty() { self.name.to_string() } else { format!("{}.{}", self.table, self.name) }
    }
}

/// The entries in the order of the file, so that the first error is the first one a reader meets.
pub(super) fn in_order<'a, 'i>(table: &'a str, entries: &'a DeTable<'i>) -> Vec<(Key<'a>, &'a Value<'i>)> {
    let key = |key: &'a Spanned<std::borrow::Cow<'i, str>>| Key { table, name: key.get_ref(), span: key.span() };
    let mut out: Vec<_> = entries.iter().map(|(name, value)| (key(name), value)).collect();
    out.sort_by_key(|(key, _)| key.span.start);
    out
}

pub(super) struct Reader {
    pub source: Source,
    pub author: Author,
    pub sheet: Sheet,
}

impl Reader {
    fn document(&mut self, document: &DeTable<'_>) -> Result<(), LoadError> {
        for (key, value) in in_order("", document) {
            match key.name {
                "description" => {
                    self.note(&key);
                    self.sheet.profile.description = Some(self.string(&key, value)?.to_string());
                }
                "extends" => {
                    self.sheet.extends = self.list(&key, value, |text| item::checked(text, value::check_text))?
                }
                "programs" => {
                    let programs = self.list(&key, value, |text| item::checked(text, value::check_text))?;
                    self.sheet.profile.programs = programs.into_iter().map(|program| program.value).collect();
                }
                "filesystem" => self.sheet.profile.filesystem = self.filesystem(self.table(&key, value)?)?,
                "network" => self.sheet.profile.network = self.network(self.table(&key, value)?)?,
                "environment" => {
                    self.sheet.profile.environment = self.environment(self.table(&key, value)?)?;
                }
                "limits" => self.sheet.profile.limits = self.limits(self.table(&key, value)?)?,
                "run" => self.sheet.profile.run = self.run(self.table(&key, value)?)?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(())
    }

    fn filesystem(&mut self, table: &DeTable<'_>) -> Result<Filesystem, LoadError> {
        let mut out = Filesystem::default();
        for (key, value) in in_order("filesystem", table) {
            match key.name {
                "rw" => out.rw = self.paths(&key, value)?,
                "ro" => out.ro = self.paths(&key, value)?,
                "scratch" => out.scratch = self.paths(&key, value)?,
                "home" => out.home = Some(self.word(&key, value)?),
                "git" => out.git = Some(self.word(&key, value)?),
                "hide" => out.hide = self.list(&key, value, |text| item::checked(text, value::check_pattern))?,
                "grant" => out.grant = self.list(&key, value, item::grant)?,
                "freeze" => out.freeze = self.list(&key, value, |text| item::checked(text, value::check_pattern))?,
                "build_dirs" => {
                    out.build_dirs = self.list(&key, value, |text| item::checked(text, value::check_pattern))?
                }
                "no_backup" => {
                    out.no_backup = self.list(&key, value, |text| item::checked(text, value::check_pattern))?
                }
                "toolchains" => out.toolchains = Some(self.boolean(&key, value)?),
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(out)
    }

    fn network(&mut self, table: &DeTable<'_>) -> Result<Network, LoadError> {
        let mut out = Network::default();
        for (key, value) in in_order("network", table) {
            match key.name {
                "mode" => out.mode = Some(self.word(&key, value)?),
                "tcp_connect" => out.tcp_connect = self.ports(&key, value)?,
                "tcp_bind" => out.tcp_bind = self.ports(&key, value)?,
                "sockets" => out.sockets = self.paths(&key, value)?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(out)
    }

    fn environment(&mut self, table: &DeTable<'_>) -> Result<Environment, LoadError> {
        let mut out = Environment::default();
        for (key, value) in in_order("environment", table) {
            match key.name {
                "pass" => out.pass = self.list(&key, value, |text| item::checked(text, value::check_variable))?,
                "deny" => out.deny = self.list(&key, value, |text| item::checked(text, value::check_variable))?,
                "set" => {
                    self.note(&key);
                    for (name, value) in in_order("environment.set", self.table(&key, value)?) {
                        let written = self.variable(&name, value)?;
                        out.set.insert(name.name.to_string(), written);
                    }
                }
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(out)
    }

    fn limits(&mut self, table: &DeTable<'_>) -> Result<Limits, LoadError> {
        let mut out = Limits::default();
        for (key, value) in in_order("limits", table) {
            if !value::LIMIT_KEYS.contains(&key.name) {
                return Err(self.unknown(&key));
            }
            self.note(&key);
            let text = match (value.get_ref().as_str(), value.get_ref().as_integer()) {
                (Some(text), _) => text.to_string(),
                (None, Some(number)) => item::decimal(number),
                (None, None) => return Err(self.wrong(&key, value, "a whole number or a string")),
            };
            let set = out.set(key.name, &text, self.origin(&key.span));
            set.map_err(|reason| self.bad(&key, &value.span(), reason))?;
        }
        Ok(out)
    }

    fn run(&mut self, table: &DeTable<'_>) -> Result<Run, LoadError> {
        let mut out = Run::default();
        for (key, value) in in_order("run", table) {
            match key.name {
                "mode" => out.mode = Some(self.word(&key, value)?),
                "diff" => out.diff = Some(self.word(&key, value)?),
                "nested" => out.nested = Some(self.boolean(&key, value)?),
                "degraded" => out.degraded = self.list(&key, value, value::parse_word)?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(out)
    }
}
