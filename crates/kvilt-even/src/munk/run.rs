//! `Run`: the sorted, immutable part of a munk (EvenDB §3.1: the munk's sorted prefix).
//!
//! Entries lie one behind the other in one region of memory, by key ascending and version descending; an
//! array of offsets and one of key heads make them searchable. Never changed once built.

use kvilt_base::{Direction, EntryRef, Error, KeyRange, Kind, Result, Source, Version};

use crate::{growing::Growing, heads::Heads};

/// Bytes of an entry besides key and value: key length 4, value length and kind 4, version 8.
const ENTRY_HEAD_BYTES: usize = 16;
/// Set in the length word for tombstones.
const TOMBSTONE_BIT: u32 = 1 << 31;

/// Sorted entries in memory.
#[derive(Debug)]
pub(crate) struct Run {
    bytes: Option<Growing>,
    offsets: Vec<u32>,
    heads: Heads,
}

impl Run {
    /// A run without entries.
    pub(crate) fn empty() -> Self {
        Run { bytes: None, offsets: Vec::new(), heads: Heads::default() }
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Bytes of the entries themselves: what a chunk counts as its size.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, Growing::len)
    }

    /// Memory, all in all.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, Growing::len) + self.offsets.capacity() * 4 + self.heads.bytes()
    }

    /// The entry at a position.
    pub(crate) fn entry_at(&self, position: usize) -> EntryRef<'_> {
        let bytes = self.bytes.as_ref().expect("a run with entries has bytes").as_slice();
        let bytes = &bytes[self.offsets[position] as usize..];
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

    /// Cuts it into runs of about `bytes` of entries each, never between versions of one key; at least
    /// two if it [can be cut](Run::can_be_cut).
    pub(crate) fn cut(&self, bytes: usize) -> Result<Vec<Run>> {
        let pieces = (self.entry_bytes() / bytes.max(1)).max(2);
        let piece_bytes = self.entry_bytes() / pieces + 1;
        let mut runs = Vec::with_capacity(pieces);
        let mut from = 0;
        for key_end in self.key_ends() {
            let is_last = key_end == self.len();
            // A key that would overshoot begins the next piece, unless it is alone. What each lacks therefore goes to the
            // last piece, which is not cut: it would leave a row or two over.
            let next_end = if is_last { self.len() } else { self.key_end(key_end) };
            let may_end = runs.is_empty() || runs.len() + 1 < pieces;
            if is_last || may_end && self.bytes_between(from, next_end) > piece_bytes {
                runs.push(self.copied(from, key_end)?);
                from = key_end;
            }
        }
        Ok(runs)
    }

    /// Where the records of each key end.
    fn key_ends(&self) -> impl Iterator<Item = usize> + '_ {
        let mut end = 0;
        std::iter::from_fn(move || {
            if end == self.len() {
                return None;
            }
            end = self.key_end(end);
            Some(end)
        })
    }

    fn key_end(&self, from: usize) -> usize {
        let key = self.key_at(from);
        (from + 1..self.len()).find(|&i| self.key_at(i) != key).unwrap_or(self.len())
    }

    fn bytes_between(&self, from: usize, to: usize) -> usize {
        let end = self.offsets.get(to).map_or(self.entry_bytes(), |&offset| offset as usize);
        end - self.offsets[from] as usize
    }

    fn copied(&self, from: usize, to: usize) -> Result<Run> {
        let mut builder = RunBuilder::new(self.bytes_between(from, to))?;
        (from..to).try_for_each(|i| builder.push(self.entry_at(i)))?;
        Ok(builder.finish())
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
        let first = self.lower_bound(key);
        (first..self.len()).map(|i| self.entry_at(i)).take_while(|e| e.key == key).find(|e| e.version <= at)
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
            Direction::Forward => self.remaining.start += 1,
            Direction::Backward => self.remaining.end -= 1,
        }
        Ok(())
    }
}

/// Builds a run from entries in order.
pub(crate) struct RunBuilder {
    bytes: Growing,
    offsets: Vec<u32>,
}

impl RunBuilder {
    /// A builder for about this many bytes of entries; it grows when it must.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        Ok(RunBuilder { bytes: Growing::with_capacity(bytes)?, offsets: Vec::new() })
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
        self.offsets.push(offset);
        Ok(())
    }

    /// The run.
    pub(crate) fn finish(mut self) -> Run {
        self.offsets.shrink_to_fit();
        let mut run = Run { bytes: Some(self.bytes), offsets: self.offsets, heads: Heads::default() };
        run.heads = Heads::new((0..run.len()).map(|i| run.key_at(i)));
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rows: &[(&str, u64, Option<&str>)]) -> Run {
        let mut builder = RunBuilder::new(16).unwrap();
        for (key, version, value) in rows {
            let kind = if value.is_some() { Kind::Put } else { Kind::Tombstone };
            let entry = EntryRef {
                key: key.as_bytes(),
                version: Version::from_u64(*version),
                kind,
                value: value.unwrap_or("").as_bytes(),
            };
            builder.push(entry).unwrap();
        }
        builder.finish()
    }

    #[test]
    fn a_cut_gives_two_pieces_even_where_one_value_is_most_of_it() {
        let big = "x".repeat(5000);
        for rows in [
            [("a", 1, Some("small")), ("b", 1, Some(big.as_str())), ("b", 0, Some("old"))],
            [("a", 1, Some(big.as_str())), ("b", 2, Some("small")), ("b", 1, Some("small"))],
        ] {
            let pieces = run(&rows).cut(3000).unwrap();
            assert_eq!(pieces.len(), 2);
            assert_eq!(pieces[0].first_key(), Some(b"a".as_slice()));
            assert_eq!(pieces[1].first_key(), Some(b"b".as_slice()));
            assert_eq!(pieces.iter().map(Run::len).sum::<usize>(), 3);
        }
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
