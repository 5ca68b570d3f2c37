//! `Run`: the sorted, immutable part of a munk (EvenDB §3.1: the munk's sorted prefix).
//!
//! Entries lie one behind the other in one region of memory, by key ascending and version descending; an
//! array of offsets and one of key heads make them searchable. Never changed once built; so a run that consists of another's
//! first entries shares the other's region.

use std::sync::Arc;

use kvilt_base::{Direction, EntryRef, Error, KeyRange, Kind, Result, Source, Version};

use super::places::Places;
use crate::{growing::Growing, heads::Heads, key_hash::key_hash};

/// Bytes of an entry besides key and value: key length 4, value length and kind 4, version 8.
const ENTRY_HEAD_BYTES: usize = 16;
/// Set in the length word for tombstones.
const TOMBSTONE_BIT: u32 = 1 << 31;

/// Bytes of an entry with a key and a value as long as these.
pub(crate) fn entry_bytes(key_len: usize, value_len: usize) -> usize {
    ENTRY_HEAD_BYTES + key_len + value_len
}

/// Sorted entries in memory.
#[derive(Debug)]
pub(crate) struct Run {
    bytes: Option<Arc<Growing>>,
    /// Where its entries end in the region, which may have more.
    end: usize,
    offsets: Vec<u32>,
    heads: Heads,
    places: Places,
}

impl Run {
    /// A run without entries.
    pub(crate) fn empty() -> Self {
        Run { bytes: None, end: 0, offsets: Vec::new(), heads: Heads::default(), places: Places::default() }
    }

    /// The run of these entries, which lie one behind the other in a region from its beginning.
    fn of(bytes: Arc<Growing>, end: usize, offsets: Vec<u32>) -> Self {
        let mut run = Run { bytes: Some(bytes), end, offsets, ..Run::empty() };
        run.heads = Heads::new((0..run.len()).map(|i| run.key_at(i)));
        run.places = Places::new(run.len(), run.newest_entries());
        run
    }

    /// The hash of each key, and the offset of its newest entry, which comes first.
    fn newest_entries(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut last = None;
        let entries = self.offsets.iter().enumerate().map(|(i, &offset)| (self.key_at(i), offset));
        entries
            .filter(move |&(key, _)| last.replace(key) != Some(key))
            .map(|(key, offset)| (key_hash(key), offset))
    }

    /// Its first `count` entries as a run that keeps all of this one's region.
    pub(crate) fn first(&self, count: usize) -> Run {
        match &self.bytes {
            Some(bytes) if count > 0 => {
                Run::of(Arc::clone(bytes), self.bytes_before(count), self.offsets[..count].to_vec())
            }
            Some(_) | None => Run::empty(),
        }
    }

    /// Bytes of its first `count` entries.
    pub(crate) fn bytes_before(&self, count: usize) -> usize {
        self.offsets.get(count).map_or(self.end, |&offset| offset as usize)
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Bytes of the entries themselves: what a chunk counts as its size.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.end
    }

    /// Memory, all in all: with what of its region other runs share.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
            + self.offsets.capacity() * 4
            + self.heads.bytes()
            + self.places.bytes()
    }

    /// The entry at a position.
    pub(crate) fn entry_at(&self, position: usize) -> EntryRef<'_> {
        self.entry_from(self.offsets[position] as usize)
    }

    /// The entry that begins at an offset.
    fn entry_from(&self, offset: usize) -> EntryRef<'_> {
        let bytes = self.bytes.as_ref().expect("a run with entries has bytes").as_slice();
        let bytes = &bytes[offset..];
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (key_len, value_word) = (word(0) as usize, word(4));
        let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let value_start = ENTRY_HEAD_BYTES + key_len;
        let value_len = (value_word & !TOMBSTONE_BIT) as usize;
        EntryRef {
            key: &bytes[ENTRY_HEAD_BYTES..value_start],
            version: Version::from_u64(version),
            kind: if value_word & TOMBSTONE_BIT == 0 { Kind::Put } else { Kind::Tombstone },
            value: &bytes[value_start..value_start + value_len],
        }
    }

    /// Has the processor fetch the entry at a position, if there is one: rows of a scan lie one behind the other, but in
    /// other pages, where processors do not look ahead on their own.
    fn fetch_ahead(&self, position: usize) {
        if let Some(bytes) = &self.bytes {
            bytes.fetch_ahead(self.bytes_before(position), self.bytes_before(position + 1));
        }
    }

    /// Whether it has two keys, so that it can be cut between them.
    pub(crate) fn can_be_cut(&self) -> bool {
        self.len() > 1 && self.key_at(0) != self.key_at(self.len() - 1)
    }

    /// What all its keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.heads.prefix()
    }

    /// Its first key.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        (self.len() > 0).then(|| self.key_at(0))
    }

    /// The key at a position.
    pub(crate) fn key_at(&self, position: usize) -> &[u8] {
        self.entry_at(position).key
    }

    /// The position of the first entry whose key is `>= key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        self.heads.lower_bound(key, |i| self.key_at(i))
    }

    /// The newest entry of `key` with a version up to `at`.
    pub(crate) fn find(&self, key: &[u8], at: Version) -> Option<EntryRef<'_>> {
        let is_it = |offset| self.entry_from(offset as usize).key == key;
        let mut offset = self.places.find(key_hash(key), is_it)? as usize;
        while offset < self.end {
            let entry = self.entry_from(offset);
            if entry.key != key {
                return None;
            }
            if entry.version <= at {
                return Some(entry);
            }
            offset += entry_bytes(entry.key.len(), entry.value.len());
        }
        None
    }

    /// The entries of `range`, in `direction`.
    pub(crate) fn source(&self, range: &KeyRange, direction: Direction) -> RunSource<'_> {
        let start = self.lower_bound(&range.start);
        let end = range.end.as_deref().map_or(self.len(), |end| self.lower_bound(end)).max(start);
        RunSource { run: self, remaining: start..end, direction }
    }
}

/// Walks a run.
pub(crate) struct RunSource<'r> {
    run: &'r Run,
    remaining: std::ops::Range<usize>,
    direction: Direction,
}

impl Source for RunSource<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        if self.remaining.is_empty() {
            return None;
        }
        Some(self.run.entry_at(match self.direction {
            Direction::Forward => self.remaining.start,
            Direction::Backward => self.remaining.end - 1,
        }))
    }

    fn advance(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => {
                self.remaining.start += 1;
                if self.remaining.len() > 1 {
                    self.run.fetch_ahead(self.remaining.start + 1);
                }
            }
            Direction::Backward => self.remaining.end -= 1,
        }
        Ok(())
    }
}

/// Builds a run from entries in order.
pub(crate) struct RunBuilder {
    bytes: Growing,
    /// Where its entries end, of which some may have been split off.
    end: usize,
    offsets: Vec<u32>,
}

impl RunBuilder {
    /// A builder for about this many bytes of entries; it grows when it must.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        Ok(RunBuilder { bytes: Growing::with_capacity(bytes)?, end: 0, offsets: Vec::new() })
    }

    /// Bytes of entries with this one.
    fn len_with(&self, entry: EntryRef<'_>) -> usize {
        self.end + entry_bytes(entry.key.len(), entry.value.len())
    }

    /// Adds the next entry: by key ascending, version descending.
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let offset = u32::try_from(self.bytes.len())
            .map_err(|_| Error::new(kvilt_base::ErrorKind::LimitReached, "a munk cannot hold 4 GiB"))?;
        let kind_bit = match entry.kind {
            Kind::Put => 0,
            Kind::Tombstone => TOMBSTONE_BIT,
            Kind::RangeTombstone => unreachable!("range tombstones lie beside the entries, not among them"),
        };
        let mut head = [0; ENTRY_HEAD_BYTES];
        head[..4].copy_from_slice(&(entry.key.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(entry.value.len() as u32 | kind_bit).to_le_bytes());
        head[8..].copy_from_slice(&entry.version.to_u64().to_le_bytes());
        self.bytes.push(&head)?;
        self.bytes.push(entry.key)?;
        self.bytes.push(entry.value)?;
        self.end = self.bytes.len();
        self.offsets.push(offset);
        Ok(())
    }

    /// Moves the entries from `position` on to `other`, which is empty.
    fn split_off(&mut self, position: usize, mut other: RunBuilder) -> Result<RunBuilder> {
        if let Some(&start) = self.offsets.get(position) {
            other.bytes.push(&self.bytes.as_slice()[start as usize..self.end])?;
            other.offsets.extend(self.offsets.drain(position..).map(|offset| offset - start));
            other.end = other.bytes.len();
            self.end = start as usize;
        }
        Ok(other)
    }

    /// The run.
    pub(crate) fn finish(mut self) -> Run {
        self.offsets.shrink_to_fit();
        Run::of(Arc::new(self.bytes), self.end, self.offsets)
    }
}

/// Builds runs of about equal size from entries in order, with all versions of a key in one of them.
pub(crate) struct PiecesBuilder {
    open: RunBuilder,
    done: Vec<Run>,
    /// How many runs there may be.
    count: usize,
    piece_bytes: usize,
    /// The key of the last entry, and where in the open run its first entry is.
    last_key: Vec<u8>,
    key_start: usize,
}

impl PiecesBuilder {
    /// For `count` runs from about this many bytes of entries.
    pub(crate) fn new(bytes: usize, count: usize) -> Result<Self> {
        let piece_bytes = bytes / count + 1;
        let (open, done) = (Self::piece(piece_bytes)?, Vec::with_capacity(count));
        Ok(PiecesBuilder { open, done, count, piece_bytes, last_key: Vec::new(), key_start: 0 })
    }

    /// A builder for one piece, with room for what the last one is longer: to grow is to copy.
    fn piece(bytes: usize) -> Result<RunBuilder> {
        RunBuilder::new(bytes + bytes / 8)
    }

    /// Adds the next entry: by key ascending, version descending.
    pub(crate) fn push(&mut self, entry: EntryRef<'_>) -> Result<()> {
        // What each run lacks goes to the last one, which is not cut: it would leave a row or two over.
        if self.done.len() + 1 < self.count {
            if entry.key != self.last_key {
                entry.key.clone_into(&mut self.last_key);
                self.key_start = self.open.offsets.len();
            }
            if self.key_start > 0 && self.open.len_with(entry) > self.piece_bytes {
                let next = self.open.split_off(self.key_start, Self::piece(self.piece_bytes)?)?;
                self.done.push(std::mem::replace(&mut self.open, next).finish());
                self.key_start = 0;
            }
        }
        self.open.push(entry)
    }

    /// The runs: as many as it was made for, unless there were far fewer bytes or fewer keys; one at least.
    pub(crate) fn finish(mut self) -> Vec<Run> {
        self.done.push(self.open.finish());
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a str, u64, Option<&'a str>);

    fn entry<'a>((key, version, value): &Row<'a>) -> EntryRef<'a> {
        EntryRef {
            key: key.as_bytes(),
            version: Version::from_u64(*version),
            kind: if value.is_some() { Kind::Put } else { Kind::Tombstone },
            value: value.unwrap_or("").as_bytes(),
        }
    }

    fn run(rows: &[Row<'_>]) -> Run {
        let mut builder = RunBuilder::new(16).unwrap();
        rows.iter().for_each(|row| builder.push(entry(row)).unwrap());
        builder.finish()
    }

    /// All entries of a run, forward.
    fn rows_of(run: &Run) -> Vec<(Vec<u8>, u64, usize)> {
        let row = |entry: EntryRef<'_>| (entry.key.to_vec(), entry.version.to_u64(), entry.value.len());
        (0..run.len()).map(|at| row(run.entry_at(at))).collect()
    }

    #[test]
    fn pieces_are_two_even_where_one_value_or_one_key_is_most_of_it() {
        let big = "x".repeat(5000);
        let some = "x".repeat(1900);
        for rows in [
            vec![("a", 1, Some("small")), ("b", 1, Some(big.as_str())), ("b", 0, Some("old"))],
            vec![("a", 1, Some(big.as_str())), ("b", 2, Some("small")), ("b", 1, Some("small"))],
            vec![
                ("a", 1, Some("small")),
                ("b", 3, Some(&some)),
                ("b", 2, Some(&some)),
                ("b", 1, Some(&some)),
            ],
            vec![("a", 2, Some(&some)), ("a", 1, Some(&some)), ("a", 0, Some(&some)), ("b", 1, None)],
        ] {
            let whole = run(&rows);
            let mut pieces = PiecesBuilder::new(whole.entry_bytes(), 2).unwrap();
            rows.iter().for_each(|row| pieces.push(entry(row)).unwrap());
            let pieces = pieces.finish();
            assert_eq!(pieces.len(), 2);
            assert_eq!(pieces[0].first_key(), Some(b"a".as_slice()));
            assert_eq!(pieces[1].first_key(), Some(b"b".as_slice()));
            assert_eq!(pieces.iter().flat_map(rows_of).collect::<Vec<_>>(), rows_of(&whole));
            assert_eq!(pieces.iter().map(Run::entry_bytes).sum::<usize>(), whole.entry_bytes());
        }
    }

    #[test]
    fn the_first_entries_of_a_run_are_a_run() {
        let whole = run(&[("a", 9, None), ("a", 4, Some("a4")), ("b", 2, Some("b2")), ("c", 1, Some("c1"))]);
        let first = whole.first(3);
        assert_eq!(rows_of(&first), rows_of(&whole)[..3]);
        assert_eq!(first.entry_bytes(), whole.bytes_before(3));
        assert_eq!(first.find(b"b", Version::NEWEST).map(|e| e.value.to_vec()), Some(b"b2".to_vec()));
        assert!(first.find(b"c", Version::NEWEST).is_none());
        assert_eq!(whole.first(4).entry_bytes(), whole.entry_bytes());
        assert_eq!(whole.first(0).len(), 0);
    }

    #[test]
    fn finds_the_newest_version_up_to_a_view_and_walks_both_ways() {
        let big = "x".repeat(5000);
        let run = run(&[
            ("", 1, Some("empty")),
            ("a", 9, None),
            ("a", 4, Some("a4")),
            ("b", 2, Some(&big)),
            ("bb", 1, Some("")),
        ]);
        let at = |key: &str, v: u64| {
            run.find(key.as_bytes(), Version::from_u64(v)).map(|e| (e.kind, e.value.to_vec()))
        };
        assert_eq!(at("a", 9), Some((Kind::Tombstone, vec![])));
        assert_eq!(at("a", 8), Some((Kind::Put, b"a4".to_vec())));
        assert_eq!(at("a", 3), None);
        assert_eq!(at("b", 2), Some((Kind::Put, big.clone().into_bytes())));
        assert_eq!(at("c", 99), None);
        let range = KeyRange::new("a".."bb");
        let mut keys = Vec::new();
        let mut source = run.source(&range, Direction::Backward);
        while let Some(e) = source.entry() {
            keys.push((e.key.to_vec(), e.version.to_u64()));
            source.advance().unwrap();
        }
        assert_eq!(keys, [(b"b".to_vec(), 2), (b"a".to_vec(), 4), (b"a".to_vec(), 9)]);
        assert!(Run::empty().find(b"a", Version::NEWEST).is_none());
        assert!(Run::empty().source(&KeyRange::all(), Direction::Forward).entry().is_none());
    }
}
