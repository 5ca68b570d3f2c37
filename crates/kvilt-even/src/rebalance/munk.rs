//! Munk rebalance (EvenDB §3.4): frozen tails and the run become one run, in memory, without the gate.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{Direction, KeyRange, Result, Source as _, Version, planted};
use kvilt_sync::{published::Pin, rows::Hold};

use crate::{
    chunk::{Chunk, ChunkState, Occupied},
    munk::{
        ChargedRun, FROZEN_TAILS_MAX, Munk, entries_of, overwritten_bytes,
        run::{PiecesBuilder, Run, RunReader, Weaver},
        tail::Tail,
    },
    retain::Retain,
    store::Store,
};
use kvilt_sync::tombstones::Tombstones;

/// Of what is sorted, more than this part must have been overwritten for a chunk to count as one that is.
const OVERWRITTEN_PART: usize = 16;
/// A run is not copied if at most this part of it belongs behind what is new: the piece that keeps it keeps
/// their memory.
const BESIDE_RUN_PART: usize = 8;

/// A run is copied when so great a part of it is memory without its entries, or frozen tails that overwrite
/// some …
const WASTE_PART: usize = 2;
/// … or this part, where memory is short.
const WASTE_PART_SHORT: usize = 4;
/// So many entries of a run are taken over into a woven one in the time that a search of a tail takes. An
/// entry of a tail, which is copied, takes as long as a search.
const ROWS_A_SEARCH: usize = 16;

/// So many entries of a run are copied in the time that a search of a tail takes.
const ROWS_COPIED_A_SEARCH: usize = 4;
/// Range tombstones end when they, and what they cover, take more than this part of a run …
const COVERED_PART: u64 = 4;
/// … and this part of what a chunk may have: to end a few of a small munk's each time would be to copy it
/// each time.
const COVERED_CHUNK_PART: u64 = 64;

/// What a new run ends of what lay over the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// It was woven, so what range tombstones cover is still there.
    Nothing,
    /// It was copied.
    Tombstones,
}

/// What a munk held at one moment, without its open tail.
pub(super) struct FrozenMunk {
    pub(super) run: Arc<ChargedRun>,
    /// What keeps the run as it was.
    hold: Hold,
    pub(super) tails: Vec<Arc<Tail>>,
    pub(super) tombstones: Arc<Tombstones>,
}

impl FrozenMunk {
    /// The frozen part of `munk`. The caller holds the chunk's gate.
    pub(super) fn of(munk: &Munk) -> Self {
        FrozenMunk {
            run: Arc::clone(&munk.run),
            hold: munk.run.run.hold(),
            tails: munk.tails[1..].to_vec(),
            tombstones: Arc::clone(&munk.tombstones),
        }
    }

    /// The run, as it was.
    pub(super) fn run(&self) -> RunReader<'_> {
        self.run.run.held(&self.hold)
    }

    /// The range tombstones, for who ends them: none or one value of them.
    pub(super) fn over(&self) -> &[Arc<Tombstones>] {
        if self.tombstones.is_empty() { &[] } else { std::slice::from_ref(&self.tombstones) }
    }

    /// Whether `tail` is in it.
    pub(super) fn has(&self, tail: &Arc<Tail>) -> bool {
        self.tails.iter().any(|frozen| Arc::ptr_eq(frozen, tail))
    }

    /// The first key that its tails have of `range`: they may have a sibling's, too.
    fn first_key_of_tails(&self, range: &KeyRange) -> Option<Vec<u8>> {
        let first = |tail: &Arc<Tail>| {
            let source = tail.source(range, Direction::Forward);
            source.entry().map(|entry| entry.key.to_vec())
        };
        self.tails.iter().filter_map(first).min()
    }

    /// Bytes that its entries take in a run.
    fn bytes(&self) -> usize {
        self.run.run.entry_bytes() + self.tail_bytes()
    }

    /// Bytes that its tails' entries take in a run.
    fn tail_bytes(&self) -> usize {
        bytes_of_tails(&self.tails)
    }
}

/// Bytes that the entries of tails take in a run.
fn bytes_of_tails(tails: &[Arc<Tail>]) -> usize {
    tails.iter().map(|tail| tail.entry_bytes()).sum()
}

impl Store {
    /// Whether a munk's tails should be sorted into its run now: where that is due anyway, where puts would
    /// wait for it, and where readers gain by it.
    pub(super) fn munk_wants_sorting(&self, chunk: &Chunk, munk: &Munk, pin: &Pin) -> bool {
        self.are_tombstones_due(chunk, munk)
            || self.is_copy_due(chunk, munk.run.run.under(pin), &munk.tails[1..])
            || self.puts_wait_for_sorting(munk)
            || self.have_readers_paid(chunk, munk)
            || self.are_tails_overwriting(chunk, munk, pin)
    }

    /// Whether a put that needs another tail waits until what is frozen is sorted: there are too many, or the
    /// chunk is so far above its limit that puts would outrun the split that is under way.
    pub(crate) fn puts_wait_for_sorting(&self, munk: &Munk) -> bool {
        munk.tails.len() > FROZEN_TAILS_MAX
            || (munk.has_frozen_tails() && munk.entry_bytes() > 2 * self.config.chunk_bytes_max)
    }

    /// Whether readers have searched the munk's tails for as much as it costs to weave them into the run: who
    /// weaves then, and not before, never pays much more than who knew what is to come.
    pub(crate) fn have_readers_paid(&self, chunk: &Chunk, munk: &Munk) -> bool {
        let entries: usize = munk.tails.iter().map(|tail| tail.len()).sum();
        // With range tombstones the run is copied, so that what they cover goes as well.
        let rows_a_search = if munk.tombstones.is_empty() { ROWS_A_SEARCH } else { ROWS_COPIED_A_SEARCH };
        let price = munk.run.run.len() / rows_a_search + entries;
        let has_any = entries > 0 || !munk.tombstones.is_empty();
        // Relaxed: a statistic.
        has_any && chunk.heat.tail_searches.load(Ordering::Relaxed) as usize > price
    }

    /// Whether the munk's range tombstones should end now, which means to copy it: where they and what they
    /// cover take much of its memory, where scans have paid for it, and where nobody writes.
    pub(crate) fn are_tombstones_due(&self, chunk: &Chunk, munk: &Munk) -> bool {
        if munk.tombstones.is_empty() {
            return false;
        }
        let bytes = munk.covered_bytes as u64 + munk.tombstones.bytes();
        let limit = munk.run.run.entry_bytes() as u64 / COVERED_PART
            + self.config.chunk_bytes_rebalance / COVERED_CHUNK_PART;
        // Relaxed: a statistic.
        let is_idle = chunk.heat.puts.load(Ordering::Relaxed) == 0;
        bytes > limit || is_idle || self.have_readers_paid(chunk, munk)
    }

    /// Whether the run should be copied, together with these tails.
    ///
    /// That costs much, so it waits until the chunk is due to be split, scans have paid for order, or the
    /// tails have as much as the run, half of it where they are mostly overwritten rows; but not where
    /// overwritten rows keep memory that is short.
    fn is_copy_due(&self, chunk: &Chunk, reader: RunReader<'_>, frozen: &[Arc<Tail>]) -> bool {
        let run = reader.run();
        let run_bytes = run.entry_bytes();
        if self.is_too_large(chunk, reader) || run.have_scans_paid_for_order() {
            return true;
        }
        let waste_part = if self.munks_are_short() { WASTE_PART_SHORT } else { WASTE_PART };
        if !run.has_older() && frozen.is_empty() {
            return run.waste_bytes() > run_bytes / waste_part;
        }
        let views = self.kept_views();
        let frozen_waste = overwritten_bytes(reader, frozen, &chunk.range, &views);
        let waste = unseen_bytes(run, &views) + frozen_waste;
        // What overwrites takes no more room than there is.
        let new_bytes = bytes_of_tails(frozen).saturating_sub(frozen_waste);
        let is_grown = new_bytes > 0
            && (new_bytes >= run_bytes
                || (run_bytes + new_bytes) as u64 >= self.chunk_bytes_rebalance(chunk));
        waste > run_bytes / waste_part || is_grown
    }

    /// Sorts what is frozen, and splits the chunk if that is too large.
    pub(crate) fn compact_munk(&self, chunk: &Occupied) -> Result<()> {
        self.sink_tails(chunk);
        let is_ending = {
            let pin = kvilt_sync::published::pin();
            chunk.state(&pin).munk.as_ref().is_some_and(|munk| self.are_tombstones_due(chunk, munk))
        };
        let Some(frozen) = self.freeze(chunk, is_ending) else { return Ok(()) };
        if !is_ending && !self.is_copy_due(chunk, frozen.run(), &frozen.tails) {
            if frozen.tails.is_empty() {
                // Puts meanwhile raised the price.
                return Ok(());
            }
            if let Some(run) = self.woven(chunk, &frozen)? {
                self.counters.munk_weavings.add(1);
                self.replace_run(chunk, &frozen, run, Ends::Nothing);
                return Ok(());
            }
        }
        self.copy_frozen(chunk, frozen)
    }

    /// Sorts all that there is into memory of its own, whether that is due or not. False if there is no munk.
    pub(super) fn copy_munk(&self, chunk: &Occupied) -> Result<bool> {
        if chunk.gate().is_retired {
            return Ok(false);
        }
        let Some(frozen) = self.freeze(chunk, true) else { return Ok(false) };
        self.copy_frozen(chunk, frozen)?;
        Ok(true)
    }

    fn copy_frozen(&self, chunk: &Occupied, frozen: FrozenMunk) -> Result<()> {
        let mut runs = self.sorted_runs(chunk, &frozen)?;
        self.counters.munk_compactions.add(1);
        if runs.len() > 1 {
            self.split_munk(chunk, &frozen, runs);
        } else {
            let run = runs.pop().expect("a run, if an empty one");
            self.replace_run(chunk, &frozen, run, Ends::Tombstones);
            drop(frozen);
            self.sink_tails(chunk);
        }
        Ok(())
    }

    /// What is frozen as a run whose entries mostly stay where they are: it costs little, and is what readers
    /// want as well. None if there is no room in it for more.
    fn woven(&self, chunk: &Occupied, frozen: &FrozenMunk) -> Result<Option<Run>> {
        // As in `sorted`.
        let views = self.kept_views();
        let nothing = Run::empty();
        let hold = nothing.hold();
        let mut new = entries_of(nothing.held(&hold), &frozen.tails, &chunk.range, Direction::Forward);
        let count = frozen.tails.iter().map(|tail| tail.len()).sum();
        let mut weaver = Weaver::new(&frozen.run.run, &frozen.hold, count);
        let mut retain = Retain::new(&views, &[]);
        let mut has_room = true;
        let mut key = Vec::new();
        while let Some(next) = new.key() {
            next.clone_into(&mut key);
            weaver.begin_key(&key);
            retain.begin_key();
            while let Some(entry) = new.entry().filter(|entry| entry.key == key) {
                retain.next(entry, &mut |entry| {
                    has_room &= weaver.push(entry);
                    Ok(())
                })?;
                new.advance()?;
            }
            while let Some(older) = weaver.next_older(&key) {
                retain.next(older, &mut |entry| {
                    if entry.version == older.version {
                        weaver.keep(entry);
                    } else {
                        // A tombstone that somebody sees, if only because of this entry. It is written once
                        // more.
                        has_room &= weaver.push(entry);
                    }
                    Ok(())
                })?;
            }
            if !has_room {
                return Ok(None);
            }
        }
        Ok(Some(weaver.finish()))
    }

    /// What is frozen, sorted: a run for each chunk that there will be.
    fn sorted_runs(&self, chunk: &Occupied, frozen: &FrozenMunk) -> Result<Vec<Run>> {
        let limit = self.chunk_bytes_rebalance(chunk) as usize;
        // Relaxed, all of them: a hint.
        let has_overwrites = &chunk.heat.has_overwrites;
        if frozen.bytes() >= limit && !has_overwrites.load(Ordering::Relaxed) {
            let runs = self.sorted_in_pieces(chunk, frozen)?;
            if runs.iter().map(Run::entry_bytes).sum::<usize>() >= limit {
                return Ok(runs);
            }
        }
        let (runs, count) = self.sorted(frozen, &chunk.range, (frozen.bytes(), 1))?;
        let is_overwritten = runs[0].len() < count - count / OVERWRITTEN_PART;
        // If it is too large all the same, the next sort cuts it.
        let is_too_large = self.is_too_large(chunk, runs[0].held(&runs[0].hold()));
        has_overwrites.store(is_overwritten && !is_too_large, Ordering::Relaxed);
        Ok(runs)
    }

    /// The same in pieces. Where most of the run lies before all that is new, it stays as it is: so where
    /// keys come in order in each of many ranges, a row is sorted once.
    fn sorted_in_pieces(&self, chunk: &Occupied, frozen: &FrozenMunk) -> Result<Vec<Run>> {
        let limit = self.chunk_bytes_rebalance(chunk) as usize;
        if let Some((kept, first_key)) = self.kept_of_run(frozen, &chunk.range) {
            let range = KeyRange { start: first_key, end: chunk.range.end.clone() };
            let bytes = frozen.bytes() - kept.entry_bytes();
            let mut behind = self.sorted(frozen, &range, (bytes, pieces_of(bytes, limit)))?.0;
            if behind.iter().all(|run| run.entry_bytes() as u64 >= self.config.chunk_bytes_min) {
                behind.insert(0, kept);
                return Ok(behind);
            }
        }
        let pieces = pieces_of(frozen.bytes(), limit).max(2);
        Ok(self.sorted(frozen, &chunk.range, (frozen.bytes(), pieces))?.0)
    }

    /// The part of the run that lies before the tails' first key, which comes with it, if that is nearly all
    /// of the run.
    fn kept_of_run(&self, frozen: &FrozenMunk, range: &KeyRange) -> Option<(Run, Vec<u8>)> {
        let run = &frozen.run.run;
        if run.is_scattered() || !frozen.tombstones.is_empty() {
            return None;
        }
        let first_key = frozen.first_key_of_tails(range)?;
        let kept = frozen.run().lower_bound(&first_key);
        let (kept_bytes, bytes) = (run.bytes_before(kept), run.entry_bytes());
        let is_worth_it =
            kept_bytes as u64 >= self.config.chunk_bytes_min && bytes - kept_bytes <= bytes / BESIDE_RUN_PART;
        is_worth_it.then(|| (run.first(kept, &frozen.hold), first_key))
    }

    /// What of the munk does not change any more. With range tombstones the open tail is frozen too, so that
    /// all they lie over is there and they can be ended; and so it is if readers have paid for it, or all is
    /// to be sorted.
    fn freeze(&self, chunk: &Occupied, is_all_wanted: bool) -> Option<FrozenMunk> {
        let pin = kvilt_sync::published::pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        let munk = state.munk.as_ref()?;
        let is_wanted = is_all_wanted || !munk.tombstones.is_empty() || self.have_readers_paid(chunk, munk);
        planted!(TailNotFrozen => return Some(FrozenMunk::of(munk)));
        if !is_wanted || munk.tail().is_empty() {
            return Some(FrozenMunk::of(munk));
        }
        let munk = self.with_fresh_tail(munk, 0);
        let frozen = FrozenMunk::of(&munk);
        chunk.replace_state(&gate, ChunkState { munk: Some(munk), ..state.clone() });
        Some(frozen)
    }

    /// The entries of a frozen munk that some reader needs, sorted: of about so many bytes, in so many
    /// pieces. Also how many there were with those that nobody needs.
    fn sorted(
        &self,
        frozen: &FrozenMunk,
        range: &KeyRange,
        (bytes, pieces): (usize, usize),
    ) -> Result<(Vec<Run>, usize)> {
        // Views opened from here on are above everything frozen and see the newest of it, which is kept.
        let views = self.kept_views();
        let mut entries = entries_of(frozen.run(), &frozen.tails, range, Direction::Forward);
        let mut runs = PiecesBuilder::new(bytes, pieces)?;
        let retain = Retain::new(&views, frozen.over());
        let count = retain.run(&mut entries, &mut |entry| runs.push(entry))?;
        Ok((runs.finish(), count))
    }

    /// Puts a run in the place of what it was made of.
    fn replace_run(&self, chunk: &Occupied, frozen: &FrozenMunk, run: Run, ends: Ends) {
        let pin = kvilt_sync::published::pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        let munk = state.munk.as_ref().expect("only the occupant evicts");
        let (tombstones, covered_bytes) = match ends {
            Ends::Nothing => (Arc::clone(&munk.tombstones), munk.covered_bytes),
            Ends::Tombstones if frozen.tombstones.is_empty() => {
                (Arc::clone(&munk.tombstones), munk.covered_bytes)
            }
            Ends::Tombstones => (Arc::new(munk.tombstones.since(frozen.tombstones.newest())), 0),
        };
        let run = self.charged(run);
        run.charge_tombstones(tombstones.bytes());
        let tails = munk.tails.iter().filter(|tail| !frozen.has(tail)).cloned().collect();
        let tails = planted!(PutDuringSort, tails => vec![self.new_tail(0, &munk.run.run)]);
        let munk = Munk { run, tails, tombstones, covered_bytes };
        chunk.replace_state(&gate, ChunkState { munk: Some(Arc::new(munk)), ..state.clone() });
        // Only now: what was searched while this was sorted is paid for. Relaxed: a statistic.
        chunk.heat.tail_searches.store(0, Ordering::Relaxed);
    }

    /// A run, charged to the budget.
    pub(super) fn charged(&self, run: Run) -> Arc<ChargedRun> {
        ChargedRun::new(run, &self.files.budget)
    }
}

/// Bytes of a run's memory that nobody sees, if these views are open: weaving leaves old versions of keys
/// that do not change.
fn unseen_bytes(run: &Run, views: &[Version]) -> usize {
    run.waste_bytes() + run.unseen_bytes(views.first().copied())
}

/// About how many bytes of a munk's memory a copy of all of it would give back; not looked at closely if that
/// is at most `least`.
pub(super) fn wasted_bytes(chunk: &Chunk, munk: &Munk, views: &[Version], least: usize, pin: &Pin) -> usize {
    let run = &munk.run.run;
    let unseen = unseen_bytes(run, views);
    let entries: usize = munk.tails.iter().map(|tail| tail.len()).sum();
    if unseen + entries * run.mean_entry_bytes() <= least {
        return unseen;
    }
    unseen + overwritten_bytes(run.under(pin), &munk.tails, &chunk.range, views)
}

/// Into how many pieces of about half the limit so many bytes go.
fn pieces_of(bytes: usize, limit: usize) -> usize {
    ((bytes + limit / 4) / (limit / 2)).max(1)
}

#[cfg(test)]
mod tests;
