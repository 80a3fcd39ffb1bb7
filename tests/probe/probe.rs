//! The probe: tries one thing after the other and prints, for each, one line: `ok`, what it found, or the name of the
//! errno or of the signal that ended the try. Tries are separated by `+`: `probe open-read /a + unlink /b`.
//!
//! The tests run it inside the box and outside, so the same code stands on both sides of each comparison. It depends
//! on nothing that the box under test might provide.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::exit,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a probe says what it sees and stops at the first surprise"
)]
#![allow(unsafe_code, reason = "it exists to make system calls that no safe wrapper would make")]

mod calls;
mod doors;
mod facts;
mod files;
mod raw;
mod sockets;
mod terminal;
mod writes;

use nix::errno::Errno;

/// What a try gave: the text of its line (empty stands for `ok`), or the errno.
pub type Answer = Result<String, Errno>;

/// A try, by the name it has on the command line.
pub type Try = (&'static str, fn(&[String]) -> Answer);

fn main() {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    for part in args.split(|arg| arg == "+") {
        let (name, rest) = part.split_first().expect("probe NAME [ARG...] [+ NAME [ARG...]]...");
        let rooms =
            [files::TRIES, calls::TRIES, doors::TRIES, facts::TRIES, sockets::TRIES, terminal::TRIES, writes::TRIES];
        let (_, attempt) = rooms.concat().into_iter().find(|(known, _)| known == name).expect("a known try");
        let line = match attempt(rest) {
            Ok(text) if text.is_empty() => "ok".to_owned(),
            Ok(text) => text,
            Err(errno) => format!("{errno:?}"),
        };
        println!("{line}");
    }
}
