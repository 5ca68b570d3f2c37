//! `Snapshot`: the store as it was at one moment, for as long as the handle lives.

use std::{fmt, sync::Arc};

use kvilt_base::{KeyRange, ReadView, Result, Value};

use crate::{bounds::KeyBounds, keyspace::Keyspace, range::Range, space::Space, store::Store};

/// The store as it was when [`crate::Db::snapshot`] was called: every write that had completed, none that
/// came later, batches whole.
///
/// Owned, cheap to clone, `Send` and `Sync`: give it to another thread, keep it in a struct. It blocks no
/// writer. What it costs: versions it can see are not cleaned away while it is open, so its price grows with
/// what is overwritten behind it; [`kvilt_base::Stats::open_views_now`] counts the open ones. The store stays
/// open until the last snapshot is dropped.
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = kvilt::Db::open(dir.path().join("events"))?;
/// db.put("balance", "100")?;
/// let before = db.snapshot();
/// db.put("balance", "0")?;
/// assert_eq!(before.get("balance")?.unwrap(), b"100");
/// assert_eq!(db.get("balance")?.unwrap(), b"0");
/// # Ok(())
/// # }
/// ```
///
/// Taking one cannot fail by itself; on a closed store, or one with too many open snapshots, every use of it
/// returns the error.
#[derive(Clone)]
pub struct Snapshot {
    store: Arc<Store>,
    space: Arc<Space>,
    view: Result<Arc<ReadView>>,
}

impl Snapshot {
    pub(crate) fn new(store: &Arc<Store>, space: &Arc<Space>) -> Self {
        Snapshot { store: Arc::clone(store), space: Arc::clone(space), view: store.view() }
    }

    /// The same moment in another keyspace.
    ///
    /// ```
    /// # fn main() -> kvilt::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = kvilt::Db::open(dir.path().join("events"))?;
    /// let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let now = db.snapshot();
    /// users.delete("ada")?;
    /// assert_eq!(now.keyspace(&users).get("ada")?.unwrap(), b"1815");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keyspace(&self, keyspace: &Keyspace) -> Snapshot {
        let view = if Arc::ptr_eq(&self.store, &keyspace.store) {
            self.view.clone()
        } else {
            Err(crate::keyspace::foreign(keyspace))
        };
        Snapshot { store: Arc::clone(&self.store), space: Arc::clone(&keyspace.space), view }
    }

    /// The key's value at that moment. Errors: the key is too long; the disk could not be read.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.store.get(&self.space, key.as_ref(), Some(self.view()?))
    }

    /// Calls `found` with the key's value at that moment, in place, without a copy; see
    /// [`crate::Db::get_with`].
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.store.get_with(&self.space, key.as_ref(), Some(self.view()?), found)
    }

    /// The values of several keys at that moment, in the order of the keys; see [`crate::Db::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        self.store.get_many(&self.space, keys, Some(self.view()?))
    }

    /// Whether the key had a value at that moment.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// The rows of a range at that moment; see [`Range`].
    pub fn range(&self, range: impl KeyBounds) -> Range {
        self.rows(&range.key_range())
    }

    /// The rows whose keys begin with `prefix`, at that moment; see [`Range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.rows(&KeyRange::prefix(prefix.as_ref()))
    }

    /// All rows at that moment; see [`Range`].
    pub fn iter(&self) -> Range {
        self.rows(&KeyRange::all())
    }

    fn rows(&self, range: &KeyRange) -> Range {
        Range::new(&self.store, &self.space, || self.view.clone(), range)
    }

    fn view(&self) -> Result<&ReadView> {
        self.view.as_deref().map_err(Clone::clone)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({:?} of {:?})", self.view, self.store)
    }
}
