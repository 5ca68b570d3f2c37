//! Kvilt's own entries, of each engine: the one place that knows how an engine takes part.

use std::{ops::ControlFlow, path::Path};

use anyhow::Result;
use kvilt::{Builder, Db, Durability, WriteBatch};
use serde_json::{Map, Value, json};

use crate::{
    keys::KEY_BYTES,
    store::{Contestant, Store},
};

/// The engine that is measured if none is named.
pub const DEFAULT_ENGINE: &str = "even";

/// All of Kvilt's entries.
pub fn contestants() -> Vec<Box<dyn Contestant>> {
    even().into_iter().chain(kvell()).chain(teks()).map(|one| Box::new(one) as Box<dyn Contestant>).collect()
}

/// As it comes, with scans by the iterator instead of `visit`, with each put synced, and with other limits of
/// cold logs than its default, which is 2 MiB.
fn even() -> [Kvilt; 7] {
    let as_it_comes = |name, set| Kvilt {
        name,
        engine: "even",
        promise: "after a kill everything; after a power cut a prefix, half a second old at most",
        is_synced: false,
        is_iterated: false,
        set,
    };
    [
        as_it_comes("kvilt", |builder| builder),
        Kvilt { is_iterated: true, ..as_it_comes("kvilt-iter", |builder| builder) },
        Kvilt {
            name: "kvilt-sync",
            engine: "even",
            promise: "every acknowledged put survives a power cut",
            is_synced: true,
            is_iterated: false,
            set: |builder| builder.durability(Durability::Sync),
        },
        as_it_comes("kvilt-log-128k", |builder| with_log(builder, 128 << 10)),
        as_it_comes("kvilt-log-512k", |builder| with_log(builder, 512 << 10)),
        as_it_comes("kvilt-log-1m", |builder| with_log(builder, 1 << 20)),
        as_it_comes("kvilt-log-4m", |builder| with_log(builder, 4 << 20)),
    ]
}

/// As it comes, and with each put synced.
fn kvell() -> [Kvilt; 2] {
    [
        Kvilt {
            name: "kvilt-kvell",
            engine: "kvell",
            promise: "after a kill everything; after a power cut a prefix, half a second old at most",
            is_synced: false,
            is_iterated: false,
            set: with_kvell,
        },
        Kvilt {
            name: "kvilt-kvell-sync",
            engine: "kvell",
            promise: "every acknowledged put survives a power cut",
            is_synced: true,
            is_iterated: false,
            set: |builder| with_kvell(builder).durability(Durability::Sync),
        },
    ]
}

fn with_kvell(builder: Builder) -> Builder {
    builder.engine(kvilt::Engine::Kvell(kvilt::kvell::Options::default()))
}

/// As it comes, with each put synced, and with the first of the paper's steps only: the list is woven in the
/// put (`s`), then asynchronously (`a`), puts are concurrent (`c`), seeks have a shortcut (`s`). As it comes,
/// rows are put in place, too.
fn teks() -> [Kvilt; 6] {
    let as_it_comes = |name, set| Kvilt {
        name,
        engine: "teks",
        promise: "after a kill everything; after a power cut a prefix, half a second old at most",
        is_synced: false,
        is_iterated: false,
        set,
    };
    [
        as_it_comes("kvilt-teks", |builder| with_steps(builder, 4)),
        as_it_comes("kvilt-teks-s", |builder| with_steps(builder, 0)),
        as_it_comes("kvilt-teks-a", |builder| with_steps(builder, 1)),
        as_it_comes("kvilt-teks-ac", |builder| with_steps(builder, 2)),
        as_it_comes("kvilt-teks-acs", |builder| with_steps(builder, 3)),
        Kvilt {
            name: "kvilt-teks-sync",
            engine: "teks",
            promise: "every acknowledged put survives a power cut",
            is_synced: true,
            is_iterated: false,
            set: |builder| with_steps(builder, 4).durability(Durability::Sync),
        },
    ]
}

fn with_steps(builder: Builder, count: usize) -> Builder {
    builder.engine(kvilt::Engine::Teks(kvilt::teks::Options::default().steps(count)))
}

struct Kvilt {
    name: &'static str,
    engine: &'static str,
    promise: &'static str,
    is_synced: bool,
    /// Scans are by `for row in range`, which copies rows, instead of `visit`, which shows them.
    is_iterated: bool,
    /// What is set beside the budget; the engine, too, unless it is the default one.
    set: fn(Builder) -> Builder,
}

impl Contestant for Kvilt {
    fn name(&self) -> &'static str {
        self.name
    }

    fn engine(&self) -> Option<&'static str> {
        Some(self.engine)
    }

    fn promise(&self) -> &'static str {
        self.promise
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        let db = (self.set)(Db::builder(directory).memory_budget(budget_bytes)).open()?;
        Ok(Box::new(Opened { db, is_synced: self.is_synced, is_iterated: self.is_iterated }))
    }
}

struct Opened {
    db: Db,
    is_synced: bool,
    is_iterated: bool,
}

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    /// Rows alone where that costs no sync, else in batches.
    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        if !self.is_synced {
            return rows.iter().try_for_each(|(key, value)| self.put(key, value));
        }
        let mut batch = WriteBatch::new();
        for (key, value) in rows {
            batch.put(key, value);
        }
        Ok(self.db.write(batch)?)
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.db.get_with(key, shown)?.is_some())
    }

    fn get_many(&self, keys: &[[u8; KEY_BYTES]], shown: &mut dyn FnMut(&[u8])) -> Result<u64> {
        let mut found = 0;
        for value in self.db.get_many(keys)?.into_iter().flatten() {
            shown(&value);
            found += 1;
        }
        Ok(found)
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let range = match end {
            Some(end) => self.db.range(from..end),
            None => self.db.range(from..),
        };
        let range = range.limit(rows_max as usize);
        if self.is_iterated {
            for row in range {
                let (key, value) = row?;
                shown(&key, &value);
            }
            return Ok(());
        }
        range.visit(|key, value| {
            shown(key, value);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.sync()?)
    }

    fn figures(&self) -> Value {
        let figures: Map<String, Value> = self
            .db
            .stats()
            .figures()
            .into_iter()
            .map(|figure| (figure.name.to_owned(), json!(figure.value)))
            .collect();
        Value::Object(figures)
    }

    fn written_bytes(&self) -> Option<u64> {
        Some(self.db.stats().bytes_written)
    }

    fn kept_bytes(&self) -> Option<u64> {
        Some(self.db.stats().disk_bytes_now)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

/// With this limit on the logs of chunks that are not in memory, in bytes.
fn with_log(builder: Builder, bytes: u64) -> Builder {
    builder.engine(kvilt::Engine::Even(kvilt::even::Options::default().log_bytes_max_cold(bytes)))
}
