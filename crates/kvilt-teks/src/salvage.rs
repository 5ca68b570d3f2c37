//! What is left of a damaged store: the newest row of each key, of its redo log and of its sorted tables.
//!
//! A row is given away only if nothing newer of its key can be among what is damaged. So damage of a table
//! hides what lies under it in older ones:
//!
//! | damaged | keys that may be lost |
//! | --- | --- |
//! | a block of a table | those between its neighbours' separators |
//! | a table's header, footer or index; a missing file | the table's |
//! | a record of the redo log that was synced; a missing segment | any |
//! | the catalogue | any: all tables count that are found, and what range deletes hid may be back |
//!
//! Records that are whole count also behind one that is damaged: a delete among them is not to be undone.
//! Nothing here writes to the store's directory. In memory are a block of each table and the log's rows.

mod records;
mod tables;

use std::any::Any;

use kvilt_base::{
    Damage, Disk, Error, ErrorKind, File, FileName, KeyRange, Listed, RepairReport, Result, Salvaged,
    directory, disk::Habitat, key::successor,
};
use kvilt_format::{
    HEADER_BYTES,
    levels::{Levels, TableOf},
    names::{LEVELS, REDO, TABLE},
    read_identity,
};
use kvilt_sync::tombstones::Tombstones;

use self::{records::Records, tables::Tables};
use crate::{
    catalogue,
    log::{Known, Position},
    sources::open_needed,
};

/// Takes the reader's lock.
pub(crate) fn lock_to_salvage(disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>> {
    let listed = directory::list(disk)?;
    let is_ours = |item: &Listed| match item {
        Listed::Ours(name) => [LEVELS, TABLE, REDO].contains(&name.kind()),
        Listed::Foreign(_) => false,
    };
    if !listed.iter().any(is_ours) {
        return Err(Error::invalid(format!("there is nothing of a store in {}", disk.place())));
    }
    directory::lock_to_read(disk)
}

/// Gives all that can be saved to `save`.
pub(crate) fn salvage(
    disk: &dyn Disk,
    save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let _lock = lock_to_salvage(disk)?;
    let found = Found::look(disk)?;
    let mut report = RepairReport { is_proven: found.doubt.is_none(), ..RepairReport::default() };
    if let Some(doubt) = &found.doubt {
        report.losses.push(doubt.clone());
    }
    let records = Records::look(disk, found.store_id, found.known)?;
    let total = found.table_bytes() + records.bytes();
    let mut saving = Saving { report, save, progress, done: 0, total };
    let written = records.read(disk, &mut saving)?;
    Tables::open(disk, &found, &mut saving)?.save(&written, &mut saving)?;
    written.save(&mut saving)?;
    (saving.progress)(total, total);
    Ok(saving.report)
}

/// What there is.
struct Found {
    store_id: u64,
    /// By level, as in a catalogue.
    levels: Vec<Vec<TableOf>>,
    tombstones: Tombstones,
    /// None if no catalogue is whole.
    known: Option<Known>,
    /// Why it is not proven that this was the store's last state.
    doubt: Option<Damage>,
}

impl Found {
    fn look(disk: &dyn Disk) -> Result<Found> {
        let listed = directory::list(disk)?;
        let newest = directory::numbers(&listed, LEVELS).max();
        match catalogue::newest(disk, &listed) {
            Ok(Some(levels)) => {
                let doubt = newest.filter(|newest| *newest > levels.number).map(|newest| {
                    doubt(
                        FileName::Of(LEVELS, newest),
                        "the newest catalogue is not whole, so an older one was taken",
                    )
                });
                Ok(Found::by(disk, levels, doubt))
            }
            Ok(None) => {
                Found::without_catalogue(disk, &listed, FileName::Of(LEVELS, 1), "the catalogue is missing")
            }
            Err(error) if error.kind() == ErrorKind::Corrupted => {
                let name = FileName::Of(LEVELS, newest.unwrap_or(1));
                Found::without_catalogue(disk, &listed, name, "the catalogue is damaged")
            }
            Err(error) => Err(error),
        }
    }

    fn by(disk: &dyn Disk, levels: Levels, doubt: Option<Damage>) -> Found {
        let (sequence, offset) = levels.log_synced;
        let is_whole = levels.habitat != Habitat::NOWHERE && levels.habitat == Habitat::of(disk);
        let known = Known { first: levels.log_first, synced: Position { sequence, offset }, is_whole };
        let mut tombstones = Tombstones::default();
        levels.tombstones.iter().for_each(|tombstone| tombstones.push_old(tombstone));
        Found { store_id: levels.store_id, levels: levels.levels, tombstones, known: Some(known), doubt }
    }

    /// All tables that there are, each for itself: of a key, the newest version counts.
    fn without_catalogue(disk: &dyn Disk, listed: &[Listed], name: FileName, why: &str) -> Result<Found> {
        let mut numbers: Vec<u64> = directory::numbers(listed, TABLE).collect();
        // Of equal versions the newer table's counts.
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        let store_id = store_id(disk, listed)?;
        let mut tables = Vec::with_capacity(numbers.len());
        for number in numbers {
            let len = directory::len_of(disk, FileName::Of(TABLE, number))?;
            let (first_key, last_key, version_min) = Default::default();
            tables.push(TableOf { number, len, version_min, first_key, last_key });
        }
        let (levels, tombstones) = (vec![tables], Tombstones::default());
        Ok(Found { store_id, levels, tombstones, known: None, doubt: Some(doubt(name, why)) })
    }

    fn table_bytes(&self) -> u64 {
        self.levels.iter().flatten().map(|table| table.len).sum()
    }
}

fn doubt(name: FileName, why: &str) -> Damage {
    Damage {
        what: "catalogue".to_string(),
        file: Some(name.to_string()),
        offset: None,
        range: Some(KeyRange::all()),
        message: format!("{why}: what was saved may be older than it was, or deleted since"),
    }
}

/// The store that most files are of, by what they say themselves.
fn store_id(disk: &dyn Disk, listed: &[Listed]) -> Result<u64> {
    let mut ids = Vec::new();
    for item in listed {
        let Listed::Ours(name @ FileName::Of(kind, _)) = item else { continue };
        if ![LEVELS, TABLE, REDO].contains(kind) {
            continue;
        }
        let mut head = [0; HEADER_BYTES];
        let read = as_damage(open_needed(disk, *name).and_then(|file| read_at(&*file, *name, &mut head)))?;
        // A file without a sound header says nothing.
        if let Ok(id) = read.and_then(|len| read_identity(&head[..len], *name)) {
            ids.push(id.store_id);
        }
    }
    ids.sort_unstable();
    let most = ids.chunk_by(|a, b| a == b).max_by_key(|same| same.len());
    Ok(most.map_or(0, |same| same[0]))
}

fn read_at(file: &dyn File, name: FileName, into: &mut [u8]) -> Result<usize> {
    file.read_full_at(0, into).map_err(|e| Error::io("read a header", e).in_file(name))
}

/// Errors other than damage end a salvage: they may pass, and then more can be saved.
fn as_damage<T>(result: Result<T>) -> Result<Result<T, Error>> {
    match result {
        Err(error) if error.kind() != ErrorKind::Corrupted => Err(error),
        other => Ok(other),
    }
}

/// What was saved, and where it goes.
struct Saving<'s> {
    report: RepairReport,
    save: &'s mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    progress: &'s mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

impl Saving<'_> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.report.rows += 1;
        self.report.bytes += (key.len() + value.len()) as u64;
        (self.save)(Salvaged::Row(key, value))
    }

    fn lose(&mut self, error: &Error, range: KeyRange) {
        self.report.losses.push(Damage {
            what: "checksum".to_string(),
            file: error.file().map(str::to_string),
            offset: error.offset(),
            range: Some(range),
            message: error.message().to_string(),
        });
    }

    fn read(&mut self, bytes: u64) {
        self.done = (self.done + bytes).min(self.total);
        (self.progress)(self.done, self.total);
    }
}

/// The keys from one to another, with both.
fn between(first: Vec<u8>, last: &[u8]) -> KeyRange {
    KeyRange { start: first, end: Some(successor(last)) }
}
