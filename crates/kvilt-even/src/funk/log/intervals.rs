//! `Intervals`: between which keys of its chunk a log has rows.
//!
//! A log of a range that is written in the order of time has most of its rows in a few places, and a few rows
//! in many. When its chunk is split, only the halves that have some of them go on reading it, and the first
//! and last key would not tell.

use kvilt_base::KeyRange;

use crate::heads::Heads;

/// More are put together, those first that have the fewest rows of others between them.
const INTERVALS_MAX: usize = 64;
/// Fewer, if their keys would have more bytes than this together …
const KEYS_BYTES_MAX: usize = 64 << 10;
/// … and none where a single key has more than this.
const KEY_BYTES_MAX: usize = 1 << 10;

/// Disjoint intervals, ascending, from a first to a last key that are both in the log.
#[derive(Debug, Default)]
pub(crate) struct Intervals(Vec<(Vec<u8>, Vec<u8>)>);

impl Intervals {
    /// From rows in order, each with whether it is in the log.
    pub(crate) fn of<'k>(rows: impl Iterator<Item = (&'k [u8], bool)>) -> Self {
        // Each with the number of rows of others before it.
        let mut found: Vec<(usize, &[u8], &[u8])> = Vec::new();
        let mut others = 0;
        for (key, is_in_log) in rows {
            match found.last_mut() {
                _ if !is_in_log => others += 1,
                Some((_, _, last)) if others == 0 => *last = key,
                _ => found.push((std::mem::take(&mut others), key, key)),
            }
        }
        let longest = found.iter().map(|(_, first, last)| first.len().max(last.len())).max();
        let least = least_apart(&found, intervals_max(longest.unwrap_or(0)));
        let mut intervals: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (others, first, last) in found {
            match intervals.last_mut() {
                Some((_, end)) if others < least => last.clone_into(end),
                _ => intervals.push((first.to_vec(), last.to_vec())),
            }
        }
        Intervals(intervals)
    }

    /// With one more key.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let at = self.0.partition_point(|(_, last)| last.as_slice() < key);
        if self.0.get(at).is_some_and(|(first, _)| first.as_slice() <= key) {
            return;
        }
        if self.0.len() < 2 * intervals_max(key.len()) {
            self.0.insert(at, (key.to_vec(), key.to_vec()));
            return;
        }
        // A neighbour grows.
        match self.0.get_mut(at) {
            Some((first, _)) => key.clone_into(first),
            None => key.clone_into(&mut self.0[at - 1].1),
        }
    }

    /// Whether their keys are so long that the first and the last are all that is to be kept of them.
    pub(crate) fn are_long(&self) -> bool {
        self.0.iter().any(|(first, last)| first.len().max(last.len()) > KEY_BYTES_MAX)
    }

    /// As they are, to be searched.
    pub(crate) fn fixed(self) -> FixedIntervals {
        let ends = Heads::new(self.0.iter().map(|(_, last)| last.as_slice()));
        FixedIntervals { intervals: self.0.into(), ends }
    }
}

/// Intervals to which no more keys are added.
#[derive(Debug)]
pub(crate) struct FixedIntervals {
    intervals: Box<[(Vec<u8>, Vec<u8>)]>,
    /// The heads of their last keys: a scan of a cold chunk asks each of its logs, so whole keys are not
    /// looked at for it.
    ends: Heads,
}

impl FixedIntervals {
    /// Whether one of them has a key of `range` between its first and its last.
    pub(crate) fn touch(&self, range: &KeyRange) -> bool {
        let from = self.ends.lower_bound(&range.start, |at| &self.intervals[at].1);
        let next = self.intervals.get(from);
        next.is_some_and(|(first, _)| range.end.as_ref().is_none_or(|end| first < end))
    }
}

/// How many there may be of keys of so many bytes.
fn intervals_max(key_len: usize) -> usize {
    (KEYS_BYTES_MAX / (2 * key_len.max(1))).clamp(1, INTERVALS_MAX)
}

/// How many rows of others must lie between two intervals for them to stay apart.
fn least_apart(found: &[(usize, &[u8], &[u8])], most: usize) -> usize {
    let mut apart: Vec<usize> = found.iter().skip(1).map(|(others, _, _)| *others).collect();
    match apart.len().checked_sub(most - 1) {
        None | Some(0) => 0,
        Some(too_many) => *apart.select_nth_unstable(too_many - 1).1 + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: usize) -> Vec<u8> {
        format!("{i:05}").into_bytes()
    }

    /// Those of the rows for which `is_in` says so.
    fn intervals(rows: usize, is_in: impl Fn(usize) -> bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        let keys: Vec<_> = (0..rows).map(key).collect();
        Intervals::of(keys.iter().enumerate().map(|(i, key)| (key.as_slice(), is_in(i)))).0
    }

    #[test]
    fn few_are_exact() {
        assert_eq!(intervals(100, |_| false), []);
        assert_eq!(intervals(100, |_| true), [(key(0), key(99))]);
        let expected = [(key(0), key(9)), (key(50), key(59))];
        assert_eq!(intervals(100, |i| i % 50 < 10), expected);
    }

    #[test]
    fn of_many_those_with_little_between_are_put_together() {
        // A row of two, and a hole of five hundred rows.
        let found = intervals(2000, |i| i % 2 == 0 && !(1000..1500).contains(&i));
        assert!(found.len() <= INTERVALS_MAX, "{} intervals", found.len());
        assert!(found.contains(&(key(0), key(998))), "{found:?}");
        assert!(found.iter().all(|(first, last)| last < &key(1000) || first >= &key(1500)), "{found:?}");
        let covers = |i: usize| found.iter().any(|(first, last)| (first..=last).contains(&&key(i)));
        assert!((0..2000).filter(|i| i % 2 == 0 && !(1000..1500).contains(i)).all(covers));
    }

    #[test]
    fn keys_may_be_added() {
        let mut intervals = Intervals::of([(b"b".as_slice(), true), (b"d".as_slice(), true)].into_iter());
        for added in [b"c", b"a", b"e", b"a"] {
            intervals.add(added);
        }
        let expected = [("a", "a"), ("b", "d"), ("e", "e")];
        assert_eq!(intervals.0, expected.map(|(a, b)| (a.into(), b.into())));
        let mut many = Intervals::default();
        for i in (0..1000).rev().chain(2000..3000) {
            many.add(&key(i));
        }
        let many = many.0;
        assert!(many.len() <= 2 * INTERVALS_MAX && many.is_sorted());
        let covers = |i: usize| many.iter().any(|(first, last)| (first..=last).contains(&&key(i)));
        assert!((0..1000).chain(2000..3000).all(covers));
    }
    #[test]
    fn a_range_touches_those_of_which_it_has_a_key() {
        let keys: Vec<_> = (0..300).map(key).collect();
        // From each tenth row on four: 0 to 3, 10 to 13 and so on.
        let is_in = |i: usize| i % 10 < 4;
        let fixed = Intervals::of(keys.iter().enumerate().map(|(i, k)| (k.as_slice(), is_in(i)))).fixed();
        for start in 0..310 {
            for end in start + 1..(start + 12).min(310) {
                let expected = (start..end).any(|i| i < 300 && is_in(i));
                assert_eq!(fixed.touch(&KeyRange::new(key(start)..key(end))), expected, "{start} to {end}");
            }
            assert_eq!(fixed.touch(&KeyRange::new(key(start)..)), start < 294, "{start} to the end");
        }
        assert!(!fixed.touch(&KeyRange::new(b"x".as_slice()..)));
        assert!(fixed.touch(&KeyRange::all()));
        assert!(!Intervals::default().fixed().touch(&KeyRange::all()));
    }
}
