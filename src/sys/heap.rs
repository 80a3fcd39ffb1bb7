//! The program's allocator: memory is taken from the front of one region, and what is freed waits in a list of its size.
//!
//! A static program with musl starts in a sixth of the time that one with glibc takes, but musl's own allocator asks the
//! kernel for memory, and gives it back, a hundred times a launch. This one asks for none before half a MiB is used.
//! There is no lock, for the program has one thread (docs/architecture.md): a second one that allocates ends the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alignment of every block; what wants more is libc's.
const ALIGN: usize = 16;
/// Larger blocks are libc's, which gives them back to the kernel when they are freed.
const LARGEST: usize = 64 * 1024;
/// The first region lies in the program's own zero pages, the others are asked for.
const FIRST: usize = 512 * 1024;
const NEXT: usize = 1024 * 1024;
/// Up to here a class for every 16 bytes, then four for every doubling.
const FINE: usize = 128;
const CLASSES: usize = FINE / ALIGN + 4 * (LARGEST / FINE).ilog2() as usize;

/// To be made the program's `#[global_allocator]`.
pub struct Heap {
    /// The mark of the one thread; 0 before the first call.
    owner: AtomicUsize,
    blocks: UnsafeCell<Blocks>,
    first: UnsafeCell<Region>,
}

#[repr(C, align(16))]
struct Region([u8; FIRST]);

struct Blocks {
    /// What is left of the region: never used, so still zero.
    next: *mut u8,
    left: usize,
    /// By class, the last block that was freed; each holds the one before.
    free: [*mut u8; CLASSES],
}

// SAFETY: `blocks` and `first` are touched by the owner's thread alone: see [`Heap::blocks`].
unsafe impl Sync for Heap {}

thread_local! {
    /// Its address tells threads apart, and a fork's child has its parent's.
    static MARK: Cell<u8> = const { Cell::new(0) };
}

/// The class of a size in 1..=LARGEST, and the bytes that a block of it has.
fn class_of(size: usize) -> (usize, usize) {
    if size <= FINE {
        let class = size.saturating_sub(1) / ALIGN;
        return (class, (class + 1) * ALIGN);
    }
    // The doubling that holds it, and the quarter of that.
    let doubling = (size - 1).ilog2() as usize;
    let quarter = 1 << (doubling - 2);
    let number = (size - 1 - (1 << doubling)) / quarter;
    let class = FINE / ALIGN + 4 * (doubling - FINE.ilog2() as usize) + number;
    (class, (1 << doubling) + (number + 1) * quarter)
}

fn is_ours(layout: Layout) -> bool {
    layout.size() <= LARGEST && layout.align() <= ALIGN
}

impl Heap {
    #[allow(clippy::new_without_default, reason = "a static wants a constant")]
    pub const fn new() -> Heap {
        Heap {
            owner: AtomicUsize::new(0),
            blocks: UnsafeCell::new(Blocks { next: null_mut(), left: 0, free: [null_mut(); CLASSES] }),
            first: UnsafeCell::new(Region([0; FIRST])),
        }
    }

    /// The blocks, for the one thread. Callers keep the reference no longer than until they return, and call nothing
    /// that allocates.
    #[allow(clippy::mut_from_ref, reason = "the check is what makes the reference the only one")]
    fn blocks(&self) -> &mut Blocks {
        let mark = MARK.with(|mark| std::ptr::from_ref(mark).addr());
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != mark {
            let first = self.owner.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed);
            if first.is_err() {
                std::process::abort();
            }
        }
        // SAFETY: no other thread got this far, and this one is not within another call of the allocator.
        unsafe { &mut *self.blocks.get() }
    }

    /// A block for `size` bytes, and whether it is all zero.
    fn take(&self, size: usize) -> (*mut u8, bool) {
        let blocks = self.blocks();
        let (class, bytes) = class_of(size);
        let head = blocks.free[class];
        if !head.is_null() {
            // SAFETY: a block in the list is free, and its first word was written by `give`.
            blocks.free[class] = unsafe { head.cast::<*mut u8>().read() };
            return (head, false);
        }
        if bytes > blocks.left {
            self.next_region(blocks);
            if bytes > blocks.left {
                return (null_mut(), false);
            }
        }
        let block = blocks.next;
        // SAFETY: `left` bytes lie behind `next`, and these are no more than that.
        blocks.next = unsafe { block.add(bytes) };
        blocks.left -= bytes;
        (block, true)
    }

    /// Goes on in a new region; the rest of the old one is no loss worth the code.
    fn next_region(&self, blocks: &mut Blocks) {
        if blocks.next.is_null() {
            (blocks.next, blocks.left) = (self.first.get().cast(), FIRST);
            return;
        }
        const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
        const KIND: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: asks for memory of its own, at no given place.
        let region = unsafe { libc::mmap(null_mut(), NEXT, ACCESS, KIND, -1, 0) };
        if region != libc::MAP_FAILED {
            (blocks.next, blocks.left) = (region.cast(), NEXT);
        }
    }

    fn give(&self, block: *mut u8, size: usize) {
        let blocks = self.blocks();
        let (class, _) = class_of(size);
        // SAFETY: the block is the caller's to give, is aligned for a pointer and as large as one.
        unsafe { block.cast::<*mut u8>().write(blocks.free[class]) };
        blocks.free[class] = block;
    }

    /// Makes the block larger where nothing lies behind it yet, as with the text or the list that is being put together.
    fn grow(&self, block: *mut u8, old: usize, new: usize) -> bool {
        let blocks = self.blocks();
        let ((_, old), (_, new)) = (class_of(old), class_of(new));
        let is_last = block.wrapping_add(old) == blocks.next;
        if !is_last || new - old > blocks.left {
            return false;
        }
        blocks.next = block.wrapping_add(new);
        blocks.left -= new - old;
        true
    }
}

// SAFETY: a block is handed out once until it comes back: the front of the region moves past it, and a list loses it
// when it is taken. Its class has room for its layout, and all blocks begin at multiples of 16. Who frees says the layout
// that the block was made with, hence whether it is libc's.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_ours(layout) {
            return self.take(layout.size()).0;
        }
        // SAFETY: the caller's own promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_ours(layout) {
            // SAFETY: the caller's own promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        let (block, is_zero) = self.take(layout.size());
        if !is_zero && !block.is_null() {
            // SAFETY: the block has room for its layout.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_ours(layout) {
            self.give(block, layout.size());
        } else {
            // SAFETY: a layout that is not ours was served by libc.
            unsafe { System.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_ours(layout), is_ours(new)) {
            (true, true) => {
                let same = class_of(layout.size()) == class_of(size);
                if same || (size > layout.size() && self.grow(block, layout.size(), size)) {
                    return block;
                }
            }
            // SAFETY: both are libc's, and the caller's own promises hold.
            (false, false) => return unsafe { System.realloc(block, layout, size) },
            (true, false) | (false, true) => {}
        }
        // SAFETY: the caller promises a layout of at least a byte.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both have room for the shorter of the two, and a block that was just made overlaps no other.
            unsafe { moved.copy_from_nonoverlapping(block, layout.size().min(size)) };
            // SAFETY: the caller gives the old block up.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_tight_and_in_order() {
        let mut before = (0, 16);
        for size in 1..=LARGEST {
            let (class, bytes) = class_of(size);
            assert!(bytes >= size && bytes.is_multiple_of(ALIGN) && class < CLASSES, "{size}");
            assert!(bytes < size + ALIGN || bytes * 4 <= size * 5 + 4, "{size} takes {bytes}");
            // The first class begins, or the one before was full.
            assert!((class, bytes) == before || (class == before.0 + 1 && size == before.1 + 1), "{size}");
            before = (class, bytes);
        }
        assert_eq!(before, (CLASSES - 1, LARGEST));
    }

    /// Everything that is alive keeps what was written into it, through growing, shrinking and being freed in between.
    #[test]
    fn blocks_do_not_overlap() {
        static HEAP: Heap = Heap::new();
        let heap = &HEAP;
        let mut alive: Vec<(*mut u8, Layout, u8)> = Vec::new();
        let mut random = 1u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let check = |block: *mut u8, size: usize, mark: u8| {
            // SAFETY: the block is alive and has this size.
            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
            assert!(bytes.iter().all(|&byte| byte == mark));
        };
        for turn in 0..20_000usize {
            let size = 1 + next([40, 400, 4000, 2 * LARGEST][turn % 4]);
            let mark = turn as u8;
            if alive.len() > 50 && next(3) > 0 {
                let (block, layout, mark) = alive.swap_remove(next(alive.len()));
                check(block, layout.size(), mark);
                if next(2) == 0 {
                    // SAFETY: it is alive, and this is its layout.
                    unsafe { heap.dealloc(block, layout) };
                    continue;
                }
                // SAFETY: as above.
                let grown = unsafe { heap.realloc(block, layout, size) };
                check(grown, size.min(layout.size()), mark);
                // SAFETY: it has `size` bytes now.
                unsafe { grown.write_bytes(mark, size) };
                alive.push((grown, Layout::from_size_align(size, layout.align()).unwrap(), mark));
                continue;
            }
            let layout = Layout::from_size_align(size, [1, 8, 16, 64][next(4)]).unwrap();
            let block = if turn % 2 == 0 {
                // SAFETY: the size is not 0.
                unsafe { heap.alloc(layout) }
            } else {
                // SAFETY: the size is not 0.
                unsafe { heap.alloc_zeroed(layout) }
            };
            assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
            if turn % 2 == 1 {
                check(block, size, 0);
            }
            // SAFETY: it has `size` bytes.
            unsafe { block.write_bytes(mark, size) };
            alive.push((block, layout, mark));
        }
        for (block, layout, mark) in alive {
            check(block, layout.size(), mark);
            // SAFETY: it is alive, and this is its layout.
            unsafe { heap.dealloc(block, layout) };
        }
    }
}
