//! Tricks on the terminal.

use super::{Twin, held};

/// Characters pushed into the terminal's input, for the shell outside to run. The kernel looks at the low 32 bits of
/// the request only, and so must the filter.
#[test]
fn pushed_input() {
    let refused = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").is_ok_and(|text| text.trim() == "0");
    let outside = Twin::Bare(if refused && !crate::common::is_root() { "EIO" } else { "ok" });
    held(&[("tiocsti", "EPERM", outside), ("tiocsti-high", "EPERM", outside)]);
}

/// The console's paste. On a terminal that is not a console the kernel says ENOTTY, so it was asked.
#[test]
fn console_paste() {
    held(&[("tioclinux", "EPERM", Twin::Bare("ENOTTY")), ("tioclinux-high", "EPERM", Twin::Bare("ENOTTY"))]);
}

/// Another line discipline is driver code that no program here needs.
#[test]
fn line_discipline() {
    held(&[("tiocsetd", "EPERM", Twin::Bare("ok")), ("winsize", "ok", Twin::Bare("ok"))]);
}
