//! Who made a name that appeared in a live root while the command runs.
//!
//! The notification service notes every name of the command's before the call that makes it goes on, so whoever saw the
//! name appear and asks then gets the right answer. It works in the supervisor; the guard's own process asks it there.

use crate::watch::made::Made;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A supervisor that takes longer to answer is stopped, or copies something large.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// The first byte of a question, which no note begins with.
pub(super) const QUESTION: u8 = b'?';

/// Whose a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// It is the command's own, and stays visible to it.
    Command,
    /// Somebody outside of the box made it.
    Host,
    /// Nobody saw it being made. In a live root the name then stays visible: to hide what may be the command's own
    /// would break a build at random.
    Unknown,
}

/// Whoever saw names being made.
pub(super) enum Makers {
    /// Nobody: there is no notification service in this run.
    Unseen,
    /// This process did.
    Seen(Arc<Made>),
    /// The supervisor, at the other end; with the number of the last question.
    Asked(OwnedFd, u32),
}

impl Makers {
    pub fn maker(&mut self, path: &Path) -> Maker {
        match self {
            Makers::Unseen => Maker::Unknown,
            Makers::Seen(made) => of(made, path),
            Makers::Asked(channel, number) => {
                *number = number.wrapping_add(1);
                ask(channel, *number, path).unwrap_or(Maker::Unknown)
            }
        }
    }
}

fn of(made: &Made, path: &Path) -> Maker {
    if made.made_by_command(path) { Maker::Command } else { Maker::Host }
}

fn ask(channel: &OwnedFd, number: u32, path: &Path) -> Option<Maker> {
    let question = [&[QUESTION][..], &number.to_le_bytes(), path.as_os_str().as_bytes()].concat();
    send(channel, &question, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok()?;
    loop {
        let mut ready = [PollFd::new(channel, PollFlags::IN)];
        poll(&mut ready, Some(&PATIENCE)).ok().filter(|&ready| ready > 0)?;
        let mut answer = [0; 5];
        let (length, _) = recv(channel, &mut answer, RecvFlags::DONTWAIT).ok().filter(|(length, _)| *length > 0)?;
        let (first, verdict) = answer[..length].split_first_chunk::<4>()?;
        // One that came too late belongs to an earlier question.
        if u32::from_le_bytes(*first) == number {
            return Some(if verdict == [1] { Maker::Command } else { Maker::Host });
        }
    }
}

/// Answers what the guard's process asks. Never waits.
pub(super) fn answer(channel: impl AsFd, question: &[u8], made: Option<&Made>) {
    let (Some((number, path)), Some(made)) = (question.split_first_chunk::<4>(), made) else { return };
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let verdict = u8::from(of(made, path) == Maker::Command);
    // It fails for a process that is gone, or asks without listening.
    send(channel, &[&number[..], &[verdict]].concat(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn the_process_learns_what_the_supervisor_saw() {
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let made = Made::default();
        made.add(Path::new("/p/.env"));
        // An answer to a question that was given up.
        send(&here, &[9, 9, 9, 9, 0], SendFlags::NOSIGNAL).unwrap();
        let asking = std::thread::spawn(move || {
            let mut makers = Makers::Asked(there, 0);
            let answers = ["/p/.env", "/p/.env2"].map(|path| makers.maker(Path::new(path)));
            (answers, makers.maker(Path::new("/p/late")))
        });
        let mut buffer = [0; 64];
        for _ in 0..2 {
            let (length, _) = recv(&here, &mut buffer, RecvFlags::empty()).unwrap();
            assert_eq!(buffer[0], QUESTION);
            answer(&here, &buffer[1..length], Some(&made));
        }
        drop(here);
        assert_eq!(asking.join().unwrap(), ([Maker::Command, Maker::Host], Maker::Unknown));
    }
}
