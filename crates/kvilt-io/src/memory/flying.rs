//! What images show of writes in flight: of each any sectors (D-8).
//!
//! What is always true: without writes in flight nothing is drawn, so an image is the same as if there were
//! no queues.

use std::{ops::Range, sync::Arc};

use super::{
    image::{Chance, Kept, SECTOR_BYTES, drawn_below},
    inode::Inode,
    queue::FlyingWrite,
    unsynced::Unit,
};
use crate::SeededRng;

/// Some bytes of a write in flight that an image has.
pub(super) struct Landed {
    write: FlyingWrite,
    range: Range<usize>,
}

/// Sectors of a write in flight: what [`Unit::Flight`] is.
pub(super) struct FlyingPiece {
    pub(super) inode: Arc<Inode>,
    /// Among all writes in flight.
    number: usize,
    sectors: Range<usize>,
}

impl FlyingWrite {
    /// How many sectors it touches.
    fn sectors(&self) -> usize {
        (self.offset + self.bytes.len()).div_ceil(SECTOR_BYTES) - self.offset / SECTOR_BYTES
    }

    /// Its bytes in these of its sectors.
    fn range(&self, sectors: Range<usize>) -> Range<usize> {
        let first = self.offset / SECTOR_BYTES;
        let at = |sector: usize| ((first + sector) * SECTOR_BYTES).saturating_sub(self.offset);
        at(sectors.start).min(self.bytes.len())..at(sectors.end).min(self.bytes.len())
    }
}

/// Each write in flight whole, and what is before and behind each border within it.
pub(super) fn pieces(writes: &[FlyingWrite]) -> Vec<FlyingPiece> {
    let mut pieces = Vec::new();
    for (number, write) in writes.iter().enumerate() {
        let count = write.sectors();
        let borders = (1..count).flat_map(|border| [0..border, border..count]);
        pieces.extend(std::iter::once(0..count).chain(borders).map(|sectors| FlyingPiece {
            inode: write.inode.clone(),
            number,
            sectors,
        }));
    }
    pieces
}

/// What an image has of the writes in flight.
pub(super) fn landed(writes: Vec<FlyingWrite>, kept: &Kept, rng: &SeededRng) -> Vec<Landed> {
    if writes.is_empty() {
        return Vec::new();
    }
    let chance = match kept {
        Kept::AnySubset => Some(Chance::drawn(rng)),
        _ => None,
    };
    let whole = match kept {
        Kept::Prefix => drawn_below(rng, writes.len() + 1),
        _ => 0,
    };
    let mut landed = Vec::new();
    for (number, write) in writes.into_iter().enumerate() {
        let all = 0..write.sectors();
        let mut land = |sectors: Range<usize>| {
            let range = write.range(sectors);
            if !range.is_empty() {
                landed.push(Landed { write: write.clone(), range });
            }
        };
        match kept {
            Kept::Nothing => {}
            Kept::Everything => land(all),
            Kept::AnySubset => {
                let chance = chance.as_ref().expect("it was drawn");
                all.filter(|_| chance.holds(rng)).for_each(|sector| land(sector..sector + 1));
            }
            Kept::Prefix if number < whole => land(all),
            Kept::Prefix if number == whole => land(0..drawn_below(rng, all.end + 1)),
            Kept::Prefix => {}
            Kept::Only(Unit::Flight(piece)) if piece.number == number => land(piece.sectors.clone()),
            Kept::Only(_) => {}
            Kept::AllBut(Unit::Flight(piece)) if piece.number == number => {
                land(0..piece.sectors.start);
                land(piece.sectors.end..all.end);
            }
            Kept::AllBut(_) => land(all),
        }
    }
    landed
}

/// Gives the bytes that have landed in this file to `write`, with their offsets.
pub(super) fn land(landed: &[Landed], inode: &Arc<Inode>, mut write: impl FnMut(usize, &[u8])) {
    for Landed { write: flying, range } in
        landed.iter().filter(|landed| Arc::ptr_eq(&landed.write.inode, inode))
    {
        write(flying.offset + range.start, &flying.bytes[range.clone()]);
    }
}
