//! Extended attributes of a layer: which of them are the kernel's own marks, which are the command's, and which must
//! stop the reader.

use super::tree::{attribute, attributes};
use rustix::io::Errno;
use std::os::fd::AsFd;

const PRIVATE: &[u8] = b"user.overlay.";
/// Where the kernel stores what the command itself set under the private name (overlayfs.rst, "Nesting").
const ESCAPED: &[u8] = b"user.overlay.overlay.";

/// What the attributes of one name in the upper layer say.
#[derive(Debug, Default)]
pub struct Marks {
    /// The directory hides all that is below it in the lower layer.
    pub opaque: bool,
    /// An attribute that would send a reader elsewhere, or that nobody knows.
    pub hostile: Option<String>,
    /// The command's own: the name as the command knows it, and the name in the layer.
    pub own: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Marks {
    /// Is this one of the overlay's own attributes, of which the command knew nothing?
    pub fn is_mark(name: &[u8]) -> bool {
        name.starts_with(PRIVATE) && !name.starts_with(ESCAPED)
    }

    /// The name under which the command knew an attribute of the layer; `None` for the overlay's own.
    pub fn known_as(name: &[u8]) -> Option<Vec<u8>> {
        match name.strip_prefix(ESCAPED) {
            Some(rest) => Some([PRIVATE, rest].concat()),
            None => (!Marks::is_mark(name) && is_own(name)).then(|| name.to_vec()),
        }
    }
}

/// Reads the marks of an open file or directory of the upper layer.
pub fn marks(file: impl AsFd) -> Result<Marks, Errno> {
    let mut marks = Marks::default();
    for name in attributes(&file)? {
        if let Some(rest) = name.strip_prefix(ESCAPED) {
            marks.own.push(([PRIVATE, rest].concat(), name));
        } else if let Some(rest) = name.strip_prefix(PRIVATE) {
            match rest {
                // A copied-up file's origin, a directory with copied-up children, link counts, the layer's identity:
                // hints for the kernel's own caches that change nothing of what is there.
                b"origin" | b"impure" | b"nlink" | b"uuid" | b"upper" => {}
                b"opaque" if attribute(&file, &name).as_deref() == Some(b"y") => marks.opaque = true,
                // redirect and metacopy point to content elsewhere; we mount with both off, so the kernel made none.
                _ => marks.hostile = Some(readable(&name)),
            }
        } else if name.starts_with(b"trusted.overlay.") {
            marks.hostile = Some(readable(&name));
        } else if is_own(&name) {
            marks.own.push((name.clone(), name));
        }
    }
    Ok(marks)
}

/// Attributes that a command can set and that mean something to it; security labels are the host's.
pub fn is_own(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") || name == b"security.capability"
}

/// A name for a line of text: whoever set it chose the bytes.
fn readable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_default().to_string()
}

/// The names whose values differ between a file of the layer and its twin on the host.
pub fn differing(upper: impl AsFd, own: &[(Vec<u8>, Vec<u8>)], host: impl AsFd) -> Vec<String> {
    let before: Vec<Vec<u8>> = attributes(&host).unwrap_or_default().into_iter().filter(|name| is_own(name)).collect();
    let gone = before.iter().filter(|name| !own.iter().any(|(known, _)| known == *name)).map(|name| readable(name));
    let new = own
        .iter()
        .filter(|(known, stored)| !before.contains(known) || attribute(&upper, stored) != attribute(&host, known));
    let mut differing: Vec<String> = new.map(|(known, _)| readable(known)).chain(gone).collect();
    differing.sort();
    differing
}
