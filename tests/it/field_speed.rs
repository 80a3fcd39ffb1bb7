//! Field cases: what a start costs, in counts and ratios of one run, never in absolute times.

use super::field_common::{Case, MODES, need};

const TREE: &str = r#"/usr/bin/python3 -c "
import os
for i in range(400):
  os.makedirs(f'node_modules/p{i}/lib')
  for j in range(25): open(f'node_modules/p{i}/lib/{j}.js','w').close()"
"#;

/// One walk of the tree for all patterns together, counted in directory reads before the box is made.
/// <https://github.com/anthropics/claude-code/issues/84681>
#[test]
fn one_walk_for_all_patterns() {
    if !need(&["strace", "/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let script = format!(
            r#"{TREE}
            # A first dry run makes what the later ones find.
            $AB -q --rw $T/p -- true
            for k in 1 15; do
                strace -f -qq -e trace=getdents64,clone3 -o $T/calls$k $AB --rw $T/p $(for i in $(seq $k); do echo --hide "**/.secret$i"; done) -- true; echo $?; sed '/clone3(/q' $T/calls$k | grep -c getdents64
            done"#
        );
        let ran = Case::new().run(mode, &script);
        assert_eq!((ran.lines()[0].as_str(), ran.lines()[2].as_str()), ("0", "0"), "{mode}: {ran}");
        let (one, fifteen) = (ran.number(1), ran.number(3));
        assert_eq!(one, fifteen, "{mode}: a walk a pattern: {ran}");
        assert!(one < 2 * 802 + 100, "{mode}: 802 directories were read more than once: {ran}");
    }
}

/// Fifteen patterns cost about what one costs, in time and in memory.
/// <https://github.com/nolabs-ai/nono/issues/504>
#[test]
fn patterns_are_cheap() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let script = format!(
            r#"{TREE}
            cat >$T/time.py <<'PY'
import os,resource,subprocess,sys,time
def cost(k):
  cmd=os.environ['AB'].split()+['--rw',os.getcwd()]+[a for i in range(k) for a in ('--hide',f'**/.secret{{i}}')]+['--','true']
  t=time.perf_counter();subprocess.run(cmd,check=True);return time.perf_counter()-t
best={{1:9e9,15:9e9}}
for _ in range(8):
  for k in best: best[k]=min(best[k],cost(k))
print(round(100*best[15]/best[1]),resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss//1024)
PY
            /usr/bin/python3 $T/time.py"#
        );
        let ran = Case::new().run(mode, &script);
        let numbers: Vec<u64> = ran.out().split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert!(numbers[0] < 180, "{mode}: fifteen patterns cost {} % of one: {ran}", numbers[0]);
        assert!(numbers[1] < 100, "{mode}: {} MiB resident: {ran}", numbers[1]);
    }
}

/// Agents run hundreds of short commands: no helper programs, no repeated look at the mount table, few system calls.
/// <https://github.com/anthropics/claude-code/issues/84681>
#[test]
fn cost_of_a_short_command() {
    if !need(&["strace"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo 1 >a; $AB --rw $T/p -- true
            strace -f -qq -o $T/calls $AB --rw $T/p -- true; echo $?
            grep -cE ' execve\(.* = 0$' $T/calls; grep -cE 'open(at)?2?\(.*mountinfo' $T/calls
            grep -cE '^[0-9]+ +[a-z0-9_]+\(' $T/calls
            "#,
        );
        assert_eq!(ran.number(0), 0, "{mode}: {ran}");
        assert!(ran.number(1) <= 3, "{mode}: helper programs: {ran}"); // the launcher by strace, and the command
        assert!(ran.number(2) <= 1, "{mode}: {ran}");
        assert!(ran.number(3) <= 1500, "{mode}: {ran}");
    }
}

/// Sixty short commands in a row and eight at a time: none fails.
#[test]
fn many_short_commands() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            for i in $(seq 20); do $AB --rw $T/p -- true || echo FAIL; done
            seq 40 | xargs -P 8 -I{} sh -c '$AB --rw $T/p -- sh -c "exit 0" || echo FAIL'; echo $?
            "#,
        );
        ran.prints("0\n");
    }
}
