//! `Visible`: of one stream of entries, the rows that a reader at one version may see.

use std::ops::ControlFlow;

use crate::{Direction, EntryRef, KeyRange, Kind, Merge, Result, Source, Version};

/// "Nothing in `range` that was written before `version` has a value."
///
/// Before it took its version the global version was advanced, while no put to the range was in flight: what
/// the range held has a lower version, and what shares the version came later. So comparing versions decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// The keys deleted.
    pub range: KeyRange,
    /// Entries below this version are deleted.
    pub version: Version,
}

impl RangeTombstone {
    /// Whether a reader at `view` finds that this deletes `entry`.
    pub fn hides(&self, key: &[u8], written: Version, view: Version) -> bool {
        self.version <= view && written < self.version && self.range.contains(key)
    }
}

/// Who knows the range tombstones that lie over keys.
pub trait Hiding {
    /// Whether a reader at `view` finds an entry of `key` written at `written` deleted.
    fn hides(&mut self, key: &[u8], written: Version, view: Version) -> bool;
}

/// One by one: for tests, and where there are few.
impl Hiding for &[RangeTombstone] {
    fn hides(&mut self, key: &[u8], written: Version, view: Version) -> bool {
        self.iter().any(|tombstone| tombstone.hides(key, written, view))
    }
}

/// The rows at one version out of a merged stream.
pub struct Visible<'s, H> {
    entries: Merge<'s>,
    direction: Direction,
    view: Version,
    tombstones: H,
    /// The key of the row given last, whose older versions are still to be skipped (forward only).
    done: Option<Vec<u8>>,
    /// Where a row is gathered when going backward, where the newest visible version of a key comes last.
    value: Vec<u8>,
    skipped: u64,
}

impl<'s, H: Hiding> Visible<'s, H> {
    /// Rows of `entries` (which run in `direction`) at `view`, less what `tombstones` hide.
    pub fn new(entries: Merge<'s>, direction: Direction, view: Version, tombstones: H) -> Self {
        Visible { entries, direction, view, tombstones, done: None, value: Vec::new(), skipped: 0 }
    }

    /// Gives rows to `row` until it breaks; says whether it did, or the end came first.
    pub fn each(&mut self, row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<ControlFlow<()>> {
        match self.direction {
            Direction::Forward => self.each_forward(row),
            Direction::Backward => self.each_backward(row),
        }
    }

    /// The key that was looked at last: behind a break, that of the row which was given last.
    pub fn key(&self) -> Option<&[u8]> {
        self.done.as_deref()
    }

    /// How many entries were passed over so far: old versions, tombstones, and what these hide.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// See [`Merge::turns`].
    pub fn turns(&self) -> u64 {
        self.entries.turns()
    }

    fn each_forward(
        &mut self,
        mut row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let Visible { entries, view, tombstones, done, skipped, .. } = self;
        entries.each(&mut |entry| {
            let is_older_version = done.as_deref() == Some(entry.key);
            if is_older_version || entry.version > *view {
                *skipped += u64::from(is_older_version);
                return ControlFlow::Continue(());
            }
            let done = done.get_or_insert_default();
            done.clear();
            done.extend_from_slice(entry.key);
            if !shows(&entry, *view, tombstones) {
                *skipped += 1;
                return ControlFlow::Continue(());
            }
            row(entry.key, entry.value)
        })
    }

    fn each_backward(
        &mut self,
        mut row: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        while let Some(entry) = self.entries.entry() {
            let key = self.done.get_or_insert_default();
            key.clear();
            key.extend_from_slice(entry.key);
            if self.gather_newest()? && row(self.done.as_deref().expect("set above"), &self.value).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Walks all versions of the key in `done`, oldest first; says whether the newest visible one is a row,
    /// and leaves its value in `value`.
    fn gather_newest(&mut self) -> Result<bool> {
        let mut is_row = false;
        while let Some(entry) = self.entries.entry() {
            if self.done.as_deref() != Some(entry.key) {
                break;
            }
            if entry.version <= self.view {
                is_row = shows(&entry, self.view, &mut self.tombstones);
                if is_row {
                    self.value.clear();
                    self.value.extend_from_slice(entry.value);
                }
            }
            self.skipped += 1;
            self.entries.advance()?;
        }
        self.skipped -= u64::from(is_row);
        Ok(is_row)
    }
}

fn shows(entry: &EntryRef<'_>, view: Version, tombstones: &mut impl Hiding) -> bool {
    entry.kind == Kind::Put && !tombstones.hides(entry.key, entry.version, view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::VecSource;

    fn rows(view: u64, direction: Direction) -> Vec<(String, String)> {
        let v = Version::from_u64;
        let mut entries = vec![
            (b"a".to_vec(), v(7), Kind::Put, b"a7".to_vec()),
            (b"a".to_vec(), v(3), Kind::Put, b"a3".to_vec()),
            (b"b".to_vec(), v(6), Kind::Tombstone, vec![]),
            (b"b".to_vec(), v(2), Kind::Put, b"b2".to_vec()),
            (b"c".to_vec(), v(5), Kind::Put, b"c5".to_vec()),
            (b"d".to_vec(), v(8), Kind::Put, b"d8".to_vec()),
        ];
        if direction == Direction::Backward {
            entries.reverse();
        }
        let tombstones = [RangeTombstone { range: KeyRange::new(b"c".as_slice()..), version: v(6) }];
        let merge = Merge::new(vec![Box::new(VecSource::new(entries))], direction).unwrap();
        let mut visible = Visible::new(merge, direction, v(view), &tombstones[..]);
        let mut out = Vec::new();
        let mut push = |k: &[u8], x: &[u8]| {
            out.push((String::from_utf8_lossy(k).into(), String::from_utf8_lossy(x).into()));
            ControlFlow::Continue(())
        };
        assert!(visible.each(&mut push).unwrap().is_continue());
        out
    }

    #[test]
    fn each_view_sees_its_own_rows_in_both_directions() {
        let pair = |k: &str, v: &str| (k.to_string(), v.to_string());
        let cases = [
            (8, vec![pair("a", "a7"), pair("d", "d8")]),
            (7, vec![pair("a", "a7")]),
            (5, vec![pair("a", "a3"), pair("b", "b2"), pair("c", "c5")]),
            (2, vec![pair("b", "b2")]),
            (1, vec![]),
        ];
        for (view, expected) in cases {
            assert_eq!(rows(view, Direction::Forward), expected, "view {view}");
            let mut backward = rows(view, Direction::Backward);
            backward.reverse();
            assert_eq!(backward, expected, "view {view}, backward");
        }
    }
}
