//! `Tables`: the sorted tables of a damaged store, merged by key.
//!
//! What is always true: what a stream has not given yet lies behind its head, so each block is known to be
//! damaged before a key that it may have had comes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use kvilt_base::{Disk, Error, FileName, KeyRange, Kind, Result};
use kvilt_format::{
    levels::TableOf,
    names::TABLE,
    table::{SalvagedBlock, SalvagedEntry, Table},
};
use kvilt_sync::tombstones::Tombstones;

use super::{Found, Saving, as_damage, between, records::Written};
use crate::sources::open_table;

/// See the module.
pub(super) struct Tables<'f> {
    /// Newest first: each table of level 0, then each level.
    streams: Vec<Stream<'f>>,
    /// The streams with an entry of a key, in order.
    heads: BTreeMap<Vec<u8>, Vec<usize>>,
    tombstones: &'f Tombstones,
    /// Whether it is known which of two streams is newer. If not, all rows are saved.
    is_known: bool,
}

/// Tables whose keys follow each other, read block by block.
struct Stream<'f> {
    disk: &'f dyn Disk,
    store_id: u64,
    tables: std::slice::Iter<'f, TableOf>,
    reading: Option<Reading>,
    entries: VecDeque<SalvagedEntry>,
    /// Keys that it may have had in what is damaged, ascending.
    hidden: VecDeque<KeyRange>,
}

struct Reading {
    table: Arc<Table>,
    next_block: usize,
}

impl<'f> Tables<'f> {
    pub(super) fn open(disk: &'f dyn Disk, found: &'f Found, saving: &mut Saving<'_>) -> Result<Tables<'f>> {
        let level_0 = found.levels.iter().take(1).flat_map(|level| level.chunks(1));
        let runs = level_0.chain(found.levels.iter().skip(1).map(Vec::as_slice));
        let streams = runs.map(|tables| Stream::new(disk, found.store_id, tables)).collect();
        let is_known = found.known.is_some();
        let mut tables = Tables { streams, heads: BTreeMap::new(), tombstones: &found.tombstones, is_known };
        for number in 0..tables.streams.len() {
            tables.advance(number, saving)?;
        }
        Ok(tables)
    }

    /// Saves the newest row of each key that the log does not change, unless it may be older than what is
    /// damaged.
    pub(super) fn save(mut self, written: &Written, saving: &mut Saving<'_>) -> Result<()> {
        while let Some((key, numbers)) = self.heads.pop_first() {
            let newest = self.newest(&numbers);
            let may_be_older = self.streams[..=newest].iter_mut().any(|stream| stream.may_have_had(&key));
            let entry = &self.streams[newest].entries[0];
            let is_deleted = self.tombstones.delete(&key, entry.version) || written.changes(&key);
            match (entry.kind == Kind::Put && !is_deleted, may_be_older && self.is_known) {
                (true, false) => saving.row(&key, &entry.value)?,
                (true, true) => saving.report.rows_withheld += 1,
                (false, _) => {}
            }
            for number in numbers {
                while self.streams[number].entries.front().is_some_and(|entry| entry.key == key) {
                    self.streams[number].entries.pop_front();
                    self.streams[number].fill(saving)?;
                }
                self.note(number);
            }
        }
        Ok(())
    }

    /// The stream with the newest entry of a key, the first of equal ones.
    fn newest(&self, numbers: &[usize]) -> usize {
        let version = |number: usize| self.streams[number].entries[0].version;
        let newer = |a: usize, b: &usize| if version(*b) > version(a) { *b } else { a };
        numbers[1..].iter().fold(numbers[0], newer)
    }

    fn advance(&mut self, number: usize, saving: &mut Saving<'_>) -> Result<()> {
        self.streams[number].fill(saving)?;
        self.note(number);
        Ok(())
    }

    /// Notes the head of a stream.
    fn note(&mut self, number: usize) {
        if let Some(entry) = self.streams[number].entries.front() {
            let numbers = self.heads.entry(entry.key.clone()).or_default();
            let at = numbers.partition_point(|other| *other < number);
            numbers.insert(at, number);
        }
    }
}

impl<'f> Stream<'f> {
    fn new(disk: &'f dyn Disk, store_id: u64, tables: &'f [TableOf]) -> Self {
        let (entries, hidden) = (VecDeque::new(), VecDeque::new());
        Stream { disk, store_id, tables: tables.iter(), reading: None, entries, hidden }
    }

    /// Reads on until there is an entry, or no table any more.
    fn fill(&mut self, saving: &mut Saving<'_>) -> Result<()> {
        while self.entries.is_empty() {
            let Some(reading) = &mut self.reading else {
                match self.tables.next() {
                    Some(of) => self.begin(of, saving)?,
                    None => return Ok(()),
                }
                continue;
            };
            if reading.next_block == reading.table.blocks() {
                self.reading = None;
                continue;
            }
            let block = reading.table.salvage_block(reading.next_block)?;
            let (id, bytes) = (reading.table.id(), reading.table.len() / reading.table.blocks() as u64);
            reading.next_block += 1;
            saving.read(bytes);
            match block {
                SalvagedBlock::Good(entries) => self.entries.extend(entries),
                SalvagedBlock::Bad { offset, from, to, message } => {
                    let error = Error::corrupted(FileName::Of(TABLE, id.number), offset, message);
                    self.lose(&error, between(from, &to), saving);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, of: &TableOf, saving: &mut Saving<'_>) -> Result<()> {
        match as_damage(open_table(self.disk, self.store_id, of))? {
            Ok(table) => self.reading = Some(Reading { table, next_block: 0 }),
            Err(error) => {
                saving.read(of.len);
                // Without a catalogue nobody knows which keys it had.
                let range = match of.last_key.is_empty() && of.first_key.is_empty() {
                    true => KeyRange::all(),
                    false => between(of.first_key.clone(), &of.last_key),
                };
                self.lose(&error, range, saving);
            }
        }
        Ok(())
    }

    fn lose(&mut self, error: &Error, range: KeyRange, saving: &mut Saving<'_>) {
        saving.lose(error, range.clone());
        self.hidden.push_back(range);
    }

    /// Whether it may have had a newer entry of a key than it has given. Keys ascend from call to call.
    fn may_have_had(&mut self, key: &[u8]) -> bool {
        while self.hidden.front().is_some_and(|range| range.end.as_deref().is_some_and(|end| end <= key)) {
            self.hidden.pop_front();
        }
        self.hidden.front().is_some_and(|range| range.contains(key))
    }
}
