//! Invariants broken on purpose, in memory and on the disk: check reports each by its number, and nothing
//! else.

use std::sync::Arc;

use kvilt_base::{EntryRef, ErrorKind, FileName, KeyRange, Kind, Value, Version};
use kvilt_format::names::LOG;
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};
use kvilt_sync::published::pin;

use super::Check;
use crate::{
    bed,
    chunk::ledger::Ledger,
    chunk::{Chunk, ChunkState, Heat, put::Change},
    funk::log::IfFull,
    munk::{
        ChargedRun, Munk,
        run::{Run, RunBuilder},
    },
    options::Options,
    store::Store,
};
use kvilt_sync::tombstones::Tombstones;

/// A store with three rows on `disk`, all in one chunk with a munk.
fn store_on(disk: Arc<dyn kvilt_base::Disk>) -> Arc<Store> {
    let store = bed::open(disk, &Options::tiny());
    for key in [b"a", b"b", b"c"] {
        store.apply_one(Change { key, value: Some(b"value") }, IfFull::Fail).unwrap();
    }
    store.checkpoint_now(false).unwrap();
    assert!(only_chunk(&store).state(&pin()).munk.is_some());
    store
}

fn only_chunk(store: &Store) -> Arc<Chunk> {
    let pin = pin();
    let chunks = store.index.load(&pin).chunks();
    assert_eq!(chunks.len(), 1);
    Arc::clone(&chunks[0])
}

/// What a check reports, by number.
fn numbers(store: &Store) -> Vec<String> {
    let report = store.check(&mut |_| true).unwrap();
    report.damages.into_iter().map(|damage| damage.what).collect()
}

/// The same store with another munk in its only chunk.
fn with_munk(store: &Store, munk: Munk) {
    let chunk = only_chunk(store);
    let gate = chunk.gate();
    let state = chunk.state(&pin()).clone();
    chunk.replace_state(&gate, ChunkState { munk: Some(Arc::new(munk)), ..state });
}

fn munk_of(store: &Store, run: Run) -> Munk {
    Munk {
        run: ChargedRun::new(run, &store.files.budget),
        tails: vec![store.new_tail(4 << 10, &Run::empty())],
        tombstones: Tombstones::none(),
        covered_bytes: 0,
    }
}

/// A run with these keys, in whatever order they are given.
fn run_of(keys: &[&[u8]], version: Version) -> Run {
    let mut run = RunBuilder::new(1 << 10).unwrap();
    for key in keys {
        run.push(EntryRef { key, version, kind: Kind::Put, value: b"value" }).unwrap();
    }
    run.finish()
}

#[test]
fn a_sound_store_has_no_damage_and_all_its_entries_are_counted() {
    let store = store_on(MemoryDisk::new(1));
    let report = store.check(&mut |_| true).unwrap();
    assert!(report.damages.is_empty() && !report.is_cancelled, "{report:?}");
    assert_eq!(report.entries, 3);
}

#[test]
fn chunks_that_do_not_follow_each_other_are_e_1() {
    let store = store_on(MemoryDisk::new(1));
    let chunk = |start: &[u8], end: Option<&[u8]>| {
        let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
        let state = || ChunkState { munk: None, funk: Arc::default(), cold_id: 0 };
        (Chunk::new(1, range, state(), Heat::default(), Ledger::new(None)), state())
    };
    let found = |chunks: &[(Arc<Chunk>, ChunkState)]| {
        let mut goes_on = |_| true;
        let mut check = Check::new(&store, &mut goes_on);
        check.ranges(chunks);
        check.report.damages.into_iter().map(|damage| (damage.what, damage.range)).collect::<Vec<_>>()
    };
    assert_eq!(found(&[chunk(b"", Some(b"g")), chunk(b"g", None)]), []);
    let behind_gap = KeyRange { start: b"h".to_vec(), end: None };
    let gap = found(&[chunk(b"", Some(b"g")), chunk(b"h", None)]);
    assert_eq!(gap, [("E-1".to_string(), Some(behind_gap))]);
    assert_eq!(found(&[chunk(b"", Some(b"g"))]), [("E-1".to_string(), None)]);
    let late = found(&[chunk(b"a", Some(b"g")), chunk(b"f", Some(b"k"))]);
    assert_eq!(late.len(), 3, "its beginning, the overlap and its end: {late:?}");
}

#[test]
fn a_munk_that_lacks_what_the_files_have_is_e_3() {
    let store = store_on(MemoryDisk::new(1));
    with_munk(&store, munk_of(&store, run_of(&[b"a", b"b"], store.epoch_base)));
    assert_eq!(numbers(&store), ["E-3"]);
}

#[test]
fn a_munk_with_another_value_than_the_files_is_e_3() {
    let store = store_on(MemoryDisk::new(1));
    let chunk = only_chunk(&store);
    let state = chunk.state(&pin()).clone();
    // Beside the log, as no put does.
    let tail = Arc::clone(state.munk.as_ref().unwrap().tail());
    tail.insert(b"b", store.versions.current(), Kind::Put, 0, b"other");
    assert_eq!(numbers(&store), ["E-3"]);
}

#[test]
fn an_entry_that_belongs_into_no_munk_is_e_3() {
    let store = store_on(MemoryDisk::new(1));
    let chunk = only_chunk(&store);
    let state = chunk.state(&pin()).clone();
    let tail = Arc::clone(state.munk.as_ref().unwrap().tail());
    tail.insert(b"d", store.versions.current(), Kind::RangeTombstone, 0, b"");
    let found = numbers(&store);
    assert!(!found.is_empty() && found.iter().all(|number| number == "E-3"), "{found:?}");
}

#[test]
fn a_munk_whose_entries_do_not_come_in_order_is_e_4() {
    let store = store_on(MemoryDisk::new(1));
    with_munk(&store, munk_of(&store, run_of(&[b"b", b"a", b"c"], store.epoch_base)));
    let found = numbers(&store);
    assert_eq!(found.first().map(String::as_str), Some("E-4"), "{found:?}");
}

#[test]
fn a_changed_byte_of_a_log_is_f_2_with_its_file_and_place() {
    let disk = MemoryDisk::new(1);
    let store = store_on(disk.clone());
    let log = disk.snapshot().into_keys().find(|name| matches!(name, FileName::Of(LOG, _))).unwrap();
    assert!(disk.flip_bit(log, 80, 3));
    let report = store.check(&mut |_| true).unwrap();
    let [damage] = &report.damages[..] else { panic!("one damage: {report:?}") };
    assert_eq!((damage.what.as_str(), damage.file.clone()), ("F-2", Some(log.to_string())));
    assert!(damage.offset.is_some_and(|offset| (64..=80).contains(&offset)), "{damage:?}");
    assert_eq!(damage.range, Some(KeyRange::all()));
}

/// A disk that refuses says nothing of the bytes, but a check that passed over them would be believed.
#[test]
fn what_cannot_be_read_is_a_finding_of_its_own_and_the_check_goes_on() {
    let disk = FaultyDisk::new(MemoryDisk::new(1));
    let store = store_on(disk.clone());
    let mut reads = 0;
    loop {
        disk.fail(Some(Call::Read), reads, Fault::Io, Times::Once);
        let found = numbers(&store);
        if disk.open_plans() > 0 {
            // It never came to this read.
            assert_eq!(found, [""; 0]);
            break;
        }
        assert_eq!(found, ["io"], "read {reads}");
        reads += 1;
    }
    assert!(reads > 2);
}

#[test]
fn a_check_ends_where_it_is_cancelled() {
    let store = store_on(MemoryDisk::new(1));
    let whole = store.check(&mut |_| true).unwrap();
    let mut told = 0;
    let report = store
        .check(&mut |_| {
            told += 1;
            false
        })
        .unwrap();
    assert!(report.is_cancelled && report.files < whole.files, "{report:?}");
    assert_eq!(told, 1);
}

#[test]
fn a_closed_store_is_not_checked() {
    let store = store_on(MemoryDisk::new(1));
    let before = store.get(b"a", Version::NEWEST, &mut |value: &[u8]| drop(Value::from(value.to_vec())));
    assert!(before.unwrap());
    store.poison.close();
    assert_eq!(store.check(&mut |_| true).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_check_knows_beforehand_how_much_it_will_read() {
    let store = store_on(MemoryDisk::new(1));
    let mut told = Vec::new();
    let report = store
        .check(&mut |progress| {
            told.push((progress.done, progress.total));
            true
        })
        .unwrap();
    let &(done, total) = told.last().unwrap();
    let manifest = report.bytes - total;
    assert!(told.len() > 1 && told.is_sorted() && done == report.bytes, "{told:?}");
    // The manifest comes on top: how long it is only the check finds out.
    assert!(total > 0 && told.iter().any(|&(done, _)| done == manifest), "{told:?}");
}
