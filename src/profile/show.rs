//! A merged profile as a list of keys, values and the places they were written.

use super::merge::Entry;
use super::schema::{Environment, Filesystem, Limits, Network, Origin, Profile, Run, Written};
use super::value::Word;

/// One value of a profile. A list has one of these an entry, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// `table.key`
    pub key: String,
    pub value: String,
    pub origin: Origin,
    /// Why a path is granted, in the profile's own words.
    pub why: Option<String>,
}

impl Profile {
    /// Every value that the profile has, in the order of the schema. Taken apart without a wildcard: a new key that is
    /// not shown does not compile.
    pub fn shown(&self) -> Vec<Shown> {
        let Profile { names: _, description: _, programs: _, filesystem, network, environment, limits, run } = self;
        let mut out = List(Vec::new());
        let Filesystem { rw, ro, scratch, home, git, hide, grant, freeze, build_dirs, no_backup, toolchains } =
            filesystem;
        for (key, paths) in [("rw", rw), ("ro", ro), ("scratch", scratch)] {
            out.paths(&format!("filesystem.{key}"), paths);
        }
        out.word("filesystem.home", home.as_ref());
        out.word("filesystem.git", git.as_ref());
        out.entries("filesystem.hide", hide);
        out.entries("filesystem.grant", grant);
        out.entries("filesystem.freeze", freeze);
        out.entries("filesystem.build_dirs", build_dirs);
        out.entries("filesystem.no_backup", no_backup);
        out.one("filesystem.toolchains", toolchains.as_ref(), bool::to_string);
        let Network { mode, tcp_connect, tcp_bind, sockets } = network;
        out.word("network.mode", mode.as_ref());
        out.entries("network.tcp_connect", tcp_connect);
        out.entries("network.tcp_bind", tcp_bind);
        out.paths("network.sockets", sockets);
        let Environment { pass, deny, set } = environment;
        out.entries("environment.pass", pass);
        out.entries("environment.deny", deny);
        for (name, value) in set {
            out.push(&format!("environment.set.{name}"), value.value.clone(), &value.origin, None);
        }
        let Limits { processes, memory, tmp, file_size, open_files, time, backup_file, backup_total } = limits;
        for (key, limit) in [
            ("processes", processes),
            ("memory", memory),
            ("tmp", tmp),
            ("file_size", file_size),
            ("open_files", open_files),
            ("time", time),
            ("backup_file", backup_file),
            ("backup_total", backup_total),
        ] {
            out.one(&format!("limits.{key}"), limit.as_ref(), |value| match *value {
                u64::MAX => "unlimited".to_owned(),
                value => value.to_string(),
            });
        }
        let Run { mode, diff, nested, degraded } = run;
        out.word("run.mode", mode.as_ref());
        out.word("run.diff", diff.as_ref());
        out.one("run.nested", nested.as_ref(), bool::to_string);
        out.entries("run.degraded", degraded);
        out.0
    }
}

struct List(Vec<Shown>);

impl List {
    fn push(&mut self, key: &str, value: String, origin: &Origin, why: Option<String>) {
        self.0.push(Shown { key: key.to_owned(), value, origin: origin.clone(), why });
    }

    fn one<T>(&mut self, key: &str, written: Option<&Written<T>>, text: impl Fn(&T) -> String) {
        if let Some(written) = written {
            self.push(key, text(&written.value), &written.origin, None);
        }
    }

    fn word<T: Word + PartialEq>(&mut self, key: &str, written: Option<&Written<T>>) {
        let word = |value: &T| T::WORDS.iter().find(|(_, known)| known == value).map_or("", |(word, _)| *word);
        self.one(key, written, |value| word(value).to_owned());
    }

    fn entries<T: Entry>(&mut self, key: &str, list: &[Written<T>]) {
        for written in list {
            self.push(key, written.value.name(), &written.origin, None);
        }
    }

    fn paths(&mut self, key: &str, list: &[Written<super::PathEntry>]) {
        for Written { value, origin } in list {
            let optional = if value.optional { " (optional)" } else { "" };
            self.push(key, format!("{}{optional}", value.name()), origin, value.why.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::profile::{Loader, keys};

    #[test]
    fn every_key_shown_is_a_key_that_can_be_written() {
        let (profile, _) = Loader::new(None).load(&["strict".to_owned()]).unwrap();
        let shown = profile.shown();
        assert!(shown.iter().any(|shown| shown.key == "filesystem.hide" && shown.value == ".*"));
        for shown in shown {
            let (table, key) = shown.key.split_once('.').unwrap();
            let key = key.split('.').next().unwrap();
            assert!(keys::KEYS.iter().any(|(known, keys)| *known == table && keys.contains(&key)), "{}", shown.key);
        }
    }
}
