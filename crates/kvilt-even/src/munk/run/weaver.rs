//! `Weaver`: a run of another's entries, which stay where they are, and of new ones between them.
//!
//! What it costs grows with what is new: of what the run was searched by, the parts between two new keys are copied whole, and no
//! entry that stays is looked at (docs/design/0043-weaving-costs-what-is-new.md).

use kvilt_base::{EntryRef, Version};
use kvilt_sync::rows::{Hold, RowsWeaver};

use super::{Older, Run, RunReader, bytes_of};
use crate::{heads::HeadsWeaver, key_hash::key_hash};

/// Weaves entries into a run. For each key that is new or changes, in order: [`Weaver::begin_key`], the new entries, and, of all the
/// older ones ([`Weaver::next_older`] until it has none), those that are still needed.
pub(crate) struct Weaver<'r> {
    before: RunReader<'r>,
    rows: RowsWeaver<'r>,
    /// Entries before this position are kept, or overwritten.
    position: usize,
    heads: HeadsWeaver<'r>,
    entry_bytes: usize,
    older: Older,
    key: Option<Key>,
}

/// The key whose entries come.
struct Key {
    hash: u32,
    /// Where its newest entry is, once it is there.
    start: usize,
    /// The position of what was its newest entry.
    newest_before: Option<usize>,
    /// The version of the entry that came last.
    newer: Option<Version>,
}

impl<'r> Weaver<'r> {
    /// Weaves about so many entries into `before`.
    pub(crate) fn new(before: &'r Run, hold: &'r Hold, count: usize) -> Self {
        Weaver {
            before: before.held(hold),
            rows: RowsWeaver::new(&before.rows, hold, count),
            position: 0,
            heads: before.heads.woven(before.len() + count),
            entry_bytes: before.entry_bytes(),
            older: before.older,
            key: None,
        }
    }

    /// What comes next has this key, which is behind all that came.
    pub(crate) fn begin_key(&mut self, key: &[u8]) {
        self.end_key();
        self.keep_up_to(self.before.lower_bound(key));
        self.key =
            Some(Key { hash: key_hash(key), start: self.rows.len(), newest_before: None, newer: None });
    }

    /// The place of what was found by the key's hash is that of its newest entry now.
    fn end_key(&mut self) {
        let Some(key) = self.key.take() else { return };
        let after = Some(key.start).filter(|&start| start < self.rows.len());
        self.rows.newest(key.hash, key.newest_before, after);
    }

    /// All entries up to a position stay, of those that were not looked at.
    fn keep_up_to(&mut self, position: usize) {
        let kept = self.position..position;
        self.rows.keep(kept.clone());
        self.heads.keep(kept);
        self.position = position;
    }

    /// The next older entry of the key and its position: it does not stay unless it is kept.
    pub(crate) fn next_older(&mut self, key: &[u8]) -> Option<(usize, EntryRef<'r>)> {
        let position = self.position;
        if position == self.before.run().len() {
            return None;
        }
        let older = self.before.entry_at(position);
        if older.key != key {
            return None;
        }
        self.position += 1;
        self.entry_bytes -= bytes_of(older);
        match &mut self.current().newest_before {
            newest @ None => *newest = Some(position),
            Some(_) => self.older.bytes -= bytes_of(older),
        }
        Some((position, older))
    }

    /// The older entry at `position` stays.
    pub(crate) fn keep(&mut self, position: usize) {
        self.rows.keep(position..position + 1);
        self.add(self.before.entry_at(position));
    }

    /// An entry that is not in the run yet. False if there is no room for it: then the run has to be copied.
    #[must_use]
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> bool {
        let has_room = self.rows.push(entry);
        if has_room {
            self.add(entry);
        }
        has_room
    }

    fn add(&mut self, entry: EntryRef<'_>) {
        self.entry_bytes += bytes_of(entry);
        if let Some(newer) = self.current().newer.replace(entry.version) {
            self.older.add(entry, newer);
        }
        self.heads.push(entry.key);
    }

    fn current(&mut self) -> &mut Key {
        self.key.as_mut().expect("a key was begun")
    }

    /// The run.
    pub(crate) fn finish(mut self) -> Run {
        self.end_key();
        self.keep_up_to(self.before.run().len());
        let rows = self.rows.finish(self.entry_bytes, key_hash);
        match self.heads.finish() {
            Some(heads) => Run::with_heads(rows, self.older, heads),
            None => Run::of(rows, self.older),
        }
    }
}
