//! Many changes of files in one process, and changes by unusual ways.

use crate::files::errno;
use crate::raw::{CWD, attempt, c, call, descriptor};
use crate::{Answer, Try};
use std::io::Write;
use std::os::fd::AsRawFd;

pub const TRIES: &[Try] = &[
    ("append", |a| {
        let file = std::fs::OpenOptions::new().append(true).open(&a[0]);
        file.and_then(|mut file| file.write_all(a[1].as_bytes())).map(|()| String::new()).map_err(errno)
    }),
    ("exchange", |a| {
        let (from, to) = (c(&a[0]), c(&a[1]));
        attempt(libc::SYS_renameat2, &[CWD, from.as_ptr() as usize, CWD, to.as_ptr() as usize, 2])
    }),
    ("tmpfile", tmpfile),
    ("fchmod", |a| {
        let fd = descriptor(libc::SYS_openat, &[CWD, c(&a[1]).as_ptr() as usize, libc::O_RDONLY as usize, 0])?;
        attempt(libc::SYS_fchmod, &[fd.as_raw_fd() as usize, usize::from_str_radix(&a[0], 8).expect("a mode")])
    }),
    ("threads", threads),
    ("reopened", reopened),
    ("write-deleted", write_deleted),
    ("bare", bare),
    ("timed", timed),
];

/// `tmpfile DIR NAME`: a file without a name, then the name.
fn tmpfile(args: &[String]) -> Answer {
    let flags = (libc::O_TMPFILE | libc::O_WRONLY) as usize;
    let fd = descriptor(libc::SYS_openat, &[CWD, c(&args[0]).as_ptr() as usize, flags, 0o644])?;
    let (from, to) = (c(&format!("/proc/self/fd/{}", fd.as_raw_fd())), c(&args[1]));
    let follow = libc::AT_SYMLINK_FOLLOW as usize;
    attempt(libc::SYS_linkat, &[CWD, from.as_ptr() as usize, CWD, to.as_ptr() as usize, follow])
}

/// `threads DIR THREADS FILES`: each thread overwrites its own files `DIR/T.N`, which exist.
fn threads(args: &[String]) -> Answer {
    let count = |at: usize| args[at].parse::<u32>().expect("a number");
    let work = |thread: u32| {
        (0..count(2)).try_for_each(|n| std::fs::write(format!("{}/{thread}.{n}", args[0]), format!("new {n}")))
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..count(1)).map(|thread| scope.spawn(move || work(thread))).collect();
        all.into_iter().map(|one| one.join().expect("no thread panics")).collect::<std::io::Result<Vec<()>>>()
    })
    .map(|_| String::new())
    .map_err(errno)
}

/// Opens for reading, and again for writing through the descriptor.
fn reopened(args: &[String]) -> Answer {
    let file = std::fs::File::open(&args[0]).map_err(errno)?;
    let again = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    again.and_then(|mut file| file.write_all(args[1].as_bytes())).map(|()| String::new()).map_err(errno)
}

/// The same, when the name is gone meanwhile.
fn write_deleted(args: &[String]) -> Answer {
    let file = std::fs::File::open(&args[0]).map_err(errno)?;
    std::fs::remove_file(&args[0]).map_err(errno)?;
    let again = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    again.and_then(|mut file| file.write_all(args[1].as_bytes())).map(|()| String::new()).map_err(errno)
}

/// Closes every descriptor, then writes.
fn bare(args: &[String]) -> Answer {
    let path = c(&args[0]);
    for fd in 3..1024 {
        call(libc::SYS_close, &[fd]).ok();
    }
    let fd = descriptor(libc::SYS_openat, &[CWD, path.as_ptr() as usize, libc::O_WRONLY as usize, 0])?;
    attempt(libc::SYS_write, &[fd.as_raw_fd() as usize, b"bare".as_ptr() as usize, 4])
}

/// `timed PATH N`: nanoseconds that opening for writing takes, and for reading.
fn timed(args: &[String]) -> Answer {
    let path = c(&args[0]);
    let count: u32 = args[1].parse().expect("a number");
    let each = |flags: i32| {
        let began = std::time::Instant::now();
        for _ in 0..count {
            descriptor(libc::SYS_openat, &[CWD, path.as_ptr() as usize, flags as usize, 0])?;
        }
        Ok::<_, nix::errno::Errno>(began.elapsed().as_nanos() / u128::from(count))
    };
    Ok(format!("{} {}", each(libc::O_WRONLY)?, each(libc::O_RDONLY)?))
}
