//! Reads a whole table and checks everything that can be checked.
//!
//! Where it stands: `check` calls it. Always true: a table that passes answers every get and scan as its
//! writer was told.

use std::{collections::HashSet, ops::Range};

use kvilt_base::{Error, Result, Version};

use super::{
    block::{Cursor, Layout, RESTART_INTERVAL_MAX, order},
    reader::Table,
    source::FETCH_BYTES_MAX,
    stored::Opened,
};
use crate::{bloom, coding::Malformed};

impl Table {
    /// Reads every block and checks checksums, order, separators, filter and footer; returns the entries
    /// seen. `progress` is told of bytes as they are done, and returns false to cancel: then what was seen so
    /// far is returned. A damaged filter is no error here; see [`Table::has_damaged_filter`].
    ///
    /// Errors: `Corrupted` at the first thing wrong, `Io`.
    pub fn verify(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<u64> {
        let mut walk = Walk::default();
        let (mut stored, mut plain) = (Vec::new(), Vec::new());
        let mut fetched = 0..0;
        for block in 0..self.index().len() {
            if block == fetched.end {
                fetched = self.fetch_from(block, &mut stored)?;
            }
            let start = self.index().stored_span(fetched.start, block);
            let stored = &stored[start..start + self.index().stored_len(block)];
            let bytes = match self.open_stored(block, stored, &mut plain)? {
                Opened::Plain(len) => &stored[..len],
                Opened::Unpacked => &plain,
            };
            self.verify_block(block, bytes, &mut walk).map_err(|what| self.corrupted(block, what))?;
            if !progress(self.index().stored_len(block) as u64) {
                return Ok(walk.entries);
            }
        }
        let is_as_said = walk.entries == self.entries()
            && walk.version_max == self.version_max()
            && walk.payload_bytes == self.payload_bytes()
            && self.index().cmp_last(&walk.last_key).is_eq();
        if !is_as_said {
            let message = "the footer or the index contradicts the entries";
            return Err(Error::corrupted(self.name(), self.index().offset(self.index().len()), message));
        }
        progress(self.len() - (self.index().offset(self.index().len())));
        Ok(walk.entries)
    }

    /// Reads the stored bytes of a block and some behind it; says of which. What cannot be read together is
    /// read alone, so that an error names the block.
    fn fetch_from(&self, block: usize, stored: &mut Vec<u8>) -> Result<Range<usize>> {
        let index = self.index();
        let is_much = |end: &usize| index.stored_span(block, *end) > FETCH_BYTES_MAX;
        let end = (block + 2..=index.len()).find(is_much).map_or(index.len(), |end| end - 1);
        if self.read_stored(block, end, stored).is_ok() {
            return Ok(block..end);
        }
        self.read_stored(block, block + 1, stored)?;
        Ok(block..block + 1)
    }

    fn verify_block(&self, block: usize, bytes: &[u8], walk: &mut Walk) -> Result<(), Malformed> {
        let layout = Layout::of(bytes)?;
        let (separator, separator_version) = self.index().separator(block);
        let restarts = restart_offsets(&layout, bytes)?;
        let mut cursor = Cursor::new();
        cursor.rewind(&layout, bytes, 0)?;
        let mut since_restart = 0;
        let mut restarts_seen = 0;
        loop {
            let offset = cursor.next_offset();
            if !cursor.step(&layout, bytes)? {
                break;
            }
            since_restart += 1;
            if restarts.contains(&offset) {
                restarts_seen += 1;
                since_restart = 0;
            }
            if since_restart >= RESTART_INTERVAL_MAX {
                return Err(Malformed("a block has too few restart points"));
            }
            walk.take_in(self, &cursor)?;
            if order(&cursor.key, cursor.version, &separator, separator_version).is_gt() {
                return Err(Malformed("an entry is behind its block's separator"));
            }
        }
        if restarts_seen != layout.restart_count() {
            return Err(Malformed("a restart point is no entry"));
        }
        walk.separator = Some((separator, separator_version));
        Ok(())
    }
}

/// What a walk over all entries has seen.
#[derive(Default)]
struct Walk {
    entries: u64,
    payload_bytes: u64,
    version_max: Version,
    last_key: Vec<u8>,
    last_version: Version,
    /// The separator of the block before.
    separator: Option<(Vec<u8>, Version)>,
}

impl Walk {
    fn take_in(&mut self, table: &Table, cursor: &Cursor) -> Result<(), Malformed> {
        let (key, version) = (cursor.key.as_slice(), cursor.version);
        if self.entries == 0 && table.index().cmp_first(key).is_ne() {
            return Err(Malformed("the index names another first key"));
        }
        if self.entries > 0 && !order(&self.last_key, self.last_version, key, version).is_lt() {
            return Err(Malformed("entries are out of order"));
        }
        if let Some((separator, separator_version)) = &self.separator
            && !order(separator, *separator_version, key, version).is_lt()
        {
            return Err(Malformed("an entry is before the separator of the block before"));
        }
        if table.filter().is_some_and(|filter| !filter.may_contain(bloom::hash(key))) {
            return Err(Malformed("the filter denies a key"));
        }
        self.entries += 1;
        self.payload_bytes += (key.len() + cursor.value.len()) as u64;
        self.version_max = self.version_max.max(version);
        self.last_version = version;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }
}

/// Offsets of all restart points, whose entries must have whole keys.
fn restart_offsets(layout: &Layout, bytes: &[u8]) -> Result<HashSet<usize>, Malformed> {
    let mut offsets = HashSet::with_capacity(layout.restart_count());
    for restart in 0..layout.restart_count() {
        let offset = layout.restart(bytes, restart)?;
        if layout.entry(bytes, offset)?.shared != 0 {
            return Err(Malformed("a restart point's key is not whole"));
        }
        offsets.insert(offset);
    }
    Ok(offsets)
}
