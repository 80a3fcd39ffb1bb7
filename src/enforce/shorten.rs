//! Makes a filter short without changing an answer: the kernel translates, compiles and emulates every instruction when
//! a filter is installed, so its length is launch time, and its depth is the time of every call that has checks.
//!
//! What seccompiler builds is a chain: for each system call one comparison and, behind it, the checks of its arguments.
//! It is read back as decisions, each of them kept once however many calls lead to it, and written anew below a binary
//! search over the numbers. Calls that are decided by number alone load no argument, so that the kernel's cache of
//! answers takes them. A program of any other shape is not touched.

use seccompiler::{BpfProgram, sock_filter};

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in `struct seccomp_data` (seccomp(2)).
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// The same answers in fewer instructions; `None` for a program that is no chain over the call's number, or that asks
/// for more of an architecture than whether it is `arch`.
pub(super) fn shorten(program: &[sock_filter], arch: u32) -> Option<BpfProgram> {
    let foreign = answer_to_foreign(program, arch)?;
    let mut decisions = Decisions { program, nodes: Vec::new() };
    let (calls, default) = decisions.calls(arch)?;
    Some(Writer::write(&decisions.nodes, &calls, default, arch, foreign))
}

/// A comparison of a word of the call, under a mask.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Test {
    offset: u32,
    mask: u32,
    relation: u16,
    value: u32,
}

impl Test {
    fn holds(self, word: u32) -> bool {
        let masked = word & self.mask;
        match self.relation {
            EQUAL => masked == self.value,
            AT_LEAST => masked >= self.value,
            ABOVE => masked > self.value,
            _ => masked & self.value != 0,
        }
    }
}

/// Index of a node; those that it leads to have smaller ones.
type Id = usize;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Return(u32),
    Test { test: Test, yes: Id, no: Id },
}

/// Calls of these numbers are decided by this node.
#[derive(Clone, Copy)]
struct Calls {
    first: u32,
    last: u32,
    node: Id,
}

/// The accumulator: which word of the call, under which mask.
#[derive(Clone, Copy)]
struct Loaded {
    offset: u32,
    mask: u32,
}

/// What the program does with a call of another architecture: it has to be one answer for all.
fn answer_to_foreign(program: &[sock_filter], arch: u32) -> Option<u32> {
    let [load, compare, answer, ..] = program else { return None };
    let compares = (compare.code, compare.k, compare.jt, compare.jf) == (EQUAL, arch, 1, 0);
    let first = load.code == LOAD && load.k == ARCH && compares && answer.code == RETURN;
    first.then_some(answer.k)
}

struct Decisions<'a> {
    program: &'a [sock_filter],
    nodes: Vec<Node>,
}

impl Decisions<'_> {
    /// Follows the chain of comparisons of the number; the first that holds decides. The calls are disjoint and sorted,
    /// without those that the end of the chain decides.
    fn calls(&mut self, arch: u32) -> Option<(Vec<Calls>, Id)> {
        let mut calls: Vec<Calls> = Vec::with_capacity(160);
        let mut loaded = Loaded { offset: NUMBER, mask: 0 };
        let mut at = 0;
        let default = loop {
            let step = self.program.get(at)?;
            at += 1;
            match step.code {
                LOAD => loaded = Loaded { offset: step.k, mask: u32::MAX },
                JUMP => at += step.k as usize,
                RETURN => break self.node(Node::Return(step.k)),
                EQUAL | AT_LEAST | ABOVE => {
                    let (yes, no) = (at + usize::from(step.jt), at + usize::from(step.jf));
                    let test = Test { offset: loaded.offset, mask: loaded.mask, relation: step.code, value: step.k };
                    at = no;
                    if loaded.offset == ARCH && test.holds(arch) {
                        at = yes;
                    } else if loaded.offset == NUMBER && loaded.mask == u32::MAX {
                        let (first, last) = match step.code {
                            EQUAL => (step.k, step.k),
                            AT_LEAST => (step.k, u32::MAX),
                            _ => (step.k.checked_add(1)?, u32::MAX),
                        };
                        let node = self.decide(yes, loaded, &mut Vec::new())?;
                        insert(&mut calls, Calls { first, last, node });
                    } else if loaded.offset != ARCH {
                        return None;
                    }
                }
                _ => return None,
            }
        };
        calls.retain(|calls| calls.node != default);
        calls.dedup_by(|next, last| {
            let joined = last.node == next.node && last.last.checked_add(1) == Some(next.first);
            if joined {
                last.last = next.last;
            }
            joined
        });
        Some((calls, default))
    }

    /// The decision from one place on. `known` are the tests on the way there with their outcomes: what they imply is
    /// not asked again.
    fn decide(&mut self, from: usize, mut loaded: Loaded, known: &mut Vec<(Test, bool)>) -> Option<Id> {
        let mut at = from;
        loop {
            let step = self.program.get(at)?;
            at += 1;
            match step.code {
                LOAD => loaded = Loaded { offset: step.k, mask: u32::MAX },
                AND => loaded.mask &= step.k,
                JUMP => at += step.k as usize,
                RETURN => return Some(self.node(Node::Return(step.k))),
                EQUAL | AT_LEAST | ABOVE => {
                    // The number is known here, and whoever asks again is of another shape.
                    if loaded.offset < 16 {
                        return None;
                    }
                    let (yes, no) = (at + usize::from(step.jt), at + usize::from(step.jf));
                    let one_bit = loaded.mask.is_power_of_two() && step.k == loaded.mask && step.code == EQUAL;
                    let (relation, mask) = if one_bit { (ANY_BIT, u32::MAX) } else { (step.code, loaded.mask) };
                    let test = Test { offset: loaded.offset, mask, relation, value: step.k };
                    if let Some(outcome) = implied(test, known) {
                        at = if outcome { yes } else { no };
                        continue;
                    }
                    known.push((test, true));
                    let yes = self.decide(yes, loaded, known)?;
                    known.pop();
                    known.push((test, false));
                    let no = self.decide(no, loaded, known)?;
                    known.pop();
                    return Some(self.test(test, yes, no));
                }
                _ => return None,
            }
        }
    }

    fn test(&mut self, test: Test, yes: Id, no: Id) -> Id {
        if yes == no {
            return yes;
        }
        // One bit or another, with the same outcome: one test of both.
        if let (ANY_BIT, Node::Test { test: next, yes: also, no }) = (test.relation, self.nodes[no])
            && (next.relation, next.offset, also) == (ANY_BIT, test.offset, yes)
        {
            return self.node(Node::Test { test: Test { value: test.value | next.value, ..test }, yes, no });
        }
        self.node(Node::Test { test, yes, no })
    }

    fn node(&mut self, node: Node) -> Id {
        self.nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        })
    }
}

/// The outcome of a test that others have settled: its twin, or one that says what the whole word is.
fn implied(test: Test, known: &[(Test, bool)]) -> Option<bool> {
    known.iter().filter(|(other, _)| other.offset == test.offset).find_map(|&(other, outcome)| {
        if other == test {
            return Some(outcome);
        }
        let is_whole = outcome && other.relation == EQUAL && other.mask == u32::MAX;
        is_whole.then(|| test.holds(other.value))
    })
}

/// Adds what no call in the list covers yet.
fn insert(list: &mut Vec<Calls>, new: Calls) {
    let mut at = list.partition_point(|calls| calls.last < new.first);
    let mut first = new.first;
    loop {
        let next = list.get(at).copied().filter(|next| next.first <= new.last);
        let end = match next {
            Some(next) if next.first > first => Some(next.first - 1),
            Some(_) => None,
            None => Some(new.last),
        };
        if let Some(last) = end {
            list.insert(at, Calls { first, last, ..new });
            at += 1;
        }
        match next.map(|next| next.last.checked_add(1)) {
            Some(Some(behind)) if behind <= new.last => {
                first = behind;
                at += 1;
            }
            Some(_) | None => return,
        }
    }
}

/// Where a node begins, counted from the program's end. Whoever has loaded the word already enters later.
#[derive(Clone, Copy, Default)]
struct Entries {
    unloaded: usize,
    loaded: usize,
    masked: usize,
}

/// Writes from behind, so that every jump knows how far it goes.
struct Writer<'a> {
    nodes: &'a [Node],
    entries: Vec<Entries>,
    out: BpfProgram,
}

impl Writer<'_> {
    fn write(nodes: &[Node], calls: &[Calls], default: Id, arch: u32, foreign: u32) -> BpfProgram {
        let mut writer =
            Writer { nodes, entries: vec![Entries::default(); nodes.len()], out: BpfProgram::with_capacity(256) };
        let wanted = wanted(nodes, calls);
        let foreign = writer.push(RETURN, foreign);
        for (id, &wanted) in wanted.iter().enumerate() {
            if wanted != Wanted::default() || id == default {
                writer.node(id, wanted);
            }
        }
        writer.search(calls, writer.entries[default].unloaded);
        let number = writer.push(LOAD, NUMBER);
        writer.branch(EQUAL, arch, number, foreign);
        writer.push(LOAD, ARCH);
        writer.out.reverse();
        writer.out
    }

    fn push(&mut self, code: u16, k: u32) -> usize {
        self.out.push(sock_filter { code, jt: 0, jf: 0, k });
        self.out.len() - 1
    }

    fn branch(&mut self, code: u16, k: u32, yes: usize, no: usize) -> usize {
        let (yes, no) = (self.within_reach(yes), self.within_reach(no));
        let next = self.out.len() - 1;
        // In reach, that is less than 256.
        self.out.push(sock_filter { code, jt: (next - yes) as u8, jf: (next - no) as u8, k });
        next + 1
    }

    /// A conditional jump goes no further than 255; a step in between may add one.
    fn within_reach(&mut self, to: usize) -> usize {
        let distance = self.out.len() - 1 - to;
        if distance < 254 {
            return to;
        }
        let target = self.out[to].clone();
        if target.code == RETURN { self.push(RETURN, target.k) } else { self.push(JUMP, distance as u32) }
    }

    /// With what the accumulator holds after a test, where a node is entered.
    fn entry(&self, to: Id, after: Test) -> usize {
        let entries = self.entries[to];
        match state(self.nodes[to], after) {
            State::Unloaded => entries.unloaded,
            State::Loaded => entries.loaded,
            State::Masked => entries.masked,
        }
    }

    fn node(&mut self, id: Id, wanted: Wanted) {
        let mut entries = Entries::default();
        match self.nodes[id] {
            Node::Return(answer) => entries.unloaded = self.push(RETURN, answer),
            Node::Test { test, yes, no } => {
                let (yes, no) = (self.entry(yes, test), self.entry(no, test));
                entries.masked = self.branch(test.relation, test.value, yes, no);
                entries.loaded = entries.masked;
                if test.mask != u32::MAX && (wanted.unloaded || wanted.loaded) {
                    entries.loaded = self.push(AND, test.mask);
                }
                if wanted.unloaded {
                    entries.unloaded = self.push(LOAD, test.offset);
                }
            }
        }
        self.entries[id] = entries;
    }

    /// A binary search with a few comparisons at its leaves.
    fn search(&mut self, calls: &[Calls], default: usize) -> usize {
        const FEW: usize = 4;
        if calls.len() <= FEW {
            let mut next = default;
            for calls in calls.iter().rev() {
                let node = self.entries[calls.node].unloaded;
                next = if calls.first == calls.last {
                    self.branch(EQUAL, calls.first, node, next)
                } else if calls.last == u32::MAX {
                    self.branch(AT_LEAST, calls.first, node, next)
                } else {
                    let inside = self.branch(ABOVE, calls.last, next, node);
                    self.branch(AT_LEAST, calls.first, inside, next)
                };
            }
            return next;
        }
        let (low, high) = calls.split_at(calls.len() / 2);
        let above = self.search(high, default);
        let below = self.search(low, default);
        self.branch(AT_LEAST, high[0].first, above, below)
    }
}

enum State {
    Unloaded,
    Loaded,
    Masked,
}

/// What a node finds in the accumulator that a test before it left there.
fn state(node: Node, after: Test) -> State {
    match node {
        Node::Test { test, .. } if test.offset == after.offset && after.mask == u32::MAX => State::Loaded,
        Node::Test { test, .. } if test.offset == after.offset && test.mask == after.mask => State::Masked,
        Node::Test { .. } | Node::Return(_) => State::Unloaded,
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Wanted {
    unloaded: bool,
    loaded: bool,
    masked: bool,
}

/// Which entries of each node are used.
fn wanted(nodes: &[Node], calls: &[Calls]) -> Vec<Wanted> {
    let mut wanted = vec![Wanted::default(); nodes.len()];
    for calls in calls {
        wanted[calls.node].unloaded = true;
    }
    // From the top: a node's index is above those that it leads to.
    for id in (0..nodes.len()).rev() {
        let Node::Test { test, yes, no } = nodes[id] else { continue };
        if wanted[id] == Wanted::default() {
            continue;
        }
        for to in [yes, no] {
            match state(nodes[to], test) {
                State::Unloaded => wanted[to].unloaded = true,
                State::Loaded => wanted[to].loaded = true,
                State::Masked => wanted[to].masked = true,
            }
        }
    }
    wanted
}
