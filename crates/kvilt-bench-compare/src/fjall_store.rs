//! fjall.
//!
//! | set | why |
//! | --- | --- |
//! | journals, and so write buffers, of at most a quarter of the budget and 512 MiB, at least 64 MiB | journals keep what is in memory; 512 MiB is its default, 64 MiB its least |
//! | a block cache of the rest | its documents: more than a quarter of memory if the data fit |
//! | write buffers of a quarter of the journals, at most 64 MiB | its default is 64 MiB, and several wait to be written |
//! | no compression | as everybody here |
//! | journals not synced | its default, which it calls RocksDB's |

use std::path::Path;

use anyhow::Result;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, config::CompressionPolicy,
};
use kvilt_bench::store::{Contestant, Store};

const MIB: u64 = 1 << 20;

/// fjall's entry.
pub(crate) struct Fjall;

impl Contestant for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn promise(&self) -> &'static str {
        "after a kill everything; after a power cut a prefix of any length (its journal is not synced)"
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        let journal_bytes = (budget_bytes / 4).clamp(64 * MIB, 512 * MIB);
        let db = Database::builder(directory)
            .cache_size(budget_bytes.saturating_sub(journal_bytes))
            .max_journaling_size(journal_bytes)
            .journal_compression(CompressionType::None)
            .open()?;
        let rows = db.keyspace("rows", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size((journal_bytes / 4).min(64 * MIB))
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
        })?;
        Ok(Box::new(Opened { db, rows }))
    }
}

struct Opened {
    db: Database,
    rows: Keyspace,
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.rows.insert(key, value)?)
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (key, value) in rows {
            batch.insert(&self.rows, key.as_slice(), value.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.rows.get(key)?;
        Ok(found.inspect(|value| shown(value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let rows = match end {
            Some(end) => self.rows.range(from..end),
            None => self.rows.range(from..),
        };
        for row in rows.take(rows_max as usize) {
            let (key, value) = row.into_inner()?;
            shown(&key, &value);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}
