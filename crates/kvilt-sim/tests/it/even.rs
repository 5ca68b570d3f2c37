//! What only `even` is held to: damage of its bytes (F-2, F-4, F-5, F-8), and what it must not touch (E-10).

use std::time::Duration;

use kvilt_base::{Durability, ErrorKind, FileName};
use kvilt_format::names::{LOG, MANIFEST, WITNESS};
use kvilt_io::MemoryDisk;
use kvilt_sim::{
    Subject, Tested,
    damage::{blow::Blow, reference::Reference},
    even::{EVEN, Even},
    world::World,
};

use crate::damage::run;

/// Fault table, rows 8 to 8f and 9: every flip and every length of the root's two files; of all others, a
/// sample. `kvilt-sim damage` does all.
#[test]
fn damaged_bytes_are_found_and_never_answer_wrong() {
    let reference = Reference::new(EVEN.references(), 0).unwrap();
    assert!(reference.bytes() >= 64 << 10, "{} bytes", reference.bytes());
    for (name, bytes) in &reference.files {
        let is_root = matches!(*name, FileName::Of(MANIFEST, _) | WITNESS);
        let shards = if is_root { 1 } else { 199 };
        let in_file = Blow::flips(*name, bytes.len())
            .chain(Blow::cuts(*name, bytes.len()))
            .chain(Blow::sectors(*name, bytes.len()));
        let tally = run(&reference, in_file, shards);
        assert!(tally.cases > 0, "{name}");
        if matches!(name, FileName::Of(MANIFEST, _)) {
            assert!(tally.refused > tally.harmless, "{tally:?}");
        }
    }
}

/// Fault table, row 9: of files that are missing, exchanged or old, some refuse the open, and some their own
/// chunk alone.
#[test]
fn files_of_chunks_that_are_missing_or_old_are_contained() {
    let reference = Reference::new(EVEN.references(), 1).unwrap();
    let tally = run(&reference, Blow::whole_files(&reference), 1);
    assert!(tally.refused > 0 && tally.contained > 0, "{tally:?}");
}

/// A store of several cold chunks; the log of the first one has a bad byte.
fn with_damaged_log(durability: Durability) -> (std::sync::Arc<MemoryDisk>, Even) {
    let mut even = Even::tiny();
    even.options.settings.durability = durability;
    even.budget_bytes = 1;
    let disk = MemoryDisk::new(3);
    let world = World::stepped(disk.clone(), disk.clone(), 3);
    let engine = even.open(&world).unwrap();
    for i in 0..400_u32 {
        engine.put(format!("key{i:04}").as_bytes(), &[7; 40]).unwrap();
        world.step_background(20, u64::from(i));
    }
    world.step_until_idle().unwrap();
    engine.put(b"key0000", b"in a log").unwrap();
    assert!(engine.stats()["chunks_now"] > 2);
    engine.close().unwrap();
    let mut logs = disk.snapshot().into_iter().filter(|(name, _)| matches!(name, FileName::Of(LOG, _)));
    let (log, _) = logs
        .rfind(|(_, bytes)| bytes.windows(8).any(|window| window == b"in a log"))
        .expect("the last put is in a log");
    assert!(disk.flip_bit(log, 70, 3));
    (disk, even)
}

/// E-10; fault table, row 8a: the chunk is read-only, all others go on, and so do checkpoints.
#[test]
fn damage_stays_in_its_chunk() {
    let interval = Duration::from_millis(20);
    for durability in [Durability::Async { interval }, Durability::Sync { interval }] {
        let (disk, even) = with_damaged_log(durability);
        let world = World::stepped(disk.clone(), disk.clone(), 4);
        let engine = even.open(&world).unwrap();
        let error = engine.get(b"key0000", None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupted);
        assert!(error.file().unwrap().ends_with(".log") && error.offset().is_some(), "{error}");
        let error = engine.put(b"key0000", b"no").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupted, "its chunk is read-only: {error}");
        assert!(error.file().is_some() && error.offset().is_some());
        let mut batch = kvilt_base::WriteBatch::new();
        batch.put(b"key0000", b"no");
        batch.put(b"key0399", b"no");
        assert_eq!(
            engine.write(batch).unwrap_err().kind(),
            ErrorKind::Corrupted,
            "a batch is whole or not at all"
        );
        for round in 0..50_u32 {
            engine.put(b"key0399", &round.to_le_bytes()).unwrap();
            world.advance(500);
            world.step_until_idle().unwrap();
        }
        engine.sync().unwrap();
        assert_eq!(engine.get(b"key0399", None).unwrap().unwrap()[..], 49_u32.to_le_bytes());
        assert!(!engine.check(&mut |_| true).unwrap().damages.is_empty());
        engine.close().unwrap();
        // Nothing of it was overwritten or removed, and what was written beside it is durable.
        let world = World::stepped(disk.clone(), disk.clone(), 5);
        let engine = even.open(&world).unwrap();
        assert_eq!(engine.get(b"key0000", None).unwrap_err().kind(), ErrorKind::Corrupted);
        assert_eq!(engine.get(b"key0399", None).unwrap().unwrap()[..], 49_u32.to_le_bytes());
    }
}
