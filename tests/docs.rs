//! Holds the documents against the program: links, subcommands and flags, exit codes, the steps of a launch.
#![allow(clippy::unwrap_used, reason = "outside of a test function, but a test all the same")]
#![allow(clippy::disallowed_methods, reason = "files of the repository, and a directory of the test's own")]

use agentbox::cli::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUBCOMMANDS: [&str; 10] =
    ["run", "explain", "why", "diff", "apply", "undo", "discard", "sessions", "doctor", "profile"];

fn program() -> PathBuf {
    std::env::var_os("AGENTBOX_TEST_BIN").map_or_else(|| env!("CARGO_BIN_EXE_agentbox").into(), PathBuf::from)
}

fn repository() -> &'static Path {
    // An ordinary user may not be able to read the checkout: scripts/check hands a copy.
    static COPY: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    COPY.get_or_init(|| {
        std::env::var_os("AGENTBOX_TEST_SOURCE").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
    })
}

fn read(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap()
}

/// Every Markdown page: its path from the repository, and its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut names: Vec<PathBuf> = vec!["README.md".into(), "CHANGELOG.md".into()];
    for entry in fs::read_dir(repository().join("docs")).unwrap() {
        let name = entry.unwrap().file_name();
        if Path::new(&name).extension().is_some_and(|end| end == "md") {
            names.push(Path::new("docs").join(name));
        }
    }
    names.sort();
    assert!(names.len() >= 6, "{names:?}");
    names.into_iter().map(|name| (name.clone(), read(name.to_str().unwrap()))).collect()
}

fn agentbox(args: &[&str]) -> String {
    let output = Command::new(program()).args(args).output().unwrap();
    assert!(output.status.success(), "agentbox {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A heading as the anchor that forges make of it.
fn anchor(heading: &str) -> String {
    let plain = heading.trim_start_matches('#').trim().to_lowercase();
    plain.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

/// The targets of `[text](target)`.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// What is wrong with the links of one page.
fn broken(page: &Path, text: &str) -> Vec<String> {
    let dir = repository().join(page.parent().unwrap());
    let local = links(text).into_iter().filter(|target| !target.contains("://"));
    local
        .filter(|target| {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let text = match file {
                "" => Some(text.to_owned()),
                file => fs::read_to_string(dir.join(file)).ok(),
            };
            let found = |text: String| text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
            !text.is_some_and(|text| heading.is_empty() || found(text))
        })
        .map(|target| format!("{}: {target}", page.display()))
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut seen = 0;
    for (page, text) in pages() {
        seen += links(&text).len();
        assert_eq!(broken(&page, &text), Vec::<String>::new());
    }
    assert!(seen > 10, "only {seen} links: they are not being found");
    let bad = "[a](docs/nowhere.md) [b](#no-such-heading) [c](README.md#no-such-heading) [d](https://example.com/x)";
    assert_eq!(broken(Path::new("README.md"), bad).len(), 3);
}

/// The flags of each subcommand, as its help names them.
fn flags() -> BTreeMap<&'static str, BTreeSet<String>> {
    let of = |subcommand| {
        let help = agentbox(&[subcommand, "--help"]);
        let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let words = lines.flat_map(|line| line.split([' ', ',', '['])).filter(|word| word.starts_with('-'));
        words.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    SUBCOMMANDS.into_iter().map(|subcommand| (subcommand, of(subcommand))).collect()
}

/// Code: each line of a fenced block, and each span between backticks, which may go on in the next line.
fn code(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 1 {
            out.extend(part.lines().skip(1).map(|line| line.trim().trim_start_matches("$ ")));
        } else {
            out.extend(part.split('`').skip(1).step_by(2));
        }
    }
    out
}

/// What is wrong with a command line of agentbox, or with a flag that stands alone.
fn wrong(code: &str, flags: &BTreeMap<&str, BTreeSet<String>>) -> Option<String> {
    let mut words = code.split_whitespace();
    let first = words.next()?;
    if first == "agentbox" {
        let subcommand = words.next()?;
        let Some(known) = flags.get(subcommand) else {
            // `agentbox --version` and the like, or a sentence of the program's own such as `agentbox: ...`.
            return (!subcommand.starts_with('-')).then(|| format!("no subcommand: {code}"));
        };
        let options = words.take_while(|word| !["--", "#", "|"].contains(word)).filter(|word| word.starts_with('-'));
        let bad = options.map(|word| word.split(['=', ']']).next().unwrap()).find(|word| !known.contains(*word));
        return bad.map(|flag| format!("no flag {flag}: {code}"));
    }
    let flag = first.split(['=', '[']).next()?;
    // `---` begins the header of a patch.
    let alone = flag.starts_with("--") && !flag.trim_matches('-').is_empty();
    (alone && !flags.values().any(|known| known.contains(flag))).then(|| format!("no flag: {code}"))
}

#[test]
fn every_command_and_flag_in_the_documents_exists() {
    let flags = flags();
    assert!(flags["run"].contains("--live") && flags["diff"].contains("-z"), "{flags:?}");
    let mut commands = 0;
    let mut bad = Vec::new();
    for (page, text) in pages() {
        for code in code(&text) {
            commands += usize::from(code.starts_with("agentbox "));
            bad.extend(wrong(code, &flags).map(|what| format!("{}: {what}", page.display())));
        }
    }
    assert_eq!(bad, Vec::<String>::new());
    assert!(commands > 30, "only {commands} command lines: they are not being found");
    for lie in ["agentbox run --undo -- true", "agentbox fly", "--no-such-flag", "agentbox why --live-and-let-die x"] {
        assert!(wrong(lie, &flags).is_some(), "{lie}");
    }
    for fine in ["agentbox run --rw=a -- ls --no-such-flag", "agentbox --version", "--hide GLOB", "git --no-such-flag"]
    {
        assert_eq!(wrong(fine, &flags), None);
    }
}

#[test]
fn the_subcommands_are_those_of_the_program() {
    let help = agentbox(&["--help"]);
    let list = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: BTreeSet<&str> = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(names, BTreeSet::from(SUBCOMMANDS));
}

#[test]
fn the_exit_codes_are_the_constants() {
    let page = read("docs/exit-codes.md");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Some((cells.get(2)?.trim_matches('`').to_owned(), cells.get(1)?.parse::<u8>().ok()?))
    };
    let table: BTreeMap<String, u8> = page.lines().filter_map(row).collect();
    let source = read("src/cli/failure.rs");
    let constant = |line: &str| {
        let (name, rest) = line.trim().strip_prefix("pub const ")?.split_once(": Status = Status(")?;
        Some((name.to_owned(), rest.strip_suffix(");")?.parse::<u8>().ok()?))
    };
    let constants: BTreeMap<String, u8> = source.lines().filter_map(constant).collect();
    assert_eq!(table, constants);
    assert_eq!(table["REFUSED"], Status::REFUSED.0);
    assert_eq!(table["TIME"], Status::TIME.0);
}

/// A home with a project that has something hidden, something frozen, and a directory below which a root can be granted.
struct Project {
    top: PathBuf,
}

impl Project {
    fn new() -> Project {
        // The order of the steps follows the paths: the document says that it is that of a project in /tmp.
        let top = PathBuf::from(format!("/tmp/agentbox-docs-{}", std::process::id()));
        fs::create_dir_all(top.join("home/project/closed/open")).unwrap();
        let files = [(".env", "A=1"), ("Jenkinsfile", ""), ("agentbox.toml", "")];
        for (name, content) in files {
            fs::write(top.join("home/project").join(name), content).unwrap();
        }
        Project { top }
    }

    /// Stages and names of the steps that `explain` prints, each once, in the order of the first.
    fn steps(&self, flags: &[&str]) -> Vec<(String, String)> {
        let output = Command::new(program())
            .args(["explain", "--json"])
            .args(flags)
            .args(["--", "true"])
            .current_dir(self.top.join("home/project"))
            .env_clear()
            .envs([("HOME", self.top.join("home")), ("PATH", "/usr/bin:/bin".into())])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut out = Vec::new();
        for step in plan["steps"].as_array().unwrap() {
            let step = (step["stage"].as_str().unwrap().to_owned(), step["step"].as_str().unwrap().to_owned());
            if !out.contains(&step) {
                out.push(step);
            }
        }
        out
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.top).ok();
    }
}

/// The numbered list of `docs/architecture.md`: stage and name of each step. The numbers must count up.
fn documented() -> Vec<(String, String)> {
    let page = read("docs/architecture.md");
    let section = page.split("## A launch, step by step").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut stage = String::new();
    let mut out = Vec::new();
    for line in section.lines() {
        if let Some(heading) = line.strip_prefix("### Stage `") {
            heading.trim_end_matches('`').clone_into(&mut stage);
        }
        let Some((number, rest)) = line.split_once(". `") else { continue };
        let Ok(number) = number.parse::<usize>() else { continue };
        out.push((stage.clone(), rest.split('`').next().unwrap().to_owned()));
        assert_eq!(number, out.len(), "{line}");
    }
    out
}

#[test]
fn the_documented_steps_are_those_of_the_plan() {
    let documented = documented();
    let project = Project::new();
    let dry = project.steps(&["--dry-run"]);
    let live = project.steps(&["--live", "--hide", "closed", "--ro", "closed/open"]);
    // The process limit of the pid namespace is root's alone, and a cgroup wants a host that has them.
    let mut seen: BTreeSet<&(String, String)> = dry.iter().chain(&live).collect();
    let some = [("isolate", "cgroup"), ("isolate", "cgroup-namespace"), ("root", "pid-max")];
    let some = some.map(|(stage, name)| (stage.to_owned(), name.to_owned()));
    seen.extend(&some);
    assert_eq!(documented.iter().collect::<BTreeSet<_>>(), seen, "the list and the plan name different steps");
    for steps in [dry, live] {
        let expected: Vec<_> = documented.iter().filter(|step| steps.contains(step)).collect();
        assert_eq!(steps.iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_tour_shows_what_the_demo_agent_tries() {
    let readme = read("README.md");
    let agent = read("scripts/demo-agent");
    let tries: Vec<&str> =
        agent.lines().filter_map(|line| line.strip_prefix("try \"")?.split_once('"')).map(|(label, _)| label).collect();
    assert!(tries.len() >= 8, "{tries:?}");
    for label in tries {
        let shown = readme.lines().filter(|line| line.trim_start().starts_with(&format!("agent: {label} "))).count();
        assert_eq!(shown, 2, "{label}: once without a box, once in it");
    }
}
