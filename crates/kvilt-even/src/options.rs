//! `Options`: what a user may set, each with its unit and reason; `Config`: the same, checked once.

use std::{fmt, time::Duration};

use kvilt_base::{Durability, Error, Result, Settings, limits};

/// Chunks are not made shorter than this for the sake of a small memory budget, in bytes. Each chunk has
/// files, a log's index and bounds: where there are thousands of them for a megabyte of memory, those take
/// all of it, and a checkpoint takes seconds.
const CHUNK_BYTES_FLOOR: u64 = 256 << 10;
/// Part of the memory budget that the pool may have, twice what write buffers have together: they lie in
/// whole pages. At least [`POOL_BYTES_MIN`], in bytes.
const POOL_SHARE: u64 = 8;
const POOL_BYTES_MIN: u64 = 1 << 20;

pub use kvilt_format::table::Compression;

use crate::funk::log::SummaryRule;

/// Settings of an `even` store. Everything has a default that was measured; see `docs/performance.md`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What every engine is given.
    pub settings: Settings,
    /// Bytes a chunk may hold before it must be split (EvenDB: 10 MB). Larger chunks mean fewer files, longer
    /// rebalances, and coarser caching.
    pub chunk_bytes_max: u64,
    /// Bytes at which the background splits it (EvenDB: 7 MB), so that the limit is seldom met.
    pub chunk_bytes_rebalance: u64,
    /// Bytes below which a chunk is coalesced with a neighbour.
    pub chunk_bytes_min: u64,
    /// Bytes of log that a chunk without a munk may have before a scan of it pays for a rewrite (EvenDB: 2
    /// MB). Chunks that nobody scans may grow further, up to `log_bytes_max_unread`.
    pub log_bytes_max_cold: u64,
    /// Bytes of log that a chunk with a munk may have (EvenDB: 20 MB): bounds what a later load must read.
    pub log_bytes_max_cached: u64,
    /// Bytes of log that a chunk without a munk may have if it is written only. Bounds one rewrite.
    pub log_bytes_max_unread: u64,
    /// Bytes of a log's write buffer, at most, and an eighth more for the record that lies across its end; a
    /// chunk's buffer adapts to how much is written to it.
    pub log_buffer_bytes_max: usize,
    /// Bytes of a log after which its keys are summed up, so that nobody has to read the values to know them.
    pub log_summary_bytes: u64,
    /// Of these, a summary takes so many percent at most; a log of shorter records has none.
    pub log_summary_percent: u32,
    /// Bytes of disk that are kept back, at most, for deletes and checkpoints on a full disk; see
    /// `docs/design/0024-reserve.md`.
    pub reserve_bytes_max: u64,
    /// Bytes of dead rows that files may hold beyond as many as there are live ones; see
    /// `docs/design/0056-space-comes-back.md`.
    pub dead_bytes_slack: u64,
    /// Bytes of the file with the write buffers, at most; an eighth of the memory budget, or 1 MiB, if that
    /// is less. What has no room there is written to its log at once.
    pub pool_bytes_max: u64,
    /// Part of the memory budget for the row cache, in percent. While reads wait for the drive it also gets
    /// what nothing else uses; with 0 it gets nothing.
    pub row_cache_percent: u32,
    /// Compression of table blocks.
    pub compression: Compression,
    /// Bytes of a table block before compression.
    pub block_bytes: usize,
    /// Values of more bytes are never in memory as a whole when a chunk is rewritten, and one at a time when
    /// it is scanned. Less than usual makes rewrites slow; it is for tests, which reach with small values
    /// then what else takes large ones.
    pub streamed_bytes_min: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            settings: Settings::default(),
            chunk_bytes_max: 10 << 20,
            chunk_bytes_rebalance: 7 << 20,
            chunk_bytes_min: 1 << 20,
            log_bytes_max_cold: 2 << 20,
            log_bytes_max_cached: 20 << 20,
            log_bytes_max_unread: 48 << 20,
            log_buffer_bytes_max: 64 << 10,
            log_summary_bytes: 128 << 10,
            log_summary_percent: 6,
            reserve_bytes_max: 4 << 20,
            dead_bytes_slack: 64 << 20,
            pool_bytes_max: u64::MAX,
            row_cache_percent: 10,
            compression: Compression::None,
            block_bytes: 4096,
            streamed_bytes_min: limits::STREAMED_BYTES_MIN,
        }
    }
}

impl Options {
    /// Limits so small that every path runs within a few dozen operations.
    pub fn tiny() -> Self {
        Options {
            chunk_bytes_max: 4 << 10,
            chunk_bytes_rebalance: 3 << 10,
            chunk_bytes_min: 512,
            log_bytes_max_cold: 1 << 10,
            log_bytes_max_cached: 4 << 10,
            log_bytes_max_unread: 6 << 10,
            log_buffer_bytes_max: 512,
            log_summary_bytes: 400,
            log_summary_percent: 100,
            reserve_bytes_max: 4 << 10,
            dead_bytes_slack: 16 << 10,
            block_bytes: 256,
            ..Options::default()
        }
    }

    /// Checks them for a store with so much memory, as [`crate::open`] does.
    ///
    /// Errors: `InvalidArgument`, with the name of what makes no sense.
    pub fn validate(&self, budget_bytes: u64) -> Result<()> {
        self.check(budget_bytes).map(drop)
    }

    /// Checks them, and fits the sizes that must fit into memory to `budget_bytes`.
    pub(crate) fn check(&self, budget_bytes: u64) -> Result<Config> {
        let at_least = |name: &'static str, value: u64, least: u64| match value < least {
            true => Err(refused(name, format_args!("is {value}, but must be at least {least}"))),
            false => Ok(()),
        };
        at_least("chunk_bytes_rebalance", self.chunk_bytes_rebalance, 256)?;
        at_least("log_bytes_max_cold", self.log_bytes_max_cold, 256)?;
        at_least("log_buffer_bytes_max", self.log_buffer_bytes_max as u64, 64)?;
        at_least("block_bytes", self.block_bytes as u64, 64)?;
        at_least("log_summary_bytes", self.log_summary_bytes, 64)?;
        at_least("streamed_bytes_min", self.streamed_bytes_min as u64, 64)?;
        let rebalance = self.chunk_bytes_rebalance;
        if self.chunk_bytes_max < rebalance {
            let reason = "less than chunk_bytes_rebalance,";
            return Err(refused(
                "chunk_bytes_max",
                format_args!("is {}, {reason} {rebalance}", self.chunk_bytes_max),
            ));
        }
        if self.chunk_bytes_min > rebalance / 2 {
            let reason = "more than half of chunk_bytes_rebalance,";
            return Err(refused(
                "chunk_bytes_min",
                format_args!("is {}, {reason} {rebalance}", self.chunk_bytes_min),
            ));
        }
        let (cold, most) = (self.log_bytes_max_cold, self.log_bytes_max_unread);
        if cold > most {
            return Err(refused("log_bytes_max_cold", format_args!("is {cold}, but must be at most {most}")));
        }
        if self.row_cache_percent > 90 {
            let percent = self.row_cache_percent;
            return Err(refused("row_cache_percent", format_args!("is {percent}, but must be at most 90")));
        }
        self.settings.validate()?;
        Ok(Config { budget_bytes, ..self.fitted(budget_bytes) })
    }

    /// A munk must be small against the budget, or two chunks would fill it: chunks shrink with it, down to
    /// `CHUNK_BYTES_FLOOR`.
    fn fitted(&self, budget_bytes: u64) -> Config {
        let rebalance = self.chunk_bytes_rebalance.min((budget_bytes / 16).max(CHUNK_BYTES_FLOOR));
        let shrink = |bytes: u64| {
            // Scaled in u128, so that no product overflows.
            ((u128::from(bytes) * u128::from(rebalance)) / u128::from(self.chunk_bytes_rebalance)) as u64
        };
        Config {
            durability: self.settings.durability.bounded(),
            is_read_only: self.settings.read_only,
            chunk_bytes_max: shrink(self.chunk_bytes_max).max(rebalance),
            chunk_bytes_rebalance: rebalance,
            chunk_bytes_min: shrink(self.chunk_bytes_min),
            // A cold log costs an index in memory, and a rewrite holds it there whole.
            log_bytes_max_cold: self.log_bytes_max_cold.min((budget_bytes / 32).max(CHUNK_BYTES_FLOOR / 2)),
            log_bytes_max_cached: self.log_bytes_max_cached.min((budget_bytes / 4).max(CHUNK_BYTES_FLOOR)),
            log_bytes_max_unread: self.log_bytes_max_unread.min((budget_bytes / 8).max(CHUNK_BYTES_FLOOR)),
            log_buffer_bytes_max: self.log_buffer_bytes_max.min((budget_bytes / 1024).max(512) as usize),
            // Who does not write keeps no room for it.
            reserve_bytes_max: if self.settings.read_only { 0 } else { self.reserve_bytes_max },
            batch_operations_max: self.settings.batch_operations_max,
            batch_bytes_max: self.settings.batch_bytes_max,
            munk_put_bytes_max: (budget_bytes / 8).max(4 << 10),
            dead_bytes_slack: self.dead_bytes_slack,
            pool_bytes_max: self.pool_bytes_max.min((budget_bytes / POOL_SHARE).max(POOL_BYTES_MIN)),
            row_cache_bytes: budget_bytes / 100 * u64::from(self.row_cache_percent),
            view_age_max: self.settings.view_age_max,
            tail_bytes: (rebalance / 4).max(512) as usize,
            compression: self.compression,
            block_bytes: self.block_bytes,
            log_piece_bytes: 2 * self.block_bytes as u64,
            streamed_bytes_min: self.streamed_bytes_min,
            summary_rule: SummaryRule {
                covered_bytes: self.log_summary_bytes,
                percent: u64::from(self.log_summary_percent),
            },
            budget_bytes,
        }
    }
}

fn refused(name: &'static str, reason: fmt::Arguments<'_>) -> Error {
    Error::invalid(format!("{name} {reason}")).by_setting(name)
}

/// Checked settings, in the engine's own terms.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) durability: Durability,
    pub(crate) is_read_only: bool,
    pub(crate) chunk_bytes_max: u64,
    pub(crate) chunk_bytes_rebalance: u64,
    pub(crate) chunk_bytes_min: u64,
    pub(crate) log_bytes_max_cold: u64,
    pub(crate) log_bytes_max_cached: u64,
    pub(crate) log_bytes_max_unread: u64,
    pub(crate) log_buffer_bytes_max: usize,
    pub(crate) reserve_bytes_max: u64,
    pub(crate) batch_operations_max: usize,
    pub(crate) batch_bytes_max: usize,
    /// More bytes at once go to no munk, and their log buffer has what buffers may take of the budget alone.
    pub(crate) munk_put_bytes_max: u64,
    pub(crate) dead_bytes_slack: u64,
    pub(crate) pool_bytes_max: u64,
    pub(crate) row_cache_bytes: u64,
    pub(crate) view_age_max: Duration,
    /// Capacity of a munk's tail: what may be unsorted before it is compacted.
    pub(crate) tail_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) block_bytes: usize,
    /// What a scan of few rows reads at least of a log that is in order.
    pub(crate) log_piece_bytes: u64,
    pub(crate) streamed_bytes_min: usize,
    pub(crate) summary_rule: SummaryRule,
    pub(crate) budget_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_tiny_are_sound_and_nonsense_is_refused_by_name() {
        assert!(Options::default().check(1 << 30).is_ok());
        assert!(Options::tiny().check(1 << 20).is_ok());
        let usual = Options::default;
        // Those that the façade does not have; it tests its own (`kvilt`, `opening`).
        for (name, nonsense) in [
            ("log_buffer_bytes_max", Options { log_buffer_bytes_max: 63, ..usual() }),
            ("log_summary_bytes", Options { log_summary_bytes: 63, ..usual() }),
            ("streamed_bytes_min", Options { streamed_bytes_min: 63, ..usual() }),
            ("row_cache_percent", Options { row_cache_percent: 91, ..usual() }),
        ] {
            let error = nonsense.check(1 << 30).unwrap_err();
            assert_eq!(error.setting(), Some(name), "{error}");
            assert!(error.message().starts_with(name), "{error}");
        }
    }

    #[test]
    fn chunks_shrink_with_a_small_budget() {
        let config = Options::default().check(4 << 20).unwrap();
        assert!(config.chunk_bytes_max <= (4 << 20) / 8, "{config:?}");
        assert!(config.chunk_bytes_min <= config.chunk_bytes_rebalance / 2);
    }
}
