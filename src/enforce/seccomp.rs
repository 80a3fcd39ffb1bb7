//! One filter of two parts: a prologue of our own, for what seccompiler cannot say (x32, ENOSYS for single calls), and
//! the deny list, which seccompiler builds. Every jump of either is relative, so that they can stand behind each other.
//! What is installed is the same program made short (`shorten`).

use super::StepError;
use super::shorten::shorten;
use crate::plan::{DENIED, Denied, When, hints};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};
use std::collections::BTreeMap;

/// Calls beyond the newest that this version knows answer ENOSYS, as on a kernel without them: an unknown call is an
/// unjudged one. Linux 6.18 ends at 469 (file_setattr) on every architecture with the shared table.
const NEWEST: u32 = 469;
/// The bit that marks x32 calls, which report the same architecture as x86-64.
const X32_BIT: u32 = 0x4000_0000;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

const RET_KILL_PROCESS: u32 = 0x8000_0000;
#[cfg(test)]
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;

fn fail(error: impl std::fmt::Display) -> StepError {
    StepError::new("seccomp", error).hint(hints::SECCOMP)
}

/// Installs it on this process and all that it will start. The last change before exec. `more` are lists beside the
/// common one.
pub(super) fn install(nested: bool, more: &[&[Denied]]) -> Result<(), StepError> {
    apply_filter(&program(nested, more)?).map_err(fail)
}

fn program(nested: bool, more: &[&[Denied]]) -> Result<BpfProgram, StepError> {
    let plain = plain(nested, more)?;
    Ok(shorten(&plain, AUDIT_ARCH).unwrap_or(plain))
}

/// The prologue and the list behind it, as they are written.
fn plain(nested: bool, more: &[&[Denied]]) -> Result<BpfProgram, StepError> {
    let mut program = prologue(nested);
    program.extend(deny_list(nested, more)?);
    Ok(program)
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// Foreign architectures and x32 are killed, not refused: nobody makes such a call by accident, and a filter that only
/// compares numbers would let them through.
fn prologue(nested: bool) -> BpfProgram {
    const ARCH_OFFSET: u32 = 4;
    let enosys = RET_ERRNO | libc::ENOSYS as u32;
    let mut program = vec![
        statement(LOAD, ARCH_OFFSET),
        jump(EQUAL, AUDIT_ARCH, 1, 0),
        statement(RETURN, RET_KILL_PROCESS),
        statement(LOAD, 0),
        jump(AT_LEAST, X32_BIT, 0, 1),
        statement(RETURN, RET_KILL_PROCESS),
    ];
    let absent = |when| when == When::NoSys || (when == When::NoSysUnlessNested && !nested);
    for (denied, number) in DENIED.iter().zip(NUMBERS) {
        if let (true, Some(number)) = (absent(denied.when), number) {
            program.push(jump(EQUAL, number as u32, 0, 1));
            program.push(statement(RETURN, enosys));
        }
    }
    program.push(jump(ABOVE, NEWEST, 0, 1));
    program.push(statement(RETURN, enosys));
    program
}

/// The program of the list, which needs no part before it.
fn deny_list(nested: bool, more: &[&[Denied]]) -> Result<BpfProgram, StepError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut always: Vec<i64> = Vec::new();
    let more = more.iter().copied().flatten().map(|denied| (denied, number(denied.name)));
    for (denied, number) in DENIED.iter().zip(NUMBERS).chain(more) {
        let Some(number) = number else { continue };
        let conditions = match denied.when {
            When::NoSys | When::NoSysUnlessNested => continue,
            When::UnlessNested | When::MaskedUnlessNested { .. } if nested => continue,
            When::Always | When::UnlessNested => {
                always.push(number);
                rules.insert(number, Vec::new());
                continue;
            }
            When::Equals { arg, value } => vec![condition(arg, Op::Eq, value)?],
            When::Masked { arg, mask, value } | When::MaskedUnlessNested { arg, mask, value } => {
                vec![condition(arg, Op::MaskedEq(mask), value)?]
            }
            When::Both { first, second } => vec![
                condition(first.0, Op::MaskedEq(first.1), first.1)?,
                condition(second.0, Op::MaskedEq(second.1), second.1)?,
            ],
            When::EqualsAndMasked { first, arg, mask, value } => {
                vec![condition(first.0, Op::Eq, first.1)?, condition(arg, Op::MaskedEq(mask), value)?]
            }
            When::EqualsAndDiffers { first, second } => {
                vec![condition(first.0, Op::Eq, first.1)?, condition(second.0, Op::Ne, second.1)?]
            }
            When::NoneOf { arg, values } => {
                values.iter().map(|&value| condition(arg, Op::Ne, value)).collect::<Result<Vec<_>, _>>()?
            }
        };
        if !always.contains(&number) {
            rules.entry(number).or_default().push(SeccompRule::new(conditions).map_err(fail)?);
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(fail)?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(fail)?;
    BpfProgram::try_from(filter).map_err(fail)
}

/// Every comparison looks at the low 32 bits: the kernel takes `TIOCSTI | 1 << 32` for TIOCSTI, and flags, modes and
/// families are ints as well.
fn condition(arg: u8, op: Op, value: u64) -> Result<SeccompCondition, StepError> {
    SeccompCondition::new(arg, Len::Dword, op, value).map_err(fail)
}

/// The numbers of [`DENIED`], in its order, found when this is compiled: a hundred names are not looked up at a launch.
const NUMBERS: [Option<i64>; DENIED.len()] = {
    let mut numbers = [None; DENIED.len()];
    let mut at = 0;
    while at < numbers.len() {
        numbers[at] = number(DENIED[at].name);
        at += 1;
    }
    numbers
};

/// The call's number on this architecture; `None` where it has no such call.
const fn number(name: &str) -> Option<i64> {
    let tables = [TABLE, LEGACY, NEW];
    let mut table = 0;
    while table < tables.len() {
        let mut at = 0;
        while at < tables[table].len() {
            let (known, number) = tables[table][at];
            if same(known.as_bytes(), name.as_bytes()) {
                return Some(number);
            }
            at += 1;
        }
        table += 1;
    }
    None
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Calls with one number on all architectures that libc has no name for yet.
const NEW: &[(&str, i64)] = &[
    ("fchmodat2", 452),
    ("lsm_set_self_attr", 460),
    ("setxattrat", 463),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_setattr", 469),
];

macro_rules! table {
    ($($name:literal = $number:ident),* $(,)?) => { &[$(($name, libc::$number)),*] };
}

#[cfg(target_arch = "x86_64")]
const LEGACY: &[(&str, i64)] = table![
    "chmod" = SYS_chmod,
    "creat" = SYS_creat,
    "ioperm" = SYS_ioperm,
    "iopl" = SYS_iopl,
    "mkdir" = SYS_mkdir,
    "mknod" = SYS_mknod,
    "modify_ldt" = SYS_modify_ldt,
    "open" = SYS_open,
    "_sysctl" = SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[(&str, i64)] = &[];

const TABLE: &[(&str, i64)] = table![
    "connect" = SYS_connect,
    "shmget" = SYS_shmget,
    "shmat" = SYS_shmat,
    "shmctl" = SYS_shmctl,
    "semget" = SYS_semget,
    "semop" = SYS_semop,
    "semtimedop" = SYS_semtimedop,
    "semctl" = SYS_semctl,
    "msgget" = SYS_msgget,
    "msgsnd" = SYS_msgsnd,
    "msgrcv" = SYS_msgrcv,
    "msgctl" = SYS_msgctl,
    "mq_open" = SYS_mq_open,
    "mq_unlink" = SYS_mq_unlink,
    "prlimit64" = SYS_prlimit64,
    "setpriority" = SYS_setpriority,
    "setxattr" = SYS_setxattr,
    "lsetxattr" = SYS_lsetxattr,
    "removexattr" = SYS_removexattr,
    "lremovexattr" = SYS_lremovexattr,
    "sendto" = SYS_sendto,
    "sendmsg" = SYS_sendmsg,
    "sendmmsg" = SYS_sendmmsg,
    "setsockopt" = SYS_setsockopt,
    "acct" = SYS_acct,
    "add_key" = SYS_add_key,
    "adjtimex" = SYS_adjtimex,
    "bpf" = SYS_bpf,
    "chroot" = SYS_chroot,
    "clock_adjtime" = SYS_clock_adjtime,
    "clock_settime" = SYS_clock_settime,
    "clone" = SYS_clone,
    "clone3" = SYS_clone3,
    "delete_module" = SYS_delete_module,
    "fanotify_init" = SYS_fanotify_init,
    "fanotify_mark" = SYS_fanotify_mark,
    "fchmod" = SYS_fchmod,
    "fchmodat" = SYS_fchmodat,
    "finit_module" = SYS_finit_module,
    "fsconfig" = SYS_fsconfig,
    "fsmount" = SYS_fsmount,
    "fsopen" = SYS_fsopen,
    "fspick" = SYS_fspick,
    "init_module" = SYS_init_module,
    "io_uring_enter" = SYS_io_uring_enter,
    "io_uring_register" = SYS_io_uring_register,
    "io_uring_setup" = SYS_io_uring_setup,
    "ioctl" = SYS_ioctl,
    "kcmp" = SYS_kcmp,
    "kexec_file_load" = SYS_kexec_file_load,
    "kexec_load" = SYS_kexec_load,
    "keyctl" = SYS_keyctl,
    "lookup_dcookie" = SYS_lookup_dcookie,
    "memfd_secret" = SYS_memfd_secret,
    "mkdirat" = SYS_mkdirat,
    "mknodat" = SYS_mknodat,
    "mount" = SYS_mount,
    "mount_setattr" = SYS_mount_setattr,
    "move_mount" = SYS_move_mount,
    "name_to_handle_at" = SYS_name_to_handle_at,
    "nfsservctl" = SYS_nfsservctl,
    "open_by_handle_at" = SYS_open_by_handle_at,
    "open_tree" = SYS_open_tree,
    "openat" = SYS_openat,
    "openat2" = SYS_openat2,
    "perf_event_open" = SYS_perf_event_open,
    "personality" = SYS_personality,
    "pidfd_getfd" = SYS_pidfd_getfd,
    "pivot_root" = SYS_pivot_root,
    "process_madvise" = SYS_process_madvise,
    "process_vm_readv" = SYS_process_vm_readv,
    "process_vm_writev" = SYS_process_vm_writev,
    "ptrace" = SYS_ptrace,
    "quotactl" = SYS_quotactl,
    "quotactl_fd" = SYS_quotactl_fd,
    "reboot" = SYS_reboot,
    "request_key" = SYS_request_key,
    "setdomainname" = SYS_setdomainname,
    "sethostname" = SYS_sethostname,
    "setns" = SYS_setns,
    "settimeofday" = SYS_settimeofday,
    "socket" = SYS_socket,
    "socketpair" = SYS_socketpair,
    "swapoff" = SYS_swapoff,
    "swapon" = SYS_swapon,
    "syslog" = SYS_syslog,
    "umount2" = SYS_umount2,
    "unshare" = SYS_unshare,
    "userfaultfd" = SYS_userfaultfd,
    "vhangup" = SYS_vhangup,
    "vmsplice" = SYS_vmsplice,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_denied_call_has_a_number_here() {
        let more = [crate::plan::ON_THE_HOST, crate::plan::WITHOUT_NETWORK, crate::plan::WITHOUT_PATH_SOCKETS];
        for denied in DENIED.iter().chain(more.into_iter().flatten()) {
            assert!(number(denied.name).is_some() || cfg!(not(target_arch = "x86_64")), "{}", denied.name);
        }
    }

    #[test]
    fn the_list_compiles_and_nesting_only_shortens_it() {
        let plain = deny_list(false, &[]).unwrap();
        let nested = deny_list(true, &[]).unwrap();
        assert!(nested.len() < plain.len());
    }

    /// Runs a program as the kernel does, for a call with these arguments.
    fn run(program: &[sock_filter], nr: u32, args: [u64; 6]) -> u32 {
        run_on(program, AUDIT_ARCH, nr, args)
    }

    fn run_on(program: &[sock_filter], arch: u32, nr: u32, args: [u64; 6]) -> u32 {
        let mut data = [0; 64];
        data[..4].copy_from_slice(&nr.to_ne_bytes());
        data[4..8].copy_from_slice(&arch.to_ne_bytes());
        for (place, arg) in data[16..].chunks_exact_mut(8).zip(args) {
            place.copy_from_slice(&arg.to_ne_bytes());
        }
        let (mut at, mut acc) = (0usize, 0u32);
        loop {
            let step = &program[at];
            at += 1;
            let code = u32::from(step.code);
            let branch = |hit: bool| if hit { usize::from(step.jt) } else { usize::from(step.jf) };
            match code {
                0x20 => acc = u32::from_ne_bytes(data[step.k as usize..][..4].try_into().unwrap()),
                0x54 => acc &= step.k,
                0x05 => at += step.k as usize,
                0x15 => at += branch(acc == step.k),
                0x25 => at += branch(acc > step.k),
                0x35 => at += branch(acc >= step.k),
                0x45 => at += branch(acc & step.k != 0),
                0x06 => return step.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn what_is_installed_refuses_what_the_list_names() {
        let program = program(false, &[]).unwrap();
        let eperm = RET_ERRNO | libc::EPERM as u32;
        let nr = |name| number(name).unwrap() as u32;
        for denied in DENIED.iter().filter(|denied| matches!(denied.when, When::Always | When::UnlessNested)) {
            assert_eq!(run(&program, nr(denied.name), [0; 6]), eperm, "{}", denied.name);
        }
        assert_eq!(run(&program, libc::SYS_read as u32, [0; 6]), RET_ALLOW);
        assert_eq!(run(&program, nr("ioctl"), [0, 0x1_0000_5412, 0, 0, 0, 0]), eperm);
        assert_eq!(run(&program, nr("ioctl"), [0, 0x5413, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&program, nr("socket"), [1, 1, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&program, nr("socket"), [16, 3, 0, 0, 0, 0]), RET_ALLOW, "netlink route");
        assert_eq!(run(&program, nr("socket"), [16, 3, 9, 0, 0, 0]), eperm, "netlink audit");
        assert_eq!(run(&program, nr("socket"), [2, 0x8_0003, 1, 0, 0, 0]), eperm, "raw");
        assert_eq!(run(&program, nr("socket"), [40, 1, 0, 0, 0, 0]), eperm);
        assert_eq!(run(&program, nr("fchmod"), [3, 0o755, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&program, nr("fchmod"), [3, 0o4755, 0, 0, 0, 0]), eperm);
    }

    #[test]
    fn without_namespaces_only_unix_streams_and_the_callers_own_limits_are_left() {
        use crate::plan::{ON_THE_HOST, WITHOUT_NETWORK, WITHOUT_PATH_SOCKETS};
        let eperm = RET_ERRNO | libc::EPERM as u32;
        let nr = |name| number(name).unwrap() as u32;
        let online = program(false, &[ON_THE_HOST]).unwrap();
        assert_eq!(run(&online, nr("socket"), [2, 1, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&online, nr("connect"), [3, 0, 0, 0, 0, 0]), RET_ALLOW);
        let offline = program(false, &[ON_THE_HOST, WITHOUT_NETWORK, WITHOUT_PATH_SOCKETS]).unwrap();
        for family in [2, 10, 16, 17, 40] {
            assert_eq!(run(&offline, nr("socket"), [family, 1, 0, 0, 0, 0]), eperm, "{family}");
        }
        for kind in [2, 3, 0x8_0002, 0x803] {
            assert_eq!(run(&offline, nr("socket"), [1, kind, 0, 0, 0, 0]), eperm, "{kind:#x}");
            assert_eq!(run(&offline, nr("socketpair"), [1, kind, 0, 0, 0, 0]), eperm, "{kind:#x}");
        }
        assert_eq!(run(&offline, nr("socket"), [1, 0x8_0001, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&offline, nr("socketpair"), [1, 5, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&offline, nr("connect"), [3, 0, 0, 0, 0, 0]), eperm);
        assert_eq!(run(&offline, nr("prlimit64"), [0, 0, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&offline, nr("prlimit64"), [7, 0, 0, 0, 0, 0]), eperm);
        assert_eq!(run(&offline, nr("setpriority"), [0, 0, 5, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&offline, nr("setpriority"), [0, 7, 5, 0, 0, 0]), eperm);
        assert_eq!(run(&offline, nr("setpriority"), [2, 0, 5, 0, 0, 0]), eperm);
    }

    /// Every combination of lists that a plan can ask for.
    fn variants() -> Vec<(bool, Vec<&'static [Denied]>)> {
        use crate::plan::{ON_THE_HOST, WITHOUT_NETWORK, WITHOUT_PATH_SOCKETS};
        let lists = [
            vec![],
            vec![ON_THE_HOST],
            vec![WITHOUT_PATH_SOCKETS],
            vec![ON_THE_HOST, WITHOUT_NETWORK],
            vec![ON_THE_HOST, WITHOUT_NETWORK, WITHOUT_PATH_SOCKETS],
        ];
        lists.into_iter().flat_map(|list| [(false, list.clone()), (true, list)]).collect()
    }

    /// Does the answer for this number need an argument? Loads are only found on the way, so all of them are tried.
    fn loads_argument(program: &[sock_filter], nr: u32) -> bool {
        let without: Vec<sock_filter> = program
            .iter()
            .map(|step| {
                let argument = u32::from(step.code) == LOAD && step.k >= 16;
                if argument { statement(RETURN, u32::MAX) } else { step.clone() }
            })
            .collect();
        run(&without, nr, [0; 6]) == u32::MAX
    }

    #[test]
    fn the_short_program_answers_as_the_plain_one() {
        let numbers = || (0..700).chain([X32_BIT - 1, X32_BIT, X32_BIT + 1, 0x7fff_ffff, u32::MAX - 1, u32::MAX]);
        for (nested, more) in variants() {
            let plain = plain(nested, &more).unwrap();
            let short = shorten(&plain, AUDIT_ARCH).unwrap();
            // Around every constant of the program lies a boundary of some argument.
            let mut words: Vec<u64> =
                plain.iter().flat_map(|step| [step.k.wrapping_sub(1), step.k, step.k | 0o200]).map(u64::from).collect();
            words.extend([0, 1, 0x1_0000_5412, 0x1_0000_0000, u64::MAX, 0o6755, 0o20_000_101, 0x1_1000_0000]);
            words.retain(|word| *word > 600 || *word < 50 || *word == 262);
            words.sort_unstable();
            words.dedup();
            for nr in numbers() {
                for arch in [0, AUDIT_ARCH ^ 1, 0x4000_0003] {
                    assert_eq!(run_on(&short, arch, nr, [0; 6]), run_on(&plain, arch, nr, [0; 6]), "{nr} {arch:x}");
                }
                assert_eq!(run(&short, nr, [0; 6]), run(&plain, nr, [0; 6]), "{nr} {nested}");
                if !loads_argument(&plain, nr) {
                    assert!(!loads_argument(&short, nr), "{nr}");
                    continue;
                }
                for &a in &words {
                    for &b in &words {
                        for args in [[a, b, a, b, a, b], [a, b, b, b, a, a]] {
                            assert_eq!(run(&short, nr, args), run(&plain, nr, args), "{nr} {args:x?} {nested}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_program_stays_short_and_decides_hot_calls_by_number_alone() {
        for (nested, more) in variants() {
            let length = program(nested, &more).unwrap().len();
            assert!(length <= 220, "{length} instructions {nested} {}", more.len());
        }
        let program = program(false, &[]).unwrap();
        for hot in [libc::SYS_read, libc::SYS_write, libc::SYS_close, libc::SYS_mmap, libc::SYS_getdents64] {
            assert!(!loads_argument(&program, hot as u32), "{hot}");
        }
        for hot in [libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_lseek, libc::SYS_futex] {
            assert!(!loads_argument(&program, hot as u32), "{hot}");
        }
    }

    #[test]
    fn a_program_of_another_shape_is_left_alone() {
        let answer = statement(RETURN, RET_ALLOW);
        assert!(shorten(&[], AUDIT_ARCH).is_none());
        assert!(shorten(std::slice::from_ref(&answer), AUDIT_ARCH).is_none());
        let mut program = prologue(false);
        program.push(answer);
        assert!(shorten(&program, AUDIT_ARCH).is_some());
        assert!(shorten(&program, AUDIT_ARCH ^ 1).is_none());
        // A comparison of an argument before the number is known, and an end that is none.
        for last in [statement(LOAD, 16), statement(0x87, 0)] {
            let mut program = prologue(false);
            program.extend([last, jump(EQUAL, 7, 0, 0), statement(RETURN, RET_ALLOW)]);
            assert!(shorten(&program, AUDIT_ARCH).is_none());
        }
        program.pop();
        assert!(shorten(&program, AUDIT_ARCH).is_none());
    }
}
