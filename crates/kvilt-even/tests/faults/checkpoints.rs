//! A checkpoint that fails at any of its calls: what its cut took, chunks, tables and logs, the next one
//! makes durable.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Engine, ErrorKind};
use kvilt_even::Options;
use kvilt_io::{Fault, FaultyDisk, Keep, MemoryDisk, Times};

use crate::{
    bed::{self, Bed},
    salvaging::Rows,
};

/// Of all levels; no checkpoint comes but when its time has.
const LEVELS: [fn() -> Options; 2] = [bed::without_checkpoints, bed::synchronous];
const INTERVAL: Duration = Duration::from_secs(3600);

struct Scene {
    bed: Bed,
    memory: Arc<MemoryDisk>,
    disk: Arc<FaultyDisk>,
    db: Arc<dyn Engine>,
    rows: Rows,
}

impl Scene {
    /// A store with rows that a checkpoint covers, and behind it new tables, new chunks and new logs that
    /// none does.
    fn new(options: Options) -> Scene {
        let memory = MemoryDisk::new(1);
        let disk = FaultyDisk::new(memory.clone());
        let bed = Bed::new(64 << 20);
        let db = bed.open(disk.clone(), options).unwrap();
        let mut scene = Scene { bed, memory, disk, db, rows: Rows::new() };
        scene.put(0..60, 1);
        scene.checkpoint();
        for byte in 2..5 {
            scene.put(30..150, byte);
            assert!(scene.bed.rests_within(10_000));
        }
        scene.put(100..110, 5);
        scene
    }

    fn put(&mut self, numbers: std::ops::Range<u32>, byte: u8) {
        for number in numbers {
            let (key, value) = (number.to_be_bytes().to_vec(), vec![byte; 60]);
            self.db.put(&key, &value).unwrap();
            self.rows.insert(key, value);
        }
    }

    /// Lets one come by its time, whether it fails or not.
    fn checkpoint(&self) {
        self.bed.clock.advance(INTERVAL + Duration::from_secs(1));
        assert!(self.bed.rests_within(10_000));
    }

    /// What a power cut leaves now.
    fn left(&self, options: Options) -> Rows {
        let bed = Bed::new(64 << 20);
        let db = bed.open(self.memory.crash_image(Keep::SyncedOnly), options).unwrap();
        assert!(db.check(&mut |_| true).unwrap().damages.is_empty());
        bed::rows(&*db).unwrap().into_iter().collect()
    }
}

/// A cut is made by whoever leads the group of a commit log, before anything of the checkpoint can fail; and
/// before it only the commit log that begins with it can.
#[test]
fn what_a_failed_checkpoint_has_taken_is_in_the_next_or_nobody_writes_any_more() {
    for level in LEVELS {
        let (mut failed, mut poisoned, mut calls) = (0, 0, 0);
        for fault in [Fault::Io, Fault::NoSpace, Fault::TooManyFiles] {
            for nth in 0.. {
                let scene = Scene::new(level());
                let made = scene.db.stats()["checkpoints"];
                scene.disk.fail(None, nth, fault, Times::Once);
                scene.checkpoint();
                if scene.disk.open_plans() > 0 {
                    calls = nth;
                    break;
                }
                let has_failed = scene.db.stats()["checkpoints"] == made;
                scene.disk.heal();
                if let Err(error) = scene.db.put(b"", b"later") {
                    assert_eq!(error.kind(), ErrorKind::Poisoned, "{fault:?} at call {nth}");
                    poisoned += 1;
                    continue;
                }
                failed += u32::from(has_failed);
                scene.checkpoint();
                scene.checkpoint();
                assert!(scene.db.stats()["checkpoints"] > made);
                let mut rows = scene.rows.clone();
                rows.insert(Vec::new(), b"later".to_vec());
                let left = scene.left(level());
                let lost: Vec<_> = rows.iter().filter(|(key, value)| left.get(*key) != Some(value)).collect();
                assert!(left == rows, "{fault:?} at call {nth}: lost {lost:?}");
            }
        }
        assert!(failed > 0 && poisoned > 0, "{failed} failed, {poisoned} poisoned of {calls} calls");
    }
}
