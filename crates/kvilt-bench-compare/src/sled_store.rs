//! sled, version 0.34.
//!
//! | set | why |
//! | --- | --- |
//! | a cache of the whole budget | it counts what it keeps in memory against it |
//! | `HighThroughput` | its documents recommend it where disk space is no concern |
//! | a flush each half second | its default |
//! | no compression | its default |
//!
//! It takes 13 times its data on disk after a while, and seconds to open: comparisons give it little data and
//! a bound on its time.

use std::path::Path;

use anyhow::Result;
use kvilt_bench::store::{Contestant, Store};
use sled::{Batch, Config, Db, Mode};

/// sled's entry.
pub(crate) struct Sled;

impl Contestant for Sled {
    fn name(&self) -> &'static str {
        "sled"
    }

    fn promise(&self) -> &'static str {
        "after any crash what was flushed half a second ago"
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        let config = Config::new()
            .path(directory)
            .cache_capacity(budget_bytes)
            .mode(Mode::HighThroughput)
            .flush_every_ms(Some(500));
        Ok(Box::new(Opened(config.open()?)))
    }
}

struct Opened(Db);

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value)?;
        Ok(())
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = Batch::default();
        for (key, value) in rows {
            batch.insert(key.as_slice(), value.as_slice());
        }
        Ok(self.0.apply_batch(batch)?)
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.0.get(key)?;
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
            Some(end) => self.0.range(from..end),
            None => self.0.range(from..),
        };
        for row in rows.take(rows_max as usize) {
            let (key, value) = row?;
            shown(&key, &value);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.0.flush()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.flush()?;
        Ok(())
    }
}
