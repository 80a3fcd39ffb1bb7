//! The roots that the user, the profile and the working directory name, each resolved and checked.

use super::names::{Effect, NameRule, Rank};
use super::{Entry, EntryKind, PolicyError};
use crate::path::{Kind, Link, ResolveError, Resolved, identity, is_at_or_below, lexical, resolve};
use crate::profile::{GrantAccess, Origin, PathEntry, Profile, Written};
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// What has been collected so far.
pub(super) struct Roots<'a> {
    cwd: &'a Path,
    home: &'a Path,
    /// agentbox's own directories, as they are named and where they really lie.
    own: Vec<PathBuf>,
    grant_home: bool,
    pub entries: Vec<(Rank, Entry)>,
    pub links: Vec<Link>,
    pub notices: Vec<String>,
    /// Rules about one very path: hide and grant arguments that exist, and agentbox's own files.
    pub literals: Vec<NameRule>,
    /// Hide and grant arguments that were taken as a path: they are no glob as well.
    pub as_path: Vec<(Rank, String)>,
}

impl<'a> Roots<'a> {
    pub fn new(cwd: &'a Path, home: &'a Path, own_dirs: &'a [PathBuf], grant_home: bool) -> Roots<'a> {
        let mut roots = Roots {
            cwd,
            home,
            own: Vec::new(),
            grant_home,
            entries: Vec::new(),
            links: Vec::new(),
            notices: Vec::new(),
            literals: Vec::new(),
            as_path: Vec::new(),
        };
        for dir in own_dirs {
            // Hidden whether they exist by now or are made by this very run, and a link to them as well.
            let (path, linked) = match resolve(dir, cwd) {
                Ok(found) => (found.path.into_path_buf(), !found.links.is_empty()),
                Err(ResolveError::Missing { parent, rest, links, .. }) => {
                    (lexical(&parent.join(rest)), !links.is_empty())
                }
                Err(_) => (lexical(dir), true),
            };
            roots.own.push(path);
            if !linked {
                continue;
            }
            let name = dir.file_name().unwrap_or_default();
            if let Some(Ok(parent)) = dir.parent().map(|parent| resolve(parent, cwd)) {
                roots.own.push(parent.path.join(name.as_ref()));
            }
        }
        roots.own.sort();
        roots.own.dedup();
        for path in &roots.own {
            let origin = Origin::BuiltIn("agentbox's own directories".into());
            let found = identity(path).ok();
            let file = match found {
                None | Some((_, FileType::Directory)) => Some(Kind::Dir),
                Some((_, FileType::Symlink)) => None,
                Some(_) => Some(Kind::File),
            };
            let id = found.map(|(id, _)| id);
            let entry = Entry { path: path.clone(), kind: EntryKind::Hide, origin, why: None, file, id };
            roots.entries.push((Rank::BuiltIn, entry));
        }
        roots.literals.push(NameRule {
            text: "agentbox.toml".into(),
            literal: false,
            effect: Effect::Freeze,
            rank: Rank::BuiltIn,
            origin: Origin::BuiltIn("agentbox's own project file".into()),
        });
        roots
    }

    /// Takes all roots, sockets and literal hide and grant arguments of one source.
    pub fn collect(&mut self, source: &Profile, rank: Rank) -> Result<(), PolicyError> {
        let fs = &source.filesystem;
        for (list, kind) in [
            (&fs.rw, EntryKind::Rw),
            (&fs.scratch, EntryKind::Scratch),
            (&fs.ro, EntryKind::Ro),
            (&source.network.sockets, EntryKind::Socket),
        ] {
            for written in list {
                self.root(written, &kind, rank)?;
            }
        }
        for hide in &fs.hide {
            self.hide(&hide.value, &hide.origin, rank);
        }
        for grant in &fs.grant {
            let effect = match grant.value.access {
                GrantAccess::Ro => Effect::GrantRo,
                GrantAccess::Rw => Effect::GrantRw,
            };
            self.grant(&grant.value.glob, effect, &grant.origin, rank);
        }
        Ok(())
    }

    /// `~` is HOME in a profile; on the command line the shell has seen to it.
    fn expand(&self, path: &Path, origin: &Origin) -> PathBuf {
        if matches!(origin, Origin::CommandLine(_)) {
            return path.to_path_buf();
        }
        match path.strip_prefix("~") {
            Ok(rest) => self.home.join(rest),
            Err(_) => path.to_path_buf(),
        }
    }

    fn root(&mut self, written: &Written<PathEntry>, kind: &EntryKind, rank: Rank) -> Result<(), PolicyError> {
        let PathEntry { path, optional, why } = &written.value;
        let asked = self.expand(Path::new(path), &written.origin);
        let origin = written.origin.to_string();
        match resolve(&asked, self.cwd) {
            Ok(found) => self.add(found, kind.clone(), rank, &written.origin, why.clone()),
            Err(_) if *optional => {
                self.notices.push(format!("{origin}: {} does not exist: left out", asked.display()));
                Ok(())
            }
            // Below a writable root the command may make it itself: no mount is needed.
            Err(ResolveError::Missing { parent, .. }) if *kind == EntryKind::Rw && self.below_writable(&parent) => {
                Ok(())
            }
            Err(error) => Err(PolicyError::Path { origin, error }),
        }
    }

    fn below_writable(&self, path: &Path) -> bool {
        let deepest = self
            .entries
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| is_at_or_below(path, &entry.path))
            .max_by_key(|entry| entry.path.as_os_str().len());
        deepest.is_some_and(|entry| matches!(entry.kind, EntryKind::Rw | EntryKind::Scratch))
    }

    fn add(
        &mut self,
        found: Resolved,
        kind: EntryKind,
        rank: Rank,
        origin: &Origin,
        why: Option<String>,
    ) -> Result<(), PolicyError> {
        let path = found.path.into_path_buf();
        let named = origin.to_string();
        match (&kind, found.kind) {
            (EntryKind::Socket, Kind::Socket) => {}
            (EntryKind::Socket, _) => return Err(PolicyError::NotASocket { path, origin: named }),
            (_, Kind::Dir | Kind::File) => {}
            (_, Kind::Socket | Kind::Device | Kind::Fifo) => return Err(PolicyError::BadKind { path, origin: named }),
        }
        self.check(&path, &kind, &named)?;
        self.links.extend(found.links);
        let entry = Entry { path, kind, origin: origin.clone(), why, file: Some(found.kind), id: Some(found.id) };
        self.entries.push((rank, entry));
        Ok(())
    }

    pub(super) fn check(&self, path: &Path, kind: &EntryKind, origin: &str) -> Result<(), PolicyError> {
        if path == Path::new("/") {
            return Err(PolicyError::WholeSystem { origin: origin.into() });
        }
        let writable = matches!(kind, EntryKind::Rw | EntryKind::Scratch);
        if writable && self.home.starts_with(path) && !self.grant_home {
            return Err(PolicyError::TooWide { path: path.into(), origin: origin.into(), home: self.home.into() });
        }
        if path.starts_with("/proc") || path.starts_with("/dev") {
            return Err(PolicyError::Conflict {
                text: format!("{origin}: {} cannot be a root: the box has its own /proc and /dev", path.display()),
                hint: "leave it out; docs/profiles.md lists what /proc and /dev hold inside".into(),
            });
        }
        for own in &self.own {
            let overlaps = path.starts_with(own) || (*kind == EntryKind::Scratch && own.starts_with(path));
            if overlaps {
                return Err(PolicyError::OwnState { path: path.into(), state: own.clone(), origin: origin.into() });
            }
        }
        Ok(())
    }

    /// A grant below a hidden path becomes an entry of its own: the hidden directory then holds that alone.
    pub fn grants_below_hidden(&mut self) {
        let hidden: Vec<PathBuf> = self
            .entries
            .iter()
            .filter(|(rank, entry)| entry.kind == EntryKind::Hide && *rank != Rank::BuiltIn)
            .map(|(_, entry)| entry.path.clone())
            .collect();
        for rule in self.literals.clone().into_iter().filter(|rule| rule.literal) {
            let path = PathBuf::from(&*rule.text);
            let below = hidden.iter().any(|hide| path.starts_with(hide) && path != *hide);
            let (true, Ok((id, kind))) = (below, identity(&path)) else { continue };
            let file = if kind == FileType::Directory { Kind::Dir } else { Kind::File };
            if file == Kind::File && kind != FileType::RegularFile {
                continue;
            }
            let kind = if rule.effect == Effect::GrantRw { EntryKind::Rw } else { EntryKind::Ro };
            let entry = Entry { path, kind, origin: rule.origin, why: None, file: Some(file), id: Some(id) };
            self.entries.push((rule.rank, entry));
        }
    }

    /// Where a live writable root holds agentbox's own directories the command could plant what the next run obeys. What
    /// is there is masked, and the directories on the way are pinned, so that none of them can be moved to free the name;
    /// what is not there cannot be kept from being made.
    pub fn guard_own(&self) -> Result<Vec<PathBuf>, PolicyError> {
        let mut pins = Vec::new();
        for (_, root) in self.entries.iter().filter(|(_, entry)| entry.kind == EntryKind::Rw) {
            for own in self.own.iter().filter(|own| is_at_or_below(own, &root.path)) {
                if identity(own).is_err() {
                    let (path, state) = (root.path.clone(), own.clone());
                    return Err(PolicyError::OwnState { path, state, origin: root.origin.to_string() });
                }
                let way = own.ancestors().skip(1).take_while(|dir| *dir != root.path);
                pins.extend(way.map(Path::to_path_buf));
            }
        }
        pins.sort();
        pins.dedup();
        Ok(pins)
    }

    /// Without a writable root the working directory is the one, unless a root covers it already.
    pub fn implicit(&mut self, cwd: &Resolved) -> Result<(), PolicyError> {
        let path = cwd.path.as_path();
        let mut roots = self.entries.iter().map(|(_, entry)| entry).filter(|entry| entry.kind.is_root());
        let writable = |entry: &Entry| matches!(entry.kind, EntryKind::Rw | EntryKind::Scratch);
        if roots.clone().any(writable) || roots.any(|root| is_at_or_below(path, &root.path)) {
            return Ok(());
        }
        let origin = Origin::BuiltIn("the working directory".into());
        self.add(cwd.clone(), EntryKind::Rw, Rank::CommandLine, &origin, None)
    }

    /// Does a root of the user's hold `path`?
    pub fn covers(&self, path: &Path) -> bool {
        self.entries.iter().any(|(_, entry)| entry.kind.is_root() && is_at_or_below(path, &entry.path))
    }

    pub fn toolchain(&mut self, found: Resolved) {
        self.links.extend(found.links);
        let entry = Entry {
            path: found.path.into_path_buf(),
            kind: EntryKind::System,
            origin: Origin::BuiltIn("toolchains on PATH".into()),
            why: None,
            file: Some(found.kind),
            id: Some(found.id),
        };
        self.entries.push((Rank::BuiltIn, entry));
    }

    /// A hide argument that exists is that path: the name itself, and for a symlink what it leads to as well.
    fn hide(&mut self, text: &str, origin: &Origin, rank: Rank) {
        let Some(named) = self.existing(text, origin) else { return };
        // A file with the very name of a pattern does not take the pattern away: a cloned repository could bring one.
        if !text.contains(['*', '?', '[', '{']) {
            self.as_path.push((rank, text.to_owned()));
        }
        let mut paths = vec![named.clone()];
        if let Ok(target) = resolve(&named, self.cwd) {
            self.links.extend(target.links);
            let target = target.path.into_path_buf();
            if target != named {
                paths.push(target);
            }
        }
        for path in paths.into_iter().filter(|path| path != Path::new("/")) {
            let file = match identity(&path) {
                Ok((_, FileType::Directory)) => Some(Kind::Dir),
                Ok((_, FileType::Symlink)) | Err(_) => None,
                Ok(_) => Some(Kind::File),
            };
            let id = identity(&path).ok().map(|(id, _)| id);
            let entry = Entry { path, kind: EntryKind::Hide, origin: origin.clone(), why: None, file, id };
            self.entries.push((rank, entry));
        }
    }

    /// A grant argument that exists is that path alone, and it beats any pattern.
    fn grant(&mut self, text: &str, effect: Effect, origin: &Origin, rank: Rank) {
        let Some(path) = self.existing(text, origin) else { return };
        self.as_path.push((rank, text.to_owned()));
        if let Some(text) = path.to_str() {
            self.literals.push(NameRule {
                text: text.to_owned().into(),
                literal: true,
                effect,
                rank,
                origin: origin.clone(),
            });
        }
    }

    /// The path that a hide or grant argument names literally: canonical but for its last component. In a profile only
    /// an argument that begins with `/` or `~/` can be one: there the working directory says nothing.
    fn existing(&self, text: &str, origin: &Origin) -> Option<PathBuf> {
        let typed = matches!(origin, Origin::CommandLine(_));
        if !typed && !text.starts_with('/') && !text.starts_with("~/") {
            return None;
        }
        let asked = self.cwd.join(self.expand(Path::new(text), origin));
        let name = asked.file_name()?;
        let parent = resolve(asked.parent()?, self.cwd).ok()?;
        let path = parent.path.join(name.as_ref());
        identity(&path).ok().map(|_| path)
    }
}
