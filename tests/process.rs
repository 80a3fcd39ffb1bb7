//! The command as a process: its status, its signals, its orphans, its descriptors.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test is alone in its directory, and its environment is its input"
)]

mod support;

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{agentbox, alive, file, has, mark, prefix_text, prefix_with, project, shell, start, wait_until};

fn status(command: &[&str]) -> Option<i32> {
    agentbox(command).stderr(Stdio::null()).status().unwrap().code()
}

fn stdout(command: &[&str]) -> String {
    String::from_utf8(agentbox(command).output().unwrap().stdout).unwrap()
}

fn sh(script: &str) -> String {
    String::from_utf8(shell(script).output().unwrap().stdout).unwrap()
}

#[test]
fn the_status_is_the_commands() {
    for code in [0, 1, 42, 255] {
        assert_eq!(status(&["sh", "-c", &format!("exit {code}")]), Some(code));
    }
    // 34 is a real-time signal, for which no library has a name.
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139), ("INT", 130), ("34", 162)] {
        assert_eq!(status(&["sh", "-c", &format!("kill -{signal} $$")]), Some(code), "{signal}");
    }
    assert_eq!(status(&["agentbox-no-such-command"]), Some(127));
    assert_eq!(status(&["/etc/passwd"]), Some(126));
    assert_eq!(status(&["/"]), Some(126));
}

/// Field case: the launcher is signalled and the program lives on. The shell starts it as shells without job control
/// do, with INT and QUIT ignored.
#[test]
fn nothing_outlives_a_signalled_launcher() {
    for signal in ["INT", "TERM", "HUP", "QUIT", "KILL"] {
        let mark = mark();
        let script = format!(
            "{} sh -c 'ulimit -c 0; sleep {mark} & setsid sleep {mark} & wait' & p=$!; sleep .4; kill -{signal} $p; wait $p; echo $?",
            prefix_text()
        );
        let code = sh(&script);
        wait_until(&format!("no process after {signal}"), 1.5, || alive(&mark).is_empty());
        let expected = match signal {
            "INT" => "130\n",
            "TERM" => "143\n",
            "HUP" => "129\n",
            "QUIT" => "131\n",
            _ => "137\n",
        };
        assert_eq!(code, expected, "{signal}");
    }
}

#[test]
fn a_nohup_launcher_and_its_command_stay_at_a_hangup() {
    let script =
        format!("nohup {} sh -c 'sleep .6; echo stayed' & p=$!; sleep .3; kill -HUP $p; wait $p", prefix_text());
    assert_eq!(sh(&script), "stayed\n");
}

#[test]
fn a_signal_with_a_meaning_reaches_the_command_once_and_alone() {
    let script = "import signal,time,subprocess,sys
got=[]
for s in (signal.SIGUSR1,signal.SIGUSR2,signal.SIGALRM,signal.SIGRTMIN,signal.SIGRTMIN+2,signal.SIGTERM): signal.signal(s,lambda n,f:got.append(n))
child=subprocess.Popen(['sleep','5'])
print('ready',flush=True)
while signal.SIGTERM not in got: time.sleep(.01)
time.sleep(.1); print(sorted(got)==sorted([10,12,14,34,36,15]),child.poll(),flush=True)";
    let mut launcher = agentbox(&["/usr/bin/python3", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = launcher.stdout.take().unwrap();
    let mut first = [0; 6];
    out.read_exact(&mut first).unwrap();
    for signal in [10, 12, 14, 34, 36, 15] {
        agentbox::sys::kill(launcher.id() as i32, signal).unwrap();
    }
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    launcher.wait().unwrap();
    // TERM went to the group, so the child had ended; by USR1 it would have ended with -10.
    assert_eq!(rest, "True -15\n");
}

#[test]
fn a_stopped_and_continued_launcher_goes_on() {
    let mut launcher = agentbox(&["sh", "-c", "sleep .5; exit 7"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    agentbox::sys::kill(launcher.id() as i32, libc::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert!(launcher.try_wait().unwrap().is_none());
    agentbox::sys::kill(launcher.id() as i32, libc::SIGCONT).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(7));
}

#[test]
fn without_a_terminal_a_stop_is_passed_on_and_undone() {
    let script = format!(
        "exec setsid {} sh -c 'echo up; sleep .4; echo done' </dev/null & p=$!; sleep .2; kill -TSTP $p; sleep .6; echo stopped; kill -CONT $p; wait $p",
        prefix_text()
    );
    assert_eq!(sh(&script), "up\nstopped\ndone\n");
    assert_eq!(stdout(&["sh", "-c", "(sleep .2; kill -CONT $$) & kill -STOP $$; echo back"]), "back\n");
}

#[test]
fn the_time_limit_asks_and_then_kills() {
    let limited = |command: &[&str]| {
        let began = Instant::now();
        let code = start(&prefix_with(&["--limit", "time=1"]), command).status().unwrap().code();
        (code, began.elapsed().as_secs_f64())
    };
    let (code, took) = limited(&["sleep", "9"]);
    assert_eq!((code, took > 0.9 && took < 2.0), (Some(124), true));
    let (code, took) = limited(&["sh", "-c", "trap 'exit 3' TERM; kill -STOP $$; sleep 9 & wait"]);
    assert_eq!((code, took > 0.9 && took < 2.0), (Some(124), true));
    let (code, took) = limited(&["sh", "-c", "trap '' TERM; while :; do sleep .1; done"]);
    assert_eq!((code, took > 3.0 && took < 4.5), (Some(124), true));
    assert_eq!(limited(&["sh", "-c", "exit 5"]).0, Some(5));
}

#[test]
fn background_children_end_with_the_command() {
    let mark = mark();
    let began = Instant::now();
    assert_eq!(status(&["sh", "-c", &format!("sleep {mark} & setsid sleep {mark} & exit 0")]), Some(0));
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(alive(&mark), Vec::<i32>::new());
}

#[test]
fn orphans_are_reaped_and_no_status_is_stolen() {
    let script = "import os,subprocess,time
for i in range(300): subprocess.run(['sh','-c','(true &) ; exit 0'])
print([subprocess.run(['sh','-c','exit 9']).returncode for i in range(50)].count(9));time.sleep(.5)
print(sum('State:\\tZ' in open(f'/proc/{p}/status').read() for p in os.listdir('/proc') if p.isdigit()))";
    assert_eq!(stdout(&["/usr/bin/python3", "-c", script]), "50\n0\n");
}

#[test]
fn pipes_and_output_are_the_commands() {
    let agentbox = prefix_text();
    assert_eq!(sh(&format!("echo hi | {agentbox} cat")), "hi\n");
    assert_eq!(sh(&format!("{agentbox} head -c 209715200 /dev/zero | wc -c")).trim(), "209715200");
    let script = format!("{agentbox} yes | head -1; echo ${{PIPESTATUS[0]}}");
    let output = shell(&script).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "y\n141\n");
    let script = format!("exec setsid -w {agentbox} sh -c 'echo e >&2; echo o' </dev/null");
    let output = shell(&script).output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"o\n"[..], &b"e\n"[..]));
}

#[test]
fn a_closed_output_is_seen_closed_while_the_command_runs() {
    let mut launcher = agentbox(&["sh", "-c", "exec >&- 2>&-; sleep 1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The launcher itself holds a copy of what it inherited; what must not is pid 1.
    let pid1 = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", launcher.id())).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let fds = std::fs::read_dir(format!("/proc/{}/fd", pid1.trim()));
    if let Ok(fds) = fds {
        let targets: Vec<_> = fds.flatten().map(|fd| std::fs::read_link(fd.path()).unwrap()).collect();
        assert!(!targets.iter().any(|target| target.to_string_lossy().starts_with("pipe:")), "{targets:?}");
        assert!(targets.len() <= 3, "{targets:?}");
    }
    launcher.wait().unwrap();
}

/// Field cases: what the launcher was called with and what it has in its environment, read from inside.
#[test]
fn pid_1_shows_neither_arguments_nor_environment() {
    // From a file, so that no command line inside holds the word.
    let script = file(
        "look.sh",
        "cat /proc/1/comm; ls -l /proc/1/exe /proc/1/fd/ | grep -c -e '->'
        for f in /proc/[0-9]*; do cat $f/environ $f/cmdline; done | tr '\\0' '\\n' | grep -c -e 'abc[1]23' -e '--[r]w'",
    );
    let output =
        start(&prefix_with(&["--hide", "abc123"]), &["sh", &script]).env("SECRETX", "abc123").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "agentbox-init\n0\n0\n", "{errors}");
    assert!(errors.contains("/proc/1/environ: Permission denied"), "{errors}");
    // The twin: in the command's own environment it is, once it is granted.
    let twin = start(&prefix_with(&["--env", "SECRETX"]), &["grep", "-c", "abc123", "/proc/self/environ"])
        .env("SECRETX", "abc123")
        .output();
    assert_eq!(twin.unwrap().stdout, b"1\n");
}

#[test]
fn the_command_starts_with_clean_signals() {
    let script =
        format!("trap '' INT QUIT TERM PIPE CHLD; {} grep -E 'SigBlk|SigIgn' /proc/self/status", prefix_text());
    // 32 and 33 are glibc's own, which its posix_spawn leaves ignored in whatever a Rust program starts.
    let status = sh(&script).replace("0000000180000000", "0000000000000000");
    assert_eq!(status, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

/// `..` of a directory that is open leads past every mount.
#[test]
fn a_directory_as_a_standard_descriptor_is_refused() {
    for (number, name) in [(0, "stdin"), (1, "stdout")] {
        let output = shell(&format!("{} true {number}</", prefix_text())).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(&format!("{name} is a directory")), "{errors}");
    }
    assert_eq!(shell(&format!("{} true 2</", prefix_text())).status().unwrap().code(), Some(125));
}

/// Whatever the launcher was doing when it is killed: before the clone, in the setup, while the command runs.
#[test]
fn a_launcher_killed_at_any_moment_leaves_nothing() {
    let mark = mark();
    for round in 0..60 {
        let mut launcher = agentbox(&["sleep", &mark]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(700 * round));
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        wait_until(&format!("no process in round {round}"), 1.0, || alive(&mark).is_empty());
    }
}

/// The supervisor is dead before pid 1 asks for its death signal, which strace holds back.
#[test]
fn a_supervisor_that_died_before_pid_1_was_bound_to_it_is_noticed() {
    if !has("strace") {
        return;
    }
    let mark = mark();
    let log = project().join("trace");
    let command = format!(
        "exec strace -f -qq -o {} -e trace=prctl -e inject=prctl:delay_enter=700000 {} sleep {mark}",
        log.display(),
        prefix_text()
    );
    let mut strace = shell(&command).spawn().unwrap();
    let launcher = || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", strace.id())).unwrap_or_default();
    let children = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let (mut supervisor, mut init) = (String::new(), String::new());
    wait_until("pid 1 of the box", 10.0, || {
        supervisor = launcher().trim().to_owned();
        init = children(&supervisor).trim().to_owned();
        !init.is_empty()
    });
    agentbox::sys::kill(supervisor.parse().unwrap(), libc::SIGKILL).unwrap();
    strace.wait().unwrap();
    assert_eq!(alive(&mark), Vec::<i32>::new());
    // It had not been bound yet: the one call that it made came back after that death, and then it ended itself.
    let log = std::fs::read_to_string(log).unwrap();
    let lines: Vec<(&str, &str)> = log.lines().filter_map(|line| line.split_once(char::is_whitespace)).collect();
    let death = lines.iter().position(|(pid, what)| *pid == supervisor && what.contains("killed by SIGKILL"));
    let bound = lines.iter().position(|(pid, what)| *pid == init && what.ends_with("= 0 (DELAYED)"));
    assert!(death.is_some() && death < bound, "{log}");
    let calls = lines.iter().filter(|(pid, what)| *pid == init && what.trim_start().starts_with("prctl(")).count();
    assert!(calls == 1 && log.contains("prctl(PR_SET_PDEATHSIG, SIGKILL"), "{log}");
}

/// Ctrl-Z before the command is executed, which strace holds back: pid 1 waits for that, and could tell nobody of a stop.
#[test]
fn a_stop_that_comes_before_exec_waits_for_it() {
    if !has("strace") {
        return;
    }
    let command = format!(
        "exec strace -f -qq -o /dev/null -e trace=seccomp -e inject=seccomp:delay_enter=700000 {} echo 'went on'",
        // Where it fails, the box ends by itself.
        prefix_with(&["--limit", "time=15s"]).join(" ")
    );
    let strace = shell(&command).stdout(Stdio::piped()).spawn().unwrap();
    let child = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let stat = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut pid = 0;
    // Its group's number is its own once it leads one.
    wait_until("the command's process", 10.0, || {
        let down = |pid: String| child(pid.trim());
        pid = down(down(down(strace.id().to_string()))).trim().parse().unwrap_or(0);
        pid > 0 && agentbox::sys::kill(-pid, libc::SIGTSTP).is_ok()
    });
    assert!(stat(pid).contains("(agentbox-init)"), "not executed yet: {}", stat(pid));
    wait_until("a command that is stopped", 10.0, || {
        let stat = stat(pid);
        stat.contains("(echo) T") || stat.contains("(echo) t")
    });
    agentbox::sys::kill(-pid, libc::SIGCONT).unwrap();
    let output = strace.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"went on\n".to_vec()));
}

/// The command looks for what its caller and pid 1 have left open.
#[test]
fn descriptors_of_the_caller_and_of_pid_1_are_not_the_commands() {
    let secret = file("../secret", "SECRET\n");
    let look = file(
        "look.py",
        "import os\nprint(sorted(f for f in map(int,os.listdir('/proc/self/fd')) if os.path.exists(f'/proc/self/fd/{f}')))
for n in (7,2048):
  try: print(os.read(n,6) if n==7 else os.fchdir(n))
  except OSError as e: print(e.errno)",
    );
    let given = format!("ulimit -n 4096; exec 7<{secret} 2048</;");
    let run = |options: &[&str]| sh(&format!("{given} {} /usr/bin/python3 {look}", prefix_with(options).join(" ")));
    assert_eq!(run(&[]), "[0, 1, 2]\n9\n9\n");
    assert_eq!(run(&["--fd", "7"]), "[0, 1, 2, 7]\nb'SECRET'\n9\n");
}

/// Field case: the caller's other processes.
#[test]
fn other_processes_are_neither_seen_nor_signalled() {
    let mut other = shell("exec sleep 60").env("TOK", "abc").spawn().unwrap();
    let pid = other.id();
    let script =
        format!("trap '' TERM; kill -TERM -1; kill -KILL {pid}; cat /proc/{pid}/environ; ls -d /proc/[0-9]* | wc -l");
    let output = agentbox(&["sh", "-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.trim().parse::<u32>().is_ok_and(|count| count < 6), "{text}");
    assert_eq!(other.try_wait().unwrap(), None);
    other.kill().unwrap();
    other.wait().unwrap();
}

/// A writer of a program file that is being executed is refused by the kernel; pid 1 is not even to be opened.
#[test]
fn the_launchers_program_file_is_out_of_reach() {
    let output = agentbox(&["sh", "-c", "exec 9>/proc/1/exe"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("Permission denied"), "{errors}");
}
