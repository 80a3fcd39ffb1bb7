//! The line differences of two texts, in bounded time.

use similar::{Algorithm, DiffOp};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A file and a whole review may take this long; what is left then is told as replaced, which is a correct diff too.
const PER_FILE: Duration = Duration::from_secs(1);
const ALL: Duration = Duration::from_secs(10);

/// Time left for finding small differences.
#[derive(Debug)]
pub struct Budget {
    end: Instant,
}

impl Budget {
    pub fn start() -> Budget {
        Budget { end: Instant::now() + ALL }
    }

    fn deadline(&self) -> Instant {
        self.end.min(Instant::now() + PER_FILE)
    }
}

/// Two texts as lines, and the operations that lead from one to the other.
#[derive(Debug)]
pub struct Delta<'a> {
    pub old: Vec<&'a [u8]>,
    pub new: Vec<&'a [u8]>,
    pub ops: Vec<DiffOp>,
}

/// Splits after each line feed, and nowhere else: to git a lone carriage return is content.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

impl<'a> Delta<'a> {
    pub fn of(old: &'a [u8], new: &'a [u8], budget: &Budget) -> Delta<'a> {
        let (old, new) = (lines(old), lines(new));
        let ops =
            if old.is_empty() || new.is_empty() { whole(old.len(), new.len()) } else { search(&old, &new, budget) };
        Delta { old, new, ops }
    }

    /// Lines added and removed.
    pub fn counts(&self) -> (usize, usize) {
        self.ops.iter().fold((0, 0), |(added, removed), op| match op {
            DiffOp::Equal { .. } => (added, removed),
            DiffOp::Delete { old_len, .. } => (added, removed + old_len),
            DiffOp::Insert { new_len, .. } => (added + new_len, removed),
            DiffOp::Replace { old_len, new_len, .. } => (added + new_len, removed + old_len),
        })
    }
}

fn whole(old: usize, new: usize) -> Vec<DiffOp> {
    match (old, new) {
        (0, 0) => Vec::new(),
        (0, new_len) => vec![DiffOp::Insert { old_index: 0, new_index: 0, new_len }],
        (old_len, 0) => vec![DiffOp::Delete { old_index: 0, old_len, new_index: 0 }],
        (old_len, new_len) => vec![DiffOp::Replace { old_index: 0, old_len, new_index: 0, new_len }],
    }
}

fn search(old: &[&[u8]], new: &[&[u8]], budget: &Budget) -> Vec<DiffOp> {
    // Most edits are small: what is equal at both ends needs no hashing.
    let same = |(a, b): &(&&[u8], &&[u8])| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(same).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut ids = HashMap::new();
    let (old_ids, new_ids) = (intern(&mut ids, &old[head..old_end]), intern(&mut ids, &new[head..new_end]));
    let found = similar::capture_diff_slices_deadline(Algorithm::Myers, &old_ids, &new_ids, Some(budget.deadline()));
    let mut ops = Vec::with_capacity(found.len() + 2);
    if head > 0 {
        ops.push(DiffOp::Equal { old_index: 0, new_index: 0, len: head });
    }
    ops.extend(found.into_iter().map(|op| shift(op, head)));
    if tail > 0 {
        ops.push(DiffOp::Equal { old_index: old_end, new_index: new_end, len: tail });
    }
    merge(ops)
}

/// A number for each distinct line: comparing lines is what a search does most.
fn intern<'a>(ids: &mut HashMap<&'a [u8], usize>, lines: &[&'a [u8]]) -> Vec<usize> {
    let mut id = |line: &&'a [u8]| {
        let next = ids.len();
        *ids.entry(line).or_insert(next)
    };
    lines.iter().map(&mut id).collect()
}

fn shift(op: DiffOp, by: usize) -> DiffOp {
    match op {
        DiffOp::Equal { old_index, new_index, len } => {
            DiffOp::Equal { old_index: old_index + by, new_index: new_index + by, len }
        }
        DiffOp::Delete { old_index, old_len, new_index } => {
            DiffOp::Delete { old_index: old_index + by, old_len, new_index: new_index + by }
        }
        DiffOp::Insert { old_index, new_index, new_len } => {
            DiffOp::Insert { old_index: old_index + by, new_index: new_index + by, new_len }
        }
        DiffOp::Replace { old_index, old_len, new_index, new_len } => {
            DiffOp::Replace { old_index: old_index + by, old_len, new_index: new_index + by, new_len }
        }
    }
}

/// Joins neighbouring equal stretches, or the grouping would open a hunk in the middle of one.
fn merge(ops: Vec<DiffOp>) -> Vec<DiffOp> {
    let mut merged: Vec<DiffOp> = Vec::with_capacity(ops.len());
    for op in ops {
        if let (Some(DiffOp::Equal { len, .. }), DiffOp::Equal { len: more, .. }) = (merged.last_mut(), op) {
            *len += more;
        } else {
            merged.push(op);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pathological_pair_ends_in_time() {
        // Few distinct lines in a random order are the worst case of the search.
        let mut seed = 1_u64;
        let mut noise = |len: usize| -> Vec<u8> {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b"abcd"[usize::try_from(seed >> 62).unwrap()]
            };
            (0..len).flat_map(|_| [next(), b'\n']).collect()
        };
        let (old, new) = (noise(1_000_000), noise(1_000_000));
        let start = Instant::now();
        let delta = Delta::of(&old, &new, &Budget::start());
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        let (added, removed) = delta.counts();
        assert_eq!(added, removed);
    }

    #[test]
    fn only_line_feeds_end_a_line() {
        assert_eq!(lines(b"a\r\nb\rc\n\nd"), [&b"a\r\n"[..], b"b\rc\n", b"\n", b"d"]);
        assert_eq!(lines(b""), [] as [&[u8]; 0]);
    }

    #[test]
    fn counts_of_small_edits() {
        let delta = Delta::of(b"a\nb\nc\n", b"a\nx\nc\nd", &Budget::start());
        assert_eq!(delta.counts(), (2, 1));
        let delta = Delta::of(b"", b"a\nb", &Budget::start());
        assert_eq!(delta.counts(), (2, 0));
    }
}
