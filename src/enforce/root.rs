//! The second stage: the new root, built beneath one descriptor, then pivoted into.

use super::isolate::Isolated;
use super::mount::{
    Held, MountError, attach, attach_at, call, clone_tree, destination, forbidden_on, leak, new_file_system, overlay,
    relative, set_attributes, source,
};
use super::{Injected, Launch, LayerDirs, StepError, git, whiteout};
use crate::path::FileId;
use crate::plan::{Private, RootStep, Whiteout, hints};
use crate::sys::MountAttr;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, move_mount, unmount,
};
use rustix::process::umask;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, MountError>;

/// Names in the scratch tmpfs, which itself is never visible inside; only these subtrees are.
const MASK_FILE: &str = "mask";
const MASK_DIR: &str = "void";
const NEW_ROOT: &str = "root";

fn private_name(place: Private) -> (&'static str, u32) {
    match place {
        Private::Tmp => ("tmp", 0o1777),
        Private::VarTmp => ("vartmp", 0o1777),
        Private::Run => ("run", 0o755),
        Private::Shm => ("shm", 0o1777),
        Private::Home => ("home", 0o700),
    }
}

/// In the new root; nothing of the old one is reachable.
pub(super) struct Rooted(pub(super) ());

impl Isolated {
    pub fn root(self, launch: &Launch<'_>) -> std::result::Result<Rooted, StepError> {
        let terminal = launch.terminal.as_ref().and_then(|terminal| terminal.name.clone());
        let mut builder = Builder {
            new: None,
            scratch: None,
            layers: launch.layers,
            terminal,
            numbered: 0,
            foreign: HashSet::new(),
            masks: [None, None],
            held: Held::default(),
            made: launch.plan.root.iter().map(content_size).sum(),
        };
        // Modes are the plan's, not the caller's; what the command makes follows the caller's again.
        let mask = umask(Mode::empty());
        for step in &launch.plan.root {
            if launch.injected == Some(Injected::Mount) && matches!(step, RootStep::NewRoot) {
                return Err(StepError::new(step, "Operation not permitted (injected)"));
            }
            builder.step(step).map_err(|error| explain(step, error))?;
        }
        umask(mask);
        // Descriptors of the scratch space and the new root go with all the others, when pid 1 stays behind or at exec.
        builder.scratch.into_iter().chain(builder.new).for_each(leak);
        Ok(Rooted(()))
    }
}

/// What the content of a file that the step makes takes of a tmpfs.
fn content_size(step: &RootStep) -> u64 {
    const PAGE: u64 = 4096;
    if let RootStep::File { content, .. } = step { (content.len() as u64).next_multiple_of(PAGE) } else { 0 }
}

fn explain(step: &RootStep, error: MountError) -> StepError {
    let hint = match (step, &error) {
        // Where capabilities over the new namespaces were taken (Ubuntu's AppArmor switch), the first mounts show it.
        (RootStep::Rprivate | RootStep::ScratchSpace { .. }, MountError::Errno(_, Errno::PERM | Errno::ACCESS)) => {
            Some(hints::USERNS)
        }
        (RootStep::Proc | RootStep::ProcForNested { .. }, MountError::Errno(_, Errno::PERM)) => Some(hints::PROC),
        (_, MountError::Errno("open_tree" | "mount_setattr" | "move_mount" | "fsopen", Errno::NOSYS)) => {
            Some(hints::KERNEL)
        }
        (RootStep::Overlay { .. }, MountError::Errno("fsopen overlay", _)) => Some(hints::OVERLAY_KERNEL),
        (RootStep::Overlay { .. }, MountError::Errno("fsconfig lowerdir" | "fsconfig userxattr", Errno::INVAL)) => {
            Some(hints::OVERLAY_KERNEL)
        }
        (RootStep::Overlay { layer: Some(_), .. }, MountError::Errno(_, Errno::INVAL | Errno::OPNOTSUPP)) => {
            Some(hints::LAYERS)
        }
        (RootStep::Index { .. }, MountError::Errno(_, Errno::OVERFLOW)) => {
            Some("the index has an owner or a group that a box of yours has not: use --live or --git=ro")
        }
        (RootStep::Overlay { .. }, MountError::Errno(_, Errno::LOOP | Errno::NODEV)) => {
            Some("this file system cannot be a layer of an overlay: use --live for this root")
        }
        _ => None,
    };
    let error = StepError::new(step, error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Attaches a mount on top of all others over "/", which needs no directory of the host: this process's own root stays
/// the mount below, so that paths of the host still mean the host's until the pivot.
pub(super) fn over_everything(tree: &OwnedFd) -> std::result::Result<(), Errno> {
    move_mount(tree, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A /proc of the own pid namespace; read-only where the kernel grants no other (inside a box that root started with
/// `--nested`).
pub(super) fn fresh_proc(attributes: MountAttrFlags) -> Result<OwnedFd> {
    match new_file_system("proc", &[], attributes) {
        Err(MountError::Errno(_, Errno::PERM)) => {
            new_file_system("proc", &[], attributes | MountAttrFlags::MOUNT_ATTR_RDONLY)
        }
        other => other,
    }
}

struct Builder<'a> {
    new: Option<OwnedFd>,
    scratch: Option<OwnedFd>,
    layers: &'a [LayerDirs],
    terminal: Option<PathBuf>,
    /// Counts the directories of the scratch tmpfs that have no name of their own.
    numbered: u32,
    /// Where trees of the user's are mounted: below them others have a hand, and destinations are opened with care.
    foreign: HashSet<PathBuf>,
    /// The mount of an empty file and the one of an empty directory, read-only, once they are attached somewhere.
    masks: [Option<OwnedFd>; 2],
    held: Held,
    /// Bytes that the made-up files take of the scratch space, beside what is the private places'.
    made: u64,
}

impl Builder<'_> {
    fn new_root(&self) -> Result<BorrowedFd<'_>> {
        self.new.as_ref().map(AsFd::as_fd).ok_or(MountError::Errno("no new root yet", Errno::BADF))
    }

    fn scratch(&self) -> Result<BorrowedFd<'_>> {
        self.scratch.as_ref().map(AsFd::as_fd).ok_or(MountError::Errno("no scratch space yet", Errno::BADF))
    }

    fn step(&mut self, step: &RootStep) -> Result<()> {
        match step {
            RootStep::Rprivate => {
                let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                call("mount", mount_change("/", flags))
            }
            RootStep::NewRoot => self.new_root_of_scratch(),
            RootStep::ScratchSpace { bytes } => self.scratch_space(*bytes),
            RootStep::Dir { at, mode } => self.dir(at, *mode),
            RootStep::File { at, content } => self.file(at, content),
            RootStep::Symlink { at, target } => match symlinkat(target, self.new_root()?, relative(at)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(MountError::Errno("symlinkat", errno)),
            },
            RootStep::System { from, at } => self.system(from, at),
            RootStep::SealRoot => {
                let set = MountAttr::RDONLY | MountAttr::NOSUID | MountAttr::NODEV;
                call("mount_setattr", set_attributes(self.new_root()?, set))
            }
            RootStep::Device { name } => self.device(&Path::new("/dev").join(name), &Path::new("/dev").join(name)),
            RootStep::Devpts => self.devpts(),
            RootStep::Terminal => match self.terminal.clone() {
                Some(path) => self.device(&path, Path::new("/dev/console")),
                None => Ok(()),
            },
            RootStep::ProcForNested { writable } => self.proc_for_nested(*writable),
            RootStep::Proc => self.proc(),
            RootStep::PidMax { processes } => self.pid_max(*processes),
            RootStep::ProcReadOnly { at } => self.proc_read_only(Path::new(at)),
            RootStep::ProcHide { at } => self.mask(Path::new(at), *at == "/proc/acpi" || *at == "/proc/scsi"),
            RootStep::Private { at, place } => self.private(at, *place),
            RootStep::Bind { from, at, writable, id } => self.bind(from, at, *writable, *id),
            RootStep::Overlay { lower, at, layer, whiteouts, id } => self.overlay(lower, at, *layer, whiteouts, *id),
            RootStep::Shell { at, children } => self.shell(at, children),
            RootStep::Pin { at } => self.over_itself(at, 0),
            RootStep::Freeze { at, .. } => self.over_itself(at, MountAttr::RDONLY),
            RootStep::Mask { at, dir, .. } => self.mask(at, *dir),
            RootStep::Index { at, content, modified, bound: false, .. } => {
                git::write_index(self.new_root()?, at, content, *modified)
            }
            RootStep::Index { at, content, modified, bound: true, .. } => {
                let dir = self.numbered_dir("index", 0o755)?;
                git::bind_index(self.new_root()?, dir.as_fd(), at, content, *modified)
            }
            RootStep::Twin { at, names, .. } => {
                let dir = self.numbered_dir("twin", 0o755)?;
                git::twin(self.new_root()?, dir.as_fd(), at, names)
            }
            RootStep::PivotRoot => self.pivot(),
            RootStep::DetachOldRoot => {
                // After pivot_root(".", ".") the old root lies on top of the new one here (pivot_root(2), NOTES), and
                // below it the scratch space.
                call("umount2", unmount(".", UnmountFlags::DETACH))?;
                call("chdir", rustix::process::chdir("/"))
            }
        }
    }

    fn new_root_of_scratch(&mut self) -> Result<()> {
        call("mkdirat", mkdirat(self.scratch()?, NEW_ROOT, Mode::from_raw_mode(0o755)))?;
        let new = call("open_tree", clone_tree(self.scratch()?, Path::new(NEW_ROOT), false))?;
        call("move_mount", over_everything(&new))?;
        self.new = Some(new);
        Ok(())
    }

    fn scratch_space(&mut self, bytes: u64) -> Result<()> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let size = bytes.saturating_add(self.made).to_string();
        let scratch = new_file_system("tmpfs", &[("size", &size)], attributes)?;
        for place in [Private::Tmp, Private::VarTmp, Private::Run, Private::Shm, Private::Home] {
            let (name, mode) = private_name(place);
            call("mkdirat", mkdirat(&scratch, name, Mode::from_raw_mode(mode)))?;
        }
        call("mknodat", mknodat(&scratch, MASK_FILE, FileType::RegularFile, Mode::empty(), 0))?;
        call("mkdirat", mkdirat(&scratch, MASK_DIR, Mode::empty()))?;
        call("move_mount", over_everything(&scratch))?;
        self.scratch = Some(scratch);
        Ok(())
    }

    fn dir(&self, at: &Path, mode: u32) -> Result<()> {
        match mkdirat(self.new_root()?, relative(at), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(MountError::Errno("mkdirat", errno)),
        }
    }

    fn file(&self, at: &Path, content: &[u8]) -> Result<()> {
        let mode = Mode::from_raw_mode(0o644);
        if content.is_empty() {
            return match mknodat(self.new_root()?, relative(at), FileType::RegularFile, mode, 0) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(MountError::Errno("mknodat", errno)),
            };
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = call("openat", openat(self.new_root()?, relative(at), flags, mode))?;
        let written = call("write", rustix::io::write(&fd, content))?;
        // Closed now: a file that is open for writing keeps the seal from making its mount read-only.
        drop(fd);
        if written == content.len() { Ok(()) } else { Err(MountError::Errno("write", Errno::NOSPC)) }
    }

    fn system(&self, from: &Path, at: &Path) -> Result<()> {
        // Directories of the administrator's: whoever could swap one for a link owns the machine already.
        let tree = match clone_tree(CWD, from, true) {
            Ok(tree) => tree,
            // Gone since it was listed: so it is on the host.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(MountError::Errno("open_tree", errno)),
        };
        match attach_at(&tree, self.new_root()?, at) {
            Ok(()) => {
                leak(tree);
                Ok(())
            }
            // A file that was deleted under its mount (resolv.conf after a change of networks) can be mounted nowhere
            // else, but read.
            Err(Errno::NOENT) => self.copy_deleted(from, at),
            Err(errno) => Err(MountError::Errno("move_mount", errno)),
        }
    }

    fn copy_deleted(&self, from: &Path, at: &Path) -> Result<()> {
        const MOST: usize = 64 * 1024;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = call("open", rustix::fs::open(from, flags, Mode::empty()))?;
        let mut content = vec![0; MOST];
        let length = call("read", rustix::io::read(&source, &mut *content))?;
        if length == MOST {
            return Err(MountError::Errno("move_mount", Errno::NOENT));
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = call("openat", openat(self.new_root()?, relative(at), flags, Mode::empty()))?;
        let written = call("write", rustix::io::write(&copy, &content[..length]))?;
        if written == length { Ok(()) } else { Err(MountError::Errno("write", Errno::NOSPC)) }
    }

    fn device(&self, from: &Path, at: &Path) -> Result<()> {
        let tree = call("open_tree", clone_tree(CWD, from, false))?;
        call("mount_setattr", set_attributes(tree.as_fd(), MountAttr::NOSUID | MountAttr::NOEXEC))?;
        call("move_mount", attach_at(&tree, self.new_root()?, at))?;
        leak(tree);
        Ok(())
    }

    fn devpts(&self) -> Result<()> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let pts = new_file_system("devpts", &[("ptmxmode", "0666"), ("mode", "0620")], attributes)?;
        call("move_mount", attach_at(&pts, self.new_root()?, Path::new("/dev/pts")))?;
        leak(pts);
        Ok(())
    }

    fn proc(&self) -> Result<()> {
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let proc = fresh_proc(attributes)?;
        call("move_mount", attach_at(&proc, self.new_root()?, Path::new("/proc")))?;
        leak(proc);
        Ok(())
    }

    /// A directory over /proc, the proc in it, and the visible /proc over both: what lies below a mount has no path.
    fn proc_for_nested(&mut self, writable: bool) -> Result<()> {
        let mut attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        if !writable {
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        let dir = self.numbered_dir("nested", 0o755)?;
        call("mkdirat", mkdirat(&dir, "proc", Mode::from_raw_mode(0o755)))?;
        let cover = call("open_tree", clone_tree(dir.as_fd(), Path::new(""), false))?;
        call("move_mount", attach_at(&cover, self.new_root()?, Path::new("/proc")))?;
        let proc = fresh_proc(attributes)?;
        call("move_mount", attach_at(&proc, self.new_root()?, Path::new("/proc/proc")))
    }

    fn pid_max(&self, processes: u64) -> Result<()> {
        // The kernel refuses less than a few hundred (300 on small machines), and more than 4194304.
        let value = processes.clamp(400, 4_194_304).to_string();
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let fd = call("open pid_max", openat(self.new_root()?, "proc/sys/kernel/pid_max", flags, Mode::empty()))?;
        call("write pid_max", rustix::io::write(&fd, value.as_bytes()))?;
        Ok(())
    }

    fn proc_read_only(&self, at: &Path) -> Result<()> {
        let tree = match clone_tree(self.new_root()?, relative(at), true) {
            Ok(tree) => tree,
            // Not every kernel has it (sysrq-trigger, irq, bus).
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(MountError::Errno("open_tree", errno)),
        };
        call("mount_setattr", set_attributes(tree.as_fd(), MountAttr::RDONLY))?;
        call("move_mount", attach_at(&tree, self.new_root()?, at))?;
        leak(tree);
        Ok(())
    }

    fn private(&self, at: &Path, place: Private) -> Result<()> {
        let tree = call("open_tree", clone_tree(self.scratch()?, Path::new(private_name(place).0), false))?;
        call("move_mount", attach_at(&tree, self.new_root()?, at))?;
        leak(tree);
        Ok(())
    }

    fn bind(&mut self, from: &Path, at: &Path, writable: bool, id: Option<FileId>) -> Result<()> {
        let from = source(from, id)?;
        let tree = call("open_tree", clone_tree(from.as_fd(), Path::new(""), true))?;
        let mut set = MountAttr::NOSUID | MountAttr::NODEV;
        if !writable {
            set |= MountAttr::RDONLY;
        }
        call("mount_setattr", set_attributes(tree.as_fd(), set))?;
        self.attach_foreign(tree, at)
    }

    /// Attaches a tree of the user's. Below another such tree somebody else may have a hand in the way there; anywhere
    /// else the way was made a moment ago by these steps, and nobody can reach it before the pivot.
    fn attach_foreign(&mut self, tree: OwnedFd, at: &Path) -> Result<()> {
        if at.ancestors().skip(1).any(|above| self.foreign.contains(above)) {
            let target = call("openat2", destination(self.new_root()?, at))?;
            call("move_mount", attach(&tree, target.as_fd()))?;
            self.held.keep(target);
        } else {
            call("move_mount", attach_at(&tree, self.new_root()?, at))?;
        }
        self.foreign.insert(at.to_path_buf());
        self.held.keep(tree);
        Ok(())
    }

    fn overlay(
        &mut self,
        lower: &Path,
        at: &Path,
        layer: Option<usize>,
        whiteouts: &[Whiteout],
        id: Option<FileId>,
    ) -> Result<()> {
        let real = source(lower, id)?;
        let veil = if whiteouts.is_empty() {
            None
        } else {
            let dir = self.numbered_dir("whiteouts", 0o755)?;
            whiteout::fill(dir.as_fd(), real.as_fd(), whiteouts)?;
            Some(dir)
        };
        let lowers: Vec<BorrowedFd<'_>> = veil.iter().map(AsFd::as_fd).chain([real.as_fd()]).collect();
        let dirs = match layer {
            Some(layer) => {
                let dirs = self.layers.get(layer).ok_or(MountError::Errno("no such session layer", Errno::NOENT))?;
                Some((source(&dirs.upper, None)?, source(&dirs.work, None)?))
            }
            None => None,
        };
        let mount = overlay(&lowers, dirs.as_ref().map(|(upper, work)| (upper, work)), forbidden_on(&real)?)?;
        self.attach_foreign(mount, at)
    }

    fn shell(&mut self, at: &Path, children: &[(PathBuf, bool)]) -> Result<()> {
        let dir = self.numbered_dir("shell", 0o755)?;
        for (child, is_dir) in children {
            let Ok(inside) = child.strip_prefix(at) else { continue };
            let mut made = PathBuf::new();
            let count = inside.components().count();
            for (depth, part) in inside.components().enumerate() {
                made.push(part);
                let last = depth + 1 == count;
                let result = if last && !is_dir {
                    mknodat(&dir, &made, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)
                } else {
                    mkdirat(&dir, &made, Mode::from_raw_mode(0o755))
                };
                match result {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(MountError::Errno("mkdirat", errno)),
                }
            }
        }
        let tree = call("open_tree", clone_tree(dir.as_fd(), Path::new(""), false))?;
        call("mount_setattr", set_attributes(tree.as_fd(), MountAttr::RDONLY))?;
        let target = call("openat2", destination(self.new_root()?, at))?;
        call("move_mount", attach(&tree, target.as_fd()))
    }

    fn numbered_dir(&mut self, what: &str, mode: u32) -> Result<OwnedFd> {
        self.numbered += 1;
        let name = format!("{what}-{}", self.numbered);
        call("mkdirat", mkdirat(self.scratch()?, &name, Mode::from_raw_mode(mode)))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        call("openat", openat(self.scratch()?, &name, flags, Mode::empty()))
    }

    /// Mounts what stands at a path inside over itself, with attributes of its own.
    fn over_itself(&mut self, at: &Path, set: u64) -> Result<()> {
        let target = match destination(self.new_root()?, at) {
            Ok(target) => target,
            // Gone since the scan: there is nothing to freeze.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(MountError::Errno("openat2", errno)),
        };
        let tree = call("open_tree", clone_tree(target.as_fd(), Path::new(""), true))?;
        call("mount_setattr", set_attributes(tree.as_fd(), set))?;
        call("move_mount", attach(&tree, target.as_fd()))?;
        self.held.keep(tree);
        self.held.keep(target);
        Ok(())
    }

    fn mask(&mut self, at: &Path, dir: bool) -> Result<()> {
        let target = match destination(self.new_root()?, at) {
            Ok(target) => target,
            // /proc has not everything on every kernel; a name of a root that was there a moment ago may be back under it
            // in another.
            Err(Errno::NOENT | Errno::NOTDIR) if at.starts_with("/proc") => return Ok(()),
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(MountError::Changed),
            Err(errno) => return Err(MountError::Errno("openat2", errno)),
        };
        // A file becomes a directory between the scan and here: try the other kind before giving up.
        for dir in [dir, !dir] {
            let tree = self.new_mask(dir)?;
            match attach(&tree, target.as_fd()) {
                Ok(()) => {
                    self.held.keep(target);
                    if let Some(before) = self.masks[usize::from(dir)].replace(tree) {
                        self.held.keep(before);
                    }
                    return Ok(());
                }
                Err(Errno::INVAL | Errno::NOTDIR) => {}
                Err(errno) => return Err(MountError::Errno("move_mount", errno)),
            }
        }
        Err(MountError::Changed)
    }

    /// A read-only mount of an empty file or directory: a copy of the last one, which is so already, after the first.
    fn new_mask(&self, dir: bool) -> Result<OwnedFd> {
        if let Some(mask) = &self.masks[usize::from(dir)] {
            return call("open_tree", clone_tree(mask.as_fd(), Path::new(""), false));
        }
        let name = if dir { MASK_DIR } else { MASK_FILE };
        let tree = call("open_tree", clone_tree(self.scratch()?, Path::new(name), false))?;
        call("mount_setattr", set_attributes(tree.as_fd(), MountAttr::RDONLY))?;
        Ok(tree)
    }

    fn pivot(&self) -> Result<()> {
        // Off "/", and the new root with it: the old root then takes it along when it goes, in one umount2(2), each of
        // which waits for all processors. What it covers at /proc is the host's, and needed no more.
        let scratch = self.scratch()?;
        call("move_mount", move_mount(scratch, c"", CWD, c"/proc", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH))?;
        call("fchdir", rustix::process::fchdir(self.new_root()?))?;
        call("pivot_root", rustix::process::pivot_root(".", "."))
    }
}

/// The times and the mode of a real directory, for the one that stands before it in an overlay.
pub(super) fn mirror(real: BorrowedFd<'_>, copy: BorrowedFd<'_>) -> Result<()> {
    let stat = call("fstat", rustix::fs::statat(real, c"", AtFlags::EMPTY_PATH))?;
    // An ordinary user may only keep what is its own: a directory of another's shows as the caller's.
    let owner = rustix::fs::Uid::from_raw(stat.st_uid);
    let group = rustix::fs::Gid::from_raw(stat.st_gid);
    match rustix::fs::fchown(copy, Some(owner), Some(group)) {
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
        Err(errno) => return Err(MountError::Errno("fchown", errno)),
    }
    call("fchmod", rustix::fs::fchmod(copy, Mode::from_raw_mode(stat.st_mode & 0o7777)))?;
    let time = |sec, nsec| rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec as _ };
    let times = rustix::fs::Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    call("futimens", rustix::fs::futimens(copy, &times))
}
