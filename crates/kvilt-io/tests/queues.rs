//! What every `Queue` does: each check, run over each backend, with files past the page cache and through it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::{HashMap, HashSet},
    io::{self, ErrorKind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use kvilt_base::{
    Completed, Disk, File, FileName, Mapping, MeansKind, Queue, Transfer, Work,
    disk::FileKind,
    queue::{BLOCK_BYTES, aligned},
};
use kvilt_io::{FaultyDisk, MemoryDisk, NativeDisk, QueueBy, SeededRng};

const SLAB: FileKind = FileKind::direct("slab");
const LOG: FileKind = FileKind::new("log");
const KINDS: &[FileKind] = &[SLAB, LOG];
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A disk, and how its queues are made.
struct Backend {
    name: &'static str,
    disk: Arc<dyn Disk>,
    by: Option<(Arc<NativeDisk>, QueueBy)>,
    _place: Option<tempfile::TempDir>,
}

impl Backend {
    fn queue(&self, depth: usize) -> Arc<dyn Queue> {
        match &self.by {
            Some((disk, by)) => disk.queue_by(depth, *by),
            None => self.disk.queue(depth).unwrap(),
        }
    }

    fn native(name: &'static str, by: QueueBy) -> Backend {
        let place = tempfile::tempdir().unwrap();
        let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
        Backend { name, disk: disk.clone(), by: Some((disk, by)), _place: Some(place) }
    }

    fn memory(name: &'static str, disk: Arc<dyn Disk>) -> Backend {
        Backend { name, disk, by: None, _place: None }
    }
}

/// Runs a check over each backend and each kind of file.
fn each(check: impl Fn(&Backend, FileKind)) {
    for kind in [SLAB, LOG] {
        for backend in [
            Backend::memory("memory", MemoryDisk::new(3)),
            Backend::memory("faulty", FaultyDisk::new(MemoryDisk::new(4))),
            Backend::native("threads", QueueBy::Threads),
            Backend::native("best", QueueBy::Best),
        ] {
            println!("{} {kind:?} {:?}", backend.name, backend.queue(1).means());
            check(&backend, kind);
        }
    }
}

fn read(token: u64, file: &Arc<dyn File>, offset: u64, len: usize) -> Transfer {
    Transfer { token, file: file.clone(), offset, work: Work::Read(aligned(len)) }
}

fn write(token: u64, file: &Arc<dyn File>, offset: u64, bytes: &[u8], is_durable: bool) -> Transfer {
    Transfer { token, file: file.clone(), offset, work: written(bytes, is_durable) }
}

fn written(bytes: &[u8], is_durable: bool) -> Work {
    let mut buffer = aligned(bytes.len());
    buffer.copy_from_slice(bytes);
    Work::Write { bytes: buffer.freeze(), is_durable }
}

/// Reaps until this number has completed: each does once, with its buffer (D-9).
fn reaped(queue: &dyn Queue, count: usize) -> HashMap<u64, Completed> {
    let mut done = Vec::new();
    while done.len() < count {
        let before = done.len();
        queue.reap(&mut done);
        assert!(done.len() > before, "something is in flight, so a reap waits for it");
    }
    let by_token: HashMap<u64, Completed> = done.into_iter().map(|c| (c.token, c)).collect();
    assert_eq!(by_token.len(), count, "each completes once");
    let mut more = Vec::new();
    queue.reap(&mut more);
    assert!(more.is_empty(), "nothing is in flight");
    by_token
}

fn filled(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed as usize ^ at ^ (at >> 8)) as u8).collect()
}

#[test]
fn what_is_written_is_read_back_with_many_in_flight() {
    const BLOCKS: u64 = 96;
    each(|backend, kind| {
        let files = [1, 2, 3].map(|n| backend.disk.create(FileName::Of(kind, n)).unwrap());
        let mut model = vec![filled(0, BLOCKS as usize * BLOCK_BYTES); files.len()];
        for (file, bytes) in files.iter().zip(&model) {
            let mut buffer = aligned(bytes.len());
            buffer.copy_from_slice(bytes);
            file.write_all_at(0, &buffer).unwrap();
        }
        let queue = backend.queue(16);
        let rng = SeededRng::new(7);
        let mut token = 0;
        for round in 0..40 {
            let mut batch = Vec::new();
            let mut expected = HashMap::new();
            let mut taken = HashSet::new();
            for _ in 0..rng.below(48) + 1 {
                token += 1;
                let file = rng.below(files.len() as u64) as usize;
                let (block, count) = (rng.below(BLOCKS - 4), rng.below(4) + 1);
                if !(block..block + count).all(|block| taken.insert((file, block))) {
                    continue;
                }
                let range = (block * BLOCK) as usize..((block + count) * BLOCK) as usize;
                if rng.below(2) == 0 {
                    expected.insert(token, model[file][range.clone()].to_vec());
                    batch.push(read(token, &files[file], block * BLOCK, range.len()));
                } else {
                    let bytes = filled(token, range.len());
                    batch.push(write(token, &files[file], block * BLOCK, &bytes, rng.below(4) == 0));
                    model[file][range].copy_from_slice(&bytes);
                }
            }
            let count = batch.len();
            queue.submit(batch);
            for (token, completed) in reaped(&*queue, count) {
                completed.outcome.unwrap();
                if let Some(expected) = expected.get(&token) {
                    assert!(completed.work.bytes() == expected, "{}: round {round}", backend.name);
                }
            }
        }
        for (file, bytes) in files.iter().zip(&model) {
            let mut buffer = aligned(bytes.len());
            file.read_exact_at(0, &mut buffer).unwrap();
            assert!(buffer[..] == bytes[..], "{}: what a file reads is what queues wrote", backend.name);
        }
    });
}

#[test]
fn a_read_past_the_end_is_an_error_and_one_up_to_it_is_none() {
    each(|backend, kind| {
        let file = backend.disk.create(FileName::Of(kind, 1)).unwrap();
        let queue = backend.queue(8);
        queue.submit(vec![write(0, &file, BLOCK, &filled(1, 2 * BLOCK_BYTES), false)]);
        reaped(&*queue, 1).remove(&0).unwrap().outcome.unwrap();
        assert_eq!(file.len().unwrap(), 3 * BLOCK, "a write grows the file");
        queue.submit(vec![
            read(1, &file, 0, 3 * BLOCK_BYTES),
            read(2, &file, 0, 4 * BLOCK_BYTES),
            read(3, &file, 3 * BLOCK, BLOCK_BYTES),
            read(4, &file, 1 << 40, BLOCK_BYTES),
            read(5, &file, 2 * BLOCK, 0),
        ]);
        let mut done = reaped(&*queue, 5);
        let whole = done.remove(&1).unwrap();
        whole.outcome.unwrap();
        assert!(whole.work.bytes()[..BLOCK_BYTES].iter().all(|byte| *byte == 0), "a gap reads as zeros");
        assert!(whole.work.bytes()[BLOCK_BYTES..] == filled(1, 2 * BLOCK_BYTES));
        for token in [2, 3, 4] {
            let completed = done.remove(&token).unwrap();
            assert_eq!(completed.outcome.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{token}");
        }
        done.remove(&5).unwrap().outcome.unwrap();
    });
}

#[test]
fn a_file_that_ends_within_a_block_ends_there() {
    for by in [QueueBy::Threads, QueueBy::Best] {
        let place = tempfile::tempdir().unwrap();
        let name = FileName::Of(SLAB, 1);
        std::fs::write(place.path().join(name.to_string()), filled(5, 6000)).unwrap();
        let disk = NativeDisk::open(place.path(), KINDS, false).unwrap();
        let (file, queue) = (disk.open(name).unwrap(), disk.queue_by(4, by));
        queue.submit(vec![read(1, &file, 0, BLOCK_BYTES), read(2, &file, 0, 2 * BLOCK_BYTES)]);
        let done = reaped(&*queue, 2);
        assert!(done[&1].outcome.is_ok() && done[&1].work.bytes() == &filled(5, 6000)[..BLOCK_BYTES]);
        assert_eq!(done[&2].outcome.as_ref().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn large_transfers_are_whole() {
    const LEN: usize = 4 << 20;
    each(|backend, kind| {
        let file = backend.disk.create(FileName::Of(kind, 1)).unwrap();
        let queue = backend.queue(2);
        let parts: Vec<_> =
            (0..4u64).map(|n| write(n, &file, n * LEN as u64, &filled(n * 31, LEN), n % 2 == 0)).collect();
        queue.submit(parts);
        assert!(reaped(&*queue, 4).values().all(|completed| completed.outcome.is_ok()));
        queue.submit((0..4).map(|n| read(n, &file, n * LEN as u64, LEN)).collect());
        for (n, completed) in reaped(&*queue, 4) {
            completed.outcome.unwrap();
            assert!(completed.work.bytes() == filled(n * 31, LEN), "{}", backend.name);
        }
    });
}

#[test]
fn what_is_not_whole_blocks_is_refused_by_name_and_the_rest_of_the_batch_is_done() {
    each(|backend, kind| {
        let file = backend.disk.create(FileName::Of(kind, 0xabc)).unwrap();
        let queue = backend.queue(4);
        let mut shifted = aligned(2 * BLOCK_BYTES);
        let shifted =
            Work::Write { bytes: shifted.split_off(100).freeze().slice(..BLOCK_BYTES), is_durable: false };
        let odd = |token, offset, work| Transfer { token, file: file.clone(), offset, work };
        queue.submit(vec![
            write(0, &file, 0, &[7; BLOCK_BYTES], false),
            odd(1, BLOCK, shifted),
            odd(2, 2 * BLOCK + 512, written(&[7; BLOCK_BYTES], true)),
            odd(3, 4 * BLOCK, written(&[7; 512], false)),
        ]);
        let done = reaped(&*queue, 4);
        done[&0].outcome.as_ref().unwrap();
        for (token, offset) in [(1, BLOCK), (2, 2 * BLOCK + 512), (3, 4 * BLOCK)] {
            let outcome = &done[&token].outcome;
            if kind == LOG {
                outcome.as_ref().unwrap();
                continue;
            }
            let error = outcome.as_ref().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(text.contains("0000000000000abc.slab") && text.contains(&offset.to_string()), "{text}");
        }
        let mut one = [0; 1];
        let of_file = [file.read_at(0, &mut one).map(drop), file.write_at(1, &one).map(drop)];
        for outcome in of_file {
            assert_eq!(
                outcome.map_err(|error| error.kind()),
                match kind {
                    LOG => Ok(()),
                    _ => Err(ErrorKind::InvalidInput),
                }
            );
        }
        queue.submit(vec![odd(9, u64::MAX - BLOCK + 1, written(&[1; BLOCK_BYTES], false))]);
        let error = reaped(&*queue, 1).remove(&9).unwrap().outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "no file has such an end");
    });
}

/// A file that only watches another one, as an engine may have.
#[derive(Debug)]
struct Watched(Arc<dyn File>);

impl File for Watched {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_at(offset, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        self.0.map(offset, len)
    }
    fn changed_ns(&self) -> io::Result<u64> {
        self.0.changed_ns()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn name(&self) -> FileName {
        self.0.name()
    }
    fn behind(&self) -> Option<&Arc<dyn File>> {
        Some(&self.0)
    }
}

#[test]
fn a_queue_finds_its_file_behind_those_that_watch_it() {
    each(|backend, kind| {
        let inner = backend.disk.create(FileName::Of(kind, 1)).unwrap();
        let file: Arc<dyn File> = Arc::new(Watched(Arc::new(Watched(inner))));
        let queue = backend.queue(4);
        for transfer in [write(1, &file, 0, &filled(9, BLOCK_BYTES), false), read(2, &file, 0, BLOCK_BYTES)] {
            queue.submit(vec![transfer]);
            let (_, completed) = reaped(&*queue, 1).into_iter().next().unwrap();
            completed.outcome.unwrap();
            assert!(completed.work.bytes() == filled(9, BLOCK_BYTES), "{}", backend.name);
        }
    });
}

#[test]
fn files_of_another_disk_are_refused() {
    each(|backend, kind| {
        let other = MemoryDisk::new(99).create(FileName::Of(kind, 1)).unwrap();
        let queue = backend.queue(4);
        queue.submit(vec![read(1, &other, 0, 0)]);
        let error = reaped(&*queue, 1).remove(&1).unwrap().outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("another disk"), "{error}");
    });
}

#[test]
fn a_queue_that_is_dropped_waits_for_what_is_in_flight_and_files_may_go_before_it() {
    each(|backend, kind| {
        for depth in [1, 64] {
            let name = FileName::Of(kind, depth);
            let file = backend.disk.create(name).unwrap();
            let queue = backend.queue(depth as usize);
            for n in 0..32u64 {
                queue.submit(vec![
                    write(n, &file, 2 * n * BLOCK, &filled(n, BLOCK_BYTES), false),
                    read(100 + n, &file, (2 * n + 1) * BLOCK, BLOCK_BYTES),
                ]);
            }
            drop(file);
            drop(queue);
            let file = backend.disk.open(name).unwrap();
            for n in 0..32 {
                let mut buffer = aligned(BLOCK_BYTES);
                file.read_exact_at(2 * n * BLOCK, &mut buffer).unwrap();
                assert!(buffer[..] == filled(n, BLOCK_BYTES)[..], "{}: block {n}", backend.name);
            }
        }
    });
}

#[test]
fn a_disk_that_is_closed_in_between_completes_everything_one_way_or_the_other() {
    each(|backend, kind| {
        let files: Vec<_> = (0..8).map(|n| backend.disk.create(FileName::Of(kind, n)).unwrap()).collect();
        let queue = backend.queue(4);
        let batch = |n: u64| {
            let one = |(at, file)| write(n * 8 + at, file, n * BLOCK, &[3; BLOCK_BYTES], false);
            (0..).zip(&files).map(one).collect()
        };
        queue.submit(batch(0));
        backend.disk.close();
        queue.submit(batch(1));
        assert_eq!(reaped(&*queue, 16).len(), 16);
    });
}

/// The kernel takes back what it has not begun of a thread that ends.
#[test]
fn what_a_thread_submitted_is_done_though_it_ends_before() {
    const COUNT: u64 = 200;
    each(|backend, kind| {
        let file = backend.disk.create(FileName::Of(kind, 1)).unwrap();
        let queue = backend.queue(64);
        for round in 0..4 {
            let batch = |n| match round % 2 {
                0 => write(n, &file, n * BLOCK, &filled(n + round, BLOCK_BYTES), n % 16 == 0),
                _ => read(n, &file, n * BLOCK, BLOCK_BYTES),
            };
            let batch = (0..COUNT).map(batch).collect();
            thread::scope(|scope| scope.spawn(|| queue.submit(batch)).join().unwrap());
            for (n, completed) in reaped(&*queue, COUNT as usize) {
                completed.outcome.unwrap();
                let expected = filled(n + round / 2 * 2, BLOCK_BYTES);
                assert!(completed.work.bytes() == expected, "{}: block {n}", backend.name);
            }
        }
    });
}

#[test]
fn several_threads_submit_while_one_reaps() {
    const EACH: u64 = 300;
    each(|backend, kind| {
        let file = backend.disk.create(FileName::Of(kind, 1)).unwrap();
        let queue = backend.queue(8);
        let (submitted, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let done = thread::scope(|scope| {
            let writers: Vec<_> = [0, 1]
                .map(|thread: u64| {
                    let (queue, file, submitted) = (&queue, &file, &submitted);
                    scope.spawn(move || {
                        for n in 0..EACH {
                            let token = thread * EACH + n;
                            queue.submit(vec![write(
                                token,
                                file,
                                token * BLOCK,
                                &filled(token, BLOCK_BYTES),
                                false,
                            )]);
                            submitted.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .into();
            let reaper = scope.spawn(|| {
                let mut done = Vec::new();
                while !is_over.load(Ordering::SeqCst)
                    || (done.len() as u64) < submitted.load(Ordering::SeqCst)
                {
                    queue.reap(&mut done);
                    thread::yield_now();
                }
                done
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::SeqCst);
            reaper.join().unwrap()
        });
        let tokens: HashSet<u64> = done.iter().map(|completed| completed.token).collect();
        assert_eq!(tokens.len() as u64, 2 * EACH);
        assert!(done.iter().all(|completed| completed.outcome.is_ok()));
        for token in (0..2 * EACH).step_by(17) {
            let mut buffer = aligned(BLOCK_BYTES);
            file.read_exact_at(token * BLOCK, &mut buffer).unwrap();
            assert!(buffer[..] == filled(token, BLOCK_BYTES)[..], "{}", backend.name);
        }
    });
}

#[test]
fn a_memory_disk_completes_in_another_order_for_another_seed_and_in_the_same_for_the_same() {
    let order = |seed: u64| {
        let disk = MemoryDisk::new(seed);
        let file = disk.create(FileName::Of(LOG, 1)).unwrap();
        let queue = disk.queue(8).unwrap();
        queue.submit((0..12).map(|n| write(n, &file, n, b"x", false)).collect());
        let (mut done, mut order) = (Vec::new(), Vec::new());
        while order.len() < 12 {
            queue.reap(&mut done);
            order.extend(done.drain(..).map(|completed| completed.token));
        }
        order
    };
    let orders: HashSet<Vec<u64>> = (0..50).map(order).collect();
    assert!(orders.len() > 45, "{} orders", orders.len());
    assert_eq!(order(7), order(7));
}

#[test]
fn means_are_told() {
    let place = tempfile::tempdir().unwrap();
    let disk = NativeDisk::open(place.path(), KINDS, true).unwrap();
    assert_eq!(disk.queue_by(4, QueueBy::Threads).means().kind, MeansKind::Threads);
    let buffered = NativeDisk::open(place.path(), &[LOG], true).unwrap();
    assert!(!buffered.queue_by(4, QueueBy::Threads).means().is_direct, "no file is of a direct kind");
    assert_eq!(MemoryDisk::new(1).queue(4).unwrap().means().kind, MeansKind::Memory);
}
