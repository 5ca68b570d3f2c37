//! What fails leaves nothing behind, and a full disk still takes what frees it.

use std::time::Duration;

use kvilt_base::{Durability, ErrorKind, FileName, KeyRange};
use kvilt_even::Options;
use kvilt_format::names::MANIFEST_TEMP;
use kvilt_io::{Call, Fault, FaultyDisk, Keep, MemoryDisk, Times};

use super::{Bed, closed_with_rows, never, put_rows, rows};

/// What a failed rewrite leaves takes the room that the checkpoint needs.
#[test]
fn r04_a_failed_rewrite_gives_its_room_back() {
    let memory = closed_with_rows(60);
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), never()).unwrap();
    put_rows(&*db, 60, 8);
    let used = memory.total_bytes();
    // Room for a checkpoint (what is still in log buffers, a small edit), not for the chunk's new table.
    memory.set_capacity(Some(used + 6000));
    bed.rests_within(200);
    let left = memory.total_bytes();
    let synced = db.sync();
    assert!(synced.is_ok(), "used {used}, after the failed rewrites {left} of {}: {synced:?}", used + 6000);
}

/// ENOSPC: deletes go on (docs/design/0024-reserve.md).
#[test]
fn r14_deletes_work_on_a_full_disk() {
    let bed = Bed::new(64 << 20);
    let memory = MemoryDisk::new(1);
    let db = bed.open(memory.clone(), never()).unwrap();
    put_rows(&*db, 40, 7);
    db.sync().unwrap();
    memory.set_capacity(Some(memory.total_bytes()));
    let failed: Vec<_> =
        (0..4000u32).filter_map(|i| db.delete(format!("key{:04}", i % 40).as_bytes()).err()).collect();
    assert!(failed.is_empty(), "{} of 4000 deletes failed: {}", failed.len(), failed[0]);
}

/// Rewrites that fail must not leave one more closed log each.
#[test]
fn r22_failed_rewrites_do_not_pile_up_logs() {
    let memory = closed_with_rows(10);
    let faulty = FaultyDisk::new(memory.clone());
    let bed = Bed::new(64 << 20);
    let db = bed.open(faulty.clone(), never()).unwrap();
    // Not damage, which would make the chunk read-only.
    faulty.fail(Some(Call::Read), 0, Fault::Io, Times::Always);
    for i in 0..300u32 {
        db.put(format!("key{:04}", i % 10).as_bytes(), &[8; 100]).unwrap();
        bed.clock.advance(Duration::from_millis(60));
        bed.rests_within(10);
    }
    db.sync().unwrap();
    let files = db.stats().files_now;
    assert!(files < 30, "{files} files for 300 puts to one chunk");
}

/// Bounds of a range delete that are longer than any key.
#[test]
fn r23_range_deletes_with_long_bounds() {
    use kvilt_base::limits::{ENGINE_KEY_BYTES_MAX, VALUE_BYTES_MAX};
    let mut bad = Vec::new();
    for (start, end) in [
        ([vec![b'k'; ENGINE_KEY_BYTES_MAX], vec![0]].concat(), Some(b"z".to_vec())),
        ([vec![b'k'; ENGINE_KEY_BYTES_MAX], vec![0; 1000]].concat(), Some(b"z".to_vec())),
        (b"a".to_vec(), Some([vec![b'k'; ENGINE_KEY_BYTES_MAX], vec![0]].concat())),
        (b"a".to_vec(), Some(vec![b'k'; ENGINE_KEY_BYTES_MAX + 10])),
        (b"a".to_vec(), Some(vec![b'k'; VALUE_BYTES_MAX + 10])),
    ] {
        for is_sync in [false, true] {
            let what = format!("start {} end {:?} sync {is_sync}", start.len(), end.as_ref().map(Vec::len));
            let range = KeyRange { start: start.clone(), end: end.clone() };
            let run = move || -> std::result::Result<(), String> {
                let mut options = never();
                if is_sync {
                    options.settings.durability = Durability::Sync { interval: Duration::from_secs(3600) };
                }
                let memory = MemoryDisk::new(1);
                let bed = Bed::new(64 << 20);
                let db = bed.open(memory.clone(), options.clone()).unwrap();
                db.put(b"b", b"1").unwrap();
                db.put(b"l", b"1").unwrap();
                if let Err(e) = db.delete_range(&range) {
                    return if e.kind() == ErrorKind::InvalidArgument { Ok(()) } else { Err(e.to_string()) };
                }
                let now = rows(&*db).unwrap();
                db.sync().unwrap();
                let image = memory.crash_image(Keep::SyncedOnly);
                drop(db);
                let again = Bed::new(64 << 20).open(image, options).and_then(|db| rows(&*db));
                match again {
                    Ok(again) if again == now => Ok(()),
                    Ok(_) => Err("other rows after a crash".into()),
                    Err(e) => Err(format!("after a crash: {e}")),
                }
            };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                Ok(Ok(())) => {}
                Ok(Err(e)) => bad.push(format!("{what}: {e}")),
                Err(_) => bad.push(format!("{what}: panic")),
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn r25_full_disk_in_sync_mode_does_not_litter() {
    let mut options = Options::tiny();
    options.settings.durability = Durability::Sync { interval: Duration::from_millis(500) };
    let memory = MemoryDisk::new(1);
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), options).unwrap();
    db.put(b"a", b"1").unwrap();
    memory.set_capacity(Some(memory.total_bytes()));
    let files = memory.snapshot().len();
    for _ in 0..100 {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(100);
    }
    let more = memory.snapshot().len() - files;
    assert!(more < 5, "{more} new files after 100 failed checkpoints");
}

/// A manifest that could not be written does not stay behind.
#[test]
fn r26_failed_manifests_do_not_pile_up() {
    let memory = MemoryDisk::new(1);
    {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), never()).unwrap();
        for i in 0..200u32 {
            db.put(format!("key{i:04}").as_bytes(), &[7; 200]).unwrap();
            bed.rests_within(50);
        }
        db.close().unwrap();
    }
    let mut options = never();
    options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
    let bed = Bed::new(64 << 20);
    let db = bed.open(memory.clone(), options).unwrap();
    db.put(b"key0000", b"x").unwrap();
    memory.set_capacity(Some(memory.total_bytes() + 300));
    let temps =
        || memory.snapshot().into_keys().filter(|n| matches!(n, FileName::Of(MANIFEST_TEMP, _))).count();
    for _ in 0..100 {
        bed.clock.advance(Duration::from_millis(600));
        bed.rests_within(100);
    }
    let during = temps();
    memory.set_capacity(None);
    db.sync().unwrap();
    assert!(during < 3 && temps() == 0, "{during} temporary manifests, {} after space came back", temps());
}

/// Runs that end before the background has done anything begin a log each; writers wait before those are too
/// many.
#[test]
fn r27_short_runs_do_not_pile_up_logs() {
    let memory = MemoryDisk::new(1);
    for run in 0..200u32 {
        let bed = Bed::new(64 << 20);
        let db = bed.open(memory.clone(), never()).unwrap();
        db.put(b"k", &run.to_be_bytes()).unwrap();
        assert!(db.stats().files_now < 50, "{} files after {run} runs", db.stats().files_now);
        db.close().unwrap();
    }
}
