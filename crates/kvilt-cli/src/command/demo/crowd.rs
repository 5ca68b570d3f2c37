//! Writers and scanners at once: batches must be seen whole, and time must not run backward.
//!
//! Each writer overwrites the same eight rows with one number, in one batch: two before all flights, two
//! behind them, four in another keyspace. Whoever sees two numbers has seen half a batch.

use std::{collections::HashMap, thread, time::Duration};

use kvilt::{Db, Keyspace, Range, Snapshot, WriteBatch};

use super::{
    KEYSPACE, ensure,
    flights::Flights,
    report::{self, Report},
};
use crate::{failure::Failure, stopwatch::Stopwatch};

const DURATION: Duration = Duration::from_secs(2);
const WRITERS: u64 = 2;
const SCANNERS: u64 = 2;

/// Rows of one writer's batch in each of the three places.
const ROWS_BEFORE: usize = 2;
const ROWS_BEHIND: usize = 2;
const ROWS_APART: usize = 4;

/// Between two batches a writer puts so many single rows, and between two scans a scanner gets so many.
const SINGLES: u64 = 20;

/// Single rows go to so many keys a writer.
const SINGLE_KEYS: u64 = 2_000;

/// What one thread did.
#[derive(Default)]
struct Done {
    batches: u64,
    puts: u64,
    scans: u64,
    rows: u64,
    gets: u64,
}

/// Runs them for two seconds, and checks what each sees.
pub(super) fn run(db: &Db, flights: &Flights, report: &mut Report) -> Result<(), Failure> {
    let apart = db.keyspace(KEYSPACE)?;
    let keys = flights.keys();
    for writer in 0..WRITERS {
        write_batch(db, &apart, writer, 0)?;
    }
    let stopwatch = Stopwatch::start();
    let done = thread::scope(|scope| {
        let (apart, keys) = (&apart, &keys);
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            threads.push(scope.spawn(move || write(db, apart, writer, stopwatch)));
        }
        for scanner in 0..SCANNERS {
            threads.push(scope.spawn(move || scan(db, apart, keys, scanner, stopwatch)));
        }
        let mut sum = Done::default();
        for thread in threads {
            let done = thread
                .join()
                .map_err(|_| Failure::Damaged("a thread of the demo panicked".to_string()))??;
            sum.batches += done.batches;
            sum.puts += done.puts;
            sum.scans += done.scans;
            sum.rows += done.rows;
            sum.gets += done.gets;
        }
        Ok::<Done, Failure>(sum)
    })?;
    let rate = |count| report::rate(stopwatch.rate(count));
    report.line(
        "two writers together",
        &[
            ("batches", report::count(done.batches), "batches of 8 rows"),
            ("puts", report::count(done.puts), "single puts"),
            ("rows per second", rate(done.batches * 8 + done.puts), "rows/s"),
        ],
    );
    report.line(
        "with two scanners",
        &[
            ("scans", report::count(done.scans), "snapshots, no batch seen in part"),
            ("rows per second", rate(done.rows), "rows/s"),
            ("gets per second", rate(done.gets), "gets/s"),
        ],
    );
    flights.compare_all(db, "a scan after the crowd")
}

fn write(db: &Db, apart: &Keyspace, writer: u64, stopwatch: Stopwatch) -> Result<Done, Failure> {
    let mut done = Done::default();
    while stopwatch.elapsed() < DURATION {
        done.batches += 1;
        write_batch(db, apart, writer, done.batches)?;
        for _ in 0..SINGLES {
            done.puts += 1;
            let key = format!("~single/{writer}/{:05}", done.puts * 7919 % SINGLE_KEYS);
            db.put(key, [b'.'; 100])?;
        }
    }
    Ok(done)
}

fn write_batch(db: &Db, apart: &Keyspace, writer: u64, number: u64) -> Result<(), Failure> {
    let value = number.to_string();
    let mut batch = WriteBatch::new();
    for row in 0..ROWS_BEFORE {
        batch.put(format!("!batch/{writer}/{row}"), &value);
    }
    for row in 0..ROWS_BEHIND {
        batch.put(format!("~batch/{writer}/{row}"), &value);
    }
    for row in 0..ROWS_APART {
        batch.put_in(apart, format!("batch/{writer}/{row}"), &value);
    }
    Ok(db.write(batch)?)
}

fn scan(
    db: &Db,
    apart: &Keyspace,
    keys: &[&[u8]],
    scanner: u64,
    stopwatch: Stopwatch,
) -> Result<Done, Failure> {
    let mut done = Done::default();
    let mut newest_seen = HashMap::new();
    let mut position = scanner;
    while stopwatch.elapsed() < DURATION {
        done.scans += 1;
        let snapshot = db.snapshot();
        for (writer, number) in see_batches(&snapshot, apart)? {
            let before = newest_seen.insert(writer.clone(), number).unwrap_or(0);
            ensure(before <= number, || {
                format!("a later snapshot saw batch {number} of writer {writer}, an earlier one {before}")
            })?;
        }
        for _ in 0..SINGLES {
            position =
                position.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = keys[(position >> 33) as usize % keys.len()];
            done.gets += 1;
            ensure(db.contains_key(key)?, || "a get did not find a flight".to_string())?;
        }
        let from = keys[(position >> 20) as usize % keys.len()];
        for row in snapshot.range(from..).limit(100) {
            row?;
            done.rows += 1;
        }
    }
    Ok(done)
}

/// The number of each writer's batch, after a look at all its rows.
fn see_batches(snapshot: &Snapshot, apart: &Keyspace) -> Result<HashMap<String, u64>, Failure> {
    let mut seen: HashMap<String, Vec<u64>> = HashMap::new();
    let mut collect = |rows: Range| {
        for row in rows {
            let (key, value) = row?;
            let writer = key.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
            let writer = String::from_utf8_lossy(writer).into_owned();
            let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            let number = number.ok_or_else(|| Failure::Damaged(format!("{key:?} holds {value:?}")))?;
            seen.entry(writer).or_default().push(number);
        }
        Ok::<(), Failure>(())
    };
    collect(snapshot.prefix("!batch/"))?;
    collect(snapshot.prefix("~batch/"))?;
    collect(snapshot.keyspace(apart).prefix("batch/"))?;
    ensure(seen.len() as u64 == WRITERS, || format!("a snapshot saw batches of {} writers", seen.len()))?;
    seen.into_iter()
        .map(|(writer, numbers)| {
            let is_whole = numbers.len() == ROWS_BEFORE + ROWS_BEHIND + ROWS_APART
                && numbers.iter().all(|number| *number == numbers[0]);
            ensure(is_whole, || format!("a snapshot saw part of a batch: {numbers:?}"))?;
            Ok((writer, numbers[0]))
        })
        .collect()
}
