//! What the guard has to tell, and how its process tells the supervisor.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// What the user is told after the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A name that was made or replaced during the run, and hidden then.
    Hidden(PathBuf),
    /// The kernel gives this user no more watches, or the rest are left to others: names that appear below this
    /// directory, and maybe below others, are not noticed.
    Unwatched { first: PathBuf, watched: u32 },
    /// A name that could not be hidden, and why.
    Open { path: PathBuf, why: String },
    /// The guard is not at work, or no longer, and why.
    Off(String),
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::Hidden(path) => write!(f, "{}: hidden during the run", path.display()),
            Note::Unwatched { first, watched } => write!(
                f,
                "names that appear during the run are not hidden everywhere: {watched} directories are watched, {} is \
                 the first that is not (raise the sysctl fs.inotify.max_user_watches)",
                first.display()
            ),
            Note::Open { path, why } => {
                write!(f, "{}: appeared during the run and was not hidden: {why}", path.display())
            }
            Note::Off(why) => write!(f, "names that appear during the run are not hidden: {why}"),
        }
    }
}

/// One packet a note; longer ones are not told. Never waits: a guard that waited for a stopped supervisor would guard
/// nothing.
pub(super) fn tell(channel: BorrowedFd<'_>, note: &Note) -> Result<(), Errno> {
    let mut out = Vec::with_capacity(128);
    match note {
        Note::Hidden(path) => {
            out.push(b'H');
            out.extend_from_slice(path.as_os_str().as_bytes());
        }
        Note::Unwatched { first, watched } => {
            out.push(b'U');
            out.extend(watched.to_le_bytes());
            out.extend_from_slice(first.as_os_str().as_bytes());
        }
        Note::Open { path, why } => {
            out.push(b'O');
            out.extend_from_slice(path.as_os_str().as_bytes());
            // No path has this byte.
            out.push(0);
            out.extend_from_slice(why.as_bytes());
        }
        Note::Off(why) => {
            out.push(b'X');
            out.extend_from_slice(why.as_bytes());
        }
    }
    send(channel, &out, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// The next note that waits; `None` when there is none, or no more will come.
pub(super) fn hear(channel: BorrowedFd<'_>) -> Option<Note> {
    let mut buffer = [0; 8 * 1024];
    let (length, _) = recv(channel, &mut buffer, RecvFlags::DONTWAIT).ok()?;
    let (kind, rest) = buffer[..length].split_first()?;
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(match kind {
        b'H' => Note::Hidden(path(rest)),
        b'U' => {
            let (watched, first) = rest.split_first_chunk::<4>()?;
            Note::Unwatched { first: path(first), watched: u32::from_le_bytes(*watched) }
        }
        b'O' => {
            let end = rest.iter().position(|&byte| byte == 0)?;
            Note::Open { path: path(&rest[..end]), why: text(&rest[end + 1..]) }
        }
        _ => Note::Off(text(rest)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn every_note_arrives_as_sent() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for note in [
            Note::Hidden("/p/.env".into()),
            Note::Unwatched { first: "/p/a b".into(), watched: 70_000 },
            Note::Open { path: "/p/x".into(), why: "é".into() },
            Note::Off(String::new()),
        ] {
            tell(there.as_fd(), &note).unwrap();
            assert_eq!(hear(here.as_fd()), Some(note));
        }
        assert_eq!(hear(here.as_fd()), None);
    }
}
