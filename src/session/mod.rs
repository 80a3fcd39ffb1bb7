//! One run from its start to its settled end.

mod limit;
pub mod signals;
pub mod supervise;
pub mod terminal;
