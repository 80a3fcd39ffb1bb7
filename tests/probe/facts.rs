//! What the probe sees of itself and of the place it runs in.

use crate::files::errno;
use crate::raw::{call, in_child};
use crate::{Answer, Try};
use nix::errno::Errno;

pub const TRIES: &[Try] = &[
    ("ok", |_| Ok(String::new())),
    ("print", |a| Ok(a.join(" "))),
    ("status", status),
    ("fds", fds),
    ("env", |a| Ok(format!("={}", std::env::var(&a[0]).map_err(|_| Errno::ENODATA)?))),
    ("ids", |_| Ok(format!("{} {}", nix::unistd::getuid(), nix::unistd::getgid()))),
    ("pids", |_| Ok(processes()?.join(" "))),
    ("mounts", |a| mount_flags(&a[0])),
    ("forks", |a| forks(a[0].parse().expect("a number"))),
    ("hold", |a| hold(a[0].parse().expect("a number of MiB"))),
    ("fill", |a| fill(&a[0], a[1].parse().expect("a number of MiB"))),
    ("securebits", |_| Ok(format!("{:#x}", call(libc::SYS_prctl, &[libc::PR_GET_SECUREBITS as usize])?))),
    ("bounding", |_| bounding()),
];

/// `status FIELD...`: the values of these fields of /proc/self/status.
fn status(args: &[String]) -> Answer {
    let text = std::fs::read_to_string("/proc/self/status").map_err(errno)?;
    let value = |field: &String| {
        let line = text.lines().find(|line| line.split(':').next() == Some(field));
        line.and_then(|line| line.split_once(':')).map_or("?", |(_, value)| value.trim())
    };
    Ok(args.iter().map(value).collect::<Vec<_>>().join(" "))
}

/// The open descriptors, without the one that lists them.
fn fds(_: &[String]) -> Answer {
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").map_err(errno)? {
        let path = entry.map_err(errno)?.path();
        let to = std::fs::read_link(&path).map_err(errno)?;
        if !to.to_string_lossy().ends_with("/fd") {
            let name = path.file_name().expect("a number").to_string_lossy().into_owned();
            open.push(name.parse::<u32>().expect("descriptors are numbers"));
        }
    }
    open.sort_unstable();
    Ok(open.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

fn processes() -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/proc").map_err(errno)? {
        let name = entry.map_err(errno)?.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The options of the mount that holds the path, by the longest mount point.
fn mount_flags(path: &str) -> Answer {
    let table = std::fs::read_to_string("/proc/self/mountinfo").map_err(errno)?;
    let holds =
        |point: &str| path == point || point == "/" || path.strip_prefix(point).is_some_and(|r| r.starts_with('/'));
    let line = table.lines().filter(|line| line.split(' ').nth(4).is_some_and(holds));
    let line = line.max_by_key(|line| line.split(' ').nth(4).map_or(0, str::len));
    Ok(line.and_then(|line| line.split(' ').nth(5)).unwrap_or("?").to_owned())
}

/// Holds up to this many processes at once; prints how many there were, and the errno that stopped it.
fn forks(wanted: usize) -> Answer {
    let mut children = Vec::new();
    let mut stopped = None;
    while children.len() < wanted {
        // SAFETY: the probe has a single thread.
        match unsafe { nix::unistd::fork() } {
            Ok(nix::unistd::ForkResult::Child) => {
                nix::unistd::pause();
                // SAFETY: ends this process only.
                unsafe { libc::_exit(0) }
            }
            Ok(nix::unistd::ForkResult::Parent { child }) => children.push(child),
            Err(err) => {
                stopped = Some(err);
                break;
            }
        }
    }
    for child in &children {
        nix::sys::signal::kill(*child, nix::sys::signal::Signal::SIGKILL)?;
        nix::sys::wait::waitpid(*child, None)?;
    }
    Ok(stopped.map_or("all".to_owned(), |err| format!("{} {err:?}", children.len())))
}

/// Maps and touches this many MiB in a child.
fn hold(mib: usize) -> Answer {
    in_child(|| {
        for _ in 0..mib {
            let args = [0, 1 << 20, (libc::PROT_READ | libc::PROT_WRITE) as usize];
            let rest = [(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE) as usize, usize::MAX, 0];
            call(libc::SYS_mmap, &[args, rest].concat())?;
        }
        Ok(String::new())
    })
}

/// Writes this many MiB to a file and removes it.
fn fill(path: &str, mib: usize) -> Answer {
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(path)?;
        for _ in 0..mib {
            std::io::Write::write_all(&mut file, &[1; 1 << 20])?;
        }
        Ok(())
    };
    let result = write();
    std::fs::remove_file(path).map_err(errno)?;
    result.map(|()| String::new()).map_err(errno)
}

/// The capabilities of the bounding set, asked one by one: PR_CAPBSET_READ past the last one is EINVAL.
fn bounding() -> Answer {
    let held = (0..64).filter(|cap| call(libc::SYS_prctl, &[libc::PR_CAPBSET_READ as usize, *cap]) == Ok(1));
    Ok(format!("={}", held.map(|cap| cap.to_string()).collect::<Vec<_>>().join(" ")))
}
