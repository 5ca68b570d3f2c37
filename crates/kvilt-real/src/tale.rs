//! `Tale`: what one writer does in one life, decided by a seed, so that the parent knows it without being
//! told.
//!
//! Writers share the store but not their keys: each key names its writer, and so does each range that is
//! deleted. Keys of different writers lie side by side, so they meet in the same chunks.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included},
};

use kvilt::{Db, WriteBatch};
use kvilt_sim::dice::{Dice, mix};

/// Groups of keys, and keys in a group: few enough that most keys are written many times.
const GROUPS: usize = 24;
const KEYS_PER_GROUP: usize = 8;

/// Rows of a steady tale: each life writes over some of them, and none comes or goes.
pub(crate) const STEADY_ROWS: usize = 4_000;
const STEADY_VALUE_BYTES: usize = 100;

/// The rows that a writer has left.
pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What kind of life it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Style {
    /// Everything that a store can do.
    Mixed,
    /// Values of one size written over others of that size, with a sync now and then.
    Steady,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// One or several keys in one atomic step: a value, or none to delete.
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// All keys from the first up to the second.
    DeleteRange(Vec<u8>, Vec<u8>),
    /// Everything that was acknowledged becomes durable.
    Sync,
    /// A look, which changes nothing but what is cached.
    Get(Vec<u8>),
    /// A look at a group of keys.
    Scan(Vec<u8>, Vec<u8>),
}

/// The steps of one writer in one life; endless.
#[derive(Debug)]
pub(crate) struct Tale {
    style: Style,
    writer: usize,
    life: u64,
    step: u64,
    dice: Dice,
}

impl Tale {
    /// The tale of `writer` in `life` of the store with this seed.
    pub(crate) fn new(style: Style, seed: u64, life: u64, writer: usize) -> Self {
        Tale { style, writer, life, step: 0, dice: Dice::new(mix(mix(seed) ^ life) ^ writer as u64) }
    }

    fn mixed(&mut self) -> Step {
        match self.dice.weighted(&[66, 10, 9, 2, 5, 4, 4]) {
            0 => Step::Write(vec![self.put(200)]),
            1 => Step::Write(vec![(self.key(), None)]),
            2 => Step::Write(self.batch()),
            3 => {
                let group = self.dice.below(GROUPS);
                let range = self.group(group);
                Step::DeleteRange(range.0, range.1)
            }
            4 => Step::Sync,
            5 => Step::Get(self.key()),
            _ => {
                let group = self.dice.below(GROUPS);
                let range = self.group(group);
                Step::Scan(range.0, range.1)
            }
        }
    }

    fn steady(&mut self) -> Step {
        if self.dice.chance(1, 20) {
            return Step::Sync;
        }
        let row = self.dice.below(STEADY_ROWS);
        Step::Write(vec![(steady_key(row), Some(self.value(STEADY_VALUE_BYTES)))])
    }

    fn batch(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut writes = BTreeMap::new();
        for _ in 0..self.dice.between(2, 5) {
            let (key, value) = self.put(80);
            writes.insert(key, if self.dice.chance(1, 4) { None } else { value });
        }
        writes.into_iter().collect()
    }

    fn put(&mut self, bytes_max: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let key = self.key();
        // Now and then a value that is longer than a write buffer, and one that is a chunk by itself.
        let bytes = match self.dice.below(100) {
            0 => 5_000,
            1 | 2 => 1_500,
            _ => self.dice.below(bytes_max),
        };
        (key, Some(self.value(bytes)))
    }

    /// No two steps write the same value.
    fn value(&mut self, bytes: usize) -> Vec<u8> {
        value(self.life, self.step, self.dice.number(), bytes)
    }

    fn key(&mut self) -> Vec<u8> {
        let group = self.dice.below(GROUPS);
        let key = self.dice.below(KEYS_PER_GROUP);
        format!("{group:02}/{}/{key}", self.writer).into_bytes()
    }

    fn group(&self, group: usize) -> (Vec<u8>, Vec<u8>) {
        let writer = self.writer;
        (format!("{group:02}/{writer}/").into_bytes(), format!("{group:02}/{writer}0").into_bytes())
    }
}

/// A value that says whose it is, and is as long as asked for or a little longer.
fn value(life: u64, step: u64, number: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{life:06} {step:06} ").into_bytes();
    while value.len() < bytes {
        value.extend_from_slice(&mix(number ^ value.len() as u64).to_le_bytes());
    }
    value
}

/// A value of a steady store from before the lives that have a tale, as long as theirs.
pub(crate) fn steady_value(life: u64, step: usize) -> Vec<u8> {
    value(0, step as u64, life, STEADY_VALUE_BYTES)
}

impl Iterator for Tale {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let step = match self.style {
            Style::Mixed => self.mixed(),
            Style::Steady => self.steady(),
        };
        self.step += 1;
        Some(step)
    }
}

impl Step {
    /// Takes the step in a store.
    pub(crate) fn take(&self, db: &Db) -> kvilt::Result<()> {
        match self {
            Step::Write(writes) => match &writes[..] {
                [(key, Some(value))] => db.put(key, value),
                [(key, None)] => db.delete(key),
                several => {
                    let mut batch = WriteBatch::new();
                    for (key, value) in several {
                        match value {
                            Some(value) => batch.put(key, value),
                            None => batch.delete(key),
                        };
                    }
                    db.write(batch)
                }
            },
            Step::DeleteRange(from, to) => db.delete_range(from.clone()..to.clone()),
            Step::Sync => db.sync(),
            Step::Get(key) => db.get(key).map(drop),
            Step::Scan(from, to) => db.range(from.clone()..to.clone()).try_for_each(|row| row.map(drop)),
        }
    }

    /// Takes the step in a map; says which keys it touched.
    pub(crate) fn apply(&self, rows: &mut Rows) -> Vec<Vec<u8>> {
        match self {
            Step::Write(writes) => {
                for (key, value) in writes {
                    match value {
                        Some(value) => rows.insert(key.clone(), value.clone()),
                        None => rows.remove(key),
                    };
                }
                writes.iter().map(|(key, _)| key.clone()).collect()
            }
            Step::DeleteRange(from, to) => {
                let range = (Included(from.clone()), Excluded(to.clone()));
                let keys: Vec<Vec<u8>> = rows.range(range).map(|(key, _)| key.clone()).collect();
                for key in &keys {
                    rows.remove(key);
                }
                keys
            }
            Step::Sync | Step::Get(_) | Step::Scan(..) => Vec::new(),
        }
    }
}

/// A row's key in a steady tale.
pub(crate) fn steady_key(row: usize) -> Vec<u8> {
    // Writer 0 of group `row`, so that `writer_of` holds here too.
    format!("{row:06}/0/").into_bytes()
}

/// Which writer a key belongs to; none if no tale writes such a key.
pub(crate) fn writer_of(key: &[u8]) -> Option<usize> {
    std::str::from_utf8(key).ok()?.split('/').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_tale_is_the_same_each_time_and_another_in_each_life() {
        let steps = |life| Tale::new(Style::Mixed, 7, life, 1).take(500).collect::<Vec<_>>();
        assert_eq!(steps(3), steps(3));
        assert_ne!(steps(3), steps(4));
    }

    #[test]
    fn every_key_and_range_is_the_writers_own() {
        for step in Tale::new(Style::Mixed, 1, 0, 2).take(5_000) {
            match step {
                Step::Write(writes) => assert!(writes.iter().all(|(key, _)| writer_of(key) == Some(2))),
                Step::DeleteRange(from, to) => {
                    assert_eq!(writer_of(&from), Some(2));
                    assert!(from < to && to.as_slice() < &b"99"[..]);
                }
                Step::Sync | Step::Get(_) | Step::Scan(..) => {}
            }
        }
        assert_eq!(writer_of(b"no tale"), None);
    }

    #[test]
    fn no_two_steps_write_the_same_value() {
        let mut seen = BTreeSet::new();
        for step in Tale::new(Style::Mixed, 1, 0, 0).take(2_000) {
            if let Step::Write(writes) = step {
                let values: BTreeSet<_> = writes.into_iter().filter_map(|(_, value)| value).collect();
                assert!(values.is_disjoint(&seen));
                seen.extend(values);
            }
        }
    }
}
