//! RocksDB, four times: as it comes, with a write-ahead log buffered as Kvilt's logs are, synchronous, and
//! with all rows in one skip list, as TeksDB's paper measured it: a write buffer of half the budget, which no
//! phase flushes at its end.
//!
//! | set | why |
//! | --- | --- |
//! | a block cache of the whole budget, hyper-clock | what its documents recommend since version 7.7 |
//! | write buffers of at most 2 × 64 MiB and a quarter of the budget, charged to the cache | the budget is for both; 64 MiB is its default |
//! | index and filter blocks in the cache, those of level 0 pinned | else they would be outside of the budget; its tuning guide's advice |
//! | Bloom filters of 10 bits | its tuning guide's advice |
//! | `level_compaction_dynamic_level_bytes`, `bytes_per_sync` of 1 MiB | its tuning guide's advice |
//! | 4 background jobs | its tuning guide's advice is 6 on larger machines; here are two processors |
//! | blocks of 4 KiB | its default; 16 KiB, as its guide has it, would read four times as much for a row of 800 bytes |
//! | no compression | as everybody here |

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use kvilt_bench::store::{Contestant, Store};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, FlushOptions, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use serde_json::{Value, json};

use crate::ticker::Ticker;

/// Longest wait for compactions between two phases: of an LSM store, LevelDB as well.
pub(crate) const COMPACTION_WAIT_MAX: Duration = Duration::from_secs(120);

/// Bytes of both write buffers, of an LSM store as well.
pub(crate) fn write_buffers_bytes(budget: usize) -> usize {
    (128 << 20).min(budget / 4)
}

/// Its entries.
pub(crate) fn contestants() -> Vec<Box<dyn Contestant>> {
    [Rocks::Default, Rocks::Buffered, Rocks::Synced, Rocks::SkipList].map(|one| Box::new(one) as _).into()
}

/// How puts get to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rocks {
    /// Each put makes a system call to write the log.
    Default,
    /// The log is buffered in the process, written and synced each half second: after a power cut, what Kvilt
    /// promises.
    Buffered,
    /// Each put, or each group of puts, syncs the log.
    Synced,
    /// As it comes, with a write buffer for all rows.
    SkipList,
}

impl Contestant for Rocks {
    fn name(&self) -> &'static str {
        match self {
            Rocks::Default => "rocksdb",
            Rocks::Buffered => "rocksdb-buffered",
            Rocks::Synced => "rocksdb-sync",
            Rocks::SkipList => "rocksdb-list",
        }
    }

    fn promise(&self) -> &'static str {
        match self {
            Rocks::Default | Rocks::SkipList => {
                "after a kill everything; after a power cut a prefix of any length (its log is not synced)"
            }
            Rocks::Buffered => "a prefix after any crash, half a second old at most",
            Rocks::Synced => "every acknowledged put survives a power cut",
        }
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        let budget = budget_bytes as usize;
        let is_list = *self == Rocks::SkipList;
        let mut options = options(budget, if is_list { budget } else { write_buffers_bytes(budget) });
        options.set_manual_wal_flush(*self == Rocks::Buffered);
        let db = Arc::new(DB::open(&options, directory)?);
        let ticker = (*self == Rocks::Buffered).then(|| {
            let db = Arc::clone(&db);
            Ticker::start(move || Ok(db.flush_wal(true)?))
        });
        let mut write = WriteOptions::default();
        write.set_sync(*self == Rocks::Synced);
        Ok(Box::new(Opened { db, write, ticker, is_list }))
    }
}

/// With this budget, and of it so much for two write buffers.
fn options(budget: usize, buffers: usize) -> Options {
    // Zero lets the cache find out by itself how large blocks are.
    let cache = Cache::new_hyper_clock_cache(budget, 0);
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        buffers, false, cache,
    ));
    options.set_write_buffer_size(buffers / 2);
    options.set_compression_type(DBCompressionType::None);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_bytes_per_sync(1 << 20);
    options.set_max_background_jobs(4);
    options
}

struct Opened {
    db: Arc<DB>,
    write: WriteOptions,
    ticker: Option<Ticker>,
    /// Whether rows stay in the skip list.
    is_list: bool,
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in rows {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.db.get_pinned(key)?;
        Ok(found.inspect(|value| shown(value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let mut read = ReadOptions::default();
        if let Some(end) = end {
            read.set_iterate_upper_bound(end);
        }
        let mut rows = self.db.raw_iterator_opt(read);
        rows.seek(from);
        for _ in 0..rows_max {
            let Some((key, value)) = rows.item() else { break };
            shown(key, value);
            rows.next();
        }
        Ok(rows.status()?)
    }

    /// Also waits for compactions: what a phase put off counts for that phase, and the next begins in order.
    fn settle(&self) -> Result<()> {
        self.db.flush_wal(true)?;
        if self.is_list {
            return Ok(());
        }
        self.db.flush_opt(&FlushOptions::default())?;
        let mut wait = WaitForCompactOptions::default();
        wait.set_timeout(COMPACTION_WAIT_MAX.as_micros() as u64);
        match self.db.wait_for_compact(&wait) {
            // As compacted as it gets in that time; a store that cannot keep up may not stop the comparison.
            Err(error) if error.kind() == rocksdb::ErrorKind::TimedOut => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn figures(&self) -> Value {
        let figure = |name: &str| self.db.property_int_value(name).ok().flatten();
        json!({
            "block_cache_bytes": figure("rocksdb.block-cache-usage"),
            "memtable_bytes": figure("rocksdb.cur-size-all-mem-tables"),
            "pending_compaction_bytes": figure("rocksdb.estimate-pending-compaction-bytes"),
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        if let Some(ticker) = self.ticker {
            ticker.stop()?;
        }
        self.db.flush_wal(true)?;
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
