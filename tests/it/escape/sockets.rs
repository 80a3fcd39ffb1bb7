//! Sockets: families, and the host's own.

use super::{MODES, Twin, held, held_with, owner};
use crate::common::Place;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Families that reach around the network namespace or into old kernel code. A family that this kernel lacks is
/// EAFNOSUPPORT outside.
#[test]
fn families() {
    held(&[
        ("socket 40 1 0", "EPERM", Twin::Bare("ok")),   // AF_VSOCK
        ("socket 17 3 0", "EPERM", Twin::Owner("ok")),  // AF_PACKET
        ("socket 16 3 15", "EPERM", Twin::Bare("ok")),  // AF_NETLINK, kernel events
        ("socket 16 3 16", "EPERM", Twin::Bare("ok")),  // AF_NETLINK, generic
        ("socket 2 3 1", "EPERM", Twin::Owner("ok")),   // a raw one
        ("socket 10 3 58", "EPERM", Twin::Owner("ok")), // a raw one, version 6
        ("socket 2 1 262", "EPERM", Twin::Bare("ok")),  // MPTCP, which Landlock does not see
        ("socket 10 1 262", "EPERM", Twin::Bare("ok")),
        ("socket 2 1 0", "ok", Twin::Bare("ok")),
        ("socket 10 2 0", "ok", Twin::Bare("ok")),
        ("socket 1 1 0", "ok", Twin::Bare("ok")),
        ("socket 16 3 0", "ok", Twin::Bare("ok")), // routes, which name resolution reads
    ]);
    let place = Place::new();
    let outside = place.bare(&["socket", "38", "5", "0"]); // AF_ALG
    assert!(["ok", "EAFNOSUPPORT"].contains(&outside.out()), "{outside}");
    place.boxed(&[], &["socket", "38", "5", "0"]).ok().out_is("EPERM");
}

/// The type carries flags in its high bits; a raw socket stays one with them.
#[test]
fn families_with_flags() {
    let raw = format!("socket 2 {} 1", 3 | 0o2_000_000);
    let place = Place::new();
    place.boxed(&[], &raw.split(' ').collect::<Vec<_>>()).ok().out_is("EPERM");
    owner(&place, &raw.split(' ').collect::<Vec<_>>()).ok().out_is("ok");
}

/// A listener on the host's loopback cannot be reached without the network, and nothing else either.
#[test]
fn no_network_by_default() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("tcp {}", listener.local_addr().unwrap());
    held(&[(&to, "ECONNREFUSED", Twin::Bare("ok")), ("loopback", "ok", Twin::Bare("ok"))]);
    held(&[("tcp 192.0.2.1:80", "ENETUNREACH", Twin::Owner("ENETUNREACH"))]);
}

/// `--net host` is the granted twin of the one above.
#[test]
fn network_of_the_host_when_granted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    Place::new().boxed(&["--net", "host"], &["tcp", &to]).ok().out_is("ok");
}

/// Abstract sockets have no path for a mount to hide: the network namespace or a Landlock scope closes them.
#[test]
fn abstract_sockets() {
    let place = Place::new();
    let name = format!("agentbox-test-{}", place.dir().display());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let try_it = format!("abstract {name}");
    held_with(&place, &["--net", "none"], &[(&try_it, "ECONNREFUSED", Twin::Bare("ok"))]);
    held_with(&place, &["--net", "host"], &[(&try_it, "EPERM", Twin::Bare("ok"))]);
    drop(listener);
}

/// A host's socket by path, outside the roots: no network namespace hides it. `--socket` grants it.
#[test]
fn path_sockets_outside() {
    let place = Place::new();
    let listener = UnixListener::bind(place.path("out/host.sock")).unwrap();
    let at = place.text("out/host.sock");
    let try_it = format!("unix {at}");
    held_with(&place, &[], &[(&try_it, "ENOENT", Twin::Bare("ok"))]);
    held_with(&place, &["--net", "host"], &[(&try_it, "ENOENT", Twin::Bare("ok"))]);
    for mode in MODES {
        place.boxed_in(mode, &["--socket", &at], &["unix", &at]).ok().out_is("ok");
    }
    drop(listener);
}

/// A host's socket that lies in a writable root is reached through a bind mount, so it is hidden there; an overlay
/// shows another inode, on which nobody listens.
#[test]
fn path_sockets_inside() {
    let place = Place::new();
    let listener = UnixListener::bind(place.path("p/host.sock")).unwrap();
    let at = place.text("p/host.sock");
    let live = place.boxed(&[], &["unix", &at]);
    assert!(["EACCES", "ENOENT", "ECONNREFUSED"].contains(&live.ok().out()), "{live}");
    let dry = place.boxed_in("--dry-run", &[], &["unix", &at]);
    assert!(["ENOENT", "ECONNREFUSED"].contains(&dry.ok().out()), "{dry}");
    place.bare(&["unix", &at]).ok().out_is("ok");
    place.boxed(&["--socket", &at], &["unix", &at]).ok().out_is("ok");
    drop(listener);
}

/// Where only some ports of the host's network are granted, the others are closed by every way to connect: connect,
/// sending with fast open, and MPTCP (which is no socket here).
#[test]
fn ports_that_were_not_granted() {
    let place = Place::new();
    let listeners = ["127.0.0.1:0"; 2].map(|address| std::net::TcpListener::bind(address).unwrap());
    let [granted, other] = [0, 1].map(|n| listeners[n].local_addr().unwrap());
    let (connect, fast) = (format!("tcp {other}"), format!("fast-open {other}"));
    let policy = ["--net", "host", "--tcp-connect", &granted.port().to_string()].map(str::to_owned);
    let policy = policy.iter().map(String::as_str).collect::<Vec<_>>();
    held_with(
        &place,
        &policy,
        &[
            (&format!("tcp {granted}"), "ok", Twin::Bare("ok")),
            (&connect, "EACCES", Twin::Bare("ok")),
            (&fast, "EPERM", Twin::Bare("ok")),
            ("socket 2 1 262", "EPERM", Twin::Bare("ok")),
        ],
    );
    drop(listeners);
}
