//! `Catalogue`: which keyspace has which id, kept in a keyspace of its own.
//!
//! Its rows (behind the prefix of id 1):
//!
//! | key | value |
//! | --- | --- |
//! | `n` name | the id, 4 bytes big-endian |
//! | `i` | the next id to give out, 4 bytes big-endian; absent means 2 |
//! | `d` id, 4 bytes big-endian | empty: this keyspace was dropped; see that no row of it is left |
//!
//! Dropping takes the name away and leaves a `d` mark in one batch, then deletes the rows. The mark stays
//! until a later run finds the keyspace empty: so a crash between the two steps, or a write that was under
//! way while the keyspace was dropped, leaves nothing behind for good. No id is used twice, so nobody waits
//! for that: each use of the catalogue looks at a few marks of earlier runs, until there are none left.
//!
//! All changes are made under one mutex; a store has one catalogue in one process.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kvilt_base::{
    Direction, Error, ErrorKind, KeyRange, Operation, Result, RowBatch, WriteBatch,
    key::{prefix_end, successor},
    limits::KEYSPACE_NAME_BYTES_MAX,
};

use crate::{
    range::Range,
    space::{CATALOGUE_ID, FIRST_NAMED_ID, Space, decode_id},
    store::Store,
};

/// So many marks of dropped keyspaces are looked at whenever the catalogue is used: each takes a seek at
/// most.
const MARKS_A_SWEEP: usize = 64;

const NEXT_ID_KEY: &[u8] = b"i";
const NAME_TAG: u8 = b'n';
const DROPPED_TAG: u8 = b'd';

/// The keyspaces of one store.
#[derive(Debug)]
pub(crate) struct Catalogue {
    space: Space,
    opened: Mutex<Opened>,
}

/// What is known in memory.
#[derive(Debug, Default)]
struct Opened {
    /// How far leftovers of earlier drops were looked for in this run.
    swept: Swept,
    /// The ids of keyspaces that were dropped in this run: somebody may still be writing to one.
    dropped: HashSet<u32>,
    /// Keyspaces that were asked for in this run: all handles of one share its state.
    spaces: HashMap<String, Arc<Space>>,
}

/// How far it was looked for what earlier runs have left of dropped keyspaces.
#[derive(Debug, Default)]
enum Swept {
    /// Not at all.
    #[default]
    Nothing,
    /// Up to this key of the catalogue, inclusive.
    UpTo(Vec<u8>),
    /// Everywhere.
    All,
}

impl Default for Catalogue {
    fn default() -> Self {
        Catalogue { space: Space::new(CATALOGUE_ID, "catalogue"), opened: Mutex::default() }
    }
}

impl Catalogue {
    /// The keyspace of this name, made if there is none.
    pub(crate) fn open(&self, store: &Arc<Store>, name: &str) -> Result<Arc<Space>> {
        check_name(name)?;
        let mut opened = self.lock(store)?;
        if let Some(space) = opened.spaces.get(name) {
            return Ok(Arc::clone(space));
        }
        let id = match self.find_id(store, name)? {
            Some(id) => id,
            None => self.create(store, name)?,
        };
        let space = Arc::new(Space::new(id, name));
        opened.spaces.insert(name.to_string(), Arc::clone(&space));
        Ok(space)
    }

    /// All names, sorted.
    pub(crate) fn names(&self, store: &Arc<Store>) -> Result<Vec<String>> {
        let _opened = self.lock(store)?;
        self.rows(store, &[NAME_TAG])
            .keys()
            .map(|key| {
                String::from_utf8(key?[1..].to_vec())
                    .map_err(|_| Error::new(ErrorKind::Corrupted, "a keyspace's name is not UTF-8"))
            })
            .collect()
    }

    /// The id and name of each keyspace. Nothing is written, so leftovers of earlier drops stay.
    pub(crate) fn ids(&self, store: &Arc<Store>) -> Result<Vec<(u32, String)>> {
        self.rows(store, &[NAME_TAG])
            .map(|row| {
                let (key, value) = row?;
                Ok((decode_u32(&value)?, String::from_utf8_lossy(&key[1..]).into_owned()))
            })
            .collect()
    }

    /// Names each keyspace that has rows and neither a name nor the mark of one that was dropped, and sees
    /// that no id is used twice: what damage took of the catalogue. Returns the new names.
    pub(crate) fn name_lost(&self, store: &Arc<Store>) -> Result<Vec<String>> {
        let named: HashMap<u32, String> = self.ids(store)?.into_iter().collect();
        let dropped = self.dropped_ids(store)?;
        let next = store.get(&self.space, NEXT_ID_KEY, None)?;
        let next = next.map_or(Ok(FIRST_NAMED_ID), |id| decode_u32(&id))?;
        let with_rows = ids_with_rows(store)?;
        let mut batch = WriteBatch::new();
        let mut names = Vec::new();
        for &id in with_rows.iter().filter(|id| !named.contains_key(id) && !dropped.contains(id)) {
            let is_taken = |name: &String| named.values().any(|other| other == name);
            let mut tries = (0u32..).map(|more| match more {
                0 => format!("recovered-{id}"),
                more => format!("recovered-{id}-{more}"),
            });
            let name = tries.find(|name| !is_taken(name)).expect("there are more numbers than names");
            batch.put(self.space.key(&name_key(&name)), id.to_be_bytes());
            names.push(name);
        }
        // An id with the mark of a dropped keyspace is used, too: the rows of a new keyspace would go with
        // the mark.
        let last = named.keys().chain(&with_rows).chain(&dropped).copied().max().unwrap_or(0);
        if last >= next {
            batch.put(self.space.key(NEXT_ID_KEY), last.saturating_add(1).to_be_bytes());
        }
        store.engine().write(batch)?;
        Ok(names)
    }

    /// The ids of keyspaces that were dropped and whose marks are still there.
    fn dropped_ids(&self, store: &Arc<Store>) -> Result<HashSet<u32>> {
        self.rows(store, &[DROPPED_TAG]).keys().map(|key| decode_u32(&key?[1..])).collect()
    }

    /// Deletes the keyspace of this name and all its rows; false if there is none.
    pub(crate) fn drop_keyspace(&self, store: &Arc<Store>, name: &str) -> Result<bool> {
        check_name(name)?;
        let mut opened = self.lock(store)?;
        let Some(id) = self.find_id(store, name)? else { return Ok(false) };
        let mut batch = WriteBatch::new();
        batch.delete(self.space.key(&name_key(name)));
        batch.put(self.space.key(&dropped_key(id)), []);
        store.engine().write(batch)?;
        opened.dropped.insert(id);
        if let Some(space) = opened.spaces.remove(name) {
            space.mark_dropped();
        }
        store.engine().delete_range(&Space::new(id, name).range(&KeyRange::all()))?;
        Ok(true)
    }

    /// The catalogue's lock. Who takes it sweeps up a little after drops of earlier runs.
    fn lock(&self, store: &Arc<Store>) -> Result<MutexGuard<'_, Opened>> {
        store.home.allow_write()?;
        // A panic under the lock leaves nothing half done in memory: the map is changed last.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match self.sweep(store, &mut opened) {
            // What is left has no name, so nobody finds it; who may write will sweep it up.
            Err(error) if error.kind() == ErrorKind::ReadOnly => opened.swept = Swept::All,
            swept => swept?,
        }
        Ok(opened)
    }

    /// Deletes what is left of a few dropped keyspaces, and then their marks.
    fn sweep(&self, store: &Arc<Store>, opened: &mut Opened) -> Result<()> {
        let start = match &opened.swept {
            Swept::Nothing => vec![DROPPED_TAG],
            Swept::UpTo(key) => successor(key),
            Swept::All => return Ok(()),
        };
        let marks = KeyRange { start, end: prefix_end(&[DROPPED_TAG]) };
        let marks = Range::new(store, &self.space, || store.view(), &marks).keys().limit(MARKS_A_SWEEP);
        let marks = marks.collect::<Result<Vec<_>>>()?;
        let mut ids = Vec::with_capacity(marks.len());
        for mark in &marks {
            ids.push(decode_u32(&mark[1..])?);
        }
        ids.retain(|id| !opened.dropped.contains(id));
        // Ids ascend as their marks do, and keyspaces lie in the order of their ids.
        for run in ids.chunk_by(|a, b| a + 1 == *b) {
            self.clear(store, run)?;
        }
        let mut batch = WriteBatch::new();
        ids.iter().for_each(|id| {
            batch.delete(self.space.key(&dropped_key(*id)));
        });
        if !ids.is_empty() {
            store.engine().write(batch)?;
        }
        opened.swept = match marks.last() {
            Some(last) if marks.len() == MARKS_A_SWEEP => Swept::UpTo(last.to_vec()),
            _ => Swept::All,
        };
        Ok(())
    }

    /// Deletes the rows, if there are any, of dropped keyspaces that follow one another.
    fn clear(&self, store: &Arc<Store>, ids: &[u32]) -> Result<()> {
        let [first, .., last] = ids else {
            return ids.first().map_or(Ok(()), |id| self.clear(store, &[*id, *id]));
        };
        let range_of = |id| Space::new(id, "").range(&KeyRange::all());
        let range = KeyRange { start: range_of(*first).start, end: range_of(*last).end };
        // Of no keyspace: these keys have prefixes of several.
        let view = store.view()?;
        let mut first_row = RowBatch::new(1, 1, true);
        let mut left = Some(range.clone());
        while let Some(unread) = left.filter(|_| first_row.is_empty()) {
            left = store.scan(&view, &unread, Direction::Forward, &mut first_row)?.left();
        }
        drop(view);
        if first_row.is_empty() { Ok(()) } else { store.engine().delete_range(&range) }
    }

    fn create(&self, store: &Store, name: &str) -> Result<u32> {
        let next = store.get(&self.space, NEXT_ID_KEY, None)?;
        let id = next.map_or(Ok(FIRST_NAMED_ID), |id| decode_u32(&id))?;
        let Some(following) = id.checked_add(1) else {
            return Err(Error::new(ErrorKind::LimitReached, "all ids of keyspaces are used up"));
        };
        let put = |key: &[u8], value: u32| Operation::Put {
            key: self.space.key(key),
            value: value.to_be_bytes().to_vec(),
        };
        let mut batch = WriteBatch::new();
        batch.push(put(NEXT_ID_KEY, following)).push(put(&name_key(name), id));
        store.engine().write(batch)?;
        Ok(id)
    }

    fn find_id(&self, store: &Store, name: &str) -> Result<Option<u32>> {
        store.get(&self.space, &name_key(name), None)?.map(|id| decode_u32(&id)).transpose()
    }

    fn rows(&self, store: &Arc<Store>, prefix: &[u8]) -> Range {
        Range::new(store, &self.space, || store.view(), &KeyRange::prefix(prefix))
    }
}

/// The ids, from the first that has a name on, of which there is a row. A seek for each.
fn ids_with_rows(store: &Arc<Store>) -> Result<Vec<u32>> {
    let view = store.view()?;
    let mut ids = Vec::new();
    let mut unread = Some(KeyRange { start: Space::new(FIRST_NAMED_ID, "").prefix().to_vec(), end: None });
    while let Some(range) = unread.take() {
        let mut first_row = RowBatch::new(1, 1, true);
        let left = store.scan(&view, &range, Direction::Forward, &mut first_row)?.left();
        unread = match first_row.into_rows().next() {
            None => left,
            Some((key, _)) => match decode_id(&key) {
                Some((id, _)) => {
                    ids.push(id);
                    prefix_end(Space::new(id, "").prefix()).map(|start| KeyRange { start, end: None })
                }
                // No id begins so, nor does any behind it.
                None => None,
            },
        };
    }
    Ok(ids)
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the name of a keyspace has 1 to {KEYSPACE_NAME_BYTES_MAX} bytes, this one has {}",
            name.len()
        )));
    }
    Ok(())
}

fn name_key(name: &str) -> Vec<u8> {
    [&[NAME_TAG], name.as_bytes()].concat()
}

/// Whether this key of the catalogue's keyspace is a keyspace's name.
pub(crate) fn is_name(key: &[u8]) -> bool {
    key.first() == Some(&NAME_TAG)
}

fn dropped_key(id: u32) -> Vec<u8> {
    [&[DROPPED_TAG][..], &id.to_be_bytes()].concat()
}

fn decode_u32(bytes: &[u8]) -> Result<u32> {
    let bytes = bytes.try_into().map_err(|_| {
        Error::new(
            ErrorKind::Corrupted,
            format!("an id in the catalogue of keyspaces has {} bytes, not 4", bytes.len()),
        )
    })?;
    Ok(u32::from_be_bytes(bytes))
}
