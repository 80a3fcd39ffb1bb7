//! A directory of its own for each test, and the ways to run something in it.

use super::Bin;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The first part of the name of every place, for whoever looks for leftovers.
pub const PREFIX: &str = "agentbox-it.";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TIMEOUT: Duration = Duration::from_secs(120);

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit status, or 128+n for a signal.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
    /// The run was killed for taking too long.
    pub timed_out: bool,
    /// The session that the run was started in, which is the process id of its first process.
    pub session: i32,
}

impl Output {
    /// Status 0, or a panic that shows everything.
    #[track_caller]
    pub fn ok(&self) -> &Output {
        self.status_is(0)
    }

    /// This exit status, or a panic that shows everything.
    #[track_caller]
    pub fn status_is(&self, status: i32) -> &Output {
        assert!(!self.timed_out, "timed out: {self}");
        assert_eq!(self.status, status, "{self}");
        self
    }

    /// Standard output without its last line feed.
    pub fn out(&self) -> &str {
        self.stdout.strip_suffix('\n').unwrap_or(&self.stdout)
    }

    /// Standard output is exactly this, but for a last line feed.
    #[track_caller]
    pub fn out_is(&self, expected: &str) -> &Output {
        assert_eq!(self.out(), expected, "{self}");
        self
    }

    #[track_caller]
    pub fn out_has(&self, part: &str) -> &Output {
        assert!(self.stdout.contains(part), "{part:?} is not on stdout: {self}");
        self
    }

    #[track_caller]
    pub fn err_has(&self, part: &str) -> &Output {
        assert!(self.stderr.contains(part), "{part:?} is not on stderr: {self}");
        self
    }

    #[track_caller]
    pub fn err_lacks(&self, part: &str) -> &Output {
        assert!(!self.stderr.contains(part), "{part:?} is on stderr: {self}");
        self
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status {}\n-- stdout\n{}\n-- stderr\n{}\n--", self.status, self.stdout, self.stderr)
    }
}

/// `T`, a fresh directory below /var/tmp (the box has a /tmp of its own) that holds `p` (the project and working
/// directory), `ref`, `home`, `out` and `bin` (with a copy of the probe). Removed when dropped.
pub struct Place {
    dir: PathBuf,
    env: Vec<(String, String)>,
    timeout: Duration,
}

impl Place {
    pub fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{PREFIX}{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = Path::new("/var/tmp").join(name);
        std::fs::create_dir(&dir).expect("a fresh directory below /var/tmp");
        for sub in ["p", "ref", "home", "out", "bin"] {
            std::fs::create_dir(dir.join(sub)).expect("a directory of the place");
        }
        let place = Place { dir, env: Vec::new(), timeout: TIMEOUT };
        std::fs::copy(Bin::probe(), place.path("bin/probe")).expect("the probe is copied");
        // A process that another test forked meanwhile holds the copy open for writing until it executes: busy till then.
        while let Err(err) = Command::new(place.path("bin/probe")).arg("ok").stdout(Stdio::null()).status() {
            assert_eq!(err.raw_os_error(), Some(26), "the probe starts: {err}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        place
    }

    /// T itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `T/rel`.
    pub fn path(&self, rel: impl AsRef<Path>) -> PathBuf {
        self.dir.join(rel)
    }

    /// `T/rel` as text, for a command line.
    pub fn text(&self, rel: impl AsRef<Path>) -> String {
        self.path(rel).into_os_string().into_string().expect("places have plain names")
    }

    /// Writes `T/rel`, making the directories on the way to it.
    pub fn write(&self, rel: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(rel);
        std::fs::create_dir_all(path.parent().expect("a file has a parent")).expect("directories of the place");
        std::fs::write(&path, content).expect("a file of the place");
        path
    }

    /// Makes the directory `T/rel` and those on the way to it.
    pub fn mkdir(&self, rel: impl AsRef<Path>) -> PathBuf {
        let path = self.path(rel);
        std::fs::create_dir_all(&path).expect("a directory of the place");
        path
    }

    /// Makes the symbolic link `T/rel` to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, rel: impl AsRef<Path>) -> PathBuf {
        let path = self.path(rel);
        std::os::unix::fs::symlink(target, &path).expect("a symbolic link of the place");
        path
    }

    /// The content of `T/rel`, which must be there.
    #[track_caller]
    pub fn read(&self, rel: impl AsRef<Path>) -> String {
        let path = self.path(rel);
        let bytes = std::fs::read(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether the name `T/rel` is there, links not followed.
    pub fn has(&self, rel: impl AsRef<Path>) -> bool {
        self.path(rel).symlink_metadata().is_ok()
    }

    /// Every name below `T/rel` with its kind, mode, size, times and content: equal before and after means that
    /// nothing was touched.
    pub fn fingerprint(&self, rel: impl AsRef<Path>) -> String {
        let script = r#"cd "$1" && find . -printf '%P %y %m %s %T@ %C@ %l\n' | sort && \
            find . -type f -exec cksum {} + 2>/dev/null | sort"#;
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash"]).arg(self.path(rel));
        String::from_utf8_lossy(&command.output().expect("bash runs").stdout).into_owned()
    }

    /// One more variable in the environment of everything that this place runs.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Place {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Another time limit than the two minutes after which a run is killed.
    pub fn timeout(mut self, timeout: Duration) -> Place {
        self.timeout = timeout;
        self
    }

    /// A command with the place's environment and working directory, for tests that need more than [`Place::sh`].
    /// It becomes the leader of a session of its own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let agentbox = Bin::agentbox();
        let beside = agentbox.parent().expect("agentbox lies in a directory").display().to_string();
        let mut command = Command::new(program);
        command
            .current_dir(self.path("p"))
            .env_clear()
            .env("PATH", format!("{beside}:{PATH}"))
            .env("HOME", self.path("home"))
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .env("T", &self.dir)
            .env("AGENTBOX", &agentbox)
            .env("AB", format!("{} run --live", agentbox.display()))
            .env("PROBE", self.path("bin/probe"))
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        let lead = || nix::unistd::setsid().map(drop).map_err(std::io::Error::from);
        // SAFETY: setsid is async-signal-safe and touches no memory of the parent.
        #[allow(unsafe_code, reason = "std has no safe way to start a session")]
        unsafe {
            command.pre_exec(lead);
        }
        command
    }

    /// Runs `bash -c script` in `T/p`.
    pub fn sh(&self, script: &str) -> Output {
        let mut command = self.command("bash");
        command.args(["-c", script]);
        self.finish(command, b"")
    }

    /// The same with something on standard input.
    pub fn sh_with_input(&self, script: &str, input: &[u8]) -> Output {
        let mut command = self.command("bash");
        command.args(["-c", script]);
        self.finish(command, input)
    }

    /// Runs agentbox with these arguments.
    pub fn agentbox<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        let mut command = self.command(Bin::agentbox());
        command.args(args);
        self.finish(command, b"")
    }

    /// `agentbox run POLICY -- COMMAND`.
    pub fn run(&self, policy: &[&str], command: &[&str]) -> Output {
        self.agentbox(&[&["run"], policy, &["--"], command].concat())
    }

    /// `agentbox run --live POLICY -- COMMAND`.
    pub fn live(&self, policy: &[&str], command: &[&str]) -> Output {
        self.run(&[&["--live"], policy].concat(), command)
    }

    /// `agentbox run --dry-run POLICY -- COMMAND`.
    pub fn dry(&self, policy: &[&str], command: &[&str]) -> Output {
        self.run(&[&["--dry-run"], policy].concat(), command)
    }

    /// Runs the probe outside the box: the positive twin.
    pub fn bare(&self, args: &[&str]) -> Output {
        let mut command = self.command(self.path("bin/probe"));
        command.args(args);
        self.finish(command, b"")
    }

    /// Runs the probe in a live box that has `T/p` writable and `T/bin` readable, and what `policy` adds.
    pub fn boxed(&self, policy: &[&str], args: &[&str]) -> Output {
        self.boxed_in("--live", policy, args)
    }

    /// The same in another mode.
    pub fn boxed_in(&self, mode: &str, policy: &[&str], args: &[&str]) -> Output {
        let (p, bin, probe) = (self.text("p"), self.text("bin"), self.text("bin/probe"));
        let roots = [mode, "--rw", &p, "--ro", &bin];
        self.run(&[&roots, policy].concat(), &[&[probe.as_str()], args].concat())
    }

    /// Starts the command, feeds it, and waits for it no longer than the time limit; then its process group ends.
    pub fn finish(&self, mut command: Command, input: &[u8]) -> Output {
        let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|err| panic!("cannot start {command:?}: {err}"));
        let session = i32::try_from(child.id()).expect("a process id is positive");
        if let Some(mut pipe) = child.stdin.take() {
            let input = input.to_vec();
            std::thread::spawn(move || {
                pipe.write_all(&input).ok(); // the command may end without reading all of it
            });
        }
        let stdout = collect(child.stdout.take().expect("stdout is piped"));
        let stderr = collect(child.stderr.take().expect("stderr is piped"));
        let deadline = Instant::now() + self.timeout;
        let mut timed_out = false;
        let mut pause = Duration::from_micros(500);
        let status = loop {
            match child.try_wait().expect("the child can be waited for") {
                Some(status) => break status,
                None if Instant::now() > deadline && !timed_out => {
                    timed_out = true;
                    kill_group(session);
                }
                None => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(10));
                }
            }
        };
        let status = status.code().unwrap_or_else(|| 128 + status.signal().expect("ended by a signal"));
        let limit = Duration::from_secs(10);
        let (out, err) = (stdout.recv_timeout(limit), stderr.recv_timeout(limit));
        if out.is_err() || err.is_err() {
            kill_group(session);
        }
        Output {
            status,
            stdout: out.unwrap_or_else(|_| "(standard output was held open after the end)".to_owned()),
            stderr: err.unwrap_or_else(|_| "(standard error was held open after the end)".to_owned()),
            timed_out,
            session,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::env::var_os("AGENTBOX_TEST_KEEP").is_some() {
            return;
        }
        open_up(&self.dir);
        if let Err(err) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("{} stays: {err}", self.dir.display());
        }
    }
}

/// Gives the owner every right on each directory, so that it can be emptied: work directories of overlays have mode 000.
fn open_up(dir: &Path) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).ok(); // removal names what stays
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).ok(); // what was read so far counts
        sender.send(String::from_utf8_lossy(&bytes).into_owned()).ok(); // nobody may wait any more
    });
    receiver
}

fn kill_group(leader: i32) {
    let group = nix::unistd::Pid::from_raw(leader);
    nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).ok(); // it may be gone already
}

/// The bytes of a path, for comparing with what a program printed.
pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
