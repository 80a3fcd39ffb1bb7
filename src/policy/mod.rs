//! The resolved policy and the one judge.
