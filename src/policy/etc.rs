//! The system's part of the view: system directories, /etc picked name by name, and the files that are made up.

use super::{Entry, EntryKind, Private};
use crate::host::{Facts, SystemDir};
use crate::path::{Kind, Link, is_at_or_below, resolve_existing};
use crate::profile::Origin;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Names of /etc that programs read and that hold no secret. A trailing `*` takes every name that begins so.
const ETC: [&str; 54] = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld-musl-*",
    "pki",
    "crypto-policies",
    "hosts",
    "host.conf",
    "hostname",
    "resolv.conf",
    "nsswitch.conf",
    "gai.conf",
    "localtime",
    "timezone",
    "locale.alias",
    "locale.conf",
    "alternatives",
    "os-release",
    "debian_version",
    "lsb-release",
    "fedora-release",
    "redhat-release",
    "alpine-release",
    "arch-release",
    "services",
    "protocols",
    "gitconfig",
    "terminfo",
    "inputrc",
    "profile",
    "profile.d",
    "bash.bashrc",
    "bash_completion",
    "bashrc",
    "zsh*",
    "fish",
    "mime.types",
    "magic*",
    "java*",
    "maven",
    "gradle",
    "python2*",
    "python3.*",
    "perl",
    "fonts",
    "nodejs",
    "vim",
    "vimrc",
    "nanorc",
    "manpath.config",
    "xattr.conf",
    "papersize",
    "static",
    "dpkg",
];

/// Of /etc/ssl everything but the private keys; of ca-certificates what stands in for /etc/ssl/certs.
const SSL: [&str; 4] = ["ssl/certs", "ssl/openssl.cnf", "ssl/ca-bundle.pem", "ca-certificates/extracted"];

/// Bundles that TLS clients open by name, wherever they really lie.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// What every box has of the system.
pub(super) struct SystemView {
    pub entries: Vec<Entry>,
    pub links: Vec<Link>,
}

fn system(path: PathBuf, file: Option<Kind>) -> Entry {
    let origin = Origin::BuiltIn("system directories".into());
    Entry { path, kind: EntryKind::System, origin, why: None, file, id: None }
}

pub(super) fn view(facts: &Facts, home: &Path, extra_bundles: &[PathBuf]) -> SystemView {
    let mut view = SystemView { entries: Vec::new(), links: Vec::new() };
    for dir in &facts.system {
        match dir {
            SystemDir::Dir(path) => view.entries.push(system(path.clone(), Some(Kind::Dir))),
            SystemDir::Link { at, target } => view.links.push(Link { at: at.clone(), target: target.clone() }),
        }
    }
    for entry in facts.etc.iter().filter(|entry| picked(&entry.name)) {
        let path = Path::new("/etc").join(&entry.name);
        if entry.link {
            follow(&mut view, &path);
        } else {
            view.entries.push(system(path, Some(if entry.dir { Kind::Dir } else { Kind::File })));
        }
    }
    for name in SSL.iter().filter(|name| listed(facts, Path::new(name))) {
        follow(&mut view, &Path::new("/etc").join(name));
    }
    let mut bundles: Vec<&Path> =
        BUNDLES.iter().map(Path::new).chain(extra_bundles.iter().map(PathBuf::as_path)).collect();
    bundles.sort_unstable();
    bundles.dedup();
    bundles.retain(|path| path.strip_prefix("/etc").map_or(true, |name| listed(facts, name)));
    bundles.into_iter().for_each(|path| follow(&mut view, path));
    made(&mut view, facts, home);
    places(&mut view);
    view
}

/// Does /etc hold the first component of this path?
fn listed(facts: &Facts, name: &Path) -> bool {
    name.components().next().is_some_and(|first| facts.etc.iter().any(|entry| entry.name == first.as_os_str()))
}

fn picked(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    ETC.iter().any(|pick| match pick.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *pick,
    })
}

/// Adds what `path` leads to, and every link on the way that no directory of the view holds already. Only the target
/// itself is exposed, not the directory it lies in. What does not resolve is left out: so it is on the host.
fn follow(view: &mut SystemView, path: &Path) {
    let Some(found) = resolve_existing(path) else { return };
    let covered = |view: &SystemView, path: &Path| view.entries.iter().any(|entry| is_at_or_below(path, &entry.path));
    for link in found.links {
        if !covered(view, &link.at) && !view.links.contains(&link) {
            view.links.push(link);
        }
    }
    let path = found.path.into_path_buf();
    if !covered(view, &path) && matches!(found.kind, Kind::File | Kind::Dir) {
        view.entries.push(system(path, Some(found.kind)));
    }
}

fn made(view: &mut SystemView, facts: &Facts, home: &Path) {
    let account = &facts.account;
    let (uid, gid) = (facts.uid, facts.gid);
    let home = home.display().to_string();
    // A colon or a newline would forge another field or user.
    let home = if home.contains([':', '\n']) { "/" } else { home.as_str() };
    let mut passwd = format!("{}:x:{uid}:{gid}:{}:{home}:{}\n", account.name, account.name, account.shell);
    let mut group = format!("{}:x:{gid}:\n", account.group);
    if uid != 0 {
        passwd.insert_str(0, "root:x:0:0:root:/root:/usr/sbin/nologin\n");
    }
    if gid != 0 {
        group.insert_str(0, "root:x:0:\n");
    }
    if uid != 65534 {
        passwd.push_str("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    }
    if gid != 65534 {
        group.push_str("nogroup:x:65534:\n");
    }
    let files = [("/etc/passwd", passwd), ("/etc/group", group), ("/etc/machine-id", String::new())];
    for (path, content) in files {
        view.entries.push(Entry {
            path: path.into(),
            kind: EntryKind::Made(content.into_bytes()),
            origin: Origin::BuiltIn("made up for this box".into()),
            why: None,
            file: Some(Kind::File),
            id: None,
        });
    }
}

fn places(view: &mut SystemView) {
    let places = [
        ("/tmp", EntryKind::Private(Private::Tmp)),
        ("/var/tmp", EntryKind::Private(Private::VarTmp)),
        ("/run", EntryKind::Private(Private::Run)),
        ("/dev/shm", EntryKind::Private(Private::Shm)),
        ("/dev", EntryKind::Dev),
        ("/proc", EntryKind::Proc),
    ];
    for (path, kind) in places {
        view.entries.push(Entry {
            path: path.into(),
            kind,
            origin: Origin::BuiltIn("private places".into()),
            why: None,
            file: Some(Kind::Dir),
            id: None,
        });
    }
    let cpu = Path::new("/sys/devices/system/cpu");
    if crate::path::identity(cpu).is_ok() {
        view.entries.push(system(cpu.into(), Some(Kind::Dir)));
    }
    view.links.push(Link { at: "/var/run".into(), target: "../run".into() });
}
