//! Tries on terminals: each in a child that leads a session of its own, with a terminal of its own.

use crate::raw::{CWD, attempt, call, in_child, number};
use crate::{Answer, Try};

pub const TRIES: &[Try] = &[
    ("tiocsti", |_| on_own(|fd| ioctl(fd, TIOCSTI, c"x".as_ptr() as usize))),
    ("tiocsti-high", |_| on_own(|fd| ioctl(fd, TIOCSTI | 1 << 32, c"x".as_ptr() as usize))),
    ("tioclinux", |_| on_own(|fd| ioctl(fd, TIOCLINUX, c"\x02".as_ptr() as usize))),
    ("tioclinux-high", |_| on_own(|fd| ioctl(fd, TIOCLINUX | 1 << 32, c"\x02".as_ptr() as usize))),
    ("tiocsetd", |_| on_own(|fd| ioctl(fd, TIOCSETD, (&raw const LINE_DISCIPLINE) as usize))),
    ("winsize", |_| on_own(|fd| ioctl(fd, libc::TIOCGWINSZ as usize, [0_u16; 4].as_mut_ptr() as usize))),
    ("ioctl", |a| ioctl(number(&a[0]), number(&a[1]), c"x".as_ptr() as usize)),
];

const TIOCSTI: usize = libc::TIOCSTI as usize;
const TIOCLINUX: usize = libc::TIOCLINUX as usize;
const TIOCSETD: usize = 0x5423;
static LINE_DISCIPLINE: i32 = 0; // N_TTY, which it has already

fn ioctl(fd: usize, request: usize, arg: usize) -> Answer {
    attempt(libc::SYS_ioctl, &[fd, request, arg])
}

/// Runs the try in a child whose controlling terminal is a fresh one.
fn on_own(body: impl FnOnce(usize) -> Answer) -> Answer {
    in_child(|| {
        nix::unistd::setsid()?;
        let flags = libc::O_RDWR as usize;
        let master = call(libc::SYS_openat, &[CWD, c"/dev/ptmx".as_ptr() as usize, flags])?;
        let unlock = 0_i32;
        call(libc::SYS_ioctl, &[master, libc::TIOCSPTLCK as usize, (&raw const unlock) as usize])?;
        let slave = call(libc::SYS_ioctl, &[master, libc::TIOCGPTPEER as usize, flags])?;
        call(libc::SYS_ioctl, &[slave, libc::TIOCSCTTY as usize, 0])?;
        body(slave)
    })
}
