//! What a git directory holds that the host obeys: by name alone, for no pattern reaches into one. A branch may be called
//! `host.key` and a stash `.env`.

/// What stands at a path in a git directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner {
    /// Written freely, and so is all below it.
    Plain,
    /// Written freely, but some names below it are frozen.
    Holds,
    /// Hooks, configuration, or a pointer to where they lie.
    Frozen,
}

#[derive(Clone, Copy)]
enum At {
    /// A repository's own directory.
    Git,
    Objects,
    ObjectsInfo,
    /// Of submodules: names with slashes, so that a directory below may be one or lead to one.
    Modules,
    Module,
    Worktrees,
    Worktree,
    Plain,
    Frozen,
}

/// Judges the path `rel`, relative to the git directory, whose last component is a directory if `dir` says so.
pub fn inner(rel: &[u8], dir: bool) -> Inner {
    let mut at = At::Git;
    for name in rel.split(|&byte| byte == b'/') {
        at = below(at, name);
    }
    match at {
        At::Frozen => Inner::Frozen,
        At::Plain => Inner::Plain,
        At::Git | At::Objects | At::ObjectsInfo | At::Modules | At::Module | At::Worktrees | At::Worktree if dir => {
            Inner::Holds
        }
        At::Git | At::Objects | At::ObjectsInfo | At::Modules | At::Module | At::Worktrees | At::Worktree => {
            Inner::Plain
        }
    }
}

/// What the kernel cannot keep from being made where it does not exist: looked for when a live run ended.
pub const POINTERS: [&str; 4] =
    ["commondir", "config.worktree", "objects/info/alternates", "objects/info/http-alternates"];

fn below(at: At, name: &[u8]) -> At {
    match at {
        At::Frozen => At::Frozen,
        At::Plain => At::Plain,
        At::Git | At::Module => match name {
            // `commondir` makes git take hooks and configuration from another directory. The attributes in `info` choose
            // the programs that a checkout runs; as a whole, so that they cannot be made.
            b"hooks" | b"config" | b"config.worktree" | b"commondir" | b"info" => At::Frozen,
            b"objects" => At::Objects,
            b"modules" => At::Modules,
            b"worktrees" => At::Worktrees,
            b"refs" | b"logs" | b"lfs" | b"rr-cache" | b"branches" | b"reftable" => At::Plain,
            _ if matches!(at, At::Module) => At::Module,
            _ => At::Plain,
        },
        At::Objects => match name {
            b"info" => At::ObjectsInfo,
            _ => At::Plain,
        },
        At::ObjectsInfo => match name {
            b"alternates" | b"http-alternates" => At::Frozen,
            _ => At::Plain,
        },
        At::Modules => At::Module,
        At::Worktrees => At::Worktree,
        At::Worktree => match name {
            b"hooks" | b"config" | b"config.worktree" | b"commondir" | b"gitdir" => At::Frozen,
            b"modules" => At::Modules,
            _ => At::Plain,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_configuration_and_pointers_are_frozen_and_nothing_else() {
        let frozen = [
            "hooks",
            "hooks/pre-commit",
            "config",
            "config.worktree",
            "commondir",
            "info",
            "info/attributes",
            "objects/info/alternates",
            "modules/a/config",
            "modules/a/hooks/x",
            "modules/libs/a/info/attributes",
            "modules/a/modules/b/config",
            "modules/a/objects/info/alternates",
            "worktrees/w/config.worktree",
            "worktrees/w/gitdir",
            "worktrees/w/commondir",
            "worktrees/w/modules/a/config",
        ];
        for path in frozen {
            assert_eq!(inner(path.as_bytes(), false), Inner::Frozen, "{path}");
        }
        let plain = [
            "HEAD",
            "index",
            "index.lock",
            "refs/heads/host.key",
            "refs/heads/config",
            "refs/heads/hooks/config",
            "logs/refs/heads/.env",
            "objects/ab/cd",
            "objects/pack/x",
            "objects/info/commit-graph",
            "packed-refs",
            "modules/a/HEAD",
            "modules/a/refs/heads/config",
            "worktrees/w/HEAD",
            "worktrees/w/info/sparse-checkout",
            "MERGE_HEAD",
            "rebase-merge/git-rebase-todo",
            "stash",
            "COMMIT_EDITMSG",
        ];
        for path in plain {
            assert_eq!(inner(path.as_bytes(), false), Inner::Plain, "{path}");
        }
        for path in ["objects", "objects/info", "modules", "modules/a", "modules/libs/a", "worktrees", "worktrees/w"] {
            assert_eq!(inner(path.as_bytes(), true), Inner::Holds, "{path}");
        }
        for path in ["objects/ab", "refs", "refs/heads", "logs", "lfs", "rebase-merge", "modules/a/refs"] {
            assert_eq!(inner(path.as_bytes(), true), Inner::Plain, "{path}");
        }
    }
}
