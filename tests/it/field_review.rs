//! Field cases: the diff of a dry run, its storage, and host and command at work at the same time.

use super::field_common::{Case, need};

const SNAPSHOT: &str = r#"snapshot() { find "$1" -printf '%p %y %s %i %m %n %U %T@ %C@ %l\n' | sort; find "$1" -type f | sort | xargs -d '\n' sha1sum; }
"#;

/// It works on a layer, the user sees one diff of all that would change, and the host is the same to the last byte and time.
/// <https://github.com/nolabs-ai/nono/issues/49>
#[test]
fn dry_run_shows_what_would_change() {
    if !need(&["git"]) {
        return;
    }
    let script = String::from(SNAPSHOT)
        + r#"
        echo 1 >a; printf '2\nno newline' >b; mkdir d; echo 3 >d/c; echo '#!/bin/sh' >x.sh; chmod +x x.sh; ln -s a old; printf '\0\1' >bin; echo q >'sp ace'; seq 100 >long; mkdir empty
        work='echo X >>a; rm b; mv d/c d/e; ln -s a l; chmod +x a; printf "\0\2" >bin; printf "\0" >bin2; ln -sf d old; chmod -x x.sh; echo r >>"sp ace"; echo n >"tab	q\"é"; sed -i s/50/fifty/ long; mkdir -p n/m; echo deep >n/m/f; : >none; touch -d 2001-01-01 long'
        cp -a . $T/plain; cp -a . $T/patched; snapshot . >$T/before
        $AB --rw $T/p -- sh -c "$work" 2>$T/shown; echo $?; snapshot . | cmp - $T/before && echo untouched
        agentbox diff >$T/diff; echo $?; snapshot . | cmp - $T/before && echo untouched
        cp $T/diff $T/patched/.patch; cd $T/patched; git apply --check .patch; echo $?; git apply .patch; rm .patch; cd $T/plain; sh -c "$work"
        grep -c -e '^#.*bin' $T/diff; for f in bin bin2; do rm -f $T/plain/$f $T/patched/$f; done
        diff -r --no-dereference $T/plain $T/patched && echo same; (cd $T/plain; find . -type f -perm /111 | sort) | tr '\n' ' '; (cd $T/patched; find . -type f -perm /111) | tr '\n' ' '
        grep -c '^deleted file' $T/diff; cd $T/p; agentbox discard; echo $?; snapshot . | cmp - $T/before && echo untouched; agentbox diff | wc -c"#;
    let ran = Case::new().run("--dry-run --diff full", &script);
    ran.prints("0\nuntouched\n0\nuntouched\n0\n2\nsame\n./a ./a 2\n0\nuntouched\n0\n");
}

/// Dry runs back to back: the kernel may still hold the last layer, and nobody notices.
/// <https://github.com/containers/bubblewrap/pull/547>
#[test]
fn dry_runs_back_to_back() {
    let ran = Case::new().dry(
        r#"for i in $(seq 30); do $AB --rw $T/p -- sh -c "[ ! -e f ] && head -c 1M /dev/urandom >f" || echo FAIL; done; ls -A; agentbox discard; echo $?"#,
    );
    ran.prints("0\n");
}

/// The layer's storage shows nowhere inside, nor in the project.
/// <https://github.com/akitaonrails/ai-jail/pull/59>
#[test]
fn storage_of_the_layer_is_invisible() {
    let ran = Case::new().dry(
        r#"
        git init -q; echo t >t
        $AB --rw $T/p -- sh -c 'echo x >x; find / -xdev \( -path "*agentbox*upper*" -o -path "*agentbox*work*" -o -path "*agentbox*session*" \) 2>/dev/null; find / -path /proc -prune -o -path "*agentbox/*/upper*" -print 2>/dev/null; ls'
        git status --porcelain; ls
        mkdir st; export XDG_STATE_HOME=$T/p/st
        $AB --rw $T/p -- touch $T/p/y 2>$T/err; echo $?; grep -c XDG_STATE_HOME $T/err; XDG_STATE_HOME=$T/state $AB --rw $T/p -- touch y
        mv $T/state/agentbox st/; ls -A st; $AGENTBOX run --live --rw $T/p -- sh -c 'ls -A st/agentbox; cat st/agentbox/*/* >&2; echo $?'
        "#,
    );
    // A state directory inside the root itself: a layer cannot lie there, and a live run does not show it.
    ran.prints("t\nx\n?? t\nt\n125\n1\nagentbox\n1\n");
}

/// The user's editor replaces a file, the command replaces it again: each sees the other's at once.
/// <https://github.com/moby/moby/issues/22627>
#[test]
fn host_and_command_edit_the_same_file() {
    let ran = Case::new().live(
        r#"
        echo 1 >a; $AB --rw $T/p --scratch $T/out -- sh -c "touch $T/out/up; for i in \$(seq 500); do [ \$(cat a) = 2 ] && break; sleep .02; done; cat a; echo 3 >a.t; mv a.t a" & p=$!
        await '[ -e $T/out/up ]'; echo 2 >a.n; mv a.n a; wait $p; cat a
        "#,
    );
    ran.prints("2\n3\n");
}

/// A mount made on the host during the run does not come in, and the box does not keep the host from unmounting it.
/// <https://github.com/containers/bubblewrap/issues/687>
#[test]
fn host_mounts_during_the_run() {
    for mode in super::field_common::MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir m; open_up
            private <<'EOS'
            $DROP $AB --rw $T/p --scratch $T/out -- sh -c "touch $T/out/up; for i in \$(seq 900); do [ -e $T/out/go ] && break; sleep .02; done; ls m; touch $T/out/seen; for i in \$(seq 900); do [ -e $T/out/end ] && break; sleep .02; done" & p=$!
            await '[ -e $T/out/up ]'
            mount -t tmpfs t $T/p/m; echo h >$T/p/m/f; touch $T/out/go
            await '[ -e $T/out/seen ]'; umount $T/p/m && echo unmounted; touch $T/out/end; wait $p; echo $?
            grep -c agentbox /proc/self/mountinfo
EOS
            "#,
        );
        ran.prints("unmounted\n0\n0\n");
    }
}
