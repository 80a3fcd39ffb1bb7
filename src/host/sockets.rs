//! The unix sockets that somebody on the host listens on by a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Those of the caller's own network namespace, in no order. A name that was bound relative to a directory does not say
/// where it is; abstract names are no paths.
pub fn bound() -> Sockets {
    // Without the list none is found there, as in a kernel without unix sockets.
    Sockets(crate::sys::read_whole("/proc/net/unix").unwrap_or_default())
}

/// The text of /proc/net/unix, looked at where it is needed.
#[derive(Debug)]
pub struct Sockets(Vec<u8>);

impl Sockets {
    /// The absolute paths, as they were bound.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.split(|&byte| byte == b'\n').filter_map(|line| {
            // Seven fields, none of which holds a slash, then the path.
            let start = line.iter().position(|&byte| byte == b'/')?;
            (line.get(start.checked_sub(1)?) == Some(&b' ')).then(|| Path::new(OsStr::from_bytes(&line[start..])))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_are_told() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 16752 /opt/a b/x.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 16753 @/tmp/abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 16754 rel/x.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 16755\n";
        let sockets = Sockets(text.as_bytes().to_vec());
        assert_eq!(sockets.paths().collect::<Vec<_>>(), [Path::new("/opt/a b/x.sock")]);
    }
}
