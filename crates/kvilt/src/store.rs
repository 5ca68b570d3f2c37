//! `Store`: what all handles of one open store share; the one place that speaks to the engine.
//!
//! Always true here: every key that reaches the engine carries the prefix of its keyspace, and no key or
//! value beyond the limits reaches it.

use std::{fmt, path::PathBuf, sync::Arc};

use kvilt_base::{
    Direction, Engine, KeyRange, ReadView, Result, Rows, Scanned, Swap, Value, limits::check_value,
};
use kvilt_sync::Home;

use crate::{catalogue::Catalogue, space::Space};

/// An open store. Shared by all handles; every method may be called from several threads.
pub(crate) struct Store {
    engine: Arc<dyn Engine>,
    /// Empty if the caller brought the engine.
    pub(crate) engine_name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) catalogue: Catalogue,
    /// The engine looks after itself; this is for locks of ours.
    pub(crate) home: Home,
}

impl Store {
    pub(crate) fn new(engine: Arc<dyn Engine>, engine_name: &'static str, path: PathBuf) -> Arc<Self> {
        Arc::new(Store { engine, engine_name, path, catalogue: Catalogue::default(), home: Home::here() })
    }

    /// The engine itself, for what concerns the store as a whole.
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    pub(crate) fn get(&self, space: &Space, key: &[u8], at: Option<&ReadView>) -> Result<Option<Value>> {
        space.with_key(key, |key| self.engine.get(key, at))
    }

    pub(crate) fn get_with<R>(
        &self,
        space: &Space,
        key: &[u8],
        at: Option<&ReadView>,
        found: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut found = Some(found);
        let mut result = None;
        space.with_key(key, |key| {
            self.engine.get_with(key, at, &mut |bytes| {
                if let Some(found) = found.take() {
                    result = Some(found(bytes));
                }
            })
        })?;
        Ok(result)
    }

    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        space: &Space,
        keys: impl IntoIterator<Item = K>,
        at: Option<&ReadView>,
    ) -> Result<Vec<Option<Value>>> {
        let (mut joined, mut ends) = (Vec::new(), Vec::new());
        for key in keys {
            space.push_key(key.as_ref(), &mut joined)?;
            ends.push(joined.len());
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let keys: Vec<&[u8]> = starts.zip(&ends).map(|(start, end)| &joined[start..*end]).collect();
        let mut values = vec![None; keys.len()];
        self.engine.get_many(&keys, at, &mut |i, value| values[i] = value.map(Value::copied))?;
        Ok(values)
    }

    pub(crate) fn put(&self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        space.check_open()?;
        check_value(value)?;
        space.with_key(key, |key| self.engine.put(key, value))
    }

    pub(crate) fn delete(&self, space: &Space, key: &[u8]) -> Result<()> {
        space.check_open()?;
        space.with_key(key, |key| self.engine.delete(key))
    }

    pub(crate) fn delete_range(&self, space: &Space, range: &KeyRange) -> Result<()> {
        space.check_open()?;
        if range.is_empty() {
            return Ok(());
        }
        self.engine.delete_range(&space.range(range))
    }

    pub(crate) fn compare_and_swap(
        &self,
        space: &Space,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        space.check_open()?;
        check_value(new.unwrap_or_default())?;
        space.with_key(key, |key| self.engine.compare_and_swap(key, expected, new))
    }

    /// Swaps until nobody came in between. Every failed turn means that another writer got through.
    pub(crate) fn update<N: AsRef<[u8]>>(
        &self,
        space: &Space,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<N>,
    ) -> Result<Option<Value>> {
        let mut old = self.get(space, key, None)?;
        loop {
            let new = update(old.as_deref());
            let new = new.as_ref().map(AsRef::as_ref);
            match self.compare_and_swap(space, key, old.as_deref(), new)? {
                Swap::Done => return Ok(new.map(Value::copied)),
                Swap::Differs(found) => old = found,
            }
        }
    }

    pub(crate) fn view(&self) -> Result<Arc<ReadView>> {
        Ok(Arc::new(self.engine.view()?))
    }

    pub(crate) fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        self.engine.scan(view, range, direction, rows)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; who wants to know calls `Db::close`, after which this does
        // nothing.
        let _ = self.engine.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.path.display())
    }
}
