//! `EntryRef`: key + version + what was written; the unit that everything moves.

use crate::Version;

/// What a write did to its key, or to a range that begins at its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key has this value.
    Put = 0,
    /// The key has no value.
    Tombstone = 1,
    /// No key from this one up to (exclusive) the one in the value has a value; see
    /// [`crate::RangeTombstone`]. Appears in logs only.
    RangeTombstone = 2,
}

impl Kind {
    /// The kind with this byte on disk.
    pub fn from_u8(byte: u8) -> Option<Kind> {
        match byte {
            0 => Some(Kind::Put),
            1 => Some(Kind::Tombstone),
            2 => Some(Kind::RangeTombstone),
            _ => None,
        }
    }
}

/// One entry, borrowed from wherever it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// When it was written.
    pub version: Version,
    /// What was done.
    pub kind: Kind,
    /// The value; empty for a tombstone.
    pub value: &'a [u8],
}

impl EntryRef<'_> {
    /// Key and value bytes together.
    pub fn payload_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}
