//! What is salvaged of damaged stores, whichever files the background happened to have made: the workers keep
//! up with the writer, lag behind it, or do nothing before the close, and one seed decides it.

use std::{collections::BTreeSet, sync::Arc};

use kvilt_base::{FileName, RepairReport};
use kvilt_format::{
    manifest::{Claim, PartKind, Root, read_root},
    names::{MANIFEST, RESERVE, TABLE, WITNESS},
};
use kvilt_io::MemoryDisk;

use crate::{
    bed::{self, Bed},
    salvaging::{Rows, files, is_of_rows, salvaged},
};

const ROWS: u32 = 300;
/// A worker has a step each time that so many rows were written.
const LAGS: [u32; 8] = [1, 2, 4, 8, 11, 16, 40, ROWS];
/// Bits flipped in each file, one at a time.
const PLACES: usize = 12;

fn key(row: u32) -> Vec<u8> {
    format!("key{row:05}").into_bytes()
}

/// What of a closed store is on the disk, and its rows.
fn closed_store(lag: u32, rests: bool) -> (Arc<MemoryDisk>, Rows) {
    let disk = MemoryDisk::new(u64::from(lag));
    let bed = Bed::new(64 << 20);
    let mut options = bed::without_checkpoints();
    // Less than a chunk, so that tables are made of chunks that grow, and are split later.
    options.log_bytes_max_cached = options.chunk_bytes_rebalance / 3;
    let db = bed.open(disk.clone(), options).unwrap();
    let mut rows = Rows::new();
    let mut choice = 0;
    let mut lets_go_on = |row: u32| {
        if row.is_multiple_of(lag) {
            choice += 1;
            bed.spawn.step(choice);
        }
    };
    for row in 0..ROWS {
        let value = format!("{row} ").repeat(10).into_bytes();
        db.put(&key(row), &value).unwrap();
        rows.insert(key(row), value);
        lets_go_on(row);
    }
    db.sync().unwrap();
    for row in (0..ROWS).step_by(10) {
        db.delete(&key(row)).unwrap();
        rows.remove(&key(row));
        lets_go_on(row);
    }
    assert!(!rests || bed.rests_within(10_000));
    db.close().unwrap();
    (disk, rows)
}

/// What a damage of a file came to.
enum Outcome {
    /// Something is lost, or may be.
    Lost,
    /// All is there, and proven.
    Harmless,
}

/// Every row is right, or in a range that is reported; and no other row is there but where nothing is proven.
fn check(disk: &MemoryDisk, rows: &Rows) -> (Outcome, RepairReport, usize) {
    let (found, report) = salvaged(disk).unwrap();
    let is_told = |key: &[u8]| {
        let mut ranges = report.losses.iter().filter_map(|loss| loss.range.as_ref());
        ranges.any(|range| range.contains(key))
    };
    let keys: BTreeSet<&Vec<u8>> = rows.keys().chain(found.keys()).collect();
    let wrong: Vec<_> = keys.into_iter().filter(|key| found.get(*key) != rows.get(*key)).collect();
    for key in &wrong {
        assert!(is_told(key), "{} is not told: {report:?}", key.escape_ascii());
        assert!(!found.contains_key(*key) || !report.is_proven, "{} is old", key.escape_ascii());
    }
    let wrong = wrong.len();
    assert!(report.is_proven || !report.losses.is_empty());
    (if report.losses.is_empty() { Outcome::Harmless } else { Outcome::Lost }, report, wrong)
}

/// Whether a hit at this place must be reported. Of a table the first and the last bytes must, for without
/// its header or footer no block is found; a block need not, where no chunk has its keys any more.
fn must_be_told((root, claim): &(Root, Claim), name: FileName, at: u64, len: u64) -> bool {
    if matches!(name, FileName::Of(MANIFEST, _)) {
        // Behind it lies the mark that it was synced.
        return at < claim.len;
    }
    let Some(record) = root.files.get(&name.number()).filter(|_| is_of_rows(&name)) else {
        // Of the witness both halves are hit.
        return true;
    };
    match record.kind {
        PartKind::Table => at < 64 || at + 96 >= len,
        // What lies behind it was laid aside by the run that wrote it, and nobody else reads it.
        PartKind::Log => at >= 64 && at < record.len,
    }
}

/// The check of a landing failed once in a test that damages the middle of each file: it had met a table of
/// which a chunk shares one half since a split, while the sibling had rewritten its own. What no chunk has
/// any more is no loss, and was called one.
#[test]
fn whatever_the_layout_each_bit_that_is_lost_is_told_or_nobody_needs_it() {
    let mut unneeded = 0;
    for (lag, rests) in LAGS.into_iter().flat_map(|lag| [(lag, false), (lag, true)]) {
        let (disk, rows) = closed_store(lag, rests);
        let (Outcome::Harmless, report, 0) = check(&disk, &rows) else { panic!("it is sound") };
        assert_eq!((report.rows, report.rows_withheld), (rows.len() as u64, 0));
        let (root, witness) = read_root(&*disk).unwrap().unwrap();
        let durable = (root, witness.claim());
        for name in files(&disk, |name| !matches!(*name, FileName::LOCK | FileName::ENGINE | RESERVE)) {
            let good = disk.contents(name).unwrap();
            assert!(
                !is_of_rows(&name) || durable.0.files.contains_key(&name.number()),
                "{name} is a leftover"
            );
            let len = good.len() as u64;
            for place in 0..PLACES {
                let at = (len - 1) * place as u64 / (PLACES as u64 - 1);
                disk.flip_bit(name, at, place as u32 % 8);
                if name == WITNESS {
                    disk.flip_bit(name, (at + len / 2) % len, 0);
                }
                let (outcome, report, wrong) = check(&disk, &rows);
                let place = format!("{name}, {at} of {len} bytes, lag {lag}, rests {rests}: {report:?}");
                match outcome {
                    Outcome::Harmless => {
                        assert!(!must_be_told(&durable, name, at, len) && wrong == 0, "{place}")
                    }
                    Outcome::Lost => assert_eq!(report.is_proven, is_of_rows(&name), "{place}"),
                }
                if let (Outcome::Harmless, FileName::Of(TABLE, _)) = (outcome, name) {
                    unneeded += 1;
                }
                disk.replace(name, good.clone());
            }
            assert!(disk.lose(name));
            if let (Outcome::Harmless, report, _) = check(&disk, &rows) {
                panic!("{name} is missing, lag {lag}, rests {rests}: {report:?}");
            }
            disk.replace(name, good);
        }
    }
    assert!(unneeded > 0, "no table was shared by half");
}
