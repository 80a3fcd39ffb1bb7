//! The system calls that the command may not make, each with its reason. Names, not numbers: `enforce` knows those.
//!
//! A deny list, for compilers and runtimes are too many for an allow list. Refused calls answer EPERM, from which
//! programs recover; `NOSYS` marks those whose callers only fall back on ENOSYS.

/// When a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Always,
    /// ENOSYS instead of EPERM: the caller falls back to an older call that the filter can see through.
    NoSys,
    /// The same, unless nested.
    NoSysUnlessNested,
    /// Unless the policy says `nested`.
    UnlessNested,
    /// Argument `arg`, low 32 bits, equals.
    Equals {
        arg: u8,
        value: u64,
    },
    /// Argument `arg` has every bit of `mask & value` as `value` has it.
    Masked {
        arg: u8,
        mask: u64,
        value: u64,
    },
    /// The same, unless nested.
    MaskedUnlessNested {
        arg: u8,
        mask: u64,
        value: u64,
    },
    /// Both: flags at one argument, mode bits at another.
    Both {
        first: (u8, u64),
        second: (u8, u64),
    },
    /// Argument `first` equals, and `second` has exactly `value` under `mask`.
    EqualsAndMasked {
        first: (u8, u64),
        arg: u8,
        mask: u64,
        value: u64,
    },
    /// Argument `first` equals, and `second` differs.
    EqualsAndDiffers {
        first: (u8, u64),
        second: (u8, u64),
    },
    /// Argument `arg` is none of these.
    NoneOf {
        arg: u8,
        values: &'static [u64],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    pub name: &'static str,
    pub when: When,
    pub why: &'static str,
}

const fn always(name: &'static str, why: &'static str) -> Denied {
    Denied { name, when: When::Always, why }
}

const fn masked(name: &'static str, arg: u8, value: u64, why: &'static str) -> Denied {
    Denied { name, when: When::Masked { arg, mask: value, value }, why }
}

const fn equals(name: &'static str, arg: u8, value: u64, why: &'static str) -> Denied {
    Denied { name, when: When::Equals { arg, value }, why }
}

const fn namespace(name: &'static str) -> Denied {
    Denied { name, when: When::UnlessNested, why: NAMESPACE }
}

const fn new_namespace(bit: u64) -> Denied {
    Denied { name: "clone", when: When::MaskedUnlessNested { arg: 0, mask: bit, value: bit }, why: NAMESPACE }
}

/// `O_CREAT` or the bit that tells `O_TMPFILE` apart: only then is the mode argument one.
const fn creating(name: &'static str, flags: u8, create: u64, mode: u64) -> Denied {
    Denied { name, when: When::Both { first: (flags, create), second: (flags + 1, mode) }, why: SET_ID }
}

/// Raw and packet sockets of a family. Netlink's are raw by name and harmless.
const fn raw(family: u64, kind: u64) -> Denied {
    let when = When::EqualsAndMasked { first: (0, family), arg: 1, mask: 0xf, value: kind };
    Denied { name: "socket", when, why: "raw packets" }
}

const NAMESPACE: &str = "a new user namespace gives capabilities in it, and more kernel to attack";
const MOUNTS: &str = "changes what paths mean";
const TRACE: &str = "reads or changes other processes";
const KEYS: &str = "the kernel's key rings are shared with the host's session";
const KERNEL: &str = "administers the machine";
const SET_ID: &str = "a set-id file planted in a root is a way up for whoever runs it later";
const BYPASS: &str = "does work of other system calls without being seen as them";
const SOCKET: &str = "a family that the network namespace does not bound, or that reaches into the kernel";
const INPUT: &str = "types into the terminal that the caller gets back";
const HANDLE: &str = "opens files past the mounts";

const FASTOPEN: &str = "TCP fast open is not seen by Landlock's TCP rules";

const MSG_FASTOPEN: u64 = 0x2000_0000;
const S_ISUID: u64 = 0o4000;
const S_ISGID: u64 = 0o2000;
const O_CREAT: u64 = 0o100;
/// The bit of `O_TMPFILE` that `O_DIRECTORY` does not have.
const TMPFILE: u64 = 0o20_000_000;

pub const DENIED: &[Denied] = &[
    // The prologue answers clone3 as well; listed so that `explain` shows it.
    // Nested every namespace flag is allowed to clone, so clone3's pointer has nothing to hide; an agentbox inside needs it.
    Denied {
        name: "clone3",
        when: When::NoSysUnlessNested,
        why: "its flags are behind a pointer; callers fall back to clone",
    },
    // Nested as well: its mode could hold a set-id bit. An agentbox inside walks by hand (path::open_plain).
    Denied { name: "openat2", when: When::NoSys, why: "its mode is behind a pointer; callers fall back to openat" },
    namespace("unshare"),
    namespace("setns"),
    new_namespace(0x1000_0000),
    new_namespace(0x0002_0000),
    new_namespace(0x2000_0000),
    new_namespace(0x4000_0000),
    new_namespace(0x0800_0000),
    new_namespace(0x0400_0000),
    new_namespace(0x0200_0000),
    namespace("mount"),
    namespace("umount2"),
    namespace("pivot_root"),
    namespace("chroot"),
    namespace("move_mount"),
    namespace("open_tree"),
    namespace("fsopen"),
    namespace("fsconfig"),
    namespace("fsmount"),
    namespace("fspick"),
    namespace("mount_setattr"),
    always("open_tree_attr", MOUNTS),
    always("quotactl", KERNEL),
    always("quotactl_fd", KERNEL),
    always("swapon", KERNEL),
    always("swapoff", KERNEL),
    always("acct", KERNEL),
    always("reboot", KERNEL),
    always("kexec_load", KERNEL),
    always("kexec_file_load", KERNEL),
    always("init_module", KERNEL),
    always("finit_module", KERNEL),
    always("delete_module", KERNEL),
    always("settimeofday", KERNEL),
    always("clock_settime", KERNEL),
    always("clock_adjtime", KERNEL),
    always("adjtimex", KERNEL),
    always("sethostname", KERNEL),
    always("setdomainname", KERNEL),
    always("syslog", KERNEL),
    always("vhangup", KERNEL),
    always("iopl", KERNEL),
    always("ioperm", KERNEL),
    always("nfsservctl", KERNEL),
    always("lookup_dcookie", KERNEL),
    always("_sysctl", KERNEL),
    always("ptrace", TRACE),
    always("process_vm_readv", TRACE),
    always("process_vm_writev", TRACE),
    always("process_madvise", TRACE),
    always("pidfd_getfd", TRACE),
    always("kcmp", TRACE),
    always("perf_event_open", TRACE),
    always("keyctl", KEYS),
    always("add_key", KEYS),
    always("request_key", KEYS),
    always("bpf", KERNEL),
    always("userfaultfd", "holds the kernel still in the middle of a copy: a tool of exploits"),
    always("memfd_secret", "memory that the host cannot inspect"),
    always("io_uring_setup", BYPASS),
    always("io_uring_enter", BYPASS),
    always("io_uring_register", BYPASS),
    always("open_by_handle_at", HANDLE),
    always("name_to_handle_at", HANDLE),
    always("fanotify_init", "watches file systems of the host"),
    always("fanotify_mark", "watches file systems of the host"),
    always("modify_ldt", "an old door into the kernel that only 16-bit programs need"),
    always("vmsplice", "maps pages into pipes: a tool of exploits"),
    always("lsm_set_self_attr", KERNEL),
    Denied {
        name: "personality",
        // The persona of the kernel's own default, of a query, and what setarch and gdb set harmlessly.
        when: When::NoneOf { arg: 0, values: &[0, 0xffff_ffff, 0x0004_0000, 0x0002_0000, 0x0008] },
        why: "switches protections of memory off",
    },
    equals("ioctl", 1, 0x5412, INPUT),
    equals("ioctl", 1, 0x541c, INPUT),
    equals("ioctl", 1, 0x5423, "changes the terminal's line discipline"),
    // Unix, IPv4, IPv6 and netlink: all that the network namespace bounds.
    Denied { name: "socket", when: When::NoneOf { arg: 0, values: &[1, 2, 10, 16] }, why: SOCKET },
    Denied { name: "socketpair", when: When::NoneOf { arg: 0, values: &[1] }, why: SOCKET },
    Denied {
        name: "socket",
        when: When::EqualsAndDiffers { first: (0, 16), second: (2, 0) },
        why: "netlink beyond route talks to kernel subsystems that are not per namespace",
    },
    raw(2, 3),
    raw(10, 3),
    raw(2, 10),
    // Data in the first packet: a connection that Landlock's rule for connect(2) never sees.
    masked("sendto", 3, MSG_FASTOPEN, FASTOPEN),
    masked("sendmsg", 2, MSG_FASTOPEN, FASTOPEN),
    masked("sendmmsg", 3, MSG_FASTOPEN, FASTOPEN),
    Denied {
        name: "setsockopt",
        when: When::EqualsAndMasked { first: (1, 6), arg: 2, mask: 0xffff_ffff, value: 30 },
        why: FASTOPEN,
    },
    equals("socket", 2, 262, "MPTCP is not seen by Landlock's TCP rules"),
    masked("chmod", 1, S_ISUID, SET_ID),
    masked("chmod", 1, S_ISGID, SET_ID),
    masked("fchmod", 1, S_ISUID, SET_ID),
    masked("fchmod", 1, S_ISGID, SET_ID),
    masked("fchmodat", 2, S_ISUID, SET_ID),
    masked("fchmodat", 2, S_ISGID, SET_ID),
    masked("fchmodat2", 2, S_ISUID, SET_ID),
    masked("fchmodat2", 2, S_ISGID, SET_ID),
    masked("mkdir", 1, S_ISUID, SET_ID),
    masked("mkdir", 1, S_ISGID, SET_ID),
    masked("mkdirat", 2, S_ISUID, SET_ID),
    masked("mkdirat", 2, S_ISGID, SET_ID),
    masked("creat", 1, S_ISUID, SET_ID),
    masked("creat", 1, S_ISGID, SET_ID),
    masked("mknod", 1, S_ISUID, SET_ID),
    masked("mknod", 1, S_ISGID, SET_ID),
    masked("mknodat", 2, S_ISUID, SET_ID),
    masked("mknodat", 2, S_ISGID, SET_ID),
    // Nested an agentbox makes whiteouts, character devices 0:0. Real ones the kernel refuses to whoever lacks CAP_MKNOD.
    Denied {
        name: "mknod",
        when: When::MaskedUnlessNested { arg: 1, mask: 0o170_000, value: 0o020_000 },
        why: "devices",
    },
    Denied { name: "mknod", when: When::Masked { arg: 1, mask: 0o170_000, value: 0o060_000 }, why: "devices" },
    Denied {
        name: "mknodat",
        when: When::MaskedUnlessNested { arg: 2, mask: 0o170_000, value: 0o020_000 },
        why: "devices",
    },
    Denied { name: "mknodat", when: When::Masked { arg: 2, mask: 0o170_000, value: 0o060_000 }, why: "devices" },
    creating("open", 1, O_CREAT, S_ISUID),
    creating("open", 1, O_CREAT, S_ISGID),
    creating("open", 1, TMPFILE, S_ISUID),
    creating("open", 1, TMPFILE, S_ISGID),
    creating("openat", 2, O_CREAT, S_ISUID),
    creating("openat", 2, O_CREAT, S_ISGID),
    creating("openat", 2, TMPFILE, S_ISUID),
    creating("openat", 2, TMPFILE, S_ISGID),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_doors_to_a_user_namespace_are_shut() {
        for door in ["unshare", "clone", "clone3", "setns"] {
            assert!(DENIED.iter().any(|denied| denied.name == door), "{door}");
        }
    }

    #[test]
    fn fifos_can_still_be_made() {
        const S_IFIFO: u64 = 0o010_000;
        for denied in DENIED.iter().filter(|denied| denied.name.starts_with("mknod")) {
            if let When::Masked { mask, value, .. } = denied.when {
                assert_ne!(S_IFIFO & mask, value, "{denied:?}");
            }
        }
    }
}
