//! A process of the supervisor's own beside it: forked from it, out of reach of the box and of the launcher's job, and
//! gone when the supervisor is.

use crate::sys::{self, Child};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    DumpableBehavior, Signal, WaitId, WaitIdOptions, pidfd_send_signal, set_dumpable_behavior,
    set_parent_process_death_signal, setpgid, waitid,
};
use std::convert::Infallible;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The process, as the supervisor holds it. Ended when dropped.
#[derive(Debug)]
pub(super) struct Helper {
    pidfd: OwnedFd,
    channel: OwnedFd,
    reaped: bool,
}

impl Helper {
    /// Forks a process that keeps `kept` and its end of the channel, and nothing else: the supervisor's end among them,
    /// or its death would not show, and what the launcher writes to, or a reader of it would wait for this process.
    /// The caller must have a single thread, and must be the one that stays.
    pub fn fork(kept: &[BorrowedFd<'_>], rest: impl FnOnce(BorrowedFd<'_>) -> Infallible) -> Result<Helper, Errno> {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        match sys::fork_with_pidfd()? {
            Child::Outside { pidfd, .. } => Ok(Helper { pidfd, channel: here, reaped: false }),
            Child::Inside => {
                let mut kept = kept.to_vec();
                kept.push(there.as_fd());
                sys::close_all_but(&kept, || rest(there.as_fd()))
            }
        }
    }

    pub fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Did it end by itself? The channel tells, before the process is gone altogether.
    pub fn is_gone(&self) -> bool {
        has_hung_up(self.channel.as_fd())
    }

    /// Ends it, and waits until it holds nothing of the box any more.
    pub fn end(&mut self) {
        if !self.reaped {
            // It fails for a process that has just ended by itself.
            pidfd_send_signal(&self.pidfd, Signal::KILL).ok();
            while matches!(waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
            self.reaped = true;
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) fn has_hung_up(channel: BorrowedFd<'_>) -> bool {
    let mut ready = [PollFd::new(&channel, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok() && ready[0].revents().contains(PollFlags::HUP)
}

/// Ties this process to the supervisor, out of reach of all others, and out of the launcher's job: a stop of that must
/// not stop it. The death signal comes first and the look at the parent second.
pub(super) fn settle(channel: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if has_hung_up(channel) {
        sys::exit_now(0);
    }
    rustix::thread::set_name(name)?;
    setpgid(None, None)
}
