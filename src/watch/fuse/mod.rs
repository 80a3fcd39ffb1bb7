//! A FUSE server for small trees without files: one server, a connection for each tree, no thread. It answers from the
//! moment a connection's descriptor arrives, while pid 1 is still mounting.
//!
//! Written by hand, for what is needed is a dozen requests and no data: the crates for it start threads of their own and
//! bring a read buffer of megabytes for every connection, where a launch of two milliseconds has no room for either.

mod message;

pub use message::{Attributes, Entry, Life, Listed, Node, ROOT, Statistics};

use message::{Reply, Request, Taken};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Large enough for every request: there are no writes, and the kernel refuses a smaller one (fuse_dev_do_read).
const BUFFER: usize = 16 * 1024;

/// Who looks a name up, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The thread, as the box numbers it.
    pub pid: u32,
    /// The kernel asks on behalf of a listing that holds this name, of so many; no program asked for it.
    pub listing: Option<usize>,
}

/// What a connection serves. Nodes are numbers of the tree's own, and never change their meaning: the kernel keeps them
/// for as long as it likes.
pub trait Tree {
    fn look_up(&mut self, caller: Caller, parent: Node, name: &OsStr) -> Entry;

    /// # Errors
    /// What the call inside gets.
    fn attributes(&mut self, node: Node) -> Result<Attributes, Errno>;

    /// # Errors
    /// What the call inside gets.
    fn list(&mut self, node: Node) -> Result<Vec<Listed>, Errno>;

    fn statistics(&mut self, node: Node) -> Statistics;
}

/// All connections of one box.
#[derive(Default)]
pub struct Server<'a> {
    connections: Vec<Connection<'a>>,
    buffer: Vec<u8>,
}

struct Connection<'a> {
    tree: Box<dyn Tree + 'a>,
    /// Once pid 1 has sent it, until the kernel ends the connection.
    device: Option<OwnedFd>,
    listings: Listings,
}

/// Open directories, by the numbers that the kernel uses for them.
#[derive(Default)]
struct Listings {
    last: u64,
    open: HashMap<u64, Listing>,
}

struct Listing {
    node: Node,
    pid: u32,
    /// As told, once it was read. Taken anew whenever the reader starts again: a listing is never kept.
    names: Option<Vec<Listed>>,
}

impl<'a> Server<'a> {
    /// Adds a tree; its connection comes later. Returns its number.
    pub fn add(&mut self, tree: impl Tree + 'a) -> u8 {
        self.connections.push(Connection { tree: Box::new(tree), device: None, listings: Listings::default() });
        u8::try_from(self.connections.len() - 1).unwrap_or(u8::MAX)
    }

    /// Serves a tree on a descriptor of /dev/fuse, which must not block.
    ///
    /// # Errors
    /// The errno of the descriptor.
    pub fn attach(&mut self, number: u8, device: OwnedFd) -> Result<(), Errno> {
        if let Some(connection) = self.connections.get_mut(usize::from(number)) {
            connection.device = Some(device);
        }
        self.answer()
    }

    /// What to wait on.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.connections.iter().filter_map(|connection| connection.device.as_ref()).map(AsFd::as_fd)
    }

    /// Answers everything that waits.
    ///
    /// # Errors
    /// The errno of a descriptor that can no longer be read.
    pub fn answer(&mut self) -> Result<(), Errno> {
        self.buffer.resize(BUFFER, 0);
        self.connections.iter_mut().try_for_each(|connection| connection.answer(&mut self.buffer))
    }
}

impl Connection<'_> {
    fn answer(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        while let Some(device) = &self.device {
            let length = match rustix::io::read(device, &mut *buffer) {
                Ok(length) => length,
                // NOENT: the asker was killed before its request was read.
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                // Nothing inside has it mounted any more.
                Err(Errno::NODEV) => {
                    self.device = None;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            };
            let Some(taken) = message::take(&buffer[..length]) else { continue };
            let Some(mut reply) = reply(self.tree.as_mut(), &mut self.listings, &taken) else { continue };
            match rustix::io::write(device, reply.finish(taken.unique)) {
                // NOENT: the asker did not wait; NODEV shows at the next read.
                Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

fn reply(tree: &mut dyn Tree, listings: &mut Listings, taken: &Taken<'_>) -> Option<Reply> {
    let node = taken.node;
    Some(match taken.request {
        Request::Init { major, minor, flags } => message::init(major, minor, flags),
        Request::LookUp { name } => {
            let listing = listings.holds(taken.pid, node, name);
            message::entry(&tree.look_up(Caller { pid: taken.pid, listing }, node, name))
        }
        Request::Attributes => or_error(tree.attributes(node).map(|found| message::attributes(&found))),
        Request::OpenDir => message::opened(listings.start(node, taken.pid)),
        Request::ReadDir { handle, offset, size } => match listings.read(tree, handle, offset) {
            Ok(rest) => message::listed(rest, offset, size),
            Err(errno) => Reply::error(errno),
        },
        Request::ReleaseDir { handle } => {
            listings.open.remove(&handle);
            Reply::empty()
        }
        Request::StatFs => message::statistics(&tree.statistics(node)),
        // Once for each kind: the kernel does not ask again, and takes it for a file system without them.
        Request::Other => Reply::error(Errno::NOSYS),
        Request::NoReply => return None,
    })
}

fn or_error(reply: Result<Reply, Errno>) -> Reply {
    reply.unwrap_or_else(Reply::error)
}

impl Listings {
    fn start(&mut self, node: Node, pid: u32) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Listing { node, pid, names: None });
        self.last
    }

    fn read(&mut self, tree: &mut dyn Tree, handle: u64, offset: u64) -> Result<&[Listed], Errno> {
        let listing = self.open.get_mut(&handle).ok_or(Errno::BADF)?;
        if offset == 0 || listing.names.is_none() {
            listing.names = Some(tree.list(listing.node)?);
        }
        let names = listing.names.as_deref().unwrap_or_default();
        Ok(&names[names.len().min(usize::try_from(offset).unwrap_or(usize::MAX))..])
    }

    /// Overlay looks up each whiteout that a listing showed, in the thread that lists and before it closes the
    /// directory (ovl_check_whiteouts).
    fn holds(&self, pid: u32, node: Node, name: &OsStr) -> Option<usize> {
        let of_caller = self.open.values().filter(|listing| listing.pid == pid && listing.node == node);
        let mut names = of_caller.filter_map(|listing| listing.names.as_ref());
        names.find(|names| names.iter().any(|listed| listed.name == name)).map(Vec::len)
    }
}

impl Listed {
    pub fn whiteout(node: Node, name: OsString) -> Listed {
        Listed { node, kind: libc_kind::CHARACTER_DEVICE, name }
    }
}

/// Of dirent's d_type.
mod libc_kind {
    pub const CHARACTER_DEVICE: u32 = 2;
}
