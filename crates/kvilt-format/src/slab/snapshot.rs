//! An index snapshot: the keys of a shard in order, and the place of each one's item.
//!
//! Where it stands: written by a clean close, so that the next open reads this instead of all slabs; format:
//! `docs/format/index-snapshot.md`. Always true: it belongs to one generation of the root, which salts its
//! checksums together with file and offset, so blocks of an older snapshot do not pass; keys ascend; its end
//! says how many there are, and has the checksum of all blocks' checksums.
//!
//! ```text
//! header 64 | block … | end 24
//! block: body len u32 | checksum u32 | (shared | unshared | place u64 | key suffix) …
//! end:   0 u32        | checksum u32 | entries u64 | checksum of checksums u32 | 0 u32
//! ```

use kvilt_base::{Error, FileName, Result, key::shared_prefix_len, limits};

use super::{u32_at, u64_at};
use crate::{
    FileIdentity,
    checksum::{checksum, checksum_of_parts},
    coding::{Decoder, Malformed, VARINT_BYTES_MAX, push_varint},
    header::{self, HEADER_BYTES},
    names::SNAPSHOT,
};

/// Longest block of more than one entry, with its head, in bytes.
pub const SNAPSHOT_BLOCK_BYTES_MAX: usize = 64 << 10;

const HEAD_BYTES: usize = 8;
const END_BODY_BYTES: usize = 16;

/// Longest body: that of a block, or of an entry with the longest key.
const BODY_BYTES_MAX: usize = ENTRY_BYTES_MAX;
const ENTRY_BYTES_MAX: usize = limits::ENGINE_KEY_BYTES_MAX + 8 + 2 * VARINT_BYTES_MAX;
const _: () = assert!(SNAPSHOT_BLOCK_BYTES_MAX <= BODY_BYTES_MAX);

/// What a reader has room for when it first asks its source, and at most, in bytes.
const READ_BYTES_FIRST: usize = 4 << 10;
const READ_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(HEAD_BYTES + BODY_BYTES_MAX < READ_BYTES_MAX);

/// How far apart the generations of roots are in the salts of a snapshot: no file is as long.
const GENERATION_SHIFT: u32 = 40;

/// Of which file and root a snapshot is.
#[derive(Clone, Copy, Debug)]
struct Owner {
    id: FileIdentity,
    generation: u64,
}

impl Owner {
    fn salt(self, offset: u64) -> u32 {
        self.id.salt(offset.wrapping_add(self.generation << GENERATION_SHIFT))
    }

    /// The head of a block that lies at `offset`; the checksum covers the length, too.
    fn checksum(self, offset: u64, len_field: [u8; 4], body: &[u8]) -> u32 {
        checksum_of_parts(self.salt(offset), [&len_field, body])
    }
}

/// Writes a snapshot, piece by piece, to `sink`, which takes the bytes of the file in order.
#[derive(Debug)]
pub struct SnapshotWriter<S> {
    sink: S,
    owner: Owner,
    offset: u64,
    /// The block: room for its head, then its entries.
    block: Vec<u8>,
    last_key: Vec<u8>,
    entries: u64,
    checksums: u32,
}

impl<S: FnMut(&[u8]) -> Result<()>> SnapshotWriter<S> {
    /// Begins the snapshot that belongs to the root of this generation.
    ///
    /// Errors: those of the sink.
    pub fn new(mut sink: S, id: FileIdentity, generation: u64) -> Result<Self> {
        sink(&header::encode(header::SNAPSHOT_MAGIC, id, generation))?;
        Ok(SnapshotWriter {
            sink,
            owner: Owner { id, generation },
            offset: HEADER_BYTES as u64,
            block: Vec::with_capacity(SNAPSHOT_BLOCK_BYTES_MAX),
            last_key: Vec::new(),
            entries: 0,
            checksums: 0,
        })
    }

    /// Adds the key that follows in order, and the place of its item.
    ///
    /// Panics if the key does not follow, or is longer than a key may be.
    ///
    /// Errors: those of the sink; after one the snapshot is not to be used.
    pub fn add(&mut self, key: &[u8], place: u64) -> Result<()> {
        assert!(key.len() <= limits::ENGINE_KEY_BYTES_MAX, "a key within its limit");
        assert!(self.entries == 0 || self.last_key.as_slice() < key, "keys come in order");
        let mut shared = match self.block.is_empty() {
            true => 0,
            false => shared_prefix_len(&self.last_key, key),
        };
        let entry_bytes_max = key.len() - shared + 8 + 2 * VARINT_BYTES_MAX;
        if !self.block.is_empty() && self.block.len() + entry_bytes_max > SNAPSHOT_BLOCK_BYTES_MAX {
            self.end_block()?;
            shared = 0;
        }
        if self.block.is_empty() {
            self.block.resize(HEAD_BYTES, 0);
        }
        push_varint(&mut self.block, shared as u64);
        push_varint(&mut self.block, (key.len() - shared) as u64);
        self.block.extend_from_slice(&place.to_le_bytes());
        self.block.extend_from_slice(&key[shared..]);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.entries += 1;
        Ok(())
    }

    /// Ends the snapshot; says how many bytes the file has.
    ///
    /// Errors: those of the sink.
    pub fn finish(mut self) -> Result<u64> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let mut end = [0; HEAD_BYTES + END_BODY_BYTES];
        end[8..16].copy_from_slice(&self.entries.to_le_bytes());
        end[16..20].copy_from_slice(&self.checksums.to_le_bytes());
        let sum = self.owner.checksum(self.offset, [0; 4], &end[HEAD_BYTES..]);
        end[4..8].copy_from_slice(&sum.to_le_bytes());
        (self.sink)(&end)?;
        Ok(self.offset + end.len() as u64)
    }

    fn end_block(&mut self) -> Result<()> {
        let len_field = ((self.block.len() - HEAD_BYTES) as u32).to_le_bytes();
        let sum = self.owner.checksum(self.offset, len_field, &self.block[HEAD_BYTES..]).to_le_bytes();
        self.block[..4].copy_from_slice(&len_field);
        self.block[4..8].copy_from_slice(&sum);
        self.checksums = checksum(self.checksums, &sum);
        (self.sink)(&self.block)?;
        self.offset += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

/// Reads a snapshot from `source`, which gives the bytes of the file in order: some into the buffer, and how
/// many; zero at the end.
#[derive(Debug)]
pub struct SnapshotReader<S> {
    source: Ahead<S>,
    owner: Owner,
    /// Where the block lies.
    offset: u64,
    block_bytes: usize,
    /// Where in the block the next entry begins; the end of the block if there is none.
    position: usize,
    key: Vec<u8>,
    entries: u64,
    checksums: u32,
    has_ended: bool,
}

impl<S: FnMut(&mut [u8]) -> Result<usize>> SnapshotReader<S> {
    /// Begins with the header of the snapshot with this identity.
    ///
    /// Errors: `Corrupted`, `UnsupportedVersion`, and those of the source.
    pub fn new(source: S, id: FileIdentity) -> Result<Self> {
        let mut source = Ahead::new(source);
        source.want(HEADER_BYTES)?;
        let name = FileName::Of(SNAPSHOT, id.number);
        let header = header::decode_of(source.there(), header::SNAPSHOT_MAGIC, name, id)?;
        source.pass(HEADER_BYTES);
        Ok(SnapshotReader {
            source,
            owner: Owner { id, generation: header.by_kind },
            offset: HEADER_BYTES as u64,
            block_bytes: 0,
            position: 0,
            key: Vec::new(),
            entries: 0,
            checksums: 0,
            has_ended: false,
        })
    }

    /// The generation of the root that it belongs to; with another root it means nothing.
    pub fn generation(&self) -> u64 {
        self.owner.generation
    }

    /// The next key and the place of its item; none behind the last. Only then is it known that the snapshot
    /// is whole.
    ///
    /// Errors: `Corrupted`, and those of the source. After an error the snapshot is not to be used.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], u64)>> {
        if self.position == self.block_bytes && !self.begin_block()? {
            return Ok(None);
        }
        let block = &self.source.there()[..self.block_bytes];
        let is_first = self.position == HEAD_BYTES;
        let entry = Entry::decode(block, self.position, if is_first { 0 } else { self.key.len() });
        let entry = entry.map_err(|Malformed(what)| self.corrupted(self.position, what))?;
        let is_behind = match entry.shared < self.key.len() {
            true => self.key[entry.shared..] < *entry.suffix,
            false => self.entries == 0 || !entry.suffix.is_empty(),
        };
        if !is_behind {
            return Err(self.corrupted(self.position, "a key does not follow the one before"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(entry.suffix);
        self.position = entry.end;
        self.entries += 1;
        Ok(Some((&self.key, entry.place)))
    }

    /// Verifies the block behind the one that was read; false if that is the end.
    fn begin_block(&mut self) -> Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        self.source.pass(self.block_bytes);
        self.offset += self.block_bytes as u64;
        (self.block_bytes, self.position) = (0, 0);
        if !self.source.want(HEAD_BYTES)? {
            return Err(self.corrupted(0, "the snapshot has no end"));
        }
        let body_bytes = u32_at(self.source.there(), 0) as usize;
        if body_bytes > BODY_BYTES_MAX {
            return Err(self.corrupted(0, "a block exceeds its limit"));
        }
        let is_end = body_bytes == 0;
        let bytes = HEAD_BYTES + if is_end { END_BODY_BYTES } else { body_bytes };
        if !self.source.want(bytes)? {
            return Err(self.corrupted(0, "the snapshot ends within a block"));
        }
        let block = &self.source.there()[..bytes];
        let sum = u32_at(block, 4);
        let len_field = *block.first_chunk().expect("a block has a head");
        if self.owner.checksum(self.offset, len_field, &block[HEAD_BYTES..]) != sum {
            return Err(self.corrupted(4, "the checksum of a block differs"));
        }
        if is_end {
            return self.end(bytes).map(|()| false);
        }
        self.checksums = checksum(self.checksums, &sum.to_le_bytes());
        (self.block_bytes, self.position) = (bytes, HEAD_BYTES);
        Ok(true)
    }

    /// Checks what the end says, and that nothing is behind it.
    fn end(&mut self, bytes: usize) -> Result<()> {
        let end = self.source.there();
        let (entries, checksums, zero) = (u64_at(end, 8), u32_at(end, 16), u32_at(end, 20));
        if (entries, checksums, zero) != (self.entries, self.checksums, 0) {
            return Err(self.corrupted(8, "the end of the snapshot tells of other entries"));
        }
        if self.source.want(bytes + 1)? {
            return Err(self.corrupted(bytes, "there are bytes behind the end of the snapshot"));
        }
        self.has_ended = true;
        Ok(())
    }

    fn corrupted(&self, position: usize, what: &str) -> Error {
        let name = FileName::Of(SNAPSHOT, self.owner.id.number);
        Error::corrupted(name, self.offset + position as u64, what)
    }
}

/// An entry of a block.
struct Entry<'b> {
    shared: usize,
    suffix: &'b [u8],
    place: u64,
    end: usize,
}

impl<'b> Entry<'b> {
    /// The entry at a position; its key shares at most `shared_max` bytes with the one before.
    fn decode(block: &'b [u8], position: usize, shared_max: usize) -> Result<Entry<'b>, Malformed> {
        let mut decoder = Decoder::at(block, position);
        let (shared, unshared) = (decoder.varint_usize()?, decoder.varint_usize()?);
        if shared > shared_max || unshared > limits::ENGINE_KEY_BYTES_MAX - shared {
            return Err(Malformed("a key's length is not within its limits"));
        }
        let place = decoder.u64()?;
        let suffix = decoder.bytes(unshared)?;
        Ok(Entry { shared, suffix, place, end: decoder.position() })
    }
}

/// The bytes of a source that were read and not yet passed.
#[derive(Debug)]
struct Ahead<S> {
    source: S,
    buffer: Vec<u8>,
    /// What is there of the buffer.
    start: usize,
    end: usize,
    has_ended: bool,
}

impl<S: FnMut(&mut [u8]) -> Result<usize>> Ahead<S> {
    fn new(source: S) -> Self {
        Ahead { source, buffer: Vec::new(), start: 0, end: 0, has_ended: false }
    }

    fn there(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn pass(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Reads until `bytes` are there; false if the source ends before.
    fn want(&mut self, bytes: usize) -> Result<bool> {
        while self.there().len() < bytes && !self.has_ended {
            self.make_room(bytes);
            let room = &mut self.buffer[self.end..];
            let read = (self.source)(room)?;
            assert!(read <= room.len(), "a source gives no more than there is room for");
            self.end += read;
            self.has_ended = read == 0;
        }
        Ok(self.there().len() >= bytes)
    }

    /// Makes room for more than is there, and for as many bytes as are wanted in all. A buffer that was
    /// filled doubles up to its limit, so a short snapshot takes little memory.
    fn make_room(&mut self, bytes: usize) {
        let is_filled = self.end == self.buffer.len();
        if is_filled || self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let doubled = (2 * self.buffer.len()).clamp(READ_BYTES_FIRST, READ_BYTES_MAX);
        let len = if is_filled { doubled } else { self.buffer.len() }.max(bytes);
        self.buffer.resize(len, 0);
    }
}
