//! What the machine allows, for `doctor`: read from files and asked by calls that change nothing. Trying namespaces is
//! not done here.

use crate::sys::{self, FilterAction};
use rustix::fs::{Access, Mode, OFlags};
use std::path::{Path, PathBuf};

/// A setting below /proc/sys as the kernel shows it; `None` where this kernel has no such setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: Option<String>,
}

/// The kind of machine around this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    Plain,
    /// A container, and what told so.
    Container(String),
    /// Windows' first subsystem for Linux, which has no Linux kernel.
    Wsl1,
    Wsl2,
}

#[derive(Debug, Clone)]
pub struct System {
    /// The kernel's release, as uname -r prints it.
    pub release: String,
    pub machine: Machine,
    /// The running binary, as the kernel names it.
    pub program: PathBuf,
    pub is_root: bool,
    pub max_user_namespaces: Setting,
    pub unprivileged_userns_clone: Setting,
    pub apparmor_restrict: Setting,
    pub legacy_tiocsti: Setting,
    pub landlock_abi: u32,
    pub filters: bool,
    pub notifications: bool,
    /// Why /dev/fuse cannot be opened.
    pub fuse: Result<(), String>,
}

impl System {
    pub fn probe() -> System {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        System {
            machine: machine(&release),
            release,
            program: std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| PathBuf::from("/usr/bin/agentbox")),
            is_root: rustix::process::geteuid().is_root(),
            max_user_namespaces: setting("user.max_user_namespaces"),
            unprivileged_userns_clone: setting("kernel.unprivileged_userns_clone"),
            apparmor_restrict: setting("kernel.apparmor_restrict_unprivileged_userns"),
            legacy_tiocsti: setting("dev.tty.legacy_tiocsti"),
            landlock_abi: sys::landlock_abi(),
            filters: sys::filter_can(FilterAction::ERRNO),
            notifications: sys::filter_can(FilterAction::USER_NOTIF),
            fuse: rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
                .map(drop)
                .map_err(|errno| errno.to_string()),
        }
    }
}

/// Is a seccomp filter on this process? The mark of a container or a sandbox around it.
pub fn is_filtered() -> bool {
    let status = sys::read_whole("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("Seccomp:")).is_some_and(|mode| mode.trim() == "2")
}

fn setting(name: &'static str) -> Setting {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    let value = std::fs::read_to_string(path).ok().map(|value| value.trim().to_owned());
    Setting { name, value }
}

fn machine(release: &str) -> Machine {
    let lower = release.to_ascii_lowercase();
    if lower.contains("microsoft") {
        return if lower.contains("wsl2") || lower.contains("standard") { Machine::Wsl2 } else { Machine::Wsl1 };
    }
    for mark in ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"] {
        if rustix::fs::access(mark, Access::EXISTS).is_ok() {
            return Machine::Container(mark.to_owned());
        }
    }
    Machine::Plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_subsystems_are_told_apart() {
        assert_eq!(machine("4.4.0-19041-Microsoft"), Machine::Wsl1);
        assert_eq!(machine("5.15.90.1-microsoft-standard-WSL2"), Machine::Wsl2);
    }
}
