//! Tests of the redo log: what is read back after a close, a kill and a power cut, with segments that are
//! turned, freed and used again meanwhile.

use std::sync::atomic::AtomicU64;

use kvilt_base::{ErrorKind, FileName};
use kvilt_format::redo::{Change, push_changes};
use kvilt_io::{Keep, MemoryDisk, SeededRng};

use super::{
    reserve::{OTHER_FILES, RESERVE_FILES_MIN, TURN_FILES},
    *,
};

const STORE: u64 = 77;
const SEGMENT_BYTES: u64 = 4096;
const SIZES: Sizes = Sizes { segment_bytes: SEGMENT_BYTES, output_files: 2 };

fn body(number: u64, len: usize) -> Vec<u8> {
    let mut body = Vec::new();
    push_changes(&mut body, [Change::Put { key: &number.to_be_bytes(), value: &vec![number as u8; len] }]);
    body
}

fn replayed(disk: &MemoryDisk, known: Known) -> Result<(Vec<u64>, Chain)> {
    let mut numbers = Vec::new();
    let chain = replay(disk, STORE, known, &mut |replayed| {
        for change in replayed.changes {
            let Change::Put { key, value } = change else { panic!("only puts are appended") };
            let number = u64::from_be_bytes(key.try_into().unwrap());
            assert!(value.iter().all(|byte| *byte == number as u8));
            numbers.push(number);
        }
        Ok(())
    })?;
    Ok((numbers, chain))
}

fn known(first: u64, is_whole: bool) -> Known {
    Known { first, synced: Position { sequence: 0, offset: 0 }, is_whole }
}

fn open(disk: &Arc<MemoryDisk>, known: Known) -> Result<(Vec<u64>, Log)> {
    let (numbers, chain) = replayed(disk, known)?;
    let log = Log::begin(Arc::clone(disk) as Arc<dyn Disk>, STORE, SIZES, chain)?;
    Ok((numbers, log))
}

/// T-14: on a full disk deletes have a segment when what brings rows has none, and flushes have the rest.
#[test]
fn the_reserve_is_for_deletes_and_for_what_gives_room_back() {
    let disk = MemoryDisk::new(1);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    disk.set_capacity(Some(disk.total_bytes() + 20 * SEGMENT_BYTES));
    let appended = |purpose| {
        let refused = |number| log.append(&body(number, 300), purpose, || ()).err();
        (0..1000).find_map(|number| refused(number).map(|error| (number, error.kind()))).unwrap()
    };
    assert_eq!(appended(Purpose::Rows).1, ErrorKind::NoSpace);
    let whole = SIZES.output_files + OTHER_FILES;
    assert_eq!(log.files.lock().free.len(), whole);
    assert!(log.is_short(), "a put was refused");
    let (deletes, kind) = appended(Purpose::Deletes);
    assert!(deletes > 20 && kind == ErrorKind::NoSpace, "{deletes} deletes, then {kind:?}");
    assert_eq!(log.files.lock().free.len(), SIZES.output_files + TURN_FILES);
    let loan = log.lend().unwrap();
    let room = disk.create(FileName::Of(kvilt_format::names::TABLE, 1)).unwrap();
    room.allocate(SIZES.output_files as u64 * SEGMENT_BYTES).unwrap();
    drop(loan);
    // Nothing brings rows until the reserve is whole, though the log has a segment for that.
    assert_eq!(appended(Purpose::Rows), (0, ErrorKind::NoSpace));
    log.sync().unwrap();
    log.free_until(log.current().sequence());
    assert!(log.restore() && !log.is_short());
    log.append(&body(7, 300), Purpose::Rows, || ()).unwrap();
}

/// T-15: however often a process ends, its log goes on in the same file; behind a power cut in another one,
/// since records that it took back may lie behind its end.
#[test]
fn a_log_goes_on_in_its_last_segment_unless_the_power_was_cut() {
    let mut disk = MemoryDisk::new(5);
    let mut expected = Vec::new();
    for life in 0..10 {
        let (numbers, log) = open(&disk, known(1, true)).unwrap();
        assert_eq!(numbers, expected);
        assert_eq!(log.current().sequence(), 1, "life {life}");
        log.append(&body(life, 100), Purpose::Rows, || ()).unwrap();
        expected.push(life);
        match life % 2 {
            0 => disk = disk.kill_image(),
            _ => log.close().unwrap(),
        }
    }
    let disk = disk.crash_image(Keep::All);
    let (_, log) = open(&disk, known(1, false)).unwrap();
    assert_eq!(log.current().sequence(), 2);
    log.append(&body(10, 100), Purpose::Rows, || ()).unwrap();
    drop(log);
    let (numbers, log) = open(&disk.kill_image(), known(1, true)).unwrap();
    assert_eq!((numbers.len(), log.current().sequence()), (11, 2));
}

/// A file system that was shut down by an error, and mounted again without a reboot, may have lost a record
/// and kept one behind it. The log goes on where that one cannot come back.
#[test]
fn a_log_does_not_go_on_before_a_record_that_lies_behind_its_end() {
    let disk = MemoryDisk::new(6);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    let offset = |number| log.append(&body(number, 100), Purpose::Rows, || ()).unwrap().0.position().offset;
    offset(1);
    let lost = offset(2);
    offset(3);
    let disk = disk.kill_image();
    disk.open(log.current().name()).unwrap().write_all_at(lost, &[0; 8]).unwrap();
    let (numbers, log) = open(&disk, known(1, true)).unwrap();
    assert_eq!((numbers, log.current().sequence()), (vec![1], 2));
    log.append(&body(4, 100), Purpose::Rows, || ()).unwrap();
    let (numbers, _) = replayed(&disk.kill_image(), known(1, true)).unwrap();
    assert_eq!(numbers, [1, 4]);
}

/// A full disk, and another memory budget: the reserve's files have another length than this log's segments.
#[test]
fn a_log_begins_on_a_full_disk_in_a_file_of_another_length() {
    for segment_bytes in [SEGMENT_BYTES / 2, SEGMENT_BYTES * 64] {
        let disk = MemoryDisk::new(4);
        let (_, log) = open(&disk, known(1, true)).unwrap();
        log.append(&body(1, 300), Purpose::Rows, || ()).unwrap();
        log.close().unwrap();
        drop(log);
        disk.set_capacity(Some(disk.total_bytes()));
        let (numbers, chain) = replayed(&disk, known(1, true)).unwrap();
        assert_eq!(numbers, [1]);
        let sizes = Sizes { segment_bytes, ..SIZES };
        let log = Log::begin(Arc::clone(&disk) as Arc<dyn Disk>, STORE, sizes, chain).unwrap();
        log.append(&body(2, 300), Purpose::Deletes, || ()).unwrap();
        log.close().unwrap();
        assert_eq!(replayed(&disk, known(1, true)).unwrap().0, [1, 2]);
    }
}

/// T-14: on a disk without a free byte a log begins, one life after the other, in files of the reserve; the
/// last one is halved, so that a catalogue has room, too.
#[test]
fn a_log_begins_on_a_full_disk_as_long_as_the_reserve_has_a_file() {
    let disk = MemoryDisk::new(4);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    log.append(&body(0, 300), Purpose::Rows, || ()).unwrap();
    log.sync().unwrap();
    let mut image = disk.crash_image(Keep::SyncedOnly);
    image.set_capacity(Some(image.total_bytes()));
    for life in 1..=RESERVE_FILES_MIN as u64 {
        let (numbers, log) = open(&image, known(1, false)).unwrap();
        assert_eq!(numbers, (0..life).collect::<Vec<_>>());
        assert!(log.is_short());
        let refused = log.append(&body(99, 3), Purpose::Rows, || ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "the segment is one of the reserve");
        log.append(&body(life, 3), Purpose::Deletes, || ()).unwrap();
        log.sync().unwrap();
        let is_last = life == RESERVE_FILES_MIN as u64;
        assert_eq!(log.current().capacity(), if is_last { SEGMENT_BYTES / 2 } else { SEGMENT_BYTES });
        image = image.crash_image(Keep::SyncedOnly);
    }
    let room = image.create(FileName::Of(kvilt_format::names::TABLE, 1)).unwrap();
    room.allocate(SEGMENT_BYTES / 2).unwrap();
    assert_eq!(open(&image, known(1, false)).unwrap_err().kind(), ErrorKind::NoSpace);
}

/// T-14: a segment that is full and holds nothing any more is free when another one was begun behind it.
#[test]
fn a_full_segment_that_nobody_needs_is_room_for_deletes() {
    let disk = MemoryDisk::new(5);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    disk.set_capacity(Some(disk.total_bytes()));
    let fill = || while log.append(&body(7, 300), Purpose::Deletes, || ()).is_ok() {};
    fill();
    assert_eq!(log.files.lock().free.len(), 1 + TURN_FILES, "the reserve but one");
    let full = log.current().sequence();
    assert!(log.turn_if_full().unwrap() && !log.turn_if_full().unwrap());
    log.free_until(full + 1);
    assert_eq!(log.files.lock().free.len(), RESERVE_FILES_MIN, "as before the deletes");
    fill();
    assert!(log.current().sequence() > full + 1);
}

#[test]
fn records_come_back_from_many_segments_and_a_long_one_has_its_own() {
    let disk = MemoryDisk::new(1);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    for number in 0..50 {
        let len = if number == 20 { 10_000 } else { 300 };
        log.append(&body(number, len), Purpose::Rows, || ()).unwrap();
    }
    log.close().unwrap();
    assert!(log.current().sequence() > 3);
    let (numbers, log) = open(&disk, known(1, false)).unwrap();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
    // And goes on behind.
    log.append(&body(50, 3), Purpose::Rows, || ()).unwrap();
    let (numbers, _) = replayed(&disk.kill_image(), known(1, true)).unwrap();
    assert_eq!(numbers, (0..51).collect::<Vec<_>>());
}

/// T-12.
#[test]
fn a_segment_is_kept_while_a_record_in_it_waits_and_used_again_afterwards() {
    let disk = MemoryDisk::new(2);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    let waits = log.append(&body(0, 10), Purpose::Rows, || ()).unwrap();
    for number in 1..40 {
        log.append(&body(number, 300), Purpose::Rows, || ()).unwrap();
    }
    assert_eq!(log.first_needed(), 1);
    drop(waits);
    let first = log.first_needed();
    assert_eq!(first, log.current().sequence());
    let bytes = log.files().bytes;
    log.free_until(first);
    assert!(log.files().bytes < bytes);
    let last_number = log.files.lock().last_number;
    for number in 40..60 {
        log.append(&body(number, 300), Purpose::Rows, || ()).unwrap();
    }
    assert_eq!(log.files.lock().last_number, last_number, "free files were used again");
    let (numbers, _) = replayed(&disk.kill_image(), known(first, true)).unwrap();
    assert!(numbers.len() >= 20 && numbers.ends_with(&(40..60).collect::<Vec<_>>()), "{numbers:?}");
}

/// T-10, T-11: a kill loses nothing, a power cut nothing that was synced, and leaves a prefix.
#[test]
fn what_a_crash_leaves_is_a_prefix_with_all_that_was_synced() {
    for seed in 0..300 {
        let rng = SeededRng::new(seed);
        let mut disk = MemoryDisk::of_any_kind(seed);
        // All that was ever appended and counts, and how many of them must be there.
        let mut expected: Vec<u64> = Vec::new();
        let (mut first, mut next) = (1, 0);
        let mut is_whole = true;
        for _ in 0..6 {
            let (numbers, log) = open(&disk, known(first, is_whole)).unwrap();
            assert!(expected.ends_with(&numbers), "seed {seed}: {numbers:?} of {expected:?}");
            let mut synced = expected.len();
            for _ in 0..rng.below(40) {
                match rng.below(12) {
                    0 => {
                        log.sync().unwrap();
                        synced = expected.len();
                    }
                    1 => {
                        // As if all before had been flushed.
                        log.sync().unwrap();
                        synced = expected.len();
                        first = log.first_needed();
                        log.free_until(first);
                    }
                    _ => {
                        let len = [3, 300, 900, 5_000][rng.below(4) as usize];
                        log.append(&body(next, len), Purpose::Rows, || ()).unwrap();
                        expected.push(next);
                        next += 1;
                    }
                }
            }
            is_whole = rng.below(2) == 0;
            disk = if is_whole {
                disk.kill_image()
            } else {
                let keep = [Keep::SyncedOnly, Keep::All, Keep::Random(seed), Keep::Prefix(seed)];
                disk.crash_image(keep[rng.below(4) as usize])
            };
            let (numbers, _) = replayed(&disk, known(first, is_whole)).unwrap();
            let owed = if is_whole { expected.len() } else { synced };
            // What is left is consecutive, and ends where the log was cut.
            let end = match numbers.last() {
                Some(last) => expected.iter().position(|number| number == last).unwrap() + 1,
                None => owed.min(expected.len()),
            };
            assert!(end >= owed, "seed {seed}: {numbers:?} of {expected:?}, {owed} owed");
            expected.truncate(end);
            assert!(expected.ends_with(&numbers), "seed {seed}: {numbers:?} of {expected:?}");
        }
    }
}

#[test]
fn what_is_missing_before_the_synced_end_is_damage() {
    let disk = MemoryDisk::new(3);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    for number in 0..40 {
        log.append(&body(number, 300), Purpose::Rows, || ()).unwrap();
    }
    log.sync().unwrap();
    let synced = log.synced();
    let third = log.segments.read()[2].name();
    drop(log);
    let kind = |disk: &MemoryDisk, known| replayed(disk, known).err().map(|error| error.kind());
    assert_eq!(kind(&disk, Known { synced, ..known(1, false) }), None);
    let lost = disk.crash_image(Keep::All);
    assert!(lost.lose(third));
    // By the marks of later segments, and by what the manifest says.
    assert_eq!(kind(&lost, known(1, false)), Some(ErrorKind::Corrupted));
    let all_lost = disk.crash_image(Keep::All);
    for (name, _) in disk.snapshot() {
        all_lost.lose(name);
    }
    assert_eq!(kind(&all_lost, Known { synced, ..known(1, false) }), Some(ErrorKind::Corrupted));
    let flipped = disk.crash_image(Keep::All);
    assert!(flipped.flip_bit(third, 100, 3));
    for is_whole in [false, true] {
        assert_eq!(kind(&flipped, known(1, is_whole)), Some(ErrorKind::Corrupted));
    }
}

#[test]
fn a_sync_that_has_nothing_to_do_writes_nothing() {
    let disk = MemoryDisk::new(4);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    log.append(&body(1, 10), Purpose::Rows, || ()).unwrap();
    log.sync().unwrap();
    let calls = disk.ops();
    log.sync().unwrap();
    assert_eq!(disk.ops(), calls);
}

/// T-11, by threads: what each appended before a sync is there, in its order. T-13: what they count is in
/// the order of the log.
#[test]
fn threads_append_and_sync_at_once() {
    let disk = MemoryDisk::new(5);
    let (_, log) = open(&disk, known(1, true)).unwrap();
    const EACH: u64 = 400;
    let count = AtomicU64::new(0);
    let counted = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (log, count, counted) = (&log, &count, &counted);
            scope.spawn(move || {
                for number in 0..EACH {
                    let announce = || count.fetch_add(1, Ordering::Relaxed);
                    let (appended, nth) =
                        log.append(&body(thread << 32 | number, 100), Purpose::Rows, announce).unwrap();
                    counted.lock().push((appended.position(), nth));
                    if number % 50 == 0 {
                        log.sync().unwrap();
                        assert!(log.synced() > appended.position());
                    }
                }
            });
        }
    });
    let mut counted = counted.into_inner();
    counted.sort_unstable();
    assert!(counted.iter().map(|(_, nth)| *nth).eq(0..3 * EACH));
    log.sync().unwrap();
    let (numbers, _) = replayed(&disk.crash_image(Keep::SyncedOnly), known(1, false)).unwrap();
    assert_eq!(numbers.len() as u64, 3 * EACH);
    for thread in 0..3 {
        let own: Vec<_> = numbers.iter().filter(|number| **number >> 32 == thread).collect();
        assert!(own.is_sorted() && own.last() == Some(&&(thread << 32 | (EACH - 1))));
    }
}
