//! `Records`: the redo log of a damaged store, record by record.
//!
//! What is always true: records are given in the order in which they were appended. What is missing or not
//! whole counts as damage only where it is known that more was synced.

use std::{collections::BTreeMap, sync::Arc};

use kvilt_base::{
    Disk, Error, ErrorKind, File, FileName, KeyRange, Listed, RangeTombstone, Result, Version, directory,
};
use kvilt_format::{
    FileIdentity,
    names::REDO,
    redo::{Change, Changes, Ending, RedoReader, SalvagedRecord, Segment, read_sequence},
};

use kvilt_sync::tombstones::Tombstones;

use super::{Saving, as_damage};
use crate::{
    log::{Known, Position},
    sources::open_needed,
};

/// What the log does to keys, in the end.
#[derive(Default)]
pub(super) struct Written {
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Above the versions of all tables.
    deleted: Tombstones,
}

/// See the module.
pub(super) struct Records {
    /// The segments that are needed.
    segments: BTreeMap<u64, Arc<dyn File>>,
    store_id: u64,
    first: u64,
    /// All before this was synced.
    synced: Position,
    /// Nothing that was stored is missing.
    is_whole: bool,
}

impl Records {
    /// Looks which segments there are. Nothing is known of a log without a catalogue; then the last ones
    /// count that follow each other.
    pub(super) fn look(disk: &dyn Disk, store_id: u64, known: Option<Known>) -> Result<Records> {
        let (mut segments, mut without_header) = (BTreeMap::new(), Vec::new());
        for item in directory::list(disk)? {
            let Listed::Ours(name @ FileName::Of(REDO, number)) = item else { continue };
            let Ok(file) = as_damage(open_needed(disk, name))? else { continue };
            match as_damage(read_sequence(&*file, FileIdentity { store_id, number }))? {
                Ok(Some(sequence)) => drop(segments.insert(sequence, file)),
                Ok(None) | Err(_) => without_header.push(file),
            }
        }
        let (first, synced, is_whole) = match known {
            Some(Known { first, synced, is_whole }) => (first, synced, is_whole),
            None => (begin_of_last_run(&segments), Position { sequence: 0, offset: 0 }, true),
        };
        let mut records = Records { segments, store_id, first, synced, is_whole };
        records.find_places(without_header)?;
        records.segments = records.segments.split_off(&first);
        records.look_for_marks()?;
        Ok(records)
    }

    /// Bytes of the segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().filter_map(|file| file.len().ok()).sum()
    }

    /// Finds out which of the missing segments files without a header are.
    fn find_places(&mut self, files: Vec<Arc<dyn File>>) -> Result<()> {
        let last = self.segments.keys().next_back().copied().unwrap_or(0).max(self.synced.sequence);
        for file in files {
            let missing: Vec<u64> =
                (self.first..=last).filter(|sequence| !self.segments.contains_key(sequence)).collect();
            for sequence in missing {
                if self.reader(&file, sequence)?.has_any() {
                    self.segments.insert(sequence, file);
                    break;
                }
            }
        }
        Ok(())
    }

    fn look_for_marks(&mut self) -> Result<()> {
        for (sequence, file) in &self.segments {
            if let Some(offset) = self.reader(file, *sequence)?.synced_to() {
                self.synced = self.synced.max(Position { sequence: *sequence, offset });
            }
        }
        Ok(())
    }

    fn reader(&self, file: &Arc<dyn File>, sequence: u64) -> Result<RedoReader> {
        let id = FileIdentity { store_id: self.store_id, number: file.name().number() };
        RedoReader::open_as(file, Segment { id, sequence }, self.is_whole)
    }

    /// What the records do.
    pub(super) fn read(&self, disk: &dyn Disk, saving: &mut Saving<'_>) -> Result<Written> {
        let mut written = Written::default();
        let mut sequence = self.first;
        loop {
            let Some(file) = self.segments.get(&sequence) else {
                if sequence > self.synced.sequence || self.synced <= (Position { sequence, offset: 0 }) {
                    return Ok(written);
                }
                let message = format!("segment {sequence} of the redo log is missing, and more was synced");
                lose(&Error::new(ErrorKind::Corrupted, message).in_file(disk.place()), saving);
                sequence += 1;
                continue;
            };
            let mut reader = self.reader(file, sequence)?;
            let synced = match sequence.cmp(&self.synced.sequence) {
                std::cmp::Ordering::Less => u64::MAX,
                std::cmp::Ordering::Equal => self.synced.offset,
                std::cmp::Ordering::Greater => 0,
            };
            while let Some(record) = reader.salvage(synced) {
                match record {
                    SalvagedRecord::Good(changes) => written.apply(changes),
                    SalvagedRecord::Bad { offset, bytes } => {
                        let message = match bytes {
                            0 => "the redo log ends here, and more was synced".to_string(),
                            bytes => format!("{bytes} bytes of the redo log are damaged, and were synced"),
                        };
                        lose(&Error::corrupted(file.name(), offset, message), saving);
                    }
                }
            }
            saving.read(file.len().map_err(|e| Error::io("ask for a length", e).in_file(file.name()))?);
            if reader.ending() == Ending::Open && synced < u64::MAX {
                return Ok(written);
            }
            sequence += 1;
        }
    }
}

/// Of the segments that follow each other, up to the last one, the first.
fn begin_of_last_run(segments: &BTreeMap<u64, Arc<dyn File>>) -> u64 {
    let last = segments.keys().next_back().copied().unwrap_or(1);
    let followed =
        segments.keys().rev().zip((0..=last).rev()).take_while(|(found, wanted)| **found == *wanted);
    followed.last().map_or(1, |(found, _)| *found)
}

/// Writes of the log are lost, so any row may be older than it was.
fn lose(error: &Error, saving: &mut Saving<'_>) {
    saving.lose(error, KeyRange::all());
    saving.report.is_proven = false;
}

impl Written {
    fn apply(&mut self, changes: Changes<'_>) {
        for change in changes {
            match change {
                Change::Put { key, value } => drop(self.rows.insert(key.to_vec(), Some(value.to_vec()))),
                Change::Delete { key } => drop(self.rows.insert(key.to_vec(), None)),
                Change::DeleteRange { start, end } => {
                    let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
                    self.rows.retain(|key, _| !range.contains(key));
                    self.deleted.push_old(&RangeTombstone { range, version: Version::NEWEST });
                }
            }
        }
    }

    /// Whether a row of a table was changed since.
    pub(super) fn changes(&self, key: &[u8]) -> bool {
        self.rows.contains_key(key) || self.deleted.delete(key, Version::default())
    }

    pub(super) fn save(self, saving: &mut Saving<'_>) -> Result<()> {
        let rows = self.rows.into_iter().filter_map(|(key, value)| Some((key, value?)));
        rows.into_iter().try_for_each(|(key, value)| saving.row(&key, &value))
    }
}
