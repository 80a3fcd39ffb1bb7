//! `deny_syscall NAME[,NAME...] COMMAND [ARG...]`: runs a command for which these system calls answer ENOSYS, as on a
//! kernel without them. For tests/doctor.rs.
#![expect(clippy::print_stderr, reason = "a test program")]

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn number(name: &str) -> Option<i64> {
    Some(match name {
        "clone3" => libc::SYS_clone3,
        "fsopen" => libc::SYS_fsopen,
        "landlock_create_ruleset" => libc::SYS_landlock_create_ruleset,
        "mount_setattr" => libc::SYS_mount_setattr,
        "openat2" => libc::SYS_openat2,
        // Also as prctl(PR_SET_SECCOMP), which glibc and seccompiler may use: not covered here.
        "seccomp" => libc::SYS_seccomp,
        _ => return None,
    })
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let names = args.next().and_then(|arg| arg.into_string().ok()).unwrap_or_default();
    let Some(command) = args.next() else {
        eprintln!("usage: deny_syscall NAME[,NAME...] COMMAND [ARG...]");
        return ExitCode::from(2);
    };
    match deny(&names) {
        Ok(()) => eprintln!("deny_syscall: {}", Command::new(command).args(args).exec()),
        Err(err) => eprintln!("deny_syscall: {err}"),
    }
    ExitCode::from(2)
}

fn deny(names: &str) -> Result<(), Box<dyn Error>> {
    let rule = |name: &str| number(name).map(|number| (number, Vec::new())).ok_or(format!("unknown call {name}"));
    let rules = names.split(',').map(rule).collect::<Result<_, _>>()?;
    let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::try_from(std::env::consts::ARCH)?)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    Ok(())
}
