//! The veil's own process. The kernel asks it with locks of the host's file system held (an overlay copies a directory up
//! while it holds the lock on renames of the whole file system), so it must always answer, and wait for nobody: not while
//! the supervisor is stopped or copies a file, and never for a layer of the overlay that asks.

use super::Veil;
use super::reads::{HiddenRead, Told};
use crate::sys;
use crate::watch::fuse::Server;
use crate::watch::helper::{self, Helper};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The veil of one run, as the supervisor holds it.
pub struct Service<'a> {
    /// Until there is a connection to serve.
    veil: Option<Veil<'a>>,
    process: Option<Helper>,
    told: Told,
}

impl<'a> Service<'a> {
    pub fn new(veil: Veil<'a>) -> Service<'a> {
        Service { veil: Some(veil), process: None, told: Told::default() }
    }

    /// Serves a descriptor of /dev/fuse, of which no copy stays here.
    ///
    /// # Errors
    /// The errno of fork(2) or socketpair(2).
    pub fn serve(&mut self, device: OwnedFd) -> Result<(), Errno> {
        let Some(veil) = self.veil.take() else { return Ok(()) };
        self.process = Some(Helper::fork(&[device.as_fd()], |channel| serve(veil, &device, channel))?);
        Ok(())
    }

    /// What the process tells waits here.
    pub fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(Helper::channel)
    }

    /// Takes what it tells. False once it is gone, which ends nothing but lets nothing be looked up any more.
    pub fn hear(&mut self) -> bool {
        let Some(process) = &self.process else { return true };
        let mut buffer = [0; 8 * 1024];
        while let Ok((length @ 1.., _)) = recv(process.channel(), &mut buffer, RecvFlags::DONTWAIT) {
            self.told.take(&buffer[..length]);
        }
        !process.is_gone()
    }

    /// The box is gone. The hidden names that it looked up, in the order of the first look-up.
    #[must_use]
    pub fn end(mut self) -> Vec<HiddenRead> {
        if let Some(process) = &mut self.process {
            process.end();
        }
        self.hear();
        self.told.list
    }
}

fn serve(mut veil: Veil<'_>, device: &OwnedFd, channel: BorrowedFd<'_>) -> Infallible {
    let served = helper::settle(channel, c"agentbox-veil").and_then(|()| {
        veil.seen.told_to(rustix::io::dup(channel)?);
        let mut server = Server::default();
        let number = server.add(veil);
        server.attach(number, rustix::io::dup(device)?)?;
        loop {
            let mut ready: Vec<PollFd<'_>> =
                server.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            // Nothing inside has it mounted any more; the supervisor ends this process.
            let connected = !ready.is_empty();
            ready.push(PollFd::from_borrowed_fd(channel, PollFlags::empty()));
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err::<Infallible, Errno>(errno),
            }
            if ready.last().is_some_and(|fd| fd.revents().contains(PollFlags::HUP)) {
                sys::exit_now(0);
            }
            drop(ready);
            if connected {
                server.answer()?;
            }
        }
    });
    match served {
        Ok(never) => never,
        // Without it every look-up inside fails: closed, not open.
        Err(_) => sys::exit_now(1),
    }
}
