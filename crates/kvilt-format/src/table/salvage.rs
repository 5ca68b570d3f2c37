//! What is left of a damaged table: every good block, and which keys the bad ones may have had.

use std::sync::Arc;

use kvilt_base::{EntryRef, Kind, Result, Version};

use super::{
    block::{Cursor, Layout, order},
    reader::Table,
};
use crate::coding::Malformed;

/// A block of a table that may be damaged.
#[derive(Debug)]
pub enum SalvagedBlock {
    /// Its entries, in order.
    Good(Vec<SalvagedEntry>),
    /// It cannot be read.
    Bad {
        /// Where it lies.
        offset: u64,
        /// Its keys are not before this one; it may hold versions of this one, too.
        from: Vec<u8>,
        /// Its keys are not behind this one.
        to: Vec<u8>,
        /// What is wrong.
        message: String,
    },
}

/// An entry, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedEntry {
    /// Its key.
    pub key: Vec<u8>,
    /// Its version.
    pub version: Version,
    /// What it does.
    pub kind: Kind,
    /// Its value.
    pub value: Vec<u8>,
}

impl SalvagedEntry {
    /// A copy of an entry.
    pub fn of(entry: &EntryRef<'_>) -> Self {
        let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
        SalvagedEntry { key, version: entry.version, kind: entry.kind, value }
    }
}

impl Table {
    /// How many blocks it has.
    pub fn blocks(&self) -> usize {
        self.index().len()
    }

    /// The entries of a block, or what is known of a block that is damaged.
    ///
    /// Errors: `Io` if it cannot be read at all.
    pub fn salvage_block(self: &Arc<Self>, block: usize) -> Result<SalvagedBlock> {
        let (mut stored, mut plain) = (Vec::new(), Vec::new());
        let bad = |message: &str| SalvagedBlock::Bad {
            offset: self.index().offset(block),
            from: match block {
                0 => self.first_key(),
                _ => self.index().separator(block - 1).0,
            },
            to: self.index().separator(block).0,
            message: message.to_string(),
        };
        let bytes = match self.read_block(block, &mut stored, &mut plain) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == kvilt_base::ErrorKind::Corrupted => return Ok(bad(e.message())),
            Err(e) => return Err(e),
        };
        Ok(match self.entries_of(block, bytes) {
            Ok(entries) => SalvagedBlock::Good(entries),
            Err(what) => bad(what.0),
        })
    }

    fn entries_of(&self, block: usize, bytes: &[u8]) -> Result<Vec<SalvagedEntry>, Malformed> {
        let layout = Layout::of(bytes)?;
        let (separator, separator_version) = self.index().separator(block);
        let mut cursor = Cursor::new();
        cursor.rewind(&layout, bytes, 0)?;
        let mut entries: Vec<SalvagedEntry> = Vec::new();
        while cursor.step(&layout, bytes)? {
            let (key, version) = (cursor.key.as_slice(), cursor.version);
            let is_behind = entries.last().is_none_or(|e| order(&e.key, e.version, key, version).is_lt());
            if !is_behind || order(key, version, &separator, separator_version).is_gt() {
                return Err(Malformed("entries are out of order"));
            }
            let value = &bytes[cursor.value.clone()];
            entries.push(SalvagedEntry::of(&EntryRef { key, version, kind: cursor.kind, value }));
        }
        Ok(entries)
    }
}
