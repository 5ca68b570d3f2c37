//! `Weaver`: a run of another's entries, which stay where they are, and of new ones between them.
//!
//! What it costs grows with what is new: of what the run was searched by, the parts between two new keys are copied whole, and no
//! entry that stays is looked at (docs/design/0043-weaving-costs-what-is-new.md).

use std::sync::Arc;

use kvilt_base::{EntryRef, Error, Result, Version};
use kvilt_sync::AppendBuffer;

use super::{Run, builder::head_of, bytes_of};
use crate::{heads::HeadsWeaver, key_hash::key_hash, munk::places::Places};

/// Weaves entries into a run. For each key that is new or changes, in order: [`Weaver::begin_key`], the new entries, and, of all the
/// older ones ([`Weaver::next_older`] until it has none), those that are still needed.
pub(crate) struct Weaver<'r> {
    before: &'r Run,
    woven: Arc<AppendBuffer>,
    /// Entries before this position are kept, or overwritten.
    position: usize,
    offsets: Vec<u32>,
    heads: HeadsWeaver<'r>,
    /// None if there was no room for all keys.
    places: Option<Places>,
    entry_bytes: usize,
    older_bytes: usize,
    older_until: Option<Version>,
    key: Option<Key>,
}

/// The key whose entries come.
struct Key {
    hash: u32,
    /// Where in the offsets its newest entry is, once it is there.
    start: usize,
    /// The offset of what was its newest entry.
    newest_before: Option<u32>,
    /// The version of the entry that came last.
    newer: Option<Version>,
}

impl<'r> Weaver<'r> {
    /// Weaves into `before`, about so many bytes of so many entries. Fails if the system refuses memory.
    pub(crate) fn new(before: &'r Run, bytes: usize, count: usize) -> Result<Self> {
        let woven = match &before.woven {
            Some(woven) => Arc::clone(woven),
            None => {
                // Untouched memory is free; when a run's second region is as large as its first, it is time to copy it.
                let region = AppendBuffer::try_new(before.base_bytes().max(bytes), bytes);
                Arc::new(region.map_err(|e| Error::io("reserve memory", e))?)
            }
        };
        Ok(Weaver {
            before,
            woven,
            position: 0,
            offsets: Vec::with_capacity(before.len() + count),
            heads: before.heads.woven(before.len() + count),
            places: Some(before.places.clone()),
            entry_bytes: before.entry_bytes,
            older_bytes: before.older_bytes,
            older_until: before.older_until,
            key: None,
        })
    }

    /// What comes next has this key, which is behind all that came.
    pub(crate) fn begin_key(&mut self, key: &[u8]) {
        self.end_key();
        self.keep_up_to(self.before.lower_bound(key));
        self.key =
            Some(Key { hash: key_hash(key), start: self.offsets.len(), newest_before: None, newer: None });
    }

    /// The place of what was found by the key's hash is that of its newest entry now.
    fn end_key(&mut self) {
        let Some(key) = self.key.take() else { return };
        let after = self.offsets.get(key.start).copied();
        if self.places.as_mut().is_some_and(|places| !places.replace(key.hash, key.newest_before, after)) {
            self.places = None;
        }
    }

    /// All entries up to a position stay, of those that were not looked at.
    fn keep_up_to(&mut self, position: usize) {
        let kept = self.position..position;
        self.offsets.extend_from_slice(&self.before.offsets[kept.clone()]);
        self.heads.keep(kept);
        self.position = position;
    }

    /// The next older entry of the key and its position: it does not stay unless it is kept.
    pub(crate) fn next_older(&mut self, key: &[u8]) -> Option<(usize, EntryRef<'r>)> {
        let position = self.position;
        let &offset = self.before.offsets.get(position)?;
        let older = self.before.entry_from(offset as usize);
        if older.key != key {
            return None;
        }
        self.position += 1;
        self.entry_bytes -= bytes_of(older);
        match &mut self.current().newest_before {
            newest @ None => *newest = Some(offset),
            Some(_) => self.older_bytes -= bytes_of(older),
        }
        Some((position, older))
    }

    /// The older entry at `position` stays.
    pub(crate) fn keep(&mut self, position: usize) {
        let offset = self.before.offsets[position];
        self.add(offset, self.before.entry_from(offset as usize));
    }

    /// An entry that is not in the run yet. False if there is no room for it: then the run has to be copied.
    #[must_use]
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> bool {
        let at = self.woven.append_parts(&[&head_of(entry), entry.key, entry.value]);
        let Some(offset) = at.and_then(|at| u32::try_from(self.before.base_bytes() + at).ok()) else {
            return false;
        };
        self.add(offset, entry);
        true
    }

    fn add(&mut self, offset: u32, entry: EntryRef<'_>) {
        self.entry_bytes += bytes_of(entry);
        if let newer @ Some(_) = self.current().newer.replace(entry.version) {
            self.older_bytes += bytes_of(entry);
            self.older_until = self.older_until.max(newer);
        }
        self.offsets.push(offset);
        self.heads.push(entry.key);
    }

    fn current(&mut self) -> &mut Key {
        self.key.as_mut().expect("a key was begun")
    }

    /// The run.
    pub(crate) fn finish(mut self) -> Run {
        self.end_key();
        self.keep_up_to(self.before.len());
        self.offsets.shrink_to_fit();
        // Only if it is new: else others read it.
        if let Some(woven) = Arc::get_mut(&mut self.woven) {
            woven.rest();
        }
        let run = Run {
            base: self.before.base.clone(),
            woven_bytes: self.woven.len(),
            woven: Some(self.woven),
            entry_bytes: self.entry_bytes,
            older_bytes: self.older_bytes,
            older_until: self.older_until,
            mean_entry_bytes: self.entry_bytes.checked_div(self.offsets.len()).unwrap_or(0),
            offsets: self.offsets,
            ..Run::empty()
        };
        match (self.heads.finish(), self.places) {
            (Some(heads), Some(places)) => Run { heads, places, ..run },
            _ => run.searchable(),
        }
    }
}
