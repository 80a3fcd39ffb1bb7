//! The system calls that change files by name, and where their arguments say which.
//!
//! A call that needs a descriptor that was opened for writing is not among them: who is told of the opening has seen
//! the file. Calls that leave the name of a file in a structure behind a pointer are only bind(2).

/// Where the path of a call is. A directory of `None` is the working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathArg {
    pub dir: Option<usize>,
    pub path: usize,
}

/// Whether a symlink at the end of the path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    Yes,
    No,
    /// Unless the flags at this argument have `AT_SYMLINK_NOFOLLOW`.
    Flags(usize),
}

/// What a call does to what its path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Opens; told of only when the flags write, create or truncate. Without flags it is creat(2).
    Open {
        at: PathArg,
        flags: Option<usize>,
    },
    /// Cuts or extends the content.
    Truncate {
        at: PathArg,
    },
    /// Mode, owner, times, extended attributes. A path that is null means the descriptor before it.
    Attributes {
        at: PathArg,
        follow: Follow,
    },
    /// The same through a descriptor, which need not be writable.
    AttributesOf {
        descriptor: usize,
    },
    /// Makes a name of anything but a regular file's opening: directory, node, symlink.
    Make {
        at: PathArg,
    },
    /// Takes a name away.
    Remove {
        at: PathArg,
    },
    /// Gives the file at `from` a second name.
    Link {
        from: PathArg,
        to: PathArg,
        flags: Option<usize>,
    },
    Rename {
        from: PathArg,
        to: PathArg,
        flags: Option<usize>,
    },
    /// A unix socket's address makes a name.
    Bind {
        address: usize,
        length: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangingCall {
    pub number: i64,
    pub name: &'static str,
    pub changes: Changes,
}

/// The flags of open(2) that write, create or truncate; `O_TMPFILE` has one of them.
pub const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;
pub const AT_FDCWD: i32 = libc::AT_FDCWD;
pub const RENAME_EXCHANGE: u32 = libc::RENAME_EXCHANGE;

const fn at(dir: usize) -> PathArg {
    PathArg { dir: Some(dir), path: dir + 1 }
}

const fn cwd(path: usize) -> PathArg {
    PathArg { dir: None, path }
}

const fn call(number: i64, name: &'static str, changes: Changes) -> ChangingCall {
    ChangingCall { number, name, changes }
}

const fn attributes(number: i64, name: &'static str, at: PathArg, follow: Follow) -> ChangingCall {
    call(number, name, Changes::Attributes { at, follow })
}

const fn attributes_of(number: i64, name: &'static str) -> ChangingCall {
    call(number, name, Changes::AttributesOf { descriptor: 0 })
}

/// Every one of them on this architecture.
pub const CHANGING: &[&[ChangingCall]] = &[LEGACY, COMMON];

#[cfg(target_arch = "x86_64")]
const LEGACY: &[ChangingCall] = &[
    call(libc::SYS_open, "open", Changes::Open { at: cwd(0), flags: Some(1) }),
    call(libc::SYS_creat, "creat", Changes::Open { at: cwd(0), flags: None }),
    call(libc::SYS_rename, "rename", Changes::Rename { from: cwd(0), to: cwd(1), flags: None }),
    call(libc::SYS_mkdir, "mkdir", Changes::Make { at: cwd(0) }),
    call(libc::SYS_rmdir, "rmdir", Changes::Remove { at: cwd(0) }),
    call(libc::SYS_link, "link", Changes::Link { from: cwd(0), to: cwd(1), flags: None }),
    call(libc::SYS_unlink, "unlink", Changes::Remove { at: cwd(0) }),
    call(libc::SYS_symlink, "symlink", Changes::Make { at: cwd(1) }),
    call(libc::SYS_mknod, "mknod", Changes::Make { at: cwd(0) }),
    attributes(libc::SYS_chmod, "chmod", cwd(0), Follow::Yes),
    attributes(libc::SYS_chown, "chown", cwd(0), Follow::Yes),
    attributes(libc::SYS_lchown, "lchown", cwd(0), Follow::No),
    attributes(libc::SYS_utime, "utime", cwd(0), Follow::Yes),
    attributes(libc::SYS_utimes, "utimes", cwd(0), Follow::Yes),
    attributes(libc::SYS_futimesat, "futimesat", at(0), Follow::Yes),
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[ChangingCall] = &[];

const COMMON: &[ChangingCall] = &[
    call(libc::SYS_openat, "openat", Changes::Open { at: at(0), flags: Some(2) }),
    call(libc::SYS_truncate, "truncate", Changes::Truncate { at: cwd(0) }),
    call(libc::SYS_mkdirat, "mkdirat", Changes::Make { at: at(0) }),
    call(libc::SYS_mknodat, "mknodat", Changes::Make { at: at(0) }),
    call(libc::SYS_symlinkat, "symlinkat", Changes::Make { at: PathArg { dir: Some(1), path: 2 } }),
    call(libc::SYS_unlinkat, "unlinkat", Changes::Remove { at: at(0) }),
    call(libc::SYS_linkat, "linkat", Changes::Link { from: at(0), to: at(2), flags: Some(4) }),
    call(libc::SYS_renameat, "renameat", Changes::Rename { from: at(0), to: at(2), flags: None }),
    call(libc::SYS_renameat2, "renameat2", Changes::Rename { from: at(0), to: at(2), flags: Some(4) }),
    attributes(libc::SYS_fchmodat, "fchmodat", at(0), Follow::Yes),
    // libc has no names for these on every target.
    attributes(452, "fchmodat2", at(0), Follow::Flags(3)),
    attributes(463, "setxattrat", at(0), Follow::Flags(2)),
    attributes(466, "removexattrat", at(0), Follow::Flags(2)),
    attributes(libc::SYS_fchownat, "fchownat", at(0), Follow::Flags(4)),
    attributes(libc::SYS_utimensat, "utimensat", at(0), Follow::Flags(3)),
    attributes(libc::SYS_setxattr, "setxattr", cwd(0), Follow::Yes),
    attributes(libc::SYS_lsetxattr, "lsetxattr", cwd(0), Follow::No),
    attributes(libc::SYS_removexattr, "removexattr", cwd(0), Follow::Yes),
    attributes(libc::SYS_lremovexattr, "lremovexattr", cwd(0), Follow::No),
    attributes_of(libc::SYS_fchmod, "fchmod"),
    attributes_of(libc::SYS_fchown, "fchown"),
    attributes_of(libc::SYS_fsetxattr, "fsetxattr"),
    attributes_of(libc::SYS_fremovexattr, "fremovexattr"),
    call(libc::SYS_bind, "bind", Changes::Bind { address: 1, length: 2 }),
];

/// The call with this number.
pub fn changing(number: i64) -> Option<&'static ChangingCall> {
    CHANGING.iter().flat_map(|calls| calls.iter()).find(|call| call.number == number)
}
