//! Tests of the room. Each says what a user would miss if it were gone.

mod docs;
mod errors;
mod lists;
mod load;
mod mutations;
mod values;

use super::read::{Author, Sheet, read};
use super::{LoadError, Loader, Profile};
use std::path::{Path, PathBuf};

/// A directory of profiles that ends with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("agentbox-profile-{}-{name}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        use std::io::Write as _;
        let path = self.0.join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_ref()).unwrap();
        path
    }

    fn loader(&self) -> Loader {
        Loader::new(Some(self.0.clone()))
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn sheet(text: &str) -> Sheet {
    read("x.toml", text, Author::User).unwrap()
}

fn refused(text: &str) -> LoadError {
    read("x.toml", text, Author::User).unwrap_err()
}

fn load(loader: &Loader, names: &[&str]) -> Result<Profile, LoadError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
    loader.load(&names).map(|(profile, _)| profile)
}

fn repository(text: &str) -> (Profile, Vec<String>) {
    let (profile, notices) = Loader::new(None).repository(text.as_bytes(), Path::new("/p/agentbox.toml")).unwrap();
    (profile, notices.iter().map(ToString::to_string).collect())
}
