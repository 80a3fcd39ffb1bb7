//! What the tests of running processes share: the launcher, a pseudo terminal, and a look at who is alive.
#![allow(dead_code, reason = "each test crate uses its own part")]
#![allow(clippy::unwrap_used, reason = "outside of a test function, but a test all the same")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A project and a HOME for the test of this thread, gone when it ends.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("agentbox-process-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let place = std::fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        std::fs::create_dir_all(place.join("project")).unwrap();
        std::fs::create_dir(place.join("home")).unwrap();
        Place(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

thread_local! {
    static PLACE: Place = Place::new();
}

/// The writable root of this test's boxes, and the working directory of what it starts.
pub fn project() -> PathBuf {
    PLACE.with(|place| place.0.join("project"))
}

fn home() -> PathBuf {
    PLACE.with(|place| place.0.join("home"))
}

/// Writes a file into the project: its path.
pub fn file(name: &str, content: &str) -> String {
    let path = project().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// The program under test.
pub fn program() -> String {
    std::env::var("AGENTBOX_TEST_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_agentbox").to_owned())
}

/// The words before the command line that is to run in a box. The one place that knows which options make it.
pub fn prefix() -> Vec<String> {
    prefix_with(&[])
}

/// The same with further options.
pub fn prefix_with(options: &[&str]) -> Vec<String> {
    let program = program();
    let project = project().display().to_string();
    let words = [&[&program, "run", "--live", "-q", "--rw", &project], options, &["--"]].concat();
    words.into_iter().map(String::from).collect()
}

/// The same as shell text.
pub fn prefix_text() -> String {
    prefix().join(" ")
}

pub fn agentbox(command: &[&str]) -> Command {
    start(&prefix(), command)
}

pub fn start(prefix: &[String], command: &[&str]) -> Command {
    let mut launcher = at_home(&prefix[0]);
    launcher.args(&prefix[1..]).args(command);
    launcher
}

/// A shell outside of the box.
pub fn shell(script: &str) -> Command {
    let mut shell = at_home("bash");
    shell.args(["-c", script]);
    shell
}

/// A command in the project, with the HOME of this test.
fn at_home(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(project()).env("HOME", home());
    command
}

/// Whether a program is there; else the test is skipped, which is said.
#[must_use]
pub fn has(program: &str) -> bool {
    let found = ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
    if !found {
        let line = format!("SKIP {}: no {program}\n", std::thread::current().name().unwrap_or("?"));
        assert!(std::env::var_os("AGENTBOX_TEST_REQUIRE").is_none_or(|what| what != "all"), "{line}");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    found
}

/// A duration for `sleep` that no other process of this machine has: a mark by which to find what was left alive.
pub fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("777.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The processes of the host that have `word` among their arguments.
pub fn alive(word: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if line.split(|&byte| byte == 0).any(|arg| arg == word.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Waits until `done`, or fails after `seconds`.
pub fn wait_until(what: &str, seconds: f64, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while !done() {
        assert!(Instant::now() < end, "not within {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A pseudo terminal with a session of its own on it.
pub struct Pty {
    master: File,
    slave: OwnedFd,
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    /// Up to where `expect` has read.
    seen: usize,
}

impl Pty {
    /// Runs a command line as the session's leader, on a terminal of 24 lines and 80 columns.
    pub fn start(command: &[&str]) -> Pty {
        let size = nix::pty::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = nix::pty::openpty(&size, None).unwrap();
        for fd in [&pty.master, &pty.slave] {
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).unwrap();
        }
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = at_home("setsid")
            .arg("--ctty")
            .args(command)
            .envs([("TERM", "dumb"), ("PS1", "READY> "), ("HISTFILE", "")])
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let master = File::from(pty.master);
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (master.try_clone().unwrap(), Arc::clone(&output));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Once nobody listens it has to let the master go, or dropping the terminal would not hang it up.
            while Arc::strong_count(&sink) > 1 {
                let mut ready = [PollFd::new(&reader, PollFlags::IN)];
                let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                match poll(&mut ready, Some(&timeout)) {
                    Ok(0) => {}
                    Ok(_) => match reader.read(&mut buffer) {
                        Ok(got @ 1..) => sink.lock().unwrap().extend(&buffer[..got]),
                        Ok(0) | Err(_) => break,
                    },
                    Err(_) => break,
                }
            }
        });
        Pty { master, slave: pty.slave, child, output, seen: 0 }
    }

    /// An interactive shell with job control, at its prompt.
    pub fn shell() -> Pty {
        let mut pty = Pty::start(&["bash", "--norc", "--noprofile", "-i"]);
        pty.expect("READY> ");
        pty
    }

    pub fn send(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for `text` in what comes after the last match, and returns what came before it.
    pub fn expect(&mut self, text: &str) -> String {
        self.expect_within(text, 10.0)
    }

    pub fn expect_within(&mut self, text: &str, seconds: f64) -> String {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        loop {
            let output = self.output.lock().unwrap();
            let new = &output[self.seen..];
            if let Some(at) = new.windows(text.len()).position(|window| window == text.as_bytes()) {
                let before = String::from_utf8_lossy(&new[..at]).into_owned();
                self.seen += at + text.len();
                return before;
            }
            assert!(
                Instant::now() < end,
                "{text:?} did not come after {:?} but {:?}",
                String::from_utf8_lossy(&output[..self.seen]),
                String::from_utf8_lossy(new)
            );
            drop(output);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All output that was not yet read, after a pause in which more could have come.
    pub fn rest(&mut self) -> String {
        std::thread::sleep(Duration::from_millis(300));
        let output = self.output.lock().unwrap();
        let rest = String::from_utf8_lossy(&output[self.seen..]).into_owned();
        self.seen = output.len();
        rest
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.master, size).unwrap();
    }

    pub fn state(&self) -> nix::sys::termios::Termios {
        nix::sys::termios::tcgetattr(&self.slave).unwrap()
    }

    /// Waits for the end of the session's leader.
    pub fn finish(mut self) -> i32 {
        let mut status = None;
        wait_until("the end of the session", 10.0, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // The hangup of the terminal ends the rest of the session. Already waited for after `finish`.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A screen of tmux, 80 by 24, with a shell whose prompt is `OUT> `. The server is this one's alone.
pub struct Tmux(());

impl Tmux {
    pub fn start() -> Tmux {
        let screen = Tmux(());
        let shell = "env PS1='OUT> ' HISTFILE= bash --norc --noprofile -i";
        screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", shell]);
        screen.shows("OUT>");
        screen
    }

    fn command(words: &[&str]) -> Command {
        let mut tmux = at_home("tmux");
        // Relative to the project: the name of a socket must be short.
        tmux.args(["-S", "../home/tmux"]).args(words).env("TERM", "xterm").env_remove("TMUX");
        // Not the one of passwd, which for a service's account may let nobody in.
        tmux.env("SHELL", "/bin/sh").stdin(Stdio::null());
        tmux
    }

    fn tmux(&self, words: &[&str]) -> String {
        let output = Tmux::command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types words and named keys.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "--"], keys].concat());
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// What the screen shows now.
    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    pub fn shows(&self, text: &str) {
        let mut shown = String::new();
        let end = Instant::now() + Duration::from_secs(10);
        while !shown.contains(text) {
            assert!(Instant::now() < end, "{text:?} is not on the screen:\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
            shown = self.text();
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        Tmux::command(&["kill-server"]).stderr(Stdio::null()).status().ok();
    }
}
