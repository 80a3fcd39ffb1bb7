//! Results, on stdout: the only place that writes there.

use super::{Failure, Status};
use std::io::{self, BufWriter, IsTerminal, Write};

/// Lets `write` print. A reader that has seen enough (`| head`) is no error.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Status, Failure> {
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(Status::OK),
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {
            // What is still in the buffer would be tried again on drop.
            let (_, _) = out.into_parts();
            Ok(Status::OK)
        }
        Err(err) => Err(Failure::new(Status::USAGE, anyhow::anyhow!("cannot write to stdout: {err}"))),
    }
}

pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal on stdout; 80 where there is none.
pub fn width() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col).max(40))
}
