//! Economy: what a store may keep of what it no longer needs. A correct store could keep everything for ever.
//!
//! The rule for space: when nothing is written for some seconds, tables and logs hold at most 1.3 times the
//! bytes of the rows, and a little more for each row, each file and each chunk. It is asked at the end of
//! each script.
//!
//! The rule for memory: behind each step, munks have what all else leaves of nine eighths of the budget
//! (E-19), and beside it
//! - what a reader found that has not ended, and nothing that came later (S-19): munks that were replaced
//!   stay charged until they are freed;
//! - an open tail each, which fills without a wait, for room was made when it began;
//! - four munks: one that grows under a put which has waited long enough, one that is loaded, one that is
//!   sorted, one that is split.
//!
//! What else is charged is not bounded here, because it does not give way to anything: under budgets as small
//! as those of most scripts, the least that files, logs and their keys take is more than the budget.
//! `crates/kvilt-even/tests` has tests for that.

use std::sync::Arc;

use kvilt_base::{Direction, Engine, Stats};
use kvilt_sync::published::settle;

use crate::{
    reading::{Manner, Row},
    report::{Complaint, refused},
    run::all_rows,
    world::{Subject, World},
};

/// Time in which a store comes to rest, in milliseconds: it must notice that it is at rest, rewrite what is
/// due, and take the checkpoints that remove what was replaced.
const REST_MS: u32 = 400;
const RESTS: u32 = 40;
/// Bytes that a row takes in a log or a table beside key and value, at most.
const ROW_BYTES: u64 = 64;
/// Bytes that a file takes beside its rows: header, footer, filter, and a summary.
const FILE_BYTES: u64 = 256;

/// Munks that may be above the budget, see the head of this file.
const MUNKS_BESIDE: u64 = 4;
/// A tail has room for an eighth of what a munk may have, at most …
const TAIL_PART: u64 = 8;
/// … and takes a page and a table of slots, in bytes, from its first row on.
const TAIL_BYTES_MIN: u64 = 6 << 10;

/// Bytes that a reader which begins now may keep.
pub fn bytes_to_find(subject: &dyn Subject, stats: &Stats) -> u64 {
    // Of a chunk that is split later it keeps the munk as that was last: 0058.
    stats.memory_bytes_now + own(stats, "munks_now") * subject.munk_bytes_max()
}

/// Fails if munks have more than they may beside what a reader found. While there is another world nobody can
/// tell: its readers keep what they find of every store of the process.
pub fn hold_to_budget(
    subject: &dyn Subject,
    world: &World,
    engine: &dyn Engine,
    found_bytes: u64,
) -> Result<(), Complaint> {
    let is_over = |stats: &Stats| stats.memory_bytes_now > may_be_charged(subject, stats, found_bytes);
    if !world.is_alone() || !is_over(&engine.stats()) {
        return Ok(());
    }
    // Of a world that has just ended, something may wait.
    settle();
    let stats = engine.stats();
    if !is_over(&stats) {
        return Ok(());
    }
    let may_be = may_be_charged(subject, &stats, found_bytes);
    Err(format!("{} bytes of memory are charged, and {may_be} may be: {stats:?}", stats.memory_bytes_now)
        .into())
}

fn may_be_charged(subject: &dyn Subject, stats: &Stats, found_bytes: u64) -> u64 {
    let munk = subject.munk_bytes_max();
    let others = stats.memory_bytes_now - own(stats, "munk_bytes_now");
    let tails = own(stats, "munks_now") * (TAIL_BYTES_MIN + munk / TAIL_PART);
    others.max(stats.budget_bytes / 8 * 9) + found_bytes + tails + MUNKS_BESIDE * munk
}

/// A figure of the engine's own; zero if it has none of this name, as one without munks.
fn own(stats: &Stats, name: &str) -> u64 {
    stats.own(name).unwrap_or(0)
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
