//! The command at a terminal: job control, resizing, and the state that is left behind. Each test has a pseudo
//! terminal and a session of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test is alone in its directory, and its environment is its input"
)]

mod support;

use nix::sys::termios::LocalFlags;
use support::{Pty, Tmux, alive, file, has, mark, prefix_text, wait_until};

fn box_line(command: &str) -> String {
    format!("{} {command}\n", prefix_text())
}

#[test]
fn a_resize_reaches_the_program() {
    let script = "import signal,os,time
s=lambda: '%dx%d'%(os.get_terminal_size(0).lines,os.get_terminal_size(0).columns)
signal.signal(signal.SIGWINCH,lambda *a:os.write(1,f'WINCH {s()}'.encode())); os.write(1,f'start {s()}'.encode())
for i in range(20): time.sleep(.1)";
    for redirection in ["", " 2>/dev/null"] {
        let path = file("winch.py", script);
        let mut pty = Pty::shell();
        pty.send(&box_line(&format!("/usr/bin/python3 {path}{redirection}")));
        pty.expect("start 24x80");
        pty.resize(50, 120);
        pty.expect_within("WINCH 50x120", 1.0);
        pty.expect("READY> ");
    }
}

/// In the foreground the terminal tells the command alone; in a pipeline it tells the launcher, which passes it on.
#[test]
fn ctrl_c_is_seen_once_and_does_not_end_the_launcher() {
    for pipe in ["", " | cat"] {
        let mut pty = Pty::shell();
        pty.send("trap : INT\n");
        pty.expect("READY> ");
        let script = "trap \"echo got-int\" INT; echo go; for i in 1 2 3 4 5 6 7 8; do sleep .1; done; echo end";
        let pipe = if pipe.is_empty() { String::new() } else { " | (trap '' INT; cat)".to_owned() };
        pty.send(&format!("{} sh -c '{script}'{pipe}; echo status $?\n", prefix_text()));
        pty.expect("go\r\n");
        pty.send("\x03");
        let seen = pty.expect("status 0");
        assert_eq!(seen.matches("got-int").count(), 1, "{seen}");
        assert!(seen.contains("end"), "{seen}");
    }
}

fn is_sleep(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_catch_it() {
    let mark = mark();
    let mut pty = Pty::shell();
    pty.send(&box_line(&format!("sh -c 'echo go; sleep {mark}; echo no'")));
    pty.expect("go\r\n");
    // Not earlier: dash, also outside of a box, loses an interrupt that comes while it forks.
    wait_until("the marked process", 5.0, || alive(&mark).iter().any(|pid| is_sleep(*pid)));
    pty.send("\x03");
    pty.expect("READY> ");
    pty.send("echo status $?\n");
    pty.expect("status 130");
    assert_eq!(alive(&mark), Vec::<i32>::new());
}

#[test]
fn stop_background_and_foreground_work_as_for_any_job() {
    let mut pty = Pty::shell();
    pty.send(&box_line("sh -c 'echo go; read x; echo got-$x; read y; echo got-$y'"));
    pty.expect("go\r\n");
    pty.send("\x1a");
    pty.expect("Stopped");
    pty.expect("READY> ");
    pty.send("jobs\n");
    pty.expect("Stopped");
    pty.expect("READY> ");
    // In the background it is stopped again, by its read.
    pty.send("bg\n");
    pty.expect("READY> ");
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("jobs\n");
    pty.expect("Stopped");
    pty.expect("READY> ");
    pty.send("fg\n");
    pty.expect("read x");
    pty.send("one\n");
    pty.expect("got-one");
    pty.send("\x1a");
    pty.expect("READY> ");
    pty.send("fg %1\n");
    pty.expect("read y");
    std::thread::sleep(std::time::Duration::from_millis(200));
    pty.send("two\n");
    pty.expect("got-two");
    pty.expect("READY> ");
    pty.send("echo status $?\n");
    pty.expect("status 0");
}

#[test]
fn a_job_in_the_background_runs_and_comes_to_the_foreground_while_it_runs() {
    let mut pty = Pty::shell();
    pty.send(&format!("{} sh -c 'sleep .6; read x; echo got-$x' &\n", prefix_text()));
    pty.expect("READY> ");
    pty.send("fg\n");
    pty.expect("echo got");
    std::thread::sleep(std::time::Duration::from_millis(900));
    pty.send("late\n");
    pty.expect("got-late");
    pty.expect("READY> ");
}

#[test]
fn a_pipeline_shares_the_terminal() {
    let mut pty = Pty::shell();
    pty.send(&format!("{} seq 3 | cat; echo status $?\n", prefix_text()));
    pty.expect("1\r\n2\r\n3\r\nstatus 0");
    // A box that reads from the terminal gets it when it asks.
    pty.send(&format!("{} cat | sed s/^/got-/\n", prefix_text()));
    std::thread::sleep(std::time::Duration::from_millis(400));
    pty.send("one\n");
    pty.send("\x04");
    pty.expect("got-one");
    pty.expect("READY> ");
    // And one that stops in a pipeline stops all of it.
    pty.send(&format!("{} sh -c 'read x; echo $x' | sed s/^/got-/\n", prefix_text()));
    std::thread::sleep(std::time::Duration::from_millis(400));
    pty.send("\x1a");
    pty.expect("Stopped");
    pty.expect("READY> ");
    pty.send("fg\n");
    std::thread::sleep(std::time::Duration::from_millis(400));
    pty.send("two\n");
    pty.expect("got-two");
    pty.expect("READY> ");
}

/// A pager that reads keys while the box only writes: the box must not touch the terminal.
#[test]
fn another_member_of_the_job_keeps_its_raw_mode() {
    let mut pty = Pty::shell();
    pty.send(&format!("{} seq 3 | (stty raw -echo </dev/tty; sleep .5; stty -a </dev/tty | grep -c -- -icanon; stty sane </dev/tty)\n", prefix_text()));
    pty.expect("1");
    pty.expect("READY> ");
}

#[test]
fn the_terminal_is_as_before_however_the_command_ended() {
    for end in ["exit 0", "kill -9 $$", "kill -9 -- -$$"] {
        let mut pty = Pty::shell();
        pty.send("stty -a | grep -c icanon\n");
        pty.expect("READY> ");
        // Not bash but sh looks at the state afterwards: bash puts its own back when a job is killed.
        pty.send(&format!(
            "sh -c '{} sh -c \"stty raw -echo; {}\"; stty -a'\n",
            prefix_text(),
            end.replace('$', "\\\\\\$")
        ));
        let state = pty.expect("READY> ");
        assert!(state.contains(" icanon") && state.contains(" echo "), "{end}: {state}");
    }
}

#[test]
fn a_stopped_raw_mode_program_leaves_and_gets_back_its_state() {
    let script = "import termios,tty,os,signal,sys
old=termios.tcgetattr(0); tty.setraw(0); os.write(1,b'raw\\r\\n')
while True:
    c=os.read(0,1)
    if c==b'q': break
    if c==b'z': os.kill(0,signal.SIGTSTP); os.write(1,b'back %d\\r\\n'%bool(termios.tcgetattr(0)[3]&termios.ICANON))
    if c==b'k': os.kill(os.getpid(),9)";
    let path = file("raw.py", script);
    // From a shell without job control, so that nobody but the launcher restores the state.
    let mut pty = Pty::shell();
    pty.send(&format!("sh -c '{} /usr/bin/python3 {path}; stty -a | tr \" \" \"\\n\" | grep icanon'\n", prefix_text()));
    pty.expect("raw\r\n");
    pty.send("z");
    pty.expect("Stopped");
    pty.expect("READY> ");
    pty.send("stty -a | tr ' ' '\\n' | grep icanon\n");
    pty.expect("\nicanon");
    pty.expect("READY> ");
    pty.send("fg\n");
    pty.expect("back 0");
    pty.send("k");
    pty.expect("\nicanon");
    pty.expect("READY> ");
}

#[test]
fn a_killed_launcher_leaves_a_working_prompt_and_no_process() {
    let mark = mark();
    let mut pty = Pty::shell();
    pty.send(&box_line(&format!("sh -c 'stty -echo; echo go; sleep {mark} & setsid sleep {mark} & wait'")));
    pty.expect("go\r\n");
    let launcher = launcher_of(&mark);
    agentbox::sys::kill(launcher, libc::SIGKILL).unwrap();
    pty.expect("READY> ");
    wait_until("no process", 1.5, || alive(&mark).is_empty());
    pty.send("echo works $((6*7))\n");
    pty.expect("works 42");
    assert!(pty.state().local_flags.contains(LocalFlags::ISIG));
}

/// The parent of the box of a marked process.
fn launcher_of(mark: &str) -> i32 {
    let mut pid = 0;
    wait_until("the marked process", 5.0, || {
        pid = *alive(mark).first().unwrap_or(&0);
        pid != 0
    });
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        // Two numbers or more: still inside a pid namespace below the host's.
        if field("NSpid:").split_whitespace().count()
            == std::fs::read_to_string("/proc/self/status")
                .unwrap()
                .lines()
                .find(|line| line.starts_with("NSpid:"))
                .unwrap()
                .split_whitespace()
                .count()
        {
            return pid;
        }
        pid = field("PPid:").split_whitespace().nth(1).unwrap().parse().unwrap();
    }
}

#[test]
fn a_shell_inside_has_job_control_of_its_own() {
    let mut pty = Pty::shell();
    pty.send(&box_line("env PS1='INNER> ' bash --norc --noprofile -i"));
    pty.expect("INNER> ");
    pty.send("sleep 30\n");
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("\x1a");
    pty.expect("Stopped");
    pty.expect("INNER> ");
    pty.send("kill %1; cat\n");
    std::thread::sleep(std::time::Duration::from_millis(200));
    pty.send("\x03");
    pty.expect("INNER> ");
    // The inner shell stops itself: the outer one has the terminal, and gives it back.
    pty.send("suspend\n");
    pty.expect("Stopped");
    pty.expect("READY> ");
    pty.send("fg\n");
    pty.expect("INNER> ");
    pty.send("echo in-$((20+1)); exit 3\n");
    pty.expect("in-21");
    pty.expect("READY> ");
    pty.send("echo status $?\n");
    pty.expect("status 3");
}

/// The script's shell does not look for stopped children: it has to be stopped with them.
#[test]
fn ctrl_z_stops_a_script_around_the_launcher_too() {
    let mut pty = Pty::shell();
    pty.send(&format!("sh -c '{} sh -c \"echo go; read x; echo got-\\$x\"; echo after'\n", prefix_text()));
    pty.expect("go\r\n");
    pty.send("\x1a");
    pty.expect("Stopped");
    pty.expect("READY> ");
    pty.send("fg\n");
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("word\n");
    pty.expect("got-word");
    pty.expect("after");
    pty.expect("READY> ");
}

/// Nobody is there to continue a launcher that leads the session itself.
#[test]
fn ctrl_z_is_without_effect_where_no_shell_waits() {
    let command = [support::prefix(), ["sh", "-c", "echo go; read x; echo got-$x"].map(String::from).to_vec()].concat();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut pty = Pty::start(&command);
    pty.expect("go\r\n");
    pty.send("\x1a");
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("word\n");
    pty.expect("got-word");
    assert_eq!(pty.finish(), 0);
}

#[test]
fn a_terminal_that_hangs_up_ends_the_box() {
    let mark = mark();
    let mut pty = Pty::shell();
    pty.send(&box_line(&format!("sh -c 'echo go; sleep {mark} & wait'")));
    pty.expect("go\r\n");
    wait_until("the marked process", 5.0, || !alive(&mark).is_empty());
    drop(pty);
    wait_until("no process", 1.5, || alive(&mark).is_empty());
}

#[test]
fn the_command_starts_in_the_foreground_unless_in_a_pipeline() {
    let mut pty = Pty::shell();
    let script = "'import os,sys; print(\"own\", os.tcgetpgrp(0)==os.getpgrp())'";
    pty.send(&format!("{} /usr/bin/python3 -c {script}\n", prefix_text()));
    pty.expect("own True");
    pty.expect("READY> ");
    pty.send(&format!("{} /usr/bin/python3 -c {script} | cat\n", prefix_text()));
    pty.expect("own False");
    pty.expect("READY> ");
}

/// The box has asked for the terminal and got it; then another member of the pipeline asks.
#[test]
fn a_pager_gets_the_terminal_from_the_box() {
    let mut pty = Pty::shell();
    let pager = "sh -c 'read line; echo pager-has-$line; read key </dev/tty; echo pager-key-$key; cat'";
    pty.send(&format!("{} sh -c 'read x; echo $x; sleep 1; echo last' | {pager}\n", prefix_text()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("one\n");
    pty.expect("pager-has-one");
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("two\n");
    pty.expect("pager-key-two");
    pty.expect("last");
    pty.expect("READY> ");
}

/// A report of a stop that was undone in the meantime must not stop the launcher.
#[test]
fn stops_and_continues_in_quick_succession_leave_all_running() {
    let mut pty = Pty::shell();
    pty.send(&format!("{} sh -c 'for i in 1 2 3 4 5 6 7 8; do sleep .05; done; echo fin-$i' & p=$!\n", prefix_text()));
    pty.expect("READY> ");
    pty.send("for i in $(seq 150); do kill -TSTP $p; kill -CONT $p; done; fg; echo status $?\n");
    pty.expect("fin-8");
    pty.expect("status 0");
}

/// Field case: programs that ask for their terminal by name (`tty`, gpg's pinentry, `stty -F`).
#[test]
fn the_terminal_has_a_name_inside() {
    let mut pty = Pty::shell();
    let script = "'import os; name=os.ttyname(0); fd=os.open(name, os.O_RDWR|os.O_NOCTTY)
print(\"size\", os.get_terminal_size(fd).lines, os.fstat(fd).st_rdev==os.fstat(0).st_rdev, \"end\")'";
    pty.send(&box_line("sh -c 'tty; tty </dev/tty; stty -F $(tty) size'"));
    pty.expect("/dev/console\r\n/dev/tty\r\n24 80\r\n");
    for redirection in ["", " | cat", " 2>/dev/null"] {
        pty.expect("READY> ");
        pty.send(&format!("{} /usr/bin/python3 -c {script}{redirection}\n", prefix_text()));
        pty.expect("size 24 True end\r\n");
    }
    // The twin: a terminal that is not the standard descriptors' has no name to be found.
    pty.expect("READY> ");
    pty.send(&format!("{} tty </dev/null; echo status $?\n", prefix_text()));
    pty.expect("not a tty\r\nstatus 1");
}

/// A real screen: tmux, with a real editor in it.
#[test]
fn an_editor_under_tmux_stops_resizes_and_comes_back() {
    if !has("tmux") || !has("vi") {
        return;
    }
    let screen = Tmux::start();
    screen.keys(&[&format!("clear; stty -a >before; {} vi -u NONE note", prefix_text()), "Enter"]);
    screen.shows("~");
    screen.keys(&["ihello", "Escape", "C-z"]);
    screen.shows("Stopped");
    screen.keys(&["clear; stty -a >stopped; cmp before stopped && echo the-$((1+1))-same", "Enter"]);
    screen.shows("the-2-same");
    screen.keys(&["clear; fg", "Enter"]);
    screen.shows("~");
    // 9 lines: the text, 7 of the file's end, the line for commands.
    screen.resize(60, 9);
    wait_until("a screen of 9 lines", 5.0, || screen.text().lines().filter(|line| line.starts_with('~')).count() == 7);
    screen.keys(&[":wq", "Enter"]);
    // Keys that come earlier are still the editor's.
    screen.shows("OUT>");
    screen.keys(&["clear; cat note; stty -a | sed 's/rows.*columns [0-9]*//' >after; stty size", "Enter"]);
    screen.shows("hello\n9 60");
    let state = |name: &str| std::fs::read_to_string(support::project().join(name)).unwrap();
    let (before, after) = (state("before"), state("after"));
    assert_eq!(before.split_once('\n').unwrap().1, after.split_once('\n').unwrap().1);
}

#[test]
fn a_shell_under_tmux_has_jobs_and_a_killed_launcher_leaves_the_outer_one() {
    if !has("tmux") {
        return;
    }
    let mark = mark();
    let screen = Tmux::start();
    screen.keys(&[&format!("clear; {} env PS1='IN> ' bash --norc --noprofile -i", prefix_text()), "Enter"]);
    screen.shows("IN>");
    screen.keys(&[&format!("clear; sleep {mark}"), "Enter"]);
    wait_until("the marked process", 5.0, || !alive(&mark).is_empty());
    screen.keys(&["C-z"]);
    screen.shows("Stopped");
    screen.keys(&["clear; bg; jobs", "Enter"]);
    screen.shows("Running");
    screen.keys(&["clear; fg", "Enter"]);
    screen.shows("sleep");
    screen.keys(&["C-c"]);
    wait_until("no marked process", 5.0, || alive(&mark).is_empty());
    screen.keys(&[&format!("clear; sleep {mark} & stty raw -echo; sleep {mark}"), "Enter"]);
    wait_until("both marked processes", 5.0, || alive(&mark).len() == 2);
    agentbox::sys::kill(launcher_of(&mark), libc::SIGKILL).unwrap();
    wait_until("no process", 1.0, || alive(&mark).is_empty());
    screen.shows("OUT>");
    screen.keys(&["clear; echo works-$((6*7)); stty -a | grep -o -e '-*icanon'", "Enter"]);
    screen.shows("works-42\nicanon");
}

/// Pid 1 is killed from outside (the kernel, for want of memory): the launcher tells, and the terminal is as before.
#[test]
fn a_box_killed_as_a_whole_leaves_the_terminal_as_it_was() {
    let mark = mark();
    let mut pty = Pty::shell();
    pty.send(&format!("sh -c '{} sh -c \"stty raw -echo; sleep {mark}\"; echo status-$?; stty -a'\n", prefix_text()));
    wait_until("the marked process", 5.0, || !alive(&mark).is_empty());
    let launcher = launcher_of(&mark);
    let init = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    agentbox::sys::kill(init.trim().parse().unwrap(), libc::SIGKILL).unwrap();
    pty.expect("status-137");
    let state = pty.expect("READY> ");
    assert!(state.contains(" icanon") && state.contains(" echo "), "{state}");
    assert_eq!(alive(&mark), Vec::<i32>::new());
}

/// Field case: a program types for the shell that comes back (TIOCSTI, and with a high bit that a filter may miss).
#[test]
fn nothing_can_be_typed_for_the_outer_shell() {
    let mut pty = Pty::shell();
    let path = file(
        "inject.py",
        "import ctypes\nl=ctypes.CDLL(None,use_errno=True)\nfor r in (0x5412,0x541C,1<<32|0x5412,1<<32|0x541C,0x5423):
 for c in b'echo no\\n': got=l.syscall(16,0,ctypes.c_ulong(r),ctypes.c_char_p(bytes([c])))
 print(got,ctypes.get_errno())",
    );
    pty.send(&box_line(&format!("/usr/bin/python3 {path}")));
    pty.expect(&"-1 1\r\n".repeat(5));
    let before = pty.expect("READY> ");
    let after = pty.rest();
    assert!(before.is_empty() && after.is_empty(), "{before:?} {after:?}");
}

/// The command's input is a pipe and its keys come from /dev/tty: it gets the terminal when it asks.
#[test]
fn a_pager_inside_reads_a_pipe_and_keys() {
    if !has("tmux") || !has("less") {
        return;
    }
    let screen = Tmux::start();
    screen.keys(&[&format!("clear; seq 300 | {} less", prefix_text()), "Enter"]);
    screen.shows("\n23\n:");
    screen.keys(&["G"]);
    screen.shows("300\n(END)");
    screen.keys(&["C-z"]);
    screen.shows("Stopped");
    screen.keys(&["clear; fg", "Enter"]);
    screen.shows("300\n(END)");
    screen.keys(&["q"]);
    screen.shows("OUT>");
    screen.keys(&["clear; echo works-$((6*7))", "Enter"]);
    screen.shows("works-42");
}

#[test]
fn a_shell_inside_whose_output_is_a_pipe_gets_the_terminal() {
    let mut pty = Pty::shell();
    pty.send(&format!("{} env PS1='INNER> ' bash --norc --noprofile -i 2>&1 | cat\n", prefix_text()));
    pty.expect("INNER> ");
    pty.send("sleep 30\n");
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("\x1a");
    pty.expect("Stopped");
    pty.expect("INNER> ");
    pty.send("fg\n");
    pty.expect("sleep 30\r\n");
    std::thread::sleep(std::time::Duration::from_millis(300));
    pty.send("\x03");
    pty.expect("INNER> ");
    pty.send("exit 0\n");
    pty.expect("READY> ");
    pty.send("echo works-$((6*7))\n");
    pty.expect("works-42");
}

/// timeout(1) makes its child a background group, which stops as soon as it reads: it must end all the same.
#[test]
fn a_caller_with_a_time_limit_ends_a_stopped_box() {
    let mark = mark();
    let mut pty = Pty::shell();
    pty.send(&format!("timeout 1 {} sh -c 'sleep {mark} & read x'; echo status-$?\n", prefix_text()));
    let said = pty.expect("status-1");
    assert!(pty.rest().starts_with("24"), "{said}");
    assert_eq!(alive(&mark), Vec::<i32>::new());
}

/// `$(agentbox run ...)`, and one box after the other in a script without job control.
#[test]
fn boxes_one_after_the_other_in_a_script_leave_it_the_terminal() {
    let mut pty = Pty::shell();
    let agentbox = prefix_text();
    let script = file(
        "script.sh",
        &format!(
            "{agentbox} true\nread a\nb=$({agentbox} sh -c 'read b </dev/tty; echo $b')\nread c\n{agentbox} sh -c 'read d; echo inside-$d'\necho $a-$b-$c\n"
        ),
    );
    pty.send(&format!("sh {script}\n"));
    for word in ["one\n", "two\n", "three\n", "four\n"] {
        std::thread::sleep(std::time::Duration::from_millis(500));
        pty.send(word);
    }
    pty.expect("inside-four");
    pty.expect("one-two-three");
    pty.expect("READY> ");
}

/// The terminal hangs up under a shell with jobs of its own.
#[test]
fn a_hangup_ends_a_shell_inside_and_its_jobs() {
    let mark = mark();
    let mut pty = Pty::shell();
    pty.send(&box_line("env PS1='INNER> ' bash --norc --noprofile -i"));
    pty.expect("INNER> ");
    pty.send(&format!("sleep {mark} & nohup sleep {mark} & sleep {mark}\n"));
    wait_until("the marked processes", 5.0, || alive(&mark).len() == 3);
    drop(pty);
    wait_until("no process", 1.5, || alive(&mark).is_empty());
}
