//! The messages of FUSE (linux/fuse.h) that a tree without files needs, as bytes. Lengths are those of version 7.31,
//! which every kernel with FUSE in user namespaces and overlays there (Linux 5.11) speaks; a newer one sends longer
//! requests and takes these replies.

use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The number of a file or directory.
pub type Node = u64;

/// Of the mounted directory itself.
pub const ROOT: Node = 1;

const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Names of one directory are looked up without waiting for each other.
const PARALLEL_DIROPS: u32 = 1 << 18;
/// The least that the kernel takes; nothing is ever written.
const MAX_WRITE: u32 = 4096;
/// Seconds: longer than any run.
const FOR_EVER: u64 = 1_000_000_000;

/// How long the kernel may use an answer without asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Run,
    Once,
}

impl Life {
    fn seconds(self) -> u64 {
        match self {
            Life::Run => FOR_EVER,
            Life::Once => 0,
        }
    }
}

/// What stands at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing, for as long as the box lives.
    Absent,
    /// Its attributes are asked for again whenever a program wants them.
    Found { attributes: Attributes, name_life: Life },
}

/// As stat(2) has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub node: Node,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub blocks: u64,
    pub block_size: u32,
    /// Seconds and nanoseconds of the last access, modification and change.
    pub times: [(i64, u32); 3],
}

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub node: Node,
    /// As readdir(3)'s d_type.
    pub kind: u32,
    pub name: OsString,
}

/// As statfs(2) has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub blocks: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_size: u32,
}

pub struct Taken<'a> {
    pub unique: u64,
    pub node: Node,
    pub pid: u32,
    pub request: Request<'a>,
}

pub enum Request<'a> {
    Init {
        major: u32,
        minor: u32,
        flags: u32,
    },
    LookUp {
        name: &'a OsStr,
    },
    Attributes,
    OpenDir,
    ReadDir {
        handle: u64,
        offset: u64,
        size: usize,
    },
    ReleaseDir {
        handle: u64,
    },
    StatFs,
    /// Nothing that such a tree has.
    Other,
    /// The kernel waits for no answer.
    NoReply,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn name(&self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        Some(OsStr::from_bytes(&self.0[..end]))
    }
}

/// Reads one request. `None` for bytes that no kernel sends.
pub fn take(bytes: &[u8]) -> Option<Taken<'_>> {
    let mut reader = Reader(bytes);
    let (_length, opcode) = (reader.u32()?, reader.u32()?);
    let (unique, node) = (reader.u64()?, reader.u64()?);
    let (_uid, _gid, pid, _extensions) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
    let request = match opcode {
        1 => Request::LookUp { name: reader.name()? },
        // FORGET, INTERRUPT, BATCH_FORGET: a node is never given up, and no answer takes long.
        2 | 36 | 42 => Request::NoReply,
        3 => Request::Attributes,
        17 => Request::StatFs,
        26 => {
            let (major, minor, _readahead) = (reader.u32()?, reader.u32()?, reader.u32()?);
            Request::Init { major, minor, flags: reader.u32()? }
        }
        27 => Request::OpenDir,
        28 => {
            let (handle, offset) = (reader.u64()?, reader.u64()?);
            Request::ReadDir { handle, offset, size: reader.u32()? as usize }
        }
        29 => Request::ReleaseDir { handle: reader.u64()? },
        _ => Request::Other,
    };
    Some(Taken { unique, node, pid, request })
}

/// The bytes of one answer, with room for the header in front.
pub struct Reply {
    bytes: Vec<u8>,
    error: i32,
}

const HEADER: usize = 16;

impl Reply {
    pub fn empty() -> Reply {
        let mut bytes = Vec::with_capacity(HEADER + 128);
        bytes.resize(HEADER, 0);
        Reply { bytes, error: 0 }
    }

    pub fn error(errno: Errno) -> Reply {
        Reply { error: -errno.raw_os_error(), ..Reply::empty() }
    }

    /// The whole message.
    pub fn finish(&mut self, unique: u64) -> &[u8] {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&self.error.to_ne_bytes());
        self.bytes[8..HEADER].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes
    }

    fn u32(&mut self, value: u32) -> &mut Reply {
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Reply {
        self.bytes.extend(value.to_ne_bytes());
        self
    }

    fn zeros(&mut self, count: usize) -> &mut Reply {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    fn attributes(&mut self, found: &Attributes) -> &mut Reply {
        self.u64(found.node).u64(found.size).u64(found.blocks);
        for (seconds, _) in found.times {
            self.u64(seconds.cast_unsigned());
        }
        for (_, nanoseconds) in found.times {
            self.u32(nanoseconds);
        }
        // A device number and flags come around the block size; 0:0 makes a character device a whiteout.
        self.u32(found.mode).u32(found.links).u32(found.uid).u32(found.gid).u32(0).u32(found.block_size).u32(0)
    }
}

/// Agrees on a version. A kernel with another major number is answered with ours alone, and asks again.
pub fn init(major: u32, minor: u32, flags: u32) -> Reply {
    let mut reply = Reply::empty();
    reply.u32(MAJOR).u32(MINOR.min(if major == MAJOR { minor } else { MINOR }));
    // Read-ahead, flags, background requests twice (0: the kernel's defaults), write size, granularity of times.
    reply.u32(0).u32(flags & PARALLEL_DIROPS).u32(0).u32(MAX_WRITE).u32(1).zeros(36);
    reply
}

pub fn entry(found: &Entry) -> Reply {
    let mut reply = Reply::empty();
    match found {
        // Node 0 is an answer that lives; ENOENT would be asked for again.
        Entry::Absent => {
            reply.u64(0).u64(0).u64(FOR_EVER).u64(0).u32(0).u32(0).zeros(88);
        }
        Entry::Found { attributes, name_life } => {
            reply.u64(attributes.node).u64(0).u64(name_life.seconds()).u64(0).u32(0).u32(0).attributes(attributes);
        }
    }
    reply
}

pub fn attributes(found: &Attributes) -> Reply {
    let mut reply = Reply::empty();
    reply.u64(0).u32(0).u32(0).attributes(found);
    reply
}

/// No flag: none of it may be kept.
pub fn opened(handle: u64) -> Reply {
    let mut reply = Reply::empty();
    reply.u64(handle).u32(0).u32(0);
    reply
}

/// As many names as fit, the first of which is number `offset` of the listing.
pub fn listed(names: &[Listed], offset: u64, size: usize) -> Reply {
    let mut reply = Reply::empty();
    for (next, listed) in (offset + 1..).zip(names) {
        let name = listed.name.as_bytes();
        let length = (24 + name.len()).next_multiple_of(8);
        if reply.bytes.len() - HEADER + length > size {
            break;
        }
        reply.u64(listed.node).u64(next).u32(name.len() as u32).u32(listed.kind);
        reply.bytes.extend(name);
        let end = reply.bytes.len();
        reply.bytes.resize(HEADER + (end - HEADER).next_multiple_of(8), 0);
    }
    reply
}

pub fn statistics(found: &Statistics) -> Reply {
    const NAME_MAX: u32 = 255;
    let mut reply = Reply::empty();
    reply.u64(found.blocks).u64(found.free).u64(found.available).u64(found.files).u64(found.files_free);
    reply.u32(found.block_size).u32(NAME_MAX).u32(found.block_size).zeros(28);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [40 + rest.len() as u32, opcode] {
            bytes.extend(word.to_ne_bytes());
        }
        for long in [7_u64, 9] {
            bytes.extend(long.to_ne_bytes());
        }
        for word in [1_u32, 2, 3, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn requests_are_read() {
        let bytes = request(1, b".env\0");
        let taken = take(&bytes).unwrap();
        assert_eq!((taken.unique, taken.node, taken.pid), (7, 9, 3));
        assert!(matches!(taken.request, Request::LookUp { name } if name == ".env"));
        assert!(matches!(take(&request(46, b"")).unwrap().request, Request::Other));
        assert!(matches!(take(&request(42, b"")).unwrap().request, Request::NoReply));
    }

    #[test]
    fn nonsense_is_no_request() {
        for bytes in [&b""[..], &[0; 39], &request(1, b"no end"), &request(28, &[0; 16]), &request(29, &[0; 7])] {
            assert!(take(bytes).is_none());
        }
    }

    #[test]
    fn replies_have_the_lengths_of_the_kernel() {
        let attributes = super::Attributes {
            node: 2,
            mode: 0o40755,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            times: [(-1, 5); 3],
        };
        let length = |mut reply: Reply| reply.finish(1).len() - HEADER;
        assert_eq!(length(init(7, 45, u32::MAX)), 64);
        assert_eq!(length(entry(&Entry::Absent)), 128);
        assert_eq!(length(entry(&Entry::Found { attributes: attributes.clone(), name_life: Life::Run })), 128);
        assert_eq!(length(super::attributes(&attributes)), 104);
        assert_eq!(length(opened(1)), 16);
        assert_eq!(length(statistics(&Statistics::default())), 80);
        assert_eq!(Reply::error(Errno::NOENT).finish(3)[4..8], (-2_i32).to_ne_bytes());
    }

    #[test]
    fn a_listing_fills_no_more_than_was_asked_for() {
        let names: Vec<Listed> = [".env", "a-name-of-nine"].map(|name| Listed::whiteout(3, name.into())).to_vec();
        let length = |size| listed(&names, 0, size).finish(1).len() - HEADER;
        assert_eq!((length(31), length(32), length(71), length(72)), (0, 32, 32, 72));
        assert_eq!(listed(&names[2..], 2, 4096).finish(1).len(), HEADER);
    }
}
