//! What meets a checkpoint at one certain moment: found by killing processes and cutting off file systems,
//! shown here without chance.

use std::{
    any::Any,
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use kvilt_base::{Disk, EntryRef, ErrorKind, File, FileName, Kind, Listed, Version, disk::LockFailure};
use kvilt_format::{
    manifest::{Edit, FileRecord, PartKind},
    names::{LOG, TABLE},
};
use kvilt_io::{Call, Fault, FaultyDisk, Keep, MemoryDisk, Times};

use super::Durable;
use crate::{
    bed,
    chunk::put::Change,
    files::Hold,
    funk::{
        log::{ChunkLog, IfFull},
        table_file::TableFile,
    },
    options::Options,
    store::Store,
};

fn open(disk: Arc<dyn Disk>) -> Arc<Store> {
    bed::open(disk, &Options::tiny())
}

fn put(store: &Store, key: &[u8]) {
    store.apply_one(Change { key, value: Some(b"value") }, IfFull::Fail).unwrap();
}

fn has(store: &Store, key: &[u8]) -> bool {
    store.get(key, Version::NEWEST, &mut |_| {}).unwrap()
}

#[test]
fn a_put_between_the_cut_and_the_syncs_is_in_the_next_checkpoint() {
    let disk = MemoryDisk::new(1);
    let store = open(disk.clone());
    put(&store, b"before");
    let version = store.versions.current();
    std::thread::scope(|scope| {
        // Holds the checkpoint up behind its cut, before it takes the list.
        let dirty = store.dirty.lock();
        let checkpoint = scope.spawn(|| store.checkpoint_now(false).unwrap());
        while store.versions.current() == version {
            std::thread::yield_now();
        }
        // Its log is in the list already, so it is not entered again.
        put(&store, b"behind");
        drop(dirty);
        checkpoint.join().unwrap();
    });
    store.checkpoint_now(false).unwrap();
    let left = open(disk.crash_image(Keep::SyncedOnly));
    assert!(has(&left, b"before") && has(&left, b"behind"));
}

/// One commit of the file system's journal is for all of them then.
#[test]
fn logs_are_all_written_and_then_synced() {
    let disk = FaultyDisk::new(MemoryDisk::new(1));
    let store = open(disk.clone());
    let with_a_record = |key: &[u8]| {
        let log = ChunkLog::create(&store.files, store.epoch_base);
        let version = store.versions.current();
        bed::append(&store, &log, EntryRef { key, version, kind: Kind::Put, value: b"value" }).unwrap();
        log
    };
    let logs = [b"a", b"b", b"c"].map(|key| with_a_record(key));
    disk.fail(Some(Call::Sync), 1, Fault::Io, Times::Once);
    store.sync_logs(&logs).unwrap_err();
    let durable = logs.each_ref().map(|log| log.durable_len() == log.len());
    assert_eq!(durable, [true, false, false], "the second sync failed");
    assert!(logs.iter().all(|log| log.buffered_bytes() == 0), "all were written before that");
}

/// A table without an entry in the store that a chunk could have.
fn table(store: &Store) -> Arc<TableFile> {
    let (number, hold) = (store.files.next_number(), Hold::default());
    let file = store.files.create(FileName::Of(TABLE, number), &hold).unwrap();
    let table = TableFile::new(&store.files, number, 0, None, hold);
    store.unsynced_tables.add(&table, file);
    table
}

#[test]
fn a_checkpoint_syncs_new_tables_once_and_none_that_was_replaced_meanwhile() {
    let disk = FaultyDisk::new(MemoryDisk::new(1));
    let store = open(disk.clone());
    store.checkpoint_now(false).unwrap();
    let syncs_of_checkpoint = || {
        let before = disk.calls(Call::Sync);
        put(&store, b"key");
        store.checkpoint_now(false).unwrap();
        disk.calls(Call::Sync) - before
    };
    // The first does not sync all that later ones do.
    let without_tables = [syncs_of_checkpoint(), syncs_of_checkpoint()][1];
    let (_kept, replaced) = ([table(&store), table(&store)], table(&store));
    drop(replaced);
    assert_eq!(syncs_of_checkpoint(), without_tables + 2);
    assert_eq!(syncs_of_checkpoint(), without_tables);
}

/// What is replaced while a checkpoint runs is removed by the next one. It was taken for what readers hold,
/// and files grew.
#[test]
fn a_sweep_says_what_readers_hold_of_what_was_there_before_its_checkpoint() {
    let store = open(MemoryDisk::new(1));
    let made = |bytes| TableFile::new(&store.files, store.files.next_number(), bytes, None, Hold::default());
    let (before, after) = (made(1000), made(10));
    let swept = store.files.sweep(false, after.number(), |_| false);
    assert_eq!((swept.left_bytes, swept.is_all), (1000, false));
    drop(before);
    let swept = store.files.sweep(false, after.number(), |_| false);
    assert_eq!((swept.left_bytes, swept.is_all), (0, false));
    drop(after);
    assert!(store.files.sweep(false, 0, |_| false).is_all);
}

/// Its rows may be lost, and the log that they came from goes with the checkpoint: nothing may be built on
/// it.
#[test]
fn a_table_that_cannot_be_synced_poisons_the_store_and_is_not_named() {
    let disk = FaultyDisk::new(MemoryDisk::new(1));
    let store = open(disk.clone());
    put(&store, b"key");
    let _kept = table(&store);
    let before = store.checkpoint.with_durable(|root| root.checkpoint);
    disk.fail(Some(Call::Sync), 0, Fault::Io, Times::Once);
    assert_eq!(store.checkpoint_now(false).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(disk.open_plans(), 0);
    assert_eq!(store.checkpoint.with_durable(|root| root.checkpoint), before);
    assert!(store.poison.allow_write().is_err() && has(&store, b"key"));
}

/// A disk that says when its directory is being synced, and notes whether somebody takes that for done
/// meanwhile.
#[derive(Debug)]
struct SlowDirectory {
    inside: Arc<MemoryDisk>,
    begun: mpsc::SyncSender<()>,
    returned: Mutex<mpsc::Receiver<()>>,
    was_early: AtomicBool,
}

/// How long a sync of the slow directory lasts if nobody takes it for done.
const SYNC_TIME: Duration = Duration::from_millis(200);

impl Disk for SlowDirectory {
    fn sync_dir(&self) -> io::Result<()> {
        if self.begun.try_send(()).is_ok() {
            let is_early = self.returned.lock().unwrap().recv_timeout(SYNC_TIME).is_ok();
            self.was_early.store(is_early, Ordering::SeqCst);
        }
        self.inside.sync_dir()
    }

    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.inside.create(name)
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.inside.open(name)
    }

    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.inside.rename(from, to)
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        self.inside.remove(name)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        self.inside.list()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.inside.lock()
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        self.inside.new_directory(path)
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        self.inside.link(name, into)
    }

    fn queue(&self, depth: usize) -> io::Result<Arc<dyn kvilt_base::Queue>> {
        self.inside.queue(depth)
    }

    fn habitat(&self) -> io::Result<kvilt_base::disk::Habitat> {
        self.inside.habitat()
    }

    fn now_ns(&self) -> u64 {
        self.inside.now_ns()
    }

    fn place(&self) -> String {
        self.inside.place()
    }
}

#[test]
fn nobody_takes_new_names_for_durable_while_another_syncs_them() {
    let (begun, has_begun) = mpsc::sync_channel(0);
    let (return_, returned) = mpsc::channel();
    let disk = Arc::new(SlowDirectory {
        inside: MemoryDisk::new(1),
        begun,
        returned: Mutex::new(returned),
        was_early: AtomicBool::new(false),
    });
    let store = open(disk.clone());
    let files = &store.files;
    let hold = Hold::default();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            // As the leader of a group does that begins a commit log while a checkpoint runs.
            has_begun.recv().unwrap();
            files.sync_names().unwrap();
            let _ = return_.send(());
        });
        while !other.is_finished() && !disk.was_early.load(Ordering::SeqCst) {
            files.create(FileName::Of(LOG, files.next_number()), &hold).unwrap();
            files.sync_names().unwrap();
        }
    });
    assert!(
        !disk.was_early.load(Ordering::SeqCst),
        "a sync of names returned before the directory was synced"
    );
}

#[test]
fn a_checkpoint_above_the_current_version_is_reported_as_e_9() {
    let store = open(MemoryDisk::new(1));
    put(&store, b"key");
    store.checkpoint_now(false).unwrap();
    store.checkpoint.durable.lock().root.checkpoint = store.versions.current().next_epoch();
    let report = store.check(&mut |_| true).unwrap();
    let found: Vec<&str> = report.damages.iter().map(|damage| damage.what.as_str()).collect();
    // And the manifest on the disk says something else than this run thinks it said.
    assert_eq!(found, ["E-9", "F-2"], "{report:?}");
}

#[test]
fn an_epoch_is_forgotten_with_the_last_log_that_may_have_records_of_it() {
    let store = open(MemoryDisk::new(1));
    let mut durable = store.checkpoint.durable.lock();
    let at = Version::new;
    let (first, second) = ((at(0, 10), at(1, 0)), (at(1, 20), at(2, 0)));
    durable.dead = vec![first, second];
    let needed = |durable: &Durable, logs: &[(u64, Version)], tables: &[(u64, Version)]| {
        let record = |kind, &(number, base): &(u64, Version)| {
            (number, FileRecord { kind, len: 100, base, summary: None })
        };
        let logs = logs.iter().map(|file| record(PartKind::Log, file));
        let tables = tables.iter().map(|file| record(PartKind::Table, file));
        store.needed_dead(durable, &Edit { files_upserted: logs.chain(tables).collect(), ..Edit::default() })
    };
    assert_eq!(needed(&durable, &[], &[]), []);
    assert_eq!(
        needed(&durable, &[], &[(5, at(0, 5)), (6, at(1, 5))]),
        [],
        "tables have nothing of a dead epoch"
    );
    assert_eq!(needed(&durable, &[(5, at(0, 5))], &[]), [first]);
    // Begun behind the checkpoint, so it may have nothing but dead records.
    assert_eq!(needed(&durable, &[(5, at(0, 11))], &[]), [first]);
    assert_eq!(needed(&durable, &[(5, at(1, 0))], &[]), [second], "the first of the new epoch");
    assert_eq!(needed(&durable, &[(5, at(2, 0)), (6, at(0, 1)), (7, at(1, 30))], &[]), [first, second]);
    assert_eq!(needed(&durable, &[(5, at(2, 0)), (6, at(2, 9))], &[]), []);
    // The same of files that the manifest has already, unless they go.
    let log = FileRecord { kind: PartKind::Log, len: 100, base: at(1, 3), summary: None };
    durable.root.files.insert(9, log);
    assert_eq!(needed(&durable, &[], &[]), [second]);
    let removal = Edit { files_removed: vec![9], ..Edit::default() };
    assert_eq!(store.needed_dead(&durable, &removal), []);
    durable.root.files.remove(&9);
}
