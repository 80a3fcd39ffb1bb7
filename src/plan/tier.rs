//! The tier without mounts: no namespaces, more refused calls, and the list of what that gives up.

use super::{By, Denied, IdMap, Isolate, When};
use crate::host::Facts;
use crate::policy::Policy;

/// The first ABI with scopes, and the first that judges path sockets.
const SCOPES: u32 = 6;
const PATH_SOCKETS: u32 = 9;

pub(super) fn isolate() -> Isolate {
    Isolate { cgroup: None, namespaces: Vec::new(), ids: IdMap::Kept, loopback: false }
}

/// What holds the limits on processes and on memory.
pub(super) fn held_by(is_root: bool) -> (By, By) {
    (if is_root { By::Nothing } else { By::UserRlimit }, By::Rlimit)
}

/// The lists of refused calls beside the common one.
pub(super) fn refused(policy: &Policy, abi: u32) -> Vec<&'static [Denied]> {
    if !policy.without_mounts() {
        return Vec::new();
    }
    let mut lists = vec![ON_THE_HOST];
    if policy.without_sockets() {
        lists.push(WITHOUT_NETWORK);
        if abi < PATH_SOCKETS {
            lists.push(WITHOUT_PATH_SOCKETS);
        }
    }
    lists
}

/// What a box has and this tier has not, one line a layer. `explain` and the report say it.
pub(super) fn lost(policy: &Policy, facts: &Facts) -> Vec<String> {
    if !policy.without_mounts() {
        return Vec::new();
    }
    let mut lost = vec![
        "mounts: no hiding inside a root; /tmp, HOME, /run and /dev/shm are not private but refused (TMPDIR is private); \
         names, sizes and modes of every file can be asked for; chmod, chown and times are the host's to refuse, outside \
         of the roots as well; no pseudo-terminals"
            .to_owned(),
        "pid namespace: /proc shows the host's processes with their command lines, the launcher's too (not environment, memory or files); \
         priorities of the user's other processes can be changed; what the command leaves running is hunted, not ended by \
         the kernel, and outlives a killed agentbox-init"
            .to_owned(),
        "ipc namespace: System V IPC and message queues are refused instead".to_owned(),
        "uts namespace: the host's name can be read".to_owned(),
        "cgroup namespace: the host's control groups can be seen".to_owned(),
        network(policy, facts.landlock_abi),
    ];
    if facts.is_root() {
        lost.push(
            "user namespace: root stays root without capabilities, and no limit on processes binds it".to_owned(),
        );
    } else {
        lost.push(
            "user namespace: the limit on processes counts all of the user's; the bounding set stays as it was, without \
             effect under no_new_privs"
                .to_owned(),
        );
    }
    if facts.landlock_abi < SCOPES {
        lost.push(format!(
            "signals: Landlock ABI {} cannot keep them from the user's other processes",
            facts.landlock_abi
        ));
    }
    lost
}

fn network(policy: &Policy, abi: u32) -> String {
    let paths =
        if abi >= PATH_SOCKETS { "" } else { ", and so is every unix socket by its path (D-Bus, Docker: ways out)" };
    match (policy.without_sockets(), abi >= PATH_SOCKETS) {
        (false, _) => format!("network namespace: the host's network is open, as asked{paths}"),
        (true, true) => "network namespace: sockets but unix ones are refused instead, loopback included".to_owned(),
        (true, false) => {
            "network namespace: sockets but unix ones are refused instead, loopback included; connect(2) and \
             unix datagrams are refused as well"
                .to_owned()
        }
    }
}

const fn always(name: &'static str, why: &'static str) -> Denied {
    Denied { name, when: When::Always, why }
}

const fn none_of(name: &'static str, arg: u8, values: &'static [u64], why: &'static str) -> Denied {
    Denied { name, when: When::NoneOf { arg, values }, why }
}

const IPC: &str = "System V IPC and message queues are the host's";
const OTHERS: &str = "changes the user's other processes, which no signal scope keeps";
const ATTRIBUTES: &str =
    "changes attributes outside of the roots: Landlock judges no path here; by descriptor it works";
const DATAGRAM: &str = "a datagram needs no connect(2): it would reach the host's sockets";

/// What a namespace or a mount would have bounded.
pub const ON_THE_HOST: &[Denied] = &[
    always("shmget", IPC),
    always("shmat", IPC),
    always("shmctl", IPC),
    always("semget", IPC),
    always("semop", IPC),
    always("semtimedop", IPC),
    always("semctl", IPC),
    always("msgget", IPC),
    always("msgsnd", IPC),
    always("msgrcv", IPC),
    always("msgctl", IPC),
    always("mq_open", IPC),
    always("mq_unlink", IPC),
    // RLIMIT_CPU of 0 is a SIGKILL by another name. setrlimit and getrlimit of libc pass 0, the caller.
    none_of("prlimit64", 0, &[0], OTHERS),
    // PRIO_PROCESS and PRIO_PGRP, of the caller alone: PRIO_USER is every process of the user.
    none_of("setpriority", 0, &[0, 1], OTHERS),
    none_of("setpriority", 1, &[0], OTHERS),
    always("setxattr", ATTRIBUTES),
    always("lsetxattr", ATTRIBUTES),
    always("removexattr", ATTRIBUTES),
    always("lremovexattr", ATTRIBUTES),
    always("setxattrat", ATTRIBUTES),
    always("removexattrat", ATTRIBUTES),
    always("file_setattr", ATTRIBUTES),
];

/// `--net none` without a network namespace.
pub const WITHOUT_NETWORK: &[Denied] =
    &[none_of("socket", 0, &[1], "no network was granted, and there is no namespace")];

/// The same below Landlock ABI 9: a path socket of the host (Docker's) is a way out.
pub const WITHOUT_PATH_SOCKETS: &[Denied] = &[
    always("connect", "a unix socket of the host could be on the other side"),
    datagram("socket", 2),
    // SOCK_RAW of this family is a datagram socket too (unix(7)).
    datagram("socket", 3),
    datagram("socketpair", 2),
    datagram("socketpair", 3),
];

const fn datagram(name: &'static str, kind: u64) -> Denied {
    Denied { name, when: When::EqualsAndMasked { first: (0, 1), arg: 1, mask: 0xf, value: kind }, why: DATAGRAM }
}
