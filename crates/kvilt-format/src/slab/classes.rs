//! Size classes: how long the slots of a slab are, and where in the file a slot lies.
//!
//! Where it stands: below the items; the engine asks which class an item belongs to. The table is part of the
//! format: the root has its checksum, and refuses a store that was made with another one. Always true: no
//! item of up to a page crosses a page; a longer one begins with a page and has its pages for itself.

use super::{ITEM_BYTES_MAX, PAGE_BYTES, TOMBSTONE_BYTES};
use crate::checksum::checksum;

/// Slots a page of the classes of up to a page: tombstones first, then items from short to long. Each step is
/// about a quarter, as far as whole slots allow, so an item leaves at most a fifth of its slot free, or up to
/// a half in the last three.
const SLOTS_A_PAGE: [usize; 19] = [64, 64, 51, 42, 34, 28, 23, 18, 15, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1];

/// Up to this many pages the classes of longer items go by single pages, and then by quarters.
const SINGLE_STEPS_PAGES_MAX: usize = 8;

const PAGES_MAX: usize = ITEM_BYTES_MAX.div_ceil(PAGE_BYTES);

/// How many classes there are.
pub const CLASS_COUNT: usize = SLOTS_A_PAGE.len() + {
    let (mut pages, mut count) = (1, 0);
    while pages < PAGES_MAX {
        pages = longer(pages);
        count += 1;
    }
    count
};

/// Bytes of a slot, by class.
const SLOT_BYTES: [u32; CLASS_COUNT] = {
    let mut bytes = [0; CLASS_COUNT];
    let mut class = 0;
    while class < SLOTS_A_PAGE.len() {
        bytes[class] = (PAGE_BYTES / SLOTS_A_PAGE[class] / 8 * 8) as u32;
        class += 1;
    }
    let mut pages = 1;
    while class < CLASS_COUNT {
        pages = longer(pages);
        bytes[class] = (pages * PAGE_BYTES) as u32;
        class += 1;
    }
    bytes
};

/// The pages of the next longer class.
const fn longer(pages: usize) -> usize {
    let more = if pages < SINGLE_STEPS_PAGES_MAX { pages + 1 } else { pages + pages / 4 };
    if more < PAGES_MAX { more } else { PAGES_MAX }
}

// An engine may pack class and slot into one number: six bits for the class, with one number to spare.
const _: () = assert!(CLASS_COUNT <= 63);
const _: () = assert!(TOMBSTONE_BYTES <= SLOT_BYTES[0] as usize);
const _: () = assert!(ITEM_BYTES_MAX <= SLOT_BYTES[CLASS_COUNT - 1] as usize);
const _: () = {
    let mut class = 2;
    while class < CLASS_COUNT {
        assert!(SLOT_BYTES[class - 1] < SLOT_BYTES[class], "classes go from short to long");
        class += 1;
    }
};

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(u8);

impl Class {
    /// The class of tombstones, which no other item is in.
    pub const TOMBSTONES: Class = Class(0);

    /// The class with this number, if there is one.
    pub const fn new(number: u8) -> Option<Class> {
        if (number as usize) < CLASS_COUNT { Some(Class(number)) } else { None }
    }

    /// All classes, tombstones first, then from short to long.
    pub fn all() -> impl ExactSizeIterator<Item = Class> {
        (0..CLASS_COUNT as u8).map(Class)
    }

    /// The class with the shortest slots that an item of `item_bytes`, no tombstone, fits in; none for one
    /// that is longer than the longest item.
    #[inline]
    pub fn of_len(item_bytes: usize) -> Option<Class> {
        let class = 1 + SLOT_BYTES[1..].partition_point(|&slot_bytes| (slot_bytes as usize) < item_bytes);
        Class::new(class as u8)
    }

    /// The checksum of the table of classes, for the root: whole slots' lengths, tombstones first, as u32.
    pub(super) fn table_checksum() -> u32 {
        SLOT_BYTES.iter().fold(0, |sum, bytes| checksum(sum, &bytes.to_le_bytes()))
    }

    /// Its place in the table.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Bytes of a slot.
    #[inline]
    pub const fn slot_bytes(self) -> usize {
        SLOT_BYTES[self.0 as usize] as usize
    }

    /// Bytes of a block: one page, or the pages of one slot.
    #[inline]
    pub const fn block_bytes(self) -> usize {
        if self.slot_bytes() < PAGE_BYTES { PAGE_BYTES } else { self.slot_bytes() }
    }

    /// Slots of a block.
    #[inline]
    pub const fn slots_a_block(self) -> u64 {
        if (self.0 as usize) < SLOTS_A_PAGE.len() { SLOTS_A_PAGE[self.0 as usize] as u64 } else { 1 }
    }

    /// The block that a slot lies in.
    #[inline]
    pub const fn block_of(self, slot: u64) -> u64 {
        slot / self.slots_a_block()
    }

    /// Where in its block a slot begins.
    #[inline]
    pub const fn offset_in_block(self, slot: u64) -> usize {
        (slot % self.slots_a_block()) as usize * self.slot_bytes()
    }

    /// Where in the file a block begins, behind the header's page. The caller keeps blocks within the length
    /// of a file.
    #[inline]
    pub const fn block_offset(self, block: u64) -> u64 {
        PAGE_BYTES as u64 + block * self.block_bytes() as u64
    }

    /// Where in the file a slot begins: the place that salts its item's checksum.
    #[inline]
    pub const fn slot_offset(self, slot: u64) -> u64 {
        self.block_offset(self.block_of(slot)) + self.offset_in_block(slot) as u64
    }

    /// How many whole blocks a file of this length has.
    pub const fn blocks_in(self, file_bytes: u64) -> u64 {
        file_bytes.saturating_sub(PAGE_BYTES as u64) / self.block_bytes() as u64
    }
}
