//! The filter that tells the supervisor of system calls which change files, and the way of its listener out of the box.
//! A filter beside the deny list, for seccompiler knows no such answer. Of several filters the strictest answer counts:
//! what the list refuses or kills is never asked about, so this one need not look at the architecture.

use super::StepError;
use super::wire::{self, Report, Wait};
use crate::plan::hints;
use crate::sys::changing::{CHANGING, Changes, WRITING};
use crate::sys::notify::{Instruction, install_listener, read_memory};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;

/// Installs the filter on this process and sends its listener to the supervisor. In the command's process, right before
/// the deny list: from here on nothing of this process may change a file by name, for it would wait for itself.
///
/// The command must not keep the listener, or it could answer for the supervisor: it is closed here.
pub(super) fn install(channel: BorrowedFd<'_>) -> Result<(), StepError> {
    let fail = |err: &dyn std::fmt::Display| StepError::new("seccomp notification", err).hint(hints::NOTIFY);
    if !can_be_served() {
        return wire::send_report(channel, &Report::NoListener, Wait::Yes).map_err(|err| fail(&err));
    }
    let told = match install_listener(&program()) {
        Ok(listener) => wire::send_listener(channel, listener.as_fd()),
        // One listener at a time: an agentbox around this one has it (seccomp(2)).
        Err(Errno::BUSY) => wire::send_report(channel, &Report::NoListener, Wait::Yes),
        Err(errno) => return Err(fail(&errno)),
    };
    told.map_err(|err| fail(&err))
}

/// Can the supervisor read the memory and resolve the paths of others? A filter around both of them holds here as there:
/// a box of agentbox's has one that lets nobody.
fn can_be_served() -> bool {
    let here = 0u64;
    let read = read_memory(std::process::id(), (&raw const here).addr() as u64, &mut [0; 8]);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(rustix::fs::CWD, "/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    read.is_ok() && opened.is_ok()
}

/// Numbers in a row that are told of without a look at an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u32,
    last: u32,
}

/// Ranges in ascending order, so that most calls leave at the first comparison that is above them: the kernel emulates
/// the program once for every system call when it is installed, and its length is launch time.
fn program() -> Vec<Instruction> {
    let mut always = Vec::new();
    // Number, and the argument with the flags.
    let mut by_flags = Vec::new();
    for call in CHANGING.iter().copied().flatten() {
        let number = call.number as u32;
        if let Changes::Open { flags: Some(flags), .. } = call.changes {
            by_flags.push((number, flags as u32));
        } else {
            always.push(number);
        }
    }
    always.sort_unstable();
    let mut out = vec![step(LOAD, 0, 0, 0)];
    for (number, flags) in by_flags {
        out.extend([
            step(EQUAL, number, 0, 4),
            // The low half of the argument: flags are an int.
            step(LOAD, 16 + 8 * flags, 0, 0),
            step(ANY_BIT, WRITING, 0, 1),
            step(RETURN, RET_USER_NOTIF, 0, 0),
            step(RETURN, RET_ALLOW, 0, 0),
        ]);
    }
    for Run { first, last } in runs(&always) {
        out.extend([
            step(AT_LEAST, first, 1, 0),
            step(RETURN, RET_ALLOW, 0, 0),
            step(ABOVE, last, 1, 0),
            step(RETURN, RET_USER_NOTIF, 0, 0),
        ]);
    }
    out.push(step(RETURN, RET_ALLOW, 0, 0));
    out
}

fn runs(numbers: &[u32]) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for &number in numbers {
        match out.last_mut() {
            Some(run) if run.last + 1 == number => run.last = number,
            _ => out.push(Run { first: number, last: number }),
        }
    }
    out
}

fn step(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does.
    fn run(program: &[Instruction], nr: u32, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(nr.to_ne_bytes());
        data.extend([0; 12]);
        args.iter().for_each(|arg| data.extend(arg.to_ne_bytes()));
        let (mut at, mut acc) = (0usize, 0u32);
        loop {
            let step = &program[at];
            at += 1;
            let branch = |hit: bool| if hit { usize::from(step.jt) } else { usize::from(step.jf) };
            match step.code {
                LOAD => acc = u32::from_ne_bytes(data[step.k as usize..][..4].try_into().unwrap()),
                AT_LEAST => at += branch(acc >= step.k),
                ABOVE => at += branch(acc > step.k),
                EQUAL => at += branch(acc == step.k),
                ANY_BIT => at += branch(acc & step.k != 0),
                RETURN => return step.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn what_changes_a_file_is_told_and_nothing_else() {
        let program = program();
        for nr in 0..600 {
            let call = CHANGING.iter().copied().flatten().find(|call| call.number == i64::from(nr));
            let by_flags = call.is_some_and(|call| matches!(call.changes, Changes::Open { flags: Some(_), .. }));
            let expected = if call.is_some() && !by_flags { RET_USER_NOTIF } else { RET_ALLOW };
            assert_eq!(run(&program, nr, [0; 6]), expected, "{nr}");
        }
        let openat = |flags: i32| run(&program, libc::SYS_openat as u32, [0, 0, flags as u32 as u64, 0, 0, 0]);
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE | libc::O_WRONLY] {
            assert_eq!(openat(flags), RET_USER_NOTIF, "{flags:#o}");
            assert_eq!(openat(flags | libc::O_CLOEXEC), RET_USER_NOTIF, "{flags:#o}");
        }
        for flags in [libc::O_RDONLY, libc::O_DIRECTORY, libc::O_PATH, libc::O_CLOEXEC | libc::O_NOFOLLOW] {
            assert_eq!(openat(flags), RET_ALLOW, "{flags:#o}");
        }
        assert_eq!(run(&program, libc::SYS_openat as u32, [0, 0, 0xffff_0000_0000, 0, 0, 0]), RET_ALLOW, "low half");
    }
}
