//! What goes on around a running box, seen from outside of it.

pub mod guard;
