//! Funk rebalance (EvenDB §3.4): all parts of a funk become one sorted table; a large cold chunk is split on
//! the way.
//!
//! 1. Under the gate, the log is closed; puts go to a new one (they are *diverted*).
//! 2. What was closed is merged, from the munk if there is one, else from the files, into new tables, which
//!    are synced. Puts, gets and scans go on.
//! 3. Under the gate, the tables take the place of what they were made of, and the diverted log stays.
//!
//! The flip becomes durable with the next checkpoint; until then the manifest names the old files, and they
//! stay.

use std::sync::{Arc, atomic::Ordering};

use kvilt_base::{Direction, EntryRef, FileName, Kind, Merge, Result, Streamed};
use kvilt_format::{
    names::TABLE,
    table::{Compression, TableOptions, TableWriter},
};
use kvilt_sync::published::{pin, settle};

use super::munk::FrozenMunk;
use crate::{
    chunk::{ChunkState, Occupied, ledger::Count},
    files::Hold,
    funk::{Funk, Part, PartFile, Purpose, table_file::TableFile},
    munk::{entries_of, run::bytes_of},
    retain::{KeepStreamed, Retain},
    shared_key::short_bound,
    store::Store,
};

/// What a rewrite is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Shorter logs, order, fewer files: if it is enough to divide the chunk, no row is written.
    Any,
    /// Dead bytes are to go, and the files that hold them.
    Space,
}

/// What a rewrite kept, and how much of that is live.
#[derive(Default)]
struct Kept {
    rows: u64,
    bytes: u64,
    live_bytes: u64,
    /// Of live rows, the sum of the squares of their bytes.
    squares: u128,
    has_older: bool,
    last_key: Vec<u8>,
}

impl Kept {
    fn add(&mut self, entry: EntryRef<'_>, streamed: Option<&dyn Streamed>) {
        let bytes = (bytes_of(entry) + streamed.map_or(0, Streamed::len)) as u64;
        self.bytes += bytes;
        if self.rows > 0 && self.last_key == entry.key {
            self.has_older = true;
            return;
        }
        self.rows += 1;
        entry.key.clone_into(&mut self.last_key);
        if entry.kind == Kind::Put {
            self.live_bytes += bytes;
            self.squares += u128::from(bytes) * u128::from(bytes);
        } else {
            self.has_older = true;
        }
    }

    /// With the files it was written to, which are of this length.
    fn count(&self, held: u64, begun: Count) -> Count {
        let live = u128::from(held) * u128::from(self.live_bytes);
        let live_bytes = live.checked_div(u128::from(self.bytes)).unwrap_or(0) as u64;
        let row_bytes = self.squares.checked_div(u128::from(self.live_bytes)).unwrap_or(0) as u64;
        Count { live_bytes, row_bytes: Some(row_bytes), ..begun }
    }
}

/// A chunk's content at one moment, in files and maybe in memory.
pub(super) struct FrozenChunk {
    /// Parts only; no open log.
    pub(super) funk: Funk,
    pub(super) munk: Option<FrozenMunk>,
}

impl Store {
    /// Rewrites the chunk's funk, unless it is enough to divide it.
    pub(super) fn rewrite_funk(&self, chunk: &Occupied, aim: Aim) -> Result<()> {
        // Those that come while it is being rewritten are not in it. Relaxed: a statistic.
        let deletes = chunk.heat.deletes.load(Ordering::Relaxed);
        let count = chunk.ledger.begin_count();
        let frozen = self.freeze_chunk(chunk);
        self.write_large_buffers(&frozen.funk)?;
        if aim == Aim::Any && self.divide(chunk, &frozen, count)? {
            return Ok(());
        }
        let bytes = frozen.funk.table_bytes() + frozen.funk.log_bytes();
        // With a munk, sizes are the munk's affair: it splits in memory.
        let pieces =
            if frozen.munk.is_some() { 1 } else { (bytes / self.chunk_bytes_rebalance(chunk).max(1)).max(1) };
        let mut tables = Tables::new(self, bytes / pieces + 1, pieces > 1);
        let views = self.kept_views();
        let mut kept = Kept::default();
        self.for_each_retained(&frozen, &chunk.range, &mut |entry, streamed| {
            kept.add(entry, streamed);
            tables.add(entry, streamed)
        })?;
        // The run is read no more: rows of it may be replaced again while tables are synced.
        drop(frozen);
        let tables = tables.finish()?;
        self.counters.funk_rebalances.add(1);
        // Relaxed: a statistic.
        chunk.heat.unordered_cost_bytes.store(0, Ordering::Relaxed);
        chunk.heat.is_index_unwanted.store(false, Ordering::Relaxed);
        chunk.heat.deletes.fetch_sub(deletes, Ordering::Relaxed);
        let held: u64 = tables.iter().map(|(_, part)| part.share_bytes).sum();
        chunk.ledger.learn_files(kept.bytes, held);
        chunk.ledger.enter(kept.count(held, count));
        let oldest = views.first().filter(|_| kept.has_older).map_or(0, |view| view.to_u64());
        chunk.ledger.keep_for(oldest);
        self.flip_funk(chunk, tables);
        self.sink_tails(chunk);
        #[cfg(feature = "mutants")]
        self.commit_rewrite_if_planted()?;
        Ok(())
    }

    /// A large record that is still in a buffer goes to the file first: it would be there twice while it is
    /// read.
    fn write_large_buffers(&self, funk: &Funk) -> Result<()> {
        for log in funk.logs_newest_first() {
            if log.buffered_bytes() > self.config.munk_put_bytes_max {
                log.write_out(&self.files)?;
                settle();
            }
        }
        Ok(())
    }

    /// Step 1: closes the log, and freezes the munk's tail, in one moment.
    pub(super) fn freeze_chunk(&self, chunk: &Occupied) -> FrozenChunk {
        let pin = pin();
        let gate = chunk.gate();
        let state = chunk.state(&pin);
        let funk = Arc::new(state.funk.closed());
        let munk = state.munk.as_ref().map(|munk| {
            let is_quiet = munk.tail().is_empty();
            if is_quiet { Arc::clone(munk) } else { self.with_fresh_tail(munk, 0) }
        });
        let frozen = FrozenChunk { funk: Funk::clone(&funk), munk: munk.as_deref().map(FrozenMunk::of) };
        let mut structure = self.structure.lock();
        chunk.replace_state(&gate, ChunkState { munk, funk, cold_id: state.cold_id });
        self.mark_changed(&mut structure, chunk);
        frozen
    }

    /// Step 2: every entry of a frozen chunk that some reader needs, in order.
    pub(super) fn for_each_retained(
        &self,
        frozen: &FrozenChunk,
        range: &kvilt_base::KeyRange,
        keep: &mut KeepStreamed<'_>,
    ) -> Result<()> {
        // Views opened from here on are above everything frozen and see the newest of it, which is kept.
        let views = self.kept_views();
        if let Some(munk) = &frozen.munk {
            let mut entries = entries_of(munk.run(), &munk.tails, range, Direction::Forward);
            Retain::new(&views, munk.over()).run_streamed(&mut entries, keep)?;
            return Ok(());
        }
        let tombstones = frozen.funk.tombstones(&self.files, &self.versions)?;
        // Blocks that are packed are made in memory.
        let streams = self.config.compression == Compression::None;
        let purpose = Purpose::Rewrite { log_upto: 0, streams };
        let mut entries: Merge<'_> = frozen.funk.entries(range, Direction::Forward, &self.files, purpose)?;
        Retain::new(&views, &tombstones).run_streamed(&mut entries, keep)?;
        Ok(())
    }

    /// Step 3.
    fn flip_funk(&self, chunk: &Occupied, tables: Vec<(Vec<u8>, Part)>) {
        let pin = pin();
        let mut gate = chunk.gate();
        let state = chunk.state(&pin);
        if tables.len() > 1 {
            let children = self.cold_children(chunk, tables, state.funk.log.clone());
            self.counters.splits.add(children.len() as u64 - 1);
            self.succeed(&[chunk], &mut [&mut gate], &children);
            return;
        }
        let parts = tables.into_iter().map(|(_, part)| part).collect();
        let funk = Arc::new(Funk { parts, log: state.funk.log.clone() });
        let mut structure = self.structure.lock();
        chunk.replace_state(&gate, ChunkState { funk, ..state.clone() });
        self.mark_changed(&mut structure, chunk);
    }
}

/// Writes entries into one table, or into several of about equal size.
pub(super) struct Tables<'s> {
    store: &'s Store,
    piece_bytes: u64,
    may_cut: bool,
    open: Option<OpenTable>,
    done: Vec<(Vec<u8>, Part)>,
    last_key: Vec<u8>,
}

struct OpenTable {
    number: u64,
    bound: Vec<u8>,
    writer: TableWriter,
    file: Arc<dyn kvilt_base::File>,
    hold: Hold,
}

impl<'s> Tables<'s> {
    /// Tables of about `piece_bytes`, more than one only if `may_cut`.
    pub(super) fn new(store: &'s Store, piece_bytes: u64, may_cut: bool) -> Self {
        Tables { store, piece_bytes, may_cut, open: None, done: Vec::new(), last_key: Vec::new() }
    }

    /// Adds an entry, whose value may be streamed.
    pub(super) fn add(&mut self, entry: EntryRef<'_>, streamed: Option<&dyn Streamed>) -> Result<()> {
        let is_full = self.open.as_ref().is_some_and(|open| open.writer.bytes_so_far() >= self.piece_bytes);
        if self.may_cut && is_full && entry.key != self.last_key {
            self.end_table()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(OpenTable::create(self.store, short_bound(&self.last_key, entry.key))?),
        };
        match streamed {
            Some(value) => open.writer.add_streamed(entry, value)?,
            None => open.writer.add(entry)?,
        }
        if self.may_cut {
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key);
        }
        Ok(())
    }

    /// The tables, each with a key that separates it from the one before; none if there were no entries.
    pub(super) fn finish(mut self) -> Result<Vec<(Vec<u8>, Part)>> {
        self.end_table()?;
        Ok(std::mem::take(&mut self.done))
    }

    fn end_table(&mut self) -> Result<()> {
        let Some(OpenTable { number, bound, writer, file, hold }) = self.open.take() else {
            return Ok(());
        };
        let summary = writer
            .finish()
            .inspect_err(|_| self.store.files.remove_unfinished(FileName::Of(TABLE, number)))?;
        self.store.counters.table_bytes_written.add(summary.len);
        let span = Some((summary.first_key, summary.last_key));
        let table = TableFile::new(&self.store.files, number, summary.len, span, hold);
        drop(self.store.files.change(FileName::Of(TABLE, number), summary.len));
        // Before any chunk has it: the checkpoint that names it syncs it.
        self.store.unsynced_tables.add(&table, file);
        self.done.push((bound, Part { file: PartFile::Table(table), share_bytes: summary.len }));
        Ok(())
    }
}

/// What was not finished gives its room back at once: on a full disk, nothing else would.
impl Drop for Tables<'_> {
    fn drop(&mut self) {
        let open = self.open.take().map(|open| open.number);
        let done = std::mem::take(&mut self.done).into_iter().map(|(_, part)| part.number());
        for number in done.chain(open) {
            self.store.files.remove_unfinished(FileName::Of(TABLE, number));
        }
    }
}

impl OpenTable {
    fn create(store: &Store, bound: &[u8]) -> Result<Self> {
        let number = store.files.next_number();
        let hold = Hold::default();
        let file = store.files.create(FileName::Of(TABLE, number), &hold)?;
        let options = TableOptions {
            block_bytes: store.config.block_bytes,
            compression: store.config.compression,
            ..TableOptions::default()
        };
        let writer = TableWriter::new(Arc::clone(&file), store.files.identity(number), options);
        Ok(OpenTable { number, bound: bound.to_vec(), writer, file, hold })
    }
}
