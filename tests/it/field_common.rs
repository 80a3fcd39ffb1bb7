//! What the field cases share: a shell script in a place of its own, in one of the two modes, and a look at its output.

use super::common::{Output, Place, has, skip};
use std::path::{Path, PathBuf};

pub use super::common::is_root;

/// The two ways to treat writes; a case that concerns both runs in both.
pub const MODES: [&str; 2] = ["--live", "--dry-run"];

/// Shell functions of every script.
///
/// `private` runs its standard input as a script that may mount, in a mount namespace of its own: of root's, or of an
/// ordinary user's in a user namespace. `drop CMD` runs CMD as an ordinary user there, after `open_up` gave that user
/// the place. `await COND` waits.
const PRELUDE: &str = r#"
if [ $(id -u) = 0 ]; then
    private() { cat >$T/private.sh; unshare -m bash $T/private.sh; }
    export DROP="setpriv --reuid=65534 --regid=65534 --clear-groups"
    open_up() { chown -R 65534:65534 $T; chmod 755 $T; }
else
    private() { cat >$T/private.sh; unshare -Urm bash $T/private.sh; }
    export DROP=
    open_up() { :; }
fi
# Waits until a condition holds, 20 seconds at most.
await() { for i in {1..1000}; do eval "$1" && return; sleep .02; done; echo "waited in vain: $1" >&2; exit 99; }
drop() { $DROP "$@"; }
export -f drop await
"#;

/// A place with a project (`$T/p`, the working directory), `$T/ref`, `$T/out` and a HOME, for one or more scripts.
pub struct Case {
    place: Place,
}

impl Case {
    pub fn new() -> Case {
        let place = Place::new();
        let state = place.text("state");
        Case { place: place.env("XDG_STATE_HOME", state) }
    }

    /// The toolchain of this cargo comes first on the PATH, and `$GRANT` is what shows it to the box.
    pub fn with_cargo(self, cargo: &Path) -> Case {
        let toolchain = cargo.ancestors().nth(2).expect("a toolchain has a bin directory").display().to_string();
        let grant = if toolchain == "/usr" { String::new() } else { format!("--ro {toolchain}") };
        Case { place: self.place.env("CARGO", cargo.display().to_string()).env("GRANT", grant) }
    }

    /// One more file below `$T`.
    pub fn file(self, rel: &str, content: &str) -> Case {
        self.place.write(rel, content);
        self
    }

    /// Runs the script with `$AB` as `agentbox run MODE`; a dry run shows no diff unless the mode says so.
    pub fn run(&self, mode: &str, script: &str) -> Ran {
        let quiet = if mode == "--dry-run" { " --diff none" } else { "" };
        let script = format!("{PRELUDE}export AB=\"$AGENTBOX run {mode}{quiet}\"\n{script}");
        let output = self.place.sh(&script);
        Ran { t: self.place.dir().to_owned(), mode: mode.to_owned(), output }
    }

    pub fn live(&self, script: &str) -> Ran {
        self.run("--live", script)
    }

    pub fn dry(&self, script: &str) -> Ran {
        self.run("--dry-run", script)
    }
}

/// What a script printed.
pub struct Ran {
    /// The place, `$T`.
    pub t: PathBuf,
    mode: String,
    output: Output,
}

impl Ran {
    /// Standard output is exactly this, but for a last line feed.
    #[track_caller]
    pub fn prints(&self, expected: &str) {
        assert_eq!(self.out().trim_end_matches('\n'), expected.trim_end_matches('\n'), "{self}");
    }

    pub fn out(&self) -> &str {
        &self.output.stdout
    }

    pub fn err(&self) -> &str {
        &self.output.stderr
    }

    pub fn lines(&self) -> Vec<String> {
        self.out().lines().map(str::to_owned).collect()
    }

    /// The line as a number.
    #[track_caller]
    pub fn number(&self, line: usize) -> u64 {
        let lines = self.lines();
        let found = lines.get(line).and_then(|text| text.trim().parse().ok());
        found.unwrap_or_else(|| panic!("line {line} is no number: {self}"))
    }

    /// The user whom the suite runs as.
    pub fn uid(&self) -> u32 {
        nix::unistd::geteuid().as_raw()
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}: {}", self.mode, self.t.display(), self.output)
    }
}

/// Whether these programs are there; the first that is not is a skip.
#[must_use]
pub fn need(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has(program.trim_start_matches("/usr/bin/")));
    if let Some(program) = missing {
        skip(&format!("no {program}"));
    }
    missing.is_none()
}

/// The real program behind `cargo`: the one that built the tests where this user may run it, else the system's.
pub fn cargo() -> Option<PathBuf> {
    let candidates = [env!("CARGO"), "/usr/local/bin/cargo", "/usr/bin/cargo"].map(PathBuf::from);
    let found = candidates.into_iter().find(|path| nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok());
    if found.is_none() {
        skip("no cargo");
    }
    found
}
