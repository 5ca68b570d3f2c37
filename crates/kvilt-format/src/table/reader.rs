//! An open table: its index and filter in memory, its blocks read as they are needed.
//!
//! Where it stands: gets come here when neither munk, row cache nor log has the key. Any number of threads
//! may use one table. Always true: a get reads at most one block for each block that holds versions of its
//! key (nearly always one), with one call; no byte is used before its checksum was found right.

use std::{cell::RefCell, sync::Arc};

use kvilt_base::{Error, File, FileName, Kind, Large, Result, Version, limits, planted};

use super::{
    block::{Cursor, Layout},
    footer::{self, FOOTER_BYTES, Footer},
    index::BlockIndex,
    stored::{self, Opened, TRAILER_BYTES},
};
use crate::{
    FileIdentity,
    bloom::{self, Filter},
    coding::Malformed,
    header::{self, HEADER_BYTES},
    names::TABLE,
};

/// A thread keeps buffers for its gets, unless a large value made them larger than this.
const SCRATCH_BYTES_MAX: usize = 256 << 10;

/// An open table. See the module.
#[derive(Debug)]
pub struct Table {
    file: Arc<dyn File>,
    id: FileIdentity,
    len: u64,
    footer: Footer,
    index: BlockIndex,
    filter: Option<Filter>,
    streamed_bytes_min: usize,
}

impl Table {
    /// Opens the table `id`, which has `len` bytes: checks header and footer, loads index and filter. A
    /// damaged filter is left out (F-5).
    ///
    /// Errors: `Corrupted`, `UnsupportedVersion`, `Io`.
    pub fn open(file: Arc<dyn File>, id: FileIdentity, len: u64) -> Result<Table> {
        let name = FileName::Of(TABLE, id.number);
        let file_len = file.len().map_err(|e| Error::io("ask for a table's length", e).in_file(name))?;
        if file_len < len || len < (HEADER_BYTES + FOOTER_BYTES) as u64 {
            let message = format!("the table has {file_len} bytes; {len} were synced");
            return Err(Error::corrupted(name, file_len, message));
        }
        let mut head = [0; HEADER_BYTES];
        read(&*file, name, 0, &mut head)?;
        header::decode_of(&head, header::TABLE_MAGIC, name, id)?;
        let footer_offset = len - FOOTER_BYTES as u64;
        let mut tail = [0; FOOTER_BYTES];
        read(&*file, name, footer_offset, &mut tail)?;
        let footer = footer::decode(&tail, id, footer_offset)
            .map_err(|what| Error::corrupted(name, footer_offset, what.0))?;

        // Filter and index lie side by side. Their length was checked against the file's.
        let mut both = Large::zeroed((footer_offset - footer.filter_offset) as usize);
        read(&*file, name, footer.filter_offset, &mut both)?;
        let (stored_filter, stored_index) = both.split_at(footer.filter_len as usize);
        let filter = open_filter(stored_filter, id, footer.filter_offset);
        let index = open_index(stored_index, id, &footer)
            .map_err(|what| Error::corrupted(name, footer.index_offset, what.0))?;
        Ok(Table { file, id, len, footer, index, filter, streamed_bytes_min: limits::STREAMED_BYTES_MIN })
    }

    /// The same, of which values of more than so many bytes are large ones to who streams or fetches them, if
    /// they have blocks of their own.
    #[must_use]
    pub fn streaming_above(self, streamed_bytes_min: usize) -> Table {
        Table { streamed_bytes_min, ..self }
    }

    /// Calls `found` with version, kind and value of the newest entry of `key` whose version is at most `at`,
    /// and returns true; or returns false. `found` may be called from under a read buffer of this thread: it
    /// must not keep the value, but may use other tables.
    ///
    /// Errors: `Corrupted` if the block is damaged, `Io`.
    pub fn get(&self, key: &[u8], at: Version, mut found: impl FnMut(Version, Kind, &[u8])) -> Result<bool> {
        if !self.may_have(key) {
            return Ok(false);
        }
        let block = self.index.find(key, at);
        if block == self.index.len() {
            return Ok(false);
        }
        let mut scratch = Scratch::take();
        let Scratch { stored, plain, cursor } = &mut scratch;
        let bytes = self.read_block(block, stored, plain)?;
        let corrupted = |what| self.corrupted(block, what);
        let layout = Layout::of(bytes).map_err(corrupted)?;
        // The separator is not before (key, at), and the next block's first entry is behind the separator:
        // if the entry is not in this block, it is nowhere.
        let is_found = cursor.seek(&layout, bytes, key, at).map_err(corrupted)? && cursor.key == key;
        if is_found {
            found(cursor.version, cursor.kind, &bytes[cursor.value.clone()]);
        }
        scratch.give_back();
        Ok(is_found)
    }

    /// Has the system fetch the block that [`Table::get`] would read, and returns true; or returns false, if
    /// it would read none.
    pub fn will_get(&self, key: &[u8], at: Version) -> bool {
        if !self.may_have(key) {
            return false;
        }
        let block = self.index.find(key, at);
        if block == self.index.len() {
            return false;
        }
        self.file.will_read(self.index.offset(block), self.index.stored_len(block));
        true
    }

    /// Has the system fetch bytes of the file.
    pub(super) fn will_read(&self, offset: u64, len: usize) {
        self.file.will_read(offset, len);
    }

    /// Whether the filter allows that it has an entry of `key`; true if it has no filter. Reads nothing.
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(bloom::hash(key)))
    }

    /// Which file it is.
    pub fn id(&self) -> FileIdentity {
        self.id
    }

    /// Bytes of the file.
    #[expect(clippy::len_without_is_empty, reason = "a length of a file; it always has a header")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Entries.
    pub fn entries(&self) -> u64 {
        self.footer.entries
    }

    /// Highest version; zero if there are no entries.
    pub fn version_max(&self) -> Version {
        self.footer.version_max
    }

    /// Bytes of keys and values, before compression.
    pub fn payload_bytes(&self) -> u64 {
        self.footer.payload_bytes
    }

    /// Smallest key; empty if there are no entries.
    pub fn first_key(&self) -> Vec<u8> {
        self.index.first_key()
    }

    /// Largest key; empty if there are no entries.
    pub fn last_key(&self) -> Vec<u8> {
        self.index.last_key()
    }

    /// Whether the table was written with a filter that is now damaged, and so is not used.
    pub fn has_damaged_filter(&self) -> bool {
        self.filter.is_none() && self.footer.filter_len > 0
    }

    /// Where the filter lies, or would.
    pub fn filter_offset(&self) -> u64 {
        self.footer.filter_offset
    }

    /// Bytes of memory that the open table holds.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Table>() + self.index.memory_bytes() + self.filter.as_ref().map_or(0, Filter::memory_bytes)
    }

    pub(super) fn streamed_bytes_min(&self) -> usize {
        self.streamed_bytes_min
    }

    pub(super) fn index(&self) -> &BlockIndex {
        &self.index
    }

    pub(super) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    pub(super) fn name(&self) -> FileName {
        FileName::Of(TABLE, self.id.number)
    }

    pub(super) fn corrupted(&self, block: usize, what: Malformed) -> Error {
        Error::corrupted(self.name(), self.index.offset(block), what.0)
    }

    /// Reads one block and checks it; its plain bytes lie in one of the two buffers.
    pub(super) fn read_block<'b>(
        &self,
        block: usize,
        stored: &'b mut Vec<u8>,
        plain: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        self.read_stored(block, block + 1, stored)?;
        let stored = &stored[..self.index.stored_len(block)];
        match self.open_stored(block, stored, plain)? {
            Opened::Plain(len) => Ok(&stored[..len]),
            Opened::Unpacked => Ok(plain),
        }
    }

    /// Reads the stored bytes of some blocks into the front of `buffer`, with one call.
    pub(super) fn read_stored(&self, first: usize, end: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let len = self.index.stored_span(first, end);
        if buffer.len() < len {
            // Only the first use of a buffer pays for the zeros.
            buffer.resize(len, 0);
        }
        read(&*self.file, self.name(), self.index.offset(first), &mut buffer[..len])
    }

    /// Fills the buffer from an offset in the file.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        read(&*self.file, self.name(), offset, buffer)
    }

    /// Checks a block's stored bytes.
    pub(super) fn open_stored(&self, block: usize, stored: &[u8], plain: &mut Vec<u8>) -> Result<Opened> {
        stored::open(stored, self.id, self.index.offset(block), plain)
            .map_err(|what| self.corrupted(block, what))
    }
}

fn read(file: &dyn File, name: FileName, offset: u64, buffer: &mut [u8]) -> Result<()> {
    file.read_exact_at(offset, buffer).map_err(|e| {
        if e.kind() == std::io::ErrorKind::UnexpectedEof {
            Error::corrupted(name, offset, "the file ends before the table does")
        } else {
            Error::io("read a table", e).at(name, offset)
        }
    })
}

fn open_filter(stored: &[u8], id: FileIdentity, offset: u64) -> Option<Filter> {
    planted!(FilterBelieved => return Filter::decode(&stored[..stored.len().checked_sub(TRAILER_BYTES)?]));
    match stored::open(stored, id, offset, &mut Vec::new()).ok()? {
        Opened::Plain(len) => Filter::decode(&stored[..len]),
        Opened::Unpacked => None,
    }
}

fn open_index(stored: &[u8], id: FileIdentity, footer: &Footer) -> Result<BlockIndex, Malformed> {
    match stored::open(stored, id, footer.index_offset, &mut Vec::new())? {
        Opened::Plain(len) => BlockIndex::decode(&stored[..len], footer.filter_offset),
        Opened::Unpacked => Err(Malformed("an index is never packed")),
    }
}

/// The buffers of a get. Taken out of the thread for its time, so that `found` may call another table.
struct Scratch {
    stored: Vec<u8>,
    plain: Vec<u8>,
    cursor: Cursor,
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

impl Scratch {
    fn take() -> Scratch {
        SCRATCH.with_borrow_mut(Option::take).unwrap_or_else(|| Scratch {
            stored: Vec::new(),
            plain: Vec::new(),
            cursor: Cursor::new(),
        })
    }

    fn give_back(mut self) {
        for buffer in [&mut self.stored, &mut self.plain] {
            if buffer.capacity() > SCRATCH_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        SCRATCH.set(Some(self));
    }
}
