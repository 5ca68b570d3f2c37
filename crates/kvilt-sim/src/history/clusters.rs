//! The clusters of a history: per key, all operations that name one write. Here stands the arithmetic of
//! moments; the rules are next door. Times that are equal never count as "before".

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use super::{History, Interval, Moment, Violation};
use crate::dice::mix;

/// Something for each write, found by its number.
pub(super) type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// Spreads a write's number, or a key. Nobody chooses them so that they meet, and a check asks for millions.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One read of one key.
pub(super) struct Seen {
    pub(super) key: u32,
    pub(super) number: u64,
    pub(super) when: Interval,
}

/// One write to one key, and all reads of it.
#[derive(Clone, Debug)]
struct Cluster {
    number: u64,
    is_delete: bool,
    written: Interval,
    /// Earliest answer of any operation of the cluster: the write took effect no later.
    first_answer: Moment,
    /// Latest call of any operation of the cluster: the value was there until then at least.
    last_call: Moment,
    /// Earliest answer of any cluster that comes after this one for certain.
    ends_by: Moment,
    /// Latest call of any cluster that comes before this one for certain.
    begins_after: Moment,
}

impl Cluster {
    /// Whether this cluster comes before the other for certain.
    fn is_before(&self, other: &Cluster) -> bool {
        self.first_answer < other.last_call
    }
}

/// All clusters of one key, and the deletes and puts in the orders that `may_be_absent` asks for.
#[derive(Default)]
struct KeyClusters {
    clusters: Vec<Cluster>,
    by_number: ByNumber<usize>,
    /// Deletes: (call, latest answer among this and all called before), by call.
    deletes: Vec<(Moment, Moment)>,
    /// Puts: (first answer, latest last call among this and all answered before), by first answer.
    puts: Vec<(Moment, Moment)>,
}

/// The clusters of all keys.
pub(super) struct Clusters {
    keys: HashMap<u32, KeyClusters, BuildHasherDefault<NumberHasher>>,
}

impl Clusters {
    /// Sorts a history's operations into clusters; blames reads that fit none.
    pub(super) fn of(history: &History, violations: &mut Vec<Violation>) -> Clusters {
        let mut keys: HashMap<u32, KeyClusters, BuildHasherDefault<NumberHasher>> = HashMap::default();
        for write in &history.writes {
            for &(key, is_delete) in &write.keys {
                keys.entry(key).or_default().add(write.number, is_delete, write.when);
            }
        }
        for seen in super::seen(history) {
            let found = keys.get_mut(&seen.key).and_then(|key| key.cluster_mut(seen.number));
            let Some(cluster) = found.filter(|c| !c.is_delete && c.written.from <= seen.when.to) else {
                let message = format!(
                    "key {} showed {} in {:?}, which nobody had written there",
                    seen.key, seen.number, seen.when
                );
                violations.push(Violation { rule: "unwritten", message });
                continue;
            };
            cluster.first_answer = cluster.first_answer.min(seen.when.to);
            cluster.last_call = cluster.last_call.max(seen.when.from);
        }
        for key in keys.values_mut() {
            key.sort_deletes_and_puts();
            key.bound_lifetimes();
        }
        Clusters { keys }
    }

    fn cluster(&self, key: u32, number: u64) -> Option<&Cluster> {
        let key = self.keys.get(&key)?;
        key.by_number.get(&number).map(|&at| &key.clusters[at])
    }

    /// Whether write `a` comes before write `b` on this key for certain.
    pub(super) fn is_before(&self, key: u32, a: u64, b: u64) -> bool {
        match (self.cluster(key, a), self.cluster(key, b)) {
            (Some(a), Some(b)) => a.number != b.number && a.is_before(b),
            _ => false,
        }
    }

    /// When a reader that saw this write can have looked.
    pub(super) fn lifetime(&self, key: u32, number: u64) -> Interval {
        let all = Interval { from: 0, to: Moment::MAX };
        self.cluster(key, number)
            .map_or(all, |c| Interval { from: c.begins_after.max(c.written.from), to: c.ends_by })
    }

    /// When this write can have taken effect.
    pub(super) fn birth(&self, key: u32, number: u64) -> Interval {
        let all = Interval { from: 0, to: Moment::MAX };
        self.cluster(key, number)
            .map_or(all, |c| Interval { from: c.begins_after, to: c.first_answer.min(c.ends_by) })
    }

    /// A cluster in words, with those of its key that come next to it in time.
    pub(super) fn told(&self, key: u32, number: u64) -> String {
        let Some(cluster) = self.cluster(key, number) else { return format!("key {key}: no write {number}") };
        let others = &self.keys[&key].clusters;
        let before = others.iter().filter(|o| o.number != number && o.is_before(cluster));
        let after = others.iter().filter(|o| o.number != number && cluster.is_before(o));
        let before = before.max_by_key(|o| o.last_call);
        let after = after.min_by_key(|o| o.first_answer);
        format!("key {key}: {cluster:?}, before it {before:?}, after it {after:?}")
    }

    /// Whether some delete of the key was still going on at `moment` or came later.
    pub(super) fn has_delete_ending_after(&self, key: u32, moment: Moment) -> bool {
        self.keys
            .get(&key)
            .is_some_and(|key| key.clusters.iter().any(|c| c.is_delete && c.written.to >= moment))
    }

    /// Whether the key can have had no value at some moment of the interval.
    pub(super) fn may_be_absent(&self, key: u32, when: Interval) -> bool {
        let Some(key) = self.keys.get(&key) else { return true };
        // The put cluster that lasts longest of those over before the read began …
        let over = key.puts.partition_point(|(first_answer, _)| *first_answer < when.from);
        let Some(&(_, last_call)) = key.puts[..over].last() else { return true };
        // … must not lie for certain between the read and every delete that the read could have seen.
        let begun = key.deletes.partition_point(|(call, _)| *call <= when.to);
        key.deletes[..begun].last().is_some_and(|(_, answer)| *answer >= last_call)
    }

    /// Rule `key`.
    pub(super) fn check_order(&self, violations: &mut Vec<Violation>) {
        for (&key, clusters) in &self.keys {
            if let Some((a, b)) = clusters.find_disorder() {
                let message = format!("key {key}: no order of {a:?} and {b:?} fits what was seen");
                violations.push(Violation { rule: "key", message });
            }
        }
    }
}

impl KeyClusters {
    fn add(&mut self, number: u64, is_delete: bool, when: Interval) {
        self.by_number.insert(number, self.clusters.len());
        self.clusters.push(Cluster {
            number,
            is_delete,
            written: when,
            first_answer: when.to,
            last_call: when.from,
            ends_by: Moment::MAX,
            begins_after: 0,
        });
    }

    fn cluster_mut(&mut self, number: u64) -> Option<&mut Cluster> {
        let at = *self.by_number.get(&number)?;
        Some(&mut self.clusters[at])
    }

    fn sort_deletes_and_puts(&mut self) {
        let (deletes, puts): (Vec<&Cluster>, Vec<&Cluster>) = self.clusters.iter().partition(|c| c.is_delete);
        self.deletes = running_max(deletes.iter().map(|c| (c.written.from, c.written.to)).collect());
        self.puts = running_max(puts.iter().map(|c| (c.first_answer, c.last_call)).collect());
    }

    /// Fills `ends_by` and `begins_after`. Each is an extreme over all *other* clusters, so the two best are
    /// kept and a cluster's own is passed over.
    fn bound_lifetimes(&mut self) {
        let count = self.clusters.len();
        let mut by_last_call: Vec<usize> = (0..count).collect();
        by_last_call.sort_by_key(|&i| self.clusters[i].last_call);
        let calls: Vec<Moment> = by_last_call.iter().map(|&i| self.clusters[i].last_call).collect();
        let mut earliest_answers = vec![[None; 2]; count + 1];
        for position in (0..count).rev() {
            let i = by_last_call[position];
            let candidate = (self.clusters[i].first_answer, i);
            earliest_answers[position] = best_two(earliest_answers[position + 1], candidate, |a, b| a < b);
        }

        let mut by_first_answer: Vec<usize> = (0..count).collect();
        by_first_answer.sort_by_key(|&i| self.clusters[i].first_answer);
        let answers: Vec<Moment> = by_first_answer.iter().map(|&i| self.clusters[i].first_answer).collect();
        let mut latest_calls = vec![[None; 2]; count + 1];
        for position in 0..count {
            let i = by_first_answer[position];
            let candidate = (self.clusters[i].last_call, i);
            latest_calls[position + 1] = best_two(latest_calls[position], candidate, |a, b| a > b);
        }

        for i in 0..count {
            let own = &self.clusters[i];
            let after = calls.partition_point(|call| *call <= own.first_answer);
            let before = answers.partition_point(|answer| *answer < own.last_call);
            self.clusters[i].ends_by = other_than(earliest_answers[after], i).unwrap_or(Moment::MAX);
            self.clusters[i].begins_after = other_than(latest_calls[before], i).unwrap_or(0);
        }
    }

    /// Two clusters that cannot be ordered, if there are. A cluster whose first answer lies before its last
    /// call occupies the time between (a forward zone); another may have taken effect at once, at any moment
    /// between its last call and its first answer (a backward zone).
    fn find_disorder(&self) -> Option<(&Cluster, &Cluster)> {
        let (mut forward, backward): (Vec<&Cluster>, Vec<&Cluster>) =
            self.clusters.iter().partition(|c| c.first_answer < c.last_call);
        forward.sort_by_key(|c| c.first_answer);
        if let Some(pair) = forward.windows(2).find(|pair| pair[1].first_answer < pair[0].last_call) {
            return Some((pair[0], pair[1]));
        }
        backward.into_iter().find_map(|inner| {
            let before = forward.partition_point(|c| c.first_answer < inner.last_call);
            let outer = forward[..before].last()?;
            (inner.first_answer < outer.last_call).then_some((*outer, inner))
        })
    }
}

/// Sorts pairs and replaces each second part by the largest up to there.
fn running_max(mut pairs: Vec<(Moment, Moment)>) -> Vec<(Moment, Moment)> {
    pairs.sort_unstable();
    let mut max = 0;
    for (_, second) in &mut pairs {
        max = max.max(*second);
        *second = max;
    }
    pairs
}

type Ranked = Option<(Moment, usize)>;

fn best_two(held: [Ranked; 2], new: (Moment, usize), is_better: fn(Moment, Moment) -> bool) -> [Ranked; 2] {
    let beats = |old: Ranked| old.is_none_or(|(moment, _)| is_better(new.0, moment));
    match held {
        [first, _] if beats(first) => [Some(new), first],
        [first, second] if beats(second) => [first, Some(new)],
        _ => held,
    }
}

/// The best that does not belong to cluster `own`.
fn other_than(best: [Ranked; 2], own: usize) -> Option<Moment> {
    best.into_iter().flatten().find(|(_, i)| *i != own).map(|(moment, _)| moment)
}
