//! `WriteBatch`: several writes, in one or more keyspaces, that happen together or not at all.

use std::sync::Arc;

use kvilt_base::{
    Error, Result,
    limits::{KEY_BYTES_MAX, check_key, check_value},
};

use crate::{
    keyspace::{Keyspace, foreign},
    space::{DEFAULT_ID, Space, encode_id},
    store::Store,
};

/// Writes that are seen whole or not at all: by gets, by scans, by snapshots, and after a crash.
///
/// Filled first, then given to [`crate::Db::write`]. `put` and `delete` mean the default keyspace, `put_in`
/// and `delete_in` any other; one batch may touch many. A later operation on a key wins over an earlier one.
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = kvilt::Db::open(dir.path().join("bank"))?;
/// let journal = db.keyspace("journal")?;
/// let mut batch = kvilt::WriteBatch::new();
/// batch.put("account/ada", "90").put("account/bob", "110");
/// batch.put_in(&journal, "2024-05-01/1", "ada to bob: 10");
/// db.write(batch)?;
/// assert_eq!(journal.iter().count(), 1);
/// # Ok(())
/// # }
/// ```
///
/// Limits: 32,768 operations and 72 MiB of keys and values, so that one batch has room for the largest value
/// and what belongs to it. They are checked by `write`, before anything is written; a batch beyond them fails
/// as `InvalidArgument`, and the error says the limits. While a batch is written, writes to its chunks and
/// new snapshots wait for all of it: with these limits some tens of milliseconds at the most.
/// [`crate::Builder::batch_operations_max`] and [`crate::Builder::batch_bytes_max`] change them.
#[derive(Debug, Default)]
pub struct WriteBatch {
    operations: kvilt_base::WriteBatch,
    /// The keyspaces named, each once, for the checks at the write.
    touched: Vec<(Arc<Store>, Arc<Space>)>,
    /// The first operation that is beyond a limit.
    refused: Option<Error>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// Adds: give `key` this `value`, in the default keyspace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(default_prefix().as_slice(), key.as_ref(), Some(value.as_ref()))
    }

    /// Adds: take `key`'s value away, in the default keyspace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(default_prefix().as_slice(), key.as_ref(), None)
    }

    /// Adds: give `key` this `value`, in `keyspace`.
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.touch(keyspace);
        self.push(keyspace.space.prefix(), key.as_ref(), Some(value.as_ref()))
    }

    /// Adds: take `key`'s value away, in `keyspace`.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        self.touch(keyspace);
        self.push(keyspace.space.prefix(), key.as_ref(), None)
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.operations.bytes()
    }

    /// Takes everything out; the batch can be filled again.
    pub fn clear(&mut self) {
        *self = WriteBatch::default();
    }

    /// The engine's form, if all of it may be written to `store`.
    pub(crate) fn into_operations(self, store: &Arc<Store>) -> Result<kvilt_base::WriteBatch> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        for (owner, space) in &self.touched {
            if !Arc::ptr_eq(owner, store) {
                return Err(foreign(&Keyspace::new(owner, space)));
            }
            space.check_open()?;
        }
        Ok(self.operations)
    }

    fn push(&mut self, prefix: &[u8], key: &[u8], value: Option<&[u8]>) -> &mut Self {
        let checked = check_key(key, KEY_BYTES_MAX).and_then(|()| check_value(value.unwrap_or_default()));
        if let Err(error) = checked {
            self.refused.get_or_insert(error);
            return self;
        }
        self.operations.add(&[prefix, key], value);
        self
    }

    fn touch(&mut self, keyspace: &Keyspace) {
        // Few keyspaces a batch, and mostly the same one several times in a row: looked for from the end.
        let is_known = self.touched.iter().rev().any(|(_, space)| Arc::ptr_eq(space, &keyspace.space));
        if !is_known {
            self.touched.push((Arc::clone(&keyspace.store), Arc::clone(&keyspace.space)));
        }
    }
}

/// The default keyspace's prefix, which needs no handle.
fn default_prefix() -> [u8; 1] {
    let (prefix, len) = encode_id(DEFAULT_ID);
    debug_assert_eq!(len, 1);
    [prefix[0]]
}
