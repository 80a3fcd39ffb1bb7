//! The tier without mounts (`--live --degraded mounts`): Landlock and seccomp alone, where user namespaces are refused and
//! where they are not. Each refusal has its positive twin in the same run or without the box.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops at the first surprise")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use support::{Pty, alive, has, mark, wait_until};

const NO_NAMESPACES: &[&str] =
    &["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"", "--"];
/// For root: whatever the box lets through stays among its own processes and mounts.
const APART: &[&str] = &["unshare", "-mpf", "--mount-proc"];
const ORDINARY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const TIER: &[&str] = &["run", "--live", "--degraded", "mounts"];

/// Who starts it, and where.
#[derive(Debug, Clone, Copy)]
struct Who {
    ordinary: bool,
    wrapper: &'static [&'static str],
}

/// With namespaces and without; from root also as an ordinary user.
fn everyone() -> Vec<Who> {
    if !rustix::process::geteuid().is_root() {
        return vec![Who { ordinary: false, wrapper: &[] }, Who { ordinary: false, wrapper: NO_NAMESPACES }];
    }
    vec![
        Who { ordinary: false, wrapper: APART },
        Who { ordinary: false, wrapper: NO_NAMESPACES },
        Who { ordinary: true, wrapper: &[] },
        Who { ordinary: true, wrapper: NO_NAMESPACES },
    ]
}

struct Place {
    dir: PathBuf,
    who: Who,
}

impl Place {
    fn new(who: Who) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("agentbox-tier-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        let place = Place { dir, who };
        for part in ["", "p", "home", "home/.ssh", "other", "ro", "bin"] {
            place.make_dir(part);
        }
        for (file, content) in [("home/.ssh/id", "key\n"), ("other/f", "other\n"), ("ro/f", "ro\n"), ("p/f", "f\n")] {
            place.write(file, content);
        }
        // By another process: a descriptor of this one, open for writing, would be inherited by what other threads start.
        let copied = Command::new("cp").arg(support::program()).arg(place.dir.join("bin/agentbox")).status().unwrap();
        assert!(copied.success());
        place
    }

    fn own(&self, path: &Path) {
        if self.who.ordinary {
            chown(path, Some(65_534), Some(65_534)).unwrap();
        }
    }

    fn make_dir(&self, name: &str) {
        let path = self.dir.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.own(&path);
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.dir.join(name), content).unwrap();
        self.own(&self.dir.join(name));
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn command(&self, args: &[&str]) -> Command {
        let program = self.path("bin/agentbox");
        let user = if self.who.ordinary { ORDINARY } else { &[] };
        let words = [user, self.who.wrapper, &[program.as_str()], args].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.dir.join("p")).env("HOME", self.path("home")).env("T", &self.dir);
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "PWD"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    fn agentbox(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// A shell script in the tier.
    fn run(&self, flags: &[&str], script: &str) -> Output {
        self.agentbox(&[TIER, flags, &["--env", "T", "--", "sh", "-c", script]].concat())
    }

    fn start(&self, script: &str) -> Started {
        let args = [TIER, &["--", "sh", "-c", script]].concat();
        Started(self.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// What lies where TMPDIR is made.
    fn tmp_dirs(&self) -> Vec<PathBuf> {
        let dir = self.dir.join("home/.local/state/agentbox/tmp");
        fs::read_dir(dir).map_or_else(|_| Vec::new(), |list| list.flatten().map(|entry| entry.path()).collect())
    }
}

/// Gone when the test is, also when it failed.
struct Started(Child);

impl Started {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).ok();
    }
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn only_the_roots_are_there_and_what_was_lost_is_named() {
    for who in everyone() {
        let place = Place::new(who);
        let report = place.path("p/report");
        let ro = place.path("ro");
        let script = "try() { if (\"$@\") >/dev/null 2>&1; then echo yes; else echo no; fi; }
            put() { echo x > \"$1\"; }
            try cat f; try put new; try mkdir d; try mv new d/new; try cat $T/ro/f; try cat /etc/passwd; try ls /usr/bin
            try put $TMPDIR/x; try cat $TMPDIR/x; try put /dev/null; try cat /proc/self/status; echo --
            try put $T/ro/f; try cat $HOME/.ssh/id; try ls $HOME; try cat $T/other/f; try put $T/other/f; try put $HOME/x
            try rm $T/other/f; try ln $T/other/f stolen; try ls /; try ls /tmp; try put /tmp/agentbox-tier-x
            try cat /etc/shadow; try cat /etc/machine-id; try ls /dev; try put /proc/sys/kernel/hostname
            try truncate -s 0 $T/other/f; exit 9";
        let output = place.run(&["--rw", ".", "--ro", &ro, "--report", &report], script);
        let expected = format!("{}--\n{}", "yes\n".repeat(11), "no\n".repeat(16));
        assert_eq!((output.status.code(), out(&output)), (Some(9), expected), "{who:?}: {}", errors(&output));
        let errors = errors(&output);
        let json: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
        let lost = json["lost"].as_array().unwrap();
        for layer in ["mounts", "pid", "ipc", "uts", "cgroup", "network", "user"] {
            assert!(lost.iter().any(|line| line.as_str().unwrap().starts_with(layer)), "{layer}: {lost:?}");
            assert!(errors.contains(&format!("agentbox: lost: {layer}")), "{layer}: {errors}");
        }
        assert_eq!((&json["degraded"][0], &json["status"]), (&Value::from("mounts"), &Value::from(9)));
        assert!(errors.contains("ran without: mounts"), "{errors}");
        assert_eq!(fs::read_to_string(place.dir.join("other/f")).unwrap(), "other\n");
        assert_eq!(place.tmp_dirs(), Vec::<PathBuf>::new());
    }
}

#[test]
fn without_a_network_no_socket_leads_out_and_the_hosts_opens_on_demand() {
    if !has("python3") {
        return;
    }
    for who in everyone() {
        let place = Place::new(who);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stream, datagram) = (place.dir.join("other/s"), place.dir.join("other/d"));
        let _stream = std::os::unix::net::UnixListener::bind(&stream).unwrap();
        let datagrams = std::os::unix::net::UnixDatagram::bind(&datagram).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        for socket in [&stream, &datagram] {
            fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
        }
        place.write(
            "p/t.py",
            &format!(
                "import socket as s, os\n\
                 def t(name, body):\n    try: body(); print(name, 'yes')\n    except OSError as e: print(name, e.errno)\n\
                 o = os.environ['T'] + '/other/'\n\
                 t('tcp', lambda: s.create_connection(('127.0.0.1', {port}), 2))\n\
                 t('udp', lambda: s.socket(s.AF_INET, s.SOCK_DGRAM))\n\
                 t('six', lambda: s.socket(s.AF_INET6, s.SOCK_STREAM))\n\
                 t('netlink', lambda: s.socket(16, s.SOCK_RAW, 0))\n\
                 t('path', lambda: s.socket(s.AF_UNIX).connect(o + 's'))\n\
                 t('datagram', lambda: s.socket(s.AF_UNIX, s.SOCK_DGRAM).sendto(b'x', o + 'd'))\n\
                 t('pair', lambda: s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)[0].sendto(b'x', o + 'd'))\n\
                 p = s.socketpair(s.AF_UNIX, s.SOCK_STREAM)\n\
                 t('stream', lambda: p[0].send(b'x'))\n"
            ),
        );
        // An own network namespace of the wrapper's would have another loopback; these wrappers make none.
        let output = place.run(&[], "python3 t.py");
        let closed = "tcp 1\nudp 1\nsix 1\nnetlink 1\npath 1\ndatagram 1\npair 1\nstream yes\n";
        assert_eq!(out(&output), closed, "{who:?}: {}", errors(&output));
        assert!(datagrams.recv(&mut [0; 8]).is_err());
        let output = place.run(&["--net", "host"], "python3 t.py");
        let opened = out(&output);
        assert!(
            opened.starts_with("tcp yes\nudp yes\nsix yes\nnetlink yes\n"),
            "{who:?}: {opened} {}",
            errors(&output)
        );
        let paths = opened.contains("path yes");
        assert_eq!(errors(&output).contains("every unix socket by its path"), paths, "{}", errors(&output));
        assert!(errors(&output).contains("the host's network is open"), "{}", errors(&output));
    }
}

#[test]
fn processes_outside_are_out_of_reach() {
    if !has("python3") {
        return;
    }
    for who in everyone().into_iter().filter(|who| who.wrapper != APART) {
        let place = Place::new(who);
        // One of the very same user, which without a box could be signalled and read.
        let program = ["env", "SECRET=1", "sleep", &mark()].map(String::from);
        let user = if who.ordinary { ORDINARY } else { &[] };
        let words: Vec<String> = user.iter().map(|word| (*word).to_owned()).chain(program).collect();
        let mut victim = Started(Command::new(&words[0]).args(&words[1..]).spawn().unwrap());
        let pid = victim.0.id();
        wait_until("the victim runs", 5.0, || {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
        });
        let script = format!(
            "try() {{ if (\"$@\") >/dev/null 2>&1; then echo yes; else echo no; fi; }}
            try kill -0 $$; try cat /proc/self/environ; try cat /proc/{pid}/cmdline; echo --
            try kill -0 {pid}; try kill -9 {pid}; try kill -9 $PPID; try cat /proc/{pid}/environ; try cat /proc/{pid}/maps
            try head -c1 /proc/{pid}/mem; try readlink /proc/{pid}/fd/0; try ls /proc/{pid}/root/; try prlimit --pid {pid} --cpu=0
            try renice -n 5 -p {pid}; try ipcmk -M 64; try setfattr -n user.x -v 1 f; try strace true"
        );
        let output = place.run(&[], &script);
        let expected = format!("{}--\n{}", "yes\n".repeat(3), "no\n".repeat(13));
        assert_eq!(out(&output), expected, "{who:?}: {}", errors(&output));
        assert!(victim.0.try_wait().unwrap().is_none());
        // The positive twin: the same user may, and the number is the right one.
        let number = pid.to_string();
        let twin = [user, &["kill", "-0", &number]].concat();
        assert!(Command::new(twin[0]).args(&twin[1..]).status().unwrap().success());
        drop(victim);
    }
}

#[test]
fn what_a_mount_would_have_hidden_refuses_the_run_by_name() {
    for who in everyone() {
        let place = Place::new(who);
        let refused = |flags: &[&str], words: &[&str]| {
            let output = place.agentbox(&[&["run"], flags, &["--", "touch", "ran"]].concat());
            assert_eq!(output.status.code(), Some(125), "{flags:?}: {}", errors(&output));
            assert!(!place.dir.join("p/ran").exists());
            for word in words {
                assert!(errors(&output).contains(word), "{flags:?} {word}: {}", errors(&output));
            }
        };
        let tier = ["--live", "--degraded", "mounts"];
        refused(&["--degraded", "mounts"], &["dry run", "hint: add --live"]);
        refused(&["--dry-run", "--degraded", "mounts"], &["hint: add --live"]);
        refused(&[&tier[..], &["--nested"]].concat(), &["--nested"]);
        refused(&[&tier[..], &["--degraded", "landlock"]].concat(), &["Landlock and seccomp"]);
        refused(&[&tier[..], &["--hide", "f"]].concat(), &["/p/f cannot be hidden", "without mounts"]);
        refused(&[&tier[..], &["--rw", ".", "--ro", "f"]].concat(), &["/p/f cannot be read-only"]);
        place.write("p/.env", "TOKEN=1\n");
        place.write("p/key.pem", "key\n");
        let rule = "hiding inside a root cannot be had without mounts";
        refused(&tier, &["/p/.env (hidden by", "/p/key.pem", rule, "--grant", "narrower root", "--scratch"]);
        let why = place.agentbox(&[&["why"], &tier[..], &["f"]].concat());
        assert_eq!(why.status.code(), Some(2), "{}", errors(&why));
        let other = place.path("other");
        refused(&[&tier[..], &["--rw", &other, "--ro", "."]].concat(), &["/p/.env (hidden by"]);
        // Each way that the hint names.
        let grants = [&tier[..], &["--grant", ".env:rw", "--grant", "key.pem:rw"]].concat();
        for flags in [grants, [&tier[..], &["--scratch", "."]].concat()] {
            let output = place.agentbox(&[&["run"], &flags[..], &["--", "cat", ".env"]].concat());
            assert_eq!(out(&output), "TOKEN=1\n", "{flags:?}: {}", errors(&output));
        }
        fs::remove_file(place.dir.join("p/.env")).unwrap();
        fs::remove_file(place.dir.join("p/key.pem")).unwrap();
        place.write("p/package.lock", "");
        refused(&[&tier[..], &["--freeze", "package.lock"]].concat(), &["/p/package.lock (frozen by"]);
        let _listener = std::os::unix::net::UnixListener::bind(place.dir.join("p/s")).unwrap();
        refused(&tier, &["/p/s (a socket of the host)"]);
    }
}

#[test]
fn the_end_is_the_commands_and_nothing_stays() {
    for who in everyone() {
        let place = Place::new(who);
        let mark = mark();
        for (script, status) in [("exit 3", 3), ("kill -9 $$", 137), ("no-such-program-x", 127)] {
            let output = place.run(&[], script);
            assert_eq!(output.status.code(), Some(status), "{script}: {}", errors(&output));
        }
        let output = place.agentbox(&[TIER, &["--", "no-such-program-x"]].concat());
        assert_eq!(output.status.code(), Some(127), "{}", errors(&output));
        let other = place.path("other/f");
        assert_eq!(place.agentbox(&[TIER, &["--", &other]].concat()).status.code(), Some(126));
        // Daemons of every kind: in the group, out of it, out of the session, forked twice, stopped.
        let left = format!(
            "sleep {mark} & setsid sleep {mark} & (setsid sh -c 'sleep {mark} & sleep {mark}' &)
            setsid sh -c 'kill -STOP $$; sleep {mark}' & sleep 0.2"
        );
        let output = place.run(&[], &left);
        assert_eq!((output.status.code(), alive(&mark)), (Some(0), Vec::new()), "{}", errors(&output));
        let output = place
            .run(&["--limit", "time=1"], &format!("trap '' TERM; setsid sleep {mark} & while :; do sleep 0.1; done"));
        assert_eq!((output.status.code(), alive(&mark)), (Some(124), Vec::new()), "{}", errors(&output));
        assert_eq!(place.tmp_dirs(), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_killed_launcher_takes_its_box_along_and_the_next_run_its_leftovers() {
    // Wrapped by one that forks, the launcher would not be the process that this test kills.
    for who in everyone().into_iter().filter(|who| who.wrapper != APART) {
        let place = Place::new(who);
        let mark = mark();
        let mut launcher = place.start(&format!("setsid sleep {mark} & echo x > $TMPDIR/x; sleep {mark}"));
        wait_until("both sleep", 10.0, || alive(&mark).len() == 2 && place.tmp_dirs().len() == 1);
        wait_until("the file is there", 5.0, || place.tmp_dirs()[0].join("x").exists());
        launcher.kill();
        wait_until("all are gone", 5.0, || alive(&mark).is_empty());
        let left = place.tmp_dirs();
        assert_eq!(left.len(), 1);
        let other = place.start("sleep 5");
        wait_until("the old one is gone, the new one is there", 5.0, || {
            place.tmp_dirs().len() == 1 && place.tmp_dirs() != left
        });
        // A living run's is not touched.
        assert_eq!(place.run(&[], "true").status.code(), Some(0));
        assert_eq!(place.tmp_dirs().len(), 1);
        Command::new("kill").arg(other.0.id().to_string()).status().unwrap();
        wait_until("it cleaned up", 5.0, || place.tmp_dirs().is_empty());
        assert_eq!(place.tmp_dirs(), Vec::<PathBuf>::new());
    }
}

#[test]
fn why_agrees_with_what_happens() {
    for who in everyone() {
        let place = Place::new(who);
        std::os::unix::fs::symlink("../other/f", place.dir.join("p/link")).unwrap();
        std::os::unix::fs::symlink("../p/f", place.dir.join("other/back")).unwrap();
        let t = |name: &str| place.path(name);
        let paths: Vec<String> = [
            "f",
            "new",
            ".env",
            "link",
            "sub/x",
            "/",
            "/usr",
            "/usr/bin/env",
            "/etc",
            "/etc/passwd",
            "/etc/shadow",
            "/etc/machine-id",
            "/tmp",
            "/tmp/agentbox-tier-x",
            "/proc/self/status",
            "/proc/sys/kernel/hostname",
            "/dev",
            "/dev/null",
            "/dev/zero",
            "/dev/ptmx",
            "/run",
            "/bin",
            "/sys",
        ]
        .into_iter()
        .map(String::from)
        .chain(
            ["", "p", "home", "home/.ssh/id", "home/.local/state", "other", "other/f", "other/back", "ro", "ro/f"]
                .map(t),
        )
        .collect();
        place.make_dir("p/sub");
        place.write("p/sub/x", "");
        let ro = t("ro");
        let flags = ["--live", "--degraded", "mounts", "--rw", ".", "--ro", &ro];
        for path in &paths {
            // What is not there is no contradiction: Landlock judges what is found.
            let read = "if [ -d \"$0\" ]; then ls \"$0\"; else head -c 1 \"$0\"; fi 2>&1 >/dev/null | grep -c 'denied\\|No such'";
            let write = "if [ -d \"$0\" ]; then mkdir \"$0/.tier-probe\" && rmdir \"$0/.tier-probe\"; \
                         else (: >> \"$0\"); fi 2>&1 | grep -c 'denied\\|No such'";
            for (script, write) in [(read, None), (write, Some("--write"))] {
                let asked = [&["why"], &flags[..], write.as_slice(), &[path.as_str()]].concat();
                let why = place.agentbox(&asked);
                let ran = place.agentbox(&[&["run"], &flags[..], &["-q", "--", "sh", "-c", script, path]].concat());
                let denied = out(&ran).trim() != "0";
                if why.status.code() == Some(0) && denied {
                    // Allowed by policy, refused by the host's modes: that is no contradiction.
                    let free = [&["sh", "-c", script, path.as_str()][..]].concat();
                    let user = if who.ordinary { ORDINARY } else { &[] };
                    let words = [user, &free].concat();
                    let bare =
                        Command::new(words[0]).args(&words[1..]).current_dir(place.dir.join("p")).output().unwrap();
                    assert_ne!(out(&bare).trim(), "0", "{who:?} {write:?} {path}: {}", out(&why));
                    continue;
                }
                assert_eq!(why.status.code(), Some(i32::from(denied)), "{who:?} {write:?} {path}: {}", out(&why));
            }
            fs::remove_file(place.dir.join("p/new")).ok();
            fs::remove_file(place.dir.join("p/.env")).ok();
        }
    }
}

#[test]
fn explain_shows_the_steps_that_are_left() {
    let place = Place::new(Who { ordinary: false, wrapper: &[] });
    let output = place.agentbox(&["explain", "--live", "--degraded", "mounts", "--json", "--", "true"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps: Vec<&str> =
        json["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    let expected = "fork tmpdir capabilities no-new-privs limits close-fds landlock notify seccomp verify execve";
    assert_eq!(steps.join(" "), expected);
    assert!(!json["lost"].as_array().unwrap().is_empty());
    assert_eq!(place.tmp_dirs(), Vec::<PathBuf>::new());
}

#[test]
fn an_interrupt_and_a_stop_reach_the_command_alone() {
    let program = support::program();
    let words = [&[program.as_str()], TIER, &["-q", "--", "sh", "-c"]].concat();
    let mut command = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    // No fork in the loop: one that is stopped on its way would hold the shell.
    command.push_str(" 'trap \"echo got INT\" INT; trap \"echo went on\" CONT; echo up; while :; do read x; done'\n");
    let mut shell = Pty::shell();
    shell.send(&command);
    shell.expect("up\r\n");
    shell.send("\x03");
    shell.expect("got INT");
    shell.send("\x1a");
    shell.expect("READY> ");
    shell.send("fg\n");
    shell.expect("went on\r\n");
    shell.send("\x03");
    shell.expect("got INT");
    shell.send("\x1a");
    shell.expect("READY> ");
    shell.send("kill -9 %1; wait; echo all$((1+1))\n");
    shell.expect("all2");
}
