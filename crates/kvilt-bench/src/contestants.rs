//! Kvilt's own entries.

use std::{ops::ControlFlow, path::Path};

use anyhow::Result;
use kvilt::{Db, Durability};
use serde_json::{Map, Value, json};

use crate::store::{Contestant, Store};

/// All of Kvilt's entries.
pub fn contestants() -> Vec<Box<dyn Contestant>> {
    vec![
        Box::new(Kvilt {
            name: "kvilt",
            promise: "a prefix after any crash, half a second old at most",
            durability: None,
        }),
        Box::new(Kvilt {
            name: "kvilt-sync",
            promise: "every acknowledged put survives a power cut",
            durability: Some(Durability::Sync),
        }),
    ]
}

struct Kvilt {
    name: &'static str,
    promise: &'static str,
    /// The default if none.
    durability: Option<Durability>,
}

impl Contestant for Kvilt {
    fn name(&self) -> &'static str {
        self.name
    }

    fn promise(&self) -> &'static str {
        self.promise
    }

    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>> {
        let mut builder = Db::builder(directory).memory_budget(budget_bytes);
        if let Some(durability) = self.durability {
            builder = builder.durability(durability);
        }
        Ok(Box::new(Opened(builder.open()?)))
    }
}

struct Opened(Db);

impl Store for Opened {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.0.get_with(key, shown)?.is_some())
    }

    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let range = match end {
            Some(end) => self.0.range(from..end),
            None => self.0.range(from..),
        };
        range.limit(rows_max as usize).visit(|key, value| {
            shown(key, value);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    fn figures(&self) -> Value {
        let figures: Map<String, Value> = self
            .0
            .stats()
            .figures()
            .into_iter()
            .map(|(name, figure)| (name.to_owned(), json!(figure)))
            .collect();
        Value::Object(figures)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}
