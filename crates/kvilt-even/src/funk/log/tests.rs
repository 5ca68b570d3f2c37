//! Puts beside a flush whose write is held up, and what becomes of both when it fails.

use std::{
    any::Any,
    path::Path,
    sync::{Mutex as StdMutex, mpsc},
    thread,
    time::Duration,
};

use crate::parts;
use kvilt_base::{Disk, Listed, disk::LockFailure};
use kvilt_format::{
    log::{Decoded, decode_record, encode_record, record_len_max},
    names::LOG,
};
use kvilt_io::{Keep, MemoryDisk};

use super::*;
use crate::{bed, chunk::put::Change, options::Options, store::Store};

/// A bound for what returns at once when it is right, and never when it is wrong.
const NEVER: Duration = Duration::from_secs(60);

/// Offsets and lengths.
type Places = Arc<StdMutex<Vec<(u64, u64)>>>;

/// A disk of which the next write to a log can be held up, and which notes what is written to logs and what
/// of them need not be kept in memory.
#[derive(Debug)]
struct HeldDisk {
    inside: Arc<MemoryDisk>,
    held: Arc<StdMutex<Option<Held>>>,
    written: Places,
    let_go: Places,
}

/// The ends of the write that is held up.
#[derive(Debug)]
struct Held {
    has_begun: mpsc::Sender<()>,
    outcome: mpsc::Receiver<io::Result<()>>,
}

/// The ends of the test.
struct Holder {
    has_begun: mpsc::Receiver<()>,
    outcome: mpsc::Sender<io::Result<()>>,
}

impl HeldDisk {
    fn new() -> Arc<Self> {
        let (held, written, let_go) = Default::default();
        Arc::new(HeldDisk { inside: MemoryDisk::new(1), held, written, let_go })
    }

    fn hold_next_write(&self) -> Holder {
        let (begin, has_begun) = mpsc::channel();
        let (settle, outcome) = mpsc::channel();
        *self.held.lock().unwrap() = Some(Held { has_begun: begin, outcome });
        Holder { has_begun, outcome: settle }
    }

    fn file(&self, inside: Arc<dyn File>) -> Arc<dyn File> {
        let [written, let_go] = [&self.written, &self.let_go].map(Arc::clone);
        Arc::new(HeldFile { inside, held: Arc::clone(&self.held), written, let_go })
    }
}

#[derive(Debug)]
struct HeldFile {
    inside: Arc<dyn File>,
    held: Arc<StdMutex<Option<Held>>>,
    written: Places,
    let_go: Places,
}

impl File for HeldFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.name(), FileName::Of(LOG, _)) {
            let held = self.held.lock().unwrap().take();
            if let Some(held) = held {
                held.has_begun.send(()).unwrap();
                held.outcome.recv().unwrap()?;
            }
            self.written.lock().unwrap().push((offset, bytes.len() as u64));
        }
        self.inside.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inside.read_at(offset, buffer)
    }

    fn will_not_read(&self, offset: u64, len: u64) {
        self.let_go.lock().unwrap().push((offset, len));
    }

    fn sync(&self) -> io::Result<()> {
        self.inside.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inside.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.inside.len()
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<kvilt_base::Mapping>> {
        self.inside.map(offset, len)
    }

    fn changed_ns(&self) -> io::Result<u64> {
        self.inside.changed_ns()
    }

    fn name(&self) -> FileName {
        self.inside.name()
    }
}

impl Disk for HeldDisk {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.inside.create(name).map(|file| self.file(file))
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.inside.open(name).map(|file| self.file(file))
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

    fn sync_dir(&self) -> io::Result<()> {
        self.inside.sync_dir()
    }

    fn lock(&self) -> std::result::Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.inside.lock()
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        self.inside.new_directory(path)
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        self.inside.link(name, into)
    }

    fn queue(&self, _depth: usize) -> io::Result<Arc<dyn kvilt_base::Queue>> {
        Err(io::ErrorKind::Unsupported.into())
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

fn open(disk: &Arc<HeldDisk>) -> Arc<Store> {
    bed::open(disk.clone(), &Options::tiny())
}

/// Appends a put of now; says where it lies.
fn append(store: &Store, log: &ChunkLog, key: &[u8], value: &[u8]) -> Result<u64> {
    bed::append(store, log, put(store, key, value))
}

/// The same, where there is room for it.
fn append_promised(store: &Store, log: &ChunkLog, key: &[u8], value: &[u8]) -> u64 {
    bed::append_promised(store, log, put(store, key, value))
}

fn put<'e>(store: &Store, key: &'e [u8], value: &'e [u8]) -> EntryRef<'e> {
    EntryRef { key, version: store.versions.current(), kind: Kind::Put, value }
}

fn keys_of(store: &Store, log: &ChunkLog) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut note = |_, entry: EntryRef<'_>, _| {
        keys.push(entry.key.to_vec());
        Ok(())
    };
    log.for_each(&store.files, 0, log.len(), &mut note).unwrap();
    keys
}

fn key_at(store: &Store, log: &ChunkLog, offset: u64) -> Vec<u8> {
    log.record_at(&store.files, offset, |entry, _| entry.key.to_vec()).unwrap()
}

/// Begins a sync of a log with the record `first`, appends `second` while its write is held up, looks at
/// both, and then lets the write come to `outcome`. Says what the sync came to.
fn beside_a_held_write(
    disk: &Arc<HeldDisk>,
    store: &Arc<Store>,
    log: &Arc<ChunkLog>,
    outcome: io::Result<()>,
) -> Result<()> {
    let first = append(store, log, b"first", b"1").unwrap();
    let holder = disk.hold_next_write();
    thread::scope(|scope| {
        let sync = scope.spawn(|| log.sync(&store.files));
        holder.has_begun.recv().unwrap();
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            let second = append(store, log, b"second", b"2").unwrap();
            assert_eq!(key_at(store, log, first), b"first");
            assert_eq!(key_at(store, log, second), b"second");
            assert_eq!(keys_of(store, log), [b"first".to_vec(), b"second".to_vec()]);
            tell.send(()).unwrap();
        });
        let was_let_in = told.recv_timeout(NEVER);
        holder.outcome.send(outcome).unwrap();
        was_let_in.expect("the log takes records while a write is under way");
        sync.join().unwrap()
    })
}

#[test]
fn of_what_is_synced_whole_pages_are_let_go_once() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    append(&store, &log, b"key", &[7; 5000]).unwrap();
    log.let_go();
    assert_eq!(*disk.let_go.lock().unwrap(), [], "nothing was synced");
    log.sync(&store.files).unwrap();
    log.let_go();
    log.let_go();
    append(&store, &log, b"key", &[8; 9000]).unwrap();
    log.let_go();
    assert_eq!(*disk.let_go.lock().unwrap(), [(0, 4096)]);
    log.sync(&store.files).unwrap();
    log.let_go();
    assert_eq!(*disk.let_go.lock().unwrap(), [(0, 4096), (4096, 8192)]);
}

/// The checkpoint does so with logs of chunks that have a munk, while nearly all have.
#[test]
fn a_checkpoint_lets_go_of_what_munks_have() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    store.apply_one(Change { key: b"key", value: Some(&[7; 5000]) }, IfFull::Fail).unwrap();
    store.checkpoint_now(false).unwrap();
    assert_eq!(*disk.let_go.lock().unwrap(), [(0, 4096)]);
}

/// E-7: the announced put waited for the write.
#[test]
fn a_put_goes_through_while_a_flush_writes() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    beside_a_held_write(&disk, &store, &log, Ok(())).unwrap();
    let durable = log.durable_len();
    assert_eq!(disk.inside.contents(log.name()).unwrap().len() as u64, durable, "the first record alone");
    log.sync(&store.files).unwrap();
    assert!(log.durable_len() == log.len() && log.len() > durable && log.buffered_bytes() == 0);
    assert_eq!(keys_of(&store, &log), [b"first".to_vec(), b"second".to_vec()]);
}

#[test]
fn after_a_flush_that_failed_everything_is_still_there_and_goes_to_the_file_in_order() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let error = beside_a_held_write(&disk, &store, &log, Err(full)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!((log.durable_len(), log.buffered_bytes()), (0, log.len()));
    assert_eq!(keys_of(&store, &log), [b"first".to_vec(), b"second".to_vec()]);
    append(&store, &log, b"third", &[3; 600]).unwrap();
    log.sync(&store.files).unwrap();
    assert_eq!((log.durable_len(), log.buffered_bytes()), (log.len(), 0));
    assert_eq!(keys_of(&store, &log), [b"first".to_vec(), b"second".to_vec(), b"third".to_vec()]);
}

/// Room that a put was promised while a write was under way is there whatever becomes of the write.
#[test]
fn a_promise_outlives_a_flush_and_its_failure() {
    for outcome in [Ok(()), Err(io::Error::from(io::ErrorKind::StorageFull))] {
        let is_failure = outcome.is_err();
        let disk = HeldDisk::new();
        let store = open(&disk);
        let log = ChunkLog::create(&store.files, store.epoch_base);
        append(&store, &log, b"before", b"").unwrap();
        let holder = disk.hold_next_write();
        thread::scope(|scope| {
            let sync = scope.spawn(|| log.sync(&store.files));
            holder.has_begun.recv().unwrap();
            let room = (2, 2 * record_len_max(1, 900));
            log.reserve(&store.files, room, store.config.log_buffer_bytes_max, IfFull::Fail).unwrap();
            append_promised(&store, &log, b"a", &[7; 900]);
            holder.outcome.send(outcome).unwrap();
            assert_eq!(sync.join().unwrap().is_err(), is_failure);
        });
        append_promised(&store, &log, b"b", &[7; 900]);
        log.sync(&store.files).unwrap();
        assert_eq!(keys_of(&store, &log), [b"before".to_vec(), b"a".to_vec(), b"b".to_vec()]);
    }
}

/// The whole way of a put: the store takes it, and a crash behind the next checkpoint keeps it.
#[test]
fn a_put_beside_a_checkpoint_that_writes_is_kept_by_the_next() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    let put = |key: &[u8]| store.apply_one(Change { key, value: Some(b"value") }, IfFull::Fail).unwrap();
    put(b"before");
    let holder = disk.hold_next_write();
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint_now(false));
        holder.has_begun.recv().unwrap();
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            put(b"behind");
            tell.send(()).unwrap();
        });
        let was_let_in = told.recv_timeout(NEVER);
        holder.outcome.send(Ok(())).unwrap();
        was_let_in.expect("the store takes a put while a checkpoint writes its log");
        checkpoint.join().unwrap().unwrap();
    });
    store.checkpoint_now(false).unwrap();
    let left = bed::open(disk.inside.crash_image(Keep::SyncedOnly), &Options::tiny());
    for key in [b"before", b"behind"] {
        assert!(has(&left, key));
    }
}

/// Puts a value that fills most of a buffer, so that each one but the first finds a full one.
fn put_long(store: &Store, key: &[u8]) -> Result<()> {
    store.apply_one(Change { key, value: Some(&[7; 270]) }, IfFull::Fail)
}

fn has(store: &Store, key: &[u8]) -> bool {
    store.get(key, Version::NEWEST, &mut |_| {}).unwrap()
}

/// The gate is free while a put writes the buffer that it found full: others put to the chunk, and read what
/// was put.
#[test]
fn a_full_buffer_is_written_while_others_put() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    put_long(&store, b"a").unwrap();
    let holder = disk.hold_next_write();
    thread::scope(|scope| {
        let writes = scope.spawn(|| put_long(&store, b"b"));
        holder.has_begun.recv().unwrap();
        let (tell, told) = mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            store.apply_one(Change { key: b"c", value: Some(b"short") }, IfFull::Fail).unwrap();
            tell.send([b"a", b"b", b"c"].map(|key| has(store, key))).unwrap();
        });
        let seen = told.recv_timeout(NEVER);
        holder.outcome.send(Ok(())).unwrap();
        assert_eq!(seen, Ok([true; 3]), "the chunk takes puts while a buffer of its log is written");
        writes.join().unwrap().unwrap();
    });
    store.checkpoint_now(false).unwrap();
    let left = bed::open(disk.inside.crash_image(Keep::SyncedOnly), &Options::tiny());
    assert_eq!([b"a", b"b", b"c"].map(|key| has(&left, key)), [true; 3]);
}

/// The put that could not write it has been done; the next that needs a buffer tries again, and is refused if
/// that fails, too.
#[test]
fn what_could_not_be_written_behind_the_gate_is_told_to_the_next_put() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
    let put_and_meet = |key: &[u8], outcome: io::Result<()>| {
        let holder = disk.hold_next_write();
        holder.outcome.send(outcome).unwrap();
        let done = put_long(&store, key);
        assert_eq!(holder.has_begun.try_recv(), Ok(()), "it wrote");
        done
    };
    put_long(&store, b"a").unwrap();
    put_and_meet(b"b", full()).unwrap();
    assert!(has(&store, b"b"));
    assert_eq!(put_and_meet(b"c", full()).unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(!has(&store, b"c"));
    put_and_meet(b"d", Ok(())).unwrap();
    put_and_meet(b"e", Ok(())).unwrap();
    store.checkpoint_now(false).unwrap();
    let left = bed::open(disk.inside.crash_image(Keep::SyncedOnly), &Options::tiny());
    assert_eq!([b"a", b"b", b"c", b"d", b"e"].map(|key| has(&left, key)), [true, true, false, true, true]);
}

/// A log with large buffers, for pieces of 4 KiB.
fn with_large_buffers(disk: &Arc<HeldDisk>) -> (Arc<Store>, Arc<ChunkLog>) {
    let options = Options { log_buffer_bytes_max: 8 << 10, log_summary_percent: 0, ..Options::tiny() };
    let store = bed::open(disk.clone(), &options);
    // Nothing is set aside before it has its reserve.
    store.checkpoint_now(false).unwrap();
    let log = ChunkLog::create(&store.files, store.epoch_base);
    (store, log)
}

/// Appends records of many lengths, as many as the last of these numbers says, and looks at each and at one
/// before it.
fn append_many(store: &Store, log: &ChunkLog, numbers: Range<usize>, offsets: &mut Vec<u64>) {
    let key = |i: usize| format!("key {i}").into_bytes();
    for i in numbers {
        // Now and then one that is longer than what a buffer carries over, or than a whole one.
        let len = if i % 97 == 0 { 1_500 } else { i * 37 % 110 } + if i % 311 == 7 { 20_000 } else { 0 };
        offsets.push(append(store, log, &key(i), &vec![i as u8; len]).unwrap());
        for at in [i, i * 5 / 7] {
            assert_eq!(key_at(store, log, offsets[at]), key(at));
        }
    }
}

/// 0055.
#[test]
fn full_buffers_are_written_up_to_where_a_piece_ends_and_no_byte_is_written_twice() {
    let disk = HeldDisk::new();
    let (store, log) = with_large_buffers(&disk);
    let mut offsets = Vec::new();
    for until in [700, 1_000, 3_000] {
        append_many(&store, &log, offsets.len()..until, &mut offsets);
        log.sync(&store.files).unwrap();
        assert_eq!(keys_of(&store, &log).len(), until);
    }
    let written = disk.written.lock().unwrap();
    let ends: Vec<u64> = written.iter().map(|(offset, len)| offset + len).collect();
    assert!(written[0].0 == 0 && ends.iter().zip(&written[1..]).all(|(end, next)| *end == next.0));
    assert_eq!(ends.last(), Some(&log.len()));
    let even = ends.iter().filter(|end| **end % (4 << 10) == 0).count();
    assert!(ends.len() > 30 && even * 2 >= ends.len(), "{even} of {}: {written:?}", ends.len());
    let name = log.name();
    let file = disk.inside.contents(name).unwrap();
    for (i, offset) in offsets.iter().enumerate() {
        let decoded =
            decode_record(&file[*offset as usize..], store.files.identity(log.number()), *offset, log.base());
        assert!(
            matches!(decoded, Decoded::Record { entry, .. } if entry.key == format!("key {i}").as_bytes())
        );
    }
}

#[test]
fn a_piece_that_could_not_be_written_is_written_with_what_came_since() {
    for failures in 1..4 {
        let disk = HeldDisk::new();
        let (store, log) = with_large_buffers(&disk);
        let mut offsets = Vec::new();
        append_many(&store, &log, 0..1_000, &mut offsets);
        for _ in 0..failures {
            let holder = disk.hold_next_write();
            holder.outcome.send(Err(io::Error::from(io::ErrorKind::StorageFull))).unwrap();
            let writes_before = disk.written.lock().unwrap().len();
            // Until a full buffer meets it: behind the gate, so nobody is told, and then before the gate, who
            // is.
            while holder.has_begun.try_recv().is_err() {
                let i = offsets.len();
                match append(&store, &log, format!("key {i}").as_bytes(), &[i as u8; 70]) {
                    Ok(offset) => offsets.push(offset),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace),
                }
            }
            assert_eq!(disk.written.lock().unwrap().len(), writes_before);
            for (i, offset) in offsets.iter().enumerate() {
                assert_eq!(key_at(&store, &log, *offset), format!("key {i}").into_bytes());
            }
        }
        append_many(&store, &log, offsets.len()..offsets.len() + 500, &mut offsets);
        log.sync(&store.files).unwrap();
        let keys: Vec<Vec<u8>> = (0..offsets.len()).map(|i| format!("key {i}").into_bytes()).collect();
        assert_eq!(keys_of(&store, &log), keys);
        let written = disk.written.lock().unwrap();
        assert!(written.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{written:?}");
    }
}

#[test]
fn the_index_of_a_log_that_was_closed_takes_little_memory_and_finds_what_it_did() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    let key = |i: u64| format!("key {}", i % 300).into_bytes();
    let mut offsets = Vec::new();
    for i in 0..500 {
        let offset = append(&store, &log, &key(i), b"value").unwrap();
        log.index_record(&key(i), offset);
        offsets.push(offset);
    }
    let charged = || store.files.budget.used(parts::LOG_INDEXES);
    let index = || Arc::clone(log.index.load(&pin()).as_ref().unwrap());
    let (growing, before) = (index(), charged());
    log.age(&store.files, 1);
    assert!(Arc::ptr_eq(&growing, &index()), "more records may come");
    log.close();
    log.age(&store.files, 1);
    let fixed = index();
    // Eight bytes a record, and four for eight of them; what still grows may have twice as many.
    assert_eq!(fixed.index.bytes(), 500 * 8 + 64 * 4);
    drop(growing);
    let is_charged_less = |_: &u32| {
        // Another test's thread may be stopped under a pin.
        thread::yield_now();
        kvilt_sync::published::settle();
        charged() < before
    };
    (0..100_000).find(is_charged_less);
    assert!(charged() < before, "{} of {before}", charged());
    for i in 0..300 {
        let expected: Vec<u64> =
            (0..500).rev().filter(|n| n % 300 == i).map(|n| offsets[n as usize]).collect();
        assert_eq!(fixed.index.offsets(&pin(), key_hash(&key(i))).collect::<Vec<_>>(), expected);
    }
    log.age(&store.files, 1);
    assert!(Arc::ptr_eq(&fixed, &index()), "once");
    log.forget(true);
    let again = log.index(&store.files).unwrap();
    assert_eq!(again.index.bytes(), fixed.index.bytes(), "what is read of a closed log as well");
}

/// E-23.
#[test]
fn a_buffer_on_the_heap_takes_over_nothing_from_one_in_the_pool() {
    let disk = HeldDisk::new();
    let options = Options { log_buffer_bytes_max: 8 << 10, log_summary_percent: 0, ..Options::tiny() };
    let store = bed::open(disk.clone(), &options);
    let log = ChunkLog::create(&store.files, store.epoch_base);
    let pool = store.files.pool.as_ref().unwrap();
    let elsewhere = Place { log: 1 << 40, offset: 0 };
    let key = b"key".as_slice();
    let room = (1, kvilt_format::log::record_len_max(key.len(), 70));
    let mut heaps = 0;
    for i in 0..2_000_u32 {
        let is_full = !log.end().is_nothing_filled() && !log.end().has_room(room.1);
        // Others have all of the pool, and it can get no more.
        let all =
            || (12..=20).rev().flat_map(|bits| std::iter::from_fn(move || pool.slot(1 << bits, elsewhere)));
        let taken: Vec<_> = if is_full { all().collect() } else { Vec::new() };
        let is_aside = log.reserve(&store.files, room, 8 << 10, IfFull::Fail).unwrap();
        if is_full && !log.end().filling.unwrap().is_in_pool() {
            assert!(log.end().is_nothing_filled(), "put {i}");
            heaps += 1;
        }
        drop(taken);
        append_promised(&store, &log, key, &[i as u8; 70]);
        log.write_through(&store.files);
        if is_aside {
            log.write_aside(&store.files);
        }
    }
    assert!(heaps > 1, "{heaps}");
}

/// E-23. A summary begins a buffer that with it is too long for the pool; a checkpoint sets that aside, and
/// leaves one to the put that relies on it, which would have room in the pool.
#[test]
fn what_follows_bytes_that_a_kill_takes_is_not_in_the_pool_either() {
    let disk = HeldDisk::new();
    let store = open(&disk);
    let before: Vec<[u8; 1]> = (0..20).map(|i| [i]).collect();
    for key in &before {
        store.apply_one(Change { key, value: Some(&[7; 70]) }, IfFull::Fail).unwrap();
    }
    let state = store.index.load(&pin()).find(b"later").state(&pin()).clone();
    let log = state.funk.log.as_ref().unwrap();
    // What the pool has at most for one buffer is 1 MiB.
    let room = (1, (1 << 20) - 10);
    if log.reserve(&store.files, room, store.config.log_buffer_bytes_max, IfFull::Fail).unwrap() {
        log.write_aside(&store.files);
    }
    let (begin, summary) = (log.end().filling_start(), log.end().filling.unwrap());
    assert!(!summary.is_in_pool() && summary.len() > 0);
    let holder = disk.hold_next_write();
    let [torn, behind] = thread::scope(|scope| {
        let out = scope.spawn(|| log.write_out(&store.files).map(drop));
        holder.has_begun.recv().unwrap();
        let torn = disk.inside.kill_image();
        let half = &summary.bytes.read()[..summary.len() / 2];
        torn.open(log.name()).unwrap().write_all_at(begin, half).unwrap();
        append_promised(&store, log, b"later", b"value");
        log.write_through(&store.files);
        let behind = disk.inside.kill_image();
        holder.outcome.send(Ok(())).unwrap();
        out.join().unwrap().unwrap();
        [torn, behind]
    });
    let has = |store: &Store, key: &[u8]| store.get(key, store.versions.current(), &mut |_| {}).unwrap();
    for (image, is_behind) in [(torn, false), (behind, true)] {
        let store = bed::open(image, &Options::tiny());
        let found = before.iter().filter(|key| has(&store, &key[..])).count();
        assert_eq!((found, has(&store, b"later")), (before.len(), is_behind));
        assert_eq!(store.check(&mut |_| true).unwrap().damages.len(), 0);
    }
}

/// A checkpoint that began before a batch names nothing of it while it is not whole, else a kill finds less
/// of the log than the manifest names, or a part of the batch.
#[test]
fn a_checkpoint_beside_a_batch_names_nothing_of_it() {
    // For one in the pool, and for one that has no room there.
    for pool_bytes_max in [u64::MAX, 0] {
        let disk = HeldDisk::new();
        let options = Options { pool_bytes_max, ..Options::tiny() };
        let store = bed::open(disk.clone(), &options);
        let put = |key| store.apply_one(Change { key, value: Some(b"value") }, IfFull::Fail).unwrap();
        // The checkpoint writes this log first.
        let first = ChunkLog::create(&store.files, store.epoch_base);
        append(&store, &first, b"key", b"value").unwrap();
        first.becomes_dirty();
        store.dirty.lock().push(Arc::clone(&first));
        put(b"before".as_slice());
        let state = store.index.load(&pin()).find(b"batch").state(&pin()).clone();
        let log = state.funk.log.as_ref().unwrap();
        let holder = disk.hold_next_write();
        let image = thread::scope(|scope| {
            let checkpoint = scope.spawn(|| store.checkpoint_now(false));
            holder.has_begun.recv().unwrap();
            put(b"between");
            let room = (2, 2 * record_len_max(6, 5));
            log.reserve(&store.files, room, store.config.log_buffer_bytes_max, IfFull::Fail).unwrap();
            let batch = store.begin_batch(std::iter::once(log));
            let (offset, mut record) = (log.len(), Vec::new());
            let (version, id) = (batch.pending.version(), batch.pending.batch());
            let entry = EntryRef { key: b"batch", version, kind: Kind::Put, value: b"value" };
            encode_record(&mut record, log.identity, offset, log.base(), entry, id);
            log.append(entry, [&record, &[]], offset);
            holder.outcome.send(Ok(())).unwrap();
            checkpoint.join().unwrap().unwrap();
            disk.inside.kill_image()
        });
        let store = bed::open(image, &options);
        let has = |key: &[u8]| store.get(key, store.versions.current(), &mut |_| {}).unwrap();
        assert_eq!([&b"before"[..], b"between", b"batch"].map(has), [true, true, false], "{pool_bytes_max}");
    }
}
