//! Tails that readers search are woven into the run, and the run is copied when it has become wasteful.

use std::collections::BTreeMap;

use kvilt_base::{Direction, RowBatch, Version};
use kvilt_io::MemoryDisk;
use kvilt_sync::published::pin;

use super::*;
use crate::{bed, chunk::put::Change, funk::log::IfFull, options::Options};

/// A store of one chunk, and what should be in it.
struct Bench {
    store: Arc<Store>,
    rows: BTreeMap<String, String>,
}

impl Bench {
    /// With 400 rows in a run.
    fn new() -> Self {
        let store = bed::open(MemoryDisk::new(1), &Options::default());
        let mut bench = Bench { store, rows: BTreeMap::new() };
        for i in 0..400 {
            bench.put(i, "first");
        }
        bench.read_until_sorted();
        bench
    }

    fn put(&mut self, i: u32, value: &str) {
        let (key, value) = (format!("key {i:04}"), format!("{value} {i}"));
        let change = Change { key: key.as_bytes(), value: Some(value.as_bytes()) };
        self.store.apply_one(change, IfFull::Fail).unwrap();
        self.rows.insert(key, value);
    }

    /// Puts into a tail also what would take another row's place.
    fn put_into_tail(&mut self, i: u32, value: &str) {
        let munk = self.munk();
        let hold = munk.run.run.hold();
        self.put(i, value);
        drop(hold);
    }

    fn delete(&mut self, i: u32) {
        let key = format!("key {i:04}");
        self.store.apply_one(Change { key: key.as_bytes(), value: None }, IfFull::Fail).unwrap();
        self.rows.remove(&key);
    }

    fn chunk(&self) -> Arc<Chunk> {
        let pin = pin();
        let chunks = self.store.index.load(&pin).chunks();
        assert_eq!(chunks.len(), 1);
        Arc::clone(&chunks[0])
    }

    fn munk(&self) -> Arc<Munk> {
        Arc::clone(self.chunk().state(&pin()).munk.as_ref().unwrap())
    }

    /// Has puts go on in another tail.
    fn freeze(&self) {
        let chunk = self.chunk();
        let (gate, pin) = (chunk.gate(), pin());
        let munk = self.store.with_fresh_tail(&self.munk(), 0);
        chunk.replace_state(&gate, ChunkState { munk: Some(munk), ..chunk.state(&pin).clone() });
    }

    /// Whether the background finds the munk worth sorting; if so, it is.
    fn sorts(&self) -> bool {
        let chunk = self.chunk();
        let wants = self.store.munk_wants_sorting(&chunk, &self.munk(), &pin());
        if wants {
            self.store.compact_munk(&chunk.try_occupy().unwrap()).unwrap();
        }
        wants
    }

    /// Has the background let tails sink.
    fn sink(&self) {
        self.store.sink_tails(&self.chunk().try_occupy().unwrap());
    }

    /// Has the background find that readers have paid for what is in the tail.
    fn weave(&self) {
        let chunk = self.chunk();
        chunk.heat.tail_searches.store(u32::MAX >> 1, Ordering::Relaxed);
        self.sorts();
        assert!(!self.munk().has_tails());
    }

    /// Whether gets at a view give the first of these rows.
    fn check_gets_at(&self, view: Version, expected: &BTreeMap<String, String>) {
        for i in 0..25 {
            let key = format!("key {i:04}");
            let mut found = None;
            self.store.find_at(key.as_bytes(), view, &mut |value| found = Some(value.to_vec())).unwrap();
            assert_eq!(found.as_deref(), expected.get(&key).map(String::as_bytes), "{key} at {view:?}");
        }
    }

    /// Gets all keys, whether they are there or not, until so many gets have searched the tail that it is
    /// sorted.
    fn read_until_sorted(&self) {
        for _ in 0..100 {
            self.check_gets();
            if self.sorts() {
                assert!(!self.munk().has_tails());
                return;
            }
        }
        panic!("the tail is still there");
    }

    fn check_gets(&self) {
        // One get in sixteen is counted; an odd number of keys lets all of them be counted in turn.
        for i in 0..501 {
            let key = format!("key {i:04}");
            let mut found = None;
            self.store
                .get(key.as_bytes(), Version::NEWEST, &mut |value| found = Some(value.to_vec()))
                .unwrap();
            assert_eq!(found.as_deref(), self.rows.get(&key).map(String::as_bytes), "{key}");
        }
    }

    fn check_scans(&self) {
        self.check_scans_at(Version::NEWEST, &self.rows);
    }

    /// Whether scans at a view give these rows.
    fn check_scans_at(&self, view: Version, expected: &BTreeMap<String, String>) {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut rows = RowBatch::new(1 << 20, usize::MAX, false);
            self.store.scan(view, &KeyRange::all(), direction, &mut rows).unwrap();
            let mut found: Vec<_> =
                rows.into_rows().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            if direction == Direction::Backward {
                found.reverse();
            }
            assert_eq!(found.len(), expected.len(), "{direction:?}");
            for ((key, value), found) in expected.iter().zip(found) {
                assert_eq!(found, (key.clone().into(), value.clone().into()), "{direction:?}");
            }
        }
    }
}

#[test]
fn a_tail_that_is_searched_by_gets_is_woven_into_the_run_which_stays_where_it_is() {
    let mut bench = Bench::new();
    let before = bench.munk();
    assert_eq!((before.run.run.len(), before.run.run.is_scattered()), (400, false));
    (10..40).for_each(|i| bench.put(i, "second"));
    (380..420).for_each(|i| bench.put(i, "second"));
    (100..110).for_each(|i| bench.delete(i));
    assert!(!bench.sorts(), "nobody has read it");
    bench.read_until_sorted();
    let woven = bench.munk();
    assert!(woven.run.run.is_scattered());
    assert_eq!(woven.run.run.len(), 410);
    let place = |munk: &Munk| munk.run.run.under(&pin()).entry_at(0).key.as_ptr() as usize;
    assert_eq!(place(&woven), place(&before), "rows that nobody changed stay");
    bench.check_gets();
    bench.check_scans();
    // And once more, into a run that is woven.
    (20..50).chain(420..430).for_each(|i| bench.put_into_tail(i, "third"));
    bench.read_until_sorted();
    assert_eq!((bench.munk().run.run.len(), place(&bench.munk())), (420, place(&before)));
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn scans_pay_for_it_as_well() {
    let mut bench = Bench::new();
    (10..40).for_each(|i| bench.put_into_tail(i, "second"));
    assert!((0..100).any(|_| {
        bench.check_scans();
        bench.sorts()
    }));
    assert!(bench.munk().run.run.is_scattered());
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn old_versions_are_woven_for_those_who_see_them() {
    let mut bench = Bench::new();
    let old = bench.rows.clone();
    let view = bench.store.versions.open_view();
    (0..50).for_each(|i| bench.put(i, "second"));
    (50..60).for_each(|i| bench.delete(i));
    bench.read_until_sorted();
    assert!(bench.munk().run.run.is_scattered());
    bench.check_gets();
    for (key, value) in &old {
        let mut found = Vec::new();
        bench.store.find_at(key.as_bytes(), view.version(), &mut |value| found = value.to_vec()).unwrap();
        assert_eq!(found, value.as_bytes(), "{key}");
    }
    drop(view);
    let older = bench.munk().run.run.unseen_bytes(None);
    assert_eq!(bench.munk().run.run.len(), 460);
    (0..30).for_each(|i| bench.delete(i));
    bench.read_until_sorted();
    assert_eq!(bench.munk().run.run.len(), 400, "now nobody does: keys that change keep no old versions");
    assert!(bench.munk().run.run.unseen_bytes(None) < older);
    let view = bench.store.versions.open_view();
    (30..280).for_each(|i| bench.put(i, "fourth"));
    bench.read_until_sorted();
    assert!(bench.munk().run.run.is_scattered(), "what the view sees is no waste");
    drop(view);
    // A view of now, as a scan has it, sees none of them.
    let now = bench.store.versions.open_view();
    assert!(bench.sorts());
    drop(now);
    let munk = bench.munk();
    assert_eq!(
        (munk.run.run.len(), munk.run.run.is_scattered()),
        (370, false),
        "and the others count as waste"
    );
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn frozen_tails_that_overwrite_much_are_sorted_though_nobody_reads_and_it_never_was_so_before() {
    let mut bench = Bench::new();
    (0..350).for_each(|i| bench.put_into_tail(i, "again"));
    assert!(!bench.sorts(), "the tail is open");
    bench.freeze();
    assert!(bench.sorts());
    let munk = bench.munk();
    assert_eq!(
        (munk.run.run.len(), munk.run.run.is_scattered(), munk.run.run.waste_bytes()),
        (400, false, 0)
    );
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn deletes_are_small_and_what_they_delete_is_waste() {
    let mut bench = Bench::new();
    (0..350).for_each(|i| bench.delete(i));
    bench.freeze();
    assert!(bench.munk().tails[1].entry_bytes() < bench.munk().run.run.entry_bytes() / 4 * 3);
    assert!(bench.sorts());
    assert_eq!((bench.munk().run.run.len(), bench.munk().run.run.waste_bytes()), (50, 0));
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn a_chunk_so_large_that_puts_wait_is_sorted_though_nothing_else_asks_for_it() {
    let mut bench = Bench::new();
    (400..410).for_each(|i| bench.put(i, "new"));
    bench.freeze();
    assert!(!bench.sorts(), "it may wait");
    let limit = bench.store.config.chunk_bytes_max as usize;
    bench.put(500, &"x".repeat(2 * limit));
    // The tail that is frozen may be sorted, whatever the open one has in it.
    assert!(bench.store.puts_wait_for_sorting(&bench.munk()));
    assert!(bench.sorts());
    assert!(!bench.store.puts_wait_for_sorting(&bench.munk()));
}

#[test]
fn tails_for_which_puts_would_wait_are_woven_though_they_have_little() {
    let mut bench = Bench::new();
    for round in 0..FROZEN_TAILS_MAX as u32 {
        assert!(!bench.sorts(), "{round} tails");
        (400 + round * 10..403 + round * 10).for_each(|i| bench.put(i, "new"));
        bench.freeze();
    }
    assert!(bench.sorts());
    assert!(bench.munk().run.run.is_scattered());
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn a_run_that_has_become_wasteful_is_copied() {
    let mut bench = Bench::new();
    for round in 0..3 {
        (round * 100..round * 100 + 90).for_each(|i| bench.delete(i));
        bench.read_until_sorted();
        bench.check_scans();
    }
    assert!(bench.sorts() || !bench.munk().run.run.is_scattered());
    let munk = bench.munk();
    assert_eq!(
        (munk.run.run.len(), munk.run.run.is_scattered(), munk.run.run.waste_bytes()),
        (130, false, 0)
    );
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn rows_that_overwrite_others_take_their_places_and_nothing_is_sorted() {
    let mut bench = Bench::new();
    for round in 0..3 {
        (0..400).for_each(|i| bench.put(i, &format!("{round:5}")));
        assert!(!bench.sorts());
    }
    let munk = bench.munk();
    // Numbers of one digit and of three leave each other some bytes over.
    let waste = munk.run.run.waste_bytes();
    assert!(!munk.has_tails() && waste < munk.run.run.entry_bytes() / 16, "{waste} bytes of waste");
    bench.check_gets();
    bench.check_scans();
}

#[test]
fn what_a_tail_got_while_the_run_was_held_sinks_into_it_unless_a_view_sees_what_is_there() {
    let mut bench = Bench::new();
    (0..60).for_each(|i| bench.put_into_tail(i, "second"));
    let before = bench.munk();
    bench.sink();
    assert!(before.has_tails() && !bench.munk().has_tails());
    assert!(Arc::ptr_eq(&before.run, &bench.munk().run), "it is the same run");
    drop(before);
    bench.check_gets();
    bench.check_scans();
    let (view, seen) = (bench.store.versions.open_view(), bench.rows.clone());
    (0..20).for_each(|i| bench.put(i, "third"));
    bench.freeze();
    (20..40).for_each(|i| bench.put(i, "fourth"));
    bench.sink();
    assert!(bench.munk().has_tails());
    bench.check_gets_at(view.version(), &seen);
    bench.check_scans_at(view.version(), &seen);
    bench.check_gets();
    drop(view);
    bench.sink();
    assert!(!bench.munk().has_tails());
    bench.check_gets();
    bench.check_scans();
}

/// To try it costs what the trial finds, no more: no tail is frozen in vain, and no row is copied twice.
#[test]
fn a_tail_that_cannot_sink_stays_the_one_that_takes_puts_and_one_that_sank_in_part_goes_on_from_there() {
    let mut bench = Bench::new();
    (0..60).for_each(|i| bench.put_into_tail(i, "second"));
    bench.delete(60);
    for _ in 0..3 {
        bench.sink();
        assert_eq!(bench.munk().tails.len(), 1);
    }
    // One whose run shares its memory with none that was before.
    let mut bench = Bench::new();
    (0..60).for_each(|i| bench.put_into_tail(i, "second"));
    let view = bench.store.versions.open_view();
    bench.put_into_tail(70, "seen is what was before");
    bench.sink();
    let munk = bench.munk();
    assert!(munk.has_frozen_tails());
    let place = || munk.run.run.under(&pin()).newest(b"key 0000").unwrap().value.as_ptr() as usize;
    let sunk = place();
    bench.sink();
    assert_eq!(place(), sunk);
    bench.check_gets();
    drop(view);
    bench.sink();
    assert_eq!(place(), sunk);
    drop(munk);
    assert!(!bench.munk().has_tails());
    bench.check_gets();
    bench.check_scans();
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn each_view_sees_what_it_did_whatever_is_woven(
        steps in proptest::collection::vec((0..10u8, 0..24u32), 1..150),
    ) {
        let mut bench = Bench::new();
        let mut views = Vec::new();
        for (step, (what, i)) in steps.into_iter().enumerate() {
            match what {
                0..=2 => bench.put(i, &format!("step {step}")),
                3 => bench.put_into_tail(i, &format!("step {step}")),
                4 => bench.sink(),
                5 => bench.delete(i),
                6 => views.push((bench.store.versions.open_view(), bench.rows.clone())),
                7 if !views.is_empty() => drop(views.swap_remove(i as usize % views.len())),
                _ => {
                    bench.weave();
                    for (view, rows) in &views {
                        bench.check_gets_at(view.version(), rows);
                        bench.check_scans_at(view.version(), rows);
                    }
                    bench.check_gets_at(Version::NEWEST, &bench.rows);
                    bench.check_scans();
                }
            }
        }
    }
}
