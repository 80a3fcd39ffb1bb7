//! Why a profile could not be read: what, in which file, on which line, and what to write instead.

use super::value::{ValueError, shown};
use std::fmt;

/// A line of a profile file. `line` counts from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", shown(&self.file), self.line)
    }
}

#[derive(Debug)]
pub enum LoadError {
    /// No profile of this name. `place` is where it was named, `None` for the command line.
    UnknownProfile {
        place: Option<Place>,
        name: String,
        known: Vec<String>,
        nearest: Option<String>,
    },
    Unreadable {
        file: String,
        errno: std::io::Error,
    },
    NotUtf8 {
        place: Place,
    },
    TooLarge {
        file: String,
        bytes: u64,
    },
    Syntax {
        place: Place,
        reason: String,
    },
    /// `table` is empty at the top level. `suggestion` is a whole hint.
    UnknownKey {
        place: Place,
        table: String,
        key: String,
        suggestion: String,
    },
    WrongType {
        place: Place,
        key: String,
        wanted: &'static str,
        found: &'static str,
    },
    BadValue {
        place: Place,
        key: String,
        reason: ValueError,
    },
    NoPath {
        place: Place,
        key: String,
    },
    Circle {
        place: Place,
        chain: Vec<String>,
    },
    TooMany {
        place: Place,
        name: String,
    },
    RemovesNothing {
        place: Place,
        key: String,
        entry: String,
        nearest: Option<String>,
    },
    Ambiguous {
        program: String,
        names: Vec<String>,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::UnknownProfile { place, name, .. } => {
                write!(f, "reading profile")?;
                if let Some(place) = place {
                    write!(f, " {place}")?;
                }
                write!(f, ": there is no profile `{}`", shown(name))
            }
            LoadError::Unreadable { file, errno } => write!(f, "reading profile {}: {errno}", shown(file)),
            LoadError::NotUtf8 { place } => write!(f, "reading profile {place}: not UTF-8"),
            LoadError::TooLarge { file, bytes } => {
                write!(f, "reading profile {}: more than {bytes} bytes", shown(file))
            }
            LoadError::Syntax { place, reason } => write!(f, "reading profile {place}: {}", shown(reason)),
            LoadError::UnknownKey { place, table, key, .. } => {
                write!(f, "reading profile {place}: unknown key `{}`", shown(key))?;
                if table.is_empty() { Ok(()) } else { write!(f, " in {}", shown(table)) }
            }
            LoadError::WrongType { place, key, wanted, found } => {
                write!(f, "reading profile {place}: `{}` wants {wanted}, not {found}", shown(key))
            }
            LoadError::BadValue { place, key, reason } => {
                write!(f, "reading profile {place}: bad value for `{}`: {reason}", shown(key))
            }
            LoadError::NoPath { place, key } => write!(f, "reading profile {place}: an entry of `{key}` has no `path`"),
            LoadError::Circle { place, chain } => {
                let chain: Vec<String> = chain.iter().map(|name| shown(name)).collect();
                write!(f, "reading profile {place}: `extends` goes in a circle: {}", chain.join(" -> "))
            }
            LoadError::TooMany { place, name } => {
                write!(f, "reading profile {place}: `extends` reaches too many profiles at `{}`", shown(name))
            }
            LoadError::RemovesNothing { place, key, entry, .. } => {
                write!(f, "reading profile {place}: `!{}` removes nothing from `{key}`", shown(entry))
            }
            LoadError::Ambiguous { program, names } => {
                write!(f, "picking a profile for `{}`: {} all claim it", shown(program), names.join(", "))
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The reason is already in the text; a chain would print it twice.
        None
    }
}

impl LoadError {
    /// What to do about it, on a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            LoadError::UnknownProfile { known, nearest, .. } => {
                let near = nearest.as_ref().map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
                Some(format!("{near}known profiles: {}", known.join(", ")))
            }
            LoadError::UnknownKey { suggestion, .. } => Some(suggestion.clone()),
            LoadError::WrongType {
                key, wanted: "a list of strings" | "a list of paths", found: "a string", ..
            } => Some(format!("write `{key} = [\"...\"]`")),
            LoadError::BadValue { reason, .. } => reason.hint(),
            LoadError::NoPath { .. } => Some("write `{ path = \"...\", optional = true, why = \"...\" }`".into()),
            LoadError::RemovesNothing { nearest, .. } => Some(match nearest {
                Some(near) => format!("did you mean `!{}`?", shown(near)),
                None => "`!` removes an entry that a profile named in `extends` wrote".into(),
            }),
            LoadError::Ambiguous { .. } => Some("name one with -p".into()),
            LoadError::Unreadable { .. }
            | LoadError::NotUtf8 { .. }
            | LoadError::TooLarge { .. }
            | LoadError::Syntax { .. }
            | LoadError::WrongType { .. }
            | LoadError::Circle { .. }
            | LoadError::TooMany { .. } => None,
        }
    }
}

/// Something the user should know, and that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub place: Place,
    pub text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}
