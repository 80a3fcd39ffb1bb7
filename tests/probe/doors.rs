//! Tries to leave: namespaces and mounts.

use crate::raw::{CWD, attempt, c, call, descriptor, in_child, number};
use crate::{Answer, Try};
use std::os::fd::AsRawFd;

pub const TRIES: &[Try] = &[
    ("unshare", |a| in_child(|| attempt(libc::SYS_unshare, &[number(&a[0])]))),
    ("setns", |a| {
        in_child(|| {
            let fd = descriptor(libc::SYS_openat, &[CWD, c(&a[0]).as_ptr() as usize, libc::O_CLOEXEC as usize])?;
            attempt(libc::SYS_setns, &[fd.as_raw_fd() as usize, 0])
        })
    }),
    ("clone", |a| in_child(|| clone(number(&a[0])))),
    ("mount-tmpfs", |a| mount(Some("tmpfs"), &a[0], Some("tmpfs"), 0)),
    ("mount-proc", |a| mount(Some("proc"), &a[0], Some("proc"), 0)),
    ("mount-bind", |a| mount(Some(&a[0]), &a[1], None, libc::MS_BIND)),
    ("remount-rw", |a| mount(None, &a[0], None, libc::MS_REMOUNT | libc::MS_BIND)),
    ("setattr-rw", |a| {
        let attr = [0_u64, 1, 0, 0]; // clear MOUNT_ATTR_RDONLY
        let path = c(&a[0]);
        let args = [CWD, path.as_ptr() as usize, 0, attr.as_ptr() as usize, size_of_val(&attr)];
        apart(|| attempt(libc::SYS_mount_setattr, &args))
    }),
    ("umount", |a| {
        let at = c(&a[0]);
        apart(|| attempt(libc::SYS_umount2, &[at.as_ptr() as usize, libc::MNT_DETACH as usize]))
    }),
    ("pivot-root", |a| {
        let at = c(&a[0]);
        apart(|| attempt(libc::SYS_pivot_root, &[at.as_ptr() as usize, at.as_ptr() as usize]))
    }),
    ("chroot", |a| in_child(|| attempt(libc::SYS_chroot, &[c(&a[0]).as_ptr() as usize]))),
    ("open-tree", |a| descriptor(libc::SYS_open_tree, &[CWD, c(&a[0]).as_ptr() as usize, 0]).map(|_| String::new())),
    ("fsopen", |_| descriptor(libc::SYS_fsopen, &[c"tmpfs".as_ptr() as usize, 0]).map(|_| String::new())),
    ("move-mount", |a| {
        let (from, to) = (c(&a[0]), c(&a[1]));
        apart(|| attempt(libc::SYS_move_mount, &[CWD, from.as_ptr() as usize, CWD, to.as_ptr() as usize, 0]))
    }),
    ("nested", nested),
];

/// Runs the try in a child that has left the mount namespace, if it may: where nothing stops the try, as in the
/// positive twins or under a launcher that does not work, it must not take the machine apart.
fn apart(body: impl FnOnce() -> Answer) -> Answer {
    in_child(|| {
        if call(libc::SYS_unshare, &[libc::CLONE_NEWNS as usize]).is_ok() {
            let private = (libc::MS_REC | libc::MS_PRIVATE) as usize;
            call(libc::SYS_mount, &[0, c"/".as_ptr() as usize, 0, private, 0])?;
        }
        body()
    })
}

fn mount(source: Option<&str>, target: &str, kind: Option<&str>, flags: libc::c_ulong) -> Answer {
    let (source, target, kind) = (source.map(c), c(target), kind.map(c));
    let text = |text: &Option<std::ffi::CString>| text.as_ref().map_or(0, |text| text.as_ptr() as usize);
    let args = [text(&source), target.as_ptr() as usize, text(&kind), flags as usize, 0];
    apart(|| attempt(libc::SYS_mount, &args))
}

/// The old clone(2) with these namespace flags, in the place of fork.
fn clone(flags: usize) -> Answer {
    let pid = call(libc::SYS_clone, &[flags | libc::SIGCHLD as usize, 0, 0, 0, 0])?;
    if pid == 0 {
        // SAFETY: ends this process only.
        unsafe { libc::_exit(0) }
    }
    Ok(String::new())
}

/// `nested CALL ARG...`: a user and a mount namespace of our own below this one, and there another try.
fn nested(args: &[String]) -> Answer {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    in_child(|| {
        let flags = (libc::CLONE_NEWUSER | libc::CLONE_NEWNS) as usize;
        call(libc::SYS_unshare, &[flags])?;
        std::fs::write("/proc/self/setgroups", "deny").map_err(crate::files::errno)?;
        std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")).map_err(crate::files::errno)?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).map_err(crate::files::errno)?;
        let (name, rest) = args.split_first().expect("nested CALL ARG...");
        let (_, attempt) = TRIES.iter().find(|(known, _)| known == name).expect("a known try");
        attempt(rest)
    })
}
