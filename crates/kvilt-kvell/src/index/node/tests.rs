//! Tests of the index against a map of the standard library, and of what it takes in memory.

use std::{collections::BTreeMap, ops::Bound};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::index::{Builder, Index};

type Model = BTreeMap<Vec<u8>, Place>;

impl Node {
    /// Checks the tree below; returns its height.
    fn audit(&self, low: &[u8], high: Option<&[u8]>) -> usize {
        let skip = self.list.skip();
        let shared = high.map_or(0, |high| kvilt_base::key::shared_prefix_len(low, high));
        assert!(skip <= shared, "keys of a node may not share the {skip} bytes that it skips");
        let mut keys = Vec::new();
        let mut cursor = self.list.cursor(low);
        while cursor.advance() {
            keys.push(cursor.key().to_vec());
        }
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert!(
            keys.iter().all(|key| low <= key.as_slice() && high.is_none_or(|high| key.as_slice() < high))
        );
        if self.is_leaf() {
            return 0;
        }
        assert_eq!(self.children.len(), keys.len() + 1);
        let heights: Vec<usize> = (0..self.children.len())
            .map(|i| {
                let low = if i == 0 { low } else { &keys[i - 1] };
                self.children[i].audit(low, keys.get(i).map(Vec::as_slice).or(high)) + 1
            })
            .collect();
        assert!(heights.iter().all(|height| *height == heights[0]), "leaves of one depth");
        heights[0]
    }
}

fn walked(index: &Index, range: &KeyRange, direction: Direction, max: usize) -> Vec<(Vec<u8>, Place)> {
    let mut out = Entries::new();
    index.walk(range, direction, max, &mut out);
    out.iter().map(|(key, place)| (key.to_vec(), place)).collect()
}

fn in_range<'m>(
    model: &'m Model,
    range: &KeyRange,
) -> impl DoubleEndedIterator<Item = (Vec<u8>, Place)> + 'm {
    let end = range.end.clone().map_or(Bound::Unbounded, |end| Bound::Excluded(end.max(range.start.clone())));
    model.range((Bound::Included(range.start.clone()), end)).map(|(key, place)| (key.clone(), *place))
}

fn check(index: &Index, model: &Model) {
    index.root.audit(&[], None);
    assert_eq!(index.root.measure(), (index.len(), index.bytes()));
    let all: Vec<_> = model.iter().map(|(key, place)| (key.clone(), *place)).collect();
    assert_eq!(walked(index, &KeyRange::all(), Direction::Forward, usize::MAX / 2), all);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, u64),
    InsertRun(Vec<u8>, u16),
    Remove(Vec<u8>),
    RemoveSome(KeyRange, usize),
    Walk(KeyRange, Direction, usize),
    TakeRange(KeyRange),
    TakeFirst(usize),
    Rebuild,
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    let long = |len| {
        move |(a, b, mut tail): (u8, u8, Vec<u8>)| {
            let mut key = vec![a; len - usize::from(b)];
            key.append(&mut tail);
            key
        }
    };
    prop_oneof![
        10 => vec(0..4_u8, 0..8),
        4 => vec(any::<u8>(), 0..40),
        2 => (0..2_u8, 0..2_u8, vec(0..4_u8, 0..6)).prop_map(long(200)),
        2 => (0..2_u8, 0..2_u8, vec(0..4_u8, 0..6)).prop_map(long(60 << 10)),
        1 => (0..4_u8, 0..255_u8, vec(0..4_u8, 6)).prop_map(long(64 << 10)),
    ]
}

fn ranges() -> impl Strategy<Value = KeyRange> {
    (prop_oneof![Just(Vec::new()), keys()], proptest::option::weighted(0.8, keys()))
        .prop_map(|(start, end)| KeyRange { start, end })
}

fn steps() -> impl Strategy<Value = Step> {
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    prop_oneof![
        20 => (keys(), 0..1_u64 << 42).prop_map(|(key, slot)| Step::Insert(key, slot)),
        6 => (keys(), 1..300_u16).prop_map(|(key, count)| Step::InsertRun(key, count)),
        10 => keys().prop_map(Step::Remove),
        4 => (ranges(), 1..5_usize).prop_map(|(range, nth)| Step::RemoveSome(range, nth)),
        6 => (ranges(), direction, 0..100_usize).prop_map(|(range, d, max)| Step::Walk(range, d, max)),
        2 => ranges().prop_map(Step::TakeRange),
        2 => (0..200_usize).prop_map(Step::TakeFirst),
        1 => Just(Step::Rebuild),
    ]
}

fn insert(index: &mut Index, model: &mut Model, key: &[u8], place: Place) {
    let (before, most) = (index.bytes(), index.bytes_of_new(key));
    assert_eq!(index.get(key), model.get(key).copied());
    assert_eq!(index.insert(key, place), model.insert(key.to_vec(), place));
    assert!(index.bytes() <= before + most, "{} bytes more, {most} foretold", index.bytes() - before);
    assert_eq!(index.get(key), Some(place));
}

/// Moves the entries of `range` from one model into a new one.
fn taken(model: &mut Model, range: &KeyRange) -> Model {
    let taken: Model = in_range(model, range).collect();
    model.retain(|key, _| !taken.contains_key(key));
    taken
}

fn run(index: &mut Index, model: &mut Model, step: Step) {
    match step {
        Step::Insert(key, slot) => insert(index, model, &key, Place::new(3, slot)),
        Step::InsertRun(mut key, count) => {
            let len = key.len();
            for i in 0..count {
                key.truncate(len);
                key.extend(i.to_be_bytes());
                insert(index, model, &key, Place::new(4, i.into()));
            }
        }
        Step::Remove(key) => assert_eq!(index.remove(&key), model.remove(&key)),
        Step::RemoveSome(range, nth) => {
            for (key, place) in in_range(&model.clone(), &range).step_by(nth) {
                assert_eq!((index.remove(&key), model.remove(&key)), (Some(place), Some(place)));
            }
        }
        Step::Walk(range, direction, max) => {
            let rows = in_range(model, &range);
            let expected: Vec<_> = match direction {
                Direction::Forward => rows.take(max).collect(),
                Direction::Backward => rows.rev().take(max).collect(),
            };
            assert_eq!(walked(index, &range, direction, max), expected);
        }
        Step::TakeRange(range) => {
            let (mut index, mut model) = (index.take_range(&range), taken(model, &range));
            check(&index, &model);
            // It is an index like any other.
            for key in [&[][..], &[0xff; 9], &[2, 1, 2]] {
                insert(&mut index, &mut model, key, Place::new(5, 5));
            }
            check(&index, &model);
        }
        Step::TakeFirst(max) => {
            let mut out = Entries::new();
            index.take_first(max, &mut out);
            let expected: Vec<_> = in_range(model, &KeyRange::all()).take(max).collect();
            model.retain(|key, _| expected.last().is_none_or(|(last, _)| key > last));
            assert!(out.iter().eq(expected.iter().map(|(key, place)| (key.as_slice(), *place))));
        }
        Step::Rebuild => {
            let built = Index::from_sorted(model.iter().map(|(key, place)| (key.as_slice(), *place)));
            *index = built;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_index_does_what_a_map_does(steps in vec(steps(), 1..40)) {
        let (mut index, mut model) = (Index::new(), Model::new());
        for step in steps {
            run(&mut index, &mut model, step);
            check(&index, &model);
        }
    }
}

/// Different numbers in an order that looks random.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn memory_comes_back_after_deletes() {
    let mut index = Index::new();
    for n in shuffled(50_000) {
        index.insert(&n.to_be_bytes(), Place::default());
    }
    let full = index.bytes();
    for (i, n) in shuffled(50_000).enumerate() {
        if i % 10 > 0 {
            index.remove(&n.to_be_bytes()).unwrap();
        }
    }
    assert!(index.bytes() < full / 6, "{} bytes of {full} for a tenth", index.bytes());
    for n in shuffled(50_000).step_by(10) {
        index.remove(&n.to_be_bytes()).unwrap();
    }
    assert_eq!((index.len(), index.root.height()), (0, 0));
    assert!(index.bytes() < 256, "{} bytes for nothing", index.bytes());
}

#[test]
fn a_prefix_of_60_kib_is_stored_a_few_times() {
    let mut key = vec![b'p'; 60 << 10];
    let keys: Vec<Vec<u8>> = shuffled(20_000)
        .map(|n| {
            key.truncate(60 << 10);
            key.extend(n.to_be_bytes());
            key.clone()
        })
        .collect();
    let mut index = Index::new();
    for key in &keys {
        let most = index.bytes() + index.bytes_of_new(key);
        assert_eq!(index.insert(key, Place::default()), None);
        assert!(index.bytes() <= most, "{} bytes at {} keys, {most} foretold", index.bytes(), index.len());
    }
    assert!(index.bytes() < 20_000 * 24 + 16 * (60 << 10), "{} bytes", index.bytes());
    let range = KeyRange { start: keys[0].clone(), end: Some(keys[1].clone()) };
    let moved = index.take_range(&range);
    assert!(moved.len() > 1_000 && index.len() + moved.len() == 20_000);
    let bytes = index.bytes() + moved.bytes();
    assert!(bytes < 20_000 * 24 + 40 * (60 << 10), "{bytes} bytes in two");
}

#[test]
fn a_range_moves_by_leaves() {
    let mut builder = Builder::new();
    (0..100_000_u32).for_each(|n| builder.push(&n.to_be_bytes(), Place::default()));
    let mut index = builder.finish();
    let range = KeyRange::new(&10_u32.to_be_bytes()[..]..&99_990_u32.to_be_bytes()[..]);
    let mut moved = index.take_range(&range);
    assert_eq!((moved.len(), index.len(), index.root.height()), (99_980, 20, 0));
    let mut out = Entries::new();
    while !moved.is_empty() {
        moved.take_first(1_000, &mut out);
        moved.root.audit(&[], None);
    }
    assert!(out.iter().map(|(key, _)| key.to_vec()).eq((10..99_990_u32).map(|n| n.to_be_bytes().to_vec())));
}

#[test]
#[should_panic(expected = "ascend")]
fn a_builder_refuses_keys_out_of_order() {
    Index::from_sorted([(&b"b"[..], Place::default()), (&b"a"[..], Place::default())]);
}
