//! A table's entries in a range, in either direction.
//!
//! Where it stands: scans and rebalances merge several of these. It owns its table, so that it outlives any
//! lookup. Always true: entries come in the order of [`Source`]; after an error it stands at its end, so that
//! nothing is skipped silently; blocks are fetched several at a time, more the longer a scan runs, and never
//! beyond its range.

use std::{ops::Range, sync::Arc};

use kvilt_base::{
    Direction, EntryRef, KeyRange, Kind, Large, LargeValues, Result, Source, Streamed, Version,
};

use super::{
    block::{Cursor, Layout, RESTART_INTERVAL_MAX},
    large::LargeBlock,
    reader::Table,
    stored::Opened,
};
use crate::coding::Malformed;

/// A range whose blocks fit in this many bytes is fetched at once; else the first fetch is one block …
const FETCH_BYTES_FIRST: usize = 16 << 10;
/// … and later ones double up to this.
pub(super) const FETCH_BYTES_MAX: usize = 256 << 10;

impl Table {
    /// The entries of `range`, all versions, in `direction`. Reads the first block.
    ///
    /// Errors, here and in [`Source::advance`]: `Corrupted`, `Io`.
    pub fn source(self: &Arc<Self>, range: &KeyRange, direction: Direction) -> Result<TableSource> {
        self.source_with(range, direction, LargeValues::AtOnce)
    }

    /// The same, that does this with large values: forward, as backward they are read at once.
    pub fn source_with(
        self: &Arc<Self>,
        range: &KeyRange,
        direction: Direction,
        large_values: LargeValues,
    ) -> Result<TableSource> {
        let mut source = TableSource {
            table: self.clone(),
            large_values,
            large: None,
            direction,
            start: range.start.clone(),
            end: range.end.clone(),
            blocks: 0..0,
            fetched: 0..0,
            fetch_bytes: 0,
            stored: Large::default(),
            plain: Vec::new(),
            block: 0,
            plain_at: Place::Unpacked,
            layout: Layout::default(),
            cursor: Cursor::new(),
            run: Run::default(),
            has_ended: true,
        };
        let first = self.index().find(&range.start, Version::NEWEST);
        if range.is_empty() || first == self.index().len() {
            return Ok(source);
        }
        // The block with the first entry at or behind the range's end may begin with entries inside.
        let last = match &range.end {
            Some(end) => self.index().find(end, Version::NEWEST).min(self.index().len() - 1),
            None => self.index().len() - 1,
        };
        source.blocks = first..last + 1;
        source.has_ended = false;
        match direction {
            Direction::Forward => source.begin_forward()?,
            Direction::Backward => source.begin_backward()?,
        }
        Ok(source)
    }
}

/// Entries of a table. See the module.
#[derive(Debug)]
pub struct TableSource {
    table: Arc<Table>,
    large_values: LargeValues,
    /// The block it stands in, if that is large and its value was not read.
    large: Option<LargeBlock>,
    direction: Direction,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// The blocks that can hold entries of the range.
    blocks: Range<usize>,
    /// The blocks whose stored bytes are in `stored`.
    fetched: Range<usize>,
    /// How much the last fetch was allowed; zero before the first.
    fetch_bytes: usize,
    stored: Large,
    plain: Vec<u8>,
    /// The block it stands in, where its plain bytes are, and their layout.
    block: usize,
    plain_at: Place,
    layout: Layout,
    /// The entry it stands on, going forward.
    cursor: Cursor,
    /// The entries up to the one it stands on, going backward.
    run: Run,
    has_ended: bool,
}

#[derive(Debug)]
enum Place {
    Stored(Range<usize>),
    Unpacked,
}

/// The entries behind one restart point, decoded: the steps backward that the encoding does not allow.
#[derive(Debug, Default)]
struct Run {
    restart: usize,
    keys: Vec<u8>,
    entries: Vec<RunEntry>,
}

#[derive(Debug)]
struct RunEntry {
    key: Range<usize>,
    version: Version,
    kind: Kind,
    value: Range<usize>,
}

impl Source for TableSource {
    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        if self.has_ended {
            return None;
        }
        if let Some(large) = &self.large {
            return Some(large.entry());
        }
        let bytes = self.block_bytes();
        match self.direction {
            Direction::Forward => Some(EntryRef {
                key: &self.cursor.key,
                version: self.cursor.version,
                kind: self.cursor.kind,
                value: &bytes[self.cursor.value.clone()],
            }),
            Direction::Backward => self.run.entries.last().map(|entry| EntryRef {
                key: &self.run.keys[entry.key.clone()],
                version: entry.version,
                kind: entry.kind,
                value: &bytes[entry.value.clone()],
            }),
        }
    }

    #[inline]
    fn fetch(&mut self) -> Result<()> {
        if self.large.is_some() && self.large_values == LargeValues::Fetched {
            self.read_large()
        } else {
            Ok(())
        }
    }

    fn streamed(&self) -> Option<&dyn Streamed> {
        let large = self.large.as_ref().filter(|_| self.large_values == LargeValues::Streamed);
        large.map(|large| large as &dyn Streamed)
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        debug_assert!(!self.has_ended, "advance is not called at the end");
        let advanced = match self.direction {
            Direction::Forward => self.step_forward(),
            Direction::Backward => self.step_backward(),
        };
        if advanced.is_err() {
            self.has_ended = true;
        }
        advanced
    }
}

impl TableSource {
    /// Has the system fetch what is left to read, up to `bytes_max`.
    pub fn will_read(&self, bytes_max: usize) {
        let index = self.table.index();
        if !self.blocks.is_empty() {
            let bytes = index.stored_span(self.blocks.start, self.blocks.end);
            self.table.will_read(index.offset(self.blocks.start), bytes.min(bytes_max));
        }
    }

    fn begin_forward(&mut self) -> Result<()> {
        if self.begin_large(self.blocks.start)? {
            return Ok(());
        }
        self.load(self.blocks.start)?;
        let (layout, table, block) = (self.layout, self.table.clone(), self.block);
        let start = std::mem::take(&mut self.start);
        let bytes = block_bytes(&self.plain_at, &self.stored, &self.plain);
        let is_there = self
            .cursor
            .seek(&layout, bytes, &start, Version::NEWEST)
            .map_err(|what| table.corrupted(block, what))?;
        self.start = start;
        if is_there {
            self.end_behind_range();
            return Ok(());
        }
        // A separator may lie behind its block's last entry: then the next block begins the range.
        self.step_forward()
    }

    fn step_forward(&mut self) -> Result<()> {
        loop {
            // A large block has one entry.
            let is_there = self.large.take().is_none() && self.step_within_block()?;
            if is_there {
                self.end_behind_range();
                return Ok(());
            }
            if self.block + 1 == self.blocks.end {
                self.has_ended = true;
                self.forget_large();
                return Ok(());
            }
            if self.begin_large(self.block + 1)? {
                return Ok(());
            }
            self.load(self.block + 1)?;
            let bytes = block_bytes(&self.plain_at, &self.stored, &self.plain);
            self.cursor
                .rewind(&self.layout, bytes, 0)
                .map_err(|what| self.table.corrupted(self.block, what))?;
        }
    }

    fn step_within_block(&mut self) -> Result<bool> {
        let bytes = block_bytes(&self.plain_at, &self.stored, &self.plain);
        self.cursor.step(&self.layout, bytes).map_err(|what| self.table.corrupted(self.block, what))
    }

    /// Stands on the only entry of `block`, of which it reads no more than the beginning, if this one is
    /// large, and the entry is in the range. Whatever is wrong is found when the value is copied, or when the
    /// whole block is read instead.
    fn begin_large(&mut self, block: usize) -> Result<bool> {
        if self.direction == Direction::Backward || self.large_values == LargeValues::AtOnce {
            return Ok(false);
        }
        let is_in_range =
            |key: &[u8]| key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end);
        let large = LargeBlock::begin(&self.table, block);
        let Some(large) = large.filter(|large| is_in_range(large.entry().key)) else { return Ok(false) };
        self.forget_large();
        if self.large_values == LargeValues::Fetched {
            large.copy(&mut |_| Ok(()))?;
        }
        (self.block, self.large) = (block, Some(large));
        Ok(true)
    }

    /// Reads the value that was left in the file.
    #[cold]
    fn read_large(&mut self) -> Result<()> {
        let Some(large) = self.large.take() else { return Ok(()) };
        // Until it is there.
        self.has_ended = true;
        self.load(self.block)?;
        let bytes = block_bytes(&self.plain_at, &self.stored, &self.plain);
        self.cursor.rewind(&self.layout, bytes, 0).map_err(|what| self.table.corrupted(self.block, what))?;
        let is_there = self.step_within_block()?;
        if !is_there || self.cursor.key != large.entry().key || self.cursor.version != large.entry().version {
            return Err(self.table.corrupted(self.block, Malformed("a block changed while it was read")));
        }
        self.has_ended = false;
        Ok(())
    }

    /// Gives back the memory of a large block.
    fn forget_large(&mut self) {
        if self.stored.len() > self.table.streamed_bytes_min() {
            (self.stored, self.fetched) = (Large::default(), 0..0);
        }
    }

    /// Ends if the entry is behind the range, which only the last block can hold.
    fn end_behind_range(&mut self) {
        let is_last_block = self.block + 1 == self.blocks.end;
        if is_last_block && self.end.as_deref().is_some_and(|end| self.cursor.key.as_slice() >= end) {
            self.has_ended = true;
        }
    }

    fn begin_backward(&mut self) -> Result<()> {
        self.load(self.blocks.end - 1)?;
        self.load_run(self.layout.restart_count() - 1)?;
        loop {
            while let Some(last) = self.run.entries.last() {
                let key = &self.run.keys[last.key.clone()];
                if self.end.as_deref().is_none_or(|end| key < end) {
                    self.end_before_range();
                    return Ok(());
                }
                self.run.entries.pop();
            }
            if !self.load_run_before()? {
                return Ok(());
            }
        }
    }

    fn step_backward(&mut self) -> Result<()> {
        self.run.entries.pop();
        if self.run.entries.is_empty() && !self.load_run_before()? {
            return Ok(());
        }
        self.end_before_range();
        Ok(())
    }

    /// Ends if the entry is before the range, which only the first block can hold.
    fn end_before_range(&mut self) {
        if self.block != self.blocks.start {
            return;
        }
        let Some(last) = self.run.entries.last() else { return };
        if self.run.keys[last.key.clone()] < *self.start {
            self.has_ended = true;
        }
    }

    /// Loads the run before the current one; at the first one of the first block, ends and returns false.
    fn load_run_before(&mut self) -> Result<bool> {
        if let Some(before) = self.run.restart.checked_sub(1) {
            self.load_run(before)?;
            return Ok(true);
        }
        if self.block == self.blocks.start {
            self.has_ended = true;
            return Ok(false);
        }
        self.load(self.block - 1)?;
        self.load_run(self.layout.restart_count() - 1)?;
        Ok(true)
    }

    fn load_run(&mut self, restart: usize) -> Result<()> {
        let bytes = block_bytes(&self.plain_at, &self.stored, &self.plain);
        self.run
            .load(&mut self.cursor, &self.layout, bytes, restart)
            .map_err(|what| self.table.corrupted(self.block, what))
    }

    /// Makes `block` the current one; fetches it, and what a scan in this direction will want next.
    fn load(&mut self, block: usize) -> Result<()> {
        if !self.fetched.contains(&block) {
            self.fetch(block)?;
        }
        let index = self.table.index();
        let start = index.stored_span(self.fetched.start, block);
        let end = start + index.stored_len(block);
        self.block = block;
        self.plain_at = match self.table.open_stored(block, &self.stored[start..end], &mut self.plain)? {
            Opened::Plain(len) => Place::Stored(start..start + len),
            Opened::Unpacked => Place::Unpacked,
        };
        self.layout = Layout::of(self.block_bytes()).map_err(|what| self.table.corrupted(block, what))?;
        Ok(())
    }

    fn fetch(&mut self, block: usize) -> Result<()> {
        let index = self.table.index();
        let in_all = index.stored_span(self.blocks.start, self.blocks.end);
        let wanted = match self.fetch_bytes {
            0 if in_all <= FETCH_BYTES_FIRST => in_all,
            0 => 1,
            bytes => (bytes * 2).clamp(FETCH_BYTES_FIRST, FETCH_BYTES_MAX),
        };
        let mut fetched = block..block + 1;
        match self.direction {
            Direction::Forward => {
                while fetched.end < self.blocks.end
                    && index.stored_span(fetched.start, fetched.end + 1) <= wanted
                {
                    fetched.end += 1;
                }
            }
            Direction::Backward => {
                while fetched.start > self.blocks.start
                    && index.stored_span(fetched.start - 1, fetched.end) <= wanted
                {
                    fetched.start -= 1;
                }
            }
        }
        self.fetched = 0..0;
        if self.stored.len().max(index.stored_span(fetched.start, fetched.end))
            > self.table.streamed_bytes_min()
        {
            // Growing would have both for a moment, and a small block is not to keep the memory of a large
            // one.
            self.stored = Large::default();
        }
        self.table.read_stored(fetched.start, fetched.end, &mut self.stored)?;
        self.fetched = fetched;
        self.fetch_bytes = wanted;
        Ok(())
    }

    fn block_bytes(&self) -> &[u8] {
        block_bytes(&self.plain_at, &self.stored, &self.plain)
    }
}

/// The plain bytes of the current block; a function of its own so that the cursor can be borrowed beside
/// them.
fn block_bytes<'b>(plain_at: &Place, stored: &'b [u8], plain: &'b [u8]) -> &'b [u8] {
    match plain_at {
        Place::Stored(range) => &stored[range.clone()],
        Place::Unpacked => plain,
    }
}

impl Run {
    /// Decodes the entries from one restart point up to the next.
    fn load(
        &mut self,
        cursor: &mut Cursor,
        layout: &Layout,
        bytes: &[u8],
        restart: usize,
    ) -> Result<(), Malformed> {
        self.restart = restart;
        self.keys.clear();
        self.entries.clear();
        let end = layout.restart(bytes, restart + 1)?;
        cursor.rewind(layout, bytes, restart)?;
        while cursor.next_offset() < end && cursor.step(layout, bytes)? {
            if self.entries.len() == RESTART_INTERVAL_MAX {
                return Err(Malformed("a block has too few restart points"));
            }
            let start = self.keys.len();
            self.keys.extend_from_slice(&cursor.key);
            self.entries.push(RunEntry {
                key: start..self.keys.len(),
                version: cursor.version,
                kind: cursor.kind,
                value: cursor.value.clone(),
            });
        }
        if self.entries.is_empty() {
            return Err(Malformed("a block's restart points do not ascend"));
        }
        Ok(())
    }
}
