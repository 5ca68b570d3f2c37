//! A block's plain bytes: entries with shared key prefixes left out, and points where a key stands whole.
//!
//! Where it stands: the writer builds one here and stores it; a get seeks in it, a scan walks it. Always
//! true: a block has at least one restart point, the first entry is one, and no read leaves the block's bytes
//! whatever they are.
//!
//! ```text
//! first version u64 | entry … | restart offset u32 … | restart count u32
//! entry: shared | unshared | value len · 2 + tombstone | zigzag(version − first version) | key suffix | value
//! ```

use std::{cmp::Ordering, ops::Range};

use kvilt_base::{EntryRef, Kind, Version, key::shared_prefix_len, limits};

use crate::coding::{Decoder, Malformed, push_varint, unzigzag, zigzag};

/// Most entries between two restart points: bounds what a step backward decodes.
pub(super) const RESTART_INTERVAL_MAX: usize = 256;

/// What is kept of the memory of a block, in bytes: a large value is not to leave its own.
const KEPT_BYTES: usize = 1 << 20;

const FIRST_VERSION_BYTES: usize = 8;
const RESTART_BYTES: usize = 4;

/// Builds one block after another.
#[derive(Debug)]
pub(super) struct BlockWriter {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    since_restart: usize,
    first_version: u64,
    last_key: Vec<u8>,
}

impl BlockWriter {
    pub(super) fn new(restart_interval: usize) -> Self {
        BlockWriter {
            bytes: Vec::new(),
            restarts: Vec::new(),
            restart_interval,
            since_restart: 0,
            first_version: 0,
            last_key: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Bytes of the block if it ended now.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + (self.restarts.len() + 1) * RESTART_BYTES
    }

    /// Adds the entry that follows in order. The caller has checked its order and its lengths.
    pub(super) fn add(&mut self, entry: EntryRef<'_>) {
        self.add_before_value(entry, entry.value.len());
        self.bytes.extend_from_slice(entry.value);
    }

    /// The same, but for the value, which is to follow.
    fn add_before_value(&mut self, entry: EntryRef<'_>, value_len: usize) {
        let version = entry.version.to_u64();
        if self.is_empty() {
            self.first_version = version;
            self.bytes.extend_from_slice(&version.to_le_bytes());
        }
        let shared = if self.is_empty() || self.since_restart == self.restart_interval {
            let offset =
                u32::try_from(self.bytes.len()).expect("a block ends at its size, or after one value");
            self.restarts.push(offset);
            self.since_restart = 0;
            0
        } else {
            shared_prefix_len(&self.last_key, entry.key)
        };
        self.since_restart += 1;
        let suffix = &entry.key[shared..];
        push_varint(&mut self.bytes, shared as u64);
        push_varint(&mut self.bytes, suffix.len() as u64);
        push_varint(&mut self.bytes, (value_len as u64) << 1 | u64::from(entry.kind == Kind::Tombstone));
        push_varint(&mut self.bytes, zigzag(version.wrapping_sub(self.first_version) as i64));
        self.bytes.extend_from_slice(suffix);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(suffix);
    }

    /// Ends the block and gives its bytes; [`BlockWriter::clear`] begins the next one.
    pub(super) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    /// A block of this entry alone, but for its value: what stands before that, and what behind. It is begun
    /// and ended.
    pub(super) fn around(&mut self, entry: EntryRef<'_>, value_len: usize) -> (&[u8], Vec<u8>) {
        assert!(self.is_empty(), "a block of its own");
        self.add_before_value(entry, value_len);
        let behind = self.restarts.iter().copied().chain([self.restarts.len() as u32]);
        let behind = behind.flat_map(u32::to_le_bytes).collect();
        (&self.bytes, behind)
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.restarts.clear();
        self.since_restart = 0;
    }
}

/// Where the parts of a block lie; goes with the block's bytes, which every method takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    first_version: u64,
    entries_end: usize,
    restart_count: usize,
}

/// What stands behind the entry of a block that has one.
pub(super) const ONE_RESTART_BYTES: usize = 2 * RESTART_BYTES;

/// The first entry of a block, but for its value, as the block's first bytes tell.
pub(super) struct Outline {
    pub(super) key: Range<usize>,
    pub(super) version: Version,
    pub(super) value_len: usize,
}

impl Outline {
    pub(super) fn of(begin: &[u8]) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(begin);
        let first_version = decoder.u64()?;
        let (shared, key_len) = (decoder.varint_usize()?, decoder.varint_usize()?);
        let value_tag = decoder.varint_usize()?;
        let delta = unzigzag(decoder.varint()?);
        let is_put = value_tag & 1 == 0 && value_tag >> 1 <= limits::VALUE_BYTES_MAX;
        if shared != 0 || key_len > decoder.remaining() || !is_put {
            return Err(Malformed("no entry that is known by the beginning of its block"));
        }
        let key = decoder.position()..decoder.position() + key_len;
        let version = Version::from_u64(first_version.wrapping_add(delta as u64));
        Ok(Outline { key, version, value_len: value_tag >> 1 })
    }
}

/// An entry as it stands in a block.
#[derive(Debug)]
pub(super) struct RawEntry {
    pub(super) shared: usize,
    pub(super) suffix: Range<usize>,
    pub(super) version: Version,
    pub(super) kind: Kind,
    pub(super) value: Range<usize>,
}

impl Layout {
    pub(super) fn of(bytes: &[u8]) -> Result<Layout, Malformed> {
        let mut first = Decoder::new(bytes);
        let first_version = first.u64()?;
        let count_at = bytes.len().checked_sub(RESTART_BYTES).ok_or(Malformed("a block is too short"))?;
        let restart_count = Decoder::at(bytes, count_at).u32()? as usize;
        let entries_end = restart_count
            .checked_mul(RESTART_BYTES)
            .and_then(|restarts| count_at.checked_sub(restarts))
            .filter(|&end| end > FIRST_VERSION_BYTES && restart_count > 0)
            .ok_or(Malformed("a block's restart points do not fit"))?;
        Ok(Layout { first_version, entries_end, restart_count })
    }

    pub(super) fn restart_count(&self) -> usize {
        self.restart_count
    }

    /// Offset of the entry at a restart point. The end of the entries is allowed: nothing follows there.
    pub(super) fn restart(&self, bytes: &[u8], restart: usize) -> Result<usize, Malformed> {
        if restart >= self.restart_count {
            return Ok(self.entries_end);
        }
        let offset = Decoder::at(bytes, self.entries_end + restart * RESTART_BYTES).u32()? as usize;
        if !(FIRST_VERSION_BYTES..self.entries_end).contains(&offset) {
            return Err(Malformed("a restart point lies outside the entries"));
        }
        Ok(offset)
    }

    pub(super) fn has_ended(&self, offset: usize) -> bool {
        offset >= self.entries_end
    }

    /// The entry at an offset within the entries.
    #[inline]
    pub(super) fn entry(&self, bytes: &[u8], offset: usize) -> Result<RawEntry, Malformed> {
        let mut decoder = Decoder::at(&bytes[..self.entries_end], offset);
        let shared = decoder.varint_usize()?;
        let unshared = decoder.varint_usize()?;
        let value_tag = decoder.varint_usize()?;
        let delta = unzigzag(decoder.varint()?);
        let key_len = shared.checked_add(unshared).ok_or(Malformed("a key length overflows"))?;
        let value_len = value_tag >> 1;
        if key_len > limits::ENGINE_KEY_BYTES_MAX || value_len > limits::VALUE_BYTES_MAX {
            return Err(Malformed("a key or value exceeds its limit"));
        }
        let kind = if value_tag & 1 == 0 { Kind::Put } else { Kind::Tombstone };
        if kind == Kind::Tombstone && value_len != 0 {
            return Err(Malformed("a tombstone has a value"));
        }
        if decoder.remaining() < unshared + value_len {
            return Err(Malformed("an entry reaches beyond its block"));
        }
        let start = decoder.position();
        let value_start = start + unshared;
        Ok(RawEntry {
            shared,
            suffix: start..value_start,
            version: Version::from_u64(self.first_version.wrapping_add(delta as u64)),
            kind,
            value: value_start..value_start + value_len,
        })
    }

    /// How the entry at a restart point compares with (`key`, `at`) in the order of a table.
    fn compare_restart(
        &self,
        bytes: &[u8],
        restart: usize,
        key: &[u8],
        at: Version,
    ) -> Result<Ordering, Malformed> {
        let entry = self.entry(bytes, self.restart(bytes, restart)?)?;
        if entry.shared != 0 {
            return Err(Malformed("a restart point's key is not whole"));
        }
        Ok(order(&bytes[entry.suffix], entry.version, key, at))
    }
}

/// The order of a table: keys ascending, versions of one key descending.
pub(super) fn order(a: &[u8], a_version: Version, b: &[u8], b_version: Version) -> Ordering {
    a.cmp(b).then_with(|| b_version.cmp(&a_version))
}

/// A position in a block, and the entry there.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Offset of the entry behind the current one.
    next: usize,
    pub(super) key: Vec<u8>,
    pub(super) version: Version,
    pub(super) kind: Kind,
    pub(super) value: Range<usize>,
}

impl Cursor {
    pub(super) fn new() -> Self {
        Cursor { next: 0, key: Vec::new(), version: Version::ZERO, kind: Kind::Put, value: 0..0 }
    }

    /// Stands before the entry at a restart point; [`Cursor::step`] goes there.
    pub(super) fn rewind(&mut self, layout: &Layout, bytes: &[u8], restart: usize) -> Result<(), Malformed> {
        self.next = layout.restart(bytes, restart)?;
        self.key.clear();
        Ok(())
    }

    /// Goes to the following entry; false at the block's end.
    #[inline]
    pub(super) fn step(&mut self, layout: &Layout, bytes: &[u8]) -> Result<bool, Malformed> {
        if layout.has_ended(self.next) {
            return Ok(false);
        }
        let entry = layout.entry(bytes, self.next)?;
        if entry.shared > self.key.len() {
            return Err(Malformed("an entry shares more than the key before it has"));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(&bytes[entry.suffix]);
        self.next = entry.value.end;
        self.version = entry.version;
        self.kind = entry.kind;
        self.value = entry.value;
        Ok(true)
    }

    /// Offset of the entry behind the current one.
    pub(super) fn next_offset(&self) -> usize {
        self.next
    }

    /// Goes to the first entry that is not before (`key`, `at`); false if the block has none.
    pub(super) fn seek(
        &mut self,
        layout: &Layout,
        bytes: &[u8],
        key: &[u8],
        at: Version,
    ) -> Result<bool, Malformed> {
        // The last restart point before the target: `low` is before it (or the first), `high` is not.
        let (mut low, mut high) = (0, layout.restart_count());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match layout.compare_restart(bytes, middle, key, at)? {
                Ordering::Less => low = middle,
                Ordering::Equal | Ordering::Greater => high = middle,
            }
        }
        self.rewind(layout, bytes, low)?;
        while self.step(layout, bytes)? {
            if order(&self.key, self.version, key, at).is_ge() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
