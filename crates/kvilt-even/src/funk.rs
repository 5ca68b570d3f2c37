//! `Funk`: a chunk's file form (EvenDB §2.2, §3.1): tables and logs.
//!
//! The paper's funk is one table and one log. Ours is a list of *parts*, oldest first, each a table or a log
//! that takes no more records, and at most one log that does:
//!
//! ```text
//!   oldest ─────────────────────────────────▶ newest
//!   [table]  [closed log]  [closed log]        log ◀── puts
//! ```
//!
//! Closed logs come from a split (both halves go on reading the parent's files, each its own range, so a
//! split writes no rows), from a rewrite in progress (puts are diverted to a new log), and from earlier
//! epochs. A rewrite turns all parts into one table. A funk value is immutable except for what its log takes
//! in.
//!
//! * **E-4** Every entry in a part is older than any entry of the same key in a newer part or in the log.

pub(crate) mod ascent;
pub(crate) mod log;
pub(crate) mod log_index;
pub(crate) mod log_order;
mod log_rows;
mod row;
pub(crate) mod table_file;
pub(crate) mod unsynced;

use std::{
    cell::Cell,
    ops::Range,
    sync::{Arc, atomic::AtomicU64},
};

use kvilt_base::{
    Direction, EntryRef, KeyRange, Kind, LargeValues, Merge, Result, Source, Version, planted, steps::steps,
};
use kvilt_format::log::HEADER_BYTES;
use kvilt_sync::{published::pin, versions::Versions};

use self::{
    ascent::AscentSource,
    log::ChunkLog,
    log_order::{LogOrder, OrderSource, Pieces, Wanted},
    log_rows::LogRows,
    table_file::TableFile,
};
use crate::{files::Files, key_hash::key_hash};
use kvilt_sync::tombstones::{Hidden, Tombstones};

/// Of a log of which a chunk has less than this part, a rewrite reads only that.
const SHARE_READ_WHOLE: u64 = 4;

/// The orders of a chunk's logs take this part of the budget at most, unless they are there already.
const ORDERS_PART: u64 = 8;

/// Bytes of a sorted file that a rewrite asks the system for before it reads them, at most, while the drive
/// is waited for.
const REWRITE_AHEAD_BYTES_MAX: usize = 8 << 20;

/// What is made instead of orders that would take more takes this part, all logs together.
const PIECES_PART: u64 = 16;

/// One file of a funk that takes no more entries.
#[derive(Clone)]
pub(crate) enum PartFile {
    /// A sorted table.
    Table(Arc<TableFile>),
    /// A log, closed.
    Log(Arc<ChunkLog>),
}

/// A file, and how many of its bytes are thought to be this chunk's: a file may be shared after splits.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) file: PartFile,
    pub(crate) share_bytes: u64,
}

impl Part {
    /// Whether a key of `range` may be in it.
    pub(crate) fn may_touch(&self, range: &KeyRange) -> bool {
        match &self.file {
            PartFile::Table(table) => table.may_touch(range),
            PartFile::Log(log) => log.may_touch(range),
        }
    }

    /// The file's length, in bytes.
    pub(crate) fn file_len(&self) -> u64 {
        match &self.file {
            PartFile::Table(table) => table.len(),
            PartFile::Log(log) => log.len(),
        }
    }

    /// The file's number.
    pub(crate) fn number(&self) -> u64 {
        match &self.file {
            PartFile::Table(table) => table.number(),
            PartFile::Log(log) => log.number(),
        }
    }
}

/// A chunk's files. Cheap to clone: they are shared.
#[derive(Clone, Default)]
pub(crate) struct Funk {
    /// Oldest first.
    pub(crate) parts: Vec<Part>,
    /// Takes new entries; none until the first put of this run.
    pub(crate) log: Option<Arc<ChunkLog>>,
}

/// Where a get was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a log.
    Log,
    /// In a table.
    Table,
    /// Nowhere: the key is not there.
    Nowhere,
}

/// What a lookup in a funk came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Whether the key has a value; it was given to the caller.
    pub(crate) is_found: bool,
    /// Who knew.
    pub(crate) place: Place,
    /// Whether an entry of a batch in flight was passed over: the answer may be outdated at once.
    pub(crate) passed_batch: bool,
}

impl Funk {
    /// All logs, newest first.
    pub(crate) fn logs_newest_first(&self) -> impl Iterator<Item = &Arc<ChunkLog>> {
        let closed = self.parts.iter().rev().filter_map(|part| match &part.file {
            PartFile::Log(log) => Some(log),
            PartFile::Table(_) => None,
        });
        self.log.iter().chain(closed)
    }

    /// The funk with its log closed, so that the next put begins another. The caller holds the gate and
    /// publishes what it gets.
    pub(crate) fn closed(&self) -> Funk {
        let mut parts = self.parts.clone();
        // An empty log is dropped: it has no file yet.
        if let Some(log) = self.log.as_ref().filter(|log| !log.is_empty()) {
            log.close();
            parts.push(Part { file: PartFile::Log(Arc::clone(log)), share_bytes: log.len() });
        }
        Funk { parts, log: None }
    }

    /// Bytes of tables that are this chunk's.
    pub(crate) fn table_bytes(&self) -> u64 {
        let tables = self.parts.iter().filter(|p| matches!(p.file, PartFile::Table(_)));
        tables.map(|p| p.share_bytes).sum()
    }

    /// Bytes of logs that are this chunk's, the open one included.
    pub(crate) fn log_bytes(&self) -> u64 {
        let closed = self.parts.iter().filter(|p| matches!(p.file, PartFile::Log(_)));
        closed.map(|p| p.share_bytes).sum::<u64>() + self.log.as_ref().map_or(0, |log| log.len())
    }

    /// Of these, what a scan must put in order first.
    pub(crate) fn unordered_bytes(&self) -> u64 {
        let closed = self.parts.iter().filter_map(|part| match &part.file {
            PartFile::Log(log) => Some(log.unordered_bytes().min(part.share_bytes)),
            PartFile::Table(_) => None,
        });
        closed.sum::<u64>() + self.log.as_ref().map_or(0, |log| log.unordered_bytes())
    }

    /// Finds the newest entry of `key` at `view` and gives its value to `found`.
    pub(crate) fn find(
        &self,
        key: &[u8],
        view: Version,
        files: &Files,
        versions: &Versions,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<Answer> {
        let mut lookup = Lookup { key, view, files, versions, hiders: Vec::new(), passed_batch: false };
        let mut newest_first = self.newest_first();
        while let Some(part) = planted!(OldestFirst, newest_first.next() => newest_first.next_back()) {
            steps(1);
            let (outcome, place) = match part {
                PartRef::Log(log) => (lookup.in_log(log, found)?, Place::Log),
                PartRef::Table(table) => (lookup.in_table(table, found)?, Place::Table),
            };
            if let Some(is_found) = outcome {
                return Ok(Answer { is_found, place, passed_batch: lookup.passed_batch });
            }
        }
        Ok(Answer { is_found: false, place: Place::Nowhere, passed_batch: lookup.passed_batch })
    }

    /// Has the system fetch what [`Funk::find`] would read of files first.
    pub(crate) fn will_find(&self, key: &[u8], view: Version, files: &Files) -> Result<()> {
        for part in self.newest_first() {
            match part {
                PartRef::Log(log) => {
                    let newest = log.index(files)?.index.offsets(&pin(), key_hash(key)).next();
                    if let Some(offset) = newest {
                        return log.will_read(files, log.likely_place(offset));
                    }
                }
                PartRef::Table(table) => {
                    if table.table(files)?.will_get(key, view) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn newest_first(&self) -> impl DoubleEndedIterator<Item = PartRef<'_>> {
        self.log.iter().map(PartRef::Log).chain(self.parts.iter().rev().map(|part| match &part.file {
            PartFile::Table(table) => PartRef::Table(table),
            PartFile::Log(log) => PartRef::Log(log),
        }))
    }

    /// Gives back what was built to read the logs of a chunk that has a munk. The open log keeps its index:
    /// the chunk may have lost its munk meanwhile, and then puts go on to fill it.
    pub(crate) fn forget_indexes(&self) {
        for part in &self.parts {
            if let PartFile::Log(log) = &part.file {
                log.forget(true);
            }
        }
        if let Some(log) = &self.log {
            log.forget(false);
        }
    }

    /// So many seconds have passed.
    pub(crate) fn age(&self, files: &Files, seconds: u32) {
        self.logs_newest_first().for_each(|log| log.age(files, seconds));
    }

    /// The range tombstones in its logs: of each that has any.
    pub(crate) fn tombstones(&self, files: &Files, versions: &Versions) -> Result<Vec<Arc<Tombstones>>> {
        let mut all = Vec::new();
        for log in self.logs_newest_first() {
            let tombstones = log.all_tombstones(files, versions)?;
            all.extend(Some(tombstones).filter(|tombstones| !tombstones.is_empty()));
        }
        Ok(all)
    }

    /// All entries of `range`, merged, in `direction`. `log_upto` bounds what is read of the open log.
    pub(crate) fn entries<'f>(
        &self,
        range: &KeyRange,
        direction: Direction,
        files: &'f Files,
        purpose: Purpose<'f>,
    ) -> Result<Merge<'f>> {
        let bytes = self.log_bytes() + self.table_bytes();
        let large_values = self.large_values(purpose);
        let orders_left = Cell::new(files.budget.bytes_max() / ORDERS_PART);
        let piece_bytes = files.budget.bytes_max() / PIECES_PART / (self.parts.len() as u64 + 1);
        let reading =
            Reading { range, direction, files, purpose, large_values, bytes, orders_left, piece_bytes };
        let mut sources: Vec<Box<dyn Source + 'f>> = Vec::with_capacity(self.parts.len() + 1);
        if let Some(log) = &self.log {
            let upto = match purpose {
                Purpose::Scan { .. } => log.len(),
                Purpose::Rewrite { log_upto, .. } => log_upto,
            };
            reading.log(log, upto, upto, &mut sources)?;
        }
        for part in self.parts.iter().rev() {
            match &part.file {
                PartFile::Table(table) => {
                    let source = table.table(files)?.source_with(range, direction, reading.large_values)?;
                    if reading.asks_ahead() {
                        source.will_read(REWRITE_AHEAD_BYTES_MAX);
                    }
                    sources.push(Box::new(source));
                }
                PartFile::Log(log) => reading.log(log, log.len(), part.share_bytes, &mut sources)?,
            }
        }
        Merge::new(sources, direction)
    }

    /// What is done with large values: one that lies alone is read at once, which is to read it once.
    fn large_values(&self, purpose: Purpose<'_>) -> LargeValues {
        match purpose {
            Purpose::Rewrite { streams: true, .. } => LargeValues::Streamed,
            _ if self.parts.len() + usize::from(self.log.is_some()) < 2 => LargeValues::AtOnce,
            Purpose::Rewrite { .. } | Purpose::Scan { .. } => LargeValues::Fetched,
        }
    }
}

/// What entries are read for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose<'p> {
    /// A few rows, at this view: of logs that are not in order, records are read as they are reached, and
    /// only those the view may see.
    Scan {
        /// What the scan sees.
        view: Version,
        /// How many rows it takes at most, if that is known.
        rows: Option<u64>,
        /// What reading costs for want of order is added to this, in bytes, if anybody counts it.
        cost_bytes: Option<&'p AtomicU64>,
    },
    /// All rows: logs that are mostly the chunk's are read whole, the open one up to this length.
    Rewrite {
        /// Bytes of the open log.
        log_upto: u64,
        /// Whether large values are [streamed](Source::streamed). Then it is to take all rows or none.
        streams: bool,
    },
}

/// What is read of each part, and how.
struct Reading<'r, 'f> {
    range: &'r KeyRange,
    direction: Direction,
    files: &'f Files,
    purpose: Purpose<'f>,
    large_values: LargeValues,
    /// Bytes of all parts that are the chunk's.
    bytes: u64,
    /// Bytes that orders may take that are yet to come.
    orders_left: Cell<u64>,
    /// Bytes of a piece of a log whose order would take more than that.
    piece_bytes: u64,
}

impl<'f> Reading<'_, 'f> {
    /// Adds the sources of the first `upto` bytes of a log, newest first. About `share_bytes` of them are
    /// this chunk's.
    fn log(
        &self,
        log: &Arc<ChunkLog>,
        upto: u64,
        share_bytes: u64,
        sources: &mut Vec<Box<dyn Source + 'f>>,
    ) -> Result<()> {
        if matches!(self.purpose, Purpose::Scan { .. }) && !log.may_touch(self.range) {
            return Ok(());
        }
        // What is behind the ascent is newer.
        let ascent_end = log.with_ascent(|ascent| ascent.end(upto));
        if ascent_end < upto {
            self.behind_ascent(log, ascent_end..upto, share_bytes, sources)?;
        }
        if ascent_end > HEADER_BYTES as u64 {
            let Reading { range, direction, files, .. } = *self;
            let (log, rows) = (Arc::clone(log), self.rows_of(share_bytes));
            let wanted = ascent::Wanted { rows, large_values: self.large_values };
            let source = AscentSource::new(log, files, range, direction, ascent_end, wanted)?;
            if self.asks_ahead() {
                source.will_read(REWRITE_AHEAD_BYTES_MAX as u64)?;
            }
            sources.push(Box::new(source));
        }
        Ok(())
    }

    /// Whether all of a sorted file is asked for at once: a rewrite would wait for each of its reads.
    fn asks_ahead(&self) -> bool {
        matches!(self.purpose, Purpose::Rewrite { .. }) && self.files.reads.wait_for_the_drive()
    }

    /// Adds the sources of the part of a log whose records lie in the order of time.
    fn behind_ascent(
        &self,
        log: &Arc<ChunkLog>,
        place: Range<u64>,
        share_bytes: u64,
        sources: &mut Vec<Box<dyn Source + 'f>>,
    ) -> Result<()> {
        let Reading { range, files, .. } = *self;
        let streams = self.large_values == LargeValues::Streamed;
        let rows = match self.purpose {
            Purpose::Scan { view, cost_bytes, .. } => {
                let rows = self.rows_of(share_bytes);
                let wanted = Wanted { view, every_version: false, streams: false, rows, cost_bytes };
                return self.sorted(log, place, wanted, sources);
            }
            // All of them together might take any memory, and to read each by itself costs little where they
            // are large.
            Purpose::Rewrite { .. } if log.has_large_records(files) => {
                let view = Version::NEWEST;
                let wanted = Wanted { view, every_version: true, streams, rows: None, cost_bytes: None };
                return self.sorted(log, place, wanted, sources);
            }
            Purpose::Rewrite { .. } if share_bytes < place.end / SHARE_READ_WHOLE => {
                // Once sorted, the log serves all who share it.
                let orders = log.orders(files, place, (u64::MAX, None))?.expect("there is no limit");
                LogRows::read_share(log, files, &orders, range, (share_bytes, streams))?
            }
            Purpose::Rewrite { .. } => {
                let rows = LogRows::read(log, files, place.clone(), range, streams)?;
                // A log that is about to be replaced pushes no page out of the page cache that somebody
                // reads; one that siblings share is read by their gets and scans.
                let is_own = share_bytes >= place.end;
                if is_own && !rows.streams() && files.reads.wait_for_the_drive() {
                    log.will_not_read(files, place)?;
                }
                rows
            }
        };
        sources.push(Box::new(rows));
        Ok(())
    }

    /// How many rows will come of a part that has so many of the chunk's bytes, at most, if that is known.
    fn rows_of(&self, share_bytes: u64) -> Option<u64> {
        match self.purpose {
            Purpose::Rewrite { .. } => Some(u64::MAX),
            Purpose::Scan { rows, .. } => rows.map(|rows| {
                let part = u128::from(rows) * u128::from(share_bytes) / u128::from(self.bytes.max(1));
                u64::try_from(part + 1).unwrap_or(u64::MAX).min(rows)
            }),
        }
    }

    /// The orders of a part of a log, unless they take more than what is left for such.
    fn orders(
        &self,
        log: &ChunkLog,
        place: Range<u64>,
        wanted: Wanted<'f>,
    ) -> Result<Option<Vec<Arc<LogOrder>>>> {
        // A rewrite has all of the chunk in memory, but for large values.
        let left = if wanted.every_version { u64::MAX } else { self.orders_left.get() };
        let orders = log.orders(self.files, place, (left, wanted.cost_bytes))?;
        let bytes: usize = orders.iter().flatten().map(|order| order.memory_bytes()).sum();
        self.orders_left.set(self.orders_left.get().saturating_sub(bytes as u64));
        Ok(orders)
    }

    /// Adds the sources of a part of a log of which records are read as a scan reaches them.
    fn sorted(
        &self,
        log: &Arc<ChunkLog>,
        place: Range<u64>,
        wanted: Wanted<'f>,
        sources: &mut Vec<Box<dyn Source + 'f>>,
    ) -> Result<()> {
        let Reading { range, direction, files, .. } = *self;
        let Some(orders) = self.orders(log, place.clone(), wanted)? else {
            let of = (Arc::clone(log), place);
            let pieces = Pieces::new(of, files, range, direction, (wanted, self.piece_bytes))?;
            if !pieces.is_empty() {
                sources.push(Box::new(pieces));
            }
            return Ok(());
        };
        for order in orders {
            let of = (order, Arc::clone(log));
            let source = OrderSource::new(of, files, range, direction, wanted);
            // Of many logs most have nothing of what a short scan wants.
            if !source.is_empty() {
                sources.push(Box::new(source));
            }
        }
        Ok(())
    }
}

enum PartRef<'a> {
    Table(&'a TableFile),
    Log(&'a Arc<ChunkLog>),
}

/// One get on its way from the newest part to the oldest.
struct Lookup<'a> {
    key: &'a [u8],
    view: Version,
    files: &'a Files,
    versions: &'a Versions,
    /// Range tombstones of the logs passed so far.
    hiders: Vec<Arc<Tombstones>>,
    passed_batch: bool,
}

impl Lookup<'_> {
    /// Whether the key has a value, if this log knows.
    fn in_log(&mut self, log: &ChunkLog, found: &mut dyn FnMut(&[u8])) -> Result<Option<bool>> {
        let index = log.index(self.files)?;
        let tombstones = log.tombstones(self.versions);
        self.hiders.extend(Some(tombstones).filter(|tombstones| !tombstones.is_empty()));
        // Not in the head of the loop: the pin would last as long, over reads of files and a user's code.
        let offsets = index.index.offsets(&pin(), key_hash(self.key));
        for offset in offsets {
            let outcome =
                log.record_at(self.files, offset, |entry, batch| self.judge(&entry, batch, found))?;
            if outcome.is_some() {
                return Ok(outcome);
            }
        }
        Ok(None)
    }

    fn in_table(&mut self, table: &TableFile, found: &mut dyn FnMut(&[u8])) -> Result<Option<bool>> {
        let mut outcome = None;
        table.table(self.files)?.get(self.key, self.view, |version, kind, value| {
            outcome = self.judge(&EntryRef { key: self.key, version, kind, value }, 0, found);
        })?;
        Ok(outcome)
    }

    /// Whether `entry` settles the lookup, and how.
    fn judge(&mut self, entry: &EntryRef<'_>, batch: u64, found: &mut dyn FnMut(&[u8])) -> Option<bool> {
        if entry.key != self.key || entry.version > self.view {
            return None;
        }
        if self.versions.is_in_flight(batch) {
            self.passed_batch = true;
            return None;
        }
        let mut is_deleted = entry.kind != Kind::Put;
        for hiders in &self.hiders {
            match hiders.hide(self.key, entry.version, self.view, self.versions) {
                Hidden::Yes => is_deleted = true,
                Hidden::Soon => self.passed_batch = true,
                Hidden::No => {}
            }
        }
        if !is_deleted {
            found(entry.value);
        }
        Some(!is_deleted)
    }
}
