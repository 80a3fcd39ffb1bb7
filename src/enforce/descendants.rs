//! Without a pid namespace no end of a process ends others: as a subreaper pid 1 gets every orphan of the command's, and
//! kills its children until none is left.
//!
//! Children alone: an unreaped child's number is nobody else's. The children of a killed one come here next.

use crate::sys;
use rustix::io::Errno;
use rustix::process::{WaitOptions, getpid, wait};
use rustix::thread::gettid;
use std::fs;
use std::time::{Duration, Instant};

/// A process that does not die of SIGKILL in this time waits for a device; whoever forks faster than this kills has to
/// be ended by hand. The run must end all the same.
const LONGEST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Kills and reaps every descendant of this process.
pub(super) fn end_all() {
    let until = Instant::now() + LONGEST;
    while reap() && Instant::now() < until {
        for child in children() {
            sys::kill(child, libc::SIGKILL).ok();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Takes in what is dead. Is there a child left?
fn reap() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn children() -> Vec<i32> {
    let file = format!("/proc/self/task/{}/children", gettid().as_raw_nonzero());
    match fs::read_to_string(file) {
        Ok(text) => text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect(),
        // A kernel without CONFIG_PROC_CHILDREN.
        Err(_) => below(getpid().as_raw_nonzero().get()),
    }
}

/// Is `group` the process group of a descendant of this process?
pub(super) fn have_group(group: i32) -> bool {
    let mut todo = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = todo.pop() {
        let children = below(parent);
        if children.iter().any(|child| stat(*child).is_some_and(|(_, of)| of == group)) {
            return true;
        }
        todo.extend(children);
    }
    false
}

fn below(parent: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(above, _)| above == parent)).collect()
}

/// Parent and process group. The name before them may hold anything, parentheses included.
fn stat(pid: i32) -> Option<(i32, i32)> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
