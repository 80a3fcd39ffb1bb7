//! Takes a live run back by its journal, as the journal's page says: what the journal holds is enough, or the trees
//! differ.

use agentbox::session::backup::{Identity, Journal, Kind, Node, Stored, What};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The state of a name, with all that must come back.
pub fn picture(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    // Names of one file stand for one another: the first of them, in order, is its mark.
    let mut links = HashMap::new();
    walk(root, root, &mut links, &mut lines);
    lines
}

fn walk(root: &Path, path: &Path, links: &mut HashMap<u64, PathBuf>, lines: &mut Vec<String>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let name = path.strip_prefix(root).unwrap();
    let file = meta.file_type();
    let content = if file.is_file() {
        let first = links.entry(meta.ino()).or_insert_with(|| name.to_path_buf()).clone();
        // A file that its owner cannot read is read all the same.
        let mode = meta.permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        let bytes = fs::read(path).unwrap();
        fs::set_permissions(path, mode).unwrap();
        format!("{first:?} {:?}", String::from_utf8_lossy(&bytes))
    } else if file.is_symlink() {
        format!("{:?}", fs::read_link(path).unwrap())
    } else {
        String::new()
    };
    let time = if file.is_symlink() { String::new() } else { format!("{}.{}", meta.mtime(), meta.mtime_nsec()) };
    lines.push(format!(
        "{name:?} {:o} {}:{} {time} {content} {:?}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        probe_attribute(path)
    ));
    if file.is_dir() {
        let mut names: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names.iter().for_each(|name| walk(root, name, links, lines));
    }
}

fn probe_attribute(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 64];
    let length = rustix::fs::lgetxattr(path, "user.probe", &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

pub struct Replay {
    dir: PathBuf,
    /// Which file stands for which, where one was put back as a new one.
    stands_for: HashMap<Identity, Identity>,
}

impl Replay {
    /// From the last entry to the first.
    pub fn back(journal: &Journal) {
        let mut replay = Replay { dir: journal.dir.clone(), stands_for: HashMap::new() };
        for entry in journal.entries.iter().rev() {
            replay.one(&entry.what);
        }
    }

    fn one(&mut self, what: &What) {
        match what {
            What::Created { path } => remove(path),
            What::Content { path, before } => {
                let stored = before.stored.as_ref().expect("nothing was lost");
                let (Stored::Copy(file) | Stored::Link(file)) = stored;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
                fs::write(path, fs::read(self.dir.join(file)).unwrap()).unwrap();
                attributes(path, before);
            }
            // A change of a name that did not come to be, for one.
            What::Attributes { path, .. } if fs::symlink_metadata(path).is_err() => {}
            What::Attributes { path, before } => attributes(path, before),
            What::Removed { path, before } => self.put_back(path, before),
            What::Renamed { from, to, moved, replaced } => {
                if self.is(to, moved) && fs::symlink_metadata(from).is_err() {
                    fs::rename(to, from).unwrap();
                }
                if let Some(node) = replaced {
                    self.put_back(to, node);
                }
            }
            What::Exchanged { a, b, was_a, was_b } => {
                let absent = |path: &Path| fs::symlink_metadata(path).is_err();
                match (self.is(a, was_b), self.is(b, was_a)) {
                    (true, true) => {
                        let aside = a.with_file_name("..aside");
                        fs::rename(a, &aside).unwrap();
                        fs::rename(b, a).unwrap();
                        fs::rename(&aside, b).unwrap();
                    }
                    // The other was the command's own, and gone since.
                    (true, false) if absent(b) => fs::rename(a, b).unwrap(),
                    (false, true) if absent(a) => fs::rename(b, a).unwrap(),
                    _ => {}
                }
            }
            What::Lost { path, why } => panic!("{}: {why}", path.display()),
            What::Left { .. } => {}
        }
    }

    fn is(&self, path: &Path, wanted: &Identity) -> bool {
        identity(path).is_some_and(|found| found == *wanted || self.stands_for.get(wanted) == Some(&found))
    }

    fn put_back(&mut self, path: &Path, node: &Node) {
        if fs::symlink_metadata(path).is_ok() {
            // It was never taken away.
            return;
        }
        match (&node.kind, &node.stored) {
            (Kind::Dir, _) => fs::create_dir(path).unwrap(),
            (Kind::Symlink { target }, _) => symlink(target, path).unwrap(),
            (Kind::Fifo, _) => nix::unistd::mkfifo(path, nix::sys::stat::Mode::empty()).unwrap(),
            (Kind::File, Some(Stored::Link(file))) => fs::hard_link(self.dir.join(file), path).unwrap(),
            (Kind::File, Some(Stored::Copy(file))) => fs::write(path, fs::read(self.dir.join(file)).unwrap()).unwrap(),
            // An earlier entry has its content.
            (Kind::File, None) => fs::write(path, "").unwrap(),
            (Kind::Socket | Kind::Device, _) => panic!("{path:?}"),
        }
        if let Some(found) = identity(path) {
            self.stands_for.insert(node.identity, found);
        }
        attributes(path, node);
    }
}

fn identity(path: &Path) -> Option<Identity> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, flags).ok()?;
    let told = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec);
    let dev = makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Some(Identity { dev, ino: stat.stx_ino, born: if told { born } else { 0 } })
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

fn attributes(path: &Path, node: &Node) {
    let link = matches!(node.kind, Kind::Symlink { .. });
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::lchown(path, Some(node.uid), Some(node.gid)).unwrap();
    }
    if link {
        return;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    if let Some(wanted) = &node.attributes {
        let name = CString::new("user.probe").unwrap();
        match wanted.iter().find(|attribute| attribute.name.as_bytes() == b"user.probe") {
            Some(attribute) => {
                rustix::fs::setxattr(path, &name, &attribute.value, rustix::fs::XattrFlags::empty()).unwrap()
            }
            None => rustix::fs::removexattr(path, &name).unwrap_or(()),
        }
    }
    fs::set_permissions(path, fs::Permissions::from_mode(node.mode)).unwrap();
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
    let time = Timespec {
        tv_sec: i64::try_from(node.modified.div_euclid(1_000_000_000)).unwrap(),
        tv_nsec: i64::try_from(node.modified.rem_euclid(1_000_000_000)).unwrap(),
    };
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = Timestamps { last_access: omit, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
