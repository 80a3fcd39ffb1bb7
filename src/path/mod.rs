//! Paths of the host: canonical, resolved beneath a descriptor, with every symlink on the way recorded; patterns; and
//! the one walk of a root. This room never follows a symlink on anyone's behalf without saying so, and judges nothing.

pub mod pattern;
mod plain;
mod resolve;
mod scan;

pub use plain::open_plain;
pub use resolve::{
    FileId, HostPath, Kind, Link, ResolveError, Resolved, is_at_or_below, lexical, resolve, resolve_existing,
};
pub use scan::{Found, Judge, Linked, ScanNotice, Verdict, found, identity, linked, scan, without_trace};
