//! `Keyspace`: a map of its own inside the store.

use std::{fmt, sync::Arc};

use kvilt_base::{Error, KeyRange, Result, Swap, Value};

use crate::{bounds::KeyBounds, range::Range, snapshot::Snapshot, space::Space, store::Store};

/// A named map of its own inside a store, with the same methods as [`crate::Db`].
///
/// Keys of different keyspaces never meet: each has its own order, its own ranges. A keyspace is a short
/// prefix of the keys, no file and no memory of its own, so a hundred thousand of them cost nothing; one
/// snapshot and one [`crate::WriteBatch`] span them all; dropping one deletes a range.
///
/// Cheap to clone, `Send` and `Sync`. All handles of one name are the same keyspace.
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = kvilt::Db::open(dir.path().join("app"))?;
/// let users = db.keyspace("users")?;
/// let tags = db.keyspace("tags")?;
/// users.put("1", "ada")?;
/// tags.put("1", "maths")?;
/// assert_eq!(users.get("1")?.unwrap(), b"ada");
/// assert_eq!(db.get("1")?, None, "the default keyspace is another one");
/// assert_eq!(db.keyspaces()?, ["tags", "users"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
}

impl Keyspace {
    pub(crate) fn new(store: &Arc<Store>, space: &Arc<Space>) -> Self {
        Keyspace { store: Arc::clone(store), space: Arc::clone(space) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.space.name()
    }

    /// As [`crate::Db::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.space.check_open()?;
        self.store.get(&self.space, key.as_ref(), None)
    }

    /// As [`crate::Db::get_with`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.space.check_open()?;
        self.store.get_with(&self.space, key.as_ref(), None, found)
    }

    /// As [`crate::Db::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        self.space.check_open()?;
        self.store.get_many(&self.space, keys, None)
    }

    /// As [`crate::Db::contains_key`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// As [`crate::Db::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.store.put(&self.space, key.as_ref(), value.as_ref())
    }

    /// As [`crate::Db::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.store.delete(&self.space, key.as_ref())
    }

    /// As [`crate::Db::delete_range`].
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        self.store.delete_range(&self.space, &range.key_range())
    }

    /// As [`crate::Db::compare_and_swap`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        self.store.compare_and_swap(&self.space, key.as_ref(), expected, new)
    }

    /// As [`crate::Db::put_if_absent`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Swap> {
        self.compare_and_swap(key, None, Some(value.as_ref()))
    }

    /// As [`crate::Db::update`].
    pub fn update<N: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Option<N>,
    ) -> Result<Option<Value>> {
        self.space.check_open()?;
        self.store.update(&self.space, key.as_ref(), update)
    }

    /// As [`crate::Db::range`].
    pub fn range(&self, range: impl KeyBounds) -> Range {
        self.rows(&range.key_range())
    }

    /// As [`crate::Db::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.rows(&KeyRange::prefix(prefix.as_ref()))
    }

    /// As [`crate::Db::iter`].
    pub fn iter(&self) -> Range {
        self.rows(&KeyRange::all())
    }

    /// The whole store as of now, reading this keyspace; see [`Snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.store, &self.space)
    }

    fn rows(&self, range: &KeyRange) -> Range {
        let view = || {
            self.space.check_open()?;
            self.store.view()
        };
        Range::new(&self.store, &self.space, view, range)
    }
}

/// The error of using one store's keyspace with another store.
pub(crate) fn foreign(keyspace: &Keyspace) -> Error {
    Error::invalid(format!(
        "the keyspace `{}` belongs to another store, {}",
        keyspace.name(),
        keyspace.store.path.display()
    ))
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyspace({} of {:?})", self.name(), self.store)
    }
}
