//! Row 18: a view that is kept too long expires, gives no wrong row, and keeps nothing any more.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Direction, Engine, ErrorKind, KeyRange, ReadView, Result, RowBatch};
use kvilt_io::MemoryDisk;

use crate::bed::{Bed, rows, without_checkpoints};

const KEYS: u32 = 40;
const LIMIT: Duration = Duration::from_secs(60);

fn key(i: u32) -> Vec<u8> {
    format!("{i:04}").into_bytes()
}

fn open(bed: &Bed) -> Arc<dyn Engine> {
    let mut options = without_checkpoints();
    options.settings.view_age_max = LIMIT;
    bed.open(MemoryDisk::new(1), options).unwrap()
}

/// Gives every key a new value, and lets the workers come to rest.
fn overwrite(bed: &Bed, db: &dyn Engine, round: u32) {
    for i in 0..KEYS {
        db.put(&key(i), format!("{round}-{}", "x".repeat(100)).as_bytes()).unwrap();
    }
    assert!(bed.rests_within(10_000));
}

/// At most `rows_max` rows of the view; what is left of the range.
fn scan(
    db: &dyn Engine,
    view: &ReadView,
    range: &KeyRange,
    rows_max: usize,
) -> Result<(RowBatch, Option<KeyRange>)> {
    let mut batch = RowBatch::new(1 << 20, rows_max, false);
    let left = db.scan(view, range, Direction::Forward, &mut batch)?.left();
    Ok((batch, left))
}

fn is_of_round(batch: RowBatch, round: &str) -> bool {
    batch.into_rows().all(|(_, value)| value.starts_with(round.as_bytes()))
}

/// With munks and without: the answer is the view's own or an error, however far compaction has come.
#[test]
fn an_expired_view_ends_as_too_old_and_never_with_a_wrong_row() {
    for budget_bytes in [64 << 20, 32 << 10] {
        let bed = Bed::new(budget_bytes);
        let db = open(&bed);
        overwrite(&bed, &*db, 1);
        let old = db.view().unwrap();
        bed.clock.advance(LIMIT / 2);
        let young = db.view().unwrap();
        overwrite(&bed, &*db, 2);
        let (batch, left) = scan(&*db, &old, &KeyRange::all(), 10).unwrap();
        assert!(batch.len() == 10 && is_of_round(batch, "1-"));

        bed.clock.advance(LIMIT / 2 + Duration::from_secs(1));
        for round in 3..6 {
            overwrite(&bed, &*db, round);
        }
        let too_old = Some(ErrorKind::SnapshotTooOld);
        assert_eq!(scan(&*db, &old, &left.unwrap(), 10).map(|_| ()).err().map(|e| e.kind()), too_old);
        let mut was_found = false;
        let got = db.get_with(&key(7), Some(&old), &mut |_| was_found = true);
        assert_eq!(got.err().map(|e| e.kind()), too_old);
        assert!(!was_found, "nothing is handed out behind an expired view");

        let (batch, _) = scan(&*db, &young, &KeyRange::all(), 1000).unwrap();
        assert!(batch.len() == KEYS as usize && is_of_round(batch, "1-"), "a younger view is whole");
        assert_eq!(rows(&*db).unwrap().len(), KEYS as usize);
        let report = db.check(&mut |_| true).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
    }
}

/// Old versions that a scan of everything has to pass over.
fn skips(db: &dyn Engine) -> u64 {
    let before = db.stats().scanned_skips;
    rows(db).unwrap();
    db.stats().scanned_skips - before
}

/// Handles that nobody gives back: compaction goes on as if it were not there, and the figures tell.
#[test]
fn a_forgotten_view_keeps_no_version_beyond_its_age() {
    let bed = Bed::new(64 << 20);
    let db = open(&bed);
    overwrite(&bed, &*db, 1);
    let mut forgotten = Vec::new();
    for round in 2..12 {
        forgotten.push(db.view().unwrap());
        bed.clock.advance(Duration::from_secs(1));
        overwrite(&bed, &*db, round);
    }
    let pinned = db.stats();
    assert_eq!((pinned.open_views_now, pinned.views_expired), (10, 0));
    assert_eq!(pinned.oldest_view_age_us_now, 10_000_000);
    let passed_over = skips(&*db);
    assert!(passed_over >= 10 * u64::from(KEYS), "{passed_over}");

    bed.clock.advance(LIMIT);
    for round in 12..52 {
        overwrite(&bed, &*db, round);
        // Moves the version on, so that tails fill and are compacted.
        db.sync().unwrap();
    }
    let free = db.stats();
    assert_eq!((free.open_views_now, free.views_expired, free.oldest_view_age_us_now), (10, 10, 0));
    let passed_over = skips(&*db);
    // Some lie in the tail of late, which is not compacted yet; what the ten views kept would be ten for each
    // key.
    assert!(passed_over < 5 * u64::from(KEYS), "{passed_over} old versions are still there");
    drop(forgotten);
    assert_eq!(db.stats().open_views_now, 0);
}

/// Time alone is enough: nobody need write.
#[test]
fn a_view_expires_while_nothing_is_written() {
    let bed = Bed::new(64 << 20);
    let db = open(&bed);
    overwrite(&bed, &*db, 1);
    let view = db.view().unwrap();
    bed.clock.advance(LIMIT);
    assert!(bed.rests_within(1000));
    assert!(scan(&*db, &view, &KeyRange::all(), 1000).is_ok(), "not a moment too early");
    bed.clock.advance(Duration::from_secs(2));
    assert!(bed.rests_within(1000));
    assert!(scan(&*db, &view, &KeyRange::all(), 1000).is_err());
    drop(view);
    assert_eq!(db.stats().open_views_now, 0);
}
