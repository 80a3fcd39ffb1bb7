//! One run from its start to its settled end.

pub mod signals;
pub mod supervise;
pub mod terminal;
