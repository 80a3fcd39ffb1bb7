//! The TOML as written. This room reads profiles and says where each line stands; it never resolves a path, never
//! looks at the file system beyond the profile files themselves, and never decides anything.

mod schema;

pub use schema::{
    DiffStyle, Environment, Filesystem, Grant, GrantAccess, HomeMode, Layer, Limits, Mode, NetMode, Network, Origin,
    PathEntry, Profile, Run, Written,
};
