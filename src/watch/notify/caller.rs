//! The thread whose call waits: its memory, its directories, its descriptors, and what a path means to it.

use super::place::{self, Target};
use crate::sys::changing::AT_FDCWD;
use crate::sys::notify::{Notification, read_memory};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;
const LONGEST_PATH: usize = 4096;
const SEARCH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Valid for as long as its call waits.
#[derive(Debug)]
pub struct Caller<'a> {
    pub thread: u32,
    /// The name of its call.
    pub call: &'static str,
    waits: PhantomData<&'a Notification>,
}

impl<'a> Caller<'a> {
    pub(super) fn new(waits: &'a Notification, call: &'static str) -> Caller<'a> {
        Caller { thread: waits.thread, call, waits: PhantomData }
    }

    /// The program that it runs, as the box names it.
    pub fn program(&self) -> PathBuf {
        let link = rustix::fs::readlinkat(CWD, self.proc("exe"), Vec::new());
        link.map(|text| PathBuf::from(OsString::from_vec(text.into_bytes()))).unwrap_or_default()
    }

    fn proc(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.thread)
    }

    /// Opens what a magic link of this thread leads to, without opening it for anything.
    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(CWD, self.proc(name), SEARCH, Mode::empty())
    }

    pub(super) fn root(&self) -> Result<OwnedFd, Errno> {
        self.open("root")
    }

    pub(super) fn base(&self, dir: Option<i32>) -> Result<OwnedFd, Errno> {
        match dir {
            None | Some(AT_FDCWD) => self.open("cwd"),
            Some(fd) => self.open(&format!("fd/{fd}")).map_err(closed),
        }
    }

    /// What a descriptor leads to.
    pub(super) fn descriptor(&self, fd: i32) -> Result<Target, Errno> {
        if fd == AT_FDCWD {
            return place::target_of(self, self.open("cwd")?);
        }
        place::target_of(self, self.open(&format!("fd/{fd}")).map_err(closed)?)
    }

    /// The place that the path at `address` means.
    pub(super) fn find(&self, dir: Option<i32>, address: u64, follow: bool) -> Result<Target, Errno> {
        let path = self.text(address)?;
        if let (true, Some(fd)) = (path.is_empty(), dir) {
            // With AT_EMPTY_PATH the descriptor itself is meant; without it the call fails.
            return self.descriptor(fd);
        }
        self.find_text(dir, &path, follow)
    }

    pub(super) fn find_text(&self, dir: Option<i32>, path: &[u8], follow: bool) -> Result<Target, Errno> {
        place::find(self, dir, Path::new(OsStr::from_bytes(path)), follow)
    }

    /// The text at an address, up to its end.
    fn text(&self, address: u64) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        while text.len() < LONGEST_PATH {
            let at = address.checked_add(text.len() as u64).ok_or(Errno::FAULT)?;
            // Never over the end of a page: the next one need not be there.
            let room = PAGE - (at as usize) % PAGE;
            let start = text.len();
            text.resize(start + room, 0);
            let got = read_memory(self.thread, at, &mut text[start..])?;
            text.truncate(start + got);
            if let Some(end) = text[start..].iter().position(|&byte| byte == 0) {
                text.truncate(start + end);
                return Ok(text);
            }
            if got == 0 {
                return Err(Errno::FAULT);
            }
        }
        Err(Errno::NAMETOOLONG)
    }

    /// The path of a unix socket's address; none for an abstract one and for other families.
    pub(super) fn unix_address(&self, address: u64, length: u32) -> Result<Option<Vec<u8>>, Errno> {
        const FAMILY: usize = 2;
        const LONGEST: usize = 110;
        let length = (length as usize).min(LONGEST);
        if length <= FAMILY {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        let got = read_memory(self.thread, address, &mut bytes)?;
        if got < length {
            return Err(Errno::FAULT);
        }
        const AF_UNIX: [u8; 2] = 1u16.to_ne_bytes();
        let path = bytes[FAMILY..].split(|&byte| byte == 0).next().unwrap_or_default();
        Ok((bytes[..FAMILY] == AF_UNIX && !path.is_empty()).then(|| path.to_vec()))
    }

    /// What `/proc/self` and `/proc/thread-self` say inside: the numbers of the innermost pid namespace.
    pub(super) fn own_number(&self, name: &OsStr) -> Result<OsString, Errno> {
        let status = crate::sys::read_whole(self.proc("status"))?;
        let status = String::from_utf8_lossy(&status);
        let last = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or(Errno::SRCH)?;
            line.split_ascii_whitespace().next_back().ok_or(Errno::SRCH)
        };
        let process = last("NStgid:")?;
        Ok(if name == "self" { process.into() } else { format!("{process}/task/{}", last("NSpid:")?).into() })
    }
}

fn closed(errno: Errno) -> Errno {
    if errno == Errno::NOENT { Errno::BADF } else { errno }
}
