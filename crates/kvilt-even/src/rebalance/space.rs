//! Space: dead bytes of files are bounded (docs/design/0056-space-comes-back.md).
//!
//! Files of a chunk hold live rows and dead ones: overwritten, deleted, or of a range that a sibling has
//! rewritten. Now and then the keeper of space looks at all chunks. If all files together hold more dead
//! bytes than may be, it has those chunks rewritten that give back most for a byte written; if nothing was
//! written for a while, fewer may be. A shared file counts to its chunks in equal parts, so the parts add up
//! to what lies on the disk, and a file that some siblings gave up weighs more on those that are left.
//!
//! | store | dead bytes that may be |
//! | --- | --- |
//! | is written | `LIVE_PERCENT` of the live ones, and three eighths of the slack |
//! | is written faster than rewrites can follow: puts wait | `LIVE_PERCENT_MAX` of the live ones, and three quarters |
//! | is at rest | `LIVE_PERCENT_AT_REST` of the live ones, and an eighth |
//!
//! Puts wait as well, and no more is rewritten, while replaced files that wait for a checkpoint take a third
//! of the live bytes and half of the slack. Files that the last checkpoint could not remove do not count:
//! readers hold them, for as long as they like.
//!
//! A cold chunk's live bytes are counted from samples of its logs ([`super::samples`]); a munk's are known.
//! Nothing is counted while even what every change since the last counts may have killed would not be too
//! much.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use kvilt_base::{Result, Version};
use kvilt_sync::published::{Pin, pin};

use super::munk::wasted_bytes;
use crate::{
    chunk::{Chunk, ChunkState, Occupied, ledger::Count},
    files::Files,
    funk::{Funk, Part, PartFile},
    munk::run::{RunReader, bytes_of},
    store::Store,
};

/// Dead bytes in percent of live ones at which rewrites begin while the store is written. Chunks that are
/// rewritten hold about twice as many, so a byte put costs about 1 + 1/1.5 bytes written where all rows are
/// written alike.
const LIVE_PERCENT: u64 = 75;
/// Dead bytes in percent of live ones at which puts wait for rewrites.
const LIVE_PERCENT_MAX: u64 = 90;
/// Dead bytes in percent of live ones that a store at rest may keep.
const LIVE_PERCENT_AT_REST: u64 = 20;
/// Files that were replaced and wait for a checkpoint may be this part of the live bytes, and half of the
/// slack; then no more are replaced, and puts wait. At half of that a checkpoint is taken early.
const REPLACED_PART: u64 = 3;
/// While puts wait, of those that fill no buffer one in this many does.
const SMALL_PUTS_A_WAIT: u64 = 32;
/// A store is at rest when nothing was put for this time.
const REST_AFTER: Duration = Duration::from_secs(2);
/// Time between two looks at all chunks, at least: a look costs time for each chunk and each file.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The same in a store at rest, where the next look is for what a checkpoint or the end of a view frees; it
/// doubles with each look in vain …
const LOOK_INTERVAL_AT_REST: Duration = Duration::from_millis(500);
/// … this often at most: every 16 seconds.
const DOUBLINGS_MAX: u32 = 5;
/// Chores that one look finds, at most: the next look knows better, and tells puts that need not wait any
/// more …
const CHORES_MAX: usize = 4;
/// … or one for this many chunks, where there are more: a look costs time for each of them.
const CHUNKS_A_CHORE: usize = 128;
/// A chunk with fewer dead bytes than this part of its live ones is not worth a rewrite …
const DEAD_PART_MIN: u64 = 8;
/// … nor with fewer than this part of the slack, …
const SLACK_PART_MIN: u64 = 256;
/// … nor than this part of a chunk's length: where memory is short, chunks are, and there are many.
const CHUNK_PART_MIN: u64 = 16;
/// A munk is copied if more than this part of its entries is dead …
const MUNK_WASTE_PART: usize = 2;
/// … or this part, at rest.
const MUNK_WASTE_PART_AT_REST: usize = 5;
/// Records of logs that a count reads, about: it finds the dead part with an error of a few hundredths …
const SAMPLES: u64 = 64;
/// … and where few long rows hold most bytes: one record may delete any of them.
const SAMPLES_OF_FEW: u64 = 1024;
/// Counts are made when this part of the dead bytes that may be could be dead, for all that is known.
const UNCERTAIN_PART: u64 = 2;
/// … and this part of them may be more dead than is thought.
const UNCERTAIN_PART_MIN: u64 = 8;
/// Rows of a table that a count reads, about: tables may hold versions that a rewrite kept for a view.
const SAMPLED_ROWS: u64 = 64;

/// What the keeper of space and puts tell each other.
#[derive(Default)]
pub(crate) struct Space {
    /// Whether puts are to wait.
    is_short: AtomicBool,
    /// Whether too many bytes of replaced files wait for a checkpoint.
    has_replaced_much: AtomicBool,
    /// Puts that filled no buffer while others waited.
    small_puts: AtomicU64,
    /// Whether the next checkpoint is to come before its time.
    is_checkpoint_wanted: AtomicBool,
    /// Bytes of replaced files that the last checkpoint had to leave, because readers hold them.
    held_by_readers: AtomicU64,
}

impl Space {
    /// Notes how many bytes of files replaced before a checkpoint it had to leave.
    pub(crate) fn left_by_checkpoint(&self, bytes: u64) {
        // Relaxed: what is decided by it may be late.
        self.held_by_readers.store(bytes, Ordering::Relaxed);
    }
}

/// What is to be done to one chunk for the sake of space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chore {
    /// Its live bytes are counted.
    Count,
    /// Its files are rewritten.
    Rewrite,
    /// Its munk is copied, without what nobody sees.
    Copy,
}

/// The keeper's memory between two steps.
#[derive(Default)]
pub(super) struct SpaceKeeper {
    chores: VecDeque<(Chore, Weak<Chunk>)>,
    look_at: Duration,
    /// Puts and views at the last look.
    seen: (u64, usize),
    quiet_since: Duration,
    /// Looks at rest that found nothing to do, in a row.
    in_vain: u32,
    /// Whether the last look at rest found nothing to do, and nothing has changed since.
    is_settled: bool,
}

impl SpaceKeeper {
    /// Does one chore, or looks for some if it is time. True if anything was done.
    pub(super) fn step(&mut self, store: &Store, now: Duration) -> bool {
        let had_chores = !self.chores.is_empty();
        while let Some((chore, chunk)) = self.chores.pop_front() {
            let Some(occupied) = chunk.upgrade().and_then(|chunk| chunk.try_occupy()) else { continue };
            match store.carry_out(chore, &occupied) {
                Ok(true) => {
                    occupied.succeeded();
                    return true;
                }
                Ok(false) => {}
                Err(error) => store.background_failed(&occupied, &error),
            }
        }
        if had_chores {
            // None came to anything: the next look would find the same.
            self.look_at = now + LOOK_INTERVAL;
        }
        if now >= self.look_at {
            self.look(store, now);
        }
        !self.chores.is_empty()
    }

    /// When it wants to look again; none if nothing can be due before something is written.
    pub(super) fn next_look(&self) -> Option<Duration> {
        (!self.is_settled).then_some(self.look_at)
    }

    fn look(&mut self, store: &Store, now: Duration) {
        let seen = (store.counters.puts.sum(), store.versions.open_view_count());
        if seen != self.seen {
            self.seen = seen;
            self.quiet_since = now;
            self.in_vain = 0;
            self.is_settled = false;
        }
        if self.is_settled {
            return;
        }
        let is_at_rest = now.saturating_sub(self.quiet_since) >= REST_AFTER;
        let found = store.space_chores(is_at_rest);
        self.chores = found.chores;
        self.is_settled = is_at_rest && self.chores.is_empty() && !found.waits;
        self.look_at = match (self.chores.is_empty(), is_at_rest) {
            // Behind chores the next look is due at once: there may be more to do.
            (false, _) => now,
            (true, false) => now + LOOK_INTERVAL,
            (true, true) => now + LOOK_INTERVAL_AT_REST * (1 << self.in_vain.min(DOUBLINGS_MAX)),
        };
        self.in_vain = if is_at_rest && self.chores.is_empty() { self.in_vain + 1 } else { 0 };
    }
}

/// What a look found.
struct Found {
    chores: VecDeque<(Chore, Weak<Chunk>)>,
    /// Whether there is more to do once a checkpoint is done or a view is closed, which wakes nobody.
    waits: bool,
}

/// How the bytes of all files divide among chunks.
pub(crate) struct SpaceByChunk {
    of_chunks: Vec<ChunkSpace>,
    /// Bytes of all files: their parts are rounded.
    held: u64,
}

/// What a munk has.
struct MunkSpace {
    /// Of its live rows, in bytes that they take in files.
    count: Count,
    /// Bytes of entries that are not live.
    dead: usize,
    /// Bytes of those that no view sees either.
    waste: usize,
    /// Bytes of all entries.
    entries: usize,
}

struct ChunkSpace {
    chunk: Arc<Chunk>,
    /// Of its files, its part. Siblings that share a file may have more or less of it, so `live` may be more.
    held: u64,
    live: u64,
    /// Live bytes if each change since the last count killed as much as it may have.
    least_live: u64,
    munk: Option<MunkSpace>,
    /// Whether a rewrite would do anything: its files are not one table of its own, written in this run.
    can_shrink: bool,
}

impl ChunkSpace {
    fn dead(&self) -> u64 {
        self.held.saturating_sub(self.live)
    }

    /// Bytes that a rewrite frees for 1,024 bytes that it writes.
    fn benefit(&self) -> u64 {
        self.dead().saturating_mul(1024) / (self.live + 1)
    }
}

impl SpaceByChunk {
    /// Bytes of all files.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Bytes of them that are not live, about.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.held_bytes().saturating_sub(self.live_bytes())
    }

    /// Bytes of them that are live if each change since the last counts killed as much as it may have.
    fn least_live_bytes(&self) -> u64 {
        self.of_chunks.iter().map(|chunk| chunk.least_live).sum()
    }

    /// Bytes of files that no chunk has any more: they wait for a checkpoint, or for readers.
    fn waiting_bytes(&self, files: &Files) -> u64 {
        files.bytes().saturating_sub(self.held_bytes())
    }

    /// Bytes of rows that are live, about, in files.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.of_chunks.iter().map(|chunk| chunk.live).sum()
    }
}

impl Store {
    /// Whether puts should wait for rewrites.
    pub(crate) fn is_short_of_space(&self) -> bool {
        // Relaxed: what is decided by it may be late.
        self.space.is_short.load(Ordering::Relaxed) && self.has_workers()
    }

    /// Whether no more files should be replaced that need not be.
    pub(crate) fn has_replaced_much(&self) -> bool {
        self.space.has_replaced_much.load(Ordering::Relaxed) && self.has_workers()
    }

    /// Whether it is the turn of a put that filled no buffer.
    pub(crate) fn is_turn_to_wait_for_space(&self) -> bool {
        self.space.small_puts.fetch_add(1, Ordering::Relaxed).is_multiple_of(SMALL_PUTS_A_WAIT)
    }

    /// Bytes of replaced files that the next checkpoint can remove, if `waiting` bytes wait in all. The rest
    /// was left by the last checkpoint, because readers hold it.
    fn removable_bytes(&self, waiting: u64) -> u64 {
        // What was replaced while it ran is not among them: the next one removes it.
        waiting.saturating_sub(self.space.held_by_readers.load(Ordering::Relaxed))
    }

    /// Has the next checkpoint come before its time: it removes what was replaced.
    fn want_early_checkpoint(&self) {
        if !self.space.is_checkpoint_wanted.swap(true, Ordering::Relaxed) {
            self.wake_checkpointer();
        }
    }

    /// Whether that is so; the caller takes the checkpoint.
    pub(super) fn takes_early_checkpoint(&self) -> bool {
        self.space.is_checkpoint_wanted.swap(false, Ordering::Relaxed)
    }

    /// Fewer dead bytes of a chunk are not worth any work.
    fn worthwhile_bytes(&self) -> u64 {
        (self.config.dead_bytes_slack / SLACK_PART_MIN)
            .min(self.config.chunk_bytes_rebalance / CHUNK_PART_MIN)
    }

    /// What each chunk holds and how much of that is live. Where nobody has counted, all is taken for live.
    pub(crate) fn space_by_chunk(&self) -> SpaceByChunk {
        let pin = pin();
        let chunks = self.index.load(&pin).chunks();
        // Of each file its length, and how many chunks share it.
        let mut files: HashMap<u64, (u64, u64)> = HashMap::new();
        for chunk in chunks {
            let funk = &chunk.state(&pin).funk;
            let parts = funk.parts.iter().map(|part| (part.number(), part.file_len()));
            let log = funk.log.iter().map(|log| (log.number(), log.len()));
            for (number, len) in parts.chain(log) {
                files.entry(number).or_insert((len, 0)).1 += 1;
            }
        }
        let views = self.versions.open_views();
        let of_chunk = |chunk: &Arc<Chunk>| {
            let state = chunk.state(&pin);
            let log = state.funk.log.as_ref().map(|log| log.number());
            let numbers = state.funk.parts.iter().map(|part| part.number()).chain(log);
            // A file that came since the first pass is counted by the next look.
            let held = numbers.filter_map(|n| files.get(&n)).map(|(len, sharers)| len / sharers).sum();
            let is_rewritten = match state.funk.parts.as_slice() {
                [] => true,
                [Part { file: PartFile::Table(table), .. }] => {
                    // A file that came since the first pass is this chunk's alone.
                    let is_shared = files.get(&table.number()).is_some_and(|(_, sharers)| *sharers > 1);
                    table.is_of_this_run() && !is_shared
                }
                _ => false,
            };
            let can_shrink = !is_rewritten
                || chunk.ledger.kept_for() != 0
                || state.funk.log.as_ref().is_some_and(|log| !log.is_empty());
            let munk = self.munk_space(chunk, state, &views, &pin);
            let (live, least_live) = match &munk {
                Some(munk) => (munk.count.live_bytes, munk.count.live_bytes),
                None => (chunk.ledger.live_bytes().unwrap_or(held), chunk.ledger.least_live_bytes()),
            };
            ChunkSpace { chunk: Arc::clone(chunk), held, live, least_live, munk, can_shrink }
        };
        let of_chunks = chunks.iter().map(of_chunk).collect();
        SpaceByChunk { of_chunks, held: files.values().map(|(len, _)| len).sum() }
    }

    /// What a munk has, about; none without a munk.
    fn munk_space(
        &self,
        chunk: &Chunk,
        state: &ChunkState,
        views: &[Version],
        pin: &Pin,
    ) -> Option<MunkSpace> {
        let munk = state.munk.as_ref()?;
        let count = chunk.ledger.begin_count();
        let entries = munk.entry_bytes() as usize;
        let least = entries / DEAD_PART_MIN as usize;
        // What a view keeps is not live: it goes with the view.
        let dead = wasted_bytes(chunk, munk, &[], least, pin).min(entries);
        let waste =
            if views.is_empty() { dead } else { wasted_bytes(chunk, munk, views, least, pin).min(entries) };
        let live_bytes = chunk.ledger.in_files((entries - dead) as u64);
        let row_bytes =
            (!chunk.ledger.knows_row_bytes()).then(|| weighted_row_bytes(munk.run.run.under(pin)));
        let count = Count { live_bytes, row_bytes, ..count };
        Some(MunkSpace { count, dead, waste, entries })
    }

    /// Enters what is live of a munk that is about to go: nothing else is known of the chunk afterwards.
    pub(super) fn count_munk(&self, chunk: &Chunk) {
        let pin = pin();
        if let Some(munk) = self.munk_space(chunk, chunk.state(&pin), &[], &pin) {
            chunk.ledger.enter(munk.count);
        }
    }

    /// Looks at all chunks, and says what is to be done to some.
    fn space_chores(&self, is_at_rest: bool) -> Found {
        let slack = self.config.dead_bytes_slack;
        let space = self.space_by_chunk();
        for of in &space.of_chunks {
            // When the munk is evicted, this is all that is known.
            of.munk.iter().for_each(|munk| of.chunk.ledger.enter(munk.count));
        }
        let (live, dead) = (space.live_bytes(), space.dead_bytes());
        let waiting = space.waiting_bytes(&self.files);
        let removable = self.removable_bytes(waiting);
        let has_replaced_much = removable > live / REPLACED_PART + slack / 2;
        let is_short = dead > live / 100 * LIVE_PERCENT_MAX + slack / 4 * 3 || has_replaced_much;
        self.space.is_short.store(is_short, Ordering::Relaxed);
        self.space.has_replaced_much.store(has_replaced_much, Ordering::Relaxed);
        if removable > live / REPLACED_PART / 2 + slack / 4 {
            self.want_early_checkpoint();
        }
        let may_be = if is_at_rest {
            live / 100 * LIVE_PERCENT_AT_REST + slack / 8
        } else {
            live / 100 * LIVE_PERCENT + slack / 8 * 3
        };
        let least_live = space.least_live_bytes();
        // What is thought to be dead needs no count, be it much.
        let is_uncertain = space.held_bytes().saturating_sub(least_live) > may_be / UNCERTAIN_PART
            && live.saturating_sub(least_live) > may_be / UNCERTAIN_PART_MIN;
        let now = self.world.clock.now();
        let free = space
            .of_chunks
            .iter()
            .filter(|of| !of.chunk.is_damaged() && !of.chunk.is_occupied() && !of.chunk.is_backing_off(now));
        let mut chores: VecDeque<_> = VecDeque::new();
        let mut candidates = Vec::new();
        let is_unfree = |of: &ChunkSpace| of.chunk.is_occupied() || of.chunk.is_backing_off(now);
        let has_unfree = space.of_chunks.iter().any(|of| !of.chunk.is_damaged() && is_unfree(of));
        let (mut waits, mut has_kept) = (is_short || has_unfree, false);
        let oldest_view = self.versions.open_views().first().map_or(0, |view| view.to_u64());
        for of in free {
            let bytes_min = self.worthwhile_bytes();
            // What an earlier run left can wait until the drive has time.
            let is_its_turn = || is_at_rest || of.chunk.ledger.has_changed();
            let is_count_due = || {
                let is_due = || of.chunk.ledger.is_count_due(bytes_min, is_at_rest);
                is_uncertain && of.held > bytes_min && is_its_turn() && is_due()
            };
            match &of.munk {
                Some(munk) if is_copy_worth_it(munk, munk.waste, is_at_rest, bytes_min) => {
                    chores.push_back((Chore::Copy, Arc::downgrade(&of.chunk)));
                }
                None if is_count_due() => chores.push_back((Chore::Count, Arc::downgrade(&of.chunk))),
                Some(munk) => waits |= is_copy_worth_it(munk, munk.dead, is_at_rest, bytes_min),
                None => {}
            }
            // What the last rewrite had to keep for a view, another would keep as well.
            let is_kept = of.chunk.ledger.kept_for() != 0 && of.chunk.ledger.kept_for() == oldest_view;
            let is_worth_it = of.can_shrink && of.dead() > (of.live / DEAD_PART_MIN).max(bytes_min);
            if is_worth_it && !is_kept {
                candidates.push(of);
            }
            has_kept |= is_worth_it && is_kept;
        }
        let chores_max = CHORES_MAX.max(space.of_chunks.len() / CHUNKS_A_CHORE);
        chores.truncate(chores_max);
        candidates.sort_by_key(|of| std::cmp::Reverse(of.benefit()));
        let mut excess = dead.saturating_sub(may_be);
        for of in candidates.into_iter().take(chores_max) {
            // What was replaced is to go first.
            if excess == 0 || has_replaced_much {
                break;
            }
            excess = excess.saturating_sub(of.dead());
            chores.push_back((Chore::Rewrite, Arc::downgrade(&of.chunk)));
        }
        Found { chores, waits: waits || (has_kept && excess > 0) }
    }

    /// False if it was not worth it after all.
    fn carry_out(&self, chore: Chore, chunk: &Occupied) -> Result<bool> {
        if chunk.gate().is_retired || chunk.is_damaged() {
            return Ok(false);
        }
        let done = match chore {
            Chore::Count => self.count_live(chunk).map(|()| true),
            Chore::Copy => self.copy_munk(chunk),
            Chore::Rewrite => self.rewrite_for_space(chunk),
        };
        done.inspect_err(|error| chunk.note(error))
    }

    fn rewrite_for_space(&self, chunk: &Occupied) -> Result<bool> {
        let state = chunk.state(&pin()).clone();
        let bytes = state.funk.log_bytes() + state.funk.table_bytes();
        if state.munk.is_none() && chunk.ledger.is_doubtful(bytes) {
            let expected = chunk.ledger.live_bytes().unwrap_or(bytes);
            self.count_live(chunk)?;
            let counted = chunk.ledger.live_bytes().unwrap_or(bytes);
            // It was chosen for what it was thought to give back; if that is less by much, others come first.
            if counted > expected.max(bytes / 2) + expected / 4 {
                return Ok(true);
            }
        }
        let is_done = self.rewrite_with_room(chunk, super::funk::Aim::Space)?;
        if is_done {
            self.counters.space_rewrites.add(1);
        }
        Ok(is_done)
    }

    /// Counts a cold chunk's live bytes from samples of its logs. Indexes that were read only for that are
    /// given back.
    fn count_live(&self, chunk: &Occupied) -> Result<()> {
        let state = chunk.state(&pin()).clone();
        if state.munk.is_some() {
            return Ok(());
        }
        let unread: Vec<_> = state.funk.logs_newest_first().filter(|log| !log.has_index()).cloned().collect();
        let counted = self.count_of(chunk, &state.funk);
        unread.iter().for_each(|log| log.forget(true));
        chunk.ledger.enter(counted?);
        Ok(())
    }

    fn count_of(&self, chunk: &Chunk, funk: &Funk) -> Result<Count> {
        let count = chunk.ledger.begin_count();
        let wanted = |records| if chunk.ledger.has_few_long_rows(records) { SAMPLES_OF_FEW } else { SAMPLES };
        let samples = self.samples(chunk, funk, wanted)?;
        let tombstones = funk.tombstones(&self.files, &self.versions)?;
        let is_hidden = |key: &[u8], version: Version| tombstones.iter().any(|t| t.delete(key, version));
        let (mut needed, mut squares) = (0, 0);
        for sample in &samples {
            if sample.is_needed && !is_hidden(&sample.key, sample.version) {
                needed += sample.bytes;
                squares += (sample.bytes as f64 / sample.records) as u128 * u128::from(sample.bytes);
            }
        }
        let mut live_bytes = needed;
        for part in &funk.parts {
            let PartFile::Table(table) = &part.file else { continue };
            let table = table.table(&self.files)?;
            let mut killed = 0.0;
            for sample in samples.iter().filter(|sample| sample.is_newest) {
                killed += sample.records * table.newest_bytes(&sample.key)? as f64;
            }
            let mut wiped = 0;
            for tombstones in &tombstones {
                tombstones.for_each_piece(|piece| {
                    wiped += table.approximate_bytes_in(&piece.intersection(&chunk.range));
                });
            }
            let newest = part.share_bytes * table.sampled_newest_permille(SAMPLED_ROWS)? / 1000;
            let left = newest.saturating_sub(killed as u64).saturating_sub(wiped);
            live_bytes += left;
            squares += u128::from(left) * u128::from(table.weighted_row_bytes(self.config.block_bytes));
        }
        let row_bytes = squares.checked_div(u128::from(live_bytes)).unwrap_or(0) as u64;
        Ok(Count { live_bytes, row_bytes: Some(row_bytes), ..count })
    }
}

/// Bytes of the row that holds an average byte of a run.
fn weighted_row_bytes(run: RunReader<'_>) -> u64 {
    let bytes = (0..run.run().len()).map(|at| bytes_of(run.entry_at(at)) as u128);
    let (bytes, squares) = bytes.fold((0, 0), |(sum, squares), bytes| (sum + bytes, squares + bytes * bytes));
    squares.checked_div(bytes).unwrap_or(0) as u64
}

/// Whether a copy of a munk gives back enough, if it leaves out this many bytes.
fn is_copy_worth_it(munk: &MunkSpace, waste: usize, is_at_rest: bool, bytes_min: u64) -> bool {
    let part = if is_at_rest { MUNK_WASTE_PART_AT_REST } else { MUNK_WASTE_PART };
    waste > munk.entries / part && waste as u64 > bytes_min
}
