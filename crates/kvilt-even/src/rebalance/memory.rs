//! Which chunks deserve a munk, and what gives way when memory is short (EvenDB §4;
//! docs/design/0010-loading-and-evicting-munks.md).
//!
//! One budget for everything. Munks get what log indexes, tables, buffers and the row cache leave; a munk's
//! worth is its decayed access count per byte. When munks outgrow their share the least worthy are evicted;
//! when there is room, or a chunk without a munk is clearly worthier than one with, munks are loaded. While
//! reads wait for the drive, and not everything has room, only for chunks that are read far more than others:
//! the page cache is to have the rest.
//!
//! * **E-19** While munks have more than the others leave of nine tenths of the budget, none is loaded, and
//!   one after the other goes, as long as they do; what readers found of them counts until it is freed.

mod readers;
mod rows;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kvilt_base::{Result, planted};
use kvilt_sync::{
    published::{Pin, pin},
    spare::Keeper,
};
use parking_lot::Mutex;

pub(crate) use self::rows::RowRoom;
use super::munk::wasted_bytes;
use crate::{
    chunk::{Chunk, ChunkState, Occupied, PUT_WEIGHT_INVERSE},
    funk::{PartFile, log::ChunkLog, log_index::ChargedIndex},
    munk::Munk,
    parts,
    store::Store,
};

/// Part of the budget that is never planned for, in percent: what is being built beside what it replaces.
const SLACK_PERCENT: u64 = 10;
/// Memory that was replaced is freed within milliseconds; what is still over after this is in use, by us or
/// by another store with the same budget.
const OVER_SHARE_MAX: Duration = Duration::from_millis(100);
/// A munk is loaded in another's place only if it is worth so many times as much: or they would take turns.
const WORTH_FACTOR: u64 = 3;
/// What a get reads of a file, at least.
const PAGE_BYTES: u64 = 4096;
/// A chunk must have this much to gain to be worth reading from disk at all: a few dozen gets of late.
const GAIN_MIN: u64 = 2048;
/// And so much for each page of it while the drive is waited for: a page of a chunk that is read at one go
/// costs a quarter of one that a get reads, so the gets have paid what the load costs.
const GAIN_MIN_A_PAGE: u64 = PUT_WEIGHT_INVERSE / 4;
/// While the drive is waited for, a munk must be so many times as worthy as chunks without one are on average
/// to be loaded: the page cache holds of each chunk the pages that are read, a munk all of them.
const COMMON_TO_LOAD: u64 = 8;
/// And if it is worth less than one in so many of that, the page cache shall have its memory. Not more: where
/// all is read alike, it would make no better use of it.
const COMMON_TO_KEEP: u64 = 2;
/// While the row cache could use more room than there is, a munk must be this many times as worthy to be
/// kept: most gets of a munk find a row that the row cache would have, too, and it has no others.
const COMMON_TO_KEEP_BESIDE_ROWS: u64 = 2;

/// Before munks are evicted, one is copied in which so great a part, at least, is memory that nobody can see.
const COPIED_FOR_WASTE_MAX: usize = 8;
/// And only if this part of what munks may have is left beside the rows themselves: else rows have to give
/// way, not waste.
const ROOM_PART: u64 = 8;
/// The most wasteful of so many munks is copied, if any of them is wasteful: to look at all of some 240
/// before each copy took a tenth of the processor time of puts (docs/notebook/README.md).
const LOOKED_AT_FOR_WASTE: usize = 24;
/// Of the budget, so much may be spare beside it in mappings, and as much in blocks.
const SPARE_PART: u64 = 16;
/// Hardly a chunk is without a munk if it is at most one of so many.
const COLD_PART_MAX: usize = 8;

/// What is remembered of the room that munks have.
pub(crate) struct MunkRoom {
    /// Since when munks have been over their share, while what is over may be waiting to be freed.
    over_since: Mutex<Option<Duration>>,
    /// Munks are looked at for waste in turn; with which one to go on.
    looked_at: AtomicUsize,
    /// Whether all that there is would have room, when it was looked at last.
    is_enough_for_all: AtomicBool,
    /// What others than munks had when readers last gave something back, in bytes.
    left_by_readers: AtomicU64,
    /// What munks give up is kept for others for a moment.
    pub(super) spare: Keeper,
}

impl MunkRoom {
    /// Whether it is not known yet whether munks are over their share.
    pub(crate) fn is_waiting(&self) -> bool {
        self.over_since.lock().is_some()
    }

    /// For a store with such a budget.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let spare = Keeper::of_bytes((budget_bytes / SPARE_PART) as usize);
        MunkRoom {
            over_since: Mutex::default(),
            looked_at: AtomicUsize::default(),
            is_enough_for_all: AtomicBool::default(),
            left_by_readers: AtomicU64::default(),
            spare,
        }
    }
}

impl Store {
    /// Brings memory back into the budget. True if munks were over their share, and something was done about
    /// it.
    pub(super) fn keep_within_budget(&self) -> bool {
        self.share_rows();
        let share = self.munk_share();
        if self.files.budget.used(parts::MUNKS) > share {
            planted!(MunksKept => return false);
            return self.is_really_over(share)
                && (self.copy_wasteful() || self.evict_least_worthy() || self.close_unread());
        }
        *self.munk_room.over_since.lock() = None;
        if self.other_memory() > self.config.budget_bytes / 2 {
            self.close_unread();
        }
        if self.other_memory() > self.config.budget_bytes / 4 * 3 {
            self.forget_orders();
        }
        false
    }

    /// Uses what is left of the budget, for munks that are worth more than others. It looks at every chunk.
    /// True if something was done.
    pub(super) fn use_memory(&self) -> bool {
        let (share, used) = (self.munk_share(), self.files.budget.used(parts::MUNKS));
        if used > share {
            return false;
        }
        let common = self.common_worth();
        if common.is_some_and(|common| self.evict_common(common)) {
            return true;
        }
        self.load_worthiest(share - used, common)
    }

    /// Whether munks in use are over their share. The gauge also counts what was replaced and not yet freed,
    /// and the munks of other stores: ours alone may be below, and then it is given time to come down.
    fn is_really_over(&self, share: u64) -> bool {
        let pin = pin();
        pin.flush();
        let munks = self.index.load(&pin).chunks().iter().filter_map(|c| c.state(&pin).munk.as_ref());
        // What is charged, as the gauge has it: who waits for the gauge to come down waits in vain for less.
        let in_use: u64 = munks.map(|munk| munk.charged_bytes()).sum();
        if in_use > share {
            return true;
        }
        let now = self.world.clock.now();
        let since = *self.munk_room.over_since.lock().get_or_insert(now);
        let is_lasting = now.saturating_sub(since) > OVER_SHARE_MAX;
        if is_lasting {
            *self.munk_room.over_since.lock() = None;
        }
        is_lasting
    }

    /// Looks whether munks would have room for everything: called at regular times.
    pub(crate) fn look_for_room(&self) {
        // Relaxed, here and below: what is decided by it may be late.
        let is_enough = self.space_by_chunk().live_bytes() <= self.munk_share();
        self.munk_room.is_enough_for_all.store(is_enough, Ordering::Relaxed);
    }

    /// Bytes of the budget that are planned for.
    fn planned_bytes(&self) -> u64 {
        self.config.budget_bytes - self.config.budget_bytes / 100 * SLACK_PERCENT
    }

    /// Whether all with this budget use more of it than is planned for.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.files.budget.used_in_all() > self.planned_bytes()
    }

    /// What others than munks use, but for rows that give way to anything.
    fn other_memory(&self) -> u64 {
        let budget = &self.files.budget;
        let yielding = budget.used(parts::MUNKS) + budget.used(parts::SPARE_ROWS);
        budget.used_in_all().saturating_sub(yielding)
    }

    /// Bytes that munks may have now.
    pub(super) fn munk_share(&self) -> u64 {
        self.planned_bytes().saturating_sub(self.other_memory())
    }

    /// Whether munks have nearly used up what they may have.
    pub(super) fn munks_are_short(&self) -> bool {
        let share = self.munk_share();
        self.files.budget.used(parts::MUNKS) > share - share / 16
    }

    /// Copies a munk that keeps much memory for what nobody can see, where nearly all chunks have one: what
    /// there is has room there, but for such memory. False if there is none that gains enough by it.
    fn copy_wasteful(&self) -> bool {
        let wasteful = self.wasteful(&pin());
        wasteful.is_some_and(|chunk| self.attempt(&chunk, Self::copy_munk))
    }

    /// The most wasteful of a few munks, or of as many as must be looked at to find one.
    fn wasteful(&self, pin: &Pin) -> Option<Arc<Chunk>> {
        if !self.nearly_all_have_munks(pin) || !self.rows_have_room(pin) {
            return None;
        }
        let views = self.kept_views();
        let wasted = |chunk: &Chunk, munk: &Munk| {
            let least = munk.run.run.entry_bytes() / COPIED_FOR_WASTE_MAX;
            let waste = wasted_bytes(chunk, munk, &views, least, pin);
            (waste > least).then_some(waste)
        };
        let mut munks: Vec<_> = self.movable_munks(pin).collect();
        // Relaxed, here and below: where to begin does not matter.
        let begin = self.munk_room.looked_at.load(Ordering::Relaxed) % munks.len().max(1);
        munks.rotate_left(begin);
        let mut looked_at = begin;
        for few in munks.chunks(LOOKED_AT_FOR_WASTE) {
            looked_at += few.len();
            let wasteful =
                few.iter().filter_map(|(chunk, munk)| wasted(chunk, munk).map(|waste| (chunk, waste)));
            if let Some((chunk, _)) = wasteful.max_by_key(|(_, waste)| *waste) {
                self.munk_room.looked_at.store(looked_at, Ordering::Relaxed);
                return Some(Arc::clone(*chunk));
            }
        }
        None
    }

    /// Whether the rows in munks leave room for others that overwrite them.
    fn rows_have_room(&self, pin: &Pin) -> bool {
        let munks = self.index.load(pin).chunks().iter().filter_map(|c| c.state(pin).munk.as_ref());
        let rows: u64 = munks.map(|munk| munk.run.run.entry_bytes() as u64).sum();
        let share = self.munk_share();
        rows <= share - share / ROOM_PART
    }

    /// Munks that may be copied or evicted. Without its munk a damaged chunk could not be read any more, and
    /// nothing of it is to be written again.
    fn movable_munks<'p>(&'p self, pin: &'p Pin) -> impl Iterator<Item = (&'p Arc<Chunk>, &'p Arc<Munk>)> {
        let now = self.world.clock.now();
        let chunks = self.index.load(pin).chunks().iter();
        let free = chunks.filter(move |c| !c.is_damaged() && !c.is_occupied() && !c.is_backing_off(now));
        free.filter_map(|chunk| chunk.state(pin).munk.as_ref().map(|munk| (chunk, munk)))
    }

    /// Whether hardly a chunk is without a munk, so that hardly anything is read from files.
    pub(crate) fn nearly_all_have_munks(&self, pin: &Pin) -> bool {
        let chunks = self.index.load(pin).chunks();
        let cold = chunks.iter().filter(|chunk| chunk.state(pin).munk.is_none()).count();
        cold * COLD_PART_MAX <= chunks.len()
    }

    /// Evicts the munk that is worth least per byte; false if there is none that can be.
    fn evict_least_worthy(&self) -> bool {
        let victim = self.least_worthy(&pin());
        victim.is_some_and(|(chunk, _)| self.attempt(&chunk, Self::evict))
    }

    /// Evicts a munk of which the page cache, or the row cache, makes more; false if there is none.
    fn evict_common(&self, common: u64) -> bool {
        let least =
            if self.rows_want_room() { common * COMMON_TO_KEEP_BESIDE_ROWS } else { common / COMMON_TO_KEEP };
        let victim = self.least_worthy(&pin()).filter(|(_, worth)| *worth < least);
        victim.is_some_and(|(chunk, _)| self.attempt(&chunk, Self::evict))
    }

    /// Loads or evicts a munk. False if nothing came of it.
    fn attempt(&self, chunk: &Arc<Chunk>, job: impl FnOnce(&Self, &Occupied) -> Result<bool>) -> bool {
        let Some(occupied) = chunk.try_occupy() else { return false };
        match job(self, &occupied) {
            Ok(is_done) => is_done,
            Err(error) => {
                // Another one may be tried instead.
                chunk.note(&error);
                self.background_failed(chunk, &error);
                true
            }
        }
    }

    /// The munk that is worth least per byte, and what it is worth.
    fn least_worthy(&self, pin: &Pin) -> Option<(Arc<Chunk>, u64)> {
        let sized = self.movable_munks(pin).map(|(chunk, munk)| (chunk, munk.memory_bytes()));
        // An empty munk gives nothing back.
        let valued =
            sized.filter(|&(_, bytes)| bytes > 1024).map(|(c, bytes)| (c, worth(c.heat.to_lose(), bytes)));
        valued.min_by_key(|(_, worth)| *worth).map(|(c, worth)| (Arc::clone(c), worth))
    }

    /// What munks of the chunks that have none would be worth on average, if loads and evictions are to be
    /// choosy: the drive is waited for, and not all of them have room.
    fn common_worth(&self) -> Option<u64> {
        let is_waited_for = self.files.reads.wait_for_the_drive() || self.rows_earn();
        if !is_waited_for || self.munk_room.is_enough_for_all.load(Ordering::Relaxed) {
            return None;
        }
        let pin = pin();
        let chunks = self.index.load(&pin).chunks().iter().map(|c| (c, c.state(&pin)));
        let cold = chunks.filter(|(_, state)| state.munk.is_none());
        let (score, bytes) = cold.fold((0, 0), |(score, bytes), (chunk, state)| {
            (score + chunk.heat.to_gain(), bytes + self.chunk_bytes(state))
        });
        Some(worth(score, bytes))
    }

    /// Drops the munk; the log's index is ready before it goes.
    pub(super) fn evict(&self, chunk: &Occupied) -> Result<bool> {
        if chunk.gate().is_retired {
            return Ok(false);
        }
        self.count_munk(chunk);
        let (log, upto) = {
            let pin = pin();
            let _gate = chunk.gate();
            let state = chunk.state(&pin);
            if state.munk.is_none() {
                return Ok(false);
            }
            let log = state.funk.log.clone();
            let upto = log.as_ref().map_or(0, |log| log.len());
            (log, upto)
        };
        let index = log.as_ref().map(|log| self.missing_index(log, upto)).transpose()?.flatten();
        if !self.flip_evicted(chunk, log, index, upto)? {
            return Ok(false);
        }
        chunk.heat.forget();
        self.counters.munk_evictions.add(1);
        Ok(true)
    }

    /// The index of a log that has none. Puts have entered all records, unless there were too many for a
    /// chunk that has a munk.
    fn missing_index(&self, log: &ChunkLog, upto: u64) -> Result<Option<Arc<ChargedIndex>>> {
        planted!(EvictedHalfIndexed => return Ok(Some(ChargedIndex::new(&self.files))));
        if log.has_index() {
            return Ok(None);
        }
        let index = ChargedIndex::new(&self.files);
        log.extend_index(&self.files, &index, 0..upto)?;
        Ok(Some(index))
    }

    /// False if the log has lost its index meanwhile: the next time it is built before.
    fn flip_evicted(
        &self,
        chunk: &Occupied,
        indexed: Option<Arc<ChunkLog>>,
        index: Option<Arc<ChargedIndex>>,
        upto: u64,
    ) -> Result<bool> {
        let pin = pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        if let Some(log) = &state.funk.log {
            let is_same = indexed.is_some_and(|indexed| Arc::ptr_eq(&indexed, log));
            match index {
                Some(index) if is_same => {
                    // Puts since: microseconds of work.
                    log.extend_index(&self.files, &index, upto..log.len())?;
                    log.replace_index(Some(index));
                }
                _ if log.has_index() => {}
                _ => return Ok(false),
            }
        }
        let funk = Arc::clone(&state.funk);
        chunk.replace_state(&gate, ChunkState { munk: None, funk, cold_id: self.next_id() });
        Ok(true)
    }

    /// Loads the munk of the chunk that would gain most, if it is worth it and `room` or a less worthy munk
    /// allows. `common` is the [`Store::common_worth`].
    fn load_worthiest(&self, room: u64, common: Option<u64>) -> bool {
        let share = self.munk_share();
        let now = self.world.clock.now();
        let (chunk, bytes, gain) = {
            let pin = pin();
            let chunks = self.index.load(&pin).chunks().iter();
            let cold = chunks.filter(|c| {
                c.state(&pin).munk.is_none() && !c.is_damaged() && !c.is_occupied() && !c.is_backing_off(now)
            });
            let sized = cold.map(|c| (c, self.chunk_bytes(c.state(&pin)), c.heat.to_gain()));
            let gain_min = |bytes| if common.is_some() { paid_gain(bytes) } else { GAIN_MIN };
            let fitting = sized.filter(|(_, bytes, score)| *score >= gain_min(*bytes) && bytes * 2 <= share);
            let valued = fitting.map(|(c, bytes, score)| (c, bytes, worth(score, bytes)));
            let least = COMMON_TO_LOAD * common.unwrap_or(0);
            let Some((chunk, bytes, gain)) =
                valued.max_by_key(|(_, _, gain)| *gain).filter(|(_, _, gain)| *gain >= least)
            else {
                return false;
            };
            (Arc::clone(chunk), bytes, gain)
        };
        // Entries weigh more in memory than in files; half as much again is on the safe side.
        if bytes + bytes / 2 > room {
            let Some((victim, loss)) = self.least_worthy(&pin()) else { return false };
            return gain > WORTH_FACTOR * loss && self.attempt(&victim, Self::evict);
        }
        self.attempt(&chunk, Self::load)
    }

    /// Gives back memory that can be read again: orders of logs, indexes behind munks, tables that nobody
    /// used since the last time. False if there was nothing.
    fn close_unread(&self) -> bool {
        let before = self.other_memory();
        let pin = pin();
        self.close_unread_tables(&pin);
        for chunk in self.index.load(&pin).chunks() {
            let state = chunk.state(&pin);
            let is_cached = state.munk.is_some();
            for log in state.funk.logs_newest_first() {
                if is_cached {
                    log.forget(true);
                } else {
                    log.forget_unread();
                }
            }
        }
        let is_freed = self.other_memory() < before;
        if !is_freed {
            self.want_smaller_indexes(&pin);
        }
        is_freed
    }

    /// Closes the tables that nobody used since the last time.
    fn close_unread_tables(&self, pin: &Pin) {
        for chunk in self.index.load(pin).chunks() {
            for part in &chunk.state(pin).funk.parts {
                if let PartFile::Table(table) = &part.file {
                    table.close_if_unread();
                }
            }
        }
    }

    /// Gives back all orders of logs, those as well that are being read.
    fn forget_orders(&self) {
        let pin = pin();
        for chunk in self.index.load(&pin).chunks() {
            chunk.state(&pin).funk.logs_newest_first().for_each(|log| log.forget(false));
        }
    }

    /// Nothing to close: the chunk with the longest logs is to become a table, which needs less memory.
    fn want_smaller_indexes(&self, pin: &Pin) {
        if self.has_replaced_much() {
            // It would not be rewritten now, and asked for again without rest.
            return;
        }
        let now = self.world.clock.now();
        let is_free = |c: &&Arc<Chunk>| {
            // One whose rewrite has just failed is let alone, or it would be looked at without rest.
            c.state(pin).munk.is_none() && !c.is_damaged() && !c.is_occupied() && !c.is_backing_off(now)
        };
        let cold = self.index.load(pin).chunks().iter().filter(is_free);
        let longest = cold.max_by_key(|c| c.state(pin).funk.log_bytes());
        let is_worth_it = |c: &&Arc<Chunk>| self.is_worth_smaller_index(c, &c.state(pin).funk);
        if let Some(chunk) = longest.filter(is_worth_it) {
            // Relaxed: a hint.
            chunk.heat.is_index_unwanted.store(true, Ordering::Relaxed);
            self.want(chunk);
        }
    }
}

/// What a chunk must have to gain for gets to have paid what a load costs.
fn paid_gain(bytes: u64) -> u64 {
    GAIN_MIN.max(bytes / PAGE_BYTES * GAIN_MIN_A_PAGE)
}

/// Worth per megabyte.
fn worth(score: u64, bytes: u64) -> u64 {
    (u128::from(score) * (1 << 20) / u128::from(bytes.max(PAGE_BYTES))) as u64
}
