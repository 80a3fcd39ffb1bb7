//! Tricks that the system-call filter stops.

use super::{MODES, Twin, held, lines};
use crate::common::Place;

/// `int 0x80` reaches the 32-bit table, where the numbers mean other calls: the filter ends the process.
#[test]
fn foreign_architecture() {
    held(&[("i386", "SIGSYS", Twin::Bare("ok"))]);
}

/// The x32 numbers share the native architecture's name. This kernel may be built without them (ENOSYS outside);
/// the filter ends the process either way.
#[test]
fn x32_numbers() {
    let place = Place::new();
    let bare = place.bare(&["x32"]);
    assert!(["ok", "ENOSYS"].contains(&bare.out()), "outside the kernel itself answers: {bare}");
    for mode in MODES {
        place.boxed_in(mode, &[], &["x32"]).ok().out_is("SIGSYS");
    }
}

/// clone3 takes its flags by pointer, out of a filter's sight; ENOSYS makes a C library fall back to clone.
#[test]
fn clone3_is_absent() {
    held(&[("clone3", "ENOSYS", Twin::Bare("ok"))]);
}

/// The three doors to a user namespace: unshare, clone, clone3.
#[test]
fn doors_to_a_user_namespace() {
    held(&[
        ("unshare 0x10000000", "EPERM", Twin::Bare("ok")),
        ("clone 0x10000000", "EPERM", Twin::Bare("ok")),
        ("clone3-newuser", "ENOSYS", Twin::Bare("ok")),
        ("nested mount-tmpfs /tmp", "EPERM", Twin::Bare("ok")),
    ]);
}

/// Every other kind of namespace, by unshare and by clone, and joining one.
#[test]
fn doors_to_other_namespaces() {
    let kinds = ["0x20000", "0x2000000", "0x4000000", "0x8000000", "0x20000000", "0x40000000"];
    let tries = kinds.map(|kind| [format!("unshare {kind}"), format!("clone {kind}")]).concat();
    let tries = tries.iter().map(|words| (words.as_str(), "EPERM", Twin::Owner("ok")));
    held(&tries.chain([("setns /proc/self/ns/mnt", "EPERM", Twin::Owner("ok"))]).collect::<Vec<_>>());
}

/// The old mount calls and the new ones, with real arguments.
#[test]
fn mount_calls() {
    held(&[
        ("mount-tmpfs /tmp", "EPERM", Twin::Owner("ok")),
        ("mount-bind / /tmp", "EPERM", Twin::Owner("EINVAL")),
        ("umount /proc", "EPERM", Twin::Owner("ok")),
        ("pivot-root /tmp", "EPERM", Twin::Owner("EINVAL")),
        ("chroot /", "EPERM", Twin::Owner("ok")),
        ("open-tree /", "EPERM", Twin::Bare("ok")),
        ("fsopen", "EPERM", Twin::Owner("ok")),
        ("move-mount / /tmp", "EPERM", Twin::Owner("EINVAL")),
        ("ones fspick", "EPERM", Twin::Owner("EINVAL")),
        ("ones fsmount", "EPERM", Twin::Owner("EINVAL")),
        ("ones fsconfig", "EPERM", Twin::Bare("EINVAL")),
        ("ones mount_setattr", "EPERM", Twin::Bare("EINVAL")),
    ]);
}

/// Reading, writing and steering another process.
#[test]
fn other_processes() {
    held(&[
        ("ptrace", "EPERM", Twin::Bare("ok")),
        ("process-vm-readv", "EPERM", Twin::Bare("ok")),
        ("process-vm-writev", "EPERM", Twin::Bare("ok")),
        ("kcmp", "EPERM", Twin::Bare("ok")),
        ("pidfd-getfd", "EPERM", Twin::Bare("ok")),
        ("ones process_madvise", "EPERM", Twin::Bare("EINVAL")),
    ]);
}

/// The session keyring is shared with the host.
#[test]
fn keyrings() {
    held(&[
        ("add-key", "EPERM", Twin::Bare("ok")),
        ("keyctl", "EPERM", Twin::Bare("ok")),
        ("ones request_key", "EPERM", Twin::Bare("EFAULT")),
    ]);
}

/// Large kernel interfaces that no build needs.
#[test]
fn kernel_machinery() {
    held(&[
        ("bpf", "EPERM", Twin::Bare("E2BIG")),
        ("perf-event-open", "EPERM", Twin::Bare("ok")),
        ("userfaultfd", "EPERM", Twin::Bare("ok")),
        ("memfd-secret", "EPERM", Twin::Bare("ok")),
        ("ones fanotify_init", "EPERM", Twin::Root("EINVAL")),
        ("ones fanotify_mark", "EPERM", Twin::Bare("EINVAL")),
    ]);
}

/// A ring makes sockets and opens files without the calls that the filter watches.
#[test]
fn io_uring() {
    held(&[
        ("io-uring-setup", "EPERM", Twin::Bare("ok")),
        ("ones io_uring_enter", "EPERM", Twin::Bare("EINVAL")),
        ("ones io_uring_register", "EPERM", Twin::Bare("EINVAL")),
    ]);
}

/// A file handle is a name that no mount confines (the "shocker" of 2014).
#[test]
fn file_handles() {
    held(&[
        ("name-to-handle-at /", "EPERM", Twin::Bare("ok")),
        ("ones open_by_handle_at", "EPERM", Twin::Bare("EFAULT")),
    ]);
}

/// Personalities that weaken the program or change what calls mean; the common query stays.
#[test]
fn personality() {
    held(&[
        ("personality 0x400000", "EPERM", Twin::Bare("ok")),
        ("personality 0xffffffff", "ok", Twin::Bare("ok")),
        ("personality 0", "ok", Twin::Bare("ok")),
    ]);
}

/// The machine itself: modules, kexec, reboot, swap, clocks, names, accounting, the kernel log. This kernel may lack
/// some (ENOSYS outside); refused inside by the filter, which comes first.
#[test]
fn the_machine() {
    let asked = [
        ("acct", Twin::Root("EFAULT")),
        ("adjtimex", Twin::Bare("EFAULT")),
        ("clock_adjtime", Twin::Bare("EFAULT")),
        ("clock_settime", Twin::Bare("EFAULT")),
        ("quotactl", Twin::Bare("EINVAL")),
        ("quotactl_fd", Twin::Bare("EBADF")),
        ("reboot", Twin::Root("EINVAL")),
        ("setdomainname", Twin::Root("EINVAL")),
        ("sethostname", Twin::Root("EINVAL")),
        ("settimeofday", Twin::Bare("EFAULT")),
        ("swapoff", Twin::Root("EFAULT")),
        ("swapon", Twin::Bare("EINVAL")),
        ("syslog", Twin::Root("EINVAL")),
    ];
    let tries = asked.map(|(name, twin)| (format!("ones {name}"), twin));
    held(&tries.iter().map(|(words, twin)| (words.as_str(), "EPERM", *twin)).collect::<Vec<_>>());
    let optional = ["delete_module", "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load"];
    let words = optional.map(|name| ["+", "ones", name]).concat();
    let place = Place::new();
    let boxed = place.boxed(&[], &words[1..]);
    assert_eq!(lines(&boxed, optional.len()), ["EPERM"; 7], "{boxed}");
    let bare = place.bare(&words[1..]);
    let answered = lines(&bare, optional.len());
    assert!(!crate::common::is_root() || !answered.contains(&"EPERM"), "root is not refused outside: {bare}");
}

/// A set-id bit planted in the project is a way up for whoever runs the file later. By every call that gives a mode;
/// openat2 passes its mode behind a pointer, so it is absent.
#[test]
fn set_id_modes() {
    let place = Place::new();
    let calls = [
        ("chmod", "EPERM"),
        ("fchmod", "EPERM"),
        ("fchmodat", "EPERM"),
        ("fchmodat2", "EPERM"),
        ("open", "EPERM"),
        ("openat", "EPERM"),
        ("openat2", "ENOSYS"),
        ("creat", "EPERM"),
        ("mknod", "EPERM"),
        ("mknodat", "EPERM"),
        ("tmpfile", "EPERM"),
    ];
    for bits in ["0o4755", "0o2755", "0o6755"] {
        let file = |call: &str| if call == "tmpfile" { ".".to_owned() } else { format!("{call}-{bits}") };
        for (call, _) in calls.iter().filter(|(call, _)| call.contains("chmod")) {
            place.write(format!("p/{}", file(call)), "");
        }
        let tries = calls.map(|(call, held)| (format!("setid {call} {} {bits}", file(call)), held));
        let tries = tries.iter().map(|(words, held)| (words.as_str(), *held, Twin::Bare("ok"))).collect::<Vec<_>>();
        super::held_with(&place, &[], &tries);
        // the kernel drops the bits of a new directory itself; refused by argument or dropped, no bit may stay
        for mode in MODES {
            let answer = place.boxed_in(mode, &[], &["setid", "mkdir", &format!("dir-{bits}"), bits]);
            assert!(["ok", "EPERM"].contains(&answer.out()), "{answer}");
        }
        place.sh("find . -type d -perm /6000 -not -perm /2000").ok().out_is("");
        let made = place.sh("find . -type f -perm /6000 | wc -l");
        assert_ne!(made.out(), "0", "the twins made such files: {made}");
        place.sh("rm -rf ./*").ok();
    }
}

/// A refused set-id mode leaves the file as it was.
#[test]
fn set_id_leaves_the_file() {
    let place = Place::new();
    place.write("p/tool", "sentinel\n");
    place.sh("chmod 755 tool").ok();
    let before = place.fingerprint("p");
    for mode in MODES {
        place.boxed_in(mode, &[], &["setid", "chmod", "tool", "0o4755", "+", "setid", "creat", "new", "0o4755"]);
        assert_eq!(place.fingerprint("p"), before, "{mode}");
    }
    place.boxed(&[], &["chmod", "0o700", "tool", "+", "setid", "creat", "new", "0o644"]).ok().out_is("ok\nok");
    place.sh("stat -c %a tool new").ok().out_is("700\n644");
}

/// A device node of the host's disk or memory; a FIFO is an ordinary thing and works.
#[test]
fn device_nodes() {
    let place = Place::new();
    for mode in MODES {
        let answer = place.boxed_in(
            mode,
            &[],
            &["device", "null", "259", "+", "device", "whiteout", "0", "+", "fifo", "pipe", "+", "unlink", "pipe"],
        );
        answer.ok().out_is("EPERM\nEPERM\nok\nok");
        assert!(!place.has("p/null"), "{mode}: no device was made");
    }
    if crate::common::is_root() {
        place.bare(&["device", "null", "259"]).ok().out_is("ok");
    }
}

/// What programs need goes through the same filter.
#[test]
fn ordinary_calls_work() {
    held(&[
        ("ones getpid", "ok", Twin::Bare("ok")),
        ("loopback", "ok", Twin::Bare("ok")),
        ("unix-pair s1", "ok", Twin::Bare("ok")),
        ("unlink s1", "ok", Twin::Bare("ok")),
        ("socketpair 1 1", "ok", Twin::Bare("ok")),
        ("socket 16 3 0", "ok", Twin::Bare("ok")),
        ("forks 50", "all", Twin::Bare("all")),
        ("winsize", "ok", Twin::Bare("ok")),
        ("exec /bin/true", "exit status: 0", Twin::Bare("exit status: 0")),
    ]);
    let threads = "import threading as t; x = t.Thread(target=print, args=('ran',)); x.start(); x.join()";
    let place = Place::new();
    if crate::common::has("python3") {
        place.live(&[], &["/usr/bin/python3", "-c", threads]).ok().out_is("ran");
    }
}

/// The filter is in force in the process that was started.
#[test]
fn the_filter_is_in_force() {
    held(&[("status Seccomp NoNewPrivs", "2 1", Twin::Bare("0 0"))]);
}
