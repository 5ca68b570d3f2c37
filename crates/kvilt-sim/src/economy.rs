//! Economy: what a store may keep of what it no longer needs. A correct store could keep everything for ever.
//!
//! The rule for space: when nothing is written for some seconds, tables and logs hold at most 1.3 times the
//! bytes of the rows, and a little more for each row, each file and each chunk. It is asked at the end of
//! each script.
//!
//! The rule for memory: behind each step, a store has charged what its engine says that it may
//! ([`Subject::bytes_chargeable`]), and beside it what a reader found that has not ended, and nothing that
//! came later (S-19): what was replaced stays charged until it is freed.

use std::sync::Arc;

use kvilt_base::{Direction, Engine, Stats};
use kvilt_sync::published::settle;

use crate::{
    reading::{Manner, Row},
    report::{Complaint, refused},
    run::all_rows,
    subject::Subject,
    world::World,
};

/// Time in which a store comes to rest, in milliseconds: it must notice that it is at rest, rewrite what is
/// due, and take the checkpoints that remove what was replaced.
const REST_MS: u32 = 400;
const RESTS: u32 = 40;
/// Bytes that a row takes in a log or a table beside key and value, at most.
const ROW_BYTES: u64 = 64;
/// Bytes that a file takes beside its rows: header, footer, filter, and a summary.
const FILE_BYTES: u64 = 256;

/// Fails if more is charged than may be beside what a reader found. While there is another world nobody can
/// tell: its readers keep what they find of every store of the process.
pub fn hold_to_budget(
    subject: &dyn Subject,
    world: &World,
    engine: &dyn Engine,
    found_bytes: u64,
) -> Result<(), Complaint> {
    let is_over = |stats: &Stats| stats.memory_bytes_now > subject.bytes_chargeable(stats, found_bytes);
    if !world.is_alone() || !is_over(&engine.stats()) {
        return Ok(());
    }
    // Of a world that has just ended, something may wait.
    settle();
    let stats = engine.stats();
    if !is_over(&stats) {
        return Ok(());
    }
    let may_be = subject.bytes_chargeable(&stats, found_bytes);
    Err(format!("{} bytes of memory are charged, and {may_be} may be: {stats:?}", stats.memory_bytes_now)
        .into())
}

/// Lets the store come to rest, and fails if its files then hold too much that is dead. No view is open.
pub fn weigh(subject: &dyn Subject, world: &World, engine: &Arc<dyn Engine>) -> Result<(), Complaint> {
    let mut held = 0;
    let mut may_be = 0;
    for _ in 0..RESTS {
        engine.sync().map_err(refused("sync"))?;
        world.advance(REST_MS);
        world.step_until_idle()?;
        let rows = all_rows(&**engine, Manner::whole(Direction::Forward))?;
        // A block may be as small as a row, and its key stands in the table's index again.
        let bytes_of = |(key, value): &Row| (2 * key.len() + value.len()) as u64 + ROW_BYTES;
        let row_bytes: u64 = rows.iter().map(bytes_of).sum();
        // Files that were replaced do not count: they wait for the pins of all stores in the process.
        let stats = engine.stats();
        held = stats.disk_bytes_now;
        // A file has its first and its last key besides.
        let key_bytes = rows.iter().map(|(key, _)| key.len() as u64).max().unwrap_or_default();
        let file_bytes = stats.files_now * (FILE_BYTES + 2 * key_bytes);
        may_be = row_bytes * 13 / 10 + file_bytes + subject.dead_bytes_at_rest();
        if held <= may_be {
            return Ok(());
        }
    }
    let stats = engine.stats();
    Err(format!("at rest, files of rows hold {held} bytes and may hold {may_be}: {stats:?}").into())
}
