//! Spare memory: mappings and blocks that were given up a moment ago, for who needs one next.
//!
//! A page of a fresh mapping costs some seven times what it costs to fill one that is there
//! (docs/notebook/README.md, puts), and sorting a munk gives up as many pages as it takes. So while somebody
//! has a [`Keeper`], what is given up waits here for a second or two, up to a limit for the whole process.
//! What is always true:
//!
//! - S-70: a spare mapping belongs to nobody, and has no bytes but such as were written: who takes it has
//!   their pages, and finds in them what was there before.
//!
//! The lock is held to put in or take out, never across a call to the system. Blocks (S-71) are the other
//! kind of memory that waits here: what tails give up is taken by tails.
#![expect(unsafe_code, reason = "mappings change their length")]

use std::time::Duration;

use memmap2::MmapMut;
use parking_lot::Mutex;

use crate::{
    blocks::{BLOCK_BYTES, Block},
    memory::in_pages,
};

/// Spare bytes of a process in mappings, and as many in blocks, at most, whatever its keepers want: what a
/// few sorts give up and take. Outside of all budgets, like other memory that is between two uses.
const SPARE_BYTES_MAX: usize = 32 << 20;
/// What nobody took for so long goes back to the system.
const SPARE_AGE_MAX: Duration = Duration::from_secs(1);
/// A mapping may be longer than what is wanted by so great a part of that before it is cut.
const LONGER_PART: usize = 8;

/// The process's.
static SPARE: Spare = Spare::new();

/// Mappings and blocks that were given up.
#[derive(Debug)]
struct Spare(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    /// How much each keeper wants to be kept, at most.
    wanted: Vec<usize>,
    /// In the order in which they came.
    mappings: Vec<MmapMut>,
    /// So many of them were there already when it was looked at last.
    old: usize,
    /// The last was given up last.
    blocks: Vec<Block>,
    /// There were never fewer since it was looked at last.
    blocks_least: usize,
    looked_at: Duration,
}

/// While there is one, memory is kept: as much as the one wants that wants most.
#[derive(Debug)]
pub struct Keeper {
    spare: &'static Spare,
    wanted: usize,
}

impl Keeper {
    /// Keeps up to so many bytes, and 32 MiB at most, in mappings, and as many in blocks.
    pub fn of_bytes(wanted: usize) -> Self {
        Self::of(&SPARE, wanted)
    }

    fn of(spare: &'static Spare, wanted: usize) -> Self {
        spare.0.lock().wanted.push(wanted);
        Keeper { spare, wanted }
    }

    /// Gives back to the system what has been spare for long. To be called now and then, with a time that
    /// goes up.
    pub fn age(&self, now: Duration) {
        let mut kept = self.spare.0.lock();
        if now.checked_sub(kept.looked_at).is_some_and(|since| since < SPARE_AGE_MAX) {
            return;
        }
        kept.looked_at = now;
        let old = kept.old;
        let over = kept.take_oldest(old);
        kept.old = kept.mappings.len();
        let unused = kept.blocks_least;
        let unused: Vec<Block> = kept.blocks.drain(..unused).collect();
        kept.blocks_least = kept.blocks.len();
        // To give back takes a while.
        drop(kept);
        drop((over, unused));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut kept = self.spare.0.lock();
        let position = kept.wanted.iter().position(|wanted| *wanted == self.wanted);
        kept.wanted.swap_remove(position.expect("entered when it was made"));
        let over = kept.make_room(0);
        let blocks_left = (kept.bytes_max() / BLOCK_BYTES).min(kept.blocks.len());
        let over_blocks = kept.blocks.split_off(blocks_left);
        kept.blocks_least = kept.blocks_least.min(blocks_left);
        drop(kept);
        drop((over, over_blocks));
    }
}

/// A mapping of `capacity` bytes, of which about the first `wanted` are to be written soon, and how many of
/// its first bytes lie in pages that are there. None if nothing is spare.
pub(crate) fn take(capacity: usize, wanted: usize) -> Option<(MmapMut, usize)> {
    SPARE.take(capacity, wanted)
}

/// Keeps what was written of a mapping, its first `written` bytes, if there is room; the rest goes back to
/// the system.
pub(crate) fn give(mapping: MmapMut, written: usize) {
    SPARE.give(mapping, written);
}

/// A block whose pages are there, if one is spare.
pub(crate) fn take_block() -> Option<Block> {
    SPARE.take_block()
}

/// Keeps a block, all of whose pages may be there, if there is room.
pub(crate) fn give_block(block: Block) {
    SPARE.give_block(block);
}

impl Spare {
    const fn new() -> Self {
        Spare(Mutex::new(Kept {
            wanted: Vec::new(),
            mappings: Vec::new(),
            old: 0,
            blocks: Vec::new(),
            blocks_least: 0,
            looked_at: Duration::ZERO,
        }))
    }

    fn take_block(&self) -> Option<Block> {
        let mut kept = self.0.lock();
        let block = kept.blocks.pop();
        kept.blocks_least = kept.blocks_least.min(kept.blocks.len());
        block
    }

    fn give_block(&self, block: Block) {
        let mut kept = self.0.lock();
        // As much as mappings, which have a limit of their own: what sorts give up is of both kinds.
        if (kept.blocks.len() + 1) * BLOCK_BYTES <= kept.bytes_max() {
            kept.blocks.push(block);
        } else {
            drop(kept);
            drop(block);
        }
    }

    fn take(&self, capacity: usize, wanted: usize) -> Option<(MmapMut, usize)> {
        let mut mapping = self.0.lock().take(wanted)?;
        let there_max = in_pages(wanted + wanted / LONGER_PART).min(capacity);
        let there = mapping.len().min(there_max);
        if there < mapping.len() {
            resize(&mut mapping, there)?;
        }
        if there < capacity {
            resize(&mut mapping, capacity)?;
        }
        Some((mapping, there))
    }

    fn give(&self, mut mapping: MmapMut, written: usize) {
        let written = in_pages(written).min(mapping.len());
        let is_kept = 0 < written && written <= self.0.lock().bytes_max();
        if !is_kept || (written < mapping.len() && resize(&mut mapping, written).is_none()) {
            return;
        }
        let mut kept = self.0.lock();
        // A keeper may have gone meanwhile.
        if written <= kept.bytes_max() {
            let over = kept.make_room(written);
            kept.mappings.push(mapping);
            drop(kept);
            drop(over);
        }
    }
}

impl Kept {
    fn bytes_max(&self) -> usize {
        self.wanted.iter().max().map_or(0, |wanted| SPARE_BYTES_MAX.min(*wanted))
    }

    fn bytes(&self) -> usize {
        self.mappings.iter().map(|mapping| mapping.len()).sum()
    }

    /// The longest mapping that is hardly longer than `bytes`, or else the shortest of the others.
    fn take(&mut self, bytes: usize) -> Option<MmapMut> {
        let lens = self.mappings.iter().map(|mapping| mapping.len()).enumerate();
        let fitting = lens.clone().filter(|&(_, len)| len <= bytes + bytes / LONGER_PART);
        let longest = fitting.max_by_key(|&(_, len)| len);
        let (position, _) = longest.or_else(|| lens.min_by_key(|&(_, len)| len))?;
        self.old -= usize::from(position < self.old);
        Some(self.mappings.remove(position))
    }

    /// Takes those out that came first, until there is room for so many bytes.
    fn make_room(&mut self, bytes: usize) -> Vec<MmapMut> {
        let mut over = (self.bytes() + bytes).saturating_sub(self.bytes_max());
        let mut count = 0;
        while over > 0 {
            over = over.saturating_sub(self.mappings[count].len());
            count += 1;
        }
        self.take_oldest(count)
    }

    fn take_oldest(&mut self, count: usize) -> Vec<MmapMut> {
        self.old = self.old.saturating_sub(count);
        self.mappings.drain(..count).collect()
    }
}

/// None where the system does not change the length of mappings.
fn resize(mapping: &mut MmapMut, bytes: usize) -> Option<()> {
    #[cfg(target_os = "linux")]
    {
        let options = memmap2::RemapOptions::new().may_move(true);
        // SAFETY: it is no file's, and nobody has a pointer into it: it was given up, or nobody was given it
        // yet.
        unsafe { mapping.remap(bytes, options) }.ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (mapping, bytes);
        None
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::{AppendBuffer, Region};

    const MIB: usize = 1 << 20;

    /// Not the process's, which other tests use.
    fn spare() -> (&'static Spare, Keeper) {
        let spare = Box::leak(Box::new(Spare::new()));
        (spare, Keeper::of(spare, usize::MAX))
    }

    fn give(spare: &Spare, mib: usize) {
        let mut mapping = MmapMut::map_anon(mib * MIB).expect("there is memory");
        mapping.fill(7);
        spare.give(mapping, mib * MIB);
    }

    fn mib_in(spare: &Spare) -> usize {
        spare.0.lock().bytes() / MIB
    }

    #[test]
    fn nothing_is_kept_without_a_keeper() {
        let (spare, keeper) = spare();
        let another = Keeper::of(spare, 2 * MIB);
        (0..3).for_each(|_| give(spare, 1));
        drop(keeper);
        assert_eq!(mib_in(spare), 2, "as much as who is left wants");
        drop(another);
        assert_eq!(mib_in(spare), 0);
        give(spare, 1);
        assert!(spare.take(MIB, MIB).is_none());
    }

    /// S-70.
    #[test]
    fn what_was_written_is_passed_on_as_it_was_and_the_rest_is_fresh() {
        let (spare, _keeper) = spare();
        let mut mapping = MmapMut::map_anon(2 * MIB).expect("there is memory");
        mapping[..MIB - 5].fill(7);
        spare.give(mapping, MIB - 5);
        assert_eq!(mib_in(spare), 1);
        let (mapping, there) = spare.take(4 * MIB, 2 * MIB).expect("one is spare");
        assert_eq!((mapping.len(), there, mib_in(spare)), (4 * MIB, MIB, 0));
        assert!(mapping[..MIB - 5].iter().all(|byte| *byte == 7));
        assert!(mapping[MIB - 5..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn who_wants_little_is_given_the_mapping_that_fits_or_a_piece_of_a_longer_one() {
        let (spare, _keeper) = spare();
        [3, 1, 5].into_iter().for_each(|mib| give(spare, mib));
        let there = |wanted| spare.take(8 * MIB, wanted).expect("one is spare").1;
        assert_eq!(there(3 * MIB - 5000), 3 * MIB);
        assert_eq!(there(2 * MIB), MIB);
        assert_eq!(there(2 * MIB), 2 * MIB + 2 * MIB / LONGER_PART);
        assert_eq!(mib_in(spare), 0);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_were_not_wanted_for_long() {
        let (spare, keeper) = spare();
        [1, 9, 9, 9, 5].into_iter().for_each(|mib| give(spare, mib));
        assert_eq!(mib_in(spare), 32);
        give(spare, 40);
        assert_eq!(mib_in(spare), 32);
        assert_eq!(spare.take(9 * MIB, 9 * MIB).expect("one is spare").1, 9 * MIB);
        let at = |ms| keeper.age(Duration::from_millis(ms));
        at(1000);
        give(spare, 1);
        at(1999);
        assert_eq!(mib_in(spare), 24);
        at(2000);
        assert_eq!(mib_in(spare), 1);
        at(3000);
        assert_eq!(mib_in(spare), 0);
    }

    #[test]
    fn blocks_wait_for_who_takes_them_and_go_when_nobody_does() {
        let (spare, keeper) = spare();
        let blocks_in = || spare.0.lock().blocks.len();
        let blocks = |count: usize| (0..count).map(|_| Block::take().expect("there is memory"));
        blocks(600).for_each(|block| spare.give_block(block));
        assert_eq!(blocks_in(), SPARE_BYTES_MAX / BLOCK_BYTES);
        keeper.age(Duration::from_secs(1));
        let taken: Vec<Block> = (0..500).map(|_| spare.take_block().expect("one is spare")).collect();
        taken.into_iter().for_each(|block| spare.give_block(block));
        keeper.age(Duration::from_secs(2));
        assert_eq!(blocks_in(), 500, "twelve were not wanted");
        keeper.age(Duration::from_secs(3));
        assert_eq!(blocks_in(), 0);
        spare.give_block(blocks(1).next().expect("one"));
        drop(keeper);
        assert!(spare.take_block().is_none());
    }

    #[test]
    fn regions_and_buffers_read_what_was_written_to_them_and_nothing_else() {
        let _keeper = Keeper::of_bytes(usize::MAX);
        for round in 0..8u8 {
            let mut region = Region::with_capacity(MIB + 300 * usize::from(round)).expect("there is memory");
            (0..MIB / 2000).for_each(|_| assert!(region.push(&[round; 1000]) < MIB));
            assert_eq!(region.len(), MIB / 2000 * 1000);
            assert!(region.as_slice().iter().all(|byte| *byte == round));
            let buffer = AppendBuffer::new(2 * MIB);
            assert_eq!(buffer.append(&[round; 70_000]), Some(0));
            assert_eq!(buffer.append(&[round; 200_000]), Some(70_000));
            assert!(buffer.read().iter().all(|byte| *byte == round));
            assert_eq!(buffer.len(), 270_000);
        }
        assert!(SPARE.0.lock().bytes() > 0);
    }
}
