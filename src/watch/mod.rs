//! What goes on inside, seen from outside. It changes nothing in the box, and trusts nothing that comes from there.

pub mod made;
pub mod notify;
