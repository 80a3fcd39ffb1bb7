//! One command that eats the machine.

use super::lines;
use crate::common::Place;

/// A fork bomb meets the limit on processes, and others of this user are not affected.
#[test]
fn fork_bomb() {
    let place = Place::new();
    let boxed = place.boxed(&["--limit", "processes=400"], &["forks", "1000", "+", "forks", "50"]);
    let answers = lines(&boxed, 2);
    let (count, errno) = answers[0].split_once(' ').unwrap_or_else(|| panic!("stopped: {boxed}"));
    assert_eq!(errno, "EAGAIN", "{boxed}");
    assert!((60..=400).contains(&count.parse::<u32>().unwrap()), "{boxed}");
    assert_eq!(answers[1], "all", "what ended is given back: {boxed}");
    place.bare(&["forks", "1000"]).ok().out_is("all");
}

/// There is a limit without asking.
#[test]
fn fork_bomb_by_default() {
    let place = Place::new();
    let boxed = place.boxed(&[], &["forks", "5000"]);
    assert!(lines(&boxed, 1)[0].ends_with(" EAGAIN"), "{boxed}");
}

/// A memory bomb is refused or ended, and the run goes on.
#[test]
fn memory_bomb() {
    let place = Place::new();
    let boxed = place.boxed(&["--limit", "memory=200M"], &["hold", "400", "+", "hold", "20"]);
    let answers = lines(&boxed, 2);
    assert!(["ENOMEM", "SIGKILL"].contains(&answers[0]), "{boxed}");
    assert_eq!(answers[1], "ok", "{boxed}");
    place.bare(&["hold", "400"]).ok().out_is("ok");
}

/// /tmp has an end, and says ENOSPC.
#[test]
fn full_tmp() {
    let place = Place::new();
    let boxed = place.boxed(&["--limit", "tmp=16M"], &["fill", "/tmp/big", "40", "+", "fill", "/tmp/small", "4"]);
    assert_eq!(lines(&boxed, 2), ["ENOSPC", "ok"], "{boxed}");
}
