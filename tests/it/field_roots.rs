//! Field cases: where a run starts, and what may be a root at all.

use super::field_common::{Case, MODES};

/// Links that lead to themselves or upwards: the search for secrets follows none of them.
/// <https://github.com/anthropics/claude-code/issues/68587>
#[test]
fn link_loops_do_not_hold_the_start() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            ln -s . loop; ln -s .. up; mkdir d; (cd d; seq 4000 | xargs mkdir; for i in $(seq 50); do ln -s .. $i/up; done); echo S >d/77/.env
            timeout 20 $AB --rw $T/p --hide '**/.env' -- sh -c 'cat d/77/.env loop/d/77/.env; cat d/1/up/77/.env'; echo $?
            strace -f -qq -e trace=getdents64,clone3 -o $T/calls $AB --rw $T/p --hide '**/.env' -- true
            sed '/clone3(/q' $T/calls | awk '/getdents64/ {n++} END {print (n < 9000) ? "one walk" : n}'
            "#,
        );
        ran.prints("1\none walk\n");
    }
}

/// Started outside the granted roots: refused, and the working directory never widens what was granted.
/// <https://github.com/MoonshotAI/kimi-code/pull/1934>
#[test]
fn working_directory_outside_the_roots() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir $T/other; cd $T/other
            $AB --rw $T/p -- sh -c 'pwd; echo x >here' 2>$T/err; echo $?; grep -c -e --chdir $T/err; ls $T/other $HOME
            $AB --ro $T/other -- touch $T/other/y; echo $?; ls $T/other
            $AB --rw $T/p --chdir $T/p -- sh -c 'pwd; echo x >here && cat here'; echo $?
            mkdir $T/gone; cd $T/gone; rmdir $T/gone; $AB --rw $T/p -- touch $T/p/ran; echo $?; ls $T/p | grep -c ran
            "#,
        );
        let t = ran.t.display();
        ran.prints(&format!("125\n1\n{t}/home:\n\n{t}/other:\n1\n{t}/p\nx\n0\n125\n0\n"));
    }
}

/// One `cd` too few: HOME, what lies above it and the root directory are no writable roots.
/// <https://github.com/google-gemini/gemini-cli/pull/29214>
#[test]
fn home_and_above_are_no_roots() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            ln -s home $T/alias
            try() { $AB "$@" -- sh -c 'touch ran' 2>$T/err; echo $? $(grep -ciE 'home|whole system' $T/err | sed 's/[1-9].*/said/'); }
            cd $HOME; try --rw .; try; try --rw $T/alias; cd $T; try --rw .; try; try --rw /
            cd $T/p; try --rw $HOME/../home/; find $T -name ran
            mkdir $HOME/project; cd $HOME/project; try --rw . | cut -c 1
            "#,
        );
        ran.prints(&("125 said\n".repeat(7) + "0\n"));
    }
}

/// A link of the project leads to a tree next to it: shut both ways, and the plan names the link and the flag.
/// <https://github.com/pnpm/pnpm/issues/14286>
#[test]
fn monorepo_link_to_a_sibling() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir -p $T/lib/node_modules/x; echo 1 >$T/lib/node_modules/x/i; ln -s $T/lib/node_modules node_modules
            $AB --rw $T/p -- sh -c 'cat node_modules/x/i; touch node_modules/pwn'; echo $?; ls $T/lib/node_modules
            agentbox explain --rw $T/p -- true >$T/plan; grep -c -e "--ro $T/lib/node_modules" $T/plan | sed 's/[1-9].*/named/'
            $AB --rw $T/p --ro $T/lib/node_modules -- sh -c 'cat node_modules/x/i; touch node_modules/pwn'; echo $?
            "#,
        );
        ran.prints("1\nx\nnamed\n1\n1\n");
    }
}
