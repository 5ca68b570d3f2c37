//! Blocks: memory of one size for what is filled little by little and given up as a whole, as the tails of
//! munks are.
//!
//! A page of a fresh mapping costs some seven times what it costs to fill one that is there
//! (docs/notebook/README.md, puts). So blocks are cut from large mappings that the process keeps: what goes
//! back to the system is the pages of a block, not its addresses, and a block that was given up a moment ago
//! still has them. How many such blocks wait, and how long, is for [`spare`](crate::spare) to say. What is
//! always true:
//!
//! - S-71: a block belongs to one owner, or to nobody; no two overlap, and none is ever unmapped.
#![expect(unsafe_code, reason = "cuts blocks from mappings, and gives their pages back")]

use std::{mem::ManuallyDrop, ptr::NonNull};

use memmap2::MmapMut;
use parking_lot::Mutex;
use rustix::mm::{Advice, madvise};

use crate::spare;

/// A put begins a block in some eighty puts; what is not written to yet is little for a tail.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of one mapping: the system allows only so many mappings.
const BLOCKS_A_MAPPING: usize = 64;

/// Blocks without pages.
static BARE: Mutex<Vec<Bare>> = Mutex::new(Vec::new());

/// The addresses of a block that nobody uses.
#[derive(Debug)]
struct Bare(NonNull<u8>);

// SAFETY: addresses in a mapping that no thread owns; the value alone gives the right to them.
unsafe impl Send for Bare {}

/// [`BLOCK_BYTES`] bytes with a stable address that begins a page, to read and write. They may have anything
/// in them.
#[derive(Debug)]
pub(crate) struct Block(ManuallyDrop<Bare>);

impl Block {
    /// One whose pages are there, if there is one, or one of zeros. None if the system has no addresses left.
    pub(crate) fn take() -> Option<Self> {
        spare::take_block().or_else(Self::bare)
    }

    fn bare() -> Option<Self> {
        let bare = BARE.lock().pop();
        let bare = match bare {
            Some(bare) => bare,
            None => {
                // Without the lock, which is never held across a call to the system: two threads may come
                // here, and both are right.
                let mut mapping = ManuallyDrop::new(MmapMut::map_anon(BLOCKS_A_MAPPING * BLOCK_BYTES).ok()?);
                let mut blocks =
                    mapping.chunks_exact_mut(BLOCK_BYTES).map(|block| Bare(NonNull::from(block).cast()));
                let first = blocks.next();
                BARE.lock().extend(blocks);
                first?
            }
        };
        Some(Block(ManuallyDrop::new(bare)))
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.0
    }
}

impl Drop for Block {
    /// Gives its pages back to the system. Whoever has used it offers it to [`spare`] first.
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let bare = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: whole pages of a mapping that stays; nobody else has them, and their owner is done with
        // them. Refused, they stay until somebody takes the block.
        let _ = unsafe { madvise(bare.0.as_ptr().cast(), BLOCK_BYTES, Advice::LinuxDontNeed) };
        BARE.lock().push(bare);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// S-71.
    #[test]
    fn blocks_do_not_overlap_and_are_used_again() {
        let blocks: Vec<Block> = (0..200).map(|_| Block::take().expect("there is memory")).collect();
        let places: HashSet<usize> = blocks.iter().map(|block| block.base().as_ptr() as usize).collect();
        assert_eq!(places.len(), 200);
        let mut sorted: Vec<usize> = places.iter().copied().collect();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= BLOCK_BYTES));
        for block in &blocks {
            // SAFETY: all of a block is its owner's to write.
            unsafe { block.base().as_ptr().write_bytes(7, BLOCK_BYTES) };
        }
        drop(blocks);
        let again: Vec<Block> = (0..100).map(|_| Block::take().expect("there is memory")).collect();
        for block in &again {
            // SAFETY: initialised, for it is a mapping's.
            let first = unsafe { block.base().as_ptr().read() };
            assert!(first == 0 || first == 7);
        }
    }
}
