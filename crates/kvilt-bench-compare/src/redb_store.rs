//! redb.
//!
//! | set | why |
//! | --- | --- |
//! | a cache of the whole budget | it has no other |
//! | commits that are not durable, and a durable one each half second | its asynchronous mode: without a durable commit nothing is ever freed; the rhythm is Kvilt's |
//! | a transaction each put and each read, a batch in one for loading | as a user would |

use std::{fs, path::Path, sync::Arc};

use anyhow::Result;
use kvilt_bench::store::{Contestant, Store};
use redb::{Builder, Database, Durability, TableDefinition};

use crate::ticker::Ticker;

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");

/// redb's entry.
pub(crate) struct Redb;

impl Contestant for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn promise(&self) -> &'static str {
        "a prefix after any crash, half a second old at most"
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        fs::create_dir_all(directory)?;
        let db = Builder::new().set_cache_size(budget_bytes as usize).create(directory.join("rows.redb"))?;
        let db = Arc::new(db);
        let synced = Arc::clone(&db);
        let opened = Opened { ticker: Ticker::start(move || sync(&synced)), db };
        // A table is there after its first opening for writing.
        opened.load(&[])?;
        Ok(Box::new(opened))
    }
}

/// A durable commit makes those before it durable.
fn sync(db: &Database) -> Result<()> {
    let mut transaction = db.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    Ok(transaction.commit()?)
}

struct Opened {
    db: Arc<Database>,
    ticker: Ticker,
}

impl Opened {
    fn put_all<'a>(&self, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::None)?;
        {
            let mut table = transaction.open_table(ROWS)?;
            for (key, value) in rows {
                table.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_all([(key, value)].into_iter())
    }

    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.put_all(rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice())))
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        use redb::ReadableDatabase;

        let table = self.db.begin_read()?.open_table(ROWS)?;
        let found = table.get(key)?;
        Ok(found.inspect(|value| shown(value.value())).is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        use redb::ReadableDatabase;

        let table = self.db.begin_read()?.open_table(ROWS)?;
        let rows = match end {
            Some(end) => table.range(from..end)?,
            None => table.range(from..)?,
        };
        for row in rows.take(rows_max as usize) {
            let (key, value) = row?;
            shown(key.value(), value.value());
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        sync(&self.db)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.ticker.stop()?;
        sync(&self.db)
    }
}
