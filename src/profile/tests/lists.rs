//! What the built-in lists mean for real names, judged by a small matcher of its own: on the way down to a name, the
//! pattern with the most literal characters decides; at a tie hide beats ro beats rw; a directory's verdict holds for
//! what is in it until another pattern speaks; `.*` is silent inside build directories.

use super::super::{BUILT_IN, GrantAccess, Loader, Profile, Written};
use super::load;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Writable,
    ReadOnly,
    Hidden,
}

struct Glob {
    text: String,
    matcher: globset::GlobMatcher,
}

impl Glob {
    fn new(text: &str) -> Glob {
        let glob = globset::GlobBuilder::new(&text.to_lowercase()).literal_separator(true).build().unwrap();
        Glob { text: text.to_string(), matcher: glob.compile_matcher() }
    }

    fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.matcher.is_match(if self.text.contains('/') { path } else { name })
    }
}

fn literals(glob: &str) -> usize {
    let (mut count, mut class) = (0, false);
    for c in glob.chars() {
        match c {
            '[' => class = true,
            ']' => class = false,
            '*' | '?' => {}
            _ if class => {}
            _ => count += 1,
        }
    }
    count
}

struct Rule {
    verdict: Verdict,
    glob: Glob,
}

/// One profile's patterns, compiled once.
struct Judge {
    rules: Vec<Rule>,
    freeze: Vec<Glob>,
    build_dirs: Vec<Glob>,
}

impl Judge {
    fn new(profile: &str) -> Judge {
        let files = load(&Loader::new(None), &[profile]).unwrap().filesystem;
        let globs =
            |list: &[Written<super::super::Text>]| list.iter().map(|glob| Glob::new(&glob.value)).collect::<Vec<_>>();
        let hides = globs(&files.hide).into_iter().map(|glob| Rule { verdict: Verdict::Hidden, glob });
        let grants = files.grant.iter().map(|grant| Rule {
            verdict: match grant.value.access {
                GrantAccess::Ro => Verdict::ReadOnly,
                GrantAccess::Rw => Verdict::Writable,
            },
            glob: Glob::new(&grant.value.glob),
        });
        let rules = hides.chain(grants).collect();
        Judge { rules, freeze: globs(&files.freeze), build_dirs: globs(&files.build_dirs) }
    }

    fn judge(&self, path: &str) -> Verdict {
        let path = path.to_lowercase();
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let (mut verdict, mut in_build_dir, mut frozen) = (Verdict::Writable, false, false);
        for here in ends.map(|end| &path[..end]) {
            let speaks = |rule: &&Rule| rule.glob.matches(here) && !(rule.glob.text == ".*" && in_build_dir);
            let best = self.rules.iter().filter(speaks).max_by_key(|rule| (literals(&rule.glob.text), rule.verdict));
            verdict = best.map_or(verdict, |rule| rule.verdict);
            in_build_dir |= self.build_dirs.iter().any(|dir| dir.matches(here));
            frozen |= self.freeze.iter().any(|freeze| freeze.matches(here));
        }
        if verdict == Verdict::Writable && frozen { Verdict::ReadOnly } else { verdict }
    }
}

fn all(profile: &str, wanted: Verdict, paths: &[&str]) {
    let judge = Judge::new(profile);
    for path in paths {
        for place in [(*path).to_string(), format!("packages/app/{path}"), path.to_uppercase()] {
            assert_eq!(judge.judge(&place), wanted, "{place}");
        }
    }
}

const SECRETS: &[&str] = &[
    // the names of field case C12
    "id_ed25519",
    "prod.key",
    "tls.pem",
    "a.p12",
    "vault.kdbx",
    "service-account.json",
    "credentials.json",
    "terraform.tfstate",
    "x.keystore",
    ".npmrc",
    ".netrc",
    ".pypirc",
    // and their relatives
    ".env",
    ".env.local",
    ".env.prod",
    "prod.env",
    ".envrc",
    "id_rsa",
    "id_rsa.old",
    "config/master.key",
    "secrets.yml",
    "secrets",
    "credentials",
    "my-credentials.json",
    "client_secret_1.json",
    "x-firebase-adminsdk-1.json",
    "prod.tfvars",
    "terraform.tfstate.backup",
    "kubeconfig",
    ".vault_pass.txt",
    "auth.json",
    "wallet.dat",
    "mnemonic.txt",
    "UTC--2016-02-03T04-05-06--ab",
    ".aws/config",
    ".docker/config.json",
    ".git/config",
    ".git/HEAD",
    ".hg/hgrc",
    ".vscode/settings.json",
    ".cargo/credentials.toml",
    ".mvn/settings.xml",
    ".unheard-of",
    // secrets hold inside build directories too
    "node_modules/x/.env",
    "target/debug/server.key",
    "vendor/x/.npmrc",
    ".venv/lib/tls.pem",
    "dist/.env.production",
];

#[test]
fn secrets_are_hidden_at_any_depth_and_in_any_case() {
    all("default", Verdict::Hidden, SECRETS);
    all("strict", Verdict::Hidden, SECRETS);
}

#[test]
fn code_and_ordinary_names_stay_writable() {
    let code = [
        "monkey.txt",
        "tokens.rs",
        "src/keys.rs",
        "turkey.txt",
        "keyboard.c",
        "secrets.py",
        "credentials.rs",
        "src/secrets.go",
        "environment.ts",
        "mnemonic.rs",
        "kubeconfig.go",
        "iamcredentials.v1.json",
        "key",
        "pem.rs",
        "public/locales/en/auth.json",
        "keystore/mod.rs",
        "README.md",
        "release.tar.gz.asc",
        "ca.der",
        "service.json",
    ];
    all("default", Verdict::Writable, &code);
    all("base", Verdict::Hidden, &["prod.key"]);
    let strict: Vec<&str> = code.into_iter().filter(|path| !path.contains("auth.json")).collect();
    all("strict", Verdict::Writable, &strict);
}

#[test]
fn tool_dotfiles_are_visible_in_default_and_hidden_in_strict() {
    let writable = [
        ".gitignore",
        ".eslintrc.json",
        ".eslintrc",
        ".editorconfig",
        ".prettierrc.yaml",
        ".env.example",
        ".env.production.example",
        ".config/nextest.toml",
        ".venv/bin/python",
        ".tox/py/.hidden",
        ".storybook/main.js",
    ];
    let readable = [
        ".github/workflows/ci.yml",
        ".github/CODEOWNERS",
        ".gitmodules",
        ".gitattributes",
        ".nvmrc",
        ".tool-versions",
        ".pre-commit-config.yaml",
        ".gitlab-ci.yml",
        ".cargo/config.toml",
        ".mvn/wrapper/maven-wrapper.properties",
    ];
    all("default", Verdict::Writable, &writable);
    all("default", Verdict::ReadOnly, &readable);
    all("strict", Verdict::Hidden, &writable);
    all("strict", Verdict::Hidden, &readable);
}

#[test]
fn what_a_second_build_needs_is_visible() {
    let writable = [
        "node_modules/.bin/tsc",
        "node_modules/.package-lock.json",
        "node_modules/x/.eslintrc",
        "target/debug/.fingerprint/a",
        "target/debug/.cargo-lock",
        "vendor/serde/.cargo-checksum.json",
        "venv/lib/.lock",
        "_build/.mix/x",
        "dist/.vite/m",
        "node_modules/aws-sdk/lib/credentials/sts.js",
        "vendor/aws/credentials/value.go",
        "node_modules/.cache/x",
        ".gradle/buildOutputCleanup/cache.properties",
        ".terraform/providers/registry/x",
    ];
    all("default", Verdict::Writable, &writable);
    let public = [
        "cacert.pem",
        ".venv/lib/python3/site-packages/certifi/cacert.pem",
        "x/certifi/old/roots.pem",
        "id_rsa.pub",
        "id_ed25519_work.pub",
        "ca-bundle.pem",
        "venv/lib/pip/_vendor/certifi/cacert.pem",
    ];
    all("default", Verdict::ReadOnly, &public);
}

#[test]
fn what_the_host_runs_later_is_never_writable() {
    let frozen = ["Jenkinsfile", "rust-toolchain.toml", "pip.conf", "agentbox.toml", "x.code-workspace", "bunfig.toml"];
    all("default", Verdict::ReadOnly, &frozen);
    all("strict", Verdict::ReadOnly, &frozen);
    // Marked "ask" in the reviewed list: strict alone holds them.
    let asked = ["build.rs", "conftest.py", "CLAUDE.md", "AGENTS.md"];
    all("default", Verdict::Writable, &asked);
    all("strict", Verdict::ReadOnly, &asked);
    let asked = ["wp-config.php", "local.properties", "appsettings.dev.local.json", "application-prod.yml"];
    all("default", Verdict::Writable, &asked);
    all("strict", Verdict::Hidden, &asked);
}

#[test]
fn a_grant_of_a_frozen_name_is_read_only() {
    let profile = load(&Loader::new(None), &["default"]).unwrap();
    let files = &profile.filesystem;
    for grant in &files.grant {
        let glob = &grant.value.glob;
        if files.freeze.iter().any(|freeze| freeze.value == *glob) {
            assert_eq!(grant.value.access, GrantAccess::Ro, "{glob} is frozen");
        }
    }
}

#[test]
fn each_dot_named_build_directory_is_granted() {
    let profile = load(&Loader::new(None), &["default"]).unwrap();
    let granted: BTreeSet<&str> = profile.filesystem.grant.iter().map(|grant| &*grant.value.glob).collect();
    for dir in &profile.filesystem.build_dirs {
        let name = &*dir.value;
        // Its state file holds secrets; only two of its directories are granted.
        if name.starts_with('.') && name != ".terraform" {
            assert!(granted.contains(name), "{name}");
        }
    }
}

#[test]
fn all_globs_compile() {
    for (name, _) in BUILT_IN {
        assert!(Judge::new(name).rules.len() > 50);
    }
}

fn denied(profile: &Profile, name: &str) -> bool {
    profile
        .environment
        .deny
        .iter()
        .any(|deny| globset::Glob::new(&deny.value).unwrap().compile_matcher().is_match(name))
}

fn passed(profile: &Profile, name: &str) -> bool {
    profile
        .environment
        .pass
        .iter()
        .any(|pass| globset::Glob::new(&pass.value).unwrap().compile_matcher().is_match(name))
}

#[test]
fn secret_variables_never_pass() {
    let profile = load(&Loader::new(None), &["default"]).unwrap();
    let secret = [
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "AWS_SESSION_TOKEN",
        "NPM_TOKEN",
        "KUBECONFIG",
        "SSH_AUTH_SOCK",
        "GIT_ASKPASS",
        "PGPASSWORD",
        "LD_PRELOAD",
        "NODE_OPTIONS",
        "MYSQL_PWD",
        "CMD_PWD",
        "PRODPWD",
        "BASIC_AUTH",
        "AUTH_HEADER",
        "OAUTH2",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
        "GIT_COMMON_DIR",
        "GIT_EXEC_PATH",
        "GIT_DIR",
        "DATABASE_URL",
        "BASH_ENV",
        "SENTRY_DSN",
        "DISPLAY",
        "XDG_RUNTIME_DIR",
        "DOCKER_HOST",
        "_JAVA_OPTIONS",
        "IFS",
        "ENV",
        "PYTHONPATH",
    ];
    for name in secret {
        assert!(denied(&profile, name) && !passed(&profile, name), "{name}");
    }
    assert!(!passed(&profile, "MY_THING"));
}

#[test]
fn what_passes_is_not_denied() {
    let profile = load(&Loader::new(None), &["default"]).unwrap();
    for pass in &profile.environment.pass {
        assert!(!denied(&profile, &pass.value.replace('*', "X")), "{}", pass.value);
    }
    for name in ["PATH", "HOME", "TERM", "LANG", "LC_ALL", "TZ", "GIT_AUTHOR_NAME", "CARGO_HOME", "VIRTUAL_ENV", "PWD"]
    {
        assert!(passed(&profile, name), "{name}");
    }
    assert!(!denied(&profile, "OLDPWD"));
}
