//! One run from its start to its settled end.
