//! What goes on in and around a running box, seen from outside of it. It trusts nothing that comes from inside, and
//! decides nothing: the judge is the policy's. What answers the box does so in the supervisor's one loop, and never
//! touches a mount of the box that it serves: that would wait for itself.

pub mod fuse;
pub mod guard;
pub mod made;
pub mod notify;
pub mod veil;
