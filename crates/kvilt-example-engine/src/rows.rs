//! `Rows`: the map, with the versions of each key that somebody can see.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
};

use kvilt_base::{Charge, Direction, KeyRange, Value, WriteBatch};

use crate::journal::Change;

/// What a row takes beside its key and value, roughly, in memory and in the journal.
const ROW_BYTES: u64 = 32;

/// The values of one key, oldest first; none: deleted.
type Versions = Vec<(u64, Option<Value>)>;

/// The rows at every version that a view needs, and now.
pub(crate) struct Rows {
    rows: BTreeMap<Vec<u8>, Versions>,
    version: u64,
    /// How many views are open at each version.
    views: BTreeMap<u64, usize>,
    /// Whether some key has versions for views.
    has_old: bool,
    /// Bytes of the newest values and their keys.
    live_bytes: u64,
    charge: Charge,
}

impl Rows {
    pub(crate) fn new(charge: Charge) -> Rows {
        Rows {
            rows: BTreeMap::new(),
            version: 0,
            views: BTreeMap::new(),
            has_old: false,
            live_bytes: 0,
            charge,
        }
    }

    /// Makes the changes, as one version.
    pub(crate) fn apply(&mut self, changes: Vec<Change>) {
        self.version += 1;
        for (key, value) in changes {
            let bytes_of = |value: &Option<Value>| {
                value.as_ref().map_or(0, |value| (key.len() + value.len()) as u64 + ROW_BYTES)
            };
            let versions = self.rows.entry(key.clone()).or_default();
            self.live_bytes += bytes_of(&value);
            self.live_bytes -= versions.last().map_or(0, |(_, last)| bytes_of(last));
            if versions.last().is_some_and(|(version, _)| *version == self.version) {
                versions.pop();
            }
            versions.push((self.version, value));
            keep_seen(versions, &self.views);
            self.has_old |= versions.len() > 1;
            if versions.is_empty() {
                self.rows.remove(&key);
            }
        }
        let charged = self.charge.bytes();
        if self.live_bytes > charged {
            self.charge.grow(self.live_bytes - charged);
        } else {
            self.charge.shrink(charged - self.live_bytes);
        }
    }

    /// The key's value at a version; none means now.
    pub(crate) fn get(&self, key: &[u8], at: Option<u64>) -> Option<Value> {
        seen(self.rows.get(key)?, at.unwrap_or(self.version)).cloned()
    }

    /// Up to `count` rows of the range at a version, in a direction.
    pub(crate) fn some_of(
        &self,
        range: &KeyRange,
        at: u64,
        direction: Direction,
        count: usize,
    ) -> Vec<(Vec<u8>, Value)> {
        if range.is_empty() {
            return Vec::new();
        }
        let end = range.end.as_ref().map_or(Unbounded, Excluded);
        let inside = self.rows.range::<Vec<u8>, _>((Included(&range.start), end));
        let row = |(key, versions): (&Vec<u8>, &Versions)| Some((key.clone(), seen(versions, at)?.clone()));
        match direction {
            Direction::Forward => inside.filter_map(row).take(count).collect(),
            Direction::Backward => inside.rev().filter_map(row).take(count).collect(),
        }
    }

    /// The keys of the range that have a value now.
    pub(crate) fn keys_in(&self, range: &KeyRange) -> Vec<Vec<u8>> {
        let rows = self.some_of(range, self.version, Direction::Forward, usize::MAX);
        rows.into_iter().map(|(key, _)| key).collect()
    }

    /// All rows as puts.
    pub(crate) fn as_puts(&self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (key, value) in self.some_of(&KeyRange::all(), self.version, Direction::Forward, usize::MAX) {
            batch.put(key, &value);
        }
        batch
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn views(&self) -> usize {
        self.views.values().sum()
    }

    /// Opens a view on now.
    pub(crate) fn open_view(&mut self) -> u64 {
        *self.views.entry(self.version).or_default() += 1;
        self.version
    }

    /// Closes it; behind the last one, old versions go.
    pub(crate) fn close_view(&mut self, version: u64) {
        let count = self.views.get_mut(&version).expect("a view is closed once");
        *count -= 1;
        if *count == 0 {
            self.views.remove(&version);
        }
        if self.views.is_empty() && std::mem::take(&mut self.has_old) {
            self.rows.retain(|_, versions| {
                keep_seen(versions, &self.views);
                !versions.is_empty()
            });
        }
    }
}

/// What a reader at this version sees.
fn seen(versions: &Versions, at: u64) -> Option<&Value> {
    versions.iter().rev().find(|(version, _)| *version <= at).and_then(|(_, value)| value.as_ref())
}

/// Drops what nobody sees: neither a view nor those that read now.
fn keep_seen(versions: &mut Versions, views: &BTreeMap<u64, usize>) {
    for place in (0..versions.len().saturating_sub(1)).rev() {
        let (from, until) = (versions[place].0, versions[place + 1].0);
        if views.range(from..until).next().is_none() {
            versions.remove(place);
        }
    }
    // A delete with nothing before it is as good as no entry.
    let deletes = versions.iter().take_while(|(_, value)| value.is_none()).count();
    versions.drain(..deletes);
}
