//! What goes on in and around a running box, seen from outside of it. It trusts nothing that comes from inside.

pub mod guard;
pub mod made;
pub mod notify;
