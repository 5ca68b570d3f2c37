//! What a table holds of a range, roughly, and how much of it is live.
//!
//! Where it stands: the keeper of space asks what range deletes wiped, and how much of a table is live.
//! Always true: answers come from the block index and at most a few blocks.

use kvilt_base::{KeyRange, Kind, Result, Version, sampling::step};

use super::{
    block::{Cursor, Layout},
    reader::Table,
};

/// Blocks of more bytes than this are not read for an estimate. Only a row that long, or `block_bytes` as
/// large, makes one.
const LARGE_BLOCK_BYTES: usize = 64 << 10;
/// An estimate reads at least this many blocks: rows of one block are often alike.
const SAMPLED_BLOCKS_MIN: u64 = 4;

impl Table {
    /// Stored bytes of the blocks that hold entries of `range`. One that the range cuts counts half; one of a
    /// single long row counts whole where the range begins in it and not at all where the range ends in it:
    /// most ranges begin at a row that exists, and end before one. Reads nothing.
    pub fn approximate_bytes_in(&self, range: &KeyRange) -> u64 {
        let Some((first, last)) = self.blocks_of(range) else { return 0 };
        let index = self.index();
        let mut bytes = index.stored_span(first, last + 1) as u64;
        let is_start_cut = index.cmp_first(&range.start).is_lt();
        let is_end_cut = range.end.as_deref().is_some_and(|end| index.cmp_last(end).is_ge());
        if is_start_cut && !self.is_large(first) {
            bytes -= index.stored_len(first) as u64 / 2;
        }
        if is_end_cut && !(is_start_cut && first == last) {
            let part = if self.is_large(last) { 1 } else { 2 };
            bytes -= index.stored_len(last) as u64 / part;
        }
        bytes
    }

    /// Thousandths of the table's bytes that are of puts that are their keys' newest entries, from blocks
    /// that hold about `rows` rows. A large block counts as one row, and is not read.
    ///
    /// Errors: `Corrupted`, `Io`.
    pub fn sampled_newest_permille(&self, rows: u64) -> Result<u64> {
        let index = self.index();
        if index.len() == 0 {
            return Ok(0);
        }
        let blocks = index.len() as u64;
        let wanted =
            (rows.saturating_mul(blocks) / self.entries().max(1)).max(SAMPLED_BLOCKS_MIN).min(blocks);
        if wanted == blocks {
            let (mut all, mut newest) = (0, 0);
            for block in 0..index.len() {
                all += index.stored_len(block) as u64;
                newest += self.newest_permille_of(block)? * index.stored_len(block) as u64;
            }
            return Ok(newest / all.max(1));
        }
        let (start, end) = (index.offset(0), index.offset(index.len()));
        let step = step(wanted, blocks, u128::from(end - start)) as u64;
        let (mut permille, mut read) = (0, 0);
        for offset in (start + step / 2..end).step_by(step as usize) {
            permille += self.newest_permille_of(index.block_at(offset))?;
            read += 1;
        }
        // Of a damaged index blocks may be empty.
        Ok(u64::checked_div(permille, read).unwrap_or(0))
    }

    fn newest_permille_of(&self, block: usize) -> Result<u64> {
        // Where versions of one key go on in the next block, the separator has a version.
        let is_continued = block > 0 && self.index().separator(block - 1).1 > Version::ZERO;
        if self.is_large(block) {
            return Ok(if is_continued { 0 } else { 1000 });
        }
        let (mut all, mut newest) = (0, 0);
        let mut last_key: Option<Vec<u8>> = None;
        self.for_each_entry(block, |cursor| {
            let bytes = (cursor.key.len() + cursor.value.len()) as u64;
            let is_newest = match &last_key {
                Some(last) => *last != cursor.key,
                None => !is_continued,
            };
            all += bytes;
            newest += if is_newest && cursor.kind == Kind::Put { bytes } else { 0 };
            cursor.key.clone_into(last_key.get_or_insert_default());
        })?;
        Ok((newest * 1000).checked_div(all).unwrap_or(1000))
    }

    /// Bytes that the newest entry of `key` takes, about; none if there is no such entry. A large block
    /// counts as one row, and is not read.
    ///
    /// Errors: `Corrupted`, `Io`.
    pub fn newest_bytes(&self, key: &[u8]) -> Result<u64> {
        if !self.may_have(key) {
            return Ok(0);
        }
        let block = self.index().find(key, Version::NEWEST);
        if block < self.index().len() && self.is_large(block) {
            return Ok(self.index().stored_len(block) as u64);
        }
        let mut bytes = 0;
        self.get(key, Version::NEWEST, |_, _, value| bytes = (key.len() + value.len()) as u64)?;
        Ok(bytes)
    }

    /// Bytes of the row that holds an average byte of the table, about, if it has blocks of `block_bytes`.
    /// Reads nothing.
    pub fn weighted_row_bytes(&self, block_bytes: usize) -> u64 {
        let index = self.index();
        let (mut long_rows, mut long_bytes, mut squares) = (0, 0, 0);
        // A row of `block_bytes` has a block of its own.
        let is_long = |&block: &usize| index.stored_len(block) > 2 * block_bytes;
        for block in (0..index.len()).filter(is_long) {
            let bytes = index.stored_len(block) as u128;
            (long_rows, long_bytes, squares) = (long_rows + 1, long_bytes + bytes, squares + bytes * bytes);
        }
        let other_bytes = u128::from(self.len()).saturating_sub(long_bytes);
        let other_rows = u128::from(self.entries().saturating_sub(long_rows).max(1));
        ((squares + other_bytes * other_bytes / other_rows) / u128::from(self.len().max(1))) as u64
    }

    /// Whether to read a block costs too much for an estimate.
    fn is_large(&self, block: usize) -> bool {
        self.index().stored_len(block) > LARGE_BLOCK_BYTES
    }

    /// First and last block that can hold entries of the range.
    fn blocks_of(&self, range: &KeyRange) -> Option<(usize, usize)> {
        let index = self.index();
        let first = index.find(&range.start, Version::NEWEST);
        if range.is_empty() || first == index.len() {
            return None;
        }
        let last = match &range.end {
            Some(end) if index.cmp_first(end).is_ge() => return None,
            Some(end) => index.find(end, Version::NEWEST).min(index.len() - 1),
            None => index.len() - 1,
        };
        Some((first, last))
    }

    fn for_each_entry(&self, block: usize, mut visit: impl FnMut(&Cursor)) -> Result<()> {
        let (mut stored, mut plain) = (Vec::new(), Vec::new());
        let bytes = self.read_block(block, &mut stored, &mut plain)?;
        let corrupted = |what| self.corrupted(block, what);
        let layout = Layout::of(bytes).map_err(corrupted)?;
        let mut cursor = Cursor::new();
        cursor.rewind(&layout, bytes, 0).map_err(corrupted)?;
        while cursor.step(&layout, bytes).map_err(corrupted)? {
            visit(&cursor);
        }
        Ok(())
    }
}
