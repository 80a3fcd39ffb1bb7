//! The one integration crate: the compiled `agentbox` is run against the real kernel, as root and as an ordinary user.
//!
//! A test of a denial asserts the exact errno and the untouched sentinel, and its positive twin (the same probe,
//! unsandboxed or granted) succeeds in the same run. See `common` for the harness and its environment variables.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test stops at the first surprise and says where"
)]
#![allow(
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "tests work in directories of their own and read their own environment"
)]

mod agree;
mod backup;
mod backup_replay;
mod common;
mod docs;
mod escape;
mod fault;
mod field_builds;
mod field_common;
mod field_hide;
mod field_net;
mod field_paths;
mod field_policy;
mod field_process;
mod field_review;
mod field_roots;
mod field_speed;
mod field_start;
mod field_tools;
mod git;
mod guard;
mod layering;
mod pitfalls;
