//! Toolchains in HOME, or where their own variable says, that are on PATH: granted read-only, piece by piece, so that
//! credentials beside them (`~/.cargo/credentials.toml`) stay out.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// One family: the variable that moves it, its usual place below HOME, and what of it programs need.
struct Family {
    variable: &'static str,
    place: &'static str,
    /// Seen on PATH, it brings the parts in.
    bin: &'static str,
    parts: &'static [&'static str],
    /// Parts of other places: (variable, place below HOME, part).
    also: &'static [(&'static str, &'static str, &'static str)],
}

const fn family(
    variable: &'static str,
    place: &'static str,
    bin: &'static str,
    parts: &'static [&'static str],
) -> Family {
    Family { variable, place, bin, parts, also: &[] }
}

const FAMILIES: &[Family] = &[
    Family {
        also: &[("RUSTUP_HOME", ".rustup", "toolchains"), ("RUSTUP_HOME", ".rustup", "settings.toml")],
        ..family("CARGO_HOME", ".cargo", "bin", &["bin", "registry", "git", "env"])
    },
    family("NVM_DIR", ".nvm", "versions", &["versions", "alias", "nvm.sh"]),
    family("FNM_DIR", ".local/share/fnm", "", &[""]),
    family("VOLTA_HOME", ".volta", "bin", &["bin", "tools"]),
    family("BUN_INSTALL", ".bun", "bin", &["bin", "install"]),
    family("DENO_INSTALL", ".deno", "bin", &["bin"]),
    family("PYENV_ROOT", ".pyenv", "", &[""]),
    family("RBENV_ROOT", ".rbenv", "", &[""]),
    family("GOPATH", "go", "bin", &["bin", "pkg"]),
    family("GOROOT", "sdk", "", &[""]),
    family("SDKMAN_DIR", ".sdkman", "candidates", &["candidates"]),
    family("ASDF_DATA_DIR", ".asdf", "", &[""]),
    family("MISE_DATA_DIR", ".local/share/mise", "", &[""]),
    family("JAVA_HOME", "", "bin", &[""]),
    Family {
        also: &[("UV_PYTHON_INSTALL_DIR", ".local/share/uv", ""), ("PIPX_HOME", ".local/share/pipx", "")],
        ..family("", ".local/bin", "", &[""])
    },
];

/// The paths to grant, existing or not, for the directories on `path`.
pub(super) fn grants(path: &[PathBuf], home: &Path, vars: &BTreeMap<OsString, OsString>) -> Vec<PathBuf> {
    let place = |variable: &str, below_home: &str| {
        let moved = vars.get(OsStr::new(variable)).map(PathBuf::from).filter(|moved| moved.is_absolute());
        let usual = (!below_home.is_empty()).then(|| home.join(below_home));
        moved.or(usual)
    };
    let join = |base: &Path, part: &str| if part.is_empty() { base.to_path_buf() } else { base.join(part) };
    let mut out = Vec::new();
    for family in FAMILIES {
        let Some(base) = place(family.variable, family.place) else { continue };
        // A variable that points at HOME or above would grant all of it.
        if home.starts_with(&base) || !path.iter().any(|dir| dir.starts_with(join(&base, family.bin))) {
            continue;
        }
        out.extend(family.parts.iter().map(|part| join(&base, part)));
        for (variable, below_home, part) in family.also {
            out.extend(
                place(variable, below_home).filter(|also| !home.starts_with(also)).map(|also| join(&also, part)),
            );
        }
    }
    // Any other directory of HOME on PATH: that directory and no more.
    let others = path.iter().filter(|dir| dir.starts_with(home) && *dir != home);
    let others: Vec<_> = others.filter(|dir| !out.iter().any(|granted| dir.starts_with(granted))).cloned().collect();
    out.extend(others);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants_for(path: &[&str], vars: &[(&str, &str)]) -> Vec<String> {
        let path: Vec<PathBuf> = path.iter().map(PathBuf::from).collect();
        let vars = vars.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect();
        grants(&path, Path::new("/home/u"), &vars).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn cargo_comes_without_its_credentials() {
        let got = grants_for(&["/home/u/.cargo/bin", "/usr/bin"], &[]);
        assert!(got.contains(&"/home/u/.cargo/bin".into()) && got.contains(&"/home/u/.rustup/toolchains".into()));
        assert!(!got.contains(&"/home/u/.cargo".into()));
        assert!(grants_for(&["/usr/bin"], &[]).is_empty());
    }

    #[test]
    fn variables_move_a_toolchain_and_cannot_widen_to_home() {
        assert!(grants_for(&["/x/c/bin"], &[("CARGO_HOME", "/x/c")]).contains(&"/x/c/registry".into()));
        assert!(grants_for(&["/home/u/bin"], &[("PYENV_ROOT", "/home/u")]) == ["/home/u/bin"]);
        assert_eq!(grants_for(&["/home/u/own/tools"], &[]), ["/home/u/own/tools"]);
    }
}
