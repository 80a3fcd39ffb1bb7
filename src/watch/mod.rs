//! What goes on inside, seen from outside while the command runs. Nothing here decides: the judge is the policy's.
//! Everything runs in the supervisor's one loop, and never touches a mount of the box: that would wait for itself.

pub mod fuse;
pub mod veil;
