//! The newest entry of each key of a chunk, and whether it is proven to be the newest.

use std::collections::BTreeMap;

use kvilt_base::{Damage, Error, KeyRange, Kind, RangeTombstone, Version};
use kvilt_format::table::SalvagedEntry;

use kvilt_sync::tombstones::Tombstones;

/// What a chunk's parts say so far, from the newest to the oldest.
pub(super) struct Gathering {
    range: KeyRange,
    newest: BTreeMap<Vec<u8>, Newest>,
    tombstones: Tombstones,
    /// Keys of which a newer entry may be lost.
    hidden: Vec<KeyRange>,
    losses: Vec<Damage>,
}

struct Newest {
    version: Version,
    /// None: it is deleted.
    value: Option<Vec<u8>>,
    is_proven: bool,
}

impl Gathering {
    /// Nothing of this range yet.
    pub(super) fn new(range: KeyRange) -> Self {
        Gathering {
            range,
            newest: BTreeMap::new(),
            tombstones: Tombstones::default(),
            hidden: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// The chunk's range.
    pub(super) fn range(&self) -> &KeyRange {
        &self.range
    }

    /// Takes in an entry. Of two entries of one version, the one that comes first is the newer.
    pub(super) fn entry(&mut self, entry: SalvagedEntry) {
        let SalvagedEntry { key, version, kind, value } = entry;
        if !self.range.contains(&key) || self.newest.get(&key).is_some_and(|newest| newest.version >= version)
        {
            return;
        }
        let is_proven = !self.hidden.iter().any(|range| range.contains(&key));
        let value = (kind == Kind::Put).then_some(value);
        self.newest.insert(key, Newest { version, value, is_proven });
    }

    /// Takes in a range tombstone.
    pub(super) fn tombstone(&mut self, tombstone: RangeTombstone) {
        self.tombstones.push_old(&tombstone);
    }

    /// Something is damaged: from here on, entries of these keys are not proven to be the newest.
    pub(super) fn damage(&mut self, error: &Error, range: KeyRange) {
        let range = range.intersection(&self.range);
        if range.is_empty() {
            return;
        }
        self.losses.push(Damage {
            what: "F-2".to_string(),
            file: error.file().map(str::to_string),
            offset: error.offset(),
            range: Some(range.clone()),
            message: error.message().to_string(),
        });
        self.hidden.push(range);
    }

    /// What is damaged.
    pub(super) fn take_losses(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.losses)
    }

    /// The rows in order of keys, each with whether it is proven to be its key's newest.
    pub(super) fn into_rows(self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>, bool)> {
        let Gathering { newest, tombstones, .. } = self;
        // Only now that all are known: of an older one, newer parts or what came behind it have the keys.
        newest.into_iter().filter_map(move |(key, newest)| {
            let value = newest.value.filter(|_| !tombstones.delete(&key, newest.version))?;
            Some((key, value, newest.is_proven))
        })
    }
}

#[cfg(test)]
mod tests {
    use kvilt_base::{ErrorKind, FileName};

    use super::*;

    fn range(start: &[u8], end: &[u8]) -> KeyRange {
        KeyRange { start: start.to_vec(), end: Some(end.to_vec()) }
    }

    fn put(gathering: &mut Gathering, key: &[u8], count: u64, value: &[u8]) {
        let (key, value) = (key.to_vec(), value.to_vec());
        gathering.entry(SalvagedEntry { key, version: Version::new(1, count), kind: Kind::Put, value });
    }

    fn rows(gathering: Gathering) -> Vec<(Vec<u8>, Vec<u8>, bool)> {
        gathering.into_rows().collect()
    }

    /// Without a root the files come by their numbers, and an older one may come first.
    #[test]
    fn the_newest_version_counts_whatever_comes_first() {
        let mut gathering = Gathering::new(range(b"a", b"z"));
        put(&mut gathering, b"deleted", 3, b"old");
        put(&mut gathering, b"kept", 5, b"new");
        put(&mut gathering, b"kept", 4, b"old");
        put(&mut gathering, b"grown", 2, b"old");
        put(&mut gathering, b"grown", 6, b"new");
        gathering.tombstone(RangeTombstone { range: range(b"a", b"m"), version: Version::new(1, 5) });
        put(&mut gathering, b"late", 3, b"old");
        put(&mut gathering, b"outside", 3, b"there");
        put(&mut gathering, b"~", 9, b"of another chunk");
        let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec(), true);
        assert_eq!(rows(gathering), [row(b"grown", b"new"), row(b"kept", b"new"), row(b"outside", b"there")]);
    }

    #[test]
    fn damage_hides_what_comes_after_it_and_nothing_of_other_chunks() {
        let mut gathering = Gathering::new(range(b"g", b"q"));
        let error = Error::corrupted(FileName::Of(kvilt_format::names::TABLE, 1), 70, "a block is damaged");
        gathering.damage(&error, range(b"a", b"g"));
        assert_eq!(gathering.take_losses(), []);
        put(&mut gathering, b"h", 5, b"before");
        gathering.damage(&error, range(b"a", b"k"));
        put(&mut gathering, b"i", 4, b"behind");
        put(&mut gathering, b"l", 4, b"beside");
        let losses = gathering.take_losses();
        let [loss] = &losses[..] else { panic!("one loss: {losses:?}") };
        assert_eq!((loss.range.clone(), loss.offset), (Some(range(b"g", b"k")), Some(70)));
        assert_eq!((loss.what.as_str(), error.kind()), ("F-2", ErrorKind::Corrupted));
        let proven: Vec<bool> = rows(gathering).into_iter().map(|(_, _, is_proven)| is_proven).collect();
        assert_eq!(proven, [true, false, true]);
    }
}
