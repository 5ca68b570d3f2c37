//! Tests of runs and their builders.

use kvilt_base::Kind;
use kvilt_sync::pin;

use super::*;

type Row<'a> = (&'a str, u64, Option<&'a str>);

fn entry<'a>((key, version, value): &Row<'a>) -> EntryRef<'a> {
    EntryRef {
        key: key.as_bytes(),
        version: Version::from_u64(*version),
        kind: if value.is_some() { Kind::Put } else { Kind::Tombstone },
        value: value.unwrap_or("").as_bytes(),
    }
}

fn run(rows: &[Row<'_>]) -> Run {
    let mut builder = RunBuilder::new(16).unwrap();
    rows.iter().for_each(|row| builder.push(entry(row)).unwrap());
    builder.finish()
}

/// All entries of a run, forward.
fn rows_of(run: &Run) -> Vec<(Vec<u8>, u64, usize)> {
    let pin = pin();
    let row = |entry: EntryRef<'_>| (entry.key.to_vec(), entry.version.to_u64(), entry.value.len());
    (0..run.len()).map(|at| row(run.under(&pin).entry_at(at))).collect()
}

#[test]
fn pieces_are_two_even_where_one_value_or_one_key_is_most_of_it() {
    let big = "x".repeat(5000);
    let some = "x".repeat(1900);
    for rows in [
        vec![("a", 1, Some("small")), ("b", 1, Some(big.as_str())), ("b", 0, Some("old"))],
        vec![("a", 1, Some(big.as_str())), ("b", 2, Some("small")), ("b", 1, Some("small"))],
        vec![("a", 1, Some("small")), ("b", 3, Some(&some)), ("b", 2, Some(&some)), ("b", 1, Some(&some))],
        vec![("a", 2, Some(&some)), ("a", 1, Some(&some)), ("b", 2, Some(&some)), ("b", 1, Some(&some))],
        vec![("a", 2, Some(&some)), ("a", 1, Some(&some)), ("a", 0, Some(&some)), ("b", 1, None)],
    ] {
        let whole = run(&rows);
        let mut pieces = PiecesBuilder::new(whole.entry_bytes(), 2).unwrap();
        rows.iter().for_each(|row| pieces.push(entry(row)).unwrap());
        let pieces = pieces.finish();
        assert_eq!(pieces.len(), 2);
        let (pin, [first, second]) = (pin(), [&pieces[0], &pieces[1]]);
        assert_eq!(first.under(&pin).first_key(), Some(b"a".as_slice()));
        assert_eq!(second.under(&pin).first_key(), Some(b"b".as_slice()));
        assert_eq!(pieces.iter().flat_map(rows_of).collect::<Vec<_>>(), rows_of(&whole));
        assert_eq!(pieces.iter().map(Run::entry_bytes).sum::<usize>(), whole.entry_bytes());
        for run in &pieces {
            let entries = rows_of(run);
            let older = entries.windows(2).filter(|two| two[0].0 == two[1].0);
            let older: usize = older.map(|two| entry_bytes(two[1].0.len(), two[1].2)).sum();
            assert_eq!(run.unseen_bytes(None), older);
        }
    }
}

#[test]
fn the_first_entries_of_a_run_are_a_run() {
    let whole = run(&[("a", 9, None), ("a", 4, Some("a4")), ("b", 2, Some("b2")), ("c", 1, Some("c1"))]);
    let (hold, pin) = (whole.hold(), pin());
    let first = whole.first(3, &hold);
    assert_eq!(rows_of(&first), rows_of(&whole)[..3]);
    assert_eq!(first.entry_bytes(), whole.bytes_before(3));
    assert_eq!(
        first.under(&pin).find(b"b", key_hash(b"b"), Version::NEWEST).map(|e| e.value.to_vec()),
        Some(b"b2".to_vec())
    );
    assert!(first.under(&pin).find(b"c", key_hash(b"c"), Version::NEWEST).is_none());
    assert_eq!(whole.first(4, &hold).entry_bytes(), whole.entry_bytes());
    assert_eq!(whole.first(0, &hold).len(), 0);
}

#[test]
fn finds_the_newest_version_up_to_a_view_and_walks_both_ways() {
    let big = "x".repeat(5000);
    let run = run(&[
        ("", 1, Some("empty")),
        ("a", 9, None),
        ("a", 4, Some("a4")),
        ("b", 2, Some(&big)),
        ("bb", 1, Some("")),
    ]);
    let pin = pin();
    let at = |key: &str, v: u64| {
        run.under(&pin)
            .find(key.as_bytes(), key_hash(key.as_bytes()), Version::from_u64(v))
            .map(|e| (e.kind, e.value.to_vec()))
    };
    assert_eq!(at("a", 9), Some((Kind::Tombstone, vec![])));
    assert_eq!(at("a", 8), Some((Kind::Put, b"a4".to_vec())));
    assert_eq!(at("a", 3), None);
    assert_eq!(at("b", 2), Some((Kind::Put, big.clone().into_bytes())));
    assert_eq!(at("c", 99), None);
    let range = KeyRange::new("a".."bb");
    let mut keys = Vec::new();
    let mut source = run.under(&pin).source(&range, Direction::Backward);
    while let Some(e) = source.entry() {
        keys.push((e.key.to_vec(), e.version.to_u64()));
        source.advance().unwrap();
    }
    assert_eq!(keys, [(b"b".to_vec(), 2), (b"a".to_vec(), 4), (b"a".to_vec(), 9)]);
    assert!(Run::empty().under(&pin).find(b"a", key_hash(b"a"), Version::NEWEST).is_none());
    assert!(Run::empty().under(&pin).source(&KeyRange::all(), Direction::Forward).entry().is_none());
}

#[test]
fn ranges_of_all_lengths_are_walked_both_ways() {
    let keys: Vec<String> = (0..20).map(|i| format!("k{i:02}")).collect();
    let rows: Vec<Row<'_>> = keys.iter().map(|key| (key.as_str(), 1, Some("value"))).collect();
    let (run, pin) = (run(&rows), pin());
    for (start, end) in (0..=20).flat_map(|start| (start..=20).map(move |end| (start, end))) {
        let range = KeyRange::new(format!("k{start:02}")..format!("k{end:02}"));
        let expected: Vec<Vec<u8>> = keys[start..end].iter().map(|key| key.as_bytes().to_vec()).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut source = run.under(&pin).source(&range, direction);
            let mut found = Vec::new();
            while let Some(entry) = source.entry() {
                assert!((1..=source.remaining.len().min(ENTRIES_AHEAD_MAX)).contains(&source.fetched));
                found.push(entry.key.to_vec());
                source.advance().unwrap();
            }
            if direction == Direction::Backward {
                found.reverse();
            }
            assert_eq!(found, expected, "{direction:?}");
        }
    }
}

/// What has to come out of weaving `new` into `old`: entries by key, then version descending.
fn merged(
    old: &[(String, u64, Option<String>)],
    new: &[(String, u64, Option<String>)],
) -> Vec<(String, u64, Option<String>)> {
    let mut all = [new, old].concat();
    all.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    all
}

/// `new` woven into `run`: of older rows of its keys, those stay whose positions `keeps`.
fn woven(run: &Run, new: &[(String, u64, Option<String>)], keeps: impl Fn(usize) -> bool) -> Run {
    let hold = run.hold();
    let mut weaver = Weaver::new(run, &hold, 3);
    for row in new {
        weaver.begin_key(row.0.as_bytes());
        assert!(weaver.push(owned(row)));
        let mut position = run.held(&hold).lower_bound(row.0.as_bytes());
        while let Some(older) = weaver.next_older(row.0.as_bytes()) {
            if keeps(position) {
                weaver.keep(older);
            }
            position += 1;
        }
    }
    weaver.finish()
}

fn owned<'a>(row: &'a (String, u64, Option<String>)) -> EntryRef<'a> {
    EntryRef {
        key: row.0.as_bytes(),
        version: Version::from_u64(row.1),
        kind: if row.2.is_some() { Kind::Put } else { Kind::Tombstone },
        value: row.2.as_deref().unwrap_or("").as_bytes(),
    }
}

proptest::proptest! {
    #[test]
    fn a_woven_run_is_the_run_of_all_its_entries(
        first in proptest::collection::btree_map("[a-c]{0,3}", proptest::option::of("[x-z]{0,20}"), 0..30),
        rounds in proptest::collection::vec(
            proptest::collection::btree_map("[a-c]{0,3}", proptest::option::of("[x-z]{0,20}"), 0..12), 1..4),
        keeps in proptest::collection::vec(proptest::bool::weighted(0.8), 100),
    ) {
        let mut rows: Vec<_> = first.into_iter().map(|(key, value)| (key, 1, value)).collect();
        let mut builder = RunBuilder::new(16).unwrap();
        rows.iter().for_each(|row| builder.push(owned(row)).unwrap());
        let mut run = builder.finish();
        let mut base = run.entry_bytes();
        for (round, new) in rounds.into_iter().enumerate() {
            let new: Vec<_> = new.into_iter().map(|(key, value)| (key, 2 + round as u64, value)).collect();
            // Of the keys that are new, some older rows are dropped.
            let kept: Vec<_> = (0..run.len()).filter(|at| keeps[(at * 7 + round) % keeps.len()]).collect();
            let woven = woven(&run, &new, |at| kept.contains(&at));
            let is_new = |key: &str| new.iter().any(|row| row.0 == key);
            let kept: Vec<_> = (0..run.len()).filter(|at| kept.contains(at) || !is_new(&rows[*at].0)).collect();
            rows = merged(&kept.iter().map(|&at| rows[at].clone()).collect::<Vec<_>>(), &new);

            let expected: usize = rows.iter().map(|row| entry_bytes(row.0.len(), row.2.as_deref().unwrap_or("").len())).sum();
            proptest::prop_assert_eq!(woven.len(), rows.len());
            proptest::prop_assert_eq!(woven.entry_bytes(), expected);
            let newest = |row: &&(String, u64, Option<String>)| rows.iter().find(|other| other.0 == row.0) == Some(row);
            let older = rows.iter().filter(|row| !newest(row)).map(|row| bytes_of(owned(row))).sum::<usize>();
            proptest::prop_assert_eq!(woven.unseen_bytes(None), older);
            // Nobody who looks at the newest sees them; who looks at the oldest does.
            let view = |version| Some(Version::from_u64(version));
            proptest::prop_assert_eq!(woven.unseen_bytes(view(2 + round as u64)), older);
            proptest::prop_assert_eq!(woven.unseen_bytes(view(0)), 0);
            base += new.iter().map(|row| bytes_of(owned(row))).sum::<usize>();
                        proptest::prop_assert_eq!(woven.waste_bytes(), base - expected);
            let pin = pin();
            for (at, row) in rows.iter().enumerate() {
                proptest::prop_assert_eq!(woven.under(&pin).entry_at(at), owned(row));
            }
            for key in ["", "a", "b", "ab", "abc", "cc", "zz"].into_iter().chain(rows.iter().map(|row| row.0.as_str())) {
                for at in 0..6 {
                    let expected = rows.iter().find(|row| row.0 == key && row.1 <= at).map(owned);
                    let found = woven.under(&pin).find(key.as_bytes(), key_hash(key.as_bytes()), Version::from_u64(at));
                    proptest::prop_assert_eq!(found, expected);
                }
            }
            run = woven;
        }
    }
}

#[test]
fn rows_that_do_not_change_stay_where_they_are_and_new_ones_follow_each_other() {
    let before = run(&[("a", 1, Some("a1")), ("b", 1, Some("b1")), ("c", 1, Some("c1"))]);
    let row = |key: &str, version, value: &str| (key.to_string(), version, Some(value.to_string()));
    let first = woven(&before, &[row("b", 4, "b4"), row("d", 5, "d5")], |_| false);
    assert_eq!(first.waste_bytes(), entry_bytes(1, 2));
    let second = woven(&first, &[row("c", 6, "c6")], |_| false);
    let place = |run: &Run, at: usize| run.under(&pin()).entry_at(at).key.as_ptr();
    assert_eq!((place(&first, 0), place(&first, 2)), (place(&before, 0), place(&before, 2)));
    assert_eq!(
        (place(&second, 0), place(&second, 1), place(&second, 3)),
        (place(&before, 0), place(&first, 1), place(&first, 3))
    );
    assert_eq!(
        rows_of(&first),
        [(b"a".to_vec(), 1, 2), (b"b".to_vec(), 4, 2), (b"c".to_vec(), 1, 2), (b"d".to_vec(), 5, 2)]
    );
    assert_eq!(second.waste_bytes(), 2 * entry_bytes(1, 2));
}

#[test]
fn a_key_that_is_deleted_and_needed_by_nobody_is_found_no_more() {
    let before = run(&[("a", 1, Some("a1")), ("b", 1, Some("b1"))]);
    let hold = before.hold();
    let mut weaver = Weaver::new(&before, &hold, 0);
    weaver.begin_key(b"a");
    assert!(weaver.next_older(b"a").is_some());
    assert!(weaver.next_older(b"a").is_none());
    let after = weaver.finish();
    assert_eq!(rows_of(&after), [(b"b".to_vec(), 1, 2)]);
    let pin = pin();
    assert!(after.under(&pin).find(b"a", key_hash(b"a"), Version::NEWEST).is_none());
    assert!(after.under(&pin).find(b"b", key_hash(b"b"), Version::NEWEST).is_some());
}

#[test]
fn what_does_not_fit_is_refused() {
    let before = run(&[("a", 1, Some("a1"))]);
    let hold = before.hold();
    let mut weaver = Weaver::new(&before, &hold, 1);
    weaver.begin_key(b"b");
    let value = "b".repeat(20 << 10);
    let pushed = (0..1000).take_while(|n| weaver.push(entry(&("b", 1000 - n, Some(&value))))).count();
    assert!((1..10).contains(&pushed), "{pushed} values in what is left for them");
    assert!(weaver.push(entry(&("b", 0, Some("short")))), "a short one has room");
}

#[test]
fn a_row_takes_the_place_of_the_newest_of_its_key_unless_that_is_seen_or_the_run_is_held() {
    let run = run(&[("a", 1, Some("a1")), ("b", 4, Some("b4")), ("b", 2, Some("b2")), ("c", 3, None)]);
    let replace = |row: &Row<'_>, may_replace: bool| {
        run.replace(entry(row), key_hash(row.0.as_bytes()), &pin(), |older| {
            assert!(older.version < Version::from_u64(row.1));
            may_replace
        }) == Replaced::Done
    };
    assert!(replace(&("b", 7, Some("b, and longer")), true));
    assert!(!replace(&("a", 7, Some("seen")), false));
    assert!(!replace(&("aa", 7, Some("not there")), true));
    assert!(replace(&("c", 7, Some("c7")), true));
    let hold = run.hold();
    assert!(!replace(&("a", 8, Some("held")), true));
    drop(hold);
    assert!(replace(&("a", 9, Some("a")), true));
    let expected = [("a", 9, 1), ("b", 7, 13), ("b", 2, 2), ("c", 7, 2)];
    assert_eq!(rows_of(&run), expected.map(|(key, version, len)| (key.as_bytes().to_vec(), version, len)));
    let bytes: usize = expected.iter().map(|(key, _, len)| entry_bytes(key.len(), *len)).sum();
    assert_eq!((run.entry_bytes(), run.waste_bytes(), run.is_scattered()), (bytes, 0, true));
    let pin = pin();
    assert_eq!(
        run.under(&pin).find(b"b", key_hash(b"b"), Version::from_u64(3)).map(|e| e.value),
        Some(&b"b2"[..])
    );
}

#[test]
fn a_row_behind_what_was_woven_in_is_replaced_as_well() {
    let before = run(&[("b", 1, Some("b1")), ("c", 1, Some("c1"))]);
    let row = |key: &str, version, value: &str| (key.to_string(), version, Some(value.to_string()));
    let woven = woven(&before, &[row("a", 2, "a2")], |_| true);
    let replace = |key: &str| {
        woven.replace(entry(&(key, 3, Some("3"))), key_hash(key.as_bytes()), &pin(), |_| true)
            == Replaced::Done
    };
    assert!(!replace("c"), "another run shares the memory");
    drop(before);
    assert!(["a", "b", "c"].into_iter().all(replace));
    assert_eq!(rows_of(&woven), [(b"a".to_vec(), 3, 1), (b"b".to_vec(), 3, 1), (b"c".to_vec(), 3, 1)]);
}

#[test]
fn scans_pay_for_order_only_where_rows_lie_apart() {
    let value = "v".repeat(3000);
    let keys: Vec<String> = (0..20).map(|i| format!("k{i:02}")).collect();
    let rows: Vec<Row<'_>> = keys.iter().map(|key| (key.as_str(), 1, Some(value.as_str()))).collect();
    let run = run(&rows);
    let scan = || {
        let pin = pin();
        let mut source = run.under(&pin).source(&KeyRange::all(), Direction::Forward);
        while source.entry().is_some() {
            source.advance().unwrap();
        }
    };
    (0..100).for_each(|_| scan());
    assert!(!run.have_scans_paid_for_order());
    for (nth, key) in keys.iter().enumerate().step_by(2) {
        let row = (key.as_str(), 2 + nth as u64, Some(value.as_str()));
        assert_eq!(run.replace(entry(&row), key_hash(key.as_bytes()), &pin(), |_| true), Replaced::Done);
    }
    assert!(!run.have_scans_paid_for_order());
    (0..20).for_each(|_| scan());
    assert!(run.have_scans_paid_for_order());
}
