//! Room on a full disk: what gives some back, and what may use the reserve of the redo log meanwhile.
//!
//! A flush takes no more than the log segments that it frees have. A merge needs room for all of its output
//! before its inputs go, so beside it tables are *thinned*: one at a time is written again without the rows
//! that newer tables delete or overwrite. Tables that a range delete hides as a whole go without that.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::Ordering::{self, Relaxed},
    },
};

use kvilt_base::{
    Direction, EntryRef, ErrorKind, FileName, KeyRange, Kind, Merge, Result, Source, Version, key::successor,
};
use kvilt_format::names::TABLE;
use kvilt_sync::tombstones::Tombstones;

use crate::{
    log::{Log, Purpose},
    merge::Writing,
    output::Output,
    retain::Retain,
    sizing::Room,
    sources::{Sorted, Sources},
    store::{LOOK, Store},
};

/// A table is thinned if that leaves out this part of its bytes, or more.
const THINNED_PART: u64 = 16;
/// How often a delete that found no room looks whether the background has made some.
const DELETE_TRIES: usize = 20;

impl Store {
    /// Whether room is short: the reserve of the log is not whole, or a put was refused.
    pub(crate) fn is_short(&self) -> bool {
        self.log.get().is_some_and(Log::is_short)
    }

    /// Does work that gives room back; if the disk is full, once more with the reserve.
    pub(crate) fn with_room<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                let loan = self.log.get().and_then(Log::lend);
                if loan.is_some() { work() } else { Err(error) }
            }
            outcome => outcome,
        }
    }

    /// Does a write. While there is no room for one that only deletes, waits for the background to make some,
    /// for a while.
    pub(crate) fn insist<T>(&self, purpose: Purpose, write: impl Fn() -> Result<T>) -> Result<T> {
        let mut outcome = write();
        for _ in 0..DELETE_TRIES {
            let has_no_room = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
            if purpose == Purpose::Rows || !has_no_room {
                break;
            }
            self.wait_for_progress(LOOK);
            outcome = write();
        }
        outcome
    }

    /// Seals the active table, if a write was refused since that was done last: what it deletes counts for
    /// thinning when it is flushed, and so do the segments of the log that it needs. Even if it is empty: the
    /// log's current segment may be full, and be kept for it alone. Whether it was.
    pub(crate) fn rotate_if_short(&self) -> Result<bool> {
        let Some(log) = self.log.get() else { return Ok(false) };
        if !log.is_short() || log.restore() || !log.take_refusal() {
            return Ok(false);
        }
        let has_turned = log.turn_if_full()?;
        let active = Arc::clone(&self.sources.load(&kvilt_sync::pin()).active);
        if !has_turned
            && active.table.is_empty()
            && active.version_min >= self.sources_now().tombstones.newest()
        {
            return Ok(false);
        }
        self.rotate_unannounced(&active, Room::default())?;
        Ok(true)
    }

    /// Lets go of the tables that range deletes hide as a whole. Whether there were any. The caller merges.
    pub(crate) fn drop_deleted(&self) -> Result<bool> {
        if deleted(&self.sources_now(), &self.sources_now().tombstones, &[]).is_empty() {
            return Ok(false);
        }
        let tombstones = self.durable_tombstones()?;
        // Later views are above all range deletes that are there.
        let _current = self.versions.current();
        let views = self.versions.open_views();
        let numbers = deleted(&self.sources_now(), &tombstones, &views);
        if numbers.is_empty() {
            return Ok(false);
        }
        self.install(&[], &|sources| remove(sources, &numbers))?;
        self.remove_tables(&numbers);
        Ok(true)
    }

    /// Thins the first table for which that pays. Whether there was one. The caller merges.
    pub(crate) fn thin(&self) -> Result<bool> {
        let levels = self.sources_now().levels;
        let state = self.counters.flushes.load(Relaxed) + self.counters.merges.load(Relaxed);
        // Zero means never.
        if self.thinned_at.load(Relaxed) == state + 1 {
            return Ok(false);
        }
        for (number, level) in levels.iter().enumerate() {
            for (place, table) in level.iter().enumerate() {
                let newer_here = if number == 0 { &level[..place] } else { &[] };
                let newer = levels[..number].iter().flatten().chain(newer_here);
                let older_here = if number == 0 { &level[place + 1..] } else { &[] };
                let thinning = Thinning {
                    table,
                    newer: newer.filter(|other| overlap(other, table)).cloned().collect(),
                    below: vec![levels[number + 1..].iter().flatten().chain(older_here).cloned().collect()],
                };
                if self.ensure_open().is_ok() && self.thin_table(&thinning)? {
                    return Ok(true);
                }
            }
        }
        self.thinned_at.store(state + 1, Relaxed);
        Ok(false)
    }

    fn thin_table(&self, thinning: &Thinning<'_>) -> Result<bool> {
        let tombstones = self.durable_tombstones()?;
        let (mut all, mut kept) = (0, 0);
        // As `Writing` has it: a delete stays if an older entry of its key does. Counted as gone, it would be
        // written again for ever.
        let mut held: Option<(Vec<u8>, u64)> = None;
        self.each_of(thinning, &tombstones, &mut |entry, is_needed| {
            let bytes = (entry.key.len() + entry.value.len()) as u64 + 1;
            all += bytes;
            if is_needed {
                let (_, of_delete) = held.take().filter(|(key, _)| key == entry.key).unwrap_or_default();
                kept += of_delete;
                if entry.kind == Kind::Put || is_below(&thinning.below, entry.key) {
                    kept += bytes;
                } else {
                    held = Some((entry.key.to_vec(), bytes));
                }
            }
            Ok(())
        })?;
        if all - kept <= all / THINNED_PART {
            return Ok(false);
        }
        let output = Output::new(self, u64::MAX, thinning.table.memory_min);
        let mut writing = Writing::new(output, &thinning.below);
        self.each_of(thinning, &tombstones, &mut |entry, is_needed| match is_needed {
            true => writing.add(entry),
            false => Ok(()),
        })?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let tables = writing.output.finish()?;
        let number = thinning.table.of.number;
        self.install(&tables, &|sources| {
            for level in &mut sources.levels {
                if let Some(place) = level.iter().position(|sorted| sorted.of.number == number) {
                    level.splice(place..=place, tables.iter().cloned());
                }
            }
        })?;
        self.remove_tables(&[number]);
        self.counters.thinned.fetch_add(1, Relaxed);
        Ok(true)
    }

    /// Gives each entry of a table, and whether somebody may see it beside the newer tables.
    fn each_of(
        &self,
        Thinning { table, newer, .. }: &Thinning<'_>,
        tombstones: &Arc<Tombstones>,
        each: &mut dyn FnMut(EntryRef<'_>, bool) -> Result<()>,
    ) -> Result<()> {
        let range = keys_of(table);
        let mut streams: Vec<Box<dyn Source>> = Vec::new();
        for sorted in newer {
            streams.push(Box::new(sorted.table.source(&range, Direction::Forward)?));
        }
        streams.push(Box::new(table.table.source(&range, Direction::Forward)?));
        // Where the table is: of equal entries, the newer table's comes first, and is taken for it.
        let mut own = table.table.source(&range, Direction::Forward)?;
        let mut retain = Retain::new(&self.versions, tombstones);
        let mut outcome = Ok(());
        let _broken = Merge::new(streams, Direction::Forward)?.each(&mut |entry| {
            let is_needed = retain.is_needed(entry.key, entry.version);
            let is_own = own.entry().is_some_and(|own| (own.key, own.version) == (entry.key, entry.version));
            if is_own {
                outcome = each(entry, is_needed).and_then(|()| own.advance());
            }
            let is_broken = outcome.is_err() || self.is_closed.load(Ordering::Relaxed);
            if is_broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        outcome
    }

    /// Removes files of tables that no catalogue names any more.
    pub(crate) fn remove_tables(&self, numbers: &[u64]) {
        for number in numbers {
            // What cannot be removed is removed by the next open.
            let _ = self.disk.remove(FileName::Of(TABLE, *number));
        }
    }
}

/// A table, and what decides which of its entries go.
struct Thinning<'t> {
    table: &'t Arc<Sorted>,
    /// Those that may delete or overwrite rows of it, newest first.
    newer: Vec<Arc<Sorted>>,
    /// Those that may have rows which it deletes, as one level.
    below: Vec<Vec<Arc<Sorted>>>,
}

/// Whether a table below may have the key.
pub(crate) fn is_below(below: &[Vec<Arc<Sorted>>], key: &[u8]) -> bool {
    let mut below = below.iter().flatten();
    below.any(|sorted| (sorted.of.first_key.as_slice()..=sorted.of.last_key.as_slice()).contains(&key))
}

fn overlap(one: &Sorted, other: &Sorted) -> bool {
    one.of.first_key <= other.of.last_key && one.of.last_key >= other.of.first_key
}

fn keys_of(sorted: &Sorted) -> KeyRange {
    KeyRange { start: sorted.of.first_key.clone(), end: Some(successor(&sorted.of.last_key)) }
}

/// The numbers of the tables of which neither the readers of now nor these views see anything.
fn deleted(sources: &Sources, tombstones: &Tombstones, views: &[Version]) -> Vec<u64> {
    if tombstones.is_empty() {
        return Vec::new();
    }
    let is_deleted = |sorted: &&Arc<Sorted>| {
        let (oldest, newest) = (sorted.of.version_min, sorted.table.version_max());
        if tombstones.newest() <= newest {
            return false;
        }
        let is_seen = |by: Version| views.iter().any(|view| (oldest..by).contains(view));
        let range = keys_of(sorted);
        let over = tombstones.touching(&range).retained(|_, version| version > newest && !is_seen(version));
        over.cover(&range)
    };
    sources.sorted().filter(is_deleted).map(|sorted| sorted.of.number).collect()
}

fn remove(sources: &mut Sources, numbers: &[u64]) {
    for level in &mut sources.levels {
        level.retain(|sorted| !numbers.contains(&sorted.of.number));
    }
}
