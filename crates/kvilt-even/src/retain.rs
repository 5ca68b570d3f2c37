//! `Retain`: of all entries of a chunk, those that some reader can still see.
//!
//! EvenDB §3.2 and §3.4: a rebalance drops, for each key, the versions that no active scan needs. We ask
//! exactly that, for each open view, rather than for the oldest only: an entry written at `v`, whose key has
//! its next newer version (or a range tombstone over it) at `n`, is needed if there is a view `w` with `v <=
//! w < n`, "now" being the newest view. What a *crash* may need is not decided here: the files that hold it
//! stay until a checkpoint covers their successors (see `checkpoint.rs`).

use std::{cmp::Ordering, sync::Arc};

use kvilt_base::{EntryRef, Kind, Merge, Result, Source, Streamed, Version, planted};

use kvilt_sync::tombstones::{Over, Tombstones};

/// Takes entries that are needed, and where the value of each is, if it has none because that is large.
pub(crate) type KeepStreamed<'k> = dyn FnMut(EntryRef<'_>, Option<&dyn Streamed>) -> Result<()> + 'k;

/// Who looks at the entries: the open views and the range tombstones, fixed while entries are filtered. And
/// what came of the key that is looked at.
pub(crate) struct Retain<'a> {
    /// Ascending; "now" is not among them.
    views: &'a [Version],
    tombstones: Over<'a>,
    /// The version of the last entry.
    newer: Option<Version>,
    /// Tombstones that are needed if an older entry is: newest first.
    waiting: Vec<Version>,
}

impl<'a> Retain<'a> {
    /// A filter for these views and range tombstones.
    pub(crate) fn new(views: &'a [Version], tombstones: &'a [Arc<Tombstones>]) -> Self {
        Retain { views, tombstones: Over::new(tombstones), newer: None, waiting: Vec::new() }
    }

    /// Gives every entry of `entries` that is still needed to `keep`, in order. Range tombstones are not
    /// needed afterwards: where one lies over an entry that is kept for an older view, a tombstone of that
    /// key is given in its place.
    ///
    /// `entries` must be all that the chunk has, or nothing may be dropped: a tombstone is needed only as
    /// long as an older entry of its key is. Says how many there were.
    pub(crate) fn run(
        self,
        entries: &mut Merge<'_>,
        keep: &mut dyn FnMut(EntryRef<'_>) -> Result<()>,
    ) -> Result<usize> {
        self.run_streamed(entries, &mut |entry, streamed| {
            assert!(streamed.is_none(), "no value was to be streamed");
            keep(entry)
        })
    }

    /// The same where values may be [streamed](Source::streamed): `keep` copies them, and what it kept counts
    /// only if all goes well.
    pub(crate) fn run_streamed(
        mut self,
        entries: &mut Merge<'_>,
        keep: &mut KeepStreamed<'_>,
    ) -> Result<usize> {
        let mut count = 0;
        let mut key: Option<Vec<u8>> = None;
        while let Some(entry) = entries.entry() {
            let streamed = entries.streamed();
            if let Some(value) = streamed.filter(|_| !self.is_behind(key.as_deref(), &entry)) {
                // Most likely it is damaged: no entry comes twice, and none too late.
                value.copy(&mut |_| Ok(()))?;
            }
            if key.as_deref() != Some(entry.key) {
                let key = key.get_or_insert_default();
                key.clear();
                key.extend_from_slice(entry.key);
                self.begin_key();
            }
            let mut is_copied = false;
            self.next(entry, &mut |kept| {
                // Others are tombstones that stand for range tombstones over it.
                let streamed = streamed.filter(|_| kept.kind == Kind::Put);
                is_copied |= streamed.is_some();
                keep(kept, streamed)
            })?;
            if let Some(value) = streamed.filter(|_| !is_copied) {
                // What it is passed over for, its key and its version, has to be right.
                value.copy(&mut |_| Ok(()))?;
            }
            count += 1;
            entries.advance()?;
        }
        Ok(count)
    }

    /// Whether an entry comes behind the last one, which had this key.
    fn is_behind(&self, last: Option<&[u8]>, entry: &EntryRef<'_>) -> bool {
        match last.map(|last| last.cmp(entry.key)) {
            None | Some(Ordering::Less) => true,
            Some(Ordering::Equal) => self.newer.is_none_or(|newer| newer > entry.version),
            Some(Ordering::Greater) => false,
        }
    }

    /// What comes next has another key.
    pub(crate) fn begin_key(&mut self) {
        self.newer = None;
        self.waiting.clear();
    }

    /// Looks at one entry, of all that a key has in turn, newest first. See [`Retain::run`].
    pub(crate) fn next(
        &mut self,
        entry: EntryRef<'_>,
        keep: &mut dyn FnMut(EntryRef<'_>) -> Result<()>,
    ) -> Result<()> {
        self.wait_for_hiders(&entry);
        if self.needs(&entry) {
            if entry.kind == Kind::Tombstone {
                self.waiting.push(entry.version);
            } else {
                planted!(TombstoneDropped => self.waiting.clear());
                for version in self.waiting.drain(..) {
                    keep(EntryRef { key: entry.key, version, kind: Kind::Tombstone, value: &[] })?;
                }
                keep(entry)?;
            }
        }
        self.newer = Some(entry.version);
        Ok(())
    }

    /// Whether some view sees `entry`.
    fn needs(&mut self, entry: &EntryRef<'_>) -> bool {
        let over = self.tombstones.at(entry.key);
        let hidden_from = over.iter().rfind(|mark| entry.version < **mark).copied();
        let end = hidden_from.into_iter().chain(self.newer).min();
        let Some(end) = end else { return true };
        planted!(ViewIgnored => return false);
        let first = self.views.partition_point(|&w| w < entry.version);
        self.views.get(first).is_some_and(|&w| w < end)
    }

    /// The range tombstones that lie over `entry` and under the next newer version of its key wait with the
    /// others. One at the newer version itself lies under that: a put that shares the version of a range
    /// delete came after it.
    fn wait_for_hiders(&mut self, entry: &EntryRef<'_>) {
        let newer = self.newer;
        let lies_between =
            |mark: &&Version| entry.version < **mark && newer.is_none_or(|newer| **mark < newer);
        self.waiting.extend(self.tombstones.at(entry.key).iter().filter(lies_between));
        self.waiting.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvilt_base::{Direction, KeyRange, RangeTombstone, merge::VecSource};

    fn kept(
        entries: &[(&str, u64, Kind)],
        views: &[u64],
        tombstones: &[(&str, &str, u64)],
    ) -> Vec<(String, u64)> {
        let v = Version::from_u64;
        let entries =
            entries.iter().map(|(k, n, kind)| (k.as_bytes().to_vec(), v(*n), *kind, b"x".to_vec())).collect();
        let mut merge = Merge::new(vec![Box::new(VecSource::new(entries))], Direction::Forward).unwrap();
        let views: Vec<_> = views.iter().map(|&n| v(n)).collect();
        let mut over = Tombstones::default();
        for (a, b, n) in tombstones {
            over.push_old(&RangeTombstone { range: KeyRange::new(*a..*b), version: v(*n) });
        }
        let tombstones = [Arc::new(over)];
        let mut out = Vec::new();
        Retain::new(&views, &tombstones)
            .run(&mut merge, &mut |e| {
                out.push((String::from_utf8_lossy(e.key).into_owned(), e.version.to_u64()));
                Ok(())
            })
            .unwrap();
        out
    }

    #[test]
    fn each_view_keeps_the_version_it_sees_and_no_other() {
        let entries = [("a", 9, Kind::Put), ("a", 7, Kind::Put), ("a", 4, Kind::Put), ("a", 2, Kind::Put)];
        let pairs = |versions: &[u64]| versions.iter().map(|&n| ("a".to_string(), n)).collect::<Vec<_>>();
        assert_eq!(kept(&entries, &[], &[]), pairs(&[9]));
        assert_eq!(kept(&entries, &[4], &[]), pairs(&[9, 4]));
        assert_eq!(kept(&entries, &[3, 8], &[]), pairs(&[9, 7, 2]));
        assert_eq!(kept(&entries, &[1], &[]), pairs(&[9]));
    }

    #[test]
    fn a_tombstone_is_kept_only_above_something_older() {
        let entries = [("a", 9, Kind::Tombstone), ("a", 4, Kind::Put), ("b", 3, Kind::Tombstone)];
        assert_eq!(kept(&entries, &[], &[]), []);
        assert_eq!(kept(&entries, &[5], &[]), [("a".to_string(), 9), ("a".to_string(), 4)]);
    }

    #[test]
    fn a_range_tombstone_ends_what_lies_under_it_except_for_older_views() {
        let entries = [("a", 3, Kind::Put), ("b", 8, Kind::Put), ("b", 3, Kind::Put), ("c", 3, Kind::Put)];
        let wiped = [("a", "c", 5)];
        assert_eq!(kept(&entries, &[], &wiped), [("b".to_string(), 8), ("c".to_string(), 3)]);
        let with_tombstones_above = [("a", 5), ("a", 3), ("b", 8), ("b", 5), ("b", 3), ("c", 3)];
        assert_eq!(kept(&entries, &[4], &wiped), with_tombstones_above.map(|(k, n)| (k.to_string(), n)));
        assert_eq!(
            kept(&entries, &[5], &wiped).len(),
            2,
            "a view at the tombstone's version sees the deletion"
        );
    }
}
