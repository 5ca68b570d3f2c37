//! Puts that meet a checkpoint between two of their steps.

use std::sync::Arc;

use kvilt_base::Version;
use kvilt_io::{Keep, MemoryDisk};
use kvilt_sync::published::pin;

use super::{Aside, Change, IfFull, Needed, Room};
use crate::{
    bed,
    chunk::ChunkState,
    funk::{Funk, log::ChunkLog},
    options::Options,
    store::Store,
};

fn open(disk: Arc<MemoryDisk>) -> Arc<Store> {
    bed::open(disk, &Options::tiny())
}

/// A put marks its chunk as changed when it finds the log empty, and a checkpoint took the mark before
/// anything was in the log: no later one named the log, and after a crash the chunk was as it had been
/// before. Found by killing processes.
#[test]
fn a_log_that_is_empty_at_a_checkpoint_is_named_by_the_next() {
    for is_begun in [false, true] {
        let disk = MemoryDisk::new(1);
        let store = open(disk.clone());
        store.apply_one(Change { key: b"first", value: Some(b"1") }, IfFull::Fail).unwrap();
        store.checkpoint_now(false).unwrap();
        let chunk = Arc::clone(store.index.load(&pin()).find(b"key"));
        let change = Change { key: b"key", value: Some(b"value") };
        {
            let gate = chunk.gate();
            let state = chunk.state(&pin()).clone();
            store.begin_log(&chunk, &gate, &state);
            if is_begun {
                // Somebody made the log and gave up; the checkpoint leaves it out.
                drop(gate);
                store.checkpoint_now(false).unwrap();
            }
        }
        let gate = chunk.gate();
        let needed = Needed::of(std::slice::from_ref(&change));
        let room =
            store.make_room(&chunk, &gate, needed, IfFull::Fail, &mut 0, &mut Aside::default()).unwrap();
        assert!(matches!(room, Room::Made));
        store.checkpoint_now(false).unwrap();
        let pin = pin();
        store.put_one(chunk.state(&pin), change, &pin);
        drop(gate);
        store.checkpoint_now(false).unwrap();
        let left = open(disk.crash_image(Keep::SyncedOnly));
        assert!(left.get(b"key", Version::NEWEST, &mut |_| {}).unwrap(), "begun: {is_begun}");
    }
}

/// While the background has a chunk, its log is not exchanged; and an offset that no index can keep would
/// come when the put is announced, which cannot be taken back.
#[test]
fn a_log_that_can_grow_no_more_has_puts_wait_until_the_background_is_done_with_its_chunk() {
    let store = open(MemoryDisk::new(1));
    let put = |key: &[u8]| store.apply_one(Change { key, value: Some(b"value") }, IfFull::Fail);
    put(b"first").unwrap();
    let chunk = Arc::clone(store.index.load(&pin()).find(b"first"));
    let occupied = chunk.try_occupy().unwrap();
    {
        let (gate, pin) = (chunk.gate(), pin());
        let state = chunk.state(&pin);
        // As if two gibibytes had come meanwhile.
        let (number, base) = (store.files.next_number(), store.epoch_base);
        let log = ChunkLog::reopened_for_append(&store.files, number, base, (1 << 31) - 20);
        let funk = Funk { log: Some(log), ..state.funk.closed() };
        chunk.replace_state(&gate, ChunkState { funk: Arc::new(funk), ..state.clone() });
    }
    let change = Change { key: b"second", value: Some(b"value") };
    let needed = Needed::of(std::slice::from_ref(&change));
    let has_room = || {
        let gate = chunk.gate();
        matches!(
            store.make_room(&chunk, &gate, needed, IfFull::Fail, &mut 0, &mut Aside::default()).unwrap(),
            Room::Made
        )
    };
    assert!(!has_room());
    drop(occupied);
    assert!(has_room());
    put(b"second").unwrap();
    assert!(store.get(b"second", Version::NEWEST, &mut |_| {}).unwrap());
}
