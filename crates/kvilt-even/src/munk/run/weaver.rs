//! `Weaver`: a run of another's entries, which stay where they are, and of new ones between them.
//!
//! What it costs grows with what is new: of what the run was searched by, the parts between two new keys are
//! copied whole, and no entry that stays is looked at (docs/design/0043-weaving-costs-what-is-new.md).

use kvilt_base::{EntryRef, Version};
use kvilt_sync::rows::{Hold, RowsWeaver};

use super::{Older, Run, RunReader, bytes_of};
use crate::{heads::HeadsWeaver, key_hash::key_hash};

/// Weaves entries into a run. For each key that is new or changes, in order: [`Weaver::begin_key`], the new
/// entries, and, of all the older ones ([`Weaver::next_older`] until it has none), those that are still
/// needed.
pub(crate) struct Weaver<'r> {
    before: RunReader<'r>,
    rows: RowsWeaver<'r>,
    heads: HeadsWeaver<'r>,
    entry_bytes: usize,
    older: Older,
    /// Whether the key has had older entries.
    is_known: bool,
    /// The version of the key's entry that came last.
    newer: Option<Version>,
}

impl<'r> Weaver<'r> {
    /// Weaves about so many entries into `before`.
    pub(crate) fn new(before: &'r Run, hold: &'r Hold, count: usize) -> Self {
        Weaver {
            before: before.held(hold),
            rows: RowsWeaver::new(&before.rows, hold, count),
            heads: before.heads.woven(before.len() + count),
            entry_bytes: before.entry_bytes(),
            older: before.older,
            is_known: false,
            newer: None,
        }
    }

    /// What comes next has this key, which is behind all that came.
    pub(crate) fn begin_key(&mut self, key: &[u8]) {
        let kept = self.rows.begin_key(self.before.lower_bound(key), key_hash(key));
        self.heads.keep(kept);
        (self.is_known, self.newer) = (false, None);
    }

    /// The next older entry of the key: it does not stay unless it is kept.
    pub(crate) fn next_older(&mut self, key: &[u8]) -> Option<EntryRef<'r>> {
        let older = self.rows.next_old(key)?;
        self.entry_bytes -= bytes_of(older);
        if self.is_known {
            self.older.bytes -= bytes_of(older);
        }
        self.is_known = true;
        Some(older)
    }

    /// The older entry that came last stays.
    pub(crate) fn keep(&mut self, older: EntryRef<'_>) {
        self.rows.keep();
        self.add(older);
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
        if let Some(newer) = self.newer.replace(entry.version) {
            self.older.add(entry, newer);
        }
        self.heads.push(entry.key);
    }

    /// The run.
    pub(crate) fn finish(mut self) -> Run {
        let (rows, kept) = self.rows.finish(self.entry_bytes, key_hash);
        self.heads.keep(kept);
        match self.heads.finish() {
            Some(heads) => Run::with_heads(rows, self.older, heads),
            None => Run::of(rows, self.older),
        }
    }
}
