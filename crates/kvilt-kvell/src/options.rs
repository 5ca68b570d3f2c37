//! `Options`: what a user may set.

use kvilt_base::{Error, Result};
use kvilt_format::slab::SHARDS_MAX;

/// Bytes of the memory budget that a shard needs to work.
const SHARD_BYTES_MIN: u64 = 128 << 10;

/// Settings of a `kvell` store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Shards of a store that is made: 1 to 64. A store keeps the number that it was made with.
    pub shards: u32,
    /// Reads and writes that a shard has in flight at once, at most.
    pub queue_depth: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { shards: 2, queue_depth: 64 }
    }
}

impl Options {
    pub(crate) fn check(&self, budget_bytes: u64) -> Result<()> {
        if !(1..=SHARDS_MAX as u32).contains(&self.shards) {
            let message = format!("shards is {}, but must be from 1 to {SHARDS_MAX}", self.shards);
            return Err(Error::invalid(message).by_setting("shards"));
        }
        if self.queue_depth == 0 {
            return Err(Error::invalid("queue_depth must be at least 1").by_setting("queue_depth"));
        }
        let needed = u64::from(self.shards) * SHARD_BYTES_MIN;
        if budget_bytes < needed {
            let message = format!(
                "{} shards need a memory budget of {} KiB, and there are {}",
                self.shards,
                needed >> 10,
                budget_bytes >> 10
            );
            return Err(Error::invalid(message).by_setting("memory_budget"));
        }
        Ok(())
    }
}
