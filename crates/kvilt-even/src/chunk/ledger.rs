//! `Ledger`: how many bytes of a chunk's files are live, as far as is known.
//!
//! Dead bytes are what a chunk's files hold beyond that. The background counts live bytes now and then
//! (`rebalance/space.rs`); between two counts the ledger extrapolates from what puts and deletes could have
//! killed since and from the part of that which earlier ones did kill. All figures are estimates: they decide
//! when a chunk is rewritten, and nothing else.
//!
//! Thread rule: every field is a statistic, so all accesses are relaxed; the background alone writes counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Not known: the files are of an earlier run, and nobody has counted yet.
const UNKNOWN: u64 = u64::MAX;
/// The part that changes kill is learned from counts between which they could have killed this many bytes.
const LEARNED_BYTES_MIN: u64 = 256;
/// The part that puts kill is learned from counts between which they could have killed this part of all that
/// could have been killed; likewise for deletes.
const LEARNED_PART: u64 = 8;
/// Bytes that a record of a log takes besides key and value, about.
pub(crate) const RECORD_BYTES: usize = 12;
/// A file takes this many thousandths of its rows' bytes in memory, at most, as far as estimates are
/// concerned.
const FILE_PERMILLE_MAX: u128 = 100_000;
/// A count is due when deletes, or puts of short rows over long ones, may have killed this part of the live
/// bytes, if it is not known which part they kill …
const SHRINKS_PART: u64 = 8;
/// … and this part if it is known.
const SHRINKS_PART_KNOWN: u64 = 2;
/// Puts are of short rows over long ones if they could have killed this many times as much as they appended.
const SHRINKS_FACTOR: u64 = 2;
/// A range delete weighs as much as this many deletes: any row may be dead.
const RANGE_DELETE_CHANGES: u64 = 1 << 40;
/// Few rows are long if they hold most bytes and are at most this part of all.
const FEW_PART: u64 = 8;
/// A count is due when appended bytes of an unknown kind are this part of the live ones, and when those of a
/// known kind are as many: puts of new rows may have become overwrites.
const APPENDED_PART: u64 = 2;
/// A count is due when appended bytes are this part of the live ones, in a store at rest: it has the time.
const APPENDED_PART_AT_REST: u64 = 8;
/// A chunk is counted before a rewrite if this part of its bytes was appended since the last count, or may
/// have been deleted while it is not known what deletes kill.
const DOUBTFUL_PART: u64 = 8;

/// What is known of a chunk's live bytes.
pub(crate) struct Ledger {
    /// Live bytes at the last count.
    live: AtomicU64,
    /// Bytes of the row that holds an average byte: long rows count by their length, so that a delete weighs
    /// what it may kill. A put raises it to the length of its row; counts find out.
    row_bytes: AtomicU64,
    /// Bytes that puts have appended since.
    appended: AtomicU64,
    /// Puts and deletes since.
    changes: AtomicU64,
    /// Deletes since.
    deletes: AtomicU64,
    /// Whether `live` was counted for this chunk, and is not its part of what its parent had.
    is_counted: AtomicBool,
    /// The part of what puts can kill that they do kill, in thousandths.
    puts_kill: AtomicU64,
    /// The same of deletes.
    deletes_kill: AtomicU64,
    /// Bytes that rows take in files, in thousandths of what they take in memory; learned by rewrites.
    file_permille: AtomicU64,
    /// The oldest view for which the last rewrite kept rows that are not live; zero if there was none.
    kept_for: AtomicU64,
}

/// What counting a chunk's rows came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) live_bytes: u64,
    /// Bytes of the row that holds an average byte; none if the count did not find out.
    pub(crate) row_bytes: Option<u64>,
    /// Bytes appended up to the count: a rewrite counts what came before it.
    pub(crate) appended: u64,
    /// Puts and deletes up to the count.
    pub(crate) changes: u64,
    /// Deletes up to the count.
    pub(crate) deletes: u64,
}

/// Bytes that puts and deletes could have killed.
struct Kills {
    puts: u64,
    deletes: u64,
}

impl Ledger {
    /// The ledger of a new chunk, and how many bytes are live if that is known.
    pub(crate) fn new(live_bytes: Option<u64>) -> Self {
        Ledger {
            live: AtomicU64::new(live_bytes.unwrap_or(UNKNOWN)),
            row_bytes: AtomicU64::new(if live_bytes == Some(0) { 0 } else { UNKNOWN }),
            appended: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            is_counted: AtomicBool::new(live_bytes.is_some()),
            puts_kill: AtomicU64::new(UNKNOWN),
            deletes_kill: AtomicU64::new(UNKNOWN),
            file_permille: AtomicU64::new(1000),
            kept_for: AtomicU64::new(0),
        }
    }

    /// The ledger of one of `count` children that has this many live bytes; an equal part if that is not
    /// known.
    pub(crate) fn divided(&self, count: usize, live_bytes: Option<u64>) -> Self {
        let part = |figure: &AtomicU64| {
            let figure = figure.load(Relaxed);
            // A range delete counts in each child; and so does one delete of few rows, as they are rounded
            // up.
            let others = figure % RANGE_DELETE_CHANGES;
            AtomicU64::new(figure - others + others.div_ceil(count.max(1) as u64))
        };
        let live = self.live.load(Relaxed);
        let equal = || if live == UNKNOWN { UNKNOWN } else { live / count.max(1) as u64 };
        Ledger {
            live: AtomicU64::new(live_bytes.unwrap_or_else(equal)),
            row_bytes: AtomicU64::new(self.row_bytes.load(Relaxed)),
            appended: part(&self.appended),
            changes: part(&self.changes),
            deletes: part(&self.deletes),
            is_counted: AtomicBool::new(false),
            puts_kill: AtomicU64::new(self.puts_kill.load(Relaxed)),
            deletes_kill: AtomicU64::new(self.deletes_kill.load(Relaxed)),
            file_permille: AtomicU64::new(self.file_permille.load(Relaxed)),
            kept_for: AtomicU64::new(self.kept_for.load(Relaxed)),
        }
    }

    /// The ledger of one of `count` children that a rewrite made, whose own table is of `live_bytes`. What
    /// was put and deleted since the rewrite began is in their files as well.
    pub(crate) fn rewritten(&self, count: usize, live_bytes: u64) -> Self {
        Ledger { is_counted: AtomicBool::new(true), ..self.divided(count, Some(live_bytes)) }
    }

    /// This many puts and deletes have appended this many bytes, of which the longest row took `longest`.
    pub(crate) fn append(&self, bytes: u64, changes: u64, deletes: u64, longest: u64) {
        self.appended.fetch_add(bytes, Relaxed);
        if longest > self.row_bytes.load(Relaxed) {
            self.row_bytes.fetch_max(longest, Relaxed);
        }
        self.changes.fetch_add(changes, Relaxed);
        if deletes > 0 {
            self.deletes.fetch_add(deletes, Relaxed);
        }
    }

    /// A range delete: any part of the rows may be dead, so a count is due.
    pub(crate) fn range_deleted(&self) {
        self.changes.fetch_add(RANGE_DELETE_CHANGES, Relaxed);
        self.deletes.fetch_add(RANGE_DELETE_CHANGES, Relaxed);
    }

    /// Live bytes by now, extrapolated; none if they were never counted. Until a count says otherwise, puts
    /// are of new rows and deletes are of old ones.
    pub(crate) fn live_bytes(&self) -> Option<u64> {
        let live = self.live.load(Relaxed);
        let kills = self.could_have_killed(&self.begin_count());
        let part = |killable: u64, part: &AtomicU64, unknown: u64| {
            let permille = match part.load(Relaxed) {
                UNKNOWN => unknown,
                known => known,
            };
            (u128::from(killable) * u128::from(permille) / 1000) as u64
        };
        let killed = part(kills.puts, &self.puts_kill, 0) + part(kills.deletes, &self.deletes_kill, 1000);
        let all = live.saturating_add(self.appended.load(Relaxed));
        (live != UNKNOWN).then(|| all.saturating_sub(killed))
    }

    /// Live bytes by now if each change since the last count killed as much as it may have; zero if they were
    /// never counted.
    pub(crate) fn least_live_bytes(&self) -> u64 {
        let (live, appended) = (self.live.load(Relaxed), self.appended.load(Relaxed));
        if live == UNKNOWN {
            return 0;
        }
        // An overwrite kills as much as it appends, if rows are alike.
        let killed = appended.max(self.killable(self.changes.load(Relaxed)));
        live.saturating_add(appended).saturating_sub(killed)
    }

    /// Bytes that this many changes may have killed, if each is of another row.
    fn killable(&self, changes: u64) -> u64 {
        let all = self.live.load(Relaxed).saturating_add(self.appended.load(Relaxed));
        changes.saturating_mul(self.row_bytes.load(Relaxed)).min(all)
    }

    /// What the changes of a count could have killed, but for range deletes: those kill any part.
    fn could_have_killed(&self, count: &Count) -> Kills {
        let killable = |changes| if self.knows_row_bytes() { self.killable(changes) } else { 0 };
        Kills {
            puts: count.appended.max(killable(count.changes.saturating_sub(count.deletes))),
            deletes: killable(count.deletes % RANGE_DELETE_CHANGES),
        }
    }

    /// Whether the length of rows was ever found out.
    pub(crate) fn knows_row_bytes(&self) -> bool {
        self.row_bytes.load(Relaxed) != UNKNOWN
    }

    /// Whether few of this many records hold most bytes, so that one record may kill more than all the
    /// others.
    pub(crate) fn has_few_long_rows(&self, records: u64) -> bool {
        let row_bytes = self.row_bytes.load(Relaxed);
        let all = self.live.load(Relaxed).saturating_add(self.appended.load(Relaxed));
        self.knows_row_bytes() && row_bytes.saturating_mul(records) / FEW_PART > all
    }

    /// Whether anything was put or deleted since the last count.
    pub(crate) fn has_changed(&self) -> bool {
        self.changes.load(Relaxed) > 0
    }

    /// A count with the figures of this moment in it, for who counts afterwards.
    pub(crate) fn begin_count(&self) -> Count {
        Count {
            appended: self.appended.load(Relaxed),
            changes: self.changes.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            ..Count::default()
        }
    }

    /// Whether the extrapolation cannot be relied on: bytes of an unknown kind, as many bytes as there were,
    /// or deletes and puts of short rows, which may kill long ones. Fewer than `bytes_min` are not worth a
    /// count.
    pub(crate) fn is_count_due(&self, bytes_min: u64, is_at_rest: bool) -> bool {
        let live = self.live.load(Relaxed);
        if live == UNKNOWN {
            return true;
        }
        let count = self.begin_count();
        let knows = |part: &AtomicU64| part.load(Relaxed) != UNKNOWN;
        let puts = count.appended.max(self.killable(count.changes.saturating_sub(count.deletes)));
        let puts_part = match (is_at_rest, puts > SHRINKS_FACTOR * count.appended, knows(&self.puts_kill)) {
            (true, ..) => APPENDED_PART_AT_REST,
            (_, true, false) => SHRINKS_PART,
            (_, true, true) => SHRINKS_PART_KNOWN,
            (_, false, false) => APPENDED_PART,
            (_, false, true) => 1,
        };
        let deletes_part = if knows(&self.deletes_kill) && !is_at_rest && count.deletes < RANGE_DELETE_CHANGES
        {
            SHRINKS_PART_KNOWN
        } else {
            SHRINKS_PART
        };
        puts >= bytes_min.max(live / puts_part)
            || count.deletes > 0 && self.killable(count.deletes) >= live / deletes_part
    }

    /// Whether more of this many bytes than is worth a count may be live, or dead, than the extrapolation
    /// says.
    pub(crate) fn is_doubtful(&self, bytes: u64) -> bool {
        let count = self.begin_count();
        let is_unknown = self.deletes_kill.load(Relaxed) == UNKNOWN || count.deletes >= RANGE_DELETE_CHANGES;
        let deletes = if is_unknown { self.killable(count.deletes) } else { 0 };
        count.appended.max(deletes) > bytes / DOUBTFUL_PART
    }

    /// Enters a count, and learns from it which part of what puts and deletes could have killed they did
    /// kill.
    pub(crate) fn enter(&self, count: Count) {
        let kills = self.could_have_killed(&count);
        let before = self.live.swap(count.live_bytes, Relaxed);
        if let Some(bytes) = count.row_bytes {
            self.row_bytes.store(bytes, Relaxed);
        }
        self.appended.fetch_sub(count.appended.min(self.appended.load(Relaxed)), Relaxed);
        self.changes.fetch_sub(count.changes.min(self.changes.load(Relaxed)), Relaxed);
        self.deletes.fetch_sub(count.deletes.min(self.deletes.load(Relaxed)), Relaxed);
        let was_counted = self.is_counted.swap(true, Relaxed);
        let killable = kills.puts + kills.deletes;
        // What a range delete killed says nothing of the others.
        if !was_counted || killable < LEARNED_BYTES_MIN || count.deletes >= RANGE_DELETE_CHANGES {
            return;
        }
        let killed = before.saturating_add(count.appended).saturating_sub(count.live_bytes).min(killable);
        let permille = (u128::from(killed) * 1000 / u128::from(killable)) as u64;
        for (of, part) in [(kills.puts, &self.puts_kill), (kills.deletes, &self.deletes_kill)] {
            if of >= killable / LEARNED_PART {
                let learned = match part.load(Relaxed) {
                    UNKNOWN => permille,
                    known => (known + permille) / 2,
                };
                part.store(learned, Relaxed);
            }
        }
    }

    /// Rows of this many bytes in memory took this many in files when they were rewritten: small files have
    /// their heads. What compression spares is not expected of logs.
    pub(crate) fn learn_files(&self, memory_bytes: u64, file_bytes: u64) {
        let permille = (u128::from(file_bytes) * 1000).checked_div(u128::from(memory_bytes)).unwrap_or(1000);
        self.file_permille.store(permille.clamp(1000, FILE_PERMILLE_MAX) as u64, Relaxed);
    }

    /// What rows of this many bytes in memory take in files, about.
    pub(crate) fn in_files(&self, memory_bytes: u64) -> u64 {
        (u128::from(memory_bytes) * u128::from(self.file_permille.load(Relaxed)) / 1000) as u64
    }

    /// A rewrite kept rows that are not live for this view, the oldest; zero if for none.
    pub(crate) fn keep_for(&self, view: u64) {
        self.kept_for.store(view, Relaxed);
    }

    /// The view for which the last rewrite kept rows that are not live; zero if there was none.
    pub(crate) fn kept_for(&self) -> u64 {
        self.kept_for.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_extrapolates_by_what_earlier_bytes_turned_out_to_be() {
        let ledger = Ledger::new(Some(1000));
        ledger.append(1000, 0, 0, 100);
        assert_eq!(ledger.live_bytes(), Some(2000), "new rows, as long as nothing else is known");
        assert!(ledger.is_count_due(100, false));
        ledger.enter(Count { live_bytes: 1250, row_bytes: Some(125), ..ledger.begin_count() });
        assert_eq!((ledger.live_bytes(), ledger.has_changed()), (Some(1250), false));
        ledger.append(1000, 0, 0, 100);
        assert_eq!(ledger.live_bytes(), Some(1500), "three quarters were overwrites");
        assert!(!ledger.is_count_due(100, false) && ledger.is_count_due(100, true));
        ledger.append(1000, 0, 0, 100);
        assert!(ledger.is_count_due(100, false), "they may be new rows by now");
    }

    #[test]
    fn deletes_make_a_count_due_and_unknown_files_too() {
        let ledger = Ledger::new(None);
        assert!(ledger.is_count_due(u64::MAX, false) && ledger.live_bytes().is_none());
        ledger.enter(Count { live_bytes: 4000, row_bytes: Some(10), ..Count::default() });
        assert!(!ledger.is_count_due(u64::MAX, false));
        ledger.append(30, 49, 49, 10);
        assert!(!ledger.is_count_due(u64::MAX, false));
        ledger.append(30, 1, 1, 10);
        assert!(ledger.is_count_due(u64::MAX, false));
        ledger.enter(Count { live_bytes: 3000, row_bytes: Some(9), ..ledger.begin_count() });
        assert!(!ledger.is_count_due(u64::MAX, false));
        ledger.range_deleted();
        assert!(ledger.is_count_due(u64::MAX, false));
    }

    #[test]
    fn a_delete_beside_a_rewrite_into_pieces_counts_in_each_piece() {
        let ledger = Ledger::new(Some(3 << 20));
        ledger.append(20, 1, 1, 10);
        let count = ledger.begin_count();
        ledger.enter(Count { live_bytes: 3 << 20, row_bytes: Some(1 << 20), ..count });
        assert!(!ledger.rewritten(3, 1 << 20).is_count_due(1 << 10, false), "the rewrite saw the delete");
        ledger.append(20, 1, 1, 10);
        let piece = ledger.rewritten(3, 1 << 20);
        assert_eq!(piece.live_bytes(), Some(7), "until a count says otherwise it killed a row");
        assert!(piece.is_count_due(1 << 10, false));
    }

    /// A delete takes some bytes and may kill a row of megabytes; so may a put of a short value.
    #[test]
    fn few_changes_of_long_rows_make_a_count_due() {
        let ledger = Ledger::new(Some(0));
        ledger.enter(Count { live_bytes: 1 << 30, row_bytes: Some(1 << 26), ..Count::default() });
        ledger.append(20, 1, 1, 10);
        assert!(!ledger.is_count_due(1 << 20, true), "a sixteenth may be dead");
        ledger.append(20, 1, 1, 10);
        assert!(ledger.is_count_due(1 << 20, false));
        ledger.enter(Count { live_bytes: 1 << 30, row_bytes: Some(1 << 26), ..ledger.begin_count() });
        assert!(!ledger.is_count_due(1 << 20, true));
        ledger.append(20, 1, 0, 10);
        assert!(!ledger.is_count_due(1 << 20, false), "a sixteenth may be dead");
        ledger.append(20, 1, 0, 10);
        assert!(ledger.is_count_due(1 << 20, true) && ledger.is_count_due(1 << 20, false));
        // They were overwrites: the next are expected to be.
        ledger.enter(Count { live_bytes: 14 << 26, row_bytes: Some(1 << 26), ..ledger.begin_count() });
        ledger.append(60, 3, 0, 10);
        assert!(!ledger.is_count_due(1 << 20, false));
        assert_eq!(ledger.live_bytes(), Some((11 << 26) + 60));
    }

    /// What deletes kill is learned: rows of their own, or nothing.
    #[test]
    fn deletes_are_taken_for_what_earlier_ones_were() {
        let ledger = Ledger::new(Some(0));
        ledger.enter(Count { live_bytes: 100_000, row_bytes: Some(100), ..Count::default() });
        ledger.append(2_000, 100, 100, 20);
        assert_eq!(ledger.live_bytes(), Some(92_000), "until a count says otherwise each kills a row");
        assert!(!ledger.is_doubtful(100_000), "a tenth");
        ledger.append(1_000, 50, 50, 20);
        assert!(ledger.is_doubtful(100_000) && ledger.is_count_due(1_000, false));
        ledger.enter(Count { live_bytes: 100_000, ..ledger.begin_count() });
        ledger.append(2_000, 200, 200, 20);
        assert!(ledger.live_bytes().unwrap() > 90_000, "they deleted nothing that was there");
        assert!(!ledger.is_doubtful(100_000) && !ledger.is_count_due(1_000, false));
        ledger.append(2_000, 400, 400, 20);
        assert!(ledger.is_count_due(1_000, false), "half of the rows may be gone by now");
        // A range delete kills any part, and says nothing of other deletes.
        let before = ledger.live_bytes().unwrap();
        ledger.range_deleted();
        assert_eq!(ledger.live_bytes(), Some(before));
        assert!(ledger.is_doubtful(100_000) && ledger.least_live_bytes() == 0);
        ledger.enter(Count { live_bytes: 1_000, ..ledger.begin_count() });
        ledger.append(100, 5, 5, 20);
        assert!(ledger.live_bytes().unwrap() > 1_000, "as before");
    }

    /// In pieces its mark was taken for half a trillion deletes of rows: all was thought to be dead, and
    /// nothing to be in doubt.
    #[test]
    fn a_range_delete_beside_a_split_counts_whole_in_each_child() {
        let ledger = Ledger::new(Some(100_000));
        ledger.append(100, 5, 5, 100);
        ledger.enter(Count { live_bytes: 100_000, row_bytes: Some(100), ..ledger.begin_count() });
        ledger.append(20, 1, 1, 10);
        ledger.range_deleted();
        let child = ledger.divided(2, None);
        assert!(child.live_bytes().unwrap() > 49_000, "{:?}", child.live_bytes());
        assert!(child.is_count_due(1 << 10, false) && child.is_doubtful(50_000));
    }

    /// One row of a megabyte among a thousand of a hundred bytes.
    #[test]
    fn a_delete_weighs_as_much_as_a_long_row_where_few_hold_most_bytes() {
        let ledger = Ledger::new(Some(0));
        ledger.append(1 << 20, 1, 0, 1 << 20);
        ledger.append(100_000, 1000, 0, 100);
        ledger.enter(Count { live_bytes: (1 << 20) + 100_000, ..ledger.begin_count() });
        assert!(ledger.has_few_long_rows(1001));
        assert!(!ledger.is_count_due(1 << 10, false));
        assert_eq!(ledger.least_live_bytes(), (1 << 20) + 100_000, "nothing has changed");
        ledger.append(30, 1, 1, 30);
        assert!(ledger.is_count_due(1 << 10, false));
        assert_eq!(ledger.least_live_bytes(), 100_030, "the delete may be of the long row");
        ledger.enter(Count { live_bytes: 100_000, row_bytes: Some(100), ..ledger.begin_count() });
        assert!(!ledger.has_few_long_rows(1000));
        ledger.append(110_000, 1000, 0, 110);
        assert_eq!(ledger.least_live_bytes(), 100_000, "an overwrite kills what it appends");
        ledger.range_deleted();
        assert_eq!(ledger.least_live_bytes(), 0);
        assert!(ledger.is_count_due(1 << 10, false));
        assert_eq!(Ledger::new(None).least_live_bytes(), 0);
    }
}
