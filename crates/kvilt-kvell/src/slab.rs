//! `Slab`: the slots of one size class of a shard (KVell, SOSP '19, section 5.3), and which of them are free.
//!
//! ```text
//!            take            the write completed     superseded, deleted
//!   free ----------> taken ----------------------> used ----------------> taken ------> free
//!                      |  the write failed                  a durable cut, and no view needs it
//!                      '------------------> free
//! ```
//!
//! What is always true:
//! - K-4: a slot is free only if the newest durable cut says that it is not used, no write to it is in
//!   flight, and no view needs it. So what a crash can bring back is never written over.
//! - A used slot is taken, too.
//!
//! Free slots are found by a sweep over the slab, so that those taken one after the other often share a
//! block: one read and one write for several puts.

use std::sync::Arc;

use kvilt_base::{File, limits};
use kvilt_format::slab::Class;

use crate::{
    bits::Bits,
    blocks::{BlockId, Location},
};

/// A slab grows by this part of its length …
const GROWTH_PART: u64 = 8;
/// … but at least by this and at most by this, in bytes: room that is taken and not used.
const GROWTH_BYTES_MIN: u64 = 64 << 10;
const GROWTH_BYTES_MAX: u64 = 64 << 20;

const _: () = assert!(limits::VALUE_BYTES_MAX as u64 <= GROWTH_BYTES_MAX);

/// See the module.
pub(crate) struct Slab {
    class: Class,
    file: Arc<dyn File>,
    /// What the next cut's map says.
    used: Bits,
    taken: Bits,
    /// Where the sweep is.
    cursor: u64,
    /// Whether a write has completed since the last cut.
    is_written: bool,
}

impl Slab {
    pub(crate) fn new(class: Class, file: Arc<dyn File>) -> Self {
        Slab { class, file, used: Bits::default(), taken: Bits::default(), cursor: 0, is_written: false }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// How many slots there is room for.
    pub(crate) fn slots(&self) -> u64 {
        self.taken.len()
    }

    /// Slots that are neither used nor waiting.
    pub(crate) fn free_slots(&self) -> u64 {
        self.taken.len() - self.taken.set_count()
    }

    pub(crate) fn used(&self) -> &Bits {
        &self.used
    }

    /// A free slot, which is free no more; whether no slot of its block is used or taken.
    pub(crate) fn take(&mut self) -> Option<(u64, bool)> {
        if self.free_slots() == 0 {
            return None;
        }
        let slot = self.taken.next_clear(self.cursor)?;
        let first = slot - slot % self.class.slots_a_block();
        let is_fresh = self.taken.are_clear(first..first + self.class.slots_a_block());
        self.taken.set(slot);
        self.cursor = slot + 1;
        Some((slot, is_fresh))
    }

    /// The slot's item counts.
    pub(crate) fn becomes_used(&mut self, slot: u64) {
        self.taken.set(slot);
        self.used.set(slot);
        self.is_written = true;
    }

    /// The slot's item counts no more. It stays taken.
    pub(crate) fn becomes_unused(&mut self, slot: u64) {
        self.used.clear(slot);
    }

    /// See K-4.
    pub(crate) fn becomes_free(&mut self, slot: u64) {
        debug_assert!(!self.used.get(slot), "a used slot is not free");
        self.taken.clear(slot);
    }

    pub(crate) fn has_written(&mut self) {
        self.is_written = true;
    }

    pub(crate) fn is_written(&self) -> bool {
        self.is_written
    }

    pub(crate) fn is_synced(&mut self) {
        self.is_written = false;
    }

    /// How long the file should become for more slots, in bytes.
    pub(crate) fn grown_len(&self) -> u64 {
        let len = self.len();
        let step = (len / GROWTH_PART).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
        let block_bytes = self.class.block_bytes() as u64;
        len + step.div_ceil(block_bytes) * block_bytes
    }

    /// How long the file must become for one block more, in bytes.
    pub(crate) fn least_grown_len(&self) -> u64 {
        self.len() + self.class.block_bytes() as u64
    }

    /// Of the file, in bytes, as far as its blocks go.
    pub(crate) fn len(&self) -> u64 {
        self.class.block_offset(self.class.block_of(self.slots()))
    }

    /// There is room for blocks up to this length of the file.
    pub(crate) fn has_grown(&mut self, file_len: u64) {
        let slots = (self.class.blocks_in(file_len) * self.class.slots_a_block()).max(self.slots());
        self.used.grow(slots);
        self.taken.grow(slots);
    }

    /// The block of a slot.
    pub(crate) fn location(&self, slot: u64) -> Location {
        let block = self.class.block_of(slot);
        Location {
            id: BlockId::new(self.class.number(), block),
            file: Arc::clone(&self.file),
            offset: self.class.block_offset(block),
            len: self.class.block_bytes(),
        }
    }
}
