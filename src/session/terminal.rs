//! The launcher's controlling terminal: who holds it, and in which state it was.
//!
//! Everything here runs with SIGTTOU blocked (`Signals`), or a call from a background group would stop the launcher.

use crate::enforce::pid1;
use nix::errno::Errno;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use rustix::fs::{FileType, Mode, OFlags};
use std::io::{stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A controlling terminal, from which the box can borrow the foreground.
#[derive(Debug)]
pub struct Terminal {
    fd: OwnedFd,
    /// The launcher's process group: what a shell calls the job.
    job: Pid,
    /// Set while a group of the box is, or was last, the foreground group.
    loan: Option<Loan>,
    /// The box has held the foreground once, so it gets it back when the job is continued in the foreground.
    wanted: bool,
    /// How the command had the terminal when it was stopped.
    of_command: Option<Termios>,
    eager: bool,
}

#[derive(Debug)]
struct Loan {
    /// The terminal's state when it was lent: what the launcher's caller expects back.
    before: Option<Termios>,
}

/// A standard descriptor that must not go into the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryAsStdio {
    pub name: &'static str,
}

impl std::fmt::Display for DirectoryAsStdio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is a directory, from which the command could reach the whole host by `..`", self.name)
    }
}

impl std::error::Error for DirectoryAsStdio {}

/// Refuses a directory as stdin, stdout or stderr: it needs no path to be walked from, so no mount holds it.
///
/// # Errors
/// The first of the three that is a directory.
pub fn check_stdio() -> Result<(), DirectoryAsStdio> {
    let (input, output, errors) = (stdin(), stdout(), stderr());
    let all: [(&'static str, BorrowedFd<'_>); 3] =
        [("stdin", input.as_fd()), ("stdout", output.as_fd()), ("stderr", errors.as_fd())];
    for (name, fd) in all {
        // One that is closed or that cannot be asked is no directory that anything could be opened from.
        if rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
            return Err(DirectoryAsStdio { name });
        }
    }
    Ok(())
}

impl Terminal {
    /// The controlling terminal, if there is one. Decides whether the command starts in its foreground: when the
    /// launcher is in the foreground and the three standard descriptors are this terminal. In a pipeline another
    /// member of the job may need it, so there the command gets it when it first asks.
    pub fn find() -> Option<Terminal> {
        let fd = open_controlling_terminal()?;
        let job = getpgrp();
        let holder = tcgetpgrp(&fd).ok()?;
        // ENOTTY for any terminal but the controlling one.
        let eager =
            holder == job && tcgetpgrp(stdin()).is_ok() && tcgetpgrp(stdout()).is_ok() && tcgetpgrp(stderr()).is_ok();
        let mut terminal = Terminal { fd, job, loan: None, wanted: false, of_command: None, eager };
        if eager {
            terminal.lend();
        }
        Some(terminal)
    }

    /// A share for pid 1: its own descriptor of the terminal.
    pub(super) fn share(&self) -> Option<pid1::Terminal> {
        let fd = self.fd.try_clone().ok()?;
        Some(pid1::Terminal { fd, name: name_of_standard_terminal(), foreground: self.eager })
    }

    pub(super) fn job_holds_it(&self) -> bool {
        tcgetpgrp(&self.fd) == Ok(self.job)
    }

    /// A group of the box is the foreground group, as far as can be seen from here. A terminal that hung up counts as
    /// still held: the kernel has told the group that held it.
    pub(super) fn box_holds_it(&self) -> bool {
        self.loan.is_some() && !self.job_holds_it()
    }

    pub(super) fn wanted(&self) -> bool {
        self.wanted
    }

    /// Notes the state to restore, and puts back the command's own. The caller has pid 1 make the command's group the
    /// foreground group: its number is known inside only.
    pub(super) fn lend(&mut self) {
        self.wanted = true;
        if self.loan.is_none() {
            self.loan = Some(Loan { before: tcgetattr(&self.fd).ok() });
        }
        if let Some(state) = self.of_command.take() {
            set_state(self.fd.as_fd(), &state);
        }
    }

    /// Takes the terminal back from a command that was stopped, and keeps its state for later. With `held_by_box`
    /// false a shell has the terminal already, and neither its foreground group nor its state is ours to touch.
    pub(super) fn take_back(&mut self, held_by_box: bool) {
        let Some(loan) = self.loan.take() else { return };
        if !held_by_box {
            return;
        }
        self.of_command = tcgetattr(&self.fd).ok();
        // It fails on a terminal that hung up, and then there is nothing to take.
        tcsetpgrp(&self.fd, self.job).ok();
        if let Some(before) = loan.before {
            set_state(self.fd.as_fd(), &before);
        }
    }

    /// After the end of the box: the foreground group and the state are as they were, however the command ended.
    pub(super) fn restore(&mut self) {
        let Some(loan) = self.loan.take() else { return };
        let Ok(holder) = tcgetpgrp(&self.fd) else { return };
        if holder != self.job {
            // All of the box is dead. A living holder is another job, which a shell put there: it is not ours to touch.
            if nix::sys::signal::killpg(holder, None) != Err(Errno::ESRCH) {
                return;
            }
            if tcsetpgrp(&self.fd, self.job).is_err() {
                return;
            }
        }
        if let Some(before) = loan.before {
            set_state(self.fd.as_fd(), &before);
        }
    }
}

/// At once, not after the output has drained: nobody may be reading the other side any more.
fn set_state(terminal: BorrowedFd<'_>, state: &Termios) {
    if tcgetattr(terminal).as_ref() != Ok(state) {
        // It fails on a terminal that hung up, and then there is nothing to restore.
        tcsetattr(terminal, SetArg::TCSANOW, state).ok();
    }
}

/// The name of the controlling terminal by which a standard descriptor holds it. Not `/dev/tty`, which is another
/// terminal for whoever opens it elsewhere (tty(4)).
fn name_of_standard_terminal() -> Option<PathBuf> {
    let (input, output, errors) = (stdin(), stdout(), stderr());
    [input.as_fd(), output.as_fd(), errors.as_fd()].into_iter().find_map(|fd| {
        // ENOTTY for any terminal but the controlling one.
        tcgetpgrp(fd).ok()?;
        // It compares device and inode: a name that is another terminal's here (`docker exec`) is no answer.
        nix::unistd::ttyname(fd).ok().filter(|name| name != Path::new("/dev/tty"))
    })
}

fn open_controlling_terminal() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::open("/dev/tty", flags, Mode::empty()) {
        Ok(fd) => Some(fd),
        // The kernel's word that there is none.
        Err(rustix::io::Errno::NXIO) => None,
        // No such device file here (a container, a box): a standard descriptor may still be it.
        Err(_) => {
            let (input, output, errors) = (stdin(), stdout(), stderr());
            let all = [input.as_fd(), output.as_fd(), errors.as_fd()];
            let fd = all.into_iter().find(|fd| tcgetpgrp(fd).is_ok())?;
            fd.try_clone_to_owned().ok()
        }
    }
}
