//! The second stage: the new root, built beneath one descriptor, then pivoted into.

use super::isolate::Isolated;
use super::mount::{
    MountError, attach, attach_at, call, clone_tree, destination, forbidden_on, leak, new_file_system, overlay,
    relative, set_attributes, source,
};
use super::{Injected, Launch, LayerDirs, StepError, veil, whiteout};
use crate::path::FileId;
use crate::plan::{Private, RootStep, Whiteout, hints};
use crate::sys::MountAttr;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, move_mount, unmount,
};
use rustix::process::umask;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, MountError>;

/// Names in the scratch tmpfs, which itself is never visible inside; only these subtrees are.
const MASK_FILE: &str = "mask";
const MASK_DIR: &str = "void";

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
    pub fn root(self, launch: &Launch<'_>, channel: BorrowedFd<'_>) -> std::result::Result<Rooted, StepError> {
        let terminal = launch.terminal.as_ref().and_then(|terminal| terminal.name.clone());
        let mut builder = Builder {
            new: None,
            scratch: None,
            layers: launch.layers,
            channel,
            veil: None,
            terminal,
            numbered: 0,
            buffer: vec![0; 32 * 1024],
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
        Ok(Rooted(()))
    }
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
        (RootStep::Veil { .. }, _) => Some(hints::VEIL),
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
    /// To the supervisor, who serves the veil.
    channel: BorrowedFd<'a>,
    veil: Option<OwnedFd>,
    terminal: Option<PathBuf>,
    /// Counts the directories of the scratch tmpfs that have no name of their own.
    numbered: u32,
    /// For copies: a file that fills it is bound instead.
    buffer: Vec<u8>,
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
            RootStep::NewRoot => self.new_root_tmpfs(),
            RootStep::ScratchSpace { bytes } => self.scratch_space(*bytes),
            RootStep::Dir { at, mode } => self.dir(at, *mode),
            RootStep::File { at, content } => self.file(at, content),
            RootStep::Symlink { at, target } => match symlinkat(target, self.new_root()?, relative(at)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(MountError::Errno("symlinkat", errno)),
            },
            RootStep::System { from, at } => self.system(from, at),
            RootStep::Copy { at } => self.copy(at),
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
            RootStep::Veil { .. } => {
                let veil = veil::mount(self.channel, self.numbered_dir("veil", 0o755)?.as_fd())?;
                self.veil = Some(veil);
                Ok(())
            }
            RootStep::Overlay { lower, at, layer, veil, whiteouts, id } => {
                let real = source(lower, *id)?;
                let hiding = match veil {
                    Some(number) => Some(veil::of_root(self.veil.as_ref(), *number, layer.is_none())?),
                    None => self.whiteouts(real.as_fd(), whiteouts)?,
                };
                self.overlay(at, *layer, &real, hiding)
            }
            RootStep::Shell { at, children } => self.shell(at, children),
            RootStep::Pin { at } => self.over_itself(at, 0),
            RootStep::Freeze { at, .. } => self.over_itself(at, MountAttr::RDONLY),
            RootStep::Mask { at, dir, .. } => self.mask(at, *dir),
            RootStep::PivotRoot => self.pivot(),
            RootStep::DetachOldRoot => {
                // After pivot_root(".", ".") the old root lies on top of the new one here (pivot_root(2), NOTES), and
                // on it the scratch space.
                call("umount2", unmount(".", UnmountFlags::DETACH))?;
                call("umount2", unmount(".", UnmountFlags::DETACH))?;
                call("chdir", rustix::process::chdir("/"))
            }
        }
    }

    fn new_root_tmpfs(&mut self) -> Result<()> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let new = new_file_system("tmpfs", &[("mode", "0755"), ("size", "16m")], attributes)?;
        call("move_mount", over_everything(&new))?;
        self.new = Some(new);
        Ok(())
    }

    fn scratch_space(&mut self, bytes: u64) -> Result<()> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let size = bytes.to_string();
        let scratch = new_file_system("tmpfs", &[("mode", "0755"), ("size", &size)], attributes)?;
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
        let tree = call("open_tree", clone_tree(CWD, from, true))?;
        call("move_mount", attach_at(&tree, self.new_root()?, at))?;
        leak(tree);
        Ok(())
    }

    fn copy(&mut self, at: &Path) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = match rustix::fs::open(at, flags, Mode::empty()) {
            Ok(from) => from,
            // Not readable for the caller: then it is not inside either, and says so there.
            Err(Errno::ACCESS) => {
                self.file(at, b"")?;
                return self.system(at, at);
            }
            Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(MountError::Errno("open", errno)),
        };
        let length = call("read", rustix::io::read(&from, &mut *self.buffer))?;
        leak(from);
        if length == self.buffer.len() {
            self.file(at, b"")?;
            return self.system(at, at);
        }
        self.file(at, &self.buffer[..length])
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

    fn bind(&self, from: &Path, at: &Path, writable: bool, id: Option<FileId>) -> Result<()> {
        let from = source(from, id)?;
        let tree = call("open_tree", clone_tree(from.as_fd(), Path::new(""), true))?;
        let mut set = MountAttr::NOSUID | MountAttr::NODEV;
        if !writable {
            set |= MountAttr::RDONLY;
        }
        call("mount_setattr", set_attributes(tree.as_fd(), set))?;
        let target = call("openat2", destination(self.new_root()?, at))?;
        call("move_mount", attach(&tree, target.as_fd()))
    }

    fn whiteouts(&mut self, real: BorrowedFd<'_>, names: &[Whiteout]) -> Result<Option<OwnedFd>> {
        if names.is_empty() {
            return Ok(None);
        }
        let dir = self.numbered_dir("whiteouts", 0o755)?;
        whiteout::fill(dir.as_fd(), real, names)?;
        Ok(Some(dir))
    }

    fn overlay(&mut self, at: &Path, layer: Option<usize>, real: &OwnedFd, hiding: Option<OwnedFd>) -> Result<()> {
        let lowers: Vec<BorrowedFd<'_>> = hiding.iter().map(AsFd::as_fd).chain([real.as_fd()]).collect();
        let dirs = match layer {
            Some(layer) => {
                let dirs = self.layers.get(layer).ok_or(MountError::Errno("no such session layer", Errno::NOENT))?;
                Some((source(&dirs.upper, None)?, source(&dirs.work, None)?))
            }
            None => None,
        };
        let mount = overlay(&lowers, dirs.as_ref().map(|(upper, work)| (upper, work)), forbidden_on(real)?)?;
        let target = call("openat2", destination(self.new_root()?, at))?;
        call("move_mount", attach(&mount, target.as_fd()))
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
    fn over_itself(&self, at: &Path, set: u64) -> Result<()> {
        let target = match destination(self.new_root()?, at) {
            Ok(target) => target,
            // Gone since the scan: there is nothing to freeze.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(MountError::Errno("openat2", errno)),
        };
        let tree = call("open_tree", clone_tree(target.as_fd(), Path::new(""), true))?;
        call("mount_setattr", set_attributes(tree.as_fd(), set))?;
        call("move_mount", attach(&tree, target.as_fd()))
    }

    fn mask(&self, at: &Path, dir: bool) -> Result<()> {
        let target = match destination(self.new_root()?, at) {
            Ok(target) => target,
            // /proc has not everything on every kernel; a name of a root that was there a moment ago may be back under it
            // in another.
            Err(Errno::NOENT | Errno::NOTDIR) if at.starts_with("/proc") => return Ok(()),
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(MountError::Changed),
            Err(errno) => return Err(MountError::Errno("openat2", errno)),
        };
        // A file becomes a directory between the scan and here: try the other kind before giving up.
        for name in if dir { [MASK_DIR, MASK_FILE] } else { [MASK_FILE, MASK_DIR] } {
            let tree = call("open_tree", clone_tree(self.scratch()?, Path::new(name), false))?;
            call("mount_setattr", set_attributes(tree.as_fd(), MountAttr::RDONLY))?;
            match attach(&tree, target.as_fd()) {
                Ok(()) => return Ok(()),
                Err(Errno::INVAL | Errno::NOTDIR) => {}
                Err(errno) => return Err(MountError::Errno("move_mount", errno)),
            }
        }
        Err(MountError::Changed)
    }

    fn pivot(&self) -> Result<()> {
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
