//! The harness: where the programs are, a place of its own for each test, skips that are seen, and the check that a
//! run left nothing behind.
//!
//! | variable | meaning |
//! |---|---|
//! | `AGENTBOX_TEST_BIN` | the agentbox to test, instead of the one that cargo built |
//! | `AGENTBOX_TEST_PROBE` | the probe, instead of `examples/probe` beside the test binary |
//! | `AGENTBOX_TEST_REQUIRE=all` | a skip is a failure |
//! | `AGENTBOX_TEST_SKIPS` | a file that each skip is appended to, one line each |
//! | `AGENTBOX_TEST_FULL=1` | every index of the fault driver instead of a sample |
//! | `AGENTBOX_TEST_SOURCE` | the source tree, for the tests that read it |
#![allow(dead_code, reason = "each group of tests uses its own part of the harness")]

mod leftovers;
mod place;

pub use leftovers::Leftovers;
pub use place::{Output, Place};

use std::io::Write;
use std::path::{Path, PathBuf};

/// The programs under test.
pub struct Bin;

impl Bin {
    /// The absolute path of the agentbox under test.
    pub fn agentbox() -> PathBuf {
        std::env::var_os("AGENTBOX_TEST_BIN")
            .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_agentbox")), PathBuf::from)
    }

    /// The absolute path of the probe.
    pub fn probe() -> PathBuf {
        if let Some(given) = std::env::var_os("AGENTBOX_TEST_PROBE") {
            return PathBuf::from(given);
        }
        let test = std::env::current_exe().expect("the test binary has a path");
        let target = test.parent().and_then(Path::parent).expect("the test binary lies in target/PROFILE/deps");
        let probe = target.join("examples/probe");
        assert!(probe.exists(), "{} is missing: cargo build --example probe", probe.display());
        probe
    }
}

/// Whether the suite runs as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether the slow, complete form of a test is asked for.
pub fn full() -> bool {
    std::env::var_os("AGENTBOX_TEST_FULL").is_some_and(|v| v == "1")
}

/// The source tree, or `None` where only the binaries were copied (the ordinary user's run). The root run covers the
/// tests that need it, so this is not a skip there.
pub fn source() -> Option<PathBuf> {
    let dir = std::env::var_os("AGENTBOX_TEST_SOURCE")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    std::fs::read_dir(dir.join("src")).is_ok().then_some(dir)
}

/// Says that the running test cannot be held here and why: `return skip("no strace")`. The line goes past the
/// capture of the test runner, and is a failure under `AGENTBOX_TEST_REQUIRE=all`.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("SKIP {}: {reason}\n", thread.name().unwrap_or("?"));
    if std::env::var_os("AGENTBOX_TEST_REQUIRE").is_some_and(|v| v == "all") {
        panic!("skips are failures here: {line}");
    }
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is writable");
    if let Some(file) = std::env::var_os("AGENTBOX_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("the list of skips");
        file.write_all(line.as_bytes()).expect("the list of skips is writable");
    }
}

/// Whether a program is found on the usual PATH.
pub fn has(program: &str) -> bool {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}
