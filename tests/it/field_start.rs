//! Field cases: starting up on hosts that differ from the one the author had.

use super::field_common::{Case, MODES, is_root, need};

/// User namespaces are switched off on this host: refused in words that lead to the fix, and nothing ran.
/// <https://github.com/containers/bubblewrap/issues/632>
#[test]
fn refused_user_namespaces_are_explained() {
    let ran = Case::new().live(
        r#"
        with() { unshare -Ur sh -c "$1"'; exec "$@"' -- "${@:2}"; }
        with 'true' $AB --rw $T/p -- touch $T/p/twin; echo $?; ls
        with 'echo 0 >/proc/sys/user/max_user_namespaces' $AB --rw $T/p -- touch $T/p/ran 2>$T/err; echo $?; ls
        wc -l <$T/err
        grep -ci 'user namespace' $T/err
        grep -cE 'max_user_namespaces|AppArmor' $T/err
        with 'echo 0 >/proc/sys/user/max_user_namespaces' agentbox doctor >$T/doc 2>&1; echo doctor $?
        grep -ciE 'user.?n(ame)?s(pace)?' $T/doc
        "#,
    );
    let out = ran.lines();
    assert_eq!(out[..4], ["0", "twin", "125", "twin"], "{ran}");
    assert!(ran.number(4) <= 10, "more than ten lines: {ran}");
    assert!(ran.number(5) >= 1 && ran.number(6) >= 1, "no words on user namespaces: {ran}");
    assert_eq!(out[7], "doctor 1", "{ran}");
    assert!(ran.number(8) >= 1, "doctor is silent on it: {ran}");
}

/// A container that masks parts of /proc makes the kernel refuse a fresh one: it works, or it is refused by name.
/// <https://github.com/containers/bubblewrap/issues/134>
#[test]
fn masked_proc_of_an_outer_container_is_never_shown() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            sleep 60 & host=$!
            unshare -Urm sh -c 'mount --bind /proc/sys /proc/sys && exec "$@"' -- \
                $AB --rw $T/p -- sh -c "ls /proc | grep -c '^[0-9]'; cat /proc/$host/comm; cat /proc/1/comm" 2>$T/err
            echo rc=$?; kill $host; cat $T/err >&2
            "#,
        );
        let refused =
            ran.out().trim_end() == "rc=125" && ran.err().contains("/proc") && ran.err().contains("container");
        let boxed = ran.out().contains("rc=0") && ran.number(0) < 8 && !ran.out().contains("sleep");
        assert!(refused || boxed, "{mode}: {ran}");
    }
}

/// A layer that cannot be had is a refusal, and never a run without it.
/// <https://github.com/anthropics/claude-agent-sdk-typescript/issues/239>
#[test]
fn missing_layer_never_runs_the_command() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            for step in userns mount seccomp landlock netns; do
                AGENTBOX_TEST_FAIL=$step $AB --rw $T/p --net none -- touch $T/p/ran-$step $T/out/ran-$step; echo $step $?
            done
            ls $T/p $T/out | grep -c ran-
            $AB --rw $T/p -- true; echo twin $?
            "#,
        );
        ran.prints("userns 125\nmount 125\nseccomp 125\nlandlock 125\nnetns 125\n0\ntwin 0\n");
    }
}

/// Running with less is an explicit choice, and the run says what was lost.
#[test]
fn degraded_run_names_the_lost_layer() {
    let ran = Case::new().live(
        r#"
        AGENTBOX_TEST_FAIL=landlock $AB --degraded landlock --rw $T/p -- touch $T/p/ran 2>$T/err; echo $?; ls
        grep -ci landlock $T/err
        AGENTBOX_TEST_FAIL=seccomp $AB --degraded landlock --rw $T/p -- touch $T/p/not; echo $?; ls
        "#,
    );
    ran.prints("0\nran\n1\n125\nran\n");
}

/// The launcher inside itself: works with --nested, is told plainly without, and never widens the outer view.
/// <https://github.com/containers/bubblewrap/issues/164>
#[test]
fn inside_itself() {
    let ran = Case::new().live(
        r#"
        mkdir $T/priv; cp $(command -v agentbox) $T/bin/; inner="$T/bin/agentbox run --live"; echo S >$T/priv/s
        $AB --nested --ro $T/bin --rw $T/p -- $inner --rw $T/p --ro $T/bin -- sh -c "echo in >$T/p/f"; echo $?; cat $T/p/f
        $AB --nested --ro $T/bin --rw $T/p -- $inner --rw $T/p --rw $T/priv -- sh -c "cat $T/priv/s; touch $T/priv/x"; echo $?
        $AB --nested --ro $T/bin --rw $T/p -- $inner --rw $T/p --rw $T/bin -- touch $T/bin/x; [ $? != 0 ]; echo $?
        ls $T/priv $T/bin
        $AB --ro $T/bin --rw $T/p -- $inner --rw $T/p -- touch $T/p/g 2>$T/err; echo $?; grep -ci nested $T/err | sed 's/[1-9].*/said/'
        ls $T/p
        "#,
    );
    ran.prints(&format!(
        "0\nin\n125\n0\n{}/bin:\nagentbox\nprobe\n\n{}/priv:\ns\n125\nsaid\nf\n",
        ran.t.display(),
        ran.t.display()
    ));
}

/// Mounts come and go on the host all day: no start may fail over it.
/// <https://github.com/containers/bubblewrap/issues/650>
#[test]
fn mount_table_changes_during_start() {
    let ran = Case::new().live(
        r#"
        mkdir $T/ref/a $T/ref/b; open_up
        private <<'EOS'
        (while :; do mount --bind $T/ref/a $T/ref/b; umount $T/ref/b; done) 2>/dev/null & loop=$!
        for i in $(seq 120); do drop $AB --ro $T/ref --rw $T/p -- true || echo FAIL; done
        kill $loop; wait $loop 2>/dev/null; echo end
EOS
        "#,
    );
    ran.prints("end\n");
}

/// Another user's dead FUSE mount lies below a granted tree: it is left out, said aloud, and nobody waits for it.
/// <https://github.com/containers/bubblewrap/issues/435>
#[test]
fn root_foreign_fuse_mount_below_a_root() {
    if !is_root() || !need(&["python3"]) {
        return; // covered by the root run: FUSE needs /dev/fuse
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir $T/ref/nas; echo r >$T/ref/r; open_up
            cat >$T/dead.py <<'PY'
import ctypes, os, sys, time
fd = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
opts = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"nas", sys.argv[1].encode(), b"fuse", 0, opts): sys.exit(os.strerror(ctypes.get_errno()))
print("mounted", flush=True); time.sleep(30)
PY
            private <<'EOS'
            /usr/bin/python3 $T/dead.py $T/ref/nas >$T/said & fuse=$!
            await 'grep -q mounted $T/said'
            drop timeout 20 $AB --ro $T/ref --rw $T/p -- sh -c "cat $T/ref/r; touch $T/ref/nas/x || echo refused" 2>$T/err; echo $?
            kill -9 $fuse
EOS
            grep -c $T/ref/nas $T/err | sed 's/[1-9].*/said/'
            "#,
        );
        ran.prints("r\nrefused\n0\nsaid\n");
    }
}

/// Whoever starts it owns what it makes, no capability is left, and archives unpack.
/// <https://github.com/safedep/pmg/pull/487>
#[test]
fn ownership_and_archives() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            $AB --rw $T/p -- sh -c 'id -u; touch f; tar cf a.tar f; mkdir x; tar xf a.tar -C x; echo tar $?
                stat -c %u f x/f; grep -E "CapEff|CapPrm|CapBnd" /proc/self/status | sort -u | cut -f2'
            "#,
        );
        let uid = ran.uid();
        let no_caps = "0000000000000000\n".repeat(3);
        ran.prints(&format!("{uid}\ntar 0\n{uid}\n{uid}\n{no_caps}"));
    }
    let ran = Case::new().live("$AB --rw $T/p -- sh -c 'touch f; mkdir x; touch x/f'; stat -c %u f x x/f | sort -u");
    ran.prints(&format!("{}\n", ran.uid()));
}

/// A project that nobody may write: the box starts, and a write fails as it would outside.
/// <https://github.com/anthropics/claude-code/issues/42326>
#[test]
fn unwritable_project_still_starts() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo 1 >a; chmod 555 $T/p
            $AB --ro $T/p -- ls $T/p; echo $?
            $AB --rw $T/p -- sh -c "touch $T/p/x"; echo $?
            chmod 755 $T/p; ls -A $T/p
            $AB --rw $T/p -- touch $T/p/x; echo $?
            "#,
        );
        ran.prints("a\n0\n1\na\n0\n");
        assert!(ran.err().contains("Permission denied"), "{mode}: {ran}");
    }
}

/// HOME is spelled one way, the working directory another (Fedora Atomic): one tree, both names work, hides hold.
/// <https://github.com/flatpak/flatpak/issues/2421>
#[test]
fn home_behind_a_symlink() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir -p $T/var/home/u/p; ln -s var/home $T/home2; export HOME=$T/home2/u; cd $HOME/p; echo S >s1; echo S >s2
            $AB --rw $HOME/p --hide $T/home2/u/p/s1 --hide $T/var/home/u/p/s2 -- sh -c "
                touch $T/home2/u/p/a $T/var/home/u/p/b; ls; echo $T | wc -l
                [ \$(stat -c %i $T/home2/u/p/a) = \$(stat -c %i $T/var/home/u/p/a) ] && echo same
                cat $T/home2/u/p/s1; cat $T/var/home/u/p/s1; cat $T/home2/u/p/s2; cat $T/var/home/u/p/s2; pwd -P" | grep -v '^s[12]$'
            echo ${PIPESTATUS[0]}; ls $T/var/home/u/p | tr '\n' ' '
            "#,
        );
        let project = ran.t.join("var/home/u/p");
        let after = if mode == "--live" { "a b s1 s2 " } else { "s1 s2 " };
        ran.prints(&format!("a\nb\n1\nsame\n{}\n0\n{after}", project.display()));
    }
}

/// Nothing is left behind in the shared temporary places, not even by launchers that were killed.
/// <https://github.com/RakuenSoftware/aimee/pull/2088>
#[test]
fn nothing_left_behind() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            open_up
            private <<'EOS'
            cp $(command -v agentbox) $T/bin; mount --bind $T /mnt; for d in /tmp /var/tmp /run; do mount -t tmpfs -o mode=1777 t $d; done
            export T=/mnt XDG_STATE_HOME=/mnt/state AB="/mnt/bin/agentbox ${AB#* }" HOME=/mnt/home XDG_RUNTIME_DIR=/run/user; mkdir -m 777 /run/user; cd /mnt/p
            count() { find /tmp /var/tmp /run /dev/shm 2>/dev/null | wc -l; }
            a=$(count)
            for i in $(seq 20); do drop $AB --rw $T/p -- true || echo FAIL; done
            for i in 1 2 3 4 5; do
                rm -f $T/out/up; $DROP $AB --rw $T/p --scratch $T/out -- sh -c "touch $T/out/up; sleep 20" & p=$!
                await '[ -e $T/out/up ]'; kill -9 $p; wait $p 2>/dev/null
            done
            for i in $(seq 100); do [ $(count) = $a ] && break; sleep .05; done
            echo $(($(count) - a)); find /tmp /var/tmp /run -mindepth 1 >&2
EOS
            "#,
        );
        ran.prints("0\n");
    }
}

/// A mount whose source file was deleted (a resolver after a VPN change) lies below a root: no reason to fail.
/// <https://github.com/fencesandbox/fence/issues/219>
#[test]
fn mount_of_a_deleted_file() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo x >$T/a; touch $T/ref/r; echo o >$T/ref/other; open_up
            private <<'EOS'
            mount --bind $T/a $T/ref/r; rm $T/a; cat $T/ref/r
            drop $AB --ro $T/ref --rw $T/p -- cat $T/ref/other; echo $?
            echo "nameserver 127.0.0.7" >$T/b; mount --bind $T/b /etc/resolv.conf; rm $T/b
            drop $AB --net host --rw $T/p -- true; echo $?
EOS
            "#,
        );
        ran.prints("x\no\n0\n0\n");
    }
}
