//! Tries of sockets.

use crate::files::errno;
use crate::raw::{attempt, descriptor, number};
use crate::{Answer, Try};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
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
    ("fast-open", |a| fast_open(&a[0])),
    ("udp", |a| {
        let socket = UdpSocket::bind("127.0.0.1:0").map_err(errno)?;
        socket.send_to(b"x", &a[0]).map(|_| String::new()).map_err(errno)
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

/// Connects by sending: no connect(2) for a rule to see.
fn fast_open(to: &str) -> Answer {
    let to = to.parse::<SocketAddrV4>().expect("ADDRESS:PORT");
    let socket = descriptor(libc::SYS_socket, &[libc::AF_INET as usize, libc::SOCK_STREAM as usize, 0])?;
    let mut address = [0_u8; 16];
    address[..2].copy_from_slice(&2_u16.to_ne_bytes());
    address[2..4].copy_from_slice(&to.port().to_be_bytes());
    address[4..8].copy_from_slice(&to.ip().octets());
    let (data, flags) = (c"x", libc::MSG_FASTOPEN as usize);
    let args = [socket.as_raw_fd() as usize, data.as_ptr() as usize, 1, flags, address.as_ptr() as usize, 16];
    attempt(libc::SYS_sendto, &args)
}
