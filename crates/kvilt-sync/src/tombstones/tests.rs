//! Range tombstones in a tree, step by step counted, and beside a list that is searched one by one.

use std::sync::Arc;

use kvilt_base::{Hiding as _, KeyRange, RangeTombstone, Version, steps::take_steps};
use proptest::prelude::*;

use super::{Hidden, Over, Tombstones};
use crate::versions::{Versions, View};

fn versions() -> Arc<Versions> {
    Versions::new(Version::new(1, 1))
}

/// Lays one over a range as a range delete does, and says at which version.
fn delete(all: &mut Tombstones, range: KeyRange, versions: &Versions) -> Version {
    versions.advance();
    let pending = versions.announce_batch();
    let version = pending.version();
    all.push(&RangeTombstone { range, version }, pending.batch(), versions);
    version
}

fn range_of(start: u64, end: u64) -> KeyRange {
    KeyRange { start: start.to_be_bytes().to_vec(), end: Some(end.to_be_bytes().to_vec()) }
}

/// Steps that are fine for one operation on this number of pieces: a treap is some two to three times as deep
/// as what is balanced well, and a range delete walks down it at both ends, and up again.
fn steps_max(pieces: u64) -> u64 {
    20 * (u64::from(pieces.ilog2()) + 2)
}

#[test]
fn a_range_delete_and_a_get_cost_a_few_steps_beside_ten_thousand_others() {
    let versions = versions();
    let mut all = Tombstones::default();
    let (mut most_to_push, mut most_to_find) = (0, 0);
    take_steps();
    for i in 0..10_000 {
        let start = i * 7919 % 10_000 * 10;
        let version = delete(&mut all, range_of(start, start + 5), &versions);
        most_to_push = most_to_push.max(take_steps());
        let key = (start + 3).to_be_bytes();
        assert_eq!(all.hide(&key, Version::ZERO, version, &versions), Hidden::Yes);
        most_to_find = most_to_find.max(take_steps());
    }
    assert!(
        most_to_push <= 4 * steps_max(20_000) && most_to_find <= steps_max(20_000) / 2,
        "{most_to_push} {most_to_find}"
    );
    // However many are covered, one over all of them costs no more; and those go that nobody sees any more.
    for _ in 0..2 {
        delete(&mut all, KeyRange::all(), &versions);
    }
    assert!(take_steps() <= 8 * steps_max(20_000));
    assert!(all.bytes() < 1_000, "{}", all.bytes());
}

#[test]
fn the_same_range_deleted_many_times_is_one_piece() {
    let versions = versions();
    let mut all = Tombstones::default();
    take_steps();
    for _ in 0..20_000 {
        delete(&mut all, range_of(3, 8), &versions);
        assert!(take_steps() <= 100);
    }
    assert!(all.bytes() < 1_000, "{}", all.bytes());
}

/// A view keeps what lies below it, and no more: here two versions, with the one that may be in flight three.
#[test]
fn beside_a_view_wide_range_deletes_cost_a_few_steps_as_well() {
    let versions = versions();
    let mut all = Tombstones::default();
    (0..5_000).for_each(|i| {
        delete(&mut all, range_of(i * 10, i * 10 + 5), &versions);
    });
    let view = versions.open_view();
    take_steps();
    for _ in 0..5_000 {
        delete(&mut all, KeyRange::all(), &versions);
        assert!(take_steps() <= 4 * steps_max(10_000));
    }
    let key = 21_u64.to_be_bytes();
    assert_eq!(all.hide(&key, Version::new(1, 2), view.version(), &versions), Hidden::Yes);
    let key = 27_u64.to_be_bytes();
    assert_eq!(all.hide(&key, Version::new(1, 2), view.version(), &versions), Hidden::No);
    assert_eq!(all.hide(&key, Version::new(1, 2), Version::NEWEST, &versions), Hidden::Yes);
}

/// E-17: until the newer one is settled, gets are to find the older one.
#[test]
fn an_older_one_stays_while_the_one_over_it_is_in_flight() {
    let versions = versions();
    let mut all = Tombstones::default();
    let older = delete(&mut all, range_of(0, 9), &versions);
    versions.advance();
    let pending = versions.announce_batch();
    let newer = pending.version();
    all.push(&RangeTombstone { range: range_of(0, 5), version: newer }, pending.batch(), &versions);
    let hide = |written| all.hide(&3_u64.to_be_bytes(), written, Version::NEWEST, &versions);
    assert_eq!((hide(Version::ZERO), hide(older), hide(newer)), (Hidden::Yes, Hidden::Soon, Hidden::No));
    drop(pending);
    assert_eq!((hide(older), hide(newer)), (Hidden::Yes, Hidden::No));
}

#[test]
fn keys_of_every_length_are_kept_whole() {
    let versions = versions();
    let mut all = Tombstones::default();
    for len in 0..70 {
        let start = vec![b'k'; len];
        let end = [&start[..], &[0]].concat();
        let version = delete(&mut all, KeyRange { start: start.clone(), end: Some(end.clone()) }, &versions);
        let hidden = |key: &[u8]| all.hide(key, Version::ZERO, version, &versions);
        assert_eq!((hidden(&start), hidden(&end)), (Hidden::Yes, Hidden::No), "{len}");
    }
}

/// A scan looks up one piece after the other, not every row.
#[test]
fn rows_of_one_piece_are_looked_up_together() {
    let versions = versions();
    let mut all = Tombstones::default();
    (0..1_000).for_each(|i| {
        delete(&mut all, range_of(i * 100, i * 100 + 50), &versions);
    });
    let all = [Arc::new(all)];
    let mut over = Over::new(&all);
    take_steps();
    let hidden = (0..100_000_u64).filter(|i| over.hides(&i.to_be_bytes(), Version::ZERO, Version::NEWEST));
    assert_eq!(hidden.count(), 50_000);
    assert!(take_steps() <= 2_000 * steps_max(2_000));
}

/// What is checked against: a list, asked one by one.
#[derive(Default)]
struct Model(Vec<RangeTombstone>);

impl Model {
    fn hides(&self, key: &[u8], written: Version, view: Version) -> bool {
        self.0.iter().any(|tombstone| tombstone.hides(key, written, view))
    }

    fn filtered(&self, stays: impl Fn(&RangeTombstone) -> bool) -> Model {
        Model(self.0.iter().filter(|tombstone| stays(tombstone)).cloned().collect())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Delete(u8, Option<u8>),
    Open,
    Close(u8),
    Freeze,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..24_u8, proptest::option::weighted(0.9, 0..30_u8)).prop_map(|(a, b)| Step::Delete(a, b)),
        2 => Just(Step::Open),
        2 => any::<u8>().prop_map(Step::Close),
        1 => Just(Step::Freeze),
    ]
}

/// Long keys share what they begin with.
fn prefix() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => Just(Vec::new()), 1 => Just(vec![b'p'; 300])]
}

/// Of the longer ones of these, every third has nothing in common with the others.
fn key_of(prefix: &[u8], key: u8) -> Vec<u8> {
    let begin = if key.is_multiple_of(3) { vec![key; prefix.len()] } else { prefix.to_vec() };
    [begin, vec![key]].concat()
}

/// Each open view, and who reads now, sees of each key and version what the list says.
fn assert_alike(all: &Tombstones, model: &Model, prefix: &[u8], views: &[View], versions: &Versions) {
    let alone = [Arc::new(all.clone())];
    let mut over = Over::new(&alone);
    let moments: Vec<Version> = views.iter().map(View::version).chain([Version::NEWEST]).collect();
    for key in (0..32).map(|key| key_of(prefix, key)) {
        for count in 0..=versions.current().count() {
            let written = Version::new(1, count);
            for view in moments.iter().copied().filter(|view| written <= *view) {
                let expected = model.hides(&key, written, view);
                let hidden = all.hide(&key, written, view, versions);
                assert_eq!(hidden == Hidden::Yes, expected, "{key:?} {written} {view} {:?}", model.0);
                assert_eq!(over.hides(&key, written, view), expected, "{key:?} {written} {view}");
            }
            let deletes = model.hides(&key, written, Version::NEWEST);
            assert_eq!(all.delete(&key, written), deletes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn all_readers_see_what_a_list_would_show_them(
        steps in proptest::collection::vec(step(), 1..40), prefix in prefix(),
    ) {
        let versions = versions();
        let (mut all, mut model, mut views) = (Tombstones::default(), Model::default(), Vec::new());
        let mut frozen = Version::ZERO;
        for step in steps {
            match step {
                Step::Delete(start, end) => {
                    let (start, end) = (key_of(&prefix, start), end.map(|end| key_of(&prefix, end)));
                    let range = KeyRange { start, end };
                    if !range.is_empty() {
                        let version = delete(&mut all, range.clone(), &versions);
                        model.0.push(RangeTombstone { range, version });
                    }
                }
                Step::Open => views.push(versions.open_view()),
                Step::Close(at) if !views.is_empty() => drop(views.swap_remove(usize::from(at) % views.len())),
                Step::Close(_) => {}
                Step::Freeze => frozen = all.newest(),
            }
            assert_alike(&all, &model, &prefix, &views, &versions);
        }
        let since = model.filtered(|tombstone| tombstone.version > frozen);
        assert_alike(&all.since(frozen), &since, &prefix, &views, &versions);
        let cut = key_of(&prefix, 10);
        let (left, right) = (KeyRange::new(..cut.clone()), KeyRange::new(cut..));
        let halves = [&left, &right].map(|half| all.touching(half));
        let half_of = |half: &KeyRange| Model(model.0.iter().map(|tombstone| RangeTombstone {
            range: tombstone.range.intersection(half), ..*tombstone
        }).filter(|tombstone| !tombstone.range.is_empty()).collect());
        assert_alike(&halves[0], &half_of(&left), &prefix, &views, &versions);
        assert_alike(&halves[1], &half_of(&right), &prefix, &views, &versions);
        let [mut both, other] = halves;
        both.extend(&other);
        assert_alike(&both, &model, &prefix, &views, &versions);
        prop_assert_eq!(all.is_empty(), model.0.is_empty());
    }
}

#[test]
fn a_chunk_is_covered_by_one_or_by_several_side_by_side() {
    let versions = versions();
    let mut all = Tombstones::default();
    let chunk = range_of(2, 8);
    assert!(!all.cover(&chunk));
    delete(&mut all, range_of(0, 5), &versions);
    assert!(!all.cover(&chunk));
    delete(&mut all, range_of(5, 9), &versions);
    assert!(all.cover(&chunk) && !all.cover(&range_of(2, 10)) && !all.cover(&KeyRange::all()));
    delete(&mut all, KeyRange::all(), &versions);
    assert!(all.cover(&KeyRange::all()));
}
