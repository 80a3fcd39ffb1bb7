//! The notification service: it is told of system calls that change files, before the kernel makes them.
//!
//! A call waits in the kernel until it is answered. The service reads the path from the caller's memory, finds the place
//! that the command would find there, asks its keeper, and lets the call go on. It never makes a call for the command:
//! the kernel reads the path again when the call goes on, and another thread may have changed it by then. So this is
//! complete against mistakes, and not against a program that races it.
//!
//! What cannot be read or found is answered with the error that stood in the way, so that nothing goes on unseen. When
//! the listener is closed, by the supervisor's death for one, the kernel answers ENOSYS to every such call.

mod caller;
mod place;
mod territory;

pub use caller::Caller;
pub use place::{Place, Target};
pub use territory::Territory;

use crate::sys::changing::{Changes, ChangingCall, Follow, PathArg, RENAME_EXCHANGE, changing};
use crate::sys::notify::{Answer, Notification, answer, receive, still_waits, wake_on_one_processor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A change that is about to be made. Of a rename or an exchange one side may lie outside of the live roots.
#[derive(Debug)]
pub enum Change {
    /// A file is opened for writing, or made where there is none.
    Open {
        at: Place,
        creates: bool,
        exclusive: bool,
    },
    /// A file's content is cut or extended.
    Write(Place),
    /// Mode, owner, times or extended attributes.
    Attributes(Place),
    /// A new name of something new: a directory, a node, a symlink.
    Make(Place),
    /// A second name of a file.
    Link(Place),
    Remove(Place),
    Rename {
        from: Place,
        to: Place,
    },
    Exchange {
        a: Place,
        b: Place,
    },
    /// A file that has no name any more is opened for writing or changed through a descriptor.
    Nameless(OwnedFd),
}

impl Change {
    /// The names that change.
    pub fn places(&self) -> Vec<&Place> {
        match self {
            Change::Open { at, .. }
            | Change::Write(at)
            | Change::Attributes(at)
            | Change::Make(at)
            | Change::Link(at)
            | Change::Remove(at) => vec![at],
            Change::Rename { from, to } => vec![from, to],
            Change::Exchange { a, b } => vec![a, b],
            Change::Nameless(_) => Vec::new(),
        }
    }
}

/// Who does something before a change is made, and may refuse it.
pub trait Keeper {
    /// Where changes are of interest.
    fn territory(&self) -> &Territory;

    /// # Errors
    /// The error that the command gets instead of its change.
    fn before(&mut self, caller: &Caller<'_>, change: Change) -> Result<(), Errno>;
}

/// What came of a look at the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// A call, or one that went away.
    One,
    /// Nobody is left who could make a call.
    Last,
}

/// To be done once with a listener.
pub fn prepare(listener: &OwnedFd) {
    // An older kernel is only slower.
    wake_on_one_processor(listener.as_fd()).ok();
}

/// Answers the call that waits, if one does. Never waits for one.
///
/// # Errors
/// The errno of poll(2) or ioctl(2).
pub fn serve_next(listener: &OwnedFd, keeper: &mut impl Keeper) -> Result<Served, Errno> {
    let mut ready = [PollFd::new(listener, PollFlags::IN)];
    match poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Served::One),
        Err(errno) => return Err(errno),
    }
    let found = ready[0].revents();
    if !found.contains(PollFlags::IN) {
        return Ok(if found.is_empty() { Served::One } else { Served::Last });
    }
    match receive(listener.as_fd()) {
        Ok(call) => serve_one(listener.as_fd(), &call, keeper),
        // Its process was killed meanwhile.
        Err(Errno::NOENT | Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    Ok(Served::One)
}

fn serve_one(listener: BorrowedFd<'_>, call: &Notification, keeper: &mut impl Keeper) {
    let Some(kind) = changing(call.number) else {
        // The filter asks about no other call.
        answer(listener, call.id, Answer::Continue).ok();
        return;
    };
    let caller = Caller::new(call, kind.name);
    let found = changes(&caller, kind, call);
    // Only now is it known that what was read and opened belonged to the caller, and not to another with its number.
    if !still_waits(listener, call.id) {
        return;
    }
    let done = found.and_then(|found| {
        for change in found {
            if keeper.territory().concerns(&change) {
                keeper.before(&caller, change)?;
            }
        }
        Ok(())
    });
    let verdict = match done {
        Ok(()) => Answer::Continue,
        Err(errno) => Answer::Fail(errno),
    };
    // It fails only for a process that was killed meanwhile.
    answer(listener, call.id, verdict).ok();
}

/// What the call would change.
fn changes(caller: &Caller<'_>, kind: &ChangingCall, call: &Notification) -> Result<Vec<Change>, Errno> {
    let number = |index: usize| call.arguments[index] as u32;
    let at = |arg: PathArg, follow: bool| {
        let dir = arg.dir.map(|index| number(index) as i32);
        caller.find(dir, call.arguments[arg.path], follow)
    };
    let named = |target: Target, change: fn(Place) -> Change| match target {
        Target::Named(place) => change(place),
        Target::Nameless(fd) => Change::Nameless(fd),
    };
    const NOFOLLOW: u32 = 0x100;
    const SYMLINK_FOLLOW: u32 = 0x400;
    let one = match kind.changes {
        Changes::Open { at: arg, flags } => {
            let creat = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
            let flags = flags.map_or(creat, |index| OFlags::from_bits_retain(number(index)));
            if flags.contains(OFlags::TMPFILE) {
                // No name; linkat(2) gives it one, and is told of.
                return Ok(Vec::new());
            }
            let creates = flags.contains(OFlags::CREATE);
            let exclusive = creates && flags.contains(OFlags::EXCL);
            match at(arg, !exclusive && !flags.contains(OFlags::NOFOLLOW))? {
                Target::Named(at) => Change::Open { at, creates, exclusive },
                Target::Nameless(fd) => Change::Nameless(fd),
            }
        }
        Changes::Truncate { at: arg } => named(at(arg, true)?, Change::Write),
        Changes::Attributes { at: arg, follow } => {
            if let (0, Some(dir)) = (call.arguments[arg.path], arg.dir) {
                // utimensat(2) with a null path.
                return Ok(vec![named(caller.descriptor(number(dir) as i32)?, Change::Attributes)]);
            }
            let follow = match follow {
                Follow::Yes => true,
                Follow::No => false,
                Follow::Flags(index) => number(index) & NOFOLLOW == 0,
            };
            named(at(arg, follow)?, Change::Attributes)
        }
        Changes::AttributesOf { descriptor } => {
            named(caller.descriptor(number(descriptor) as i32)?, Change::Attributes)
        }
        Changes::Make { at: arg } => named(at(arg, false)?, Change::Make),
        Changes::Remove { at: arg } => named(at(arg, false)?, Change::Remove),
        Changes::Link { from, to, flags } => {
            // What gets the second name matters for one thing alone: it must not be a file that only a backup holds.
            let follow = flags.is_some_and(|index| number(index) & SYMLINK_FOLLOW != 0);
            let source = at(from, follow);
            let made = named(at(to, false)?, Change::Link);
            return Ok(match source {
                Ok(Target::Nameless(fd)) => vec![Change::Nameless(fd), made],
                Ok(Target::Named(_)) | Err(_) => vec![made],
            });
        }
        Changes::Rename { from, to, flags } => {
            let exchange = flags.is_some_and(|index| number(index) & RENAME_EXCHANGE != 0);
            match (at(from, false)?, at(to, false)?) {
                (Target::Named(a), Target::Named(b)) if exchange => Change::Exchange { a, b },
                (Target::Named(from), Target::Named(to)) => Change::Rename { from, to },
                // A root directory, which cannot be renamed.
                _ => return Ok(Vec::new()),
            }
        }
        Changes::Bind { address, length } => match caller.unix_address(call.arguments[address], number(length))? {
            Some(path) => named(caller.find_text(None, &path, false)?, Change::Make),
            None => return Ok(Vec::new()),
        },
    };
    Ok(vec![one])
}
