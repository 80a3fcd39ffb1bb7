//! The TOML as written. This room reads profiles and says where each line stands; it never resolves a path, never
//! looks at the file system beyond the profile files themselves, and never decides anything.

mod builtin;
mod error;
mod item;
mod keys;
mod load;
mod merge;
mod narrow;
mod quick;
mod read;
mod schema;
mod show;
#[cfg(test)]
mod tests;
mod value;

pub use builtin::{BUILT_IN, built_in};
pub use error::{LoadError, Notice, Place};
pub use load::{Listed, Loader};
pub use schema::{
    DiffStyle, Environment, Filesystem, GitAccess, Grant, GrantAccess, HomeMode, Layer, Limits, Mode, NetMode, Network,
    Origin, PathEntry, Profile, Run, Text, Written,
};
pub use show::Shown;
pub use value::{
    LIMIT_KEYS, ValueError, Word, check_glob, check_variable, parse_duration, parse_grant, parse_size, parse_word,
};
