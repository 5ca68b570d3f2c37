//! The memory that a store of `even` may have charged behind each step.
//!
//! Munks have what all else leaves of nine eighths of the budget (E-19), and beside it
//! - what a reader found that has not ended, and nothing that came later (S-19): munks that were replaced
//!   stay charged until they are freed;
//! - an open tail each, which fills without a wait, for room was made when it began;
//! - four munks: one that grows under a put which has waited long enough, one that is loaded, one that is
//!   sorted, one that is split.
//!
//! What else is charged is not bounded here, because it does not give way to anything: under budgets as small
//! as those of most scripts, the least that files, logs and their keys take is more than the budget.
//! `crates/kvilt-even/tests` has tests for that.

use kvilt_base::Stats;

use super::Even;

/// Munks that may be above the budget, see the head of this file.
const MUNKS_BESIDE: u64 = 4;
/// A tail has room for an eighth of what a munk may have, at most …
const TAIL_PART: u64 = 8;
/// … and takes a page and a table of slots, in bytes, from its first row on.
const TAIL_BYTES_MIN: u64 = 6 << 10;

pub(super) fn bytes_to_find(even: &Even, stats: &Stats) -> u64 {
    // Of a chunk that is split later it keeps the munk as that was last: 0058.
    stats.memory_bytes_now + stats["munks_now"] * munk_bytes_max(even)
}

pub(super) fn bytes_chargeable(even: &Even, stats: &Stats, found_bytes: u64) -> u64 {
    let munk = munk_bytes_max(even);
    let others = stats.memory_bytes_now - stats["munk_bytes_now"];
    let tails = stats["munks_now"] * (TAIL_BYTES_MIN + munk / TAIL_PART);
    others.max(stats.budget_bytes / 8 * 9) + found_bytes + tails + MUNKS_BESIDE * munk
}

/// Bytes of memory that a munk may have before puts to it wait.
fn munk_bytes_max(even: &Even) -> u64 {
    let (max, rebalance) = (even.options.chunk_bytes_max, even.options.chunk_bytes_rebalance);
    // As chunks shrink with the budget; puts wait from twice their most on. A row of up to an eighth of it is
    // not too large for a munk.
    let fitted = rebalance.min((even.budget_bytes / 16).max(4 << 10));
    2 * fitted * max / rebalance + (even.budget_bytes / 8).max(4 << 10)
}
