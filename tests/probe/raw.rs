//! System calls by number, and tries in a process of their own.

use crate::Answer;
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use std::ffi::CString;
use std::os::fd::{FromRawFd, OwnedFd};

/// One system call. Pointers are passed as numbers; the kernel checks them, as it does for everybody.
pub fn call(number: libc::c_long, args: &[usize]) -> Result<usize, Errno> {
    let mut six = [0; 6];
    six[..args.len()].copy_from_slice(args);
    let [a, b, c, d, e, f] = six;
    // SAFETY: every buffer that a try passes by address outlives this call; wrong addresses are answered with EFAULT.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    Errno::result(result).map(|value| usize::try_from(value).expect("a result that is no error is not negative"))
}

/// The same where only the error matters.
pub fn attempt(number: libc::c_long, args: &[usize]) -> Answer {
    call(number, args).map(|_| String::new())
}

/// A call whose result is a descriptor.
pub fn descriptor(number: libc::c_long, args: &[usize]) -> Result<OwnedFd, Errno> {
    let fd = i32::try_from(call(number, args)?).expect("a descriptor is small");
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A path for the kernel.
pub fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL in an argument")
}

/// AT_FDCWD as an argument.
pub const CWD: usize = libc::AT_FDCWD as isize as usize;

/// -1 as an argument.
pub const MINUS: usize = usize::MAX;

/// Runs the try in a child: its errno, or the name of the signal that ended it.
pub fn in_child(body: impl FnOnce() -> Answer) -> Answer {
    // SAFETY: the probe has a single thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let code = body().map_or_else(|errno| errno as i32, |_| 0);
            // SAFETY: ends this process only.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(String::new()),
            WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            WaitStatus::Signaled(_, signal, _) => Ok(signal.as_str().to_owned()),
            other => Ok(format!("{other:?}")),
        },
    }
}

/// A number in decimal, octal (`0o`) or hexadecimal (`0x`); negative ones wrap as they do in a register.
pub fn number(text: &str) -> usize {
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(hex), _) => usize::from_str_radix(hex, 16),
        (_, Some(octal)) => usize::from_str_radix(octal, 8),
        _ => return text.parse::<isize>().expect("a number").cast_unsigned(),
    };
    parsed.expect("a number")
}
