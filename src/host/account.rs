//! The caller's entry of /etc/passwd and /etc/group, read from the files: a static libc has no name service.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub home: Option<PathBuf>,
    pub shell: String,
    pub group: String,
}

impl Account {
    /// The account of `uid`, with made-up names where the files have none (containers, network directories).
    pub fn lookup(uid: u32, gid: u32) -> Account {
        let passwd = crate::sys::read_whole("/etc/passwd").unwrap_or_default();
        let group = crate::sys::read_whole("/etc/group").unwrap_or_default();
        Account::from_files(&passwd, &group, uid, gid)
    }

    fn from_files(passwd: &[u8], group: &[u8], uid: u32, gid: u32) -> Account {
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let line = find(passwd, uid);
        let field = |index: usize| line.and_then(|line| line.split(|&b| b == b':').nth(index));
        let group = find(group, gid).and_then(|line| line.split(|&b| b == b':').next());
        Account {
            name: field(0).map_or_else(|| format!("user{uid}"), text),
            home: field(5).filter(|home| home.starts_with(b"/")).map(|home| OsString::from_vec(home.to_vec()).into()),
            shell: field(6).filter(|shell| !shell.is_empty()).map_or_else(|| "/bin/sh".into(), text),
            group: group.map_or_else(|| format!("group{gid}"), text),
        }
    }
}

/// The line whose third field is `id`.
fn find(file: &[u8], id: u32) -> Option<&[u8]> {
    let id = id.to_string();
    file.split(|&b| b == b'\n').find(|line| line.split(|&b| b == b':').nth(2) == Some(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_callers_line_or_makes_one_up() {
        let passwd = b"root:x:0:0:root:/root:/bin/bash\nann:x:1000:100:Ann:/home/ann:\n";
        let ann = Account::from_files(passwd, b"users:x:100:\n", 1000, 100);
        assert_eq!((ann.name.as_str(), ann.shell.as_str(), ann.group.as_str()), ("ann", "/bin/sh", "users"));
        assert_eq!(ann.home.unwrap(), PathBuf::from("/home/ann"));
        let nobody = Account::from_files(b"", b"", 7, 8);
        assert_eq!((nobody.name.as_str(), nobody.group.as_str(), nobody.home), ("user7", "group8", None));
    }
}
