//! Tries on paths.

use crate::raw::{CWD, attempt, c, call, descriptor, number};
use crate::{Answer, Try};
use nix::errno::Errno;
use std::fs::File;
use std::io::{BufRead, Read};
use std::os::fd::AsRawFd;
use std::time::Instant;

pub const TRIES: &[Try] = &[
    ("open-read", |a| open(&a[0], libc::O_RDONLY)),
    ("open-write", |a| open(&a[0], libc::O_WRONLY)),
    ("open-path", |a| open(&a[0], libc::O_PATH)),
    ("create", |a| open(&a[0], libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)),
    ("read", read),
    ("write", write),
    ("stat", |a| stat(&a[0], 0)),
    ("lstat", |a| stat(&a[0], libc::AT_SYMLINK_NOFOLLOW)),
    ("readlink", |a| std::fs::read_link(&a[0]).map(|to| to.display().to_string()).map_err(errno)),
    ("list", list),
    ("unlink", |a| attempt(libc::SYS_unlinkat, &[CWD, c(&a[0]).as_ptr() as usize, 0])),
    ("rmdir", |a| attempt(libc::SYS_unlinkat, &[CWD, c(&a[0]).as_ptr() as usize, libc::AT_REMOVEDIR as usize])),
    ("mkdir", |a| attempt(libc::SYS_mkdirat, &[CWD, c(&a[0]).as_ptr() as usize, 0o755])),
    ("rename", |a| two(libc::SYS_renameat2, &a[0], &a[1])),
    ("exchange", |a| {
        let (from, to) = (c(&a[0]), c(&a[1]));
        let args = [CWD, from.as_ptr() as usize, CWD, to.as_ptr() as usize, libc::RENAME_EXCHANGE as usize];
        attempt(libc::SYS_renameat2, &args)
    }),
    ("link", |a| two(libc::SYS_linkat, &a[0], &a[1])),
    ("symlink", |a| {
        let (to, at) = (c(&a[0]), c(&a[1]));
        attempt(libc::SYS_symlinkat, &[to.as_ptr() as usize, CWD, at.as_ptr() as usize])
    }),
    ("chmod", |a| attempt(libc::SYS_fchmodat, &[CWD, c(&a[1]).as_ptr() as usize, number(&a[0])])),
    ("chown", |a| attempt(libc::SYS_fchownat, &[CWD, c(&a[1]).as_ptr() as usize, number(&a[0]), number(&a[0]), 0])),
    ("truncate", |a| attempt(libc::SYS_truncate, &[c(&a[0]).as_ptr() as usize, 0])),
    ("utime", |a| attempt(libc::SYS_utimensat, &[CWD, c(&a[0]).as_ptr() as usize, 0, 0])),
    ("setxattr", |a| {
        let (path, name) = (c(&a[0]), c("user.probe"));
        attempt(libc::SYS_setxattr, &[path.as_ptr() as usize, name.as_ptr() as usize, c"x".as_ptr() as usize, 1, 0])
    }),
    ("setid", set_id),
    ("fifo", |a| mknod(&a[0], libc::S_IFIFO | 0o644, 0)),
    ("device", |a| mknod(&a[0], libc::S_IFCHR | 0o666, number(&a[1]))),
    ("reopen", |a| open(&format!("/proc/self/fd/{}", a[0]), libc::O_WRONLY)),
    ("reopen-path", reopen_path),
    ("at-empty-path", at_empty_path),
    ("map", map),
    ("handle-of", handle_of),
    ("enter", enter),
    ("fchdir", fchdir),
    ("openat", |a| openat(number(&a[0]), &a[1])),
    ("exec", |a| std::process::Command::new(&a[0]).status().map(|status| status.to_string()).map_err(errno)),
    ("accesses", accesses),
    ("spin", spin),
    ("spin-names", spin_names),
];

/// Reads one file again and again, until the content of another says `stop`. Prints how often it tried, how often
/// content came out, how many different contents, for how many microseconds the file was open each time (the median and
/// the longest), and how the last try went.
fn spin(args: &[String]) -> Answer {
    let mut seen = std::collections::HashSet::<String>::new();
    let (mut tries, mut reads) = (0_u64, 0_u64);
    let mut open = None;
    let mut windows = Vec::new();
    let last = loop {
        let before = Instant::now();
        let content = std::fs::read_to_string(&args[1]);
        tries += 1;
        let answer = match content {
            // A file that was just made or emptied tells nothing.
            Ok(content) if content.is_empty() => "empty".to_owned(),
            Ok(content) => {
                reads += 1;
                open = open.or(Some(before));
                seen.insert(content);
                "read".to_owned()
            }
            Err(err) => format!("{:?}", errno(err)),
        };
        if let Some(begin) = open.filter(|_| answer != "read") {
            windows.push(begin.elapsed().as_micros());
            open = None;
        }
        if tries % 64 == 0 && std::fs::read(&args[0]).is_ok_and(|state| state.starts_with(b"stop")) {
            break answer;
        }
    };
    windows.extend(open.map(|begin| begin.elapsed().as_micros()));
    windows.sort_unstable();
    let median = windows.get(windows.len() / 2).copied().unwrap_or(0);
    let longest = windows.last().copied().unwrap_or(0);
    Ok(format!("{tries} {reads} {} {median} {longest} {last}", seen.len()))
}

pub fn errno(err: std::io::Error) -> Errno {
    err.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

/// Opens without changing anything: neither O_TRUNC nor O_APPEND, and a FIFO does not block.
pub fn open(path: &str, flags: i32) -> Answer {
    let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let fd = descriptor(libc::SYS_openat, &[CWD, c(path).as_ptr() as usize, flags as usize, 0o644])?;
    drop(fd);
    Ok(String::new())
}

fn openat(fd: usize, path: &str) -> Answer {
    drop(descriptor(libc::SYS_openat, &[fd, c(path).as_ptr() as usize, libc::O_CLOEXEC as usize, 0])?);
    Ok(String::new())
}

fn read(args: &[String]) -> Answer {
    let mut text = Vec::new();
    File::open(&args[0]).and_then(|mut file| file.read_to_end(&mut text)).map_err(errno)?;
    Ok(format!("={}", String::from_utf8_lossy(&text).trim_end().replace(['\n', '\0'], " ")))
}

fn write(args: &[String]) -> Answer {
    std::fs::write(&args[0], format!("{}\n", args[1])).map(|()| String::new()).map_err(errno)
}

fn stat(path: &str, flags: i32) -> Answer {
    let mut buffer = vec![0_u8; size_of::<libc::stat>()];
    let path = c(path);
    let args = [CWD, path.as_ptr() as usize, buffer.as_mut_ptr() as usize, flags as usize];
    attempt(libc::SYS_newfstatat, &args)
}

/// The names in a directory, sorted, with a blank between.
fn list(args: &[String]) -> Answer {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&args[0]).map_err(errno)? {
        names.push(entry.map_err(errno)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(format!("={}", names.join(" ")))
}

fn two(number: libc::c_long, from: &str, to: &str) -> Answer {
    let (from, to) = (c(from), c(to));
    attempt(number, &[CWD, from.as_ptr() as usize, CWD, to.as_ptr() as usize, 0])
}

fn mknod(path: &str, mode: u32, device: usize) -> Answer {
    attempt(libc::SYS_mknodat, &[CWD, c(path).as_ptr() as usize, mode as usize, device])
}

/// `setid CALL PATH MODE`: gives the name a mode by one of the calls that can.
fn set_id(args: &[String]) -> Answer {
    let path = c(&args[1]);
    let (at, mode) = (path.as_ptr() as usize, number(&args[2]));
    let open = |flags: i32| descriptor(libc::SYS_openat, &[CWD, at, flags as usize, mode]).map(drop);
    let made = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    match args[0].as_str() {
        "chmod" => call(libc::SYS_chmod, &[at, mode]).map(drop),
        "fchmod" => {
            let fd = call(libc::SYS_openat, &[CWD, at, libc::O_RDONLY as usize])?;
            call(libc::SYS_fchmod, &[fd, mode]).map(drop)
        }
        "fchmodat" => call(libc::SYS_fchmodat, &[CWD, at, mode]).map(drop),
        "fchmodat2" => call(libc::SYS_fchmodat2, &[CWD, at, mode, 0]).map(drop),
        "open" => call(libc::SYS_open, &[at, made as usize, mode]).map(drop),
        "openat" => open(made),
        "tmpfile" => open(libc::O_TMPFILE | libc::O_WRONLY),
        "openat2" => {
            let how = [made as u64, mode as u64, 0];
            call(libc::SYS_openat2, &[CWD, at, how.as_ptr() as usize, size_of_val(&how)]).map(drop)
        }
        "creat" => call(libc::SYS_creat, &[at, mode]).map(drop),
        "mkdir" => call(libc::SYS_mkdir, &[at, mode]).map(drop),
        "mkdirat" => call(libc::SYS_mkdirat, &[CWD, at, mode]).map(drop),
        "mknod" => call(libc::SYS_mknod, &[at, libc::S_IFREG as usize | mode, 0]).map(drop),
        "mknodat" => call(libc::SYS_mknodat, &[CWD, at, libc::S_IFREG as usize | mode, 0]).map(drop),
        other => panic!("no call {other} gives a mode"),
    }?;
    Ok(String::new())
}

fn path_descriptor(path: &str) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    descriptor(libc::SYS_openat, &[CWD, c(path).as_ptr() as usize, flags as usize])
}

/// A descriptor that only names the file, opened again by its magic link.
fn reopen_path(args: &[String]) -> Answer {
    let fd = path_descriptor(&args[0])?;
    read(&[format!("/proc/self/fd/{}", fd.as_raw_fd())])
}

/// A descriptor that only names the file, given another name: by its own number and by its magic link.
fn at_empty_path(args: &[String]) -> Answer {
    let fd = path_descriptor(&args[0])?;
    let (magic, new) = (c(&format!("/proc/self/fd/{}", fd.as_raw_fd())), c("at-empty-path"));
    let by_number =
        [fd.as_raw_fd() as usize, c"".as_ptr() as usize, CWD, new.as_ptr() as usize, libc::AT_EMPTY_PATH as usize];
    let by_link = [CWD, magic.as_ptr() as usize, CWD, new.as_ptr() as usize, libc::AT_SYMLINK_FOLLOW as usize];
    attempt(libc::SYS_linkat, &by_number).or_else(|_| attempt(libc::SYS_linkat, &by_link))?;
    let found = read(&["at-empty-path".to_owned()]);
    std::fs::remove_file("at-empty-path").map_err(errno)?;
    found
}

/// Mapped into memory and read from there, and from /proc/self/mem.
fn map(args: &[String]) -> Answer {
    let file = File::open(&args[0]).map_err(errno)?;
    let length = 4096;
    let map = [0, length, libc::PROT_READ as usize, libc::MAP_PRIVATE as usize, file.as_raw_fd() as usize, 0];
    let at = call(libc::SYS_mmap, &map)?;
    let memory = File::open("/proc/self/mem").map_err(errno)?;
    let mut text = vec![0; length];
    std::os::unix::fs::FileExt::read_at(&memory, &mut text, at as u64).map_err(errno)?;
    Ok(format!("={}", String::from_utf8_lossy(&text).replace(['\n', '\0'], " ").trim_end()))
}

/// By file handle: name_to_handle_at and, where the caller may, open_by_handle_at. Outside nobody but root may open one,
/// so the twin is a plain read once the handle is had.
fn handle_of(args: &[String]) -> Answer {
    let mut handle = vec![0_u8; 8 + 128];
    handle[..4].copy_from_slice(&128_u32.to_ne_bytes());
    let mut mount = 0_i32;
    let (path, at) = (c(&args[0]), handle.as_mut_ptr() as usize);
    call(libc::SYS_name_to_handle_at, &[CWD, path.as_ptr() as usize, at, &raw mut mount as usize, 0])?;
    let dir = File::open(".").map_err(errno)?;
    match descriptor(libc::SYS_open_by_handle_at, &[dir.as_raw_fd() as usize, at, libc::O_RDONLY as usize]) {
        Ok(fd) => read(&[format!("/proc/self/fd/{}", fd.as_raw_fd())]),
        Err(Errno::EPERM) => read(args),
        Err(errno) => Err(errno),
    }
}

/// `enter DIR NAME`: changes into DIR, reads NAME from there and goes back.
fn enter(args: &[String]) -> Answer {
    let back = File::open(".").map_err(errno)?;
    std::env::set_current_dir(&args[0]).map_err(errno)?;
    let found = read(&args[1..]);
    call(libc::SYS_fchdir, &[back.as_raw_fd() as usize])?;
    found
}

/// `fchdir FD NAME`: changes into an inherited descriptor and reads NAME from there.
fn fchdir(args: &[String]) -> Answer {
    call(libc::SYS_fchdir, &[number(&args[0])])?;
    read(&args[1..])
}

/// `accesses FILE`: for each line `read PATH`, `write PATH` or `create PATH` of FILE, the errno of a call that has that
/// access and changes nothing for good. Prints the whole answer as lines.
fn accesses(args: &[String]) -> Answer {
    let list = File::open(&args[0]).map_err(errno)?;
    let lines = std::io::BufReader::new(list).lines().map(|line| {
        let line = line.expect("the list is text");
        let (access, path) = line.split_once(' ').expect("ACCESS PATH");
        access_of(access, path).map_or_else(|errno| format!("{errno:?}"), |_| "ok".to_owned())
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Reading a socket is connecting to it, which is also writing. Writing a directory is making a name in it.
fn access_of(access: &str, path: &str) -> Answer {
    let flags = match access {
        "read" => libc::O_RDONLY,
        "write" => libc::O_WRONLY,
        "create" => libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL,
        other => panic!("no access {other}"),
    };
    match open(path, flags) {
        Err(Errno::ENXIO) => std::os::unix::net::UnixStream::connect(path).map(|_| String::new()).map_err(errno),
        Err(Errno::EISDIR) => access_of("create", &format!("{path}/made-by-the-probe")),
        Ok(_) if access == "create" => attempt(libc::SYS_unlinkat, &[CWD, c(path).as_ptr() as usize, 0]),
        other => other,
    }
}

/// Until standard input ends: opens and reads every name, those that a listing of the directory shows besides, and
/// `PREFIX-0` to `PREFIX-4999`, each as often as it can. Says how many opens there were, how many gave content, and how
/// often a listing showed one of the names or a name with the prefix.
fn spin_names(args: &[String]) -> Answer {
    let (dir, prefix, names) = (&args[0], &args[1], &args[2..]);
    let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    let (mut opens, mut leaks, mut listings, mut flashes) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut guess = 0_u64;
    let mut read = |path: &str| {
        opens += 1;
        let content = std::fs::read(path).unwrap_or_default();
        leaks += u64::from(!content.is_empty());
    };
    // Once before the host begins, so that a name that is visible was seen.
    names.iter().for_each(|name| read(&format!("{dir}/{name}")));
    println!("spinning");
    loop {
        for _ in 0..50 {
            names.iter().for_each(|name| read(&format!("{dir}/{name}")));
            guess = (guess + 1) % 5000;
            read(&format!("{dir}/{prefix}-{guess}"));
        }
        listings += 1;
        for entry in std::fs::read_dir(dir).map_err(errno)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if names.contains(&name) || name.starts_with(prefix.as_str()) {
                flashes += 1;
                read(&format!("{dir}/{name}"));
            }
        }
        // SAFETY: one descriptor's record, for the time of the call.
        if unsafe { libc::poll(&raw mut input, 1, 0) } > 0 {
            return Ok(format!("opens {opens} leaks {leaks} listings {listings} flashes {flashes}"));
        }
    }
}
