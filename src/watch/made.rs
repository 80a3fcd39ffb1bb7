//! The names that the command itself made: what the guard of hidden names asks, and what needs no backup.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names are taken in before the call that makes them goes on, so that whoever sees the name can ask. A call that fails
/// afterwards leaves its name here.
#[derive(Debug, Default)]
pub struct Made {
    names: Mutex<BTreeSet<PathBuf>>,
    /// Where names were moved away from, and when: the call that moves them goes on after that.
    left: Mutex<Vec<(PathBuf, Instant)>>,
}

/// So long a name that is about to be moved away is still the command's at its old path.
const LEAVING: Duration = Duration::from_secs(1);

impl Made {
    /// Whose name is it? A name that the command made is its own; one that appears otherwise is the host's.
    pub fn made_by_command(&self, path: &Path) -> bool {
        let is_leaving = |(from, at): &(PathBuf, Instant)| at.elapsed() < LEAVING && path == from;
        self.lock().contains(path) || self.leaving().iter().any(is_leaving)
    }

    pub fn add(&self, path: &Path) {
        self.lock().insert(path.to_path_buf());
    }

    pub fn remove(&self, path: &Path) {
        self.lock().remove(path);
    }

    /// The name `from`, with all that is below it, becomes `to`, and what was known there is over.
    pub fn rename(&self, from: &Path, to: &Path) {
        let mut names = self.lock();
        names.remove(to);
        let here = names.remove(from);
        let below = take_below(&mut names, from);
        let now = Instant::now();
        let mut leaving = self.leaving();
        leaving.retain(|(_, at)| at.elapsed() < LEAVING);
        leaving.extend(here.then(|| from.to_path_buf()).into_iter().chain(below.iter().cloned()).map(|old| (old, now)));
        drop(leaving);
        names.extend(below.iter().filter_map(|old| Some(to.join(old.strip_prefix(from).ok()?))));
        names.extend(here.then(|| to.to_path_buf()));
    }

    /// The two change places, each with all that is below it.
    pub fn exchange(&self, a: &Path, b: &Path) {
        let mut names = self.lock();
        let (was_a, was_b) = (names.remove(a), names.remove(b));
        let (below_a, below_b) = (take_below(&mut names, a), take_below(&mut names, b));
        let mut put = |list: Vec<PathBuf>, from: &Path, to: &Path| {
            names.extend(list.iter().filter_map(|old| Some(to.join(old.strip_prefix(from).ok()?))));
        };
        put(below_a, a, b);
        put(below_b, b, a);
        names.extend(was_a.then(|| b.to_path_buf()));
        names.extend(was_b.then(|| a.to_path_buf()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<PathBuf>> {
        // A set is whole after every step of this file.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> std::sync::MutexGuard<'_, Vec<(PathBuf, Instant)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Paths compare by their components: what lies below one stands right behind it.
fn take_below(names: &mut BTreeSet<PathBuf>, dir: &Path) -> Vec<PathBuf> {
    let behind = names.range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded));
    let below: Vec<PathBuf> = behind.take_while(|name| name.starts_with(dir)).cloned().collect();
    for name in &below {
        names.remove(name);
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_takes_its_names_along() {
        let made = Made::default();
        let is = |path: &str| made.made_by_command(Path::new(path));
        ["/p/a", "/p/a/x", "/p/a/y/z", "/p/a.b"].iter().for_each(|name| made.add(Path::new(name)));
        made.rename(Path::new("/p/a"), Path::new("/p/c"));
        assert!(is("/p/c") && is("/p/c/x") && is("/p/c/y/z") && is("/p/a.b"));
        // The call that moves them goes on only now.
        assert!(is("/p/a") && is("/p/a/x") && !is("/p/a/new"));
        made.leaving().clear();
        assert!(!is("/p/a") && !is("/p/a/x"));
        made.exchange(Path::new("/p/c"), Path::new("/p/host"));
        assert!(is("/p/host/x") && is("/p/host") && !is("/p/c") && !is("/p/c/x"));
        made.remove(Path::new("/p/host/x"));
        assert!(!is("/p/host/x"));
    }
}
