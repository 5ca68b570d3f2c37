//! Orders of a log that grows, held against a map.

use std::collections::BTreeMap;

use kvilt_base::{Direction, EntryRef, KeyRange, LargeValues, Source};
use kvilt_format::log::HEADER_BYTES;
use kvilt_io::MemoryDisk;

use super::*;
use crate::{
    bed,
    funk::{ascent::Rows, log_rows::LogRows},
    options::Options,
    parts,
    store::Store,
};

/// Key and version, the newest version first, to the value.
type Records = BTreeMap<(Vec<u8>, std::cmp::Reverse<Version>), Vec<u8>>;

struct Script {
    store: Arc<Store>,
    log: Arc<ChunkLog>,
    records: Records,
    cost_bytes: AtomicU64,
    chance: u64,
}

impl Script {
    fn new() -> Self {
        Self::with(MemoryDisk::new(1), &Options::tiny())
    }

    fn with(disk: Arc<MemoryDisk>, options: &Options) -> Self {
        let store = bed::open(disk, options);
        let log = ChunkLog::create(&store.files, store.epoch_base);
        Script { store, log, records: Records::new(), cost_bytes: AtomicU64::new(0), chance: 7 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 33) % n
    }

    /// Puts of random keys, some of them again at the version that they have.
    fn append(&mut self, records: u64, version: u64) {
        for _ in 0..records {
            let key = format!("key{:04}", self.below(900)).into_bytes();
            let value_len = self.below(200) as usize;
            let value = vec![self.below(256) as u8; value_len];
            self.append_row(&key, &value, version);
        }
    }

    fn append_row(&mut self, key: &[u8], value: &[u8], version: u64) {
        let version = Version::from_u64(self.store.epoch_base.to_u64() + version);
        let entry = EntryRef { key, version, kind: Kind::Put, value };
        bed::append(&self.store, &self.log, entry).unwrap();
        self.records.insert((key.to_vec(), std::cmp::Reverse(version)), value.to_vec());
    }

    fn orders(&self) -> Vec<Arc<LogOrder>> {
        let place = HEADER_BYTES as u64..self.log.len();
        self.log.orders(&self.store.files, place, (u64::MAX, Some(&self.cost_bytes))).unwrap().unwrap()
    }

    /// What the sources give of a range at a view, all of them together in order: each gives its own newest
    /// record of a key.
    fn read(&self, range: &KeyRange, direction: Direction, view: Version) -> Records {
        let mut read = Records::new();
        // Newest first: what an older part has of the same key and version does not count.
        for order in self.orders() {
            let of = (order, Arc::clone(&self.log));
            let wanted = Wanted {
                view,
                every_version: false,
                streams: false,
                rows: None,
                cost_bytes: Some(&self.cost_bytes),
            };
            let mut source = OrderSource::new(of, &self.store.files, range, direction, wanted);
            source.fetch().unwrap();
            let mut last: Option<Vec<u8>> = None;
            while let Some(entry) = source.entry() {
                let is_behind = |last: &Vec<u8>| match direction {
                    Direction::Forward => last.as_slice() <= entry.key,
                    Direction::Backward => last.as_slice() >= entry.key,
                };
                assert!(last.as_ref().is_none_or(is_behind), "in order");
                last = Some(entry.key.to_vec());
                let place = (entry.key.to_vec(), std::cmp::Reverse(entry.version));
                read.entry(place).or_insert(entry.value.to_vec());
                source.advance().unwrap();
                source.fetch().unwrap();
            }
        }
        read
    }

    /// All records of a range, as who rewrites reads them.
    fn read_share(&self, range: &KeyRange) -> Records {
        let orders = self.orders();
        let files = &self.store.files;
        let mut rows =
            LogRows::read_share(&self.log, files, &orders, range, (self.log.len() / 9, false)).unwrap();
        let mut read = Records::new();
        while let Some(entry) = rows.entry() {
            let place = (entry.key.to_vec(), std::cmp::Reverse(entry.version));
            assert!(read.last_key_value().is_none_or(|(last, _)| *last < place), "in order");
            read.insert(place, entry.value.to_vec());
            rows.advance().unwrap();
        }
        read
    }

    fn check(&self) {
        for (start, end) in [(0, 1000), (100, 130), (450, 451), (800, 2000)] {
            let key = |i: usize| format!("key{i:04}").into_bytes();
            let range = KeyRange { start: key(start), end: Some(key(end)) };
            let wanted = self.records.iter().filter(|((key, _), _)| range.contains(key));
            let wanted: Records = wanted.map(|(k, v)| (k.clone(), v.clone())).collect();
            let read = self.read_share(&range);
            assert!(read == wanted, "{range:?}: {} of {}", read.len(), wanted.len());
            for direction in [Direction::Forward, Direction::Backward] {
                let read = newest(&self.read(&range, direction, Version::NEWEST));
                assert!(
                    read == newest(&wanted),
                    "{range:?} {direction:?}: {} of {}",
                    read.len(),
                    wanted.len()
                );
            }
        }
    }
}

/// Key, version and offset of all records of an order.
fn records(order: &LogOrder) -> Vec<(Vec<u8>, Version, u64)> {
    let mut walk = Walk::new(order);
    let mut all = Vec::new();
    while let Some(Record { key, version, offset, .. }) = walk.record() {
        all.push((key.to_vec(), version, offset));
        walk.advance();
    }
    all
}

/// Of each key the newest record.
fn newest(records: &Records) -> Records {
    let mut newest = Records::new();
    for ((key, version), value) in records {
        if newest.last_key_value().is_none_or(|((last, _), _)| last != key) {
            newest.insert((key.clone(), *version), value.clone());
        }
    }
    newest
}

#[test]
fn what_is_appended_is_found_in_order_and_parts_stay_few() {
    let mut script = Script::new();
    for step in 0..60 {
        script.append(if step % 7 == 0 { 90 } else { 5 }, step / 4);
        script.check();
        let parts = script.orders().len();
        assert!(parts <= 10, "{parts} parts of {} records", script.records.len());
    }
    let read = script.cost_bytes.load(Relaxed);
    script.orders();
    assert_eq!(script.cost_bytes.load(Relaxed), read, "nothing is read twice");
    // What is in the file by now is read from there, several records together.
    script.log.sync(&script.store.files).unwrap();
    let calls = script.cost_bytes.load(Relaxed);
    script.check();
    assert!(script.cost_bytes.load(Relaxed) > calls);
}

impl Script {
    /// What pieces give of a range at a view, and how many bytes were read and charged at most.
    fn read_pieces(
        &self,
        range: &KeyRange,
        direction: Direction,
        view: Version,
        bytes: u64,
    ) -> (Records, u64) {
        let files = &self.store.files;
        let before = files.budget.used(parts::LOG_INDEXES);
        let cost_bytes = Some(&self.cost_bytes);
        let wanted = Wanted { view, every_version: false, streams: false, rows: None, cost_bytes };
        let of = (Arc::clone(&self.log), HEADER_BYTES as u64..self.log.len());
        let mut pieces = Pieces::new(of, files, range, direction, (wanted, bytes)).unwrap();
        let (mut read, mut most) = (Records::new(), 0);
        let mut last: Option<Vec<u8>> = None;
        while let Some(key) = pieces.key().map(<[u8]>::to_vec) {
            let is_behind = |last: &Vec<u8>| match direction {
                Direction::Forward => *last < key,
                Direction::Backward => *last > key,
            };
            assert!(last.as_ref().is_none_or(is_behind), "each key once, in order");
            pieces.fetch().unwrap();
            let entry = pieces.entry().unwrap();
            read.insert((entry.key.to_vec(), std::cmp::Reverse(entry.version)), entry.value.to_vec());
            most = most.max(files.budget.used(parts::LOG_INDEXES) - before);
            last = Some(key);
            pieces.advance().unwrap();
        }
        assert!(pieces.is_empty());
        (read, most)
    }
}

/// Pieces of one key and of many, of a log that has of many keys several records, some newer than the view.
#[test]
fn pieces_give_of_each_key_what_the_view_sees_however_small_they_are() {
    let mut script = Script::new();
    for version in 0..8 {
        script.append(300, version);
    }
    let view = Version::from_u64(script.store.epoch_base.to_u64() + 5);
    let key = |i: usize| format!("key{i:04}").into_bytes();
    let ranges = [(0, None), (0, Some(1000)), (100, Some(130)), (450, Some(451)), (901, None)];
    for (start, end) in ranges {
        let range = KeyRange { start: key(start), end: end.map(key) };
        let seen =
            script.records.iter().filter(|((key, version), _)| range.contains(key) && version.0 <= view);
        let seen = newest(&seen.map(|(key, value)| (key.clone(), value.clone())).collect());
        for direction in [Direction::Forward, Direction::Backward] {
            for bytes in [1, 200, 3000, 1 << 20] {
                let (read, most) = script.read_pieces(&range, direction, view, bytes);
                assert!(read == seen, "{range:?} {direction:?} {bytes}: {} of {}", read.len(), seen.len());
                // Keys are short here: what is searched first, and one record, come on top.
                assert!(most <= bytes + bytes / 2 + 100, "{most} bytes of a piece of {bytes}");
            }
        }
    }
}

/// A scan made the orders of all logs of a chunk, whatever they took: with long keys, as much as the logs.
#[test]
fn orders_that_do_not_fit_are_not_made_and_what_is_there_is_used() {
    let mut script = Script::new();
    script.append(200, 1);
    let place = HEADER_BYTES as u64..script.log.len();
    let orders = |place: &Range<u64>, bytes_max| {
        script.log.orders(&script.store.files, place.clone(), (bytes_max, Some(&script.cost_bytes))).unwrap()
    };
    let before = script.store.files.budget.used(parts::LOG_INDEXES);
    let bytes = 200 * order_bytes(b"key0000");
    assert!(orders(&place, bytes - 1).is_none());
    assert_eq!(script.store.files.budget.used(parts::LOG_INDEXES), before, "nothing is kept of it");
    let read = script.cost_bytes.load(Relaxed);
    assert!(orders(&place, bytes - 1).is_none());
    assert_eq!(script.cost_bytes.load(Relaxed), read, "that it does not fit is known without another read");
    assert!(orders(&place, bytes).is_some());
    assert!(orders(&place, 0).is_some(), "it costs nothing more");
}

#[test]
fn a_view_sees_one_record_of_each_key() {
    let mut script = Script::new();
    for version in 0..8 {
        script.append(300, version);
    }
    let view = Version::from_u64(script.store.epoch_base.to_u64() + 3);
    for order in script.orders() {
        let of = (order, Arc::clone(&script.log));
        let all = KeyRange::all();
        let wanted = Wanted { view, every_version: false, streams: false, rows: Some(3), cost_bytes: None };
        let mut source = OrderSource::new(of, &script.store.files, &all, Direction::Forward, wanted);
        source.fetch().unwrap();
        let mut last = Vec::new();
        while let Some(entry) = source.entry() {
            assert!(entry.version <= view && entry.key > last.as_slice());
            last = entry.key.to_vec();
            source.advance().unwrap();
            source.fetch().unwrap();
        }
    }
    let seen = script.read(&KeyRange::all(), Direction::Backward, view);
    let mut newest = BTreeMap::new();
    for ((key, std::cmp::Reverse(version)), value) in &script.records {
        if *version <= view {
            newest.entry(key).or_insert((*version, value));
        }
    }
    // Each part gives its own newest; of these the first is the newest of all.
    for (key, (version, value)) in newest {
        assert_eq!(seen.get(&(key.clone(), std::cmp::Reverse(version))), Some(value));
    }
}

#[test]
fn orders_that_nobody_asks_for_go_and_come_again() {
    let mut script = Script::new();
    script.append(200, 0);
    script.check();
    let before = script.store.files.budget.used(parts::LOG_INDEXES);
    script.log.forget_unread();
    assert_eq!(script.store.files.budget.used(parts::LOG_INDEXES), before, "they were read lately");
    (0..SECONDS_KEPT).for_each(|_| script.log.age(&script.store.files, 1));
    script.log.forget_unread();
    assert!(script.store.files.budget.used(parts::LOG_INDEXES) < before);
    script.check();
}

/// An empty key with an empty value takes no byte, so nothing but the order in which they were written tells
/// such records apart.
#[test]
fn of_records_without_a_byte_the_last_counts() {
    for last in [b"".as_slice(), b"value"] {
        let mut script = Script::new();
        for value in [b"first".as_slice(), b"", b"", b"second", b"", last] {
            script.append_row(b"", value, 1);
        }
        let all = KeyRange::all();
        let rows = LogRows::read(&script.log, &script.store.files, 0..script.log.len(), &all, false).unwrap();
        assert_eq!(rows.entry().unwrap().value, last);
        let mut rows = Rows::default();
        let place = HEADER_BYTES as u64..script.log.len();
        let each = &mut |_, entry: EntryRef<'_>, _| {
            rows.push(entry);
            Ok(())
        };
        script.log.for_each(&script.store.files, place.start, place.end, each).unwrap();
        rows.sort(LargeValues::AtOnce).unwrap();
        assert_eq!(rows.entry(0).value, last);
    }
}

#[test]
fn what_is_summed_up_is_not_read() {
    let mut script = Script::new();
    // Only a store that has its reserve writes what it could do without.
    script.store.checkpoint_now(false).unwrap();
    for version in 0..4 {
        script.append(300, version);
        script.log.sync(&script.store.files).unwrap();
    }
    let len = script.log.len();
    script.orders();
    let first = script.cost_bytes.load(Relaxed);
    assert!((len / 20..len / 4).contains(&first), "{first} of {len}");
    script.check();
    script.append(300, 5);
    script.check();
}

#[test]
fn a_source_reads_when_its_entry_is_wanted_and_not_before() {
    let mut script = Script::new();
    script.append(50, 1);
    script.log.sync(&script.store.files).unwrap();
    let all = KeyRange::all();
    let orders = script.orders();
    let reads = || script.store.files.reads.done.sum();
    let before = reads();
    let wanted = Wanted {
        view: Version::NEWEST,
        every_version: false,
        streams: false,
        rows: Some(1),
        cost_bytes: None,
    };
    let of = (Arc::clone(&orders[0]), Arc::clone(&script.log));
    let mut source = OrderSource::new(of, &script.store.files, &all, Direction::Forward, wanted);
    let first = (source.key().unwrap().to_vec(), source.version().unwrap());
    assert_eq!(reads(), before, "its key is known without");
    source.fetch().unwrap();
    source.fetch().unwrap();
    assert_eq!(reads(), before + 1);
    let entry = source.entry().unwrap();
    assert_eq!((entry.key.to_vec(), entry.version), first);
}

#[test]
fn a_share_is_read_as_it_lies_and_what_lies_far_apart_by_itself() {
    let mut script = Script::new();
    for version in 0..60 {
        script.append(100, version);
        if version % 10 == 0 {
            script.append_row(b"seldom", b"value", version);
        }
    }
    script.log.sync(&script.store.files).unwrap();
    script.orders();
    let reads = &script.store.files.reads;
    let read = |range: KeyRange| {
        let (done, bytes) = (reads.done.sum(), reads.bytes.sum());
        let rows = script.read_share(&range).len() as u64;
        (rows, reads.done.sum() - done, reads.bytes.sum() - bytes)
    };
    let len = script.log.len();
    // A tenth of the keys have a record in every kilobyte: the log is read in a few large pieces.
    let (rows, done, bytes) = read(KeyRange::new("key0300".."key0390"));
    assert!(rows > 500 && done <= 1 + len / (240 << 10) && bytes > len / 2, "{done} reads of {bytes}");
    // Records of one key lie a hundred kilobytes apart: what is between them is left out.
    let (rows, done, bytes) = read(KeyRange::new("seldom"..));
    assert!((rows, done) == (6, 6) && bytes < len / 100, "{done} reads of {bytes}");
}

#[test]
fn what_comes_next_at_a_view_is_a_record_of_each_key() {
    let mut script = Script::new();
    for version in 1..=40 {
        (0..20).for_each(|i| script.append_row(format!("key{i:04}").as_bytes(), b"value", version));
    }
    let place = HEADER_BYTES as u64..script.log.len();
    let order =
        Arc::new(LogOrder::read(&script.log, &script.store.files, place, u64::MAX).unwrap().0.unwrap());
    let view = Version::from_u64(script.store.epoch_base.to_u64() + 17);
    let wanted = Wanted { view, every_version: false, streams: false, rows: None, cost_bytes: None };
    for (direction, next) in [(Direction::Forward, 1), (Direction::Backward, 18)] {
        let of = (Arc::clone(&order), Arc::clone(&script.log));
        let source = OrderSource::new(of, &script.store.files, &KeyRange::all(), direction, wanted);
        let all = records(&order);
        let find = |offset| all.iter().find(|(_, _, other)| *other == offset).unwrap();
        let found: Vec<_> = source.next_offsets().map(find).collect();
        let first = (format!("key{next:04}").into_bytes(), view);
        assert_eq!((found.len(), &found[0].0, found[0].1), (19, &first.0, first.1), "{direction:?}");
        assert!(found.iter().all(|(_, version, _)| *version == view));
    }
}

#[test]
fn a_range_has_the_positions_between_its_bounds() {
    let mut script = Script::new();
    (0..50).for_each(|i| script.append_row(format!("key{:04}", i * 2).as_bytes(), b"value", 1));
    let place = HEADER_BYTES as u64..script.log.len();
    let order = LogOrder::read(&script.log, &script.store.files, place, u64::MAX).unwrap().0.unwrap();
    let mut reader = Reader::default();
    for i in 0..103_usize {
        let key = format!("key{i:04}");
        let expected = i.div_ceil(2).min(50);
        assert_eq!(order.lower_bound(key.as_bytes(), &mut reader), expected);
        let range = KeyRange { start: b"key0031".to_vec(), end: Some(key.into_bytes()) };
        assert_eq!(order.positions_of(&range, &mut reader), 16..expected.max(16));
    }
}

#[test]
fn bounds_are_found_among_keys_with_many_versions_and_other_beginnings() {
    let mut script = Script::new();
    let mut keys = vec![b"".to_vec()];
    for (version, key) in (0..40).map(|i| (1 + i % 7, format!("key{:04}", i * 3))) {
        // Of some keys more versions than there are records between two samples.
        (0..if version == 3 { 70 } else { version })
            .for_each(|older| script.append_row(key.as_bytes(), b"v", 100 - older));
        keys.push(key.into_bytes());
    }
    script.append_row(b"", b"v", 1);
    script.append_row(b"zz", b"v", 1);
    keys.push(b"zz".to_vec());
    let place = HEADER_BYTES as u64..script.log.len();
    let order = LogOrder::read(&script.log, &script.store.files, place, u64::MAX).unwrap().0.unwrap();
    assert!(order.records.len() > 6 * BLOCK);
    let all: Vec<Vec<u8>> = records(&order).into_iter().map(|(key, ..)| key).collect();
    let mut reader = Reader::default();
    let near = |key: &Vec<u8>| [key.clone(), [key, b"\0".as_slice()].concat(), key[..key.len() / 2].to_vec()];
    for probe in keys.iter().flat_map(near).chain([b"zzz".to_vec(), b"a".to_vec()]) {
        let expected = all.partition_point(|key| *key < probe);
        assert_eq!(order.lower_bound(&probe, &mut reader), expected, "{probe:?}");
    }
}
