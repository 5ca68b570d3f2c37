//! `Retain`: which versions of a key some reader can still see.
//!
//! What is always true: an entry goes only if no reader that is there, and none that may come, sees it: a
//! later view is at or above the version that was current before the open views were listed (S-7).

use std::{slice, sync::Arc};

use kvilt_base::{Hiding as _, Version, planted};
use kvilt_sync::{
    Versions,
    tombstones::{Over, Tombstones},
};

/// See the module.
pub(crate) struct Retain<'t> {
    /// Views that are open, ascending, and the readers of now.
    readers: Vec<Version>,
    over: Over<'t>,
    key: Vec<u8>,
    /// The version of the entry of the key before, which is newer.
    newer: Option<Version>,
}

impl<'t> Retain<'t> {
    /// As of now. The range deletes are those that were there before this is called.
    pub(crate) fn new(versions: &Versions, tombstones: &'t Arc<Tombstones>) -> Self {
        let _current = versions.current();
        planted!(ViewsPassedOver => return Self::for_readers(Vec::new(), tombstones));
        Self::for_readers(versions.open_views(), tombstones)
    }

    fn for_readers(mut views: Vec<Version>, tombstones: &'t Arc<Tombstones>) -> Self {
        views.push(Version::NEWEST);
        Retain { readers: views, over: Over::new(slice::from_ref(tombstones)), key: Vec::new(), newer: None }
    }

    /// Whether the entry that comes next is needed: keys ascend, and of a key the newest entry comes first.
    pub(crate) fn is_needed(&mut self, key: &[u8], version: Version) -> bool {
        if self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.newer = None;
        }
        let newer = self.newer.replace(version);
        let first = self.readers.partition_point(|reader| *reader < version);
        let mut readers =
            self.readers[first..].iter().take_while(|reader| newer.is_none_or(|newer| **reader < newer));
        readers.any(|reader| !self.over.hides(key, version, *reader))
    }
}

#[cfg(test)]
mod tests {
    use kvilt_base::{KeyRange, RangeTombstone};

    use super::*;

    fn version(count: u64) -> Version {
        Version::new(1, count)
    }

    fn retained(views: &[u64], tombstone: Option<u64>, entries: &[u64]) -> Vec<u64> {
        let mut tombstones = Tombstones::default();
        if let Some(count) = tombstone {
            tombstones.push_old(&RangeTombstone { range: KeyRange::all(), version: version(count) });
        }
        let (views, tombstones) = (views.iter().map(|view| version(*view)).collect(), Arc::new(tombstones));
        let mut retain = Retain::for_readers(views, &tombstones);
        let needed = |entry: &&u64| retain.is_needed(b"key", version(**entry));
        entries.iter().filter(needed).copied().collect()
    }

    #[test]
    fn the_newest_is_kept_and_of_older_ones_what_a_view_sees() {
        assert_eq!(retained(&[], None, &[9, 7, 5, 3]), [9]);
        assert_eq!(retained(&[6], None, &[9, 7, 5, 3]), [9, 5]);
        assert_eq!(retained(&[5, 8, 20], None, &[9, 7, 5, 3]), [9, 7, 5]);
        assert_eq!(retained(&[2], None, &[9, 7, 5, 3]), [9]);
    }

    #[test]
    fn what_a_range_delete_hides_is_kept_for_views_before_it_only() {
        assert_eq!(retained(&[], Some(10), &[9, 7]), [] as [u64; 0]);
        assert_eq!(retained(&[8], Some(10), &[9, 7]), [7]);
        assert_eq!(retained(&[9, 12], Some(10), &[9, 7]), [9]);
        assert_eq!(retained(&[], Some(8), &[9, 7]), [9]);
    }

    #[test]
    fn of_equal_versions_the_first_is_kept() {
        assert_eq!(retained(&[5, 6], None, &[6, 6, 5]), [6, 5]);
    }
}
