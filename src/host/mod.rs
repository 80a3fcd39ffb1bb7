//! Facts about kernel and caller.
