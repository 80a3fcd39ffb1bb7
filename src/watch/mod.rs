//! What goes on in and around a running box, seen from outside of it. It trusts nothing that comes from inside, and
//! decides nothing: the judge is the policy's. What serves a file system of the box is a process of its own, which touches no
//! mount of the box and no layer of its overlays: that would wait for itself, with locks of the host's file system held.

pub mod fuse;
pub mod guard;
mod helper;
pub mod made;
pub mod notify;
pub mod veil;
