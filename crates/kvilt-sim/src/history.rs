//! Is what several threads saw possible? A [`History`] holds every write, get and scan with the moments at
//! which it was called and answered; [`History::check`] finds what no order of single steps explains.
//!
//! Every write has a number of its own, so a read names the write it saw. All operations on one key that name
//! one write form a *cluster*, and in any explanation the clusters of a key follow one another without
//! overlap. Cluster A comes before cluster B for certain if some operation of A was answered before some
//! operation of B was called. The rules, in the order they are applied:
//!
//! | rule | says |
//! | --- | --- |
//! | `unwritten` | a read names a write that exists and was called before the read was answered |
//! | `key` | per key, the clusters can be put in an order (Gibbons and Korach: two forward zones never overlap, no backward zone lies inside a forward one) |
//! | `absent` | a read of nothing follows some delete with no cluster for certain between them |
//! | `moment` | a scan, or a batch, has a moment at which all its keys agree; each key narrows it |
//! | `torn` | a scan that shows a batch on one key shows nothing older on the batch's other keys |
//! | `fork` | of two scans, one is the earlier, on all keys |
//! | `swap` | a value is swapped away once at most |
//!
//! What is always true here: a history that has an explanation is never blamed. The `key` rule is exact; the
//! others may miss. Narrowed moments are used as the operation's interval in a second round, which lets one
//! key's order speak about another's.

mod clusters;

use std::{collections::HashMap, fmt};

use clusters::{ByNumber, Clusters, Seen};

/// A point in time, in nanoseconds of the recording clock.
pub type Moment = u64;

/// When an operation was called, and when it was answered ([`Moment::MAX`] if never).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// It took effect no earlier …
    pub from: Moment,
    /// … and no later.
    pub to: Moment,
}

/// One write: a put, a delete, a range delete or a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Different for every write of a history, never zero.
    pub number: u64,
    /// When.
    pub when: Interval,
    /// The keys it put and (true) those it deleted. No key twice.
    pub keys: Vec<(u32, bool)>,
    /// For a swap, the number that it found and replaced.
    pub swapped: Option<u64>,
}

/// One get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// The key.
    pub key: u32,
    /// The number of the write that it saw, or none.
    pub seen: Option<u64>,
    /// When.
    pub when: Interval,
}

/// One scan of all keys in `first..end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// First key of the range.
    pub first: u32,
    /// First key behind the range.
    pub end: u32,
    /// The keys it found, ascending, with the number of the write it saw.
    pub rows: Vec<(u32, u64)>,
    /// When its read view was opened: the reading may come much later.
    pub when: Interval,
}

/// Everything that happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The writes.
    pub writes: Vec<Write>,
    /// The gets.
    pub gets: Vec<Get>,
    /// The scans.
    pub scans: Vec<Scan>,
    /// The syncs that succeeded. No rule speaks of them; who looks at a store after a power cut does.
    pub syncs: Vec<Interval>,
}

/// Something that no order of single steps explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken rule, see the module.
    pub rule: &'static str,
    /// What was seen.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)
    }
}

/// Rounds of narrowing. A third finds next to nothing more.
const ROUNDS: usize = 2;

/// With how many later scans each is compared for `fork`.
const FORK_NEIGHBOURS_MAX: usize = 24;

impl History {
    /// Adds what another thread recorded.
    pub fn absorb(&mut self, other: History) {
        self.writes.extend(other.writes);
        self.gets.extend(other.gets);
        self.scans.extend(other.scans);
        self.syncs.extend(other.syncs);
    }

    /// Operations recorded.
    pub fn len(&self) -> usize {
        self.writes.len() + self.gets.len() + self.scans.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything that is wrong; empty for a history that these rules find no fault with.
    pub fn check(&self) -> Vec<Violation> {
        let mut history = self.clone();
        let mut violations = history.check_swaps();
        for _ in 0..ROUNDS {
            let clusters = Clusters::of(&history, &mut violations);
            clusters.check_order(&mut violations);
            history.check_absent(&clusters, &mut violations);
            if !violations.is_empty() {
                return violations;
            }
            history.check_torn(&clusters, &mut violations);
            history.check_forks(&clusters, &mut violations);
            history.narrow(&clusters, &mut violations);
            if !violations.is_empty() {
                return violations;
            }
        }
        violations
    }

    fn check_swaps(&self) -> Vec<Violation> {
        let mut first: HashMap<(u32, u64), u64> = HashMap::new();
        let mut violations = Vec::new();
        for write in &self.writes {
            let Some(swapped) = write.swapped else { continue };
            let key = write.keys[0].0;
            if let Some(other) = first.insert((key, swapped), write.number) {
                let message =
                    format!("writes {other} and {} both replaced {swapped} on key {key}", write.number);
                violations.push(Violation { rule: "swap", message });
            }
        }
        violations
    }

    fn check_absent(&self, clusters: &Clusters, violations: &mut Vec<Violation>) {
        let mut blame = |what: &str, key: u32, when: Interval| {
            if !clusters.may_be_absent(key, when) {
                let message = format!("a {what} found nothing at key {key} in {when:?}");
                violations.push(Violation { rule: "absent", message });
            }
        };
        for get in self.gets.iter().filter(|get| get.seen.is_none()) {
            blame("get", get.key, get.when);
        }
        for scan in &self.scans {
            let mut rows = scan.rows.iter().map(|(key, _)| *key).peekable();
            for key in scan.first..scan.end {
                if rows.next_if_eq(&key).is_none() {
                    blame("scan", key, scan.when);
                }
            }
        }
    }

    /// Rule `torn`.
    fn check_torn(&self, clusters: &Clusters, violations: &mut Vec<Violation>) {
        let batches: ByNumber<&Write> =
            self.writes.iter().filter(|w| w.keys.len() > 1).map(|w| (w.number, w)).collect();
        for scan in &self.scans {
            for &(shown_key, number) in &scan.rows {
                let Some(batch) = batches.get(&number) else { continue };
                for &(key, is_delete) in &batch.keys {
                    if !(scan.first..scan.end).contains(&key) {
                        continue;
                    }
                    let is_torn = match scan.seen(key) {
                        Some(seen) => clusters.is_before(key, seen, number),
                        None => !is_delete && !clusters.has_delete_ending_after(key, batch.when.from),
                    };
                    if is_torn {
                        let message = format!(
                            "a scan in {:?} shows batch {number} on key {shown_key} but {:?} on key {key}",
                            scan.when,
                            scan.seen(key)
                        );
                        violations.push(Violation { rule: "torn", message });
                        return;
                    }
                }
            }
        }
    }

    /// Rule `fork`. Only scans whose intervals overlap are compared; others are ordered by time, and each
    /// key's clusters have been checked against that.
    fn check_forks(&self, clusters: &Clusters, violations: &mut Vec<Violation>) {
        let mut scans: Vec<&Scan> = self.scans.iter().collect();
        scans.sort_by_key(|scan| scan.when.from);
        for (i, one) in scans.iter().enumerate() {
            let later = scans[i + 1..].iter().take_while(|other| other.when.from <= one.when.to);
            for other in later.take(FORK_NEIGHBOURS_MAX) {
                if let Some((earlier, later)) = fork(clusters, one, other) {
                    let message = format!(
                        "scans in {:?} and {:?}: the first is older on key {earlier}, newer on key {later}",
                        one.when, other.when
                    );
                    violations.push(Violation { rule: "fork", message });
                    return;
                }
            }
        }
    }

    /// Rule `moment`: replaces each scan's and batch's interval by what its keys leave of it.
    fn narrow(&mut self, clusters: &Clusters, violations: &mut Vec<Violation>) {
        for scan in &mut self.scans {
            let shown = scan.rows.iter().map(|&(key, number)| (key, clusters.lifetime(key, number)));
            let (left, why) = narrowed(scan.when, shown);
            blame_empty(left, violations, || {
                let told = why.map(|key| key.map(|key| clusters.told(key, scan.seen(key).unwrap_or(0))));
                format!(
                    "scan of {}..{} with its view opened in {:?}, {told:?}",
                    scan.first, scan.end, scan.when
                )
            });
            scan.when = left;
        }
        for write in self.writes.iter_mut().filter(|w| w.keys.len() > 1) {
            let written = write.keys.iter().map(|&(key, _)| (key, clusters.birth(key, write.number)));
            let (left, why) = narrowed(write.when, written);
            blame_empty(left, violations, || {
                let told = why.map(|key| key.map(|key| clusters.told(key, write.number)));
                format!("batch {} in {:?}, {told:?}", write.number, write.when)
            });
            write.when = left;
        }
    }
}

impl Scan {
    /// What it saw at a key of its range.
    fn seen(&self, key: u32) -> Option<u64> {
        let at = self.rows.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(self.rows[at].1)
    }
}

/// A key on which `one` is for certain older than `other`, and one on which it is newer.
fn fork(clusters: &Clusters, one: &Scan, other: &Scan) -> Option<(u32, u32)> {
    let (mut older, mut newer) = (None, None);
    let mut others = &other.rows[..];
    for &(key, number) in &one.rows {
        // Both go up, so what lies before this key is passed once; most rows are those of a neighbour.
        let passed = others.iter().take_while(|(other, _)| *other < key).count();
        others = &others[passed..];
        let Some(&(_, seen)) = others.first().filter(|(other, _)| *other == key) else { continue };
        if seen == number {
            continue;
        }
        if clusters.is_before(key, number, seen) {
            older = Some(key);
        } else if clusters.is_before(key, seen, number) {
            newer = Some(key);
        }
        if let (Some(older), Some(newer)) = (older, newer) {
            return Some((older, newer));
        }
    }
    None
}

/// What several keys leave of an interval, and the keys that set its beginning and its end.
fn narrowed(when: Interval, keys: impl Iterator<Item = (u32, Interval)>) -> (Interval, [Option<u32>; 2]) {
    let (mut left, mut why) = (when, [None; 2]);
    for (key, interval) in keys {
        if interval.from > left.from {
            (left.from, why[0]) = (interval.from, Some(key));
        }
        if interval.to < left.to {
            (left.to, why[1]) = (interval.to, Some(key));
        }
    }
    (left, why)
}

fn blame_empty(when: Interval, violations: &mut Vec<Violation>, what: impl FnOnce() -> String) {
    if when.from > when.to {
        let message = format!("{} has no moment: not before {}, not after {}", what(), when.from, when.to);
        violations.push(Violation { rule: "moment", message });
    }
}

/// How a get or a scan names what it saw, for the clusters.
fn seen(history: &History) -> impl Iterator<Item = Seen> + '_ {
    let gets = history
        .gets
        .iter()
        .filter_map(|get| get.seen.map(|number| Seen { key: get.key, number, when: get.when }));
    let rows = history
        .scans
        .iter()
        .flat_map(|scan| scan.rows.iter().map(|&(key, number)| Seen { key, number, when: scan.when }));
    gets.chain(rows)
}

#[cfg(test)]
mod tests;
