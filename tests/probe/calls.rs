//! Tries of system calls that a filter must stop, by name.

use crate::raw::{CWD, MINUS, attempt, c, call, descriptor, in_child, number};
use crate::{Answer, Try};
use nix::errno::Errno;
use std::os::fd::AsRawFd;

pub const TRIES: &[Try] = &[
    ("syscall", |a| {
        let args = a[1..].iter().map(|arg| number(arg)).collect::<Vec<_>>();
        let nr = a[0].parse().unwrap_or_else(|_| by_name(&a[0]));
        in_child(|| attempt(nr, &args))
    }),
    ("ones", ones),
    ("x32", |_| in_child(x32)),
    ("i386", |_| in_child(i386)),
    ("clone3", |_| clone3(0)),
    ("clone3-newuser", |_| clone3(libc::CLONE_NEWUSER as u64)),
    ("ptrace", |_| in_child(|| attempt(libc::SYS_ptrace, &[libc::PTRACE_TRACEME as usize]))),
    ("ptrace-attach", |a| in_child(|| attempt(libc::SYS_ptrace, &[libc::PTRACE_SEIZE as usize, number(&a[0]), 0, 0]))),
    ("process-vm-readv", |_| process_vm(libc::SYS_process_vm_readv)),
    ("process-vm-writev", |_| process_vm(libc::SYS_process_vm_writev)),
    ("kcmp", |_| attempt(libc::SYS_kcmp, &[own(), own(), 0, 0, 1])),
    ("pidfd-getfd", |_| {
        let pidfd = descriptor(libc::SYS_pidfd_open, &[own(), 0])?;
        attempt(libc::SYS_pidfd_getfd, &[pidfd.as_raw_fd() as usize, 0, 0])
    }),
    ("add-key", |_| {
        let (kind, name) = (c("user"), c("probe"));
        let ring = (-2_isize).cast_unsigned(); // KEY_SPEC_PROCESS_KEYRING
        attempt(libc::SYS_add_key, &[kind.as_ptr() as usize, name.as_ptr() as usize, name.as_ptr() as usize, 1, ring])
    }),
    ("keyctl", |_| attempt(libc::SYS_keyctl, &[0, (-2_isize).cast_unsigned(), 1])),
    ("bpf", |_| attempt(libc::SYS_bpf, &[0, c"".as_ptr() as usize, 1 << 20])),
    ("perf-event-open", |_| perf_event_open()),
    ("userfaultfd", |_| descriptor(libc::SYS_userfaultfd, &[libc::O_CLOEXEC as usize | 1]).map(|_| String::new())),
    ("io-uring-setup", |_| {
        let mut params = [0_u8; 120];
        descriptor(libc::SYS_io_uring_setup, &[1, params.as_mut_ptr() as usize]).map(|_| String::new())
    }),
    ("name-to-handle-at", |a| {
        let mut handle = [0_u32; 40];
        handle[0] = 128;
        let mut mount = 0_i32;
        let (path, id) = (c(&a[0]), (&raw mut mount) as usize);
        attempt(libc::SYS_name_to_handle_at, &[CWD, path.as_ptr() as usize, handle.as_mut_ptr() as usize, id, 0])
    }),
    ("memfd-secret", |_| descriptor(libc::SYS_memfd_secret, &[0]).map(|_| String::new())),
    ("personality", |a| in_child(|| attempt(libc::SYS_personality, &[number(&a[0])]))),
    ("openat2", |a| {
        let how = [0_u64; 3];
        let path = c(&a[0]);
        attempt(libc::SYS_openat2, &[CWD, path.as_ptr() as usize, how.as_ptr() as usize, size_of_val(&how)])
    }),
    ("kill", |a| attempt(libc::SYS_kill, &[number(&a[0]), number(&a[1])])),
    ("setuid", |a| in_child(|| attempt(libc::SYS_setuid, &[number(&a[0])]))),
    ("setgroups", |_| in_child(|| attempt(libc::SYS_setgroups, &[0, 0]))),
    ("prctl", |a| {
        let args = a.iter().map(|arg| number(arg)).collect::<Vec<_>>();
        in_child(|| attempt(libc::SYS_prctl, &args))
    }),
    ("sethostname", |_| attempt(libc::SYS_sethostname, &[c"probe".as_ptr() as usize, 5])),
];

fn own() -> usize {
    std::process::id() as usize
}

/// `ones NAME`: the call with every argument -1, which no kernel accepts: what comes back tells whether it was asked.
fn ones(args: &[String]) -> Answer {
    let nr = by_name(&args[0]);
    in_child(|| attempt(nr, &[MINUS; 6]))
}

macro_rules! numbers {
    ($given:expr, $($name:ident $number:ident)*) => {
        match $given {
            $(stringify!($name) => libc::$number,)*
            other => panic!("the probe has no system call {other}"),
        }
    };
}

fn by_name(name: &str) -> libc::c_long {
    numbers! { name,
        acct SYS_acct add_key SYS_add_key adjtimex SYS_adjtimex bpf SYS_bpf chroot SYS_chroot
        clock_adjtime SYS_clock_adjtime clock_settime SYS_clock_settime delete_module SYS_delete_module
        fanotify_init SYS_fanotify_init fanotify_mark SYS_fanotify_mark finit_module SYS_finit_module
        fsconfig SYS_fsconfig fsmount SYS_fsmount fsopen SYS_fsopen fspick SYS_fspick getpid SYS_getpid
        init_module SYS_init_module io_uring_enter SYS_io_uring_enter io_uring_register SYS_io_uring_register
        io_uring_setup SYS_io_uring_setup ioperm SYS_ioperm iopl SYS_iopl kcmp SYS_kcmp
        kexec_file_load SYS_kexec_file_load kexec_load SYS_kexec_load keyctl SYS_keyctl mount SYS_mount
        mount_setattr SYS_mount_setattr move_mount SYS_move_mount name_to_handle_at SYS_name_to_handle_at
        open_by_handle_at SYS_open_by_handle_at open_tree SYS_open_tree perf_event_open SYS_perf_event_open
        pidfd_getfd SYS_pidfd_getfd pivot_root SYS_pivot_root process_madvise SYS_process_madvise
        process_vm_readv SYS_process_vm_readv process_vm_writev SYS_process_vm_writev ptrace SYS_ptrace
        quotactl SYS_quotactl quotactl_fd SYS_quotactl_fd reboot SYS_reboot request_key SYS_request_key
        setdomainname SYS_setdomainname sethostname SYS_sethostname setns SYS_setns settimeofday SYS_settimeofday
        swapoff SYS_swapoff swapon SYS_swapon syslog SYS_syslog umount2 SYS_umount2 unshare SYS_unshare
        userfaultfd SYS_userfaultfd
    }
}

/// getpid by its x32 number. A kernel without x32 answers ENOSYS.
fn x32() -> Answer {
    attempt(0x4000_0000 | libc::SYS_getpid, &[])
}

/// getpid by the 32-bit gate.
#[cfg(target_arch = "x86_64")]
fn i386() -> Answer {
    let pid: i64;
    // SAFETY: getpid reads and writes no memory; the gate keeps all registers but rax.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => pid, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    match i32::try_from(-pid) {
        Ok(errno) if errno > 0 => Err(Errno::from_raw(errno)),
        _ => Ok(String::new()),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn i386() -> Answer {
    Err(Errno::ENOSYS)
}

/// A real clone3 that makes a child, which ends at once.
fn clone3(flags: u64) -> Answer {
    in_child(|| {
        let args = [flags, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
        let pid = call(libc::SYS_clone3, &[args.as_ptr() as usize, size_of_val(&args)])?;
        if pid == 0 {
            // SAFETY: ends this process only.
            unsafe { libc::_exit(0) }
        }
        Ok(String::new())
    })
}

fn process_vm(nr: libc::c_long) -> Answer {
    let (mut from, mut to) = (*b"sentinel", [0_u8; 8]);
    let local = [to.as_mut_ptr() as usize, to.len()];
    let remote = [from.as_mut_ptr() as usize, from.len()];
    attempt(nr, &[own(), local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0])
}

/// A counter of page faults of this process in user space, which any user may have at the usual setting.
fn perf_event_open() -> Answer {
    let mut attr = [0_u64; 16];
    attr[0] = 1 | (128 << 32); // PERF_TYPE_SOFTWARE, size
    attr[1] = 2; // PERF_COUNT_SW_PAGE_FAULTS
    attr[5] = 1 | (1 << 5) | (1 << 6); // disabled, exclude_kernel, exclude_hv
    descriptor(libc::SYS_perf_event_open, &[attr.as_ptr() as usize, 0, MINUS, MINUS, 0]).map(|_| String::new())
}
