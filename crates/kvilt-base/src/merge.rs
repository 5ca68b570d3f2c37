//! `Merge`: k sorted streams of entries become one.
//!
//! Forward, entries come by key ascending, and for one key newest version first; backward is the exact
//! reverse. Two sources may hold the same key at the same version (a put overwrote one that no reader could
//! tell apart): the newer source wins, which is why sources are given newest first.

use std::{cmp::Ordering, ops::ControlFlow};

use crate::{EntryRef, Result, Version};

/// Which way a stream runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Keys ascending, versions of one key descending.
    Forward,
    /// Keys descending, versions of one key ascending.
    Backward,
}

/// Takes entries, one after the other, until it breaks.
pub type Each<'e> = dyn FnMut(EntryRef<'_>) -> ControlFlow<()> + 'e;

/// What a source does with values of more than [`STREAMED_BYTES_MIN`](crate::limits::STREAMED_BYTES_MIN)
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeValues {
    /// Reads them with what lies beside them. Each source of a merge may have one in memory.
    AtOnce,
    /// Verifies them, which is to read them piece by piece, and reads them when they are
    /// [fetched](Source::fetch): of all sources of a merge one has one in memory.
    Fetched,
    /// Leaves them in the file, for who copies them from there: see [`Source::streamed`].
    Streamed,
}

/// A value that is not in memory, of the entry on which a source stands: to be copied from file to file.
#[expect(clippy::len_without_is_empty, reason = "only large values are streamed")]
pub trait Streamed {
    /// Bytes of it.
    fn len(&self) -> usize;
    /// Gives it in pieces, in order. Only once this is Ok is anything of the entry verified, its key and
    /// version included: who passes it over copies it to nowhere, and who made something of it before gives
    /// that up after an error.
    fn copy(&self, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// A sorted stream of entries in the direction it was made for.
pub trait Source {
    /// The entry it stands on, or none at the end. [`Source::fetch`] comes first.
    fn entry(&self) -> Option<EntryRef<'_>>;
    /// The key of that entry, which needs no fetch: it mostly decides which source comes first.
    fn key(&self) -> Option<&[u8]> {
        self.entry().map(|entry| entry.key)
    }
    /// The version of that entry, which needs no fetch. Asked only when keys are equal: where it costs a line
    /// of memory, that need not be there yet when the key is compared.
    fn version(&self) -> Option<Version> {
        self.entry().map(|entry| entry.version)
    }
    /// Reads what is missing of the entry it stands on. Of several sources only the first has to.
    fn fetch(&mut self) -> Result<()> {
        Ok(())
    }
    /// Where the value of the entry is, if that has none because it is large. Only of sources that were made
    /// so.
    fn streamed(&self) -> Option<&dyn Streamed> {
        None
    }
    /// Moves to the following entry. Must not be called at the end.
    fn advance(&mut self) -> Result<()>;
    /// Gives the entries from the one it stands on to `each`, fetched, for as long as their keys come before
    /// `stop`, if there is one. Stands then on the first that was not given; or, if `each` broke, on the one
    /// at which it did; or, if one cannot be fetched, on that. Only for sources that run forward.
    fn walk(&mut self, stop: Option<&[u8]>, each: &mut Each<'_>) -> Result<ControlFlow<()>> {
        while self.key().is_some_and(|key| stop.is_none_or(|stop| key < stop)) {
            self.fetch()?;
            if each(self.entry().expect("it has a key")).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.advance()?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        (**self).entry()
    }
    fn key(&self) -> Option<&[u8]> {
        (**self).key()
    }
    fn version(&self) -> Option<Version> {
        (**self).version()
    }
    fn fetch(&mut self) -> Result<()> {
        (**self).fetch()
    }
    fn streamed(&self) -> Option<&dyn Streamed> {
        (**self).streamed()
    }
    fn advance(&mut self) -> Result<()> {
        (**self).advance()
    }
    fn walk(&mut self, stop: Option<&[u8]>, each: &mut Each<'_>) -> Result<ControlFlow<()>> {
        (**self).walk(stop, each)
    }
}

/// Several sources as one. Sources are few (a munk's or funk's parts), so the smallest is found by looking at
/// all of them; a heap would cost more than it saves. One of them is mostly much longer than the others, and
/// then gives many entries in a row: for as long as its keys come before the runner-up's, nothing else is
/// looked at.
pub struct Merge<'s> {
    sources: Vec<Box<dyn Source + 's>>,
    direction: Direction,
    /// The source whose entry comes first; none when all have ended.
    first: Option<usize>,
    /// The key that the first of the other sources stands on; a copy, as that source may lend it for a moment
    /// only.
    runner_up: Vec<u8>,
    /// Whether any other source has an entry left.
    has_runner_up: bool,
    /// See [`Merge::turns`].
    turns: u64,
}

impl<'s> Merge<'s> {
    /// Merges `sources`, given newest first, each already in `direction`. Fails if the first entry cannot be
    /// fetched.
    pub fn new(sources: Vec<Box<dyn Source + 's>>, direction: Direction) -> Result<Self> {
        let mut merge =
            Merge { sources, direction, first: None, runner_up: Vec::new(), has_runner_up: false, turns: 0 };
        merge.find_first();
        merge.fetch()?;
        Ok(merge)
    }

    /// How often all sources had to be looked at because the one that was first may be so no longer: what
    /// merging costs.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Gives all entries that are left to `each`, until it breaks; then it stands on the one at which that
    /// was. Only for a merge that runs forward. The source that comes first gives its entries itself, without
    /// a question to it for each, up to the key of the runner-up.
    pub fn each(&mut self, each: &mut Each<'_>) -> Result<ControlFlow<()>> {
        debug_assert_eq!(self.direction, Direction::Forward);
        while let Some(first) = self.first {
            let source = &mut self.sources[first];
            // That it comes first its version may have decided; those behind it come first by their keys
            // alone.
            if each(source.entry().expect("it comes first")).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            source.advance()?;
            let stop = self.has_runner_up.then_some(self.runner_up.as_slice());
            if source.walk(stop, each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.find_first();
            self.turns += 1;
            self.fetch()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn find_first(&mut self) {
        let mut first: Option<Candidate<'_>> = None;
        let mut second: Option<Candidate<'_>> = None;
        for (rank, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            let candidate = Candidate { rank, key };
            if self.comes_before(candidate, first) {
                second = first.replace(candidate);
            } else if self.comes_before(candidate, second) {
                second = Some(candidate);
            }
        }
        self.first = first.map(|first| first.rank);
        self.has_runner_up = second.is_some();
        if let Some(second) = second {
            self.runner_up.clear();
            self.runner_up.extend_from_slice(second.key);
        }
    }

    /// Whether `found`, of a later rank, comes before `best`: forward by key ascending, then version
    /// descending. On a tie the earlier rank (newer source) stays in front going forward, and goes last
    /// backward.
    fn comes_before(&self, found: Candidate<'_>, best: Option<Candidate<'_>>) -> bool {
        let Some(best) = best else { return true };
        let version = |of: Candidate<'_>| self.sources[of.rank].version();
        match found.key.cmp(best.key).then_with(|| version(best).cmp(&version(found))) {
            Ordering::Less => self.direction == Direction::Forward,
            Ordering::Greater | Ordering::Equal => self.direction == Direction::Backward,
        }
    }

    /// Whether the source that was first still is, by its key alone; if not, all have to be looked at.
    fn is_still_first(&self, first: usize) -> bool {
        let Some(key) = self.sources[first].key() else { return false };
        !self.has_runner_up
            || match self.direction {
                Direction::Forward => key < self.runner_up.as_slice(),
                Direction::Backward => key > self.runner_up.as_slice(),
            }
    }
}

/// A source that may come first.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    rank: usize,
    key: &'a [u8],
}

impl Source for Merge<'_> {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.sources[self.first?].entry()
    }

    fn advance(&mut self) -> Result<()> {
        let first = self.first.expect("advance is not called at the end");
        self.sources[first].advance()?;
        if !self.is_still_first(first) {
            self.find_first();
            self.turns += 1;
        }
        self.fetch()
    }

    fn fetch(&mut self) -> Result<()> {
        self.first.map_or(Ok(()), |first| self.sources[first].fetch())
    }

    fn streamed(&self) -> Option<&dyn Streamed> {
        self.sources[self.first?].streamed()
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
        let mut merge = Merge::new(vec![newer, older], direction).unwrap();
        let mut out = Vec::new();
        while let Some(e) = merge.entry() {
            out.push(String::from_utf8_lossy(e.value).into_owned());
            merge.advance().unwrap();
        }
        out
    }

    /// A source that counts what it fetches, and fails when it has to fetch `damaged`.
    struct Lazy {
        entries: VecSource,
        fetched: std::rc::Rc<std::cell::Cell<u32>>,
        damaged: &'static str,
    }

    impl Source for Lazy {
        fn entry(&self) -> Option<EntryRef<'_>> {
            self.entries.entry()
        }

        fn fetch(&mut self) -> Result<()> {
            self.fetched.set(self.fetched.get() + 1);
            match self.entries.entry() {
                Some(entry) if entry.key == self.damaged.as_bytes() => {
                    Err(crate::Error::new(crate::ErrorKind::Corrupted, "damaged"))
                }
                _ => Ok(()),
            }
        }

        fn advance(&mut self) -> Result<()> {
            self.entries.advance()
        }
    }

    #[test]
    fn only_the_source_that_comes_first_fetches_and_its_failure_is_told() {
        let lazy = |keys: [&str; 2], damaged| {
            let row = |key: &str| (key.as_bytes().to_vec(), Version::from_u64(1), Kind::Put, Vec::new());
            let fetched = std::rc::Rc::default();
            let entries = VecSource::new(keys.map(row).into());
            (Box::new(Lazy { entries, fetched: std::rc::Rc::clone(&fetched), damaged }), fetched)
        };
        let ((early, early_fetched), (late, late_fetched)) = (lazy(["a", "b"], ""), lazy(["c", "d"], "d"));
        let mut merge = Merge::new(vec![late, early], Direction::Forward).unwrap();
        merge.advance().unwrap();
        assert_eq!((early_fetched.get(), late_fetched.get(), merge.turns()), (2, 0, 0));
        merge.advance().unwrap();
        assert_eq!((late_fetched.get(), merge.turns()), (1, 1));
        assert!(merge.advance().is_err());
        assert!(Merge::new(vec![lazy(["a", "b"], "a").0], Direction::Forward).is_err());
    }

    #[test]
    fn the_newer_source_comes_first_at_equal_versions_and_backward_is_the_reverse() {
        let forward = drain(Direction::Forward);
        assert_eq!(forward, ["new5", "old5", "a2", "b1", "c9"]);
        let mut backward = drain(Direction::Backward);
        backward.reverse();
        assert_eq!(forward, backward);
    }

    /// All that `merge` gives, each entry as text; it is left at each entry once, and gone on with.
    fn drain_with_breaks(merge: &mut Merge<'_>, breaks_at: impl Fn(usize) -> bool) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        let mut again = false;
        loop {
            let flow = merge.each(&mut |e| {
                // Behind a break it stands on the entry at which that was.
                if !std::mem::take(&mut again) {
                    out.push(format!("{:?} {} {:?}", e.key, e.version.to_u64(), e.value));
                    if breaks_at(out.len()) {
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            });
            match flow.unwrap() {
                ControlFlow::Continue(()) => return out,
                ControlFlow::Break(()) => again = true,
            }
        }
    }

    type Rows = Vec<(Vec<u8>, Version, Kind, Vec<u8>)>;

    proptest::proptest! {
        #[test]
        fn each_gives_what_advancing_gives_wherever_it_is_left(
            sources in proptest::collection::vec(
                proptest::collection::btree_set((proptest::string::string_regex("[ab]{0,2}").unwrap(), 0..4u64), 0..10), 0..5),
            breaks in proptest::collection::vec(proptest::bool::ANY, 64),
        ) {
            let rows = |source: usize| -> Rows {
                let mut rows: Rows = sources[source]
                    .iter()
                    .map(|(key, v)| (key.clone().into(), Version::from_u64(*v), Kind::Put, vec![source as u8]))
                    .collect();
                rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
                rows
            };
            let merge = || {
                let source = |at| Box::new(VecSource::new(rows(at))) as Box<dyn Source>;
                Merge::new((0..sources.len()).map(source).collect(), Direction::Forward).unwrap()
            };
            // By key, then newest version, then newest source.
            let mut expected: Vec<_> = (0..sources.len()).flat_map(rows).collect();
            expected.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)).then(a.3.cmp(&b.3)));
            let expected: Vec<String> =
                expected.iter().map(|(key, v, _, value)| format!("{key:?} {} {value:?}", v.to_u64())).collect();

            let mut advanced = merge();
            let mut out = Vec::new();
            while let Some(e) = advanced.entry() {
                out.push(format!("{:?} {} {:?}", e.key, e.version.to_u64(), e.value));
                advanced.advance().unwrap();
            }
            proptest::prop_assert_eq!(&out, &expected);
            let mut whole = merge();
            proptest::prop_assert_eq!(&drain_with_breaks(&mut whole, |_| false), &expected);
            proptest::prop_assert_eq!(whole.turns(), advanced.turns());
            proptest::prop_assert_eq!(&drain_with_breaks(&mut merge(), |at| breaks[at % breaks.len()]), &expected);
        }
    }

    #[test]
    fn what_cannot_be_fetched_ends_a_walk_behind_what_came_before() {
        let row = |key: &str| (key.as_bytes().to_vec(), Version::from_u64(1), Kind::Put, Vec::new());
        for damaged in ["b", "c"] {
            let entries = VecSource::new(["a", "b", "c"].map(row).into());
            let lazy = Lazy { entries, fetched: std::rc::Rc::default(), damaged };
            let other = VecSource::new(vec![row("bb")]);
            let mut merge = Merge::new(vec![Box::new(lazy), Box::new(other)], Direction::Forward).unwrap();
            let mut given = Vec::new();
            let ended = merge.each(&mut |e| {
                given.push(String::from_utf8_lossy(e.key).into_owned());
                ControlFlow::Continue(())
            });
            assert!(ended.is_err());
            let expected: &[&str] = if damaged == "b" { &["a"] } else { &["a", "b", "bb"] };
            assert_eq!(given, expected);
        }
    }
}
