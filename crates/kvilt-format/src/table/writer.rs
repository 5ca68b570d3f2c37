//! Sorted entries in, a table out, in one pass.
//!
//! Where it stands: rebalances feed it the merged entries of a chunk. Always true: memory is bounded by the
//! block index, eight bytes a key for the filter, and a write buffer; the file is written front to back, in
//! large pieces, and not synced: the caller syncs it before any manifest names it.

use std::sync::Arc;

use kvilt_base::{
    EntryRef, Error, File, FileName, Kind, Large, Result, Streamed, Version, invariant, limits,
};

use super::{
    block::{BlockWriter, RESTART_INTERVAL_MAX, order},
    footer::{self, Footer},
    index::{IndexWriter, shortest_separator},
    stored,
};
use crate::{
    FileIdentity,
    bloom::{self, Filter},
    checksum::Running,
    header,
    names::TABLE,
};

/// Bytes collected before they are written.
const PIECE_BYTES: usize = 256 << 10;

/// A value of so many bytes or more goes from the caller's memory to the file without a stop between.
const LARGE_VALUE_BYTES: usize = PIECE_BYTES;

/// How the blocks of tables are compressed. May be changed from one open to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all: the least work.
    #[default]
    None,
    /// LZ4, where that saves an eighth or more of a block: about half the bytes for text such as JSON, at
    /// some processor time in each background rewrite and each read of a cold block.
    Lz4,
}

/// How a table is laid out. A reader needs none of it: the table says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// A block ends when its plain bytes reach this: a get reads one block, so smaller is quicker, and larger
    /// packs better. Up to 1 MiB.
    pub block_bytes: usize,
    /// Every so many entries a key stands whole: a seek steps through half of it. 1 to 256.
    pub restart_interval: usize,
    /// How blocks are stored.
    pub compression: Compression,
    /// Bits of the filter for each key; zero for no filter.
    pub filter_bits_per_key: u32,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 4096,
            restart_interval: 16,
            compression: Compression::None,
            filter_bits_per_key: 10,
        }
    }
}

/// What a finished table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// Bytes of the file.
    pub len: u64,
    /// Entries.
    pub entries: u64,
    /// Smallest key; empty if there are no entries.
    pub first_key: Vec<u8>,
    /// Largest key; empty if there are no entries.
    pub last_key: Vec<u8>,
    /// Highest version; zero if there are no entries.
    pub version_max: Version,
}

/// Writes one table. One thread at a time; after an error it must be dropped, and the file removed.
#[derive(Debug)]
pub struct TableWriter {
    file: Arc<dyn File>,
    id: FileIdentity,
    options: TableOptions,
    block: BlockWriter,
    index: IndexWriter,
    key_hashes: Vec<u64>,
    /// Bytes not yet written; the first one will lie at `written`.
    buffer: Large,
    written: u64,
    /// Stored bytes of a block that ended, whose separator depends on the entry that follows.
    ended_block: Option<usize>,
    entries: u64,
    payload_bytes: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last_version: Version,
    version_max: Version,
}

impl TableWriter {
    /// A writer into `file`, which is empty and is the file `id`. Panics if the options are outside their
    /// limits.
    pub fn new(file: Arc<dyn File>, id: FileIdentity, options: TableOptions) -> Self {
        assert!((1..=1 << 20).contains(&options.block_bytes), "blocks have 1 byte to 1 MiB");
        assert!((1..=RESTART_INTERVAL_MAX).contains(&options.restart_interval), "an interval has 1 to 256");
        TableWriter {
            file,
            id,
            options,
            block: BlockWriter::new(options.restart_interval),
            index: IndexWriter::default(),
            key_hashes: Vec::new(),
            buffer: header::encode(header::TABLE_MAGIC, id, 0).to_vec().into(),
            written: 0,
            ended_block: None,
            entries: 0,
            payload_bytes: 0,
            first_key: Vec::new(),
            last_key: Vec::new(),
            last_version: Version::ZERO,
            version_max: Version::ZERO,
        }
    }

    /// Adds the entry that follows in order: keys ascending, versions of one key descending. Puts and
    /// tombstones only.
    ///
    /// Panics if the order is broken (F-6), or key or value exceed their limits. Errors: `NoSpace`, `Io`.
    pub fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        self.add_with(entry, None)
    }

    /// The same for an entry whose value is not in memory. Not for tables that pack their blocks.
    ///
    /// Panics and errors as [`TableWriter::add`], and what copying the value says.
    pub fn add_streamed(&mut self, entry: EntryRef<'_>, value: &dyn Streamed) -> Result<()> {
        assert!(self.options.compression == Compression::None, "a packed block is made in memory");
        self.add_with(entry, Some(value))
    }

    fn add_with(&mut self, entry: EntryRef<'_>, streamed: Option<&dyn Streamed>) -> Result<()> {
        let value_len = streamed.map_or(entry.value.len(), |value| value.len());
        assert!(entry.key.len() <= limits::ENGINE_KEY_BYTES_MAX, "keys are checked at the door");
        assert!(value_len <= limits::VALUE_BYTES_MAX, "values are checked at the door");
        match entry.kind {
            Kind::Put => {}
            Kind::Tombstone => assert!(value_len == 0, "a tombstone has no value"),
            Kind::RangeTombstone => panic!("range tombstones live in logs only"),
        }
        let is_first = self.entries == 0;
        let is_in_order =
            is_first || order(&self.last_key, self.last_version, entry.key, entry.version).is_lt();
        invariant!("F-6", is_in_order, "{:?} at {} is out of order", entry.key, entry.version);

        // A large value gets a block of its own, so that its neighbours stay cheap to read.
        if !self.block.is_empty() && value_len >= self.options.block_bytes {
            self.end_block();
        }
        self.settle_ended_block(Some(entry));
        let is_new_key = is_first || self.last_key != entry.key;
        if is_new_key && self.options.filter_bits_per_key > 0 {
            self.key_hashes.push(bloom::hash(entry.key));
        }
        let is_large = value_len >= self.options.block_bytes.max(LARGE_VALUE_BYTES)
            && self.options.compression == Compression::None;
        if is_large || streamed.is_some() {
            // The block that ended has its separator, and this one is begun.
            self.write_large(entry, value_len, streamed)?;
        } else {
            self.block.add(entry);
        }
        if is_first {
            self.first_key = entry.key.to_vec();
        }
        if is_new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(entry.key);
        }
        self.last_version = entry.version;
        self.version_max = self.version_max.max(entry.version);
        self.entries += 1;
        self.payload_bytes += (entry.key.len() + value_len) as u64;
        if self.block.len() >= self.options.block_bytes {
            self.end_block();
        }
        if self.buffer.len() >= PIECE_BYTES {
            self.write_buffer()?;
        }
        Ok(())
    }

    /// Bytes of the table so far, the unfinished block included; filter, index and footer come on top.
    pub fn bytes_so_far(&self) -> u64 {
        self.offset() + self.block.len() as u64
    }

    /// Entries added so far.
    pub fn entries_so_far(&self) -> u64 {
        self.entries
    }

    /// Bytes of memory that the writer holds for the block index and the filter.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.key_hashes.capacity() * 8 + self.buffer.capacity()
    }

    /// Writes what is left: last block, filter, index, footer. Does not sync. Errors: `NoSpace`, `Io`.
    pub fn finish(mut self) -> Result<TableSummary> {
        self.end_block();
        self.settle_ended_block(None);
        let filter_offset = self.offset();
        if !self.key_hashes.is_empty() {
            let mut filter = Filter::new(self.key_hashes.len(), self.options.filter_bits_per_key);
            self.key_hashes.iter().for_each(|&hash| filter.insert(hash));
            let mut plain = Vec::new();
            filter.encode(&mut plain);
            stored::push(&mut self.buffer, &plain, false, self.id, filter_offset);
        }
        let index_offset = self.offset();
        let plain = self.index.encode(&self.first_key, &self.last_key);
        stored::push(&mut self.buffer, &plain, false, self.id, index_offset);
        let footer_offset = self.offset();
        let footer = Footer {
            filter_offset,
            filter_len: index_offset - filter_offset,
            index_offset,
            index_len: footer_offset - index_offset,
            entries: self.entries,
            version_max: self.version_max,
            payload_bytes: self.payload_bytes,
        };
        self.buffer.extend_from_slice(&footer::encode(&footer, self.id, footer_offset));
        self.write_buffer()?;
        Ok(TableSummary {
            len: self.written,
            entries: self.entries,
            first_key: self.first_key,
            last_key: self.last_key,
            version_max: self.version_max,
        })
    }

    /// Where the next byte will lie in the file.
    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn end_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let offset = self.offset();
        let compress = self.options.compression == Compression::Lz4;
        stored::push(&mut self.buffer, self.block.finish(), compress, self.id, offset);
        self.block.clear();
        self.ended_block = Some((self.offset() - offset) as usize);
    }

    /// Writes a block of one entry, of which the value is not copied to memory of the writer's.
    fn write_large(
        &mut self,
        entry: EntryRef<'_>,
        value_len: usize,
        streamed: Option<&dyn Streamed>,
    ) -> Result<()> {
        if !self.block.is_empty() {
            self.end_block();
            self.settle_ended_block(Some(entry));
        }
        self.write_buffer()?;
        let offset = self.written;
        let (before, mut behind) = self.block.around(entry, value_len);
        let mut running = Running::new(self.id.salt(offset));
        let TableWriter { file, written, id, .. } = self;
        let mut write = |part: &[u8]| {
            file.write_all_at(*written, part)
                .map_err(|e| Error::io("write a table", e).at(FileName::Of(TABLE, id.number), *written))?;
            *written += part.len() as u64;
            Ok(())
        };
        running.add(before);
        write(before)?;
        match streamed {
            Some(value) => value.copy(&mut |piece| {
                running.add(piece);
                write(piece)
            })?,
            None => {
                running.add(entry.value);
                write(entry.value)?;
            }
        }
        running.add(&behind);
        stored::end_plain(&mut behind, running);
        write(&behind)?;
        self.block.clear();
        self.ended_block = Some((self.written - offset) as usize);
        Ok(())
    }

    /// Gives the block that ended its separator, now that the entry behind it is known.
    fn settle_ended_block(&mut self, next: Option<EntryRef<'_>>) {
        let Some(stored_len) = self.ended_block.take() else { return };
        match next {
            // Versions of one key go on in the next block: only the version tells the blocks apart.
            Some(next) if next.key == self.last_key => {
                self.index.add(&self.last_key, self.last_version, stored_len);
            }
            Some(next) => {
                self.index.add(shortest_separator(&self.last_key, next.key), Version::ZERO, stored_len);
            }
            None => self.index.add(&self.last_key, Version::ZERO, stored_len),
        }
    }

    fn write_buffer(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(self.written, &self.buffer).map_err(|e| {
            Error::io("write a table", e).at(FileName::Of(TABLE, self.id.number), self.written)
        })?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(4 * PIECE_BYTES);
        Ok(())
    }
}
