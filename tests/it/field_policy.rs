//! Field cases: what leaks through the environment, who may change the policy, and whether its words hold.

use super::field_common::{Case, MODES, need};

/// Keys of the caller's environment go nowhere unless named; what a program needs to start is there.
/// <https://github.com/anthropics/claude-code/issues/78072>
#[test]
fn environment_is_an_allow_list() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            for v in OPENAI_API_KEY GITHUB_TOKEN AWS_SESSION_TOKEN NPM_TOKEN KUBECONFIG SSH_AUTH_SOCK GIT_ASKPASS PGPASSWORD MY_THING NODE_OPTIONS PYTHONSTARTUP BASH_ENV GIT_SSH_COMMAND DATABASE_URL; do export $v=LEAK; done
            export LANG=C.UTF-8 TERM=vt100 TZ=Asia/Tokyo
            env | grep -c =LEAK; LD_PRELOAD=/LEAK $AB --rw $T/p -- env 2>/dev/null | grep -c LEAK; $AB --env OPENAI_API_KEY --rw $T/p -- env | grep LEAK; $AB --env MINE=1=2 --rw $T/p -- env | grep MINE
            $AB --rw $T/p -- sh -c 'echo $HOME $TERM $LANG $TZ $AGENTBOX; echo $PATH | grep -c /usr/bin; pwd; echo $PWD'
            "#,
        );
        let t = ran.t.display();
        ran.prints(&format!(
            "14\n0\nOPENAI_API_KEY=LEAK\nMINE=1=2\n{t}/home vt100 C.UTF-8 Asia/Tokyo 1\n1\n{t}/p\n{t}/p\n"
        ));
    }
}

/// What was left out of the environment is in no process' memory that the box can read, pid 1 included.
/// <https://github.com/containers/bubblewrap/issues/725>
#[test]
fn cleared_variables_stay_cleared() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            export SECRETX=abc123
            $AB --env FOR_ONE=xyz789 --rw $T/p -- sh -c 'cat /proc/[0-9]*/environ 2>/dev/null | tr "\0" "\n" | grep -c abc123; tr "\0" "\n" 2>/dev/null </proc/1/environ | grep -c xyz789; cat /proc/self/environ | tr "\0" "\n" | grep FOR_ONE
                for f in mem maps environ root cwd exe fd/0; do head -c1 /proc/1/$f >/dev/null 2>&1 && echo $f; done; ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c agentbox'
            cat /proc/self/environ | tr '\0' '\n' | grep -c abc123
            "#,
        );
        ran.prints("0\n0\nFOR_ONE=xyz789\n0\n1\n");
    }
}

/// The policy shows in no command line inside, and the mount table of a dry run does not give hidden names away.
/// <https://github.com/containers/bubblewrap/issues/503>
#[test]
fn policy_is_on_no_command_line() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo S >topsecret; echo S >.env
            $AB --ro $T/ref --hide $T/p/topsecret --rw $T/p -- sh -c 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/comm | tr "\0" " "; echo; printf TAB%s LE; echo; cat /proc/self/mountinfo' >$T/seen
            sed '/^TABLE/,$d' $T/seen | grep -cE 'topsecret|ref|hide'; sed -n '/^TABLE/,$p' $T/seen | grep -cE 'topsecret|[.]env'; grep -c TABLE $T/seen
            "#,
        );
        let masks = if mode == "--live" { "2\n" } else { "0\n" }; // a mask is a mount, and a mount has a place
        ran.prints(&format!("0\n{masks}1\n"));
    }
}

/// The project's own policy file and the user's configuration cannot be changed from inside.
/// <https://github.com/Kilo-Org/kilocode/issues/11624>
#[test]
fn policy_files_are_frozen() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            printf '[filesystem]\nhide=["x*"]\n' >agentbox.toml; cp agentbox.toml $T/before; echo S >xx; mkdir -p $HOME/.config/agentbox/profiles; echo 'description="mine"' >$HOME/.config/agentbox/profiles/mine.toml
            $AB --rw $T/p -- sh -c 'cat agentbox.toml >/dev/null && echo readable; cat xx; echo evil >agentbox.toml; echo evil >y; mv agentbox.toml x; mv -f y agentbox.toml; ln -sf y agentbox.toml; rm -f agentbox.toml; cmp agentbox.toml - </dev/null; cat agentbox.toml | wc -l
                cat ~/.config/agentbox/profiles/mine.toml; mkdir -p ~/.config/agentbox/profiles; echo evil >~/.config/agentbox/profiles/mine.toml' 2>/dev/null
            cmp agentbox.toml $T/before && echo same; cat $HOME/.config/agentbox/profiles/mine.toml
            printf '[filesystem]\nrw=["/tmp/..", "%s"]\n' $T/out >agentbox.toml; $AB --rw $T/p -- touch $T/out/wide; [ $? != 0 ] && echo narrow; ls $T/out
            "#,
        );
        ran.prints("readable\n2\nsame\ndescription=\"mine\"\nnarrow\n");
    }
}

/// A fork bomb, a memory bomb, a huge file and a hang end where the user's limits say; the machine goes on.
/// <https://github.com/nolabs-ai/nono/issues/1102>
#[test]
fn limits_hold() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    let ran = Case::new().live(
        r#"
        cat >fork.py <<'PY'
import os,time,signal
n=0
try:
  while n<3000:
    if os.fork()==0: time.sleep(30); os._exit(0)
    n+=1
except OSError: pass
print('bounded' if n<600 else n)
PY
        $AB --limit processes=64 --limit time=20 --rw $T/p -- /usr/bin/python3 fork.py; (true &) && echo host
        $AB --limit memory=200M --rw $T/p -- /usr/bin/python3 -c "b=bytearray(10**9);print(1)" 2>/dev/null; [ $? != 0 ] && echo memory
        $AB --limit memory=2G --rw $T/p -- /usr/bin/python3 -c "b=bytearray(10**9);print('twin')"
        $AB --limit file_size=1M --rw $T/p -- sh -c 'head -c 2000000 /dev/zero >big'; [ $? != 0 ] && stat -c %s big
        $AB --limit open_files=32 --rw $T/p -- /usr/bin/python3 -c "f=[open('/dev/null') for i in range(64)]" 2>/dev/null; echo $?
        s=$(date +%s); $AB --limit time=1s --rw $T/p -- sh -c 'trap "" TERM; sleep 60; sleep 60'; echo $? $(($(date +%s) - s < 20))
        $AB --limit nonsense=1 --rw $T/p -- true; echo $?
        "#,
    );
    ran.prints("bounded\nhost\nmemory\ntwin\n1048576\n1\n124 1\n125\n");
}

/// `why` and what really happens agree, for names of every kind, read and write.
/// <https://github.com/nolabs-ai/nono/issues/1549>
#[test]
fn why_agrees_with_the_run() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir -p d/.hid .github node_modules/.bin sub/deep $HOME/.ssh $T/ref/r; for f in a .env .gitignore d/k.pem d/.hid/f d/ok .github/w.yml node_modules/.bin/x sub/deep/f frozen $T/ref/r/f $T/ref/.env $T/out/o $HOME/.ssh/id $HOME/.bashrc; do echo 1 >$f; done
            ln -s a link; ln -s /etc/shadow away; ln -s .env alias; printf '[filesystem]\nrw=["."]\nfreeze=["frozen"]\n' >$T/f.toml
            policy="-p default -p $T/f.toml --ro $T/ref --ro $T/p/sub --hide d/ok"
            files=$(for f in a .env .gitignore d/k.pem d/.hid/f d/ok .github/w.yml node_modules/.bin/x sub/deep/f frozen link alias; do echo $T/p/$f; done; echo $T/ref/r/f $T/ref/.env $T/out/o $HOME/.ssh/id $HOME/.bashrc /etc/shadow /etc/resolv.conf /usr/bin/env $T/p/away)
            for f in $files; do
                agentbox why $policy $f >/dev/null; echo "r $f $?"; agentbox why $policy --write $f >/dev/null; echo "w $f $?"
            done >$T/said
            $AB $policy -- sh -c 'for f; do head -c1 $f >/dev/null 2>&1; echo "r $f $?"; done; mkdir -p ~/.ssh ${1%/p/a}/out; for f; do (: >>$f) 2>/dev/null; echo "w $f $(($? != 0))"; done' sh $files >$T/did
            # In a dry run a name of the session's own may stand where a hidden one is: apply refuses it, not the kernel.
            case "$AB" in *--dry-run*) for f in said did; do sed -i -E '/^w .*([.]env|k[.]pem|[.]hid.f|d.ok|alias) /d' $T/$f; done;; esac
            diff <(sort $T/said) <(sort $T/did) && echo agree; grep -c ' 0$' $T/did; grep -c ' 1$' $T/did
            "#,
        );
        let out = ran.lines();
        assert_eq!(out[0], "agree", "{mode}: {ran}");
        assert!(ran.number(1) >= 11 && ran.number(2) >= 15, "{mode}: {ran}");
    }
}

/// A misspelled key, a broken pattern, an unknown value: refused with file, line and what was probably meant.
/// <https://github.com/GreyhavenHQ/greywall/issues/42>
#[test]
fn typing_errors_are_refused() {
    let ran = Case::new().live(
        r#"
        printf '[filesystem]\nrw=["."]\nhidee=[".env"]\n' >$T/a.toml; printf '[filesystem]\nhide=["[a"]\n' >$T/b.toml; printf '\n[network]\nmode="hots"\n' >$T/c.toml; printf '[filesystm]\nrw=["."]\n' >$T/d.toml
        try() { $AB -p $T/$1.toml --rw $T/p -- touch $T/p/ran 2>$T/err; echo $1 $? $(grep -cF -e "$T/$1.toml:$2" -e "$1.toml:$2" $T/err) $(grep -c "$3" $T/err | sed 's/[1-9].*/meant/'); cat $T/err >&2; }
        try a 3 hide; try b 2 '\[a'; try c 3 host; try d 1 filesystem
        $AB -p $T/none.toml -- touch ran; echo $?; $AB -p defualt -- touch ran 2>$T/err; echo $? $(grep -c default $T/err); $AB --limit procs=1 -- touch ran; echo $?; $AB --hide '[a' -- touch ran; echo $?; ls
        "#,
    );
    ran.prints("a 125 1 meant\nb 125 1 meant\nc 125 1 meant\nd 125 1 meant\n125\n125 1\n125\n125\n");
}

/// One command tells whether this host can do it, and its answer is the kernel's.
/// <https://github.com/containers/bubblewrap/issues/701>
#[test]
fn doctor_tells_the_truth() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    let ran = Case::new().live(
        r#"
        agentbox doctor >$T/text; echo $?; wc -l <$T/text
        agentbox doctor --json | /usr/bin/python3 -c "
import json,sys,ctypes
d=json.load(sys.stdin);print(d['landlock']['abi']==ctypes.CDLL(None).syscall(444,None,0,1))"
        "#,
    );
    let out = ran.lines();
    assert_eq!(out[0], "0", "{ran}");
    assert!(ran.number(1) >= 5, "{ran}");
    assert_eq!(out[2], "True", "{ran}");
}
