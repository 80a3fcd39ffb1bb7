//! What the two sides of the box tell each other: messages on a SOCK_SEQPACKET pair, encoded by hand.
//!
//! One packet is one message, so nothing can be read in half, and an empty read is the other side's death. The command
//! never holds the channel (close-on-exec), hence no packet comes from it.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

const LISTENER: u8 = b'L';

/// The longest packet. What a failure says beyond it is cut.
const LONGEST: usize = 16 * 1024;

/// From inside to outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The command did not run. The last report.
    Failed(Failure),
    /// The command's process exists. From here on a box that dies without a word has killed a command.
    Started,
    Stopped(Stopped),
    /// The command goes on, whoever woke it.
    Continued,
    /// The last report.
    Ended(Ended),
    /// The listener of the command's own filter comes with it. Sent by the command's process before its exec.
    Listener,
    /// There is none, for a filter around the box has one, or lets nobody serve it.
    NoListener,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub text: String,
    pub hints: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Setup,
    CannotExecute,
    NotFound,
}

/// The command was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    pub signal: i32,
    /// A process group of the box is the terminal's foreground group.
    pub foreground: bool,
    /// How many continuing orders had been carried out by then: with fewer than were sent the report is stale.
    pub continues: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signaled(i32),
}

/// From outside to inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The host's part of the setup (uid map) is done. Read by the stages, never by pid 1.
    Proceed,
    Signal {
        signal: i32,
        to: Target,
    },
    /// Continue the command. Counted.
    Continue,
    /// Make the command the terminal's foreground group, then continue it. Counted.
    Foreground,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Process,
    Group,
}

/// Why a message did not come or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// The other side is dead, or has closed its end.
    Gone,
    /// Nothing to read, or no room to write, and waiting was not wanted.
    WouldBlock,
    /// A packet that no version of this file writes.
    Garbled,
    System(Errno),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Yes,
    No,
}

impl FailureKind {
    /// What an errno of execve(2) means to a shell: 127 for what is not there, 126 for the rest.
    pub fn of_exec(errno: Errno) -> FailureKind {
        if errno == Errno::NOENT { FailureKind::NotFound } else { FailureKind::CannotExecute }
    }

    pub fn status(self) -> u8 {
        match self {
            FailureKind::Setup => 125,
            FailureKind::CannotExecute => 126,
            FailureKind::NotFound => 127,
        }
    }
}

impl Ended {
    /// The exit status as a shell would put it.
    pub fn status(self) -> u8 {
        match self {
            Ended::Exited(status) => status as u8,
            Ended::Signaled(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}

/// Both ends of a channel, close-on-exec: the supervisor's and the box's.
///
/// # Errors
/// The errno of socketpair(2).
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// # Errors
/// `Gone`, `WouldBlock` (with `Wait::No`) or the errno of send(2).
pub fn send_report(channel: BorrowedFd<'_>, report: &Report, wait: Wait) -> Result<(), WireError> {
    let mut out = Vec::with_capacity(64);
    match report {
        Report::Failed(failure) => {
            out.push(b'F');
            out.push(match failure.kind {
                FailureKind::Setup => 0,
                FailureKind::CannotExecute => 1,
                FailureKind::NotFound => 2,
            });
            for text in std::iter::once(&failure.text).chain(&failure.hints) {
                put_text(&mut out, text);
            }
        }
        Report::Started => out.push(b'B'),
        Report::Stopped(stopped) => {
            out.push(b'S');
            out.extend(stopped.signal.to_le_bytes());
            out.push(u8::from(stopped.foreground));
            out.extend(stopped.continues.to_le_bytes());
        }
        Report::Continued => out.push(b'C'),
        Report::Ended(Ended::Exited(status)) => {
            out.push(b'X');
            out.extend(status.to_le_bytes());
        }
        Report::Ended(Ended::Signaled(signal)) => {
            out.push(b'K');
            out.extend(signal.to_le_bytes());
        }
        Report::Listener => out.push(LISTENER),
        Report::NoListener => out.push(b'N'),
    }
    send_packet(channel, &out, wait)
}

/// # Errors
/// `Gone`, `WouldBlock` (with `Wait::No`), `Garbled` or the errno of recvmsg(2).
pub fn receive_report(channel: BorrowedFd<'_>, wait: Wait) -> Result<(Report, Option<OwnedFd>), WireError> {
    let mut buffer = [0; LONGEST];
    let (length, descriptor) = receive_with_descriptor(channel, &mut buffer, wait)?;
    let mut packet = Packet(&buffer[..length]);
    let report = match packet.byte()? {
        b'F' => {
            let kind = match packet.byte()? {
                0 => FailureKind::Setup,
                1 => FailureKind::CannotExecute,
                2 => FailureKind::NotFound,
                _ => return Err(WireError::Garbled),
            };
            let text = packet.text()?;
            let mut hints = Vec::new();
            while !packet.0.is_empty() {
                hints.push(packet.text()?);
            }
            Report::Failed(Failure { kind, text, hints })
        }
        b'B' => Report::Started,
        b'S' => {
            let signal = packet.number()? as i32;
            let foreground = packet.byte()? != 0;
            Report::Stopped(Stopped { signal, foreground, continues: packet.number()? })
        }
        b'C' => Report::Continued,
        b'X' => Report::Ended(Ended::Exited(packet.number()? as i32)),
        b'K' => Report::Ended(Ended::Signaled(packet.number()? as i32)),
        LISTENER if descriptor.is_some() => Report::Listener,
        b'N' => Report::NoListener,
        _ => return Err(WireError::Garbled),
    };
    packet.end().map(|()| (report, descriptor))
}

/// Sends [`Report::Listener`] with the listener itself.
///
/// # Errors
/// `Gone` or the errno of sendmsg(2).
pub fn send_listener(channel: BorrowedFd<'_>, listener: BorrowedFd<'_>) -> Result<(), WireError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener];
    // It fails only for a buffer that is too small.
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(WireError::System(Errno::NOBUFS));
    }
    loop {
        match sendmsg(channel, &[IoSlice::new(&[LISTENER])], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(WireError::from(errno)),
        }
    }
}

/// # Errors
/// `Gone`, `WouldBlock` (with `Wait::No`) or the errno of send(2).
pub fn send_order(channel: BorrowedFd<'_>, order: Order, wait: Wait) -> Result<(), WireError> {
    let mut out = [0; 6];
    let length = match order {
        Order::Proceed => {
            out[0] = b'p';
            1
        }
        Order::Signal { signal, to } => {
            out[0] = b's';
            out[1..5].copy_from_slice(&signal.to_le_bytes());
            out[5] = u8::from(to == Target::Group);
            6
        }
        Order::Continue => {
            out[0] = b'c';
            1
        }
        Order::Foreground => {
            out[0] = b'f';
            1
        }
    };
    send_packet(channel, &out[..length], wait)
}

/// # Errors
/// `Gone`, `WouldBlock` (with `Wait::No`), `Garbled` or the errno of recv(2).
pub fn receive_order(channel: BorrowedFd<'_>, wait: Wait) -> Result<Order, WireError> {
    let mut buffer = [0; 16];
    let mut packet = receive_packet(channel, &mut buffer, wait)?;
    let order = match packet.byte()? {
        b'p' => Order::Proceed,
        b's' => {
            let signal = packet.number()? as i32;
            Order::Signal { signal, to: if packet.byte()? == 0 { Target::Process } else { Target::Group } }
        }
        b'c' => Order::Continue,
        b'f' => Order::Foreground,
        _ => return Err(WireError::Garbled),
    };
    packet.end().map(|()| order)
}

/// Appends a length and the text, or nothing more once the packet is full.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let Some(room) = (LONGEST - out.len()).checked_sub(4) else { return };
    let cut = &text[..text.floor_char_boundary(room)];
    out.extend((cut.len() as u32).to_le_bytes());
    out.extend(cut.as_bytes());
}

fn send_packet(channel: BorrowedFd<'_>, packet: &[u8], wait: Wait) -> Result<(), WireError> {
    // NOSIGNAL: a dead peer is an answer, not a SIGPIPE that ends pid 1 or the launcher.
    let flags = match wait {
        Wait::Yes => SendFlags::NOSIGNAL,
        Wait::No => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    };
    loop {
        match send(channel, packet, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(WireError::from(errno)),
        }
    }
}

/// As [`receive_packet`], with the descriptor that came along.
fn receive_with_descriptor(
    channel: BorrowedFd<'_>,
    buffer: &mut [u8],
    wait: Wait,
) -> Result<(usize, Option<OwnedFd>), WireError> {
    let flags = match wait {
        Wait::Yes => RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC,
        Wait::No => RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    };
    let room = buffer.len();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(channel, &mut [IoSliceMut::new(&mut *buffer)], &mut control, flags) {
            // No message is empty, so this is the end.
            Ok(message) if message.bytes == 0 => return Err(WireError::Gone),
            Ok(message) if message.bytes <= room => break message.bytes,
            Ok(_) => return Err(WireError::Garbled),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(WireError::from(errno)),
        }
    };
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        RecvAncillaryMessage::ScmCredentials(_) | _ => None,
    });
    Ok((got, descriptor))
}

fn receive_packet<'a>(channel: BorrowedFd<'_>, buffer: &'a mut [u8], wait: Wait) -> Result<Packet<'a>, WireError> {
    let flags = match wait {
        Wait::Yes => RecvFlags::TRUNC,
        Wait::No => RecvFlags::TRUNC | RecvFlags::DONTWAIT,
    };
    loop {
        match recv(channel, &mut *buffer, flags) {
            // No message is empty, so this is the end.
            Ok((0, _)) => return Err(WireError::Gone),
            Ok((got, whole)) if got == whole => return Ok(Packet(&buffer[..got])),
            Ok(_) => return Err(WireError::Garbled),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(WireError::from(errno)),
        }
    }
}

impl From<Errno> for WireError {
    fn from(errno: Errno) -> WireError {
        match errno {
            Errno::AGAIN => WireError::WouldBlock,
            // CONNRESET: the peer died with packets of ours unread.
            Errno::PIPE | Errno::CONNRESET => WireError::Gone,
            errno => WireError::System(errno),
        }
    }
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireError::Gone => f.write_str("the other side of the box is gone"),
            WireError::WouldBlock => f.write_str("the channel of the box is full or empty"),
            WireError::Garbled => f.write_str("a message that makes no sense came over the channel of the box"),
            WireError::System(errno) => write!(f, "the channel of the box failed: {errno}"),
        }
    }
}

impl std::error::Error for WireError {}

/// What is left to read of a packet.
struct Packet<'a>(&'a [u8]);

impl Packet<'_> {
    fn byte(&mut self) -> Result<u8, WireError> {
        let (first, rest) = self.0.split_first().ok_or(WireError::Garbled)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u32, WireError> {
        let (first, rest) = self.0.split_first_chunk::<4>().ok_or(WireError::Garbled)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*first))
    }

    fn text(&mut self) -> Result<String, WireError> {
        let length = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(WireError::Garbled)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| WireError::Garbled)
    }

    fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Garbled) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn every_message_arrives_as_sent() {
        let (outside, inside) = pair().unwrap();
        let failure =
            Failure { kind: FailureKind::NotFound, text: "é".into(), hints: vec![String::new(), "b".into()] };
        let stopped = Stopped { signal: 20, foreground: true, continues: 7 };
        for report in [
            Report::Failed(failure),
            Report::Started,
            Report::Stopped(stopped),
            Report::Continued,
            Report::Ended(Ended::Exited(255)),
            Report::Ended(Ended::Signaled(64)),
        ] {
            send_report(inside.as_fd(), &report, Wait::Yes).unwrap();
            assert_eq!(receive_report(outside.as_fd(), Wait::No).map(|(report, _)| report), Ok(report));
        }
        for order in [
            Order::Proceed,
            Order::Signal { signal: 15, to: Target::Group },
            Order::Signal { signal: 64, to: Target::Process },
            Order::Continue,
            Order::Foreground,
        ] {
            send_order(outside.as_fd(), order, Wait::Yes).unwrap();
            assert_eq!(receive_order(inside.as_fd(), Wait::No), Ok(order));
        }
    }

    #[test]
    fn a_listener_arrives_as_a_descriptor_of_its_own() {
        let (outside, inside) = pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send_listener(inside.as_fd(), writer.as_fd()).unwrap();
        drop(writer);
        let (report, got) = receive_report(outside.as_fd(), Wait::No).unwrap();
        assert_eq!(report, Report::Listener);
        rustix::io::write(got.unwrap(), b"x").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0; 2]), Ok(1));
        // One that claims to bring a listener and brings none.
        send_report(inside.as_fd(), &Report::Listener, Wait::Yes).unwrap();
        assert_eq!(receive_report(outside.as_fd(), Wait::No).unwrap_err(), WireError::Garbled);
    }

    #[test]
    fn a_failure_that_is_too_long_is_cut_between_characters() {
        let (outside, inside) = pair().unwrap();
        let failure = Failure { kind: FailureKind::Setup, text: "é".repeat(LONGEST), hints: vec!["lost".into(); 3] };
        send_report(inside.as_fd(), &Report::Failed(failure), Wait::Yes).unwrap();
        let Ok((Report::Failed(got), None)) = receive_report(outside.as_fd(), Wait::No) else { panic!() };
        assert!(got.text.len() > LONGEST - 16 && got.text.chars().all(|c| c == 'é') && got.hints.is_empty());
    }

    #[test]
    fn a_dead_peer_an_empty_channel_and_nonsense_are_told_apart() {
        let (outside, inside) = pair().unwrap();
        assert_eq!(receive_report(outside.as_fd(), Wait::No).unwrap_err(), WireError::WouldBlock);
        send_packet(inside.as_fd(), b"X1", Wait::Yes).unwrap();
        assert_eq!(receive_report(outside.as_fd(), Wait::No).unwrap_err(), WireError::Garbled);
        send_packet(outside.as_fd(), &[b's'; 17], Wait::Yes).unwrap();
        assert_eq!(receive_order(inside.as_fd(), Wait::No), Err(WireError::Garbled));
        drop(inside);
        assert_eq!(receive_report(outside.as_fd(), Wait::No).unwrap_err(), WireError::Gone);
        assert_eq!(send_order(outside.as_fd(), Order::Continue, Wait::No), Err(WireError::Gone));
    }
}
