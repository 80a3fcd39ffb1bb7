//! Broken copies of the built-in profiles: each is read or refused, none ends the program.

use super::super::read::{Author, read};
use super::super::{BUILT_IN, Loader};

/// Xorshift: the same copies at every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

const PIECES: &[&str] = &[
    "\"",
    "'",
    "\"\"\"",
    "[",
    "]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "#",
    "\n",
    "\r",
    "\0",
    "!",
    ":",
    "\\",
    "\\u0000",
    "*",
    "[a",
    "99999999999999999999",
    "-1",
    "0x",
    "inf",
    "1979-05-27",
    "ä",
    "\u{feff}",
    "[limits]",
    "[[run]]",
    "path",
    "true",
];

#[test]
fn broken_profiles_never_panic() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut read_well, mut refused) = (0, 0);
    for round in 0..400 {
        let (_, text) = BUILT_IN[round % BUILT_IN.len()];
        let mut bytes = text.as_bytes().to_vec();
        if dice.roll(3) == 0 {
            bytes.truncate(dice.roll(bytes.len()));
        }
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(bytes.len());
            match dice.roll(3) {
                0 if !bytes.is_empty() => drop(bytes.remove(at)),
                1 if !bytes.is_empty() => bytes[at] = dice.roll(256) as u8,
                _ => drop(bytes.splice(at..at, PIECES[dice.roll(PIECES.len())].bytes())),
            }
        }
        // The repository's file is the one that a stranger writes.
        match Loader::new(None).repository(&bytes, "agentbox.toml".as_ref()) {
            Ok(_) => read_well += 1,
            Err(error) => {
                refused += 1;
                assert!(error.to_string().starts_with("reading profile agentbox.toml:"), "{error}");
                assert!(!error.to_string().contains(char::is_control), "{error:?}");
                assert!(!error.hint().unwrap_or_default().contains(char::is_control), "{error:?}");
            }
        }
    }
    assert!(read_well > 20 && refused > 20, "{read_well} read, {refused} refused: the copies are all alike");
}

#[test]
fn every_truncation_is_answered() {
    for (name, text) in BUILT_IN {
        for end in (0..text.len()).step_by(if text.len() > 2000 { 37 } else { 1 }) {
            if let Some(cut) = text.get(..end)
                && let Err(error) = read(name, cut, Author::User)
            {
                assert!(error.to_string().contains(&format!("{name}:")), "{error}");
            }
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    let text = format!("[filesystem]\nhide = {}", "[".repeat(100_000));
    assert!(read("x.toml", &text, Author::User).is_err());
    let text = format!("{}x = 1", "a.".repeat(50_000));
    assert!(read("x.toml", &text, Author::User).is_err());
}
