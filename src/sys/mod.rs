//! Thin typed kernel calls that neither nix nor rustix wraps. The only room with `unsafe`; it knows nothing of agentbox.
#![allow(unsafe_code)]

mod argv;
pub mod changing;
mod clone;
mod file;
mod heap;
mod landlock;
mod memory;
mod mount;
mod namespace;
mod net;
pub mod notify;
mod process;
mod sched;
mod seal;
mod seccomp;
mod vfork;

pub use argv::erase_arguments;
pub use clone::{Child, CloneFlags, clone3, close_range_cloexec, fork_with_pidfd};
pub use file::{read_proc_record, read_whole};
pub use heap::Heap;
pub use landlock::{landlock_abi, landlock_allow, landlock_restrict};
pub use memory::{SHORT_WAIT, forget_code};
pub use mount::{MountAttr, mount_setattr};
pub use namespace::owning_user_namespace;
pub use net::loopback_up;
pub use process::{Fork, close_all_but, default_disposition, every_signal, exit_now, fork, kill};
pub use sched::short_turns;
pub use seal::{borrow_if_open, drop_bounding, keep_open};
pub use seccomp::{FilterAction, filter_can};
pub use vfork::{note_signal, take_noted_signal, vfork};
