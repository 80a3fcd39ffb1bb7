//! Names, files, `extends`, `"!x"`, and the repository's own file.

use super::super::{BUILT_IN, Grant, GrantAccess, HomeMode, Layer, Loader, Mode, NetMode, Origin, PathEntry, Written};
use super::{Dir, load, repository, sheet};

fn line(file: &str, line: u32) -> Origin {
    Origin::Profile { file: file.to_owned().into(), line }
}

fn globs<T: Clone>(list: &[Written<T>]) -> Vec<T> {
    list.iter().map(|written| written.value.clone()).collect()
}

#[test]
fn every_value_knows_its_line() {
    let text = r#"
description = "d"
programs = ["claude"]
[filesystem]
rw = [".", "/b"]
ro = [
  "/c",
  { path = "~/d", optional = true, why = "identity" },
]
home = "read-only"
hide = [
  ".*",
  "*.pem",
]
grant = ["a", "b:ro",
  "c:rw"]
toolchains = false
[network]
mode = "host"
tcp_connect = [
  443,
]
[environment]
set = { A = "1" }
[environment.set.B]
"#
    .replace("[environment.set.B]\n", "");
    let profile = sheet(&text).profile;
    assert_eq!(profile.description.as_deref(), Some("d"));
    assert_eq!(profile.programs, ["claude"]);
    let files = &profile.filesystem;
    let plain = |path: &str| PathEntry { path: path.into(), optional: false, why: None };
    assert_eq!(files.rw, [Written::new(plain("."), line("x.toml", 5)), Written::new(plain("/b"), line("x.toml", 5))]);
    let described = PathEntry { path: "~/d".into(), optional: true, why: Some("identity".into()) };
    assert_eq!(files.ro, [Written::new(plain("/c"), line("x.toml", 7)), Written::new(described, line("x.toml", 8))]);
    assert_eq!(files.home, Some(Written::new(HomeMode::ReadOnly, line("x.toml", 10))));
    assert_eq!(
        files.hide,
        [Written::new(".*".into(), line("x.toml", 12)), Written::new("*.pem".into(), line("x.toml", 13))]
    );
    let grant = |glob: &str, access| Grant { glob: glob.to_owned().into(), access };
    assert_eq!(
        files.grant,
        [
            Written::new(grant("a", GrantAccess::Ro), line("x.toml", 15)),
            Written::new(grant("b", GrantAccess::Ro), line("x.toml", 15)),
            Written::new(grant("c", GrantAccess::Rw), line("x.toml", 16)),
        ]
    );
    assert_eq!(files.toolchains, Some(Written::new(false, line("x.toml", 17))));
    assert_eq!(profile.network.mode, Some(Written::new(NetMode::Host, line("x.toml", 19))));
    assert_eq!(profile.network.tcp_connect, [Written::new(443, line("x.toml", 21))]);
    assert_eq!(profile.environment.set["A"], Written::new("1".into(), line("x.toml", 24)));
}

#[test]
fn dotted_keys_and_crlf_lines_count_too() {
    let profile = sheet("filesystem.hide = [\"a\"]\r\nlimits.time = 5\r\n").profile;
    assert_eq!(profile.filesystem.hide[0].origin, line("x.toml", 1));
    assert_eq!(profile.limits.time, Some(Written::new(5, line("x.toml", 2))));
}

#[test]
fn every_built_in_profile_loads_without_a_notice() {
    let loader = Loader::new(None);
    for (name, _) in BUILT_IN {
        let (profile, notices) = loader.load(&[(*name).to_string()]).unwrap();
        assert!(notices.is_empty(), "{name}: {notices:?}");
        assert_eq!(profile.names.last().unwrap(), name);
        assert!(profile.description.is_some());
    }
    let (default, _) = loader.load(&[]).unwrap();
    assert_eq!(default.names, ["base", "default"]);
    let Origin::Profile { file, line } = &default.limits.processes.unwrap().origin else { panic!("no profile") };
    assert_eq!(file, "built-in:base");
    let (_, base) = BUILT_IN[0];
    assert!(base.lines().nth(*line as usize - 1).unwrap().starts_with("processes = "));
}

#[test]
fn lists_unite_and_scalars_override() {
    let dir = Dir::new("merge");
    dir.file("low.toml", "[filesystem]\nhide=['a','b']\ngrant=['x:ro']\nhome='private'\n[limits]\ntime=5\ntmp=6");
    let top = "extends=['low']\n[filesystem]\nhide=['c','a']\ngrant=['x:rw']\nhome='read-only'\n[limits]\ntime=7";
    let top = dir.file("top.toml", top);
    let profile = load(&dir.loader(), &["top"]).unwrap();
    assert_eq!(profile.names, ["low", "top"]);
    assert_eq!(globs(&profile.filesystem.hide), ["a", "b", "c"]);
    // The later writer of an entry is its origin, and the one whose access counts.
    assert_eq!(profile.filesystem.hide[0].origin, line(&top.display().to_string(), 3));
    assert_eq!(globs(&profile.filesystem.grant), [Grant { glob: "x".into(), access: GrantAccess::Rw }]);
    assert_eq!(profile.filesystem.home.unwrap().value, HomeMode::ReadOnly);
    assert_eq!(profile.limits.time.unwrap().value, 7);
    assert_eq!(profile.limits.tmp.unwrap().value, 6);
}

#[test]
fn several_p_merge_in_order_and_each_profile_counts_once() {
    let dir = Dir::new("several");
    dir.file("low.toml", "[limits]\ntime=1\n[filesystem]\nhide=['a','b']");
    dir.file("one.toml", "extends=['low']\n[limits]\ntime=2\n[filesystem]\nhide=['!a']");
    dir.file("two.toml", "extends=['low']\n[filesystem]\nhide=['!a']");
    let profile = load(&dir.loader(), &["one", "two"]).unwrap();
    assert_eq!(profile.names, ["low", "one", "two"]);
    assert_eq!(profile.limits.time.unwrap().value, 2);
    assert_eq!(globs(&profile.filesystem.hide), ["b"]);
}

#[test]
fn an_exclamation_mark_removes_what_a_base_wrote() {
    let dir = Dir::new("remove");
    dir.file(
        "low.toml",
        "programs=['p']\n[filesystem]\nrw=['/a']\nro=['/b']\nscratch=['/c']\nhide=['d']\ngrant=['e:rw','f:ro']\n\
         freeze=['g']\nbuild_dirs=['h']\n[network]\nsockets=['/i']\n[environment]\npass=['J']\ndeny=['K']\n\
         [run]\ndegraded=['netns']\n",
    );
    dir.file(
        "top.toml",
        "extends=['low']\nprograms=['!p']\n[filesystem]\nrw=['!/a']\nro=['!/b']\nscratch=['!/c']\nhide=['!d','x']\n\
         grant=['!e','!f:ro']\nfreeze=['!g']\nbuild_dirs=['!h']\n[network]\nsockets=['!/i']\n[environment]\n\
         pass=['!J']\ndeny=['!K']\n[run]\ndegraded=['!netns']\n",
    );
    let mut profile = load(&dir.loader(), &["top"]).unwrap();
    assert_eq!(globs(&profile.filesystem.hide), ["x"]);
    profile.filesystem.hide.clear();
    profile.names.clear();
    assert_eq!(profile, super::super::Profile::default());
}

#[test]
fn a_removal_that_hits_nothing_is_refused() {
    let dir = Dir::new("miss");
    let file = dir.file("a.toml", "extends=['default']\n[filesystem]\ngrant=[\n'!.github:rw']");
    let error = load(&dir.loader(), &["a"]).unwrap_err();
    let place = file.display();
    assert_eq!(
        error.to_string(),
        format!("reading profile {place}:4: `!.github:rw` removes nothing from `filesystem.grant`")
    );
    assert_eq!(error.hint().unwrap(), "did you mean `!.github:ro`?");

    dir.file("b.toml", "[filesystem]\nhide=['x','!x']");
    let error = load(&dir.loader(), &["b"]).unwrap_err();
    assert_eq!(error.hint().unwrap(), "`!` removes an entry that a profile named in `extends` wrote");
}

#[test]
fn an_entry_listed_twice_is_a_notice() {
    let dir = Dir::new("twice");
    let file = dir.file("a.toml", "[filesystem]\ngrant=['x:ro',\n'x:rw']");
    let (profile, notices) = dir.loader().load(&["a".to_string()]).unwrap();
    assert_eq!(globs(&profile.filesystem.grant), [Grant { glob: "x".into(), access: GrantAccess::Rw }]);
    let text = format!("{}:3: `x:rw` is listed twice in `filesystem.grant`; the later one counts", file.display());
    assert_eq!(notices.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
}

#[test]
fn circles_are_refused_with_the_chain() {
    let dir = Dir::new("circle");
    dir.file("start.toml", "extends=['a']");
    dir.file("a.toml", "extends=['b']");
    let b = dir.file("b.toml", "\nextends=['a']");
    let error = load(&dir.loader(), &["start"]).unwrap_err();
    let text = format!("reading profile {}:2: `extends` goes in a circle: a -> b -> a", b.display());
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_chain_longer_than_anyone_wrote_is_refused() {
    let dir = Dir::new("endless");
    for link in 0..70 {
        dir.file(&format!("p{link}.toml"), format!("extends=['p{}']", link + 1));
    }
    let error = load(&dir.loader(), &["p0"]).unwrap_err().to_string();
    let text = format!("reading profile {}:1: `extends` reaches too many profiles at `p64`", dir.at("p63.toml"));
    assert_eq!(error, text);
}

#[test]
fn names_and_files_are_told_apart() {
    let dir = Dir::new("names");
    dir.file("mine.toml", "description='by name'");
    let other = Dir::new("names-other");
    other.file("mine.toml", "description='by file'\nextends=['./beside.toml']");
    other.file("beside.toml", "[limits]\ntime=3");
    assert_eq!(load(&dir.loader(), &["mine"]).unwrap().description.unwrap(), "by name");
    let by_file = load(&dir.loader(), &[&other.at("mine.toml")]).unwrap();
    assert_eq!(by_file.description.unwrap(), "by file");
    assert_eq!(by_file.limits.time.unwrap().value, 3);
}

#[test]
fn a_users_profile_replaces_and_may_extend_the_built_in_one() {
    let dir = Dir::new("replace");
    let file = dir.file("default.toml", "extends=['default']\n[limits]\nprocesses=9");
    let profile = load(&dir.loader(), &[]).unwrap();
    assert_eq!(profile.names, ["base", "default", "default"]);
    assert_eq!(profile.limits.processes.unwrap(), Written::new(9, line(&file.display().to_string(), 3)));
    // A built-in profile means what it always means.
    assert_eq!(load(&dir.loader(), &["shell"]).unwrap(), load(&Loader::new(None), &["shell"]).unwrap());
    let replaced = load(&dir.loader(), &["built-in:default"]).unwrap();
    assert_eq!(replaced.limits, load(&Loader::new(None), &["default"]).unwrap().limits);
}

#[test]
fn programs_pick_a_profile() {
    let dir = Dir::new("pick");
    dir.file("agent.toml", "programs=['claude','codex']");
    dir.file("child.toml", "extends=['agent']");
    let loader = dir.loader();
    assert_eq!(loader.pick("claude").unwrap().as_deref(), Some("agent"));
    assert_eq!(loader.pick("/usr/bin/codex").unwrap().as_deref(), Some("agent"));
    assert_eq!(loader.pick("cargo").unwrap(), None);

    dir.file("rival.toml", "programs=['codex']");
    let error = loader.pick("codex").unwrap_err();
    assert_eq!(error.to_string(), "picking a profile for `codex`: agent, rival all claim it");
    assert_eq!(error.hint().unwrap(), "name one with -p");

    dir.file("broken.toml", "x");
    assert!(loader.pick("cargo").unwrap_err().to_string().contains("broken.toml:1"));
}

#[test]
fn the_list_names_source_description_and_what_is_broken() {
    let dir = Dir::new("list");
    dir.file("shell.toml", "description='mine'");
    dir.file("zz.toml", "oops = 1");
    let listed = dir.loader().names().unwrap();
    let names: Vec<&str> = listed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["shell", "zz", "base", "default", "strict", "offline-build"]);
    assert_eq!((listed[0].source.clone(), listed[0].description.as_deref()), (dir.at("shell.toml"), Some("mine")));
    assert!(listed[1].broken.as_ref().unwrap().to_string().contains("zz.toml:1: unknown key `oops`"));
    assert_eq!(listed[2].source, "built-in:base");
    assert!(listed[2].broken.is_none());
}

#[test]
fn a_repository_may_only_narrow() {
    let (profile, notices) = repository(
        "description='p'\n[filesystem]\nhide=['private']\nfreeze=['ci']\nhome='read-only'\n[network]\nmode='none'\n\
         [environment]\ndeny=['FOO']\n[limits]\ntime='5m'\n[run]\nmode='dry-run'\n",
    );
    assert!(notices.is_empty(), "{notices:?}");
    let at = |line| Origin::Repository { file: "/p/agentbox.toml".into(), line };
    assert_eq!(profile.filesystem.hide, [Written::new("private".into(), at(3))]);
    assert_eq!(profile.filesystem.freeze, [Written::new("ci".into(), at(4))]);
    assert_eq!(profile.filesystem.home, Some(Written::new(HomeMode::ReadOnly, at(5))));
    assert_eq!(profile.network.mode, Some(Written::new(NetMode::None, at(7))));
    assert_eq!(profile.environment.deny, [Written::new("FOO".into(), at(9))]);
    assert_eq!(profile.limits.time, Some(Written::new(300, at(11))));
    assert_eq!(profile.run.mode, Some(Written::new(Mode::DryRun, at(13))));
}

#[test]
fn what_widens_in_a_repository_is_dropped_and_named() {
    let text = "extends=['shell']\nprograms=['sh']\n[filesystem]\nrw=['/']\nro=['/etc']\nscratch=['/a']\nhome='private'\n\
        grant=['.env']\nbuild_dirs=['src']\ntoolchains=true\nhide=['!.env', 'kept']\nfreeze=['!ci']\n[network]\n\
        mode='host'\ntcp_connect=[1]\ntcp_bind=[1]\nsockets=['/s']\n[environment]\npass=['A']\nset={B='1'}\ndeny=['!C']\n\
        [run]\nmode='live'\ndiff='none'\nnested=true\ndegraded=['seccomp']\n";
    let (mut profile, notices) = repository(text);
    assert_eq!(
        notices,
        [
            "/p/agentbox.toml:1: widens, ignored: repository files may only narrow: extends (line 1), programs (line 2), \
          filesystem.rw (line 4), filesystem.ro (line 5), filesystem.scratch (line 6), filesystem.home (line 7), \
          filesystem.grant (line 8), filesystem.build_dirs (line 9), filesystem.toolchains (line 10), \
          filesystem.hide (line 11), filesystem.freeze (line 12), network.mode (line 14), network.tcp_connect (line 15), \
          network.tcp_bind (line 16), network.sockets (line 17), environment.pass (line 19), environment.set (line 20), \
          environment.deny (line 21), run.mode (line 23), run.diff (line 24), run.nested (line 25), \
          run.degraded (line 26)"
        ]
    );
    assert_eq!(globs(&profile.filesystem.hide), ["kept"]);
    profile.filesystem.hide.clear();
    profile.names.clear();
    assert_eq!(profile, super::super::Profile::default());
}

#[test]
fn a_repository_file_is_read_as_strictly() {
    let loader = Loader::new(None);
    let refused = |text: &[u8]| loader.repository(text, "/p/agentbox.toml".as_ref()).unwrap_err().to_string();
    assert_eq!(refused(b"\nhidee=1"), "reading profile /p/agentbox.toml:2: unknown key `hidee`");
    assert_eq!(refused(b"\xff"), "reading profile /p/agentbox.toml:1: not UTF-8");
    assert_eq!(refused(&vec![b'\n'; 300_000]), "reading profile /p/agentbox.toml: more than 65536 bytes");
}

#[test]
fn run_keys_are_read() {
    let run = sheet("[run]\nmode='live'\ndiff='stat'\nnested=true\ndegraded=['mounts']").profile.run;
    assert_eq!(run.mode.unwrap().value, Mode::Live);
    assert!(run.nested.unwrap().value);
    assert_eq!(globs(&run.degraded), [Layer::Mounts]);
}
