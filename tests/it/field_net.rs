//! Field cases: network, sockets and what else connects processes.

use super::field_common::{Case, MODES, need};

/// Build tools and test servers use loopback offline; what is not loopback fails at once.
/// <https://github.com/containers/bubblewrap/issues/745>
#[test]
fn loopback_works_offline() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            cat >t.py <<'PY'
import socket,time
for a in('127.0.0.1','::1','localhost'):
  f=socket.AF_INET6 if ':' in a else socket.AF_INET
  s=socket.socket(f);s.bind((a,0));s.listen();socket.create_connection(s.getsockname()[:2]);print('ok')
t=time.time()
for a in('192.0.2.1','2001:db8::1'):
  try: socket.create_connection((a,443),20);print('out')
  except OSError as e: print(e.errno)
print(time.time()-t<5)
PY
            $AB --net none --rw $T/p -- /usr/bin/python3 t.py
            "#,
        );
        ran.prints("ok\nok\nok\n101\n101\nTrue\n");
    }
}

/// Offline means offline: not the host's loopback, no datagram, no abstract socket, no interface but loopback.
/// <https://github.com/fencesandbox/fence/issues/142>
#[test]
fn offline_means_offline() {
    if !need(&["/usr/bin/python3", "curl"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            cat >$T/serve.py <<'PY'
import http.server,socket,sys
a=socket.socket(socket.AF_UNIX);a.bind('\0agx'+sys.argv[1]);a.listen()
h=http.server.HTTPServer(('127.0.0.1',0),http.server.SimpleHTTPRequestHandler)
print(h.server_port,file=open(sys.argv[1],'w'),flush=True);h.serve_forever()
PY
            /usr/bin/python3 $T/serve.py $T/port 2>/dev/null & server=$!
            await '[ -s $T/port ]'; port=$(cat $T/port)
            cat >t.py <<'PY'
import socket,sys
for what in (lambda: socket.socket(socket.AF_INET,socket.SOCK_DGRAM).sendto(b"x",("1.1.1.1",53)), lambda: socket.socket(socket.AF_UNIX).connect('\0agx'+sys.argv[1])):
  try: what(); print("reached")
  except OSError: print("refused")
PY
            tricks="curl -s -o /dev/null -m 5 127.0.0.1:$port; echo \$?; /usr/bin/python3 t.py $T/port; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"
            $AB --net none --rw $T/p -- sh -c "$tricks"; $AB --rw $T/p -- sh -c "$tricks"
            sh -c "$tricks" | grep -c -e '^0$' -e reached; kill $server
            "#,
        );
        let inside = "7\nrefused\nrefused\nlo\n".repeat(2);
        assert!([2, 3].iter().any(|n| ran.out() == format!("{inside}{n}\n")), "{mode}: {ran}"); // 1.1.1.1 may have no route
    }
}

/// A socket of the host below a granted tree is a way out that a read-only mount does not shut; one may be opened.
/// <https://github.com/GreyhavenHQ/greywall/issues/55>
#[test]
fn host_sockets_below_roots() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            cat >$T/listen.py <<'PY'
import socket,sys,time
keep=[]
for p in sys.argv[1:]:
  s=socket.socket(socket.AF_UNIX);s.bind(p);s.listen(99);keep.append(s)
time.sleep(60)
PY
            /usr/bin/python3 $T/listen.py $T/ref/d.sock $T/ref/e.sock $T/p/f.sock $T/out/g.sock & server=$!
            await '[ -S $T/out/g.sock ]'
            cat >t.py <<'PY'
import socket,sys
for p in sys.argv[1:]:
  try: socket.socket(socket.AF_UNIX).connect(p); print("open")
  except OSError as e: print("shut" if e.errno in (1,2,13,111) else e)
PY
            try="/usr/bin/python3 t.py $T/ref/d.sock $T/ref/e.sock $T/p/f.sock $T/out/g.sock"; join() { tr '\n' ' '; echo; }
            $AB --ro $T/ref --rw $T/p -- $try | join
            $AB --ro $T/ref --rw $T/p --socket $T/ref/d.sock -- $try | join
            $AB --ro $T/ref --rw $T/p --socket $T/out/g.sock -- $try | join
            $try | join; kill $server
            $AB --ro $T/ref --rw $T/p -- ls /run/docker.sock /run/user /run/dbus 2>/dev/null | join
            "#,
        );
        let shut = "shut shut shut shut \n";
        ran.prints(&format!("{shut}open shut shut shut \nshut shut shut open \nopen open open open \n\n"));
    }
}

/// Sockets made inside connect the box's own processes, in the project, in HOME and in /tmp.
#[test]
fn sockets_made_inside_work() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            cat >own.py <<'PY'
import socket,os
for p in ('own.sock',os.environ['HOME']+'/o','/tmp/o','\0own'):
  s=socket.socket(socket.AF_UNIX);s.bind(p);s.listen()
  if os.fork()==0: c=socket.socket(socket.AF_UNIX);c.connect(p);c.send(b'x');os._exit(0)
  print(s.accept()[0].recv(1).decode());os.wait()
PY
            $AB --rw $T/p -- /usr/bin/python3 own.py
            "#,
        );
        ran.prints("x\nx\nx\nx\n");
    }
}

/// The session bus and the runtime directory of the user are not there: no systemd-run, no keyring.
/// <https://github.com/GreyhavenHQ/greywall/issues/32>
#[test]
fn session_bus_is_out_of_reach() {
    if !need(&["dbus-daemon", "dbus-send"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            export XDG_RUNTIME_DIR=$T/run; mkdir -m 700 $T/run; echo S >$T/run/keyring
            dbus-daemon --session --nofork --nosyslog --address=unix:path=$T/run/bus --print-address=3 3>$T/addr & bus=$!
            await '[ -s $T/addr ]'; export DBUS_SESSION_BUS_ADDRESS=$(cat $T/addr)
            tricks="dbus-send --session --dest=org.freedesktop.DBus --print-reply / org.freedesktop.DBus.ListNames >/dev/null 2>&1; echo \$?; cat $T/run/keyring"
            $AB --rw $T/p -- sh -c "echo [\$DBUS_SESSION_BUS_ADDRESS]; DBUS_SESSION_BUS_ADDRESS=$DBUS_SESSION_BUS_ADDRESS; export DBUS_SESSION_BUS_ADDRESS; $tricks"
            sh -c "$tricks"; GH_TOKEN=t $AB --env GH_TOKEN --rw $T/p -- sh -c 'echo $GH_TOKEN'; kill $bus
            "#,
        );
        ran.prints("[]\n1\n0\nS\nt\n");
    }
}

/// The host's /tmp holds other programs' files: the box has its own, and a shared directory is an explicit grant.
/// <https://github.com/QwenLM/qwen-code/pull/11614>
#[test]
fn host_tmp_is_not_shared() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            s=$(mktemp -d /tmp/agx-XXXXXX); echo S >$s/f
            $AB --rw $T/p -- sh -c "cat $s/f; mkdir -p $s; echo in >$s-in; cat $s-in"; ls $s-in
            $AB --rw $s --rw $T/p -- sh -c "cat $s/f; echo w >$s/w; ls /tmp | wc -l"; echo $?; ls $s | tr '\n' ' '; rm -r $s
            "#,
        );
        ran.prints(&format!("in\nS\n1\n0\n{}", if mode == "--live" { "f w " } else { "f " }));
    }
}
