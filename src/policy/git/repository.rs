//! Which repository a root belongs to, as git finds it: `.git` in the root or above it, a directory or a pointer
//! (gitrepository-layout(5)). A pointer is followed out of the root only to what points back: a stranger can write the
//! one end of it, never the other.

use super::config::{self, Setting};
use super::inner::POINTERS;
use super::read::{Held, SMALL};
use crate::path::{Kind, resolve};
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A repository as one working tree sees it. All paths are canonical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The top of the working tree.
    pub top: PathBuf,
    /// The working tree's own: index, HEAD.
    pub dir: PathBuf,
    /// Shared by all working trees: objects, references, configuration, hooks.
    pub common: PathBuf,
    /// Bytes of an object's name.
    pub hash: usize,
    /// Files and directories of the working tree that the configuration obeys: redirected hooks, included files.
    pub obeyed: Vec<PathBuf>,
    /// Working trees that lie elsewhere, by their directories in `common`.
    pub others: Vec<OtherTree>,
    /// Somebody else's, as far as git looks at owners.
    pub foreign: bool,
    /// Pointers that the repository does not have, and that nothing can keep from being made in a live run.
    pub absent: Vec<PathBuf>,
    /// Where the objects lie that are in another repository.
    pub alternates: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherTree {
    pub dir: PathBuf,
    /// The top of that working tree, as it is written down.
    pub top: PathBuf,
}

/// A `.git` that is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forged {
    pub at: PathBuf,
    pub to: Option<PathBuf>,
    pub why: &'static str,
}

impl fmt::Display for Forged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            Some(to) => write!(f, "{} points to {}, {}", self.at.display(), to.display(), self.why),
            None => write!(f, "{} {}", self.at.display(), self.why),
        }
    }
}

/// So many other working trees are looked at.
const MOST_TREES: usize = 4096;

/// The repository that the directory `root` lies in. Above the root it is looked for as git does, on the same file system,
/// below HOME, and only where it is the caller's own.
///
/// # Errors
/// A `.git` that is neither a repository nor a pointer to one that points back.
pub fn find(root: &Path, home: &Path) -> Result<Option<Repository>, Forged> {
    let device = |path: &Path| crate::path::identity(path).ok().map(|(id, _)| id.dev);
    let of_root = device(root);
    for dir in root.ancestors() {
        let above = dir != root;
        if above && (home.starts_with(dir) || device(dir) != of_root) {
            break;
        }
        let Ok(held) = Held::open(dir) else { break };
        let at = dir.join(".git");
        match held.kind(".git") {
            None => {}
            Some(_) if above && !is_ours(&at) => break,
            Some(FileType::Directory) if is_repository(&at) => return whole(dir, at).map(Some),
            Some(FileType::Directory) => {}
            Some(FileType::RegularFile) => return pointed(&held, dir, at).map(Some),
            Some(FileType::Symlink) => {
                return Err(Forged { at, to: None, why: "is a symlink: git's own pointers are files" });
            }
            Some(_) => return Err(Forged { at, to: None, why: "is neither a directory nor a file" }),
        }
    }
    Ok(None)
}

fn uid_of(path: &Path) -> Option<u32> {
    rustix::fs::lstat(path).ok().map(|stat| stat.st_uid)
}

fn is_ours(path: &Path) -> bool {
    uid_of(path) == Some(rustix::process::getuid().as_raw())
}

/// Has it what git asks of a repository's directory?
fn is_repository(dir: &Path) -> bool {
    let Ok(held) = Held::open(dir) else { return false };
    let directory = |name| held.kind(name) == Some(FileType::Directory);
    held.kind("HEAD").is_some() && directory("objects") && directory("refs")
}

fn whole(top: &Path, dir: PathBuf) -> Result<Repository, Forged> {
    match Held::open(&dir).ok().and_then(|held| held.kind("commondir")) {
        None => Ok(repository(top, dir.clone(), dir)),
        Some(_) => {
            Err(Forged { at: dir.join("commondir"), to: None, why: "makes a repository obey another directory" })
        }
    }
}

fn pointed(held: &Held, top: &Path, at: PathBuf) -> Result<Repository, Forged> {
    let text = held.line(".git").filter(|line| line.as_os_str().as_bytes().starts_with(b"gitdir: "));
    let Some(text) = text else {
        return Err(Forged { at, to: None, why: "is no pointer of git's (`gitdir: PATH`)" });
    };
    let written = Path::new(OsStr::from_bytes(&text.as_os_str().as_bytes()[8..]));
    let forged = |to: &Path, why| Forged { at: at.clone(), to: Some(to.to_path_buf()), why };
    let dir = directory(&top.join(written)).ok_or_else(|| forged(written, "where no directory is"))?;
    let there = Held::open(&dir).map_err(|_| forged(&dir, "which cannot be opened"))?;
    let Some(common) = there.line("commondir") else {
        // A submodule, or a repository that was made apart: its configuration names the working tree.
        let settings = settings(&there);
        let tree = last(&settings, "core", "worktree").and_then(|tree| directory(&dir.join(tree)));
        let back = tree.is_some_and(|tree| tree == top) || dir.starts_with(top);
        return match back && is_repository(&dir) {
            true => Ok(repository(top, dir.clone(), dir)),
            false => Err(forged(&dir, "which does not point back")),
        };
    };
    let common = directory(&dir.join(common)).filter(|common| is_repository(common));
    let common = common.ok_or_else(|| forged(&dir, "which leads to no repository"))?;
    let back = there.line("gitdir").and_then(|back| resolve(&dir.join(back), Path::new("/")).ok());
    let back = back.is_some_and(|back| back.path.as_path() == at);
    if !back || dir.parent() != Some(&common.join("worktrees")) {
        return Err(forged(&dir, "which does not point back"));
    }
    match Held::open(&common).ok().and_then(|held| held.kind("commondir")) {
        None => Ok(repository(top, dir, common)),
        Some(_) => Err(forged(&dir, "whose repository obeys another directory")),
    }
}

fn directory(path: &Path) -> Option<PathBuf> {
    let found = resolve(path, Path::new("/")).ok()?;
    (found.kind == Kind::Dir).then(|| found.path.into_path_buf())
}

fn settings(held: &Held) -> Vec<Setting> {
    let text = held.file(Path::new("config"), SMALL);
    text.map_or_else(Vec::new, |found| config::parse(&found.bytes))
}

fn last<'a>(settings: &'a [Setting], section: &str, key: &str) -> Option<&'a Path> {
    let value = settings.iter().rev().find(|setting| setting.is(section, key))?.value.as_ref()?;
    Some(Path::new(OsStr::from_bytes(value)))
}

fn repository(top: &Path, dir: PathBuf, common: PathBuf) -> Repository {
    let held = Held::open(&common).ok();
    let settings = held.as_ref().map_or_else(Vec::new, settings);
    let sha256 = last(&settings, "extensions", "objectformat").is_some_and(|format| format == Path::new("sha256"));
    let mut obeyed: Vec<PathBuf> = obeyed(&settings, &common).collect();
    // Relative to where a hook runs, which is the top of the working tree.
    obeyed.extend(last(&settings, "core", "hookspath").map(|hooks| crate::path::lexical(&top.join(hooks))));
    let lines = held.as_ref().and_then(|held| held.file(Path::new("objects/info/alternates"), SMALL));
    let lines = lines.map_or_else(Vec::new, |found| found.bytes);
    let alternates = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#');
    let objects = common.join("objects");
    let alternates = alternates.map(|line| crate::path::lexical(&objects.join(OsStr::from_bytes(line)))).collect();
    let ours = rustix::process::getuid().as_raw();
    let foreign = [top, &dir, &common].iter().any(|path| uid_of(path) != Some(ours));
    let others = held.as_ref().map_or_else(Vec::new, |held| others(held, &common, &dir));
    let missing = |name: &&&str| held.as_ref().is_some_and(|held| held.kind(name).is_none());
    let absent = POINTERS.iter().filter(missing).map(|name| common.join(name)).collect();
    Repository {
        absent,
        top: top.to_path_buf(),
        hash: if sha256 { 32 } else { 20 },
        obeyed,
        others,
        foreign,
        alternates,
        dir,
        common,
    }
}

/// Files that a configuration includes, conditions aside: what is obeyed once is frozen always.
fn obeyed(settings: &[Setting], common: &Path) -> impl Iterator<Item = PathBuf> {
    let includes = settings
        .iter()
        .filter(|setting| setting.key == "path" && matches!(setting.section.as_str(), "include" | "includeif"));
    includes.filter_map(|setting| {
        let path = Path::new(OsStr::from_bytes(setting.value.as_ref()?));
        (!path.starts_with("~")).then(|| crate::path::lexical(&common.join(path)))
    })
}

/// The other working trees of a repository.
fn others(held: &Held, common: &Path, own: &Path) -> Vec<OtherTree> {
    let trees = held.names("worktrees", MOST_TREES).into_iter().map(|name| Path::new("worktrees").join(name));
    let other = |rel: PathBuf| {
        let dir = common.join(&rel);
        let pointer = held.line(rel.join("gitdir").to_str()?)?;
        let top = crate::path::lexical(&dir.join(pointer)).parent()?.to_path_buf();
        (dir != own).then_some(OtherTree { dir, top })
    };
    trees.filter_map(other).collect()
}
