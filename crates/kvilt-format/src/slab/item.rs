//! An item in its slot: a value, a tombstone or a range delete, with its version and the size of its batch.
//!
//! Where it stands: what a slab's slots hold; format: `docs/format/slab.md`. Always true: the checksum covers
//! the whole item and is salted with the slot's place in the file; a slot may be longer than its item, and
//! what lies behind the item means nothing.
//!
//! ```text
//! checksum u32 | value len u32 | version u64 | key len u24 | kind u8 | batch len u32 | key | value
//! ```

use kvilt_base::{Version, limits};

use super::{u32_at, u64_at};
use crate::{
    FileIdentity,
    checksum::{Running, checksum},
    coding::Malformed,
};

/// Bytes of an item before its key.
pub const ITEM_HEADER_BYTES: usize = 24;

/// Bytes of a tombstone.
pub const TOMBSTONE_BYTES: usize = ITEM_HEADER_BYTES + TOMBSTONE_CONTENT_BYTES;

/// Bytes of the longest item: the longest key of an engine and the longest value.
pub const ITEM_BYTES_MAX: usize = ITEM_HEADER_BYTES + limits::ENGINE_KEY_BYTES_MAX + limits::VALUE_BYTES_MAX;

/// The place of the item that a tombstone kills.
const TOMBSTONE_CONTENT_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;
/// Behind the three bytes of the key's length.
const KIND_OFFSET: usize = 19;
const KEY_LEN_MASK: u32 = (1 << 24) - 1;

/// The first byte of a range delete's value: the end follows, or there is none.
const BOUNDED: u8 = 0;
const UNBOUNDED: u8 = 1;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A key and its value.
    Value,
    /// Another item is dead.
    Tombstone,
    /// A range of keys is deleted.
    RangeDelete,
}

/// What an item says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A key has a value.
    Value {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Another item is dead.
    Tombstone {
        /// Class and slot of that item, as the engine packs them.
        place: u64,
    },
    /// All keys from `start` on, up to but without `end`, were deleted.
    RangeDelete {
        /// The first key.
        start: &'a [u8],
        /// The key behind the last; none: there is no end.
        end: Option<&'a [u8]>,
    },
}

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The version at which it was written: another one for each write, and one for all items of a batch.
    pub version: Version,
    /// Items of its batch, at least 1.
    pub batch_len: u32,
    /// What it says.
    pub content: Content<'a>,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// No item: nothing was written where its head would be.
    Empty,
    /// A whole item that was written here.
    Item(Item<'a>),
    /// Something else, for this reason: a torn write, damage, or what belongs elsewhere.
    Bad(&'static str),
}

impl<'a> Item<'a> {
    /// Bytes of the item.
    pub fn encoded_len(&self) -> usize {
        let (key_len, value_len) = self.lens();
        ITEM_HEADER_BYTES + key_len + value_len
    }

    fn lens(&self) -> (usize, usize) {
        match self.content {
            Content::Value { key, value } => (key.len(), value.len()),
            Content::Tombstone { .. } => (TOMBSTONE_CONTENT_BYTES, 0),
            Content::RangeDelete { start, end } => (start.len(), 1 + end.map_or(0, <[u8]>::len)),
        }
    }

    /// Writes the item to the beginning of `slot`, which begins at the offset `place` of the slab with this
    /// identity; says how long it is. The bytes behind it stay as they are.
    ///
    /// Panics if the slot is shorter, or if a length or the size of the batch is not within its limits.
    pub fn encode_into(&self, slot: &mut [u8], id: FileIdentity, place: u64) -> usize {
        let (key_len, value_len) = self.lens();
        assert!(key_len <= limits::ENGINE_KEY_BYTES_MAX, "a key within its limit");
        assert!(value_len <= value_bytes_max(self.content.kind()), "a value within its limit");
        assert!(self.batch_len > 0, "an item is of a batch, if only of its own");
        let item = &mut slot[..ITEM_HEADER_BYTES + key_len + value_len];
        item[4..8].copy_from_slice(&(value_len as u32).to_le_bytes());
        item[8..16].copy_from_slice(&self.version.to_u64().to_le_bytes());
        item[16..20].copy_from_slice(&(key_len as u32).to_le_bytes());
        item[KIND_OFFSET] = self.content.kind().to_byte();
        item[20..24].copy_from_slice(&self.batch_len.to_le_bytes());
        let (key_place, value_place) = item[ITEM_HEADER_BYTES..].split_at_mut(key_len);
        match self.content {
            Content::Value { key, value } => {
                key_place.copy_from_slice(key);
                value_place.copy_from_slice(value);
            }
            Content::Tombstone { place } => key_place.copy_from_slice(&place.to_le_bytes()),
            Content::RangeDelete { start, end } => {
                key_place.copy_from_slice(start);
                value_place[0] = if end.is_some() { BOUNDED } else { UNBOUNDED };
                value_place[1..].copy_from_slice(end.unwrap_or_default());
            }
        }
        let sum = checksum(id.salt(place), &item[CHECKSUM_BYTES..]);
        item[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        item.len()
    }

    /// What `slot` holds, which begins at the offset `place` of the slab with this identity.
    pub fn decode(slot: &'a [u8], id: FileIdentity, place: u64) -> Decoded<'a> {
        let head = match Head::of(slot) {
            Ok(Some(head)) => head,
            Ok(None) => return Decoded::Empty,
            Err(Malformed(why)) => return Decoded::Bad(why),
        };
        let Some(item) = slot.get(..head.item_len()) else {
            return Decoded::Bad("the item is longer than its slot");
        };
        if checksum(id.salt(place), &item[CHECKSUM_BYTES..]) != head.checksum {
            return Decoded::Bad("the checksum of the item differs");
        }
        match head.item(item) {
            Ok(item) => Decoded::Item(item),
            Err(Malformed(why)) => Decoded::Bad(why),
        }
    }

    /// The same without the checksum, for bytes that [`Item::decode`] has passed before; none for an empty
    /// slot.
    #[inline]
    pub fn decode_verified(slot: &'a [u8]) -> Result<Option<Item<'a>>, Malformed> {
        let Some(head) = Head::of(slot)? else { return Ok(None) };
        let item = slot.get(..head.item_len()).ok_or(Malformed("the item is longer than its slot"))?;
        head.item(item).map(Some)
    }
}

impl Content<'_> {
    /// What an item with it is.
    pub fn kind(&self) -> ItemKind {
        match self {
            Content::Value { .. } => ItemKind::Value,
            Content::Tombstone { .. } => ItemKind::Tombstone,
            Content::RangeDelete { .. } => ItemKind::RangeDelete,
        }
    }
}

impl ItemKind {
    fn to_byte(self) -> u8 {
        match self {
            ItemKind::Value => 1,
            ItemKind::Tombstone => 2,
            ItemKind::RangeDelete => 3,
        }
    }

    fn of_byte(byte: u8) -> Option<ItemKind> {
        [ItemKind::Value, ItemKind::Tombstone, ItemKind::RangeDelete]
            .into_iter()
            .find(|k| k.to_byte() == byte)
    }
}

fn value_bytes_max(kind: ItemKind) -> usize {
    match kind {
        ItemKind::Value => limits::VALUE_BYTES_MAX,
        ItemKind::Tombstone => 0,
        ItemKind::RangeDelete => 1 + limits::ENGINE_KEY_BYTES_MAX,
    }
}

/// What the first [`ITEM_HEADER_BYTES`] of an item say. Its checksum was not looked at: all of this may be
/// damage, but the lengths are within their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the item is.
    pub kind: ItemKind,
    /// The version at which it was written.
    pub version: Version,
    /// Items of its batch, at least 1.
    pub batch_len: u32,
    /// Bytes of its key, or of what stands in the key's place.
    pub key_len: usize,
    /// Bytes of its value, or of what stands in the value's place.
    pub value_len: usize,
    checksum: u32,
}

impl Head {
    /// Looks at the beginning of a slot; none if nothing was written there.
    #[inline]
    pub fn of(slot: &[u8]) -> Result<Option<Head>, Malformed> {
        let Some(head) = slot.first_chunk::<ITEM_HEADER_BYTES>() else {
            return Err(Malformed("the slot ends within the item's head"));
        };
        if *head == [0; ITEM_HEADER_BYTES] {
            return Ok(None);
        }
        let kind = ItemKind::of_byte(head[KIND_OFFSET]).ok_or(Malformed("the item's kind is unknown"))?;
        let (key_len, value_len) = ((u32_at(head, 16) & KEY_LEN_MASK) as usize, u32_at(head, 4) as usize);
        if key_len > limits::ENGINE_KEY_BYTES_MAX || value_len > value_bytes_max(kind) {
            return Err(Malformed("a length of the item exceeds its limit"));
        }
        let batch_len = u32_at(head, 20);
        if batch_len == 0 {
            return Err(Malformed("the item's head is not one that was ever written"));
        }
        Ok(Some(Head {
            kind,
            version: Version::from_u64(u64_at(head, 8)),
            batch_len,
            key_len,
            value_len,
            checksum: u32_at(head, 0),
        }))
    }

    /// Bytes of the whole item.
    #[inline]
    pub fn item_len(&self) -> usize {
        ITEM_HEADER_BYTES + self.key_len + self.value_len
    }

    /// The item that begins with this head; `bytes` are exactly its own.
    #[inline]
    fn item<'a>(&self, bytes: &'a [u8]) -> Result<Item<'a>, Malformed> {
        let (key, value) = bytes[ITEM_HEADER_BYTES..].split_at(self.key_len);
        let content = match self.kind {
            ItemKind::Value => Content::Value { key, value },
            ItemKind::Tombstone if key.len() == TOMBSTONE_CONTENT_BYTES => {
                Content::Tombstone { place: u64_at(key, 0) }
            }
            ItemKind::Tombstone => return Err(Malformed("a tombstone's content has another length")),
            ItemKind::RangeDelete => match value {
                [BOUNDED, end @ ..] if end.len() <= limits::ENGINE_KEY_BYTES_MAX => {
                    Content::RangeDelete { start: key, end: Some(end) }
                }
                [UNBOUNDED] => Content::RangeDelete { start: key, end: None },
                _ => return Err(Malformed("a range delete's end is none")),
            },
        };
        Ok(Item { version: self.version, batch_len: self.batch_len, content })
    }
}

/// Verifies a long item of which not all bytes are in memory at once.
#[derive(Debug)]
pub struct Verifier {
    running: Running,
    checksum: u32,
    bytes_left: usize,
}

impl Verifier {
    /// Begins with the slot's first bytes, the head at least; the slot begins at the offset `place` of the
    /// slab with this identity. None if nothing was written there.
    pub fn new(begin: &[u8], id: FileIdentity, place: u64) -> Result<Option<(Head, Verifier)>, Malformed> {
        let Some(head) = Head::of(begin)? else { return Ok(None) };
        let mut verifier = Verifier {
            running: Running::new(id.salt(place)),
            checksum: head.checksum,
            bytes_left: head.item_len() - CHECKSUM_BYTES,
        };
        verifier.add(&begin[CHECKSUM_BYTES..]);
        Ok(Some((head, verifier)))
    }

    /// Takes the bytes that follow; those behind the item's end are passed over.
    pub fn add(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.bytes_left)];
        self.running.add(bytes);
        self.bytes_left -= bytes.len();
    }

    /// Whether that was the whole item, and good.
    pub fn is_good(self) -> bool {
        self.bytes_left == 0 && self.running.finish() == self.checksum
    }
}
