//! git's index (gitformat-index(5)), versions 2 to 4: which paths it tracks, and a copy in which some of them carry the
//! skip-worktree bit, so that git takes an absent file for one that is not checked out instead of one that was deleted.
//! Bytes in, bytes out.

/// Flags of an entry, of which the second word is there when the first says so.
const EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const NAME_LENGTH: u16 = 0x0fff;
const SKIP_WORKTREE: u16 = 0x4000;
/// Times, device, inode, mode, owner, size.
const STAT: usize = 40;
/// Where the time of the content stands in it.
const MODIFIED: usize = 8;
/// Where the entries lie, and what the file monitor and the cache of untracked files knew: all of them say less when they
/// are gone, and the first two would be wrong in the copy.
const DROPPED: [&[u8; 4]; 4] = [b"EOIE", b"IEOT", b"FSMN", b"UNTR"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// No index, or one that was cut short.
    Broken,
    /// Most of it lies in another file.
    Split,
}

struct Entry {
    /// Of its bytes in the file: the start, the flags, behind the last flags, the end.
    start: usize,
    flags: usize,
    name: usize,
    end: usize,
}

pub struct Index<'a> {
    bytes: &'a [u8],
    version: u32,
    hash: usize,
    entries: Vec<Entry>,
    extensions: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
}

/// A number as git packs offsets: seven bits a byte, each continued one counting from one.
fn packed(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut byte = *bytes.get(*at)?;
    *at += 1;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = *bytes.get(*at)?;
        *at += 1;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some(value)
}

impl<'a> Index<'a> {
    /// Reads an index of a repository whose object names are `hash` bytes long, and tells `each` the number, the path and
    /// the time in seconds of every entry that is no side of a conflict.
    ///
    /// # Errors
    /// What it cannot be read for.
    pub fn read(bytes: &'a [u8], hash: usize, mut each: impl FnMut(usize, &[u8], u32)) -> Result<Index<'a>, Unread> {
        if bytes.get(..4) != Some(b"DIRC") || bytes.len() < 12 + hash {
            return Err(Unread::Broken);
        }
        let version = long(bytes, 4).filter(|version| (2..=4).contains(version)).ok_or(Unread::Broken)?;
        let count = long(bytes, 8).ok_or(Unread::Broken)?;
        let mut index = Index { bytes, version, hash, entries: Vec::new(), extensions: 12 };
        let mut path = Vec::new();
        for number in 0..count {
            let entry = index.entry(index.extensions, &mut path).ok_or(Unread::Broken)?;
            index.extensions = entry.end;
            if word(bytes, entry.flags).unwrap_or(0) & STAGE == 0 {
                each(number as usize, &path, long(bytes, entry.start + MODIFIED).unwrap_or(0));
            }
            index.entries.push(entry);
        }
        let mut split = false;
        index.each_extension(|name, _| split |= name == b"link").ok_or(Unread::Broken)?;
        if split { Err(Unread::Split) } else { Ok(index) }
    }

    /// The entry at `start`. `path` holds the one before, on which version 4 builds.
    fn entry(&self, start: usize, path: &mut Vec<u8>) -> Option<Entry> {
        let end_of_entries = self.bytes.len() - self.hash;
        let flags = start + STAT + self.hash;
        let first = word(self.bytes, flags)?;
        let mut name = flags + if first & EXTENDED == 0 { 2 } else { 4 };
        let behind_flags = name;
        if self.version == 4 {
            let gone = packed(self.bytes, &mut name)?;
            path.truncate(path.len().checked_sub(gone)?);
        } else {
            path.clear();
        }
        let rest = self.bytes.get(name..end_of_entries)?;
        // The length in the flags says nothing about longer names, so that the NUL is what counts.
        let length = rest.iter().position(|&byte| byte == 0)?;
        path.extend_from_slice(&rest[..length]);
        let said = usize::from(first & NAME_LENGTH);
        if said != path.len().min(usize::from(NAME_LENGTH)) {
            return None;
        }
        let end = match self.version {
            4 => name + length + 1,
            _ => start + padded(behind_flags - start + length),
        };
        (end <= end_of_entries).then_some(Entry { start, flags, name: behind_flags, end })
    }

    fn each_extension(&self, mut each: impl FnMut(&[u8], &[u8])) -> Option<()> {
        let end = self.bytes.len() - self.hash;
        let mut at = self.extensions;
        while at < end {
            let length = long(self.bytes, at + 4)? as usize;
            let next = at.checked_add(8)?.checked_add(length).filter(|next| *next <= end)?;
            each(&self.bytes[at..at + 4], &self.bytes[at..next]);
            at = next;
        }
        Some(())
    }

    /// The same index with the skip-worktree bit on the entries of these numbers, which are sorted.
    pub fn skipping(&self, numbers: &[usize]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + 8 * numbers.len());
        out.extend_from_slice(&self.bytes[..12]);
        if self.version == 2 && !numbers.is_empty() {
            // The first with a second word of flags; the entries are the same else.
            out[4..8].copy_from_slice(&3u32.to_be_bytes());
        }
        let mut numbers = numbers.iter().copied().peekable();
        for (number, entry) in self.entries.iter().enumerate() {
            if numbers.next_if_eq(&number).is_none() {
                out.extend_from_slice(&self.bytes[entry.start..entry.end]);
                continue;
            }
            let start = out.len();
            let first = word(self.bytes, entry.flags).unwrap_or(0);
            let second = if first & EXTENDED == 0 { 0 } else { word(self.bytes, entry.flags + 2).unwrap_or(0) };
            out.extend_from_slice(&self.bytes[entry.start..entry.flags]);
            out.extend((first | EXTENDED).to_be_bytes());
            out.extend((second | SKIP_WORKTREE).to_be_bytes());
            let name = &self.bytes[entry.name..entry.end];
            if self.version == 4 {
                out.extend_from_slice(name);
            } else {
                let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                out.extend_from_slice(&name[..length]);
                let size = padded(out.len() - start);
                out.resize(start + size, 0);
            }
        }
        // It was walked to its end when the index was read.
        self.each_extension(|name, whole| {
            if !DROPPED.iter().any(|dropped| name == *dropped) {
                out.extend_from_slice(whole);
            }
        });
        let trailer = match self.hash {
            20 => sha1_smol::Sha1::from(&out).digest().bytes().to_vec(),
            // Zeros are git's own way to write an index without a checksum (index.skipHash).
            length => vec![0; length],
        };
        out.extend(trailer);
        out
    }
}

/// The length of an entry before version 4: at least one NUL behind the name, up to a multiple of eight.
fn padded(length: usize) -> usize {
    (length + 8) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u32, before: &str, path: &str, stage: u16) -> Vec<u8> {
        let mut out = vec![7; STAT + 20];
        let length = u16::try_from(path.len()).unwrap().min(NAME_LENGTH);
        out.extend((length | stage << 12).to_be_bytes());
        if version == 4 {
            let common = before.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
            out.push(u8::try_from(before.len() - common).unwrap());
            out.extend(&path.as_bytes()[common..]);
            out.push(0);
        } else {
            out.extend(path.as_bytes());
            let size = padded(out.len());
            out.resize(size, 0);
        }
        out
    }

    fn index(version: u32, paths: &[(&str, u16)], extensions: &[(&str, &str)]) -> Vec<u8> {
        let mut out = b"DIRC".to_vec();
        out.extend(version.to_be_bytes());
        out.extend(u32::try_from(paths.len()).unwrap().to_be_bytes());
        let mut before = "";
        for (path, stage) in paths {
            out.extend(entry(version, before, path, *stage));
            before = path;
        }
        for (name, body) in extensions {
            out.extend(name.as_bytes());
            out.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
            out.extend(body.as_bytes());
        }
        let hash = sha1_smol::Sha1::from(&out).digest().bytes();
        out.extend(hash);
        out
    }

    fn paths(bytes: &[u8]) -> Vec<(usize, String)> {
        let mut out = Vec::new();
        Index::read(bytes, 20, |number, path, _| out.push((number, String::from_utf8_lossy(path).into_owned())))
            .unwrap();
        out
    }

    #[test]
    fn every_version_and_every_length_of_name() {
        for version in [2, 3, 4] {
            let names: Vec<String> = (1..40).map(|n| format!("a/{}", "x".repeat(n))).collect();
            let mut list: Vec<(&str, u16)> = vec![(".env", 0)];
            list.extend(names.iter().map(|name| (name.as_str(), 0)));
            let before = index(version, &list, &[("TREE", "kept"), ("EOIE", "offsets"), ("UNTR", "x")]);
            let read = Index::read(&before, 20, |_, _, _| {}).unwrap();
            let after = read.skipping(&[0, 3, 39]);
            assert_eq!(paths(&before), paths(&after), "version {version}");
            let again = Index::read(&after, 20, |_, _, _| {}).unwrap();
            let marked = |number: usize| {
                let flags = again.entries[number].flags;
                word(&after, flags).unwrap() & EXTENDED != 0 && word(&after, flags + 2).unwrap() == SKIP_WORKTREE
            };
            let found: Vec<usize> = (0..40).filter(|number| marked(*number)).collect();
            assert_eq!(found, [0, 3, 39]);
            assert!(after.windows(4).any(|four| four == b"TREE"));
            assert!(!after.windows(4).any(|four| four == b"EOIE" || four == b"UNTR"));
            // Marking what is marked changes nothing.
            assert_eq!(again.skipping(&[0, 3, 39]), after);
        }
    }

    #[test]
    fn conflicts_are_left_alone_and_a_split_index_is_named() {
        let conflict = index(2, &[(".env", 1), (".env", 2), ("a", 0)], &[]);
        assert_eq!(paths(&conflict), [(2, "a".to_owned())]);
        let split = index(2, &[], &[("link", "xxxxxxxxxxxxxxxxxxxx")]);
        assert_eq!(Index::read(&split, 20, |_, _, _| {}).err(), Some(Unread::Split));
    }

    #[test]
    fn whatever_is_cut_or_bent_is_refused_or_read_and_never_worse() {
        for version in [2, 4] {
            let whole = index(version, &[(".env", 0), ("a/b", 0), ("a/c", 0)], &[("TREE", "kept")]);
            for length in 0..whole.len() {
                if let Ok(read) = Index::read(&whole[..length], 20, |_, _, _| {}) {
                    read.skipping(&[0]);
                }
            }
            for at in 0..whole.len() {
                for bit in 0..8 {
                    let mut bent = whole.clone();
                    bent[at] ^= 1 << bit;
                    if let Ok(read) = Index::read(&bent, 20, |_, _, _| {}) {
                        read.skipping(&[0, 2]);
                    }
                }
            }
        }
    }
}
