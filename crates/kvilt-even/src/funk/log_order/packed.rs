//! `Packed`: records of a log in key order in little memory: of a key what the one before does not have, and
//! where the record lies.
//!
//! ```text
//! block   first record         15 more
//!         | key | offset |     | same, shared | rest of the key | offset | …
//! ```
//!
//! A block's first key is whole, so blocks are found by their first keys; in a block records are read from
//! its beginning. Orders are what scans of many cold chunks need most of their memory for: the record of an
//! event with a key of 16 bytes takes 13.

use kvilt_base::{Kind, Large, key::shared_prefix_len};
use kvilt_format::coding::push_varint;

/// Records of a block.
pub(super) const BLOCK: usize = 16;

/// In a record's first byte: it is a tombstone; it has the key of the record before, and then nothing of the
/// key follows but in a block's first; bytes that it shares with the key before, or that they follow.
const TOMBSTONE: u8 = 1 << 7;
const SAME_KEY: u8 = 1 << 6;
const SHARED_FOLLOWS: u8 = (1 << 6) - 1;

/// See the module.
#[derive(Default)]
pub(super) struct Packed {
    bytes: Large,
    /// Where each block begins in `bytes`.
    blocks: Vec<u32>,
    len: usize,
}

/// Packs records that come in order.
#[derive(Default)]
pub(super) struct Packing {
    packed: Packed,
    last_key: Vec<u8>,
}

impl Packing {
    pub(super) fn push(&mut self, key: &[u8], offset: u32, kind: Kind) {
        let Packing { packed: Packed { bytes, blocks, len }, last_key } = self;
        let begins_block = *len % BLOCK == 0;
        let is_same = *len > 0 && key == last_key.as_slice();
        if begins_block {
            blocks.push(bytes.len() as u32);
        }
        let tombstone = if kind == Kind::Tombstone { TOMBSTONE } else { 0 };
        let same = if is_same { SAME_KEY } else { 0 };
        if is_same && !begins_block {
            bytes.push(tombstone | same);
        } else {
            let shared = if begins_block { 0 } else { shared_prefix_len(last_key, key) };
            let short = u8::try_from(shared).ok().filter(|shared| *shared < SHARED_FOLLOWS);
            bytes.push(tombstone | same | short.unwrap_or(SHARED_FOLLOWS));
            if short.is_none() {
                push_varint(bytes, shared as u64);
            }
            push_varint(bytes, (key.len() - shared) as u64);
            bytes.extend_from_slice(&key[shared..]);
        }
        bytes.extend_from_slice(&offset.to_le_bytes());
        *len += 1;
        if !is_same {
            last_key.clear();
            last_key.extend_from_slice(key);
        }
    }

    /// The key that was pushed last.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        (self.packed.len > 0).then_some(self.last_key.as_slice())
    }

    pub(super) fn finish(mut self) -> Packed {
        self.packed.bytes.shrink_to_fit();
        self.packed.blocks.shrink_to_fit();
        self.packed
    }
}

impl Packed {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.blocks.capacity() * size_of::<u32>()
    }

    /// The first keys of all blocks.
    pub(super) fn first_keys(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        (0..self.blocks.len()).map(|block| self.first_key(block))
    }

    pub(super) fn first_key(&self, block: usize) -> &[u8] {
        let mut at = self.blocks[block] as usize;
        let record = self.parse(&mut at, true);
        &self.bytes[record.rest_at as usize..][..record.rest_len as usize]
    }

    /// The record that begins at `at`, which moves behind it.
    #[inline]
    fn parse(&self, at: &mut usize, begins_block: bool) -> Parsed {
        let first = self.bytes[*at];
        *at += 1;
        let is_same = first & SAME_KEY != 0;
        let (mut shared, mut rest_len) = (0, 0);
        if begins_block || !is_same {
            shared = match first & SHARED_FOLLOWS {
                SHARED_FOLLOWS => self.varint(at),
                short => u32::from(short),
            };
            rest_len = self.varint(at);
        }
        let rest_at = *at as u32;
        *at += rest_len as usize;
        let offset = u32::from_le_bytes(*self.bytes[*at..].first_chunk().expect("a record has an offset"));
        *at += size_of::<u32>();
        Parsed { rest_at, rest_len, shared, offset, is_same, is_tombstone: first & TOMBSTONE != 0 }
    }

    #[inline]
    fn varint(&self, at: &mut usize) -> u32 {
        let (mut n, mut shift) = (0, 0);
        loop {
            let byte = self.bytes[*at];
            *at += 1;
            n |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return n;
            }
            shift += 7;
        }
    }
}

/// What a record has in `bytes`.
#[derive(Clone, Copy, Default)]
struct Parsed {
    rest_at: u32,
    rest_len: u32,
    shared: u32,
    offset: u32,
    is_same: bool,
    is_tombstone: bool,
}

/// Reads records of one `Packed` here and there: it remembers the block that it was asked for last, and one
/// key of that.
pub(super) struct Reader {
    block: usize,
    records: [Parsed; BLOCK],
    key: Vec<u8>,
    /// Whose key it is, counted in the block; none if it is nobody's yet.
    key_of: Option<usize>,
}

impl Default for Reader {
    fn default() -> Self {
        Reader { block: usize::MAX, records: [Parsed::default(); BLOCK], key: Vec::new(), key_of: None }
    }
}

impl Reader {
    /// Where the record at a position lies in the log, and what it is.
    #[inline]
    pub(super) fn place(&mut self, packed: &Packed, position: usize) -> (u64, Kind) {
        let record = self.record(packed, position);
        let kind = if record.is_tombstone { Kind::Tombstone } else { Kind::Put };
        (u64::from(record.offset), kind)
    }

    /// Whether it has the key of the one before.
    #[inline]
    pub(super) fn is_same_key(&mut self, packed: &Packed, position: usize) -> bool {
        self.record(packed, position).is_same
    }

    #[inline]
    pub(super) fn key(&mut self, packed: &Packed, position: usize) -> &[u8] {
        self.record(packed, position);
        let wanted = position % BLOCK;
        let from = self.key_of.filter(|of| *of <= wanted).map_or(0, |of| of + 1);
        for (at, record) in self.records.iter().enumerate().take(wanted + 1).skip(from) {
            if at == 0 || !record.is_same {
                self.key.truncate(record.shared as usize);
                let rest = record.rest_at as usize..(record.rest_at + record.rest_len) as usize;
                self.key.extend_from_slice(&packed.bytes[rest]);
            }
        }
        self.key_of = Some(wanted);
        &self.key
    }

    #[inline]
    fn record(&mut self, packed: &Packed, position: usize) -> Parsed {
        let block = position / BLOCK;
        if block != self.block {
            let mut at = packed.blocks[block] as usize;
            let in_block = BLOCK.min(packed.len - block * BLOCK);
            for (i, record) in self.records[..in_block].iter_mut().enumerate() {
                *record = packed.parse(&mut at, i == 0);
            }
            (self.block, self.key_of) = (block, None);
        }
        self.records[position % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys of a few letters with long beginnings in common, so that all kinds of sharing come up.
    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        (prop::sample::select(vec![0_usize, 5, 61, 62, 63, 64, 200, 20_000]), "[ab]{0,3}", 0..300_usize)
            .prop_map(|(shared, letters, more)| {
                [vec![b'p'; shared], letters.into(), vec![b'q'; more]].concat()
            })
    }

    proptest! {
        #[test]
        fn records_are_read_as_they_were_packed(
            mut records in prop::collection::vec((any_key(), any::<u32>(), any::<bool>(), 1..40_usize), 0..40),
            positions in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        ) {
            records.sort();
            let kind = |is_tombstone| if is_tombstone { Kind::Tombstone } else { Kind::Put };
            let mut packing = Packing::default();
            let mut all = Vec::new();
            for (key, offset, is_tombstone, times) in records {
                for offset in (0..times as u32).map(|time| offset.wrapping_add(time)) {
                    packing.push(&key, offset, kind(is_tombstone));
                    prop_assert_eq!(packing.last_key(), Some(key.as_slice()));
                    all.push((key.clone(), (u64::from(offset), kind(is_tombstone))));
                }
            }
            let packed = packing.finish();
            prop_assert_eq!(packed.len(), all.len());
            prop_assert!(packed.first_keys().eq(all.iter().step_by(BLOCK).map(|(key, _)| key.as_slice())));
            let mut reader = Reader::default();
            let chosen = positions.iter().filter(|_| !all.is_empty()).map(|index| index.index(all.len()));
            for at in chosen.chain(0..all.len()).chain((0..all.len()).rev()) {
                prop_assert_eq!(reader.key(&packed, at), all[at].0.as_slice());
                prop_assert_eq!(reader.place(&packed, at), all[at].1);
                prop_assert_eq!(reader.is_same_key(&packed, at), at > 0 && all[at].0 == all[at - 1].0);
            }
        }
    }

    #[test]
    fn an_event_takes_few_bytes() {
        let mut packing = Packing::default();
        for i in 0..10_000_u64 {
            let key =
                [&7_u32.to_be_bytes()[..], &(i * 128_000).to_be_bytes(), &(i as u32 * 77).to_be_bytes()];
            packing.push(&key.concat(), i as u32 * 900, Kind::Put);
        }
        let bytes = packing.finish().memory_bytes();
        assert!(bytes < 10_000 * 14, "{bytes}");
    }
}
