//! `BulkLoad`: an index out of entries in any order, several times as fast as by insertions.
//!
//! Entries are gathered in a run. A run that is full is sorted and merged with the index of the runs before,
//! whose leaves are freed as those of the new index are built: the peak is one run beside the index.

use kvilt_base::key::shared_prefix_len;

use crate::place::Place;

use super::{Builder, Entries, Index};

/// Entries that are taken out of the older index at a time.
const ENTRIES_A_STEP: usize = 4096;

/// Two places that have the same key.
#[derive(Debug, PartialEq, Eq)]
pub struct Twice(pub Place, pub Place);

/// See the module.
#[derive(Debug)]
pub struct BulkLoad {
    index: Index,
    run: Entries,
    run_bytes_max: usize,
}

impl BulkLoad {
    /// Without entries. A run is merged when it has this many bytes.
    pub fn new(run_bytes_max: usize) -> Self {
        BulkLoad { index: Index::new(), run: Entries::new(), run_bytes_max }
    }

    /// Adds an entry.
    ///
    /// Errors: two entries before this one have the same key.
    pub fn push(&mut self, key: &[u8], place: Place) -> Result<(), Twice> {
        if self.run.bytes() + self.run.len() * size_of::<Head>() >= self.run_bytes_max {
            self.merge()?;
        }
        self.run.push(key, place);
        Ok(())
    }

    /// The index of all entries.
    ///
    /// Errors: two entries have the same key.
    pub fn finish(mut self) -> Result<Index, Twice> {
        self.merge()?;
        Ok(self.index)
    }

    /// Merges the run with the index of the runs before.
    fn merge(&mut self) -> Result<(), Twice> {
        let order = order_of(&self.run)?;
        let entry = |head: &Head| (self.run.key(head.number as usize), self.run.place(head.number as usize));
        let mut new = order.iter().map(entry).peekable();
        let mut builder = Builder::new();
        let mut old = Entries::new();
        while !self.index.is_empty() {
            old.clear();
            self.index.take_first(ENTRIES_A_STEP, &mut old);
            for (key, place) in old.iter() {
                while let Some((key, place)) = new.next_if(|(new, _)| *new < key) {
                    builder.push(key, place);
                }
                if let Some((_, twice)) = new.next_if(|(new, _)| *new == key) {
                    return Err(Twice(place, twice));
                }
                builder.push(key, place);
            }
        }
        new.for_each(|(key, place)| builder.push(key, place));
        self.index = builder.finish();
        self.run.clear();
        Ok(())
    }
}

/// An entry of a run, by the bytes of its key that decide most comparisons.
#[derive(Debug)]
struct Head {
    /// The bytes after those that all keys of the run share.
    bytes: u64,
    number: u32,
}

/// The order of a run's entries.
fn order_of(run: &Entries) -> Result<Vec<Head>, Twice> {
    let Some(last) = run.last_key() else { return Ok(Vec::new()) };
    let shared = run
        .iter()
        .fold(last.len(), |shared, (key, _)| shared_prefix_len(&key[..shared.min(key.len())], last));
    let head = |(number, (key, _)): (usize, (&[u8], Place))| {
        let mut bytes = [0; 8];
        let own = &key[shared..];
        let len = own.len().min(bytes.len());
        bytes[..len].copy_from_slice(&own[..len]);
        Head {
            bytes: u64::from_be_bytes(bytes),
            number: u32::try_from(number).expect("a run has fewer entries"),
        }
    };
    let mut order: Vec<Head> = run.iter().enumerate().map(head).collect();
    let key = |head: &Head| run.key(head.number as usize);
    order.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes).then_with(|| key(a).cmp(key(b))));
    match order.windows(2).find(|pair| pair[0].bytes == pair[1].bytes && key(&pair[0]) == key(&pair[1])) {
        Some(pair) => Err(Twice(run.place(pair[0].number as usize), run.place(pair[1].number as usize))),
        None => Ok(order),
    }
}

#[cfg(test)]
mod tests {
    use kvilt_base::{Direction, KeyRange};
    use proptest::prelude::*;

    use super::*;

    fn loaded(entries: &[(Vec<u8>, Place)], run_bytes_max: usize) -> Result<Index, Twice> {
        let mut load = BulkLoad::new(run_bytes_max);
        entries.iter().try_for_each(|(key, place)| load.push(key, *place))?;
        load.finish()
    }

    proptest! {
        /// Whatever the length of a run: the index of insertions.
        #[test]
        fn a_bulk_load_makes_the_index_that_insertions_make(
            keys in prop::collection::hash_set(prop::collection::vec(0..3_u8, 1..12), 0..600),
            run_bytes_max in prop_oneof![Just(1), 100..20_000_usize],
        ) {
            let entries: Vec<_> =
                keys.into_iter().enumerate().map(|(n, key)| (key, Place::new(1, n as u64))).collect();
            let mut inserted = Index::new();
            entries.iter().for_each(|(key, place)| assert_eq!(inserted.insert(key, *place), None));
            let (mut wanted, mut found) = (Entries::new(), Entries::new());
            inserted.walk(&KeyRange::all(), Direction::Forward, usize::MAX, &mut wanted);
            let index = loaded(&entries, run_bytes_max).unwrap();
            index.walk(&KeyRange::all(), Direction::Forward, usize::MAX, &mut found);
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(index.len(), entries.len() as u64);
        }
    }

    #[test]
    fn a_key_that_comes_twice_is_reported_within_a_run_and_between_runs() {
        let key = |n: u64| n.to_string().into_bytes();
        let mut entries: Vec<_> = (0..500).map(|n| (key(n), Place::new(1, n))).collect();
        entries.push((key(7), Place::new(2, 7)));
        for run_bytes_max in [1, 1_000, 1 << 20] {
            let Twice(a, b) = loaded(&entries, run_bytes_max).unwrap_err();
            assert_eq!([a.min(b), a.max(b)], [Place::new(1, 7), Place::new(2, 7)], "{run_bytes_max}");
        }
    }
}
