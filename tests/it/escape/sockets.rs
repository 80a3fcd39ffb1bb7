//! Sockets: families, and the host's own.

use super::{MODES, Twin, held, held_with, lines, owner};
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

/// In every kind of root, in both modes, with a name and without: a socket of the host answers nobody, and the one that
/// was granted does.
#[test]
fn path_sockets_of_every_root() {
    let place = Place::new();
    let ats = ["p/sub/.docker.sock", "p/sub/mysqld.sock", "ref/deep/d.sock", "ref/x/.hidden/e.sock"];
    let listeners = ats.map(|at| {
        std::fs::create_dir_all(place.path(at).parent().unwrap()).unwrap();
        UnixListener::bind(place.path(at)).unwrap()
    });
    let datagrams = std::os::unix::net::UnixDatagram::bind(place.path("ref/dgram.sock")).unwrap();
    std::fs::hard_link(place.path("p/sub/mysqld.sock"), place.path("p/sub/other.name")).unwrap();
    let (r, granted) = (place.text("ref"), place.text("ref/deep/d.sock"));
    let names = [&ats[..], &["ref/dgram.sock", "p/sub/other.name"]].concat();
    let words = names.iter().map(|at| format!("unix {}", place.text(at))).collect::<Vec<_>>().join(" + ");
    let words = words.split(' ').collect::<Vec<_>>();
    for mode in MODES {
        for root in ["--ro", "--rw"] {
            let output = place.boxed_in(mode, &[root, &r], &words);
            for answer in lines(&output, names.len()) {
                assert!(["EACCES", "ENOENT", "ECONNREFUSED"].contains(&answer), "{mode} {root}: {output}");
            }
            let output = place.boxed_in(mode, &[root, &r, "--socket", &granted], &words);
            assert_eq!(lines(&output, names.len())[2], "ok", "{mode} {root}: {output}");
            let shut = lines(&output, names.len()).iter().filter(|answer| **answer != "ok").count();
            assert_eq!(shut, names.len() - 1, "{mode} {root}: {output}");
        }
    }
    let bare = place.bare(&words);
    assert_eq!(lines(&bare, names.len()), ["ok", "ok", "ok", "ok", "EPROTOTYPE", "ok"], "{bare}");
    drop((listeners, datagrams));
}

/// A socket in a directory of programs, which is shown read-only and without a walk.
#[test]
fn path_sockets_beside_programs() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("home/.local/bin/run")).unwrap();
    let at = place.text("home/.local/bin/run/agent.sock");
    let listener = UnixListener::bind(&at).unwrap();
    place.write("home/.local/bin/run/data", "visible\n");
    for mode in MODES {
        let run = |more: &str| {
            let words = format!("unix {at} + read {}", place.text("home/.local/bin/run/data"));
            place.sh(&format!(
                "PATH=$HOME/.local/bin:$PATH $AGENTBOX run {mode} {more} --rw $T/p --ro $T/bin -- $PROBE {words}"
            ))
        };
        assert_eq!(lines(&run(""), 2), ["EACCES", "=visible"], "{mode}");
        assert_eq!(lines(&run("--net host"), 2), ["EACCES", "=visible"], "{mode}");
        assert_eq!(lines(&run(&format!("--socket {at}")), 2), ["ok", "=visible"], "{mode}");
    }
    let why = place.sh(&format!("PATH=$HOME/.local/bin:$PATH $AGENTBOX why --rw $T/p {at}"));
    why.status_is(1).out_has("a socket of the host").out_has(&format!("--socket {at}"));
    place.bare(&["unix", &at]).ok().out_is("ok");
    drop(listener);
}

/// A socket that is itself a mount point below a root, as containers get the one of their engine.
#[test]
fn path_sockets_that_are_mounts() {
    if !crate::common::is_root() {
        return; // only root can mount on the host: covered by the root run
    }
    let place = Place::new();
    let listener = UnixListener::bind(place.path("out/host.sock")).unwrap();
    place.write("p/engine", "");
    place.write("ref/engine", "");
    let script = r#"
        mount --bind $T/out/host.sock $T/p/engine; mount --bind $T/out/host.sock $T/ref/engine
        tries="unix $T/p/engine + unix $T/ref/engine"
        $AB --rw $T/p --ro $T/bin --ro $T/ref -- $PROBE $tries; $PROBE $tries
    "#;
    let mut command = place.command("unshare");
    command.args(["-m", "--propagation", "private", "bash", "-c", script]);
    let output = place.finish(command, b"");
    assert_eq!(lines(&output, 4), ["EACCES", "EACCES", "ok", "ok"], "{output}");
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
