//! Tries of sockets.

use crate::files::errno;
use crate::raw::{attempt, descriptor, number};
use crate::{Answer, Try};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::Duration;

pub const TRIES: &[Try] = &[
    ("socket", |a| {
        let args = a.iter().map(|arg| number(arg)).collect::<Vec<_>>();
        descriptor(libc::SYS_socket, &args).map(|_| String::new())
    }),
    ("socketpair", |a| {
        let mut pair = [0_i32; 2];
        attempt(libc::SYS_socketpair, &[number(&a[0]), number(&a[1]), 0, pair.as_mut_ptr() as usize])
    }),
    ("unix", |a| UnixStream::connect(&a[0]).map(|_| String::new()).map_err(errno)),
    ("abstract", |a| {
        let address = UnixAddr::from_abstract_name(&a[0]).expect("a name");
        UnixStream::connect_addr(&address).map(|_| String::new()).map_err(errno)
    }),
    ("tcp", |a| {
        let to = a[0].parse::<SocketAddr>().expect("ADDRESS:PORT");
        TcpStream::connect_timeout(&to, Duration::from_secs(5)).map(|_| String::new()).map_err(errno)
    }),
    ("loopback", |_| loopback()),
    ("unix-pair", |a| {
        let listener = UnixListener::bind(&a[0]).map_err(errno)?;
        UnixStream::connect(&a[0]).map_err(errno)?;
        drop(listener);
        Ok(String::new())
    }),
];

/// Listens on the loopback and connects to itself.
fn loopback() -> Answer {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(errno)?;
    let address = listener.local_addr().map_err(errno)?;
    TcpStream::connect(address).map(|_| String::new()).map_err(errno)
}
