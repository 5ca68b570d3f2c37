//! The stores of `teks` that are damaged: one with most rows in sorted tables, one with most in its redo log.
//!
//! Both were closed. What a power cut leaves has an end that nothing vouches for: a log that is shorter, or
//! whose last sector is damaged, is one that an earlier power cut left.

use std::{collections::BTreeMap, iter, ops::Range, time::Duration};

use kvilt_base::{Disk as _, Durability, Error, FileName, Listed, Result, directory};
use kvilt_format::{
    FileIdentity, HEADER_BYTES,
    levels::Levels,
    names::{LEVELS, REDO, TABLE},
    redo::{self, WORD_BYTES},
};
use kvilt_io::MemoryDisk;
use kvilt_teks::Options;

use super::subject;
use crate::subject::{LastEnd, Recipe};

/// Between syncs in the background.
const INTERVAL: Duration = Duration::from_millis(300);

pub(super) fn references() -> Vec<Recipe> {
    // Tables of 32 KiB are rotated, flushed and merged all the time; one of 128 KiB has more than a run puts.
    [256 << 10, 1 << 20].map(recipe).into()
}

fn recipe(budget_bytes: u64) -> Recipe {
    let store = || subject(Options::default(), Durability::Async { interval: INTERVAL }, budget_bytes);
    Recipe {
        earlier: vec![store()],
        last: store(),
        end: LastEnd::Close,
        synced,
        is_unfound_when_older: |_| false,
    }
}

/// What of a store's files counts: the catalogue, its tables, and of the redo log what was synced, but not
/// what fills a record's last word, and not the mark behind the last sync.
fn synced(disk: &MemoryDisk) -> Result<BTreeMap<FileName, Vec<Range<u64>>>> {
    let files = disk.snapshot();
    let listed = directory::list(disk)?;
    let number = directory::numbers(&listed, LEVELS).max().expect("the reference is a store");
    let name = FileName::Of(LEVELS, number);
    let levels = Levels::decode(&files[&name], number)?;
    let mut synced = BTreeMap::from([(name, from_start(files[&name].len() as u64))]);
    for table in levels.levels.iter().flatten() {
        synced.insert(FileName::Of(TABLE, table.number), from_start(table.len));
    }
    for name in listed.iter().filter_map(|listed| match listed {
        Listed::Ours(name) if name.kind() == REDO => Some(*name),
        Listed::Ours(_) | Listed::Foreign(_) => None,
    }) {
        let id = FileIdentity { store_id: levels.store_id, number: name.number() };
        let file = disk.open(name).map_err(|e| Error::io("open", e).in_file(name))?;
        let Some(sequence) = redo::read_sequence(&*file, id)? else { continue };
        let (last, end) = levels.log_synced;
        if (levels.log_first..=last).contains(&sequence) {
            synced.insert(name, words_of(&files[&name], if sequence == last { end } else { u64::MAX }));
        }
    }
    Ok(synced)
}

fn from_start(len: u64) -> Vec<Range<u64>> {
    iter::once(0..len).collect()
}

/// In place of a length: a segment's end.
const END: u32 = u32::MAX;

/// The header of a segment, its records, marks and end, up to `end`.
fn words_of(bytes: &[u8], end: u64) -> Vec<Range<u64>> {
    let (mut words, mut offset) = (from_start(HEADER_BYTES as u64), HEADER_BYTES as u64);
    while offset < end {
        let head = bytes[offset as usize..].first_chunk().expect("a sealed segment has an end");
        // What is no length stands alone: a mark, and at last the segment's end.
        let word = u32::from_le_bytes(*head);
        let len = if word as usize > redo::BODY_BYTES_MAX { 0 } else { word as usize };
        words.push(offset..offset + (WORD_BYTES + len) as u64);
        if word == END {
            break;
        }
        offset += redo::record_bytes(len) as u64;
    }
    words
}
