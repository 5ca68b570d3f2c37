//! What a store must offer to take part. An adapter is one small file; it must not cache, batch or spare
//! anything that a user of that store would not.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::keys::KEY_BYTES;

/// An open store, used by several threads at once.
pub trait Store: Send + Sync {
    /// Puts one row, alone.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Puts rows together, in the way that the store likes best for loading.
    fn load(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        rows.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    /// Looks a key up and shows its value, if there is one.
    fn get(&self, key: &[u8], shown: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Looks several keys up in one call, shows the values that there are, and says how many. One after the
    /// other where the store has no such call.
    fn get_many(&self, keys: &[[u8; KEY_BYTES]], shown: &mut dyn FnMut(&[u8])) -> Result<u64> {
        keys.iter().try_fold(0, |found, key| Ok(found + u64::from(self.get(key, shown)?)))
    }

    /// Shows rows in order, from the first at or behind `from` to the last before `end`, at most `rows_max`.
    fn scan(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        rows_max: u64,
        shown: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()>;

    /// Makes all that was written durable, and ends background work that was put off.
    fn settle(&self) -> Result<()>;

    /// The store's own figures, as it names them.
    fn figures(&self) -> Value {
        Value::Null
    }

    /// Bytes that it has written to files since it was opened, by its own count, if it keeps one.
    fn written_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes of the files that make it up now, if it knows: without those that were replaced and wait to be
    /// removed.
    fn kept_bytes(&self) -> Option<u64> {
        None
    }

    /// Closes it in the orderly way.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A kind of store, by the name that the tables give it.
pub trait Contestant: Send + Sync {
    /// The name, as one word.
    fn name(&self) -> &'static str;

    /// The engine, if it is a store of ours: entries of two engines may have one name.
    fn engine(&self) -> Option<&'static str> {
        None
    }

    /// What an acknowledged put survives, in one short line.
    fn promise(&self) -> &'static str;

    /// Opens or creates a store within a budget of bytes for everything that it caches and buffers.
    fn open(&self, directory: &Path, budget_bytes: u64) -> Result<Box<dyn Store>>;
}
