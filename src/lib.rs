//! agentbox: a sandbox launcher for Linux.
//!
//! Data flows one way. The rooms, and what each may import, are in `docs/architecture.md`; `tests/layering.rs` holds
//! the table there against the `use` lines here.

pub mod cli;
pub mod enforce;
pub mod host;
pub mod path;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod report;
pub mod session;
pub mod sys;
pub mod watch;
