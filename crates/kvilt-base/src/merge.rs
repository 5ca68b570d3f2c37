//! `Merge`: k sorted streams of entries become one.
//!
//! Forward, entries come by key ascending, and for one key newest version first; backward is the exact
//! reverse. Two sources may hold the same key at the same version (a put overwrote one that no reader could
//! tell apart): the newer source wins, which is why sources are given newest first.

use std::cmp::Ordering;

use crate::{EntryRef, Result};

/// Which way a stream runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Keys ascending, versions of one key descending.
    Forward,
    /// Keys descending, versions of one key ascending.
    Backward,
}

/// A sorted stream of entries in the direction it was made for.
pub trait Source {
    /// The entry it stands on, or none at the end.
    fn entry(&self) -> Option<EntryRef<'_>>;
    /// Moves to the following entry. Must not be called at the end.
    fn advance(&mut self) -> Result<()>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        (**self).entry()
    }
    fn advance(&mut self) -> Result<()> {
        (**self).advance()
    }
}

/// Several sources as one. Sources are few (a munk's or funk's parts), so the smallest is found by looking at
/// all of them; a heap would cost more than it saves.
pub struct Merge<'s> {
    sources: Vec<Box<dyn Source + 's>>,
    direction: Direction,
    /// The source whose entry comes first; none when all have ended.
    first: Option<usize>,
}

impl<'s> Merge<'s> {
    /// Merges `sources`, given newest first, each already in `direction`.
    pub fn new(sources: Vec<Box<dyn Source + 's>>, direction: Direction) -> Self {
        let mut merge = Merge { sources, direction, first: None };
        merge.find_first();
        merge
    }

    fn find_first(&mut self) {
        let mut first: Option<(usize, EntryRef<'_>)> = None;
        for (rank, source) in self.sources.iter().enumerate() {
            let Some(entry) = source.entry() else { continue };
            let comes_before = match &first {
                None => true,
                // On a tie the earlier rank (newer source) stays in front going forward, and goes last backward.
                Some((_, best)) => match order(&entry, best) {
                    Ordering::Less => self.direction == Direction::Forward,
                    Ordering::Greater => self.direction == Direction::Backward,
                    Ordering::Equal => self.direction == Direction::Backward,
                },
            };
            if comes_before {
                first = Some((rank, entry));
            }
        }
        self.first = first.map(|(rank, _)| rank);
    }
}

/// Forward order: key ascending, then version descending.
fn order(a: &EntryRef<'_>, b: &EntryRef<'_>) -> Ordering {
    a.key.cmp(b.key).then_with(|| b.version.cmp(&a.version))
}

impl Source for Merge<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.sources[self.first?].entry()
    }

    fn advance(&mut self) -> Result<()> {
        let first = self.first.expect("advance is not called at the end");
        self.sources[first].advance()?;
        if self.sources.len() > 1 {
            self.find_first();
        } else if self.sources[first].entry().is_none() {
            self.first = None;
        }
        Ok(())
    }
}

/// Entries in a vector as a source; for tests and for small unsorted parts that were sorted on the way.
#[derive(Debug, Default)]
pub struct VecSource {
    entries: Vec<(Vec<u8>, crate::Version, crate::Kind, Vec<u8>)>,
    position: usize,
}

impl VecSource {
    /// A source over entries already in the wanted order.
    pub fn new(entries: Vec<(Vec<u8>, crate::Version, crate::Kind, Vec<u8>)>) -> Self {
        VecSource { entries, position: 0 }
    }
}

impl Source for VecSource {
    fn entry(&self) -> Option<EntryRef<'_>> {
        let (key, version, kind, value) = self.entries.get(self.position)?;
        Some(EntryRef { key, version: *version, kind: *kind, value })
    }

    fn advance(&mut self) -> Result<()> {
        self.position += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Version};

    fn source(rows: &[(&str, u64, &str)], direction: Direction) -> Box<dyn Source> {
        let mut rows: Vec<_> = rows
            .iter()
            .map(|(k, v, x)| (k.as_bytes().to_vec(), Version::from_u64(*v), Kind::Put, x.as_bytes().to_vec()))
            .collect();
        if direction == Direction::Backward {
            rows.reverse();
        }
        Box::new(VecSource::new(rows))
    }

    fn drain(direction: Direction) -> Vec<String> {
        let newer = source(&[("a", 5, "new5"), ("c", 9, "c9")], direction);
        let older = source(&[("a", 5, "old5"), ("a", 2, "a2"), ("b", 1, "b1")], direction);
        let mut merge = Merge::new(vec![newer, older], direction);
        let mut out = Vec::new();
        while let Some(e) = merge.entry() {
            out.push(String::from_utf8_lossy(e.value).into_owned());
            merge.advance().unwrap();
        }
        out
    }

    #[test]
    fn the_newer_source_comes_first_at_equal_versions_and_backward_is_the_reverse() {
        let forward = drain(Direction::Forward);
        assert_eq!(forward, ["new5", "old5", "a2", "b1", "c9"]);
        let mut backward = drain(Direction::Backward);
        backward.reverse();
        assert_eq!(forward, backward);
    }
}
