//! Orders of a log that grows, held against a map.

use std::collections::BTreeMap;

use kvilt_base::{Direction, EntryRef, KeyRange, Source};
use kvilt_format::log::HEADER_BYTES;
use kvilt_io::MemoryDisk;

use super::*;
use crate::{
    bed,
    funk::{ascent::Rows, log_rows::LogRows},
    options::Options,
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
        let store = bed::open(MemoryDisk::new(1), &Options::tiny());
        let log = ChunkLog::create(&store.files, store.epoch_base);
        Script { store, log, records: Records::new(), cost_bytes: AtomicU64::new(0), chance: 7 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 33) % n
    }

    /// Puts of keys by chance, some of them again at the version that they have.
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
        self.log.orders(&self.store.files, place, Some(&self.cost_bytes)).unwrap()
    }

    /// What the sources give of a range, all of them together in order.
    fn read(&self, range: &KeyRange, direction: Direction, view: Option<Version>) -> Records {
        let mut read = Records::new();
        // Newest first: what an older part has of the same key and version does not count.
        for order in self.orders() {
            let of = (order, Arc::clone(&self.log));
            let view = (view, Some(&self.cost_bytes));
            let mut source = OrderSource::new(of, &self.store.files, range, direction, view).unwrap();
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
            }
        }
        read
    }

    fn check(&self) {
        for (start, end) in [(0, 1000), (100, 130), (450, 451), (800, 2000)] {
            let key = |i: usize| format!("key{i:04}").into_bytes();
            let range = KeyRange { start: key(start), end: Some(key(end)) };
            for direction in [Direction::Forward, Direction::Backward] {
                let read = self.read(&range, direction, None);
                let wanted = self.records.iter().filter(|((key, _), _)| range.contains(key));
                let wanted: Records = wanted.map(|(k, v)| (k.clone(), v.clone())).collect();
                assert!(read == wanted, "{range:?} {direction:?}: {} of {}", read.len(), wanted.len());
            }
        }
    }
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
        let mut source =
            OrderSource::new(of, &script.store.files, &all, Direction::Forward, (Some(view), None)).unwrap();
        let mut last = Vec::new();
        while let Some(entry) = source.entry() {
            assert!(entry.version <= view && entry.key > last.as_slice());
            last = entry.key.to_vec();
            source.advance().unwrap();
        }
    }
    let seen = script.read(&KeyRange::all(), Direction::Backward, Some(view));
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
    let before = script.store.files.budget.used(Part::LogIndexes);
    script.log.forget_unread();
    assert_eq!(script.store.files.budget.used(Part::LogIndexes), before, "they were read lately");
    (0..SECONDS_KEPT).for_each(|_| script.log.age_orders());
    script.log.forget_unread();
    assert!(script.store.files.budget.used(Part::LogIndexes) < before);
    script.check();
}

/// An empty key with an empty value takes no byte, so nothing but the order in which they were written tells such records apart.
#[test]
fn of_records_without_a_byte_the_last_counts() {
    for last in [b"".as_slice(), b"value"] {
        let mut script = Script::new();
        for value in [b"first".as_slice(), b"", b"", b"second", b"", last] {
            script.append_row(b"", value, 1);
        }
        let all = KeyRange::all();
        let rows = LogRows::read(&script.log, &script.store.files, script.log.len(), &all).unwrap();
        assert_eq!(rows.entry().unwrap().value, last);
        let mut rows = Rows::default();
        let place = HEADER_BYTES as u64..script.log.len();
        let each = &mut |_, entry: EntryRef<'_>, _| {
            rows.push(entry);
            Ok(())
        };
        script.log.for_each(&script.store.files, place.start, place.end, each).unwrap();
        rows.sort();
        assert_eq!(rows.entry(0).value, last);
    }
}
