//! What to do about a layer that cannot be had, in one place: `run` says it when the step fails, `doctor` before.

pub const USERNS: &str = "user namespaces are blocked on this system: `agentbox doctor` shows the exact fix (Ubuntu: an \
     AppArmor profile for this one program; others: sysctl user.max_user_namespaces and \
     kernel.unprivileged_userns_clone); without them `run --live --degraded mounts` still bounds a run to its roots";
pub const NESTED: &str = "this is nested inside another agentbox: start the outer one with --nested";
pub const FILTERED: &str = "a seccomp filter is on this process, so it is nested inside a container or another sandbox: \
     start an outer agentbox with --nested, a container with --security-opt seccomp=unconfined; see `agentbox doctor`";
pub const ROOT_MAP: &str = "root without CAP_SETUID, CAP_SETGID and CAP_SETFCAP cannot map itself: run as an ordinary \
     user, or give the container these capabilities";
pub const KERNEL: &str = "this kernel lacks a call that the box needs: Linux 5.12 or newer is wanted";
pub const OVERLAY_KERNEL: &str = "overlays in a user namespace need Linux 5.11 or newer with overlayfs: use --live";
pub const PROC: &str = "the outer container masks parts of its own /proc, so the kernel refuses a fresh one: start the \
     outer container with an unmasked /proc (docker: --security-opt systempaths=unconfined)";
pub const LAYERS: &str = "the file system of the state directory cannot hold overlay layers: point XDG_STATE_HOME at a \
     local disk (ext4, xfs, btrfs) or, from Linux 6.6 on, a tmpfs";
pub const CGROUP: &str = "the cgroup was open to this user when the run began: run it again, and see `agentbox doctor`";
pub const DELEGATE: &str =
    "start it in a part of the hierarchy that is yours: systemd-run --user --scope agentbox run ...";
pub const LANDLOCK: &str = "see `agentbox doctor`; --degraded landlock runs without this layer and says so";
pub const SECCOMP: &str = "see `agentbox doctor`; --degraded seccomp runs without this layer and says so";
pub const NOTIFY: &str = "see `agentbox doctor`; --degraded backup runs without backups and says so";
pub const NETNS: &str = "see `agentbox doctor`; --degraded netns keeps the host's network and says so";
