//! How much memory the row cache has: its share; and, while the drive is waited for, what nobody else uses.
//!
//! Popular rows may lie scattered over all chunks. Then no munk is worth its memory, and the page cache keeps
//! four kilobytes for each of them: rows make the most of what munks, indexes, tables and buffers leave
//! (docs/notebook/caches.md). What rows have beyond their share is charged apart, so that it counts as free
//! for all others, and rows give way before anything else does.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{Budget, Charge};

use crate::{parts, store::Store};

/// The row cache gets more room when this part of the budget is left for it.
const GROWN_PART: u64 = 32;

/// With more reads that wait for each get that a row cache of all the room would answer, the memory is better
/// the page cache's.
const WAITS_A_HIT_MAX: u64 = 2;
/// The row cache is full if less than this part of its limit is free: each of its shards has its own.
const FULL_PART: u64 = 16;

/// The memory of cached rows.
pub(crate) struct RowRoom {
    share: Charge,
    /// Beyond the share.
    spare: Charge,
    /// The limit of the cache, in bytes.
    limit: u64,
    /// Gets that the cache has answered, and reads that have waited, when that was looked at last.
    seen: (u64, u64),
    /// Whether it answers enough of what would wait to have more than its share.
    is_earning: bool,
}

impl RowRoom {
    /// Of an empty cache with its share for a limit.
    pub(crate) fn new(budget: &Arc<Budget>, share: u64) -> Self {
        let charge = |part| budget.charge(part, 0);
        let (share_charge, spare) = (charge(parts::ROW_CACHE), charge(parts::SPARE_ROWS));
        RowRoom { share: share_charge, spare, limit: share, seen: (0, 0), is_earning: false }
    }
}

impl Store {
    /// Charges the rows that are cached now, and lets the cache have what is left of the budget if the drive
    /// is waited for; else its share.
    pub(super) fn share_rows(&self) {
        let share = self.config.row_cache_bytes;
        let rows = self.row_cache.bytes() as u64;
        let mut room = self.row_room.lock();
        charge_with(&mut room.share, rows.min(share));
        charge_with(&mut room.spare, rows.saturating_sub(share));
        let wanted = if room.is_earning { self.room_for_rows(rows).max(share) } else { share };
        // At once, if it is less: others count this memory as free.
        let is_less = wanted < rows || wanted == share && room.limit > share;
        if is_less || wanted > room.limit + self.config.budget_bytes / GROWN_PART {
            room.limit = wanted;
            self.row_cache.resize(wanted as usize);
        }
    }

    /// Whether rows have all the room that there is, and more would spare reads.
    pub(super) fn rows_want_room(&self) -> bool {
        let room = self.row_room.lock();
        room.is_earning && self.row_cache.bytes() as u64 > room.limit - room.limit / FULL_PART
    }

    /// Looks whether more rows in memory would spare reads that wait: not where munks have room for
    /// everything, and not if few gets would find a row for as many reads that wait, as with scans or if all
    /// is read alike: then the page cache makes as much of the memory. Called each second.
    pub(crate) fn look_at_rows(&self) {
        let (hits, waits) = (self.counters.gets_from_row_cache.sum(), self.files.reads.waited.sum());
        // Relaxed: a hint, renewed each second.
        let is_enough_for_all = self.munk_room.is_enough_for_all.load(Ordering::Relaxed);
        let may_earn = self.config.row_cache_bytes > 0 && !is_enough_for_all;
        let mut room = self.row_room.lock();
        let (hits_before, waits_before) = std::mem::replace(&mut room.seen, (hits, waits));
        let waits_a_hit = if room.is_earning { 2 * WAITS_A_HIT_MAX } else { WAITS_A_HIT_MAX };
        // As many times as many rows would answer at most as many times as many gets.
        let rows = (self.row_cache.bytes() as u64).max(1);
        let hits_then = (hits - hits_before) * self.room_for_rows(rows).max(rows) / rows;
        let earns = hits_then * waits_a_hit >= waits - waits_before;
        room.is_earning = may_earn && self.files.reads.wait_for_the_drive() && earns;
    }

    /// Bytes that rows may have if all others keep what they have.
    fn room_for_rows(&self, rows: u64) -> u64 {
        (self.planned_bytes() + rows).saturating_sub(self.files.budget.used_in_all())
    }
}

fn charge_with(charge: &mut Charge, bytes: u64) {
    let before = charge.bytes();
    if bytes > before {
        charge.grow(bytes - before);
    } else {
        charge.shrink(before - bytes);
    }
}
