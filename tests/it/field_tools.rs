//! Field cases: interpreters, compilers and what they need of the system around them.

use super::field_common::{Case, MODES, cargo, need};

/// npm cannot write its cache in the user's HOME, and need not: the install works, HOME stays as it is.
/// <https://github.com/npm/cli/issues/7105>
#[test]
fn npm_install_without_a_cache() {
    if !need(&["npm", "node"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir dep; echo '{"name":"dep","version":"1.0.0"}' >dep/package.json
            echo '{"name":"a","version":"1.0.0","dependencies":{"dep":"file:./dep"}}' >package.json
            $AB --net none --rw $T/p -- sh -c 'npm install --no-audit --no-fund >&2; echo $?; ls node_modules'; ls -A $HOME
            "#,
        );
        ran.prints("0\ndep\n");
    }
}

/// The Rust toolchain, wherever it is installed, builds offline.
/// <https://github.com/rust-lang/cargo/issues/3256>
#[test]
fn cargo_builds_offline() {
    let Some(cargo) = cargo() else { return };
    for mode in MODES {
        let ran = Case::new().with_cargo(&cargo).run(
            mode,
            r#"
            export PATH=$(dirname $CARGO):$PATH; cargo init -q --name a --vcs none
            $AB --net none $GRANT --rw $T/p -- sh -c 'cargo build -q --offline && ./target/debug/a'; echo $?
            "#,
        );
        ran.prints("Hello, world!\n0\n");
    }
}

/// A toolchain in HOME that is on PATH runs, cannot be written, and the credentials next to it stay hidden.
/// <https://github.com/RyderFreeman4Logos/cli-sub-agent/issues/561>
#[test]
fn toolchain_in_home() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            export PATH=$HOME/.cargo/bin:$T/bin-of-mine:$PATH; mkdir -p $HOME/.cargo/bin $HOME/.cargo/registry $T/bin-of-mine; echo TOKEN >$HOME/.cargo/credentials.toml
            printf '#!/bin/sh\necho built\n' >$HOME/.cargo/bin/cargo-mine; cp $HOME/.cargo/bin/cargo-mine $T/bin-of-mine/other; chmod +x $HOME/.cargo/bin/* $T/bin-of-mine/*
            $AB --rw $T/p -- sh -c 'cargo-mine; echo $?; cat ~/.cargo/credentials.toml; ls -A ~/.cargo | grep cred; touch ~/.cargo/bin/x; echo $?'
            cat $HOME/.cargo/credentials.toml; ls $HOME/.cargo/bin
            $AB --rw $T/p -- other 2>$T/err; echo $?; grep -c bin-of-mine $T/err | sed 's/[1-9].*/named/'
            "#,
        );
        ran.prints("built\n0\n1\nTOKEN\ncargo-mine\n127\nnamed\n");
    }
}

/// A virtual environment of the system's python, and one whose interpreter lies outside of all that is granted.
/// <https://github.com/astral-sh/uv/issues/6782>
#[test]
fn virtualenv_interpreter_outside_the_root() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            /usr/bin/python3 -m venv --without-pip .venv
            $AB --rw $T/p -- .venv/bin/python -c 'import sys,ssl,json;print(sys.prefix)'; echo $?
            mkdir -p $HOME/.local/share/uv/python/cpython-3.99.1/bin; ln -s cpython-3.99.1 $HOME/.local/share/uv/python/cpython-3.99; cp -L /usr/bin/python3 $HOME/.local/share/uv/python/cpython-3.99.1/bin/python3
            ln -sfn $HOME/.local/share/uv/python/cpython-3.99/bin/python3 .venv/bin/python
            $AB --rw $T/p -- .venv/bin/python -c 'print("uv")' 2>$T/err; s=$?; cat $T/err >&2
            case $s in 0) echo good;; 126|127) grep -q "$HOME/.local/share/uv" $T/err && echo good;; esac
            $AB --rw $T/p --ro $HOME/.local/share/uv -- .venv/bin/python -c 'print("granted")'; echo $?
            mkdir $T/alien; cp -L /usr/bin/python3 $T/alien/python3; ln -sfn $T/alien/python3 .venv/bin/python
            $AB --rw $T/p -- .venv/bin/python -c 'print("alien")' 2>$T/err; echo $?; grep -c $T/alien $T/err | sed 's/[1-9].*/named/'
            "#,
        );
        let out = ran.out().replace("uv\n", "");
        let out = out.replace("\n126\n", "\n127\n");
        assert_eq!(out, format!("{}/p/.venv\n0\ngood\ngranted\n0\n127\nnamed\n", ran.t.display()), "{mode}: {ran}");
    }
}

/// The private /tmp runs programs, takes 700 MB, and is gone afterwards; its size is the user's choice.
/// <https://github.com/stacklok/brood-box/issues/55>
#[test]
fn temporary_directory_is_usable() {
    if !need(&["gcc"]) {
        return;
    }
    let ran = Case::new().live(
        r#"
        export TMPDIR=$T/out
        $AB --rw $T/p -- sh -c 'd=${TMPDIR:-/tmp}; printf "int main(){return 7;}" >$d/a.c && gcc -o $d/a-agx $d/a.c && $d/a-agx; echo $?
            dd if=/dev/zero of=$d/agx-b bs=1M count=700 status=none && stat -c %s $d/agx-b; rm $d/agx-b; touch /var/tmp/agx-v && echo v'
        $AB --limit tmp=20M --rw $T/p -- sh -c 'd=${TMPDIR:-/tmp}; dd if=/dev/zero of=$d/agx-b bs=1M count=10 status=none; echo $?; dd if=/dev/zero of=$d/agx-c bs=1M count=30 status=none; echo $?'
        ls -A /tmp /var/tmp $T/out | grep -c -e a-agx -e '^agx-[bcv]$'
        "#,
    );
    ran.prints("7\n734003200\nv\n0\n1\n0\n");
}

/// Shared memory and semaphores work, the host's segments are not there.
/// <https://github.com/luckyPipewrench/pipelock/pull/267>
#[test]
fn shared_memory_is_private() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            s=agx-$$; echo S >/dev/shm/$s
            $AB --rw $T/p -- sh -c "/usr/bin/python3 -c 'import multiprocessing as m;m.Semaphore();print(1)'; cat /dev/shm/$s; echo in >/dev/shm/$s-in; cat /dev/shm/$s-in"
            cat /dev/shm/$s; ls /dev/shm | grep -c $s-in; rm /dev/shm/$s
            "#,
        );
        ran.prints("1\nin\nS\n0\n");
    }
}

/// Programs that drive a shell open a pseudo-terminal, in a devpts of the box's own.
/// <https://github.com/NVIDIA/OpenShell/issues/749>
#[test]
fn pseudo_terminal_inside() {
    if !need(&["/usr/bin/python3", "script"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            export SHELL=/bin/sh; script -qfc "sleep 30" /dev/null </dev/null >/dev/null & other=$!
            $AB --rw $T/p -- sh -c '/usr/bin/python3 -c "import os;m,s=os.openpty();print(os.ttyname(s))"; echo $?
                SHELL=/bin/sh script -qec "stty size; exit 3" /dev/null </dev/null | tr -d "\r"; ls /dev/pts; stat -Lc %F /dev/ptmx'; kill $other
            "#,
        );
        ran.prints("/dev/pts/0\n0\n0 0\nptmx\ncharacter special file\n");
    }
}

/// A browser builds its own sandbox only where that is granted, and finds nothing there that was hidden.
/// <https://github.com/igo95862/bubblejail/issues/217>
#[test]
fn nested_namespaces_are_opt_in() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir $HOME/.ssh $T/priv; echo SECRET >$HOME/.ssh/id_rsa; echo SECRET >.env; echo SECRET >$T/priv/s; mkdir m
            $AB --rw $T/p -- unshare -Ur id -u; [ $? != 0 ] && echo refused
            $AB --nested --rw $T/p -- sh -c "unshare -Urm sh -c 'mount -t tmpfs t m && id -u; umount -R /proc; umount -l m; umount -l .env; umount -R -l $T/p; umount -R -l $T; umount -R -l /
                cat $HOME/.ssh/id_rsa .env $T/p/.env $T/priv/s'; echo end"
            "#,
        );
        ran.prints("refused\n0\nend\n");
    }
}

/// Threads start although clone3 is shut: glibc falls back on ENOSYS alone.
/// <https://github.com/containerd/containerd/pull/6013>
#[test]
fn threads_without_clone3() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            cat >t.py <<'PY'
import threading,ctypes
t=threading.Thread(target=print,args=('thr',));t.start();t.join()
l=ctypes.CDLL(None,use_errno=True);a=(ctypes.c_uint64*11)(0x10000000);r=l.syscall(435,a,88);print(r if r<0 else 'made',ctypes.get_errno())
PY
            $AB --rw $T/p -- /usr/bin/python3 t.py; unshare -Ur true && echo twin
            "#,
        );
        ran.prints("thr\n-1 38\ntwin\n");
    }
}

/// Scripts, own binaries and the dynamic linker called by name all start under execute rules.
/// <https://github.com/Zouuup/landrun/issues/12>
#[test]
fn scripts_and_binaries_start() {
    if !need(&["/usr/bin/python3", "gcc"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            printf '#!/usr/bin/env python3\nprint("py")\n' >s; printf 'int main(){return 0;}' >c.c; gcc c.c -o c; chmod +x s
            $AB --rw $T/p -- sh -c './s && ./c && $(ls /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.* 2>/dev/null | head -1) ./c && cp c c2 && ./c2 && gcc c.c -o c3 && ./c3 && echo ok'; echo $?
            "#,
        );
        ran.prints("py\nok\n0\n");
    }
}

/// Package stores are made of hard links: link() works inside a root.
/// <https://github.com/kirodotdev/KiroCrew/pull/1339>
#[test]
fn hard_links_inside_a_root() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"echo o >old; $AB --rw $T/p -- sh -c 'echo a >a && ln a b && stat -c %h b; mkdir d && ln a d/c && stat -c %h a; ln old d/old && cat d/old'; echo $?"#,
        );
        ran.prints("2\n3\no\n0\n");
    }
}

/// Every layer is there in the command and in its grandchildren, and not just configured.
/// <https://github.com/tya5/reyn/issues/3020>
#[test]
fn layers_reach_grandchildren() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            q="grep -E '^(NoNewPrivs|Seccomp|Cap...):' /proc/self/status"
            $AB --rw $T/p -- sh -c "$q" >$T/child; $AB --rw $T/p -- sh -c "sh -c \"(exec sh -c \\\"$q\\\")\"" | cmp - $T/child && echo same
            tr -d '\t' <$T/child
            "#,
        );
        let caps: String =
            ["Inh", "Prm", "Eff", "Bnd", "Amb"].iter().map(|set| format!("Cap{set}:0000000000000000\n")).collect();
        ran.prints(&format!("same\n{caps}NoNewPrivs:1\nSeccomp:2\n"));
    }
}

/// The caller has a name and a home inside, localhost and the time zone resolve, other users do not show.
/// <https://github.com/netblue30/firejail/issues/1082>
#[test]
fn caller_has_a_name() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            $AB --rw $T/p -- sh -c 'id -un; getent passwd $(id -u) | cut -d: -f6; echo $HOME; getent hosts localhost | grep -c localhost; stat -c %u /etc/passwd; date +%Z; whoami; [ $(getent passwd | wc -l) -lt 5 ]; echo $?'
            id -un; date +%Z
            "#,
        );
        let out = ran.lines();
        let home = format!("{}/home", ran.t.display());
        assert_eq!(out.len(), 10, "{mode}: {ran}");
        assert_eq!(out[..4], [out[8].as_str(), &home, &home, "1"], "{mode}: {ran}");
        assert!(["0", "65534"].contains(&out[4].as_str()) || out[4] == ran.uid().to_string(), "{mode}: {ran}");
        assert_eq!(out[5..8], [out[9].as_str(), out[8].as_str(), "0"], "{mode}: {ran}");
    }
}
