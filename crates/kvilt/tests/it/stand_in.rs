//! An engine that is a map of versions in memory: the façade over it can be wrong in its own ways only. It
//! can be told to fail the n-th scan, and it returns early from scans, with few rows or none, as an engine
//! may.

use std::{
    any::Any,
    collections::BTreeMap,
    ops::Bound,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use kvilt_base::{
    CheckReport, Damage, Direction, Engine, Error, ErrorKind, KeyRange, Operation, Progress, ReadView,
    Result, Rows, Scanned, Stats, Swap, Version, WriteBatch, key::successor,
};

/// What a key held, by version ascending.
type History = Vec<(u64, Option<Vec<u8>>)>;

#[derive(Default)]
struct Map {
    rows: BTreeMap<Vec<u8>, History>,
    version: u64,
}

impl Map {
    fn at(&self, key: &[u8], version: u64) -> Option<&[u8]> {
        newest(self.rows.get(key)?, version)
    }

    fn apply(&mut self, operations: &[Operation]) {
        self.version += 1;
        for operation in operations {
            let history = self.rows.entry(operation.key().to_vec()).or_default();
            history.push((self.version, operation.value().map(<[u8]>::to_vec)));
        }
    }
}

fn newest(history: &History, version: u64) -> Option<&[u8]> {
    history.iter().rev().find(|(written, _)| *written <= version)?.1.as_deref()
}

/// See the file's head. Everything is under one lock, so that every promise of the contract but durability
/// holds plainly.
#[derive(Default)]
pub(crate) struct StandIn {
    map: Mutex<Map>,
    is_closed: AtomicBool,
    open_views: Arc<AtomicU64>,
    /// Scans are counted down, and fail when this reaches zero.
    pub(crate) scans_until_failure: AtomicI64,
    pub(crate) scans: AtomicUsize,
    /// Bytes of the rows that scans copied out.
    pub(crate) scanned_bytes: AtomicUsize,
    pub(crate) scanned_rows: AtomicUsize,
    damages: Mutex<Vec<Damage>>,
}

impl StandIn {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(StandIn { scans_until_failure: AtomicI64::new(i64::MAX), ..StandIn::default() })
    }

    pub(crate) fn open_views(&self) -> u64 {
        self.open_views.load(Ordering::SeqCst)
    }

    /// The next check will find this.
    pub(crate) fn damage(&self, range: KeyRange) {
        let message = "planted by the test".to_string();
        let damage =
            Damage { what: "B-1".to_string(), file: None, offset: None, range: Some(range), message };
        self.damages.lock().unwrap().push(damage);
    }

    fn map(&self) -> Result<MutexGuard<'_, Map>> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        Ok(self.map.lock().unwrap())
    }

    /// What the engine's map holds now, prefixes and all.
    pub(crate) fn raw_rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let map = self.map.lock().unwrap();
        let rows = map.rows.iter().filter_map(|(k, h)| Some((k.clone(), newest(h, u64::MAX)?.to_vec())));
        rows.collect()
    }
}

struct OpenView(Arc<AtomicU64>);

impl Drop for OpenView {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn version_of(at: Option<&ReadView>) -> u64 {
    at.map_or(u64::MAX, |view| view.version().to_u64())
}

impl Engine for StandIn {
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.map()?.at(key, version_of(at)).map(found).is_some())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.map()?.apply(&[Operation::Put { key: key.to_vec(), value: value.to_vec() }]);
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.map()?.apply(&[Operation::Delete { key: key.to_vec() }]);
        Ok(())
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        self.map()?.apply(&batch.into_operations());
        Ok(())
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let mut map = self.map()?;
        let found = map.at(key, u64::MAX).map(<[u8]>::to_vec);
        if found.as_deref() != expected {
            return Ok(Swap::Differs(found.map(Into::into)));
        }
        let key = key.to_vec();
        map.apply(&[match new {
            Some(value) => Operation::Put { key, value: value.to_vec() },
            None => Operation::Delete { key },
        }]);
        Ok(Swap::Done)
    }

    fn delete_range(&self, range: &KeyRange) -> Result<()> {
        let mut map = self.map()?;
        let keys: Vec<_> = map.rows.keys().filter(|key| range.contains(key)).cloned().collect();
        map.apply(&keys.into_iter().map(|key| Operation::Delete { key }).collect::<Vec<_>>());
        Ok(())
    }

    fn view(&self) -> Result<ReadView> {
        let version = Version::from_u64(self.map()?.version);
        self.open_views.fetch_add(1, Ordering::SeqCst);
        let held: Box<dyn Any + Send + Sync> = Box::new(OpenView(Arc::clone(&self.open_views)));
        Ok(ReadView::new(version, held))
    }

    fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        if self.scans_until_failure.fetch_sub(1, Ordering::SeqCst) <= 1 {
            return Err(Error::corrupted("0000000000000001.table", 4096, "planted by the test"));
        }
        let scan = self.scans.fetch_add(1, Ordering::SeqCst);
        let map = self.map()?;
        if range.is_empty() {
            return Ok(Scanned::Ended);
        }
        let end = range.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let keys = map.rows.range((Bound::Included(range.start.clone()), end)).map(|(key, _)| key);
        let keys: Box<dyn Iterator<Item = &Vec<u8>>> = match direction {
            Direction::Forward => Box::new(keys),
            Direction::Backward => Box::new(keys.rev()),
        };
        let mut left = range.clone();
        // Every third scan looks at one key only, whether it has a row or not, and none at very many.
        let keys_max = if scan % 3 == 1 { 1 } else { 300 };
        for (i, key) in keys.enumerate() {
            if i == keys_max {
                return Ok(Scanned::Left(left));
            }
            match direction {
                Direction::Forward => left.start = successor(key),
                Direction::Backward => left.end = Some(key.clone()),
            }
            if let Some(value) = map.at(key, view.version().to_u64()) {
                self.scanned_bytes.fetch_add(key.len() + value.len(), Ordering::SeqCst);
                self.scanned_rows.fetch_add(1, Ordering::SeqCst);
                if rows.take(key, value).is_break() {
                    return Ok(Scanned::Left(left));
                }
            }
        }
        Ok(Scanned::Ended)
    }

    fn sync(&self) -> Result<()> {
        self.map().map(drop)
    }

    fn checkpoint_to(&self, _directory: &Path) -> Result<()> {
        Err(Error::invalid("a map in memory has no files"))
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn check(&self, _progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
        Ok(CheckReport { damages: self.damages.lock().unwrap().clone(), ..CheckReport::default() })
    }

    fn close(&self) -> Result<()> {
        self.is_closed.store(true, Ordering::SeqCst);
        Ok(())
    }
}
