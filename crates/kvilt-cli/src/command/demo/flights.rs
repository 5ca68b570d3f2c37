//! The flights of January 2013: loaded from the file in this binary, and compared with a map in memory.

use std::collections::BTreeMap;

use flate2::read::GzDecoder;
use kvilt::{Db, KeyBounds, KeyRange, Range};

use super::{
    ensure, megabytes,
    report::{self, Report},
};
use crate::{
    command::load::{BadRow, csv_rows::CsvRows},
    failure::Failure,
    stopwatch::{Stopwatch, grouped},
};

/// All flights that left New York in January 2013; see `data/README.md` for where they are from.
const FLIGHTS_GZ: &[u8] = include_bytes!("../../../../../data/flights-2013-01.csv.gz");

/// The columns that make a flight's key: what one looks flights up by, then when, then which.
const KEY_COLUMNS: [&str; 4] = ["origin", "carrier", "time_hour", "flight"];

/// The longest record of a sound file has far fewer bytes.
const RECORD_BYTES_MAX: usize = 64 << 10;

/// United Airlines at Newark on 15 January.
const ONE_DAY: &str = "EWR/UA/2013-01-15";

/// What the store should hold. If a key comes twice, the later row wins, as in the store.
pub(super) struct Flights {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Flights {
    /// Loads all flights, and compares a whole scan with the map.
    pub(super) fn load(db: &Db, report: &mut Report) -> Result<Self, Failure> {
        let key = KEY_COLUMNS.map(String::from);
        let read: Vec<_> = CsvRows::new(GzDecoder::new(FLIGHTS_GZ), &key, b"/", RECORD_BYTES_MAX)?
            .collect::<Result<_, _>>()
            .map_err(|error: BadRow| Failure::Damaged(format!("the flights cannot be read: {error:?}")))?;
        let stopwatch = Stopwatch::start();
        for row in &read {
            db.put(&row.key, &row.value)?;
        }
        let rate = stopwatch.rate(read.len() as u64);
        let count = read.len() as u64;
        let flights = Flights { rows: read.into_iter().map(|row| (row.key, row.value)).collect() };
        let bytes: usize = flights.rows.iter().map(|(key, value)| key.len() + value.len()).sum();
        report.line(
            "flights loaded",
            &[
                ("rows", report::count(count), "rows"),
                ("bytes", report::text(megabytes(bytes as u64), bytes as u64), "of keys and values"),
                ("rows per second", report::rate(rate), "rows/s"),
            ],
        );
        let stopwatch = Stopwatch::start();
        flights.compare(flights_in(db), "a whole scan")?;
        let rate = stopwatch.rate(flights.rows.len() as u64);
        report.line(
            "whole scan",
            &[
                ("rows", report::count(flights.rows.len() as u64), "rows, each as it was loaded"),
                ("rows per second", report::rate(rate), "rows/s"),
            ],
        );
        Ok(flights)
    }

    /// Scans the day of one carrier at one airport, forward and backward.
    pub(super) fn scan_a_day(&self, db: &Db, report: &mut Report) -> Result<(), Failure> {
        let expected = self.day();
        compare(db.prefix(ONE_DAY), expected.iter().copied(), "a prefix scan")?;
        compare(db.prefix(ONE_DAY).rev(), expected.iter().rev().copied(), "a reverse prefix scan")?;
        report.line(
            "one carrier's day",
            &[(
                "rows",
                report::count(expected.len() as u64),
                "flights at EWR/UA/2013-01-15, forward and backward",
            )],
        );
        Ok(())
    }

    /// Takes a snapshot, changes the day behind it, and shows that the snapshot still sees the old day.
    pub(super) fn hold_a_snapshot(&mut self, db: &Db, report: &mut Report) -> Result<(), Failure> {
        let snapshot = db.snapshot();
        let before: Vec<_> = self.day().iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        let (mut overwritten, mut deleted) = (0, 0);
        for (i, (key, value)) in before.iter().enumerate() {
            if i % 4 == 3 {
                db.delete(key)?;
                self.rows.remove(key);
                deleted += 1;
            } else {
                let new = [value.as_slice(), b" (changed)"].concat();
                db.put(key, &new)?;
                self.rows.insert(key.clone(), new);
                overwritten += 1;
            }
        }
        let old_rows = before.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
        compare(snapshot.prefix(ONE_DAY), old_rows, "the snapshot")?;
        for (key, value) in &before {
            let seen = snapshot.get(key)?;
            ensure(seen.as_deref() == Some(value), || "a get of the snapshot saw a later row".to_string())?;
        }
        compare(db.prefix(ONE_DAY), self.day().into_iter(), "a scan behind the snapshot")?;
        report.line(
            "behind a snapshot",
            &[
                ("overwritten", report::count(overwritten), "rows overwritten"),
                ("deleted", report::count(deleted), "deleted"),
                ("still seen", report::count(before.len() as u64), "old ones still seen by it"),
            ],
        );
        Ok(())
    }

    /// Compares all flights in the store with the map.
    pub(super) fn compare_all(&self, db: &Db, whose: &str) -> Result<(), Failure> {
        self.compare(flights_in(db), whose)
    }

    /// The keys, to be got at random.
    pub(super) fn keys(&self) -> Vec<&[u8]> {
        self.rows.keys().map(Vec::as_slice).collect()
    }

    fn compare(&self, rows: Range, whose: &str) -> Result<(), Failure> {
        compare(rows, self.rows.iter().map(|(k, v)| (k.as_slice(), v.as_slice())), whose)
    }

    fn day(&self) -> Vec<(&[u8], &[u8])> {
        let KeyRange { start, end } = KeyRange::prefix(ONE_DAY.as_bytes());
        let end = end.expect("the prefix is not all 0xff");
        self.rows.range(start..end).map(|(k, v)| (k.as_slice(), v.as_slice())).collect()
    }
}

/// All flights in the store: keys begin with the code of an airport.
fn flights_in(db: &Db) -> Range {
    db.range(("A".."Z").key_range())
}

/// Compares rows of the store, one by one, with what they should be.
fn compare<'m>(
    rows: impl Iterator<Item = kvilt::Result<kvilt::Row>>,
    mut expected: impl Iterator<Item = (&'m [u8], &'m [u8])>,
    whose: &str,
) -> Result<(), Failure> {
    let mut count = 0;
    for row in rows {
        let (key, value) = row?;
        count += 1;
        let is_right = expected.next().is_some_and(|(k, v)| *key == *k && *value == *v);
        ensure(is_right, || format!("row {} of {whose} is not as it should be: {key:?}", grouped(count)))?;
    }
    ensure(expected.next().is_none(), || format!("{whose} ended early, after {} rows", grouped(count)))
}
