//! Range deletes: one record in the log, and a range tombstone in memory; or, if there are many of these, a
//! batch of deletes of the few rows that the range has.

use std::{collections::BTreeMap, ops::ControlFlow};

use kvilt_base::{Direction, KeyRange, Kind, Merge, RangeTombstone, Result, Version, limits, planted};
use kvilt_format::redo::Change;
use kvilt_sync::{Versions, tombstones::Hidden};

use crate::{
    log::Purpose,
    options,
    sizing::Room,
    store::{KeyTurns, PanicGuard, Store},
};

/// A range with more rows gets a range tombstone, however many of these there are.
const ROWS_DELETED_MAX: usize = 32;
/// Entries of the range that are looked at for its rows, and their bytes.
const ENTRIES_READ_MAX: usize = 4 * ROWS_DELETED_MAX;
const BYTES_READ_MAX: usize = 1 << 20;

impl Store {
    pub(crate) fn delete_range(&self, range: &KeyRange) -> Result<()> {
        limits::check_key(&range.start, limits::ENGINE_KEY_BYTES_MAX)?;
        limits::check_key(range.end.as_deref().unwrap_or_default(), limits::ENGINE_KEY_BYTES_MAX)?;
        self.allow_writes()?;
        if range.is_empty() {
            return Ok(());
        }
        self.insist(Purpose::Deletes, || {
            self.allow_writes()?;
            self.make_room(Room::default(), Purpose::Deletes)?;
            let turns = self.lock_all_keys();
            match self.few_rows(range) {
                Some(keys) => self.delete_keys(&keys, turns),
                None => self.lay_tombstone(range, turns),
            }
        })
    }

    /// The keys of the rows that a range has, if range tombstones take much memory and the rows are few. A
    /// tombstone stays until each table with rows under it is merged; a delete goes the way of its row. The
    /// caller has all keys, so no write is under way.
    fn few_rows(&self, range: &KeyRange) -> Option<Vec<Vec<u8>>> {
        let bytes_max = options::tombstone_bytes_max(self.table_bytes());
        let are_many = self.sources.load(&kvilt_sync::pin()).tombstones.bytes() > bytes_max;
        if !are_many || self.is_short() {
            return None;
        }
        // A tombstone needs no table, so an error of one does not stop a range delete.
        self.rows_of(range).ok().flatten().filter(|keys| {
            let mut room = Room::default();
            keys.iter().for_each(|key| room.add(key, None));
            !self.is_large(room)
        })
    }

    /// The keys of a range that a reader of now finds, unless they, or the entries around them, are many.
    fn rows_of(&self, range: &KeyRange) -> Result<Option<Vec<Vec<u8>>>> {
        let pin = kvilt_sync::pin();
        let sources = self.sources.load(&pin);
        let streams = self.streams(&pin, sources, range, Direction::Forward, Version::NEWEST)?;
        let mut merge = Merge::new(streams, Direction::Forward)?;
        let (mut keys, mut newest): (Vec<Vec<u8>>, Vec<u8>) = Default::default();
        let (mut read, mut bytes) = (0, 0);
        let flow = merge.each(&mut |entry| {
            read += 1;
            bytes += entry.key.len() + entry.value.len();
            if read == 1 || newest != entry.key {
                newest.clear();
                newest.extend_from_slice(entry.key);
                let tombstones = &sources.tombstones;
                let hidden = tombstones.hide(entry.key, entry.version, Version::NEWEST, &self.versions);
                if entry.kind == Kind::Put && hidden != Hidden::Yes {
                    keys.push(entry.key.to_vec());
                }
            }
            let are_few =
                keys.len() <= ROWS_DELETED_MAX && read <= ENTRIES_READ_MAX && bytes <= BYTES_READ_MAX;
            if are_few { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        planted!(LastOfFewLeft => drop(keys.pop()));
        Ok(flow.is_continue().then_some(keys))
    }

    /// Deletes these keys at once. A range delete that deletes nothing is no event.
    fn delete_keys(&self, keys: &[Vec<u8>], turns: KeyTurns<'_>) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let by_key: BTreeMap<&[u8], Option<&[u8]>> = keys.iter().map(|key| (key.as_slice(), None)).collect();
        self.change_all(&by_key, Purpose::Deletes, turns)
    }

    fn lay_tombstone(&self, range: &KeyRange, turns: KeyTurns<'_>) -> Result<()> {
        let _guard = PanicGuard(self);
        // No write is under way, so what the range has is below the version that the announcement gets.
        planted!(RangeDeleteNotAbove, self.versions.advance() => self.versions.current());
        let change = Change::DeleteRange { start: &range.start, end: range.end.as_deref() };
        let (appended, pending) = self.append([change], Purpose::Deletes, Versions::announce)?;
        self.add_tombstone(&RangeTombstone { range: range.clone(), version: pending.version() });
        drop(pending);
        drop(turns);
        let end = appended.position();
        drop(appended);
        self.relieve(end)
    }
}
