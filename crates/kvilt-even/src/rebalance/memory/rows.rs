//! How much memory the row cache has: its share; and, while the drive is waited for, what nobody else uses.
//!
//! Popular rows may lie scattered over all chunks. Then no munk is worth its memory, and the page cache keeps
//! four kilobytes for each of them: rows make the most of what munks, indexes, tables and buffers leave
//! (docs/notebook/caches.md). What rows have beyond their share is charged apart, so that it counts as free
//! for all others, and the next step of the background takes it back when they want it.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{Budget, Charge};

use crate::{parts, store::Store};

/// The limit of the row cache changes if it would by this part of the budget, or if rows have to go.
const STEP_PART: u64 = 32;
/// Each of many stores with one budget may have this part of the share of one that has it alone, if all of
/// them have rows.
const SHARES_MAX: u64 = 64;

/// With more reads that wait for each get that a row cache of all the room would answer, the memory is better
/// the page cache's.
const WAITS_A_HIT_MAX: u128 = 2;
/// Seconds for which rows that did not earn their memory get no more than their share, the first time; each
/// time that follows soon twice as many …
const REST_SECONDS_MIN: u32 = 4;
/// … up to this many.
const REST_SECONDS_MAX: u32 = 256;
/// The row cache is full if less than this part of its limit is free: each of its shards has its own.
const FULL_PART: u64 = 16;

/// The memory of cached rows.
pub(crate) struct RowRoom {
    share: Charge,
    /// Beyond the share.
    spare: Charge,
    /// The limit of the cache, in bytes.
    limit: u64,
    /// All that there was when that was looked at last.
    seen: Lately,
    /// Whether it answers enough of what would wait to have more than its share.
    is_earning: bool,
    /// Seconds until it may have more again.
    rest_left: u32,
    /// Seconds of the next rest.
    next_rest: u32,
}

/// Gets that the row cache has answered, reads of files, and those of them that have waited for the drive.
#[derive(Clone, Copy, Default)]
struct Lately {
    hits: u64,
    reads: u64,
    waits: u64,
}

impl RowRoom {
    /// Of an empty cache with its share for a limit.
    pub(crate) fn new(budget: &Arc<Budget>, share: u64) -> Self {
        let charge = |part| budget.charge(part, 0);
        let (share_charge, spare) = (charge(parts::ROW_CACHE), charge(parts::SPARE_ROWS));
        RowRoom {
            share: share_charge,
            spare,
            limit: share,
            seen: Lately::default(),
            is_earning: false,
            rest_left: 0,
            next_rest: REST_SECONDS_MIN,
        }
    }
}

impl RowRoom {
    /// Another second in which it earns more than its share, or does not. What looks as if it would earn all
    /// the room may not do so once it has it: then it would get the memory and lose it again for ever, and
    /// read its rows each time.
    fn earn(&mut self, earns: bool) {
        match (self.is_earning, earns) {
            (true, false) => {
                self.is_earning = false;
                self.rest_left = self.next_rest;
                self.next_rest = (2 * self.next_rest).min(REST_SECONDS_MAX);
            }
            (true, true) => self.next_rest = self.next_rest.saturating_sub(1).max(REST_SECONDS_MIN),
            (false, _) => {
                self.rest_left = self.rest_left.saturating_sub(1);
                self.is_earning = earns && self.rest_left == 0;
            }
        }
    }
}

impl Store {
    /// Charges the rows that are cached now, and lets the cache have what is left of the budget if the drive
    /// is waited for; else its share.
    pub(super) fn share_rows(&self) {
        let mut room = self.row_room.lock();
        let rows = self.charge_rows(&mut room);
        let share = self.row_share(rows);
        let wanted = if room.is_earning { self.room_for_rows(rows).max(share) } else { share };
        let step = self.config.budget_bytes / STEP_PART;
        if wanted < rows || wanted.abs_diff(room.limit) > step || wanted == share && room.limit > share {
            room.limit = wanted;
            self.row_cache.resize(wanted as usize);
            // At once: other stores with the budget see what is free by it.
            self.charge_rows(&mut room);
        }
    }

    /// The share of this store, which has `rows` bytes of them: all stores with this budget have as much as
    /// one would have alone, or a small part of that each if they are many.
    fn row_share(&self, rows: u64) -> u64 {
        let all = self.config.row_cache_bytes;
        let own = rows.min(all);
        let others = self.files.budget.used(parts::ROW_CACHE).saturating_sub(own);
        let part = match own + others {
            sum if sum > all => (u128::from(all) * u128::from(own) / u128::from(sum)) as u64,
            _ => all - others,
        };
        part.max(all / SHARES_MAX)
    }

    /// Charges the rows that are cached now; returns their bytes.
    fn charge_rows(&self, room: &mut RowRoom) -> u64 {
        let (share, rows) = (self.config.row_cache_bytes, self.row_cache.bytes() as u64);
        room.share.set(rows.min(share));
        room.spare.set(rows.saturating_sub(share));
        rows
    }

    /// Whether rows spare enough reads that munks have to be worth more than usual.
    pub(super) fn rows_earn(&self) -> bool {
        self.row_room.lock().is_earning
    }

    /// Whether rows have all the room that there is, and more would spare reads.
    pub(super) fn rows_want_room(&self) -> bool {
        let room = self.row_room.lock();
        room.is_earning && self.row_cache.bytes() as u64 > room.limit - room.limit / FULL_PART
    }

    /// Looks whether rows in memory spare reads that wait, or more of them would: not where munks have room
    /// for everything, and not if few gets would find a row for as many reads that wait, as with scans or if
    /// all is read alike: then the page cache makes as much of the memory. Once rows do, and answer most of
    /// what would be read, no read has to wait for them to go on: they may be the reason that none does.
    /// Called each second.
    pub(crate) fn look_at_rows(&self) {
        // Relaxed: a hint, renewed each second.
        let is_enough_for_all = self.munk_room.is_enough_for_all.load(Ordering::Relaxed);
        let is_waited_for = self.files.reads.wait_for_the_drive();
        let mut room = self.row_room.lock();
        let Lately { hits, reads, waits } = self.lately(&mut room);
        if self.config.row_cache_bytes == 0 || is_enough_for_all {
            room.is_earning = false;
        } else if hits + reads > 0 {
            // As many times as many rows would answer at most as many times as many gets.
            let rows = (self.row_cache.bytes() as u64).max(1);
            let of_all = u128::from(hits) * u128::from(self.room_for_rows(rows).max(rows)) / u128::from(rows);
            let (waits_a_hit, is_needed) = match room.is_earning {
                true => (2 * WAITS_A_HIT_MAX, is_waited_for || hits >= reads),
                false => (WAITS_A_HIT_MAX, is_waited_for),
            };
            let earns = is_needed && of_all * waits_a_hit >= u128::from(waits);
            room.earn(earns);
        }
    }

    /// What there was since this was asked last.
    fn lately(&self, room: &mut RowRoom) -> Lately {
        let reads = &self.files.reads;
        let hits = self.counters.gets_from_row_cache.sum();
        let now = Lately { hits, reads: reads.done.sum(), waits: reads.waited.sum() };
        let before = std::mem::replace(&mut room.seen, now);
        Lately {
            hits: now.hits - before.hits,
            reads: now.reads - before.reads,
            waits: now.waits - before.waits,
        }
    }

    /// Bytes that rows may have if all others keep what they have.
    fn room_for_rows(&self, rows: u64) -> u64 {
        (self.planned_bytes() + rows).saturating_sub(self.files.budget.used_in_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_earn_only_while_they_are_few_get_more_room_ever_less_often() {
        let mut room = RowRoom::new(&Budget::new(1 << 20), 1 << 16);
        let mut rises = 0;
        for _ in 0..3_600 {
            let was_earning = room.is_earning;
            // With all the room they do not, with their share they would.
            room.earn(!was_earning);
            rises += u32::from(room.is_earning && !was_earning);
        }
        assert!((10..=25).contains(&rises), "{rises} times in an hour");
        let mut seconds = 0;
        while !room.is_earning {
            room.earn(true);
            seconds += 1;
        }
        assert!(seconds <= REST_SECONDS_MAX);
        (0..REST_SECONDS_MAX).for_each(|_| room.earn(true));
        room.earn(false);
        assert_eq!(room.rest_left, REST_SECONDS_MIN, "what has earned for long is forgiven");
    }
}
