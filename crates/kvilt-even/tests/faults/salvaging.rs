//! What is salvaged where even the files that say what there is are gone, damaged, or cannot be read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kvilt_base::{
    Disk, Engine, ErrorKind, FileName, KeyRange, Kind, RepairReport, Result, Salvaged, Version,
};
use kvilt_even::salvage;
use kvilt_format::{
    FileIdentity, HEADER_BYTES, log,
    names::{COMMIT, LOG, MANIFEST, TABLE, WITNESS},
};
use kvilt_io::{Call, Fault, FaultyDisk, Keep, MemoryDisk, Times};

use crate::bed::{self, Bed};

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn salvaged(disk: &dyn Disk) -> Result<(Rows, RepairReport)> {
    salvaged_with(disk, &mut |done, total| assert!(done <= total))
}

fn salvaged_with(disk: &dyn Disk, progress: &mut dyn FnMut(u64, u64)) -> Result<(Rows, RepairReport)> {
    let mut rows = Rows::new();
    let mut save = |salvaged: Salvaged<'_>| {
        match salvaged {
            Salvaged::Row(key, value) => drop(rows.insert(key.to_vec(), value.to_vec())),
            Salvaged::Delete(key) => drop(rows.remove(key)),
            Salvaged::DeleteRange(range) => rows.retain(|key, _| !range.contains(key)),
        }
        Ok(())
    };
    let report = salvage(disk, &mut save, progress)?;
    Ok((rows, report))
}

fn put(db: &dyn Engine, numbers: std::ops::Range<u32>, byte: u8) {
    for number in numbers {
        db.put(&number.to_be_bytes(), &[byte; 20]).unwrap();
    }
}

fn range(numbers: std::ops::Range<u32>) -> KeyRange {
    KeyRange { start: numbers.start.to_be_bytes().to_vec(), end: Some(numbers.end.to_be_bytes().to_vec()) }
}

/// What a store with tables, logs, overwritten rows and a deleted range leaves when it is closed, and its
/// rows.
pub(crate) fn closed_store() -> (Arc<MemoryDisk>, Rows) {
    let disk = MemoryDisk::new(1);
    let bed = Bed::new(64 << 20);
    let db = bed.open(disk.clone(), bed::without_checkpoints()).unwrap();
    // Often enough over, so that logs become tables.
    for number in (0..400).step_by(20).cycle().take(100) {
        put(&*db, number..number + 20, 1);
        assert!(bed.rests_within(10_000));
    }
    put(&*db, 50..60, 2);
    db.delete_range(&range(100..110)).unwrap();
    put(&*db, 105..107, 3);
    let rows: Rows = bed::rows(&*db).unwrap().into_iter().collect();
    assert_eq!(rows.len(), 392);
    db.close().unwrap();
    let left = disk.crash_image(Keep::SyncedOnly);
    let tables = files(&left, |name| matches!(name, FileName::Of(TABLE, _))).len();
    let logs = files(&left, |name| matches!(name, FileName::Of(LOG, _))).len();
    assert!(tables > 1 && logs > 1, "{tables} tables, {logs} logs");
    (left, rows)
}

pub(crate) fn files(disk: &MemoryDisk, is_meant: impl Fn(&FileName) -> bool) -> Vec<FileName> {
    disk.snapshot().into_keys().filter(is_meant).collect()
}

pub(crate) fn is_of_rows(name: &FileName) -> bool {
    matches!(name, FileName::Of(TABLE | LOG, _))
}

fn lose_the_root(disk: &MemoryDisk) {
    for name in files(disk, |name| matches!(*name, FileName::Of(MANIFEST, _) | WITNESS)) {
        assert!(disk.lose(name));
    }
}

/// One loss, of every key, that no file but the manifest or witness is to blame for; and all rows.
fn check_unproven(disk: &MemoryDisk, rows: &Rows) {
    let (found, report) = salvaged(disk).unwrap();
    let [loss] = &report.losses[..] else { panic!("one loss: {report:?}") };
    assert_eq!((loss.what.as_str(), &loss.range), ("F-8", &Some(KeyRange::all())));
    assert!(!report.is_proven);
    assert!(found == *rows, "{} rows of {}", found.len(), rows.len());
}

#[test]
fn of_a_sound_store_all_is_salvaged_and_proven() {
    let (disk, rows) = closed_store();
    let (found, report) = salvaged(&*disk).unwrap();
    assert!(found == rows && report.is_proven && report.losses.is_empty(), "{report:?}");
    assert_eq!((report.rows, report.rows_withheld), (rows.len() as u64, 0));
    assert_eq!(report.bytes, 24 * report.rows);
}

#[test]
fn who_waits_for_a_salvage_is_told_how_far_it_is() {
    for (disk, is_closed) in [(closed_store().0, true), (cut_off_store().0, false)] {
        let mut told = Vec::new();
        salvaged_with(&*disk, &mut |done, total| told.push((done, total))).unwrap();
        assert!(told.len() > 1 && told.is_sorted(), "{told:?}");
        let [.., (before, _), (done, total)] = told[..] else { panic!("told twice: {told:?}") };
        assert_eq!(done, total);
        // All but the last bytes of files that chunks share.
        assert!(total - before < 100, "{before} of {total}, closed: {is_closed}");
    }
}

#[test]
fn where_nothing_of_a_store_is_there_is_nothing_to_salvage() {
    let error = salvaged(&*MemoryDisk::new(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("nothing of a store"), "{error}");
}

#[test]
fn without_a_manifest_the_witness_says_whose_files_are_ours() {
    let (disk, rows) = closed_store();
    for name in files(&disk, |name| matches!(name, FileName::Of(MANIFEST, _))) {
        assert!(disk.lose(name));
    }
    check_unproven(&disk, &rows);
}

#[test]
fn without_a_manifest_and_a_witness_most_headers_say_whose_files_are_ours() {
    let (disk, rows) = closed_store();
    lose_the_root(&disk);
    // Another store's log, a good one.
    for store_id in [99, u64::MAX - 1] {
        let id = FileIdentity { store_id, number: 9_999 };
        let mut stranger = log::encode_header(id, Version::ZERO).to_vec();
        let entry =
            kvilt_base::EntryRef { key: b"strange", version: Version::ZERO, kind: Kind::Put, value: b"row" };
        log::encode_record(&mut stranger, id, HEADER_BYTES as u64, Version::ZERO, entry, 0);
        disk.replace(FileName::Of(LOG, id.number), stranger);
        check_unproven(&disk, &rows);
    }
}

#[test]
fn with_a_manifest_that_is_good_up_to_somewhere_its_beginning_says_whose_files_are_ours() {
    let (disk, rows, _) = cut_off_store();
    let manifest = *files(&disk, |name| matches!(name, FileName::Of(MANIFEST, _))).last().unwrap();
    let bytes = disk.contents(manifest).unwrap();
    // Twelve bytes before each record, the first four its length; this is in the second.
    let first_len: [u8; 4] = bytes[HEADER_BYTES..HEADER_BYTES + 4].try_into().unwrap();
    let second = HEADER_BYTES as u64 + 12 + u64::from(u32::from_le_bytes(first_len));
    assert!(disk.flip_bit(manifest, second + 13, 0));
    check_unproven(&disk, &rows);
}

#[test]
fn with_no_header_that_can_be_read_nothing_is_salvaged_and_the_error_says_so() {
    let (disk, _) = closed_store();
    lose_the_root(&disk);
    for name in files(&disk, is_of_rows) {
        assert!(disk.flip_bit(name, 20, 1));
    }
    let error = salvaged(&*disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("no file in"), "{error}");
}

#[test]
fn a_log_that_is_shorter_than_was_synced_is_a_loss_at_its_end() {
    let (disk, rows) = closed_store();
    let mut losses = 0;
    for log in files(&disk, |name| matches!(name, FileName::Of(LOG, _))) {
        let good = disk.contents(log).unwrap();
        let len = good.len() as u64 - 3;
        assert!(disk.truncate(log, len));
        let (found, report) = salvaged(&*disk).unwrap();
        disk.replace(log, good);
        let Some(loss) = report.losses.last() else {
            // It was replaced, and only not yet removed.
            assert!(found == rows, "{log}");
            continue;
        };
        losses += 1;
        assert_eq!(loss.file.as_deref(), Some(log.to_string().as_str()));
        assert!(report.is_proven && loss.offset.is_some_and(|offset| offset <= len), "{report:?}");
        let is_lost = |key: &[u8]| {
            report.losses.iter().any(|loss| loss.range.as_ref().is_some_and(|range| range.contains(key)))
        };
        assert!(!rows.keys().all(|key| is_lost(key)), "{log} is not everybody's");
        for (key, value) in &rows {
            assert!(is_lost(key) || found.get(key) == Some(value), "{log}: {key:?}");
        }
        // What is given away is right, if it is given away.
        assert!(found.iter().all(|(key, value)| rows.get(key) == Some(value)), "{log}");
    }
    assert!(losses > 0);
}

/// It may be able to read tomorrow: then more can be saved than can be now.
#[test]
fn a_disk_that_refuses_ends_a_salvage_and_loses_nothing() {
    for is_rootless in [false, true] {
        let (disk, rows, _) = cut_off_store();
        if is_rootless {
            lose_the_root(&disk);
        }
        for call in [Call::List, Call::Open, Call::Len, Call::Read] {
            let faulty = FaultyDisk::new(disk.clone());
            let mut refused = 0;
            loop {
                faulty.fail(Some(call), refused, Fault::Io, Times::Once);
                let outcome = salvaged(&*faulty);
                if faulty.open_plans() > 0 {
                    assert!(outcome.is_ok_and(|(found, _)| found == rows));
                    break;
                }
                let kind = outcome.map_err(|error| error.kind()).err();
                assert_eq!(kind, Some(ErrorKind::Io), "{call:?} {refused}, rootless: {is_rootless}");
                refused += 1;
            }
            assert!(refused > 0, "{call:?}");
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn commit_logs(disk: &MemoryDisk) -> Vec<FileName> {
    files(disk, |name| matches!(name, FileName::Of(COMMIT, _)))
}

/// A store at level sync that was cut off, with what only its commit log has; its rows; and a commit log of
/// before.
fn cut_off_store() -> (Arc<MemoryDisk>, Rows, (FileName, Vec<u8>)) {
    let disk = MemoryDisk::new(1);
    let bed = Bed::new(64 << 20);
    let db = bed.open(disk.clone(), bed::synchronous()).unwrap();
    put(&*db, 0..30, 1);
    let old = commit_logs(&disk)[0];
    let old = (old, disk.contents(old).unwrap());
    // Three checkpoints, behind each of which are writes: the first log is removed.
    for byte in 2..5 {
        put(&*db, 0..5, byte);
        bed.clock.advance(HOUR);
        assert!(bed.rests_within(10_000));
    }
    assert!(!commit_logs(&disk).contains(&old.0));
    put(&*db, 10..12, 9);
    db.delete(&20u32.to_be_bytes()).unwrap();
    db.delete_range(&range(21..25)).unwrap();
    let rows = bed::rows(&*db).unwrap().into_iter().collect();
    (disk.crash_image(Keep::SyncedOnly), rows, old)
}

#[test]
fn what_only_the_commit_log_has_is_salvaged_and_no_older_log_takes_it_back() {
    let (disk, rows, (old, bytes)) = cut_off_store();
    disk.replace(old, bytes);
    let FileName::Of(COMMIT, last) = *commit_logs(&disk).last().unwrap() else { panic!("a commit log") };
    // One that was made and not begun.
    disk.replace(FileName::Of(COMMIT, last + 1), Vec::new());
    let (found, report) = salvaged(&*disk).unwrap();
    assert!(report.is_proven && report.losses.is_empty(), "{report:?}");
    assert!(found == rows, "{found:?}");
    assert_eq!(report.bytes, 24 * report.rows);
}

#[test]
fn a_damaged_commit_log_is_a_loss_of_any_key_and_proves_nothing() {
    let (disk, _, _) = cut_off_store();
    let log = *commit_logs(&disk).last().unwrap();
    assert!(disk.flip_bit(log, 90, 2));
    let (_, report) = salvaged(&*disk).unwrap();
    let [loss] = &report.losses[..] else { panic!("one loss: {report:?}") };
    assert_eq!((loss.what.as_str(), loss.file.clone()), ("F-2", Some(log.to_string())));
    assert!(!report.is_proven && loss.range == Some(KeyRange::all()));
}
