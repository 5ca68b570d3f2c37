//! LMDB, by way of heed.
//!
//! | set | why |
//! | --- | --- |
//! | `MDB_NOSYNC`, and a sync each half second | its asynchronous mode; the rhythm is Kvilt's |
//! | `MDB_NORDAHEAD` | its documents recommend it for random reads of data larger than memory |
//! | a map of 64 GiB | it cannot grow beyond, and costs nothing before it is used |
//! | no writable map | a stray pointer could damage the store, and a put is no faster on dirty pages in memory |
//! | a transaction each put, a batch in one for loading | as a user would |
//!
//! Its cache is the page cache: the budget cannot bound it, only a ceiling on the process does.

use std::{fs, path::Path};

use anyhow::Result;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, types::Bytes};
use kvilt_bench::store::{Contestant, Store};

use crate::ticker::Ticker;

/// Bytes of address space.
const MAP_BYTES: usize = 64 << 30;

/// LMDB's entry.
pub(crate) struct Lmdb;

impl Contestant for Lmdb {
    fn name(&self) -> &'static str {
        "lmdb"
    }

    fn promise(&self) -> &'static str {
        "after a kill everything; after a power cut the last half second may be gone, or the store damaged"
    }

    fn open(&self, directory: &Path, _budget_bytes: u64) -> Result<Box<dyn Store>> {
        fs::create_dir_all(directory)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        let env = open(&mut options, directory)?;
        let mut transaction = env.write_txn()?;
        let rows = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        let synced = env.clone();
        let ticker = Ticker::start(move || Ok(synced.force_sync()?));
        Ok(Box::new(Opened { env, rows, ticker }))
    }
}

/// Opens an environment without a sync each transaction, and without read-ahead.
#[expect(unsafe_code, reason = "heed cannot know what others do to the file")]
fn open(options: &mut EnvOpenOptions, directory: &Path) -> Result<Env> {
    // SAFETY: these two flags change no rule of memory; what a power cut does to the store is told in the
    // promise.
    unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_READ_AHEAD) };
    // SAFETY: the directory is a benchmark's own; nobody else opens, shortens or writes the file that gets
    // mapped.
    Ok(unsafe { options.open(directory) }?)
}

struct Opened {
    env: Env,
    rows: Database<Bytes, Bytes>,
    ticker: Ticker,
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.rows.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in rows {
            self.rows.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.env.read_txn()?;
        let found = self.rows.get(&transaction, key)?;
        Ok(found.inspect(|value| shown(value)).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        use std::ops::Bound::{Excluded, Included, Unbounded};

        let transaction = self.env.read_txn()?;
        // The first key must not be empty in LMDB, and no range can begin with an empty one.
        let from = if from.is_empty() { Unbounded } else { Included(from) };
        let range = (from, end.map_or(Unbounded, Excluded));
        for row in self.rows.range(&transaction, &range)?.take(rows_max as usize) {
            let (key, value) = row?;
            shown(key, value);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.ticker.stop()?;
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
