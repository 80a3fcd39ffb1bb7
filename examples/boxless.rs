//! `boxless [--limit SECONDS] [--abort | --desert] -- COMMAND [ARG...]`: pid 1 and the supervisor around namespaces that bound
//! nothing, for tests/process.rs. No mounts but /proc, no Landlock, no seccomp: not a sandbox.
#![expect(clippy::print_stderr, reason = "a test program")]

use agentbox::enforce::pid1;
use agentbox::enforce::wire::{self, Failure, FailureKind, Report, Wait};
use agentbox::session::signals::Signals;
use agentbox::session::supervise::{Outcome, Watched, supervise};
use agentbox::session::terminal::{Terminal, check_stdio};
use agentbox::sys::{Child, CloneFlags, clone3};
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// Pid 1 dies during the setup.
    InitAborts,
    /// The supervisor is dead before pid 1 asks for its death signal.
    SupervisorDies,
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (mut limit, mut trouble) = (None, Trouble::None);
    loop {
        match args.next().as_ref().and_then(|arg| arg.to_str()) {
            Some("--limit") => {
                limit = args.next().and_then(|arg| arg.to_str()?.parse().ok()).map(Duration::from_secs_f64)
            }
            Some("--abort") => trouble = Trouble::InitAborts,
            Some("--desert") => trouble = Trouble::SupervisorDies,
            Some("--") => break,
            Some(_) | None => {
                return refuse("usage: boxless [--limit SECONDS] [--abort | --desert] -- COMMAND [ARG...]");
            }
        }
    }
    if let Err(err) = check_stdio() {
        return refuse(&err.to_string());
    }
    match run(args.collect(), limit, trouble) {
        Ok(Outcome::Ended { timed_out: true, .. }) => ExitCode::from(124),
        Ok(Outcome::Ended { ended, .. }) => ExitCode::from(ended.status()),
        Ok(Outcome::Failed(failure)) => {
            eprintln!("boxless: {}", failure.text);
            ExitCode::from(failure.kind.status())
        }
        Err(err) => refuse(&err.to_string()),
    }
}

fn refuse(text: &str) -> ExitCode {
    eprintln!("boxless: {text}");
    ExitCode::from(125)
}

fn run(args: Vec<OsString>, limit: Option<Duration>, trouble: Trouble) -> Result<Outcome, Box<dyn std::error::Error>> {
    let args = args.into_iter().map(|arg| CString::new(arg.into_vec())).collect::<Result<Vec<_>, _>>()?;
    let env = std::env::vars_os()
        .map(|(name, value)| CString::new([name.into_vec(), value.into_vec()].join(&b'=')))
        .collect::<Result<Vec<_>, _>>()?;
    // Inside, before the map exists, both read as the overflow id.
    let ids = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    let terminal = Terminal::find();
    let (outside, inside) = wire::pair()?;
    let signals = Signals::block()?;
    match clone3(CloneFlags(CloneFlags::USER | CloneFlags::PID | CloneFlags::MOUNT))? {
        Child::Outside { pid, pidfd } => {
            drop(inside);
            if trouble == Trouble::SupervisorDies {
                agentbox::sys::exit_now(0);
            }
            let watched = Watched { pid, pidfd, channel: outside };
            Ok(supervise(&watched, &signals, terminal, limit)?)
        }
        Child::Inside => {
            if trouble == Trouble::SupervisorDies {
                std::thread::sleep(Duration::from_millis(300));
            }
            if let Err(err) = pid1::bind_to_parent(inside.as_fd(), outside) {
                eprintln!("boxless: {err}");
                agentbox::sys::exit_now(1);
            }
            if trouble == Trouble::InitAborts {
                std::process::abort();
            }
            stages(inside, terminal, ids, &args, &env)
        }
    }
}

fn stages(inside: OwnedFd, terminal: Option<Terminal>, ids: (u32, u32), args: &[CString], env: &[CString]) -> ! {
    let (uid, gid) = ids;
    if let Err(err) = set_up(uid, gid) {
        let failure = Failure { kind: FailureKind::Setup, text: err.to_string(), hints: Vec::new() };
        wire::send_report(inside.as_fd(), &Report::Failed(failure), Wait::Yes).ok();
        agentbox::sys::exit_now(1);
    }
    pid1::run(inside, terminal.map(Terminal::into_inside), || {
        let failed = |err: nix::Error| Failure {
            kind: FailureKind::of_exec(rustix::io::Errno::from_raw_os_error(err as i32)),
            text: format!("{}: {err}", args[0].to_string_lossy()),
            hints: Vec::new(),
        };
        match nix::unistd::execvpe(&args[0], args, env) {
            Ok(never) => match never {},
            Err(err) => failed(err),
        }
    })
}

fn set_up(uid: u32, gid: u32) -> std::io::Result<()> {
    for (file, text) in
        [("setgroups", "deny".to_owned()), ("uid_map", format!("{uid} {uid} 1")), ("gid_map", format!("{gid} {gid} 1"))]
    {
        let fd = rustix::fs::open(format!("/proc/self/{file}"), rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())?;
        rustix::io::write(&fd, text.as_bytes())?;
    }
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    rustix::mount::mount("proc", "/proc", "proc", rustix::mount::MountFlags::empty(), None)?;
    pid1::hide()?;
    Ok(())
}
