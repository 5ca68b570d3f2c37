//! `MunkOrder`: a log's order made of its chunk's munk, so that the first scan without the munk need not read
//! the log.
//!
//! The munk has the keys, sorted; the log's index has, by the hash of a key, where its records lie. What
//! readers need of a key without a delete is in both, so nothing has to be read, but where one hash may mean
//! several records:
//!
//! - keys that share a hash, of which one may have no record in this log at all;
//! - a key of which the munk has several versions, for open views;
//! - a key that was put again while the munk was walked.
//!
//! The records of these few are read one by one. Records that no reader needs any more are left out.

use std::{collections::HashSet, ops::Range, sync::Arc};

use kvilt_base::{EntryRef, Kind, Large, Result, Version};
use kvilt_sync::published::pin;

use super::{LogOrder, Record};
use crate::{
    files::Files,
    funk::{log::ChunkLog, log_index::ChargedIndex},
    key_hash::key_hash,
};

/// With more records to be read, the first scan may as well read the log.
const READS_MAX: usize = 64;

/// An order that is being made: takes the munk's rows.
pub(crate) struct MunkOrder<'l> {
    log: &'l ChunkLog,
    index: Arc<ChargedIndex>,
    /// What of the log it covers.
    place: Range<u64>,
    /// Keys of the log, one behind the other.
    keys: Large,
    rows: Vec<Row>,
}

/// The newest row of a key, which has a record in the log unless another key has its hash.
struct Row {
    key: Range<usize>,
    hash: u32,
    version: Version,
    kind: Kind,
    /// Where the newest record with this hash lies.
    offset: u64,
    /// Whether the munk has older versions of the key.
    has_older: bool,
}

impl<'l> MunkOrder<'l> {
    pub(crate) fn new(log: &'l ChunkLog, index: Arc<ChargedIndex>, place: Range<u64>) -> Self {
        MunkOrder { log, index, place, keys: Large::default(), rows: Vec::new() }
    }

    /// Takes the munk's next row: by key ascending, version descending.
    pub(crate) fn push(&mut self, row: EntryRef<'_>) {
        if let Some(last) = self.rows.last_mut().filter(|last| self.keys[last.key.clone()] == *row.key) {
            last.has_older = true;
            return;
        }
        let hash = key_hash(row.key);
        let newest = self.index.index.offsets(&pin(), hash).next();
        if let Some(offset) = newest.filter(|&offset| offset >= self.place.start) {
            let start = self.keys.len();
            self.keys.extend_from_slice(row.key);
            let key = start..self.keys.len();
            let EntryRef { version, kind, .. } = row;
            self.rows.push(Row { key, hash, version, kind, offset, has_older: false });
        }
    }

    /// The order; none if too much would have to be read, or if a delete came meanwhile.
    pub(crate) fn finish(self, files: &Files) -> Result<Option<LogOrder>> {
        let ambiguous = self.ambiguous_hashes(files)?;
        if self.log.has_deletes() {
            return Ok(None);
        }
        let is_certain = |row: &Row| !row.has_older && !ambiguous.contains(&row.hash);
        let (mut records, mut reads) = (Vec::with_capacity(self.rows.len()), 0);
        for row in &self.rows {
            let key = &self.keys[row.key.clone()];
            if is_certain(row) {
                records.push(Record { key, version: row.version, offset: row.offset, kind: row.kind });
                continue;
            }
            let offsets =
                self.index.index.offsets(&pin(), row.hash).filter(|offset| self.place.contains(offset));
            let offsets: Vec<u64> = offsets.take(READS_MAX + 1).collect();
            reads += offsets.len();
            if reads > READS_MAX {
                return Ok(None);
            }
            for offset in offsets {
                let read = |entry: EntryRef<'_>, _| (entry.key == key).then_some((entry.version, entry.kind));
                let found = self.log.record_at(files, offset, read)?;
                records.extend(found.map(|(version, kind)| Record { key, version, offset, kind }));
            }
        }
        Ok(Some(LogOrder::of(records.into_iter(), (self.keys.len(), self.place.clone()))))
    }

    /// Hashes of several keys, and of keys that were put since the munk was looked at.
    fn ambiguous_hashes(&self, files: &Files) -> Result<HashSet<u32>> {
        let mut hashes: Vec<u32> = self.rows.iter().map(|row| row.hash).collect();
        hashes.sort_unstable();
        let mut ambiguous: HashSet<u32> =
            hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        self.log.for_each(files, self.place.end, self.log.len(), &mut |_, entry, _| {
            ambiguous.insert(key_hash(entry.key));
            Ok(())
        })?;
        Ok(ambiguous)
    }
}
