//! What summaries tell, held against the records themselves.

use std::sync::Arc;

use kvilt_base::{Disk, ErrorKind, FileName, Kind};
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};

use kvilt_format::{log::encode_record, names::LOG};

use super::*;
use crate::{bed, options::Options, parts, store::Store};

/// Offset, key, version, kind.
type Told = (u64, Vec<u8>, Version, Kind);

fn open(disk: Arc<dyn Disk>, percent: u32) -> Arc<Store> {
    let store = bed::open(disk, &Options { log_summary_percent: percent, ..Options::tiny() });
    // Only a store that has its reserve writes what it could do without.
    store.checkpoint_now(false).unwrap();
    store
}

/// Appends rows of many lengths, a delete now and then, each so many a sync.
fn append(store: &Store, log: &ChunkLog, rows: std::ops::Range<u64>, a_sync: u64) {
    for i in rows {
        let (key, value) = (format!("key{:05}", i * 7919 % 10_007), vec![7; (i * 31 % 90) as usize]);
        let version = Version::from_u64(log.base().to_u64() + i / 10);
        let kind = [Kind::Put, Kind::Tombstone][usize::from(i % 11 == 0)];
        let value = if kind == Kind::Put { value.as_slice() } else { &[] };
        bed::append(store, log, EntryRef { key: key.as_bytes(), version, kind, value }).unwrap();
        if i % a_sync == a_sync - 1 {
            log.sync(&store.files).unwrap();
        }
    }
}

fn records(store: &Store, log: &ChunkLog, place: &Range<u64>) -> Vec<Told> {
    let mut all = Vec::new();
    log.for_each(&store.files, place.start, place.end, &mut |offset, entry, _| {
        all.push((offset, entry.key.to_vec(), entry.version, entry.kind));
        Ok(())
    })
    .unwrap();
    all
}

fn outlines(store: &Store, log: &ChunkLog, place: &Range<u64>) -> Result<(Vec<Told>, u64)> {
    let mut all = Vec::new();
    let read = log.for_each_outline(&store.files, place.clone(), &mut |outline| {
        all.push((outline.offset, outline.key.to_vec(), outline.version, outline.kind));
        Ok(())
    })?;
    Ok((all, read))
}

#[test]
fn outlines_are_those_of_the_records_wherever_one_begins_and_ends() {
    for a_sync in [1, 3, 40, 1000] {
        let store = open(MemoryDisk::new(1), 100);
        let log = ChunkLog::create(&store.files, store.epoch_base);
        append(&store, &log, 0..600, a_sync);
        let whole = 0..log.len();
        let all = records(&store, &log, &whole);
        assert_eq!(all.len(), 600);
        let (told, read) = outlines(&store, &log, &whole).unwrap();
        assert_eq!(told, all);
        let summaries = log.summaries_in(&store.files, &whole).unwrap();
        assert!(
            summaries.len() > 20 && read < log.len() / 2,
            "{} tell, {read} of {}",
            summaries.len(),
            log.len()
        );
        // At a record, or behind the last.
        let places: Vec<u64> = all.iter().map(|told| told.0).chain([log.len()]).step_by(23).collect();
        for (i, from) in places.iter().enumerate() {
            for to in &places[i..] {
                let place = *from..*to;
                let told = outlines(&store, &log, &place).unwrap().0;
                assert_eq!(told, records(&store, &log, &place), "{place:?}");
            }
        }
    }
}

#[test]
fn a_log_of_another_run_is_known_by_its_last_durable_summary() {
    let disk = MemoryDisk::new(1);
    let store = open(disk, 100);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    append(&store, &log, 0..400, 400);
    let (durable, len) = (log.durable_summary(), log.durable_len());
    assert!(durable.is_some_and(|at| at < len));
    // What is not durable yet is not told of.
    append(&store, &log, 400..500, 1000);
    assert!(log.summaries.last() > durable && log.durable_summary() == durable);
    let again = ChunkLog::recovered(&store.files, (log.number(), log.base()), len, durable);
    let (told, read) = outlines(&store, &again, &(0..len)).unwrap();
    assert_eq!(told, records(&store, &log, &(0..len)));
    assert!(read < len / 2, "{read} of {len}");
    // Without, all is read.
    let again = ChunkLog::recovered(&store.files, (log.number(), log.base()), len, None);
    assert_eq!(outlines(&store, &again, &(0..len)).unwrap(), (told, len - HEADER_BYTES as u64));
}

#[test]
fn records_that_are_hardly_longer_than_their_outlines_have_no_summary() {
    let store = open(MemoryDisk::new(1), 6);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    append(&store, &log, 0..600, 40);
    assert_eq!(log.summaries.last(), None);
    let long = EntryRef { key: b"key", version: log.base(), kind: Kind::Put, value: &[7; 400] };
    for _ in 0..8 {
        bed::append(&store, &log, long).unwrap();
    }
    assert!(log.summaries.last().is_some(), "longer ones have, behind them");
    let whole = 0..log.len();
    assert_eq!(outlines(&store, &log, &whole).unwrap().0, records(&store, &log, &whole));
}

#[test]
fn memory_is_charged_and_given_back() {
    let store = open(MemoryDisk::new(1), 100);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    let charged = || store.files.budget.used(parts::LOG_INDEXES);
    let before = charged();
    let mut gathered = Gathered::new(log.base(), &store.files);
    let (mut bytes, id) = (vec![0; HEADER_BYTES], store.files.identity(log.number()));
    for i in 0..200_000u64 {
        let entry = EntryRef { key: &i.to_be_bytes(), version: log.base(), kind: Kind::Put, value: b"" };
        let offset = bytes.len() as u64;
        encode_record(&mut bytes, id, offset, log.base(), entry, 0);
    }
    gathered.gather(0, &bytes[..20_000]);
    let some = charged() - before;
    assert!((5_000..40_000).contains(&some), "{some}");
    // More than a summary may have, at once.
    gathered.gather(0, &bytes);
    assert!(gathered.outlines.is_empty() && charged() - before < 40_000, "{}", charged() - before);
    drop(gathered);
    assert_eq!(charged(), before);
}

#[test]
fn a_buffer_that_could_not_be_written_is_told_of_once_it_is() {
    let disk = FaultyDisk::new(MemoryDisk::new(1));
    let store = open(disk.clone(), 100);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    append(&store, &log, 0..100, 30);
    disk.fail(Some(Call::Write), 0, Fault::NoSpace, Times::Once);
    assert_eq!(log.sync(&store.files).unwrap_err().kind(), ErrorKind::NoSpace);
    append(&store, &log, 100..300, 30);
    let whole = 0..log.len();
    let (told, read) = outlines(&store, &log, &whole).unwrap();
    assert_eq!(told, records(&store, &log, &whole));
    assert!(read < log.len() / 2);
}

#[test]
fn damage_to_a_summary_is_said_with_its_place() {
    let disk = MemoryDisk::new(1);
    let store = open(disk.clone(), 100);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    append(&store, &log, 0..200, 10);
    let at = log.durable_summary().unwrap();
    let file = disk.open(FileName::Of(LOG, log.number())).unwrap();
    let mut byte = [0];
    file.read_exact_at(at + 20, &mut byte).unwrap();
    file.write_all_at(at + 20, &[byte[0] ^ 4]).unwrap();
    let error = outlines(&store, &log, &(0..log.len())).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupted, Some(at)), "{error}");
}
