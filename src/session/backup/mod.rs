//! Backups of a live run: before a file is changed for the first time it is kept, and the journal says what happened.
//!
//! ```text
//! sessions/ID/backup/journal    one entry a line, in the order of the changes
//! sessions/ID/backup/files/N    what stood there before: a second name of the file, or a copy of its content
//! ```
//! Nothing of it exists before the first change, so a run that changes nothing makes nothing and costs nothing.
//!
//! Nothing is synced to disk: an entry and its file are the kernel's before the change goes on, so they outlive the
//! command, the supervisor and a crash of either; a power cut may lose them as it may lose the change.

mod copy;
pub mod journal;
mod keeper;
mod node;
mod own;
mod service;

pub use journal::{Entry, Journal, JournalError, What};
pub use keeper::{Kept, Rules};
pub use node::{Attribute, Identity, Kind, Node, Stored};
pub use service::{Service, Start};
