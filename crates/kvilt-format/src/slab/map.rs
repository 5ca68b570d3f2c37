//! A page of the occupancy map: one bit for each of a stretch of slots, as of a cut.
//!
//! Where it stands: a shard's map says after a power cut which slots hold items that count; format:
//! `docs/format/occupancy-map.md`. Always true: a stretch has two pages, a *pair*, written in turn, so a torn
//! page leaves the one before; of a pair the newest page counts that is not newer than the root's cut.

use super::{Class, PAGE_BYTES, u32_at, u64_at};
use crate::{FileIdentity, checksum::checksum};

/// Bytes of a page's bits.
pub const MAP_BITS_BYTES: usize = PAGE_BYTES - BITS_OFFSET;

/// Slots that a page tells of.
pub const MAP_PAGE_SLOTS: u64 = MAP_BITS_BYTES as u64 * 8;

const CHECKSUM_BYTES: usize = 4;
const CLASS_OFFSET: usize = 4;
const FIRST_SLOT_OFFSET: usize = 8;
const CUT_OFFSET: usize = 16;
const BITS_OFFSET: usize = 32;

/// A page of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPage<'a> {
    /// The class of its slots.
    pub class: Class,
    /// The first of its slots, a multiple of [`MAP_PAGE_SLOTS`].
    pub first_slot: u64,
    /// The cut at which it was written: later cuts have higher numbers.
    pub cut: u64,
    /// A bit for each slot: slot `first_slot + n` is occupied if bit `n % 8` of byte `n / 8` is set.
    pub bits: &'a [u8; MAP_BITS_BYTES],
}

/// What stands where a page of a map may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedPage<'a> {
    /// Nothing was written there.
    Empty,
    /// A page that was written there.
    Page(MapPage<'a>),
    /// Something else, for this reason.
    Bad(&'static str),
}

impl<'a> MapPage<'a> {
    /// Writes the page for the offset `offset` of the map with this identity.
    ///
    /// Panics if no page begins with the first slot.
    pub fn encode_into(&self, page: &mut [u8; PAGE_BYTES], id: FileIdentity, offset: u64) {
        assert!(self.first_slot.is_multiple_of(MAP_PAGE_SLOTS), "a page of a map begins at such a slot");
        page[..BITS_OFFSET].fill(0);
        page[CLASS_OFFSET] = self.class.number();
        page[FIRST_SLOT_OFFSET..CUT_OFFSET].copy_from_slice(&self.first_slot.to_le_bytes());
        page[CUT_OFFSET..CUT_OFFSET + 8].copy_from_slice(&self.cut.to_le_bytes());
        page[BITS_OFFSET..].copy_from_slice(self.bits);
        let sum = checksum(id.salt(offset), &page[CHECKSUM_BYTES..]);
        page[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// What stands at the offset `offset` of the map with this identity, where `page` was read.
    pub fn decode(page: &'a [u8; PAGE_BYTES], id: FileIdentity, offset: u64) -> DecodedPage<'a> {
        if page.iter().all(|byte| *byte == 0) {
            return DecodedPage::Empty;
        }
        if checksum(id.salt(offset), &page[CHECKSUM_BYTES..]) != u32_at(page, 0) {
            return DecodedPage::Bad("the checksum of the page differs");
        }
        let is_zero = |range: std::ops::Range<usize>| page[range].iter().all(|byte| *byte == 0);
        if !is_zero(CLASS_OFFSET + 1..FIRST_SLOT_OFFSET) || !is_zero(CUT_OFFSET + 8..BITS_OFFSET) {
            return DecodedPage::Bad("the page's head is not one that was ever written");
        }
        let Some(class) = Class::new(page[CLASS_OFFSET]) else {
            return DecodedPage::Bad("the page is of a class that there is not");
        };
        let first_slot = u64_at(page, FIRST_SLOT_OFFSET);
        if !first_slot.is_multiple_of(MAP_PAGE_SLOTS) {
            return DecodedPage::Bad("no page begins at the page's first slot");
        }
        let bits = page.last_chunk().expect("a page is longer than its bits");
        DecodedPage::Page(MapPage { class, first_slot, cut: u64_at(page, CUT_OFFSET), bits })
    }

    /// Whether the `n`-th of its slots is occupied. Panics if it has fewer.
    pub fn is_set(&self, n: u64) -> bool {
        self.bits[(n / 8) as usize] >> (n % 8) & 1 == 1
    }
}

/// Where in the file the page `copy`, 0 or 1, of a pair lies: behind the header's page.
pub const fn map_page_offset(pair: u64, copy: usize) -> u64 {
    assert!(copy < 2, "a pair has two pages");
    (1 + 2 * pair + copy as u64) * PAGE_BYTES as u64
}

/// Which page of a pair counts, 0 or 1: the newest that is good and not newer than the cut `cut_max`. The
/// other one is where the next is to be written.
pub fn newest_of_pair(pair: [&DecodedPage<'_>; 2], cut_max: u64) -> Option<usize> {
    let cut = |copy: usize| match pair[copy] {
        DecodedPage::Page(page) => Some(page.cut).filter(|cut| *cut <= cut_max),
        DecodedPage::Empty | DecodedPage::Bad(_) => None,
    };
    let newest = if cut(0) >= cut(1) { 0 } else { 1 };
    cut(newest).map(|_| newest)
}

/// What the page of a pair that counts adds to the [`super::MapTotal`] of its map: another number for each
/// pair and cut.
pub const fn pair_stamp(pair: u64, cut: u64) -> u64 {
    // Two rounds of multiplication and shift spread each bit of both over the whole sum.
    let mut mixed = pair.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ cut.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ mixed >> 29
}
