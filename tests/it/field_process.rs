//! Field cases: the terminal, signals, exit statuses, and what else runs on the machine.

use super::field_common::{Case, MODES, need};

const RESIZE: &str = include_str!("drivers/pty_resize.py");
const SEND: &str = include_str!("drivers/pty_send.py");
const WINCH: &str = include_str!("drivers/winch.py");

fn with_terminal() -> Option<Case> {
    let case = Case::new().file("resize.py", RESIZE).file("send.py", SEND).file("p/winch.py", WINCH);
    need(&["/usr/bin/python3"]).then_some(case)
}

/// The user resizes the window: the program inside is told, and reads the new size.
/// <https://github.com/containers/bubblewrap/issues/573>
#[test]
fn resize_reaches_the_program() {
    for mode in MODES {
        let Some(case) = with_terminal() else { return };
        let ran = case.run(
            mode,
            "/usr/bin/python3 $T/resize.py $AB --rw $T/p -- /usr/bin/python3 winch.py | grep -E '^(start|changed)'",
        );
        ran.prints("start 24x80\nchanged 50x120\n");
    }
}

/// The launcher is interrupted, ended, hung up or killed: nothing of the box lives on.
/// <https://github.com/containers/bubblewrap/issues/726>
#[test]
fn nothing_outlives_the_launcher() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            set -m
            for s in INT TERM HUP KILL; do
                rm -f $T/out/up; $AB --rw $T/p --scratch $T/out -- sh -c "sleep 777.$$ & setsid sleep 777.$$ & touch $T/out/up; wait" & p=$!
                await '[ -e $T/out/up ]'; await '[ $(pgrep -fc "^sleep 777[.]$$") = 2 ]'
                kill -$s $p; wait $p; echo $s $?
                for i in $(seq 100); do [ $(pgrep -fc "^sleep 777[.]$$") = 0 ] && break; sleep .05; done; pgrep -fc "^sleep 777[.]$$"
            done 2>/dev/null
            "#,
        );
        ran.prints("INT 130\n0\nTERM 143\n0\nHUP 129\n0\nKILL 137\n0\n");
    }
}

/// The shell of the terminal is killed, so that the terminal hangs up: nothing of the box lives on.
#[test]
fn nothing_outlives_the_terminal() {
    let Some(case) = with_terminal() else { return };
    let ran = case.live(
        r#"
        /usr/bin/python3 $T/send.py never x sh -c "echo \$\$ >$T/shell; $AB --rw $T/p --scratch $T/out -- sh -c 'touch $T/out/up; exec sleep 776.$$'; true" >/dev/null 2>&1 & driver=$!
        await '[ -e $T/out/up ]'; await '[ $(pgrep -fc "^sleep 776[.]$$") = 1 ]'
        kill -9 $(cat $T/shell); wait $driver; echo $?
        for i in $(seq 100); do [ $(pgrep -fc "^sleep 776[.]$$") = 0 ] && break; sleep .05; done; pgrep -fc "^sleep 776[.]$$"
        "#,
    );
    ran.prints("137\n0\n");
}

/// A program that shares the terminal cannot type for the shell that comes back, not even with high bits set.
/// <https://github.com/containers/bubblewrap/pull/143>
#[test]
fn no_input_for_the_outer_shell() {
    for mode in MODES {
        let Some(case) = with_terminal() else { return };
        let ran = case.run(
            mode,
            r#"
            cat >inject.py <<'PY'
import fcntl,ctypes
for r in (0x5412,0x541C):
  try: fcntl.ioctl(0,r,b'\x02'); print('INJECTED')
  except OSError as e: print('errno',e.errno)
l=ctypes.CDLL(None,use_errno=True)
for r in (0x5412,0x541C): print(l.syscall(16,0,ctypes.c_ulong(0x100000000|r),b'x'),ctypes.get_errno())
PY
            /usr/bin/python3 $T/send.py never x $AB --rw $T/p -- sh -c '/usr/bin/python3 inject.py; stty -icanon min 0 time 1; dd bs=1 count=9 status=none | wc -c' | grep -v agentbox
            "#,
        );
        ran.prints("errno 1\nerrno 1\n-1 1\n-1 1\n0\n");
    }
}

/// The command's own status comes through; the launcher's own failures cannot be taken for it.
/// <https://github.com/containers/bubblewrap/issues/257>
#[test]
fn exit_status() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            for c in 0 1 42 125 255; do $AB --rw $T/p -- sh -c "exit $c"; echo $?; done
            for s in TERM KILL SEGV PIPE; do $AB --rw $T/p -- sh -c "kill -$s \$\$"; echo $?; done
            $AB --rw $T/p -- nosuchcmd; echo $?; $AB --rw $T/p -- /etc/passwd; echo $?; $AB --rw $T/p -- $T/p; echo $?; $AB --rw $T/p -- ./none; echo $?
            $AB --bogus; echo $?; $AB --rw $T/p; echo $?
            "#,
        );
        ran.prints("0\n1\n42\n125\n255\n143\n137\n139\n141\n127\n126\n126\n127\n125\n125\n");
    }
}

/// Children that were put into the background end with the command, whatever session they are in.
/// <https://github.com/containers/bubblewrap/issues/88>
#[test]
fn background_children_end_with_the_command() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            timeout 20 $AB --rw $T/p -- sh -c "sleep 778.$$ & setsid sleep 779.$$ & (setsid sleep 778.$$ &) ; exit 0" | cat; echo ${PIPESTATUS[0]}; pgrep -fc "^sleep 77[89][.]$$"
            "#,
        );
        ran.prints("0\n0\n");
    }
}

/// Orphans are reaped, and the reaper takes no exit status from the command's own children.
/// <https://github.com/openclaw/openclaw/issues/68691>
#[test]
fn orphans_are_reaped() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    let ran = Case::new().live(
        r#"
        cat >t.py <<'PY'
import os,subprocess,time
for i in range(200): subprocess.run(['sh','-c','(true &) ; exit 0'])
print([subprocess.run(['sh','-c','exit 9']).returncode for i in range(50)].count(9))
def dead(p):
  try: return 'State:\tZ' in open(f'/proc/{p}/status').read()
  except OSError: return False
for i in range(100):
  n=sum(dead(p) for p in os.listdir('/proc') if p.isdigit())
  if n==0: break
  time.sleep(.05)
print(n)
PY
        $AB --rw $T/p -- /usr/bin/python3 t.py
        "#,
    );
    ran.prints("50\n0\n");
}

/// Used in a pipe, with much output, without a terminal: bytes go where they belong, and a closed pipe ends it.
/// <https://github.com/containers/bubblewrap/issues/343>
#[test]
fn pipes_and_big_output() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo hi | $AB --rw $T/p -- cat; $AB --rw $T/p -- head -c 209715200 /dev/zero | wc -c
            setsid -w $AB --rw $T/p -- sh -c 'echo e >&2; echo o; echo p >>/dev/stdout' </dev/null >$T/o 2>$T/e; cat $T/o; grep -c '^e$' $T/e
            timeout 20 $AB --rw $T/p -- yes | head -1; echo ${PIPESTATUS[0]}
            $AB --rw $T/p -- cat <&-; $AB --rw $T/p -- true >&-; echo $?; $AB --rw $T/p -- sh -c 'exit 5' 2>&-; echo $?
            "#,
        );
        ran.prints("hi\n209715200\no\np\n1\ny\n141\n0\n5\n");
    }
}

/// What the caller left open is not handed in: no secret, no directory to leave through, however high the number.
/// <https://github.com/google/nsjail/pull/328>
#[test]
fn inherited_descriptors_are_closed() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            ulimit -n 4096; echo SECRET >$T/secret; exec 7<$T/secret 2048<$T
            cat >t.py <<'PY'
import os
print([f for f in sorted(map(int,os.listdir('/proc/self/fd'))) if os.path.exists(f'/proc/self/fd/{f}')])
for n in (7,2048):
  try: print(os.read(n,9) if n==7 else (os.fchdir(n),os.listdir())[1].count('secret'))
  except OSError as e: print(e.errno)
PY
            $AB --rw $T/p -- /usr/bin/python3 t.py; $AB --fd 7 --rw $T/p -- /usr/bin/python3 t.py; /usr/bin/python3 t.py | tail -1
            "#,
        );
        ran.prints("[0, 1, 2]\n9\n9\n[0, 1, 2, 7]\nb'SECRET\\n'\n9\n1\n");
    }
}

/// The user's other processes: not listed, not signalled, not read.
/// <https://github.com/containers/bubblewrap/issues/339>
#[test]
fn other_processes_are_out_of_reach() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            TOK=abc sleep 60 & p=$!
            until grep -qz TOK=abc /proc/$p/environ; do sleep .02; done
            $AB --rw $T/p -- sh -c "ls /proc | grep -c '^[0-9]'; trap '' TERM; kill -TERM -1; kill -KILL $p; cat /proc/$p/environ; echo end"
            kill -0 $p && echo alive; tr '\0' '\n' </proc/$p/environ | grep -c TOK=abc; kill $p
            "#,
        );
        assert!(ran.number(0) < 6, "{mode}: {ran}");
        assert_eq!(ran.lines()[1..], ["end", "alive", "1"], "{mode}: {ran}");
    }
}
