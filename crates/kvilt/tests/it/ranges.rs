//! Ranges: order, both ends, limits, laziness, errors, one moment.

use std::{ops::ControlFlow, sync::atomic::Ordering};

use kvilt::{ErrorKind, Range};

use crate::{db, numbered, text};

/// Takes rows from both ends as `ends` says (true: front), and puts them back into one order.
fn from_both_ends(mut range: Range, ends: impl Fn(usize) -> bool) -> Vec<String> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for i in 0.. {
        let is_front = ends(i);
        let row = if is_front { range.next() } else { range.next_back() };
        let Some(row) = row else { break };
        let key = text(&row.unwrap().0);
        if is_front { front.push(key) } else { back.push(key) }
    }
    assert!(range.next().is_none() && range.next_back().is_none(), "fused");
    front.extend(back.into_iter().rev());
    front
}

#[test]
fn every_row_is_given_once_from_whichever_end() {
    for count in [0, 1, 2, 3, 10, 700] {
        let (db, engine) = numbered(count);
        let expected: Vec<String> = (0..count).map(|i| format!("{i:04}")).collect();
        type Ends = fn(usize) -> bool;
        let patterns: [Ends; 6] =
            [|_| true, |_| false, |i| i % 2 == 0, |i| i % 3 == 0, |i| i < 5, |i| i > 200];
        for ends in patterns {
            assert_eq!(from_both_ends(db.iter(), ends), expected, "{count} rows");
        }
        assert_eq!(engine.open_views(), 0, "a range at its end holds no view");
    }
}

/// What `visit` or `visit_back` shows of a range until it has shown `rows_max`.
fn visited(range: Range, is_backward: bool, rows_max: usize) -> Vec<String> {
    let mut keys = Vec::new();
    let show = |key: &[u8], value: &[u8]| {
        let key = String::from_utf8(key.to_vec()).unwrap();
        assert_eq!(value, format!("value of {}", key.parse::<usize>().unwrap()).as_bytes());
        keys.push(key);
        if keys.len() == rows_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let shown = if is_backward { range.visit_back(show) } else { range.visit(show) };
    shown.unwrap();
    keys
}

#[test]
fn a_visit_shows_what_walking_would_have_given() {
    for count in [0, 1, 2, 10, 700] {
        for taken in [(0, 0), (1, 0), (0, 1), (3, 4), (200, 300), (400, 400)] {
            for (limit, rows_max) in [(usize::MAX, usize::MAX), (5, usize::MAX), (500, 2), (5, 5), (0, 9)] {
                let (db, engine) = numbered(count);
                // First some rows are walked from both ends, so that both have some more in hand.
                let ranges = [db.iter(), db.iter(), db.iter()].map(|mut range| {
                    let front = range.by_ref().take(taken.0).count();
                    let back = range.by_ref().rev().take(taken.1).count();
                    assert!(front <= taken.0 && back <= taken.1);
                    range.limit(limit)
                });
                let [walked, forward, backward] = ranges;
                let expected: Vec<String> = walked.map(|row| text(&row.unwrap().0)).collect();
                let first = |keys: Vec<String>| keys.into_iter().take(rows_max).collect::<Vec<_>>();
                assert_eq!(visited(forward, false, rows_max), first(expected.clone()));
                let (front, back) = (taken.0.min(count), taken.1.min(count.saturating_sub(taken.0)));
                let all = (front..count - back).rev().map(|i| format!("{i:04}"));
                assert_eq!(visited(backward, true, rows_max), first(all.take(limit).collect()));
                assert_eq!(engine.open_views(), 0, "a visit leaves no view open");
            }
        }
    }
}

#[test]
fn an_error_ends_a_visit_behind_the_rows_before_it() {
    for is_backward in [false, true] {
        let (db, engine) = numbered(1000);
        engine.scans_until_failure.store(3, Ordering::SeqCst);
        let mut rows = 0;
        let count = |_: &[u8], _: &[u8]| {
            rows += 1;
            ControlFlow::Continue(())
        };
        let shown = if is_backward { db.iter().visit_back(count) } else { db.iter().visit(count) };
        assert_eq!(shown.unwrap_err().kind(), ErrorKind::Corrupted);
        assert_eq!(rows, 301, "what the stand-in's first two scans gave");
        assert_eq!(engine.open_views(), 0);
    }
    let (db, engine) = numbered(10);
    engine.scans_until_failure.store(1, Ordering::SeqCst);
    let error = db.iter().visit(|_, _| panic!("nothing can be shown")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupted);
}

#[test]
fn a_visit_shows_keys_without_their_keyspace() {
    let (db, _) = db();
    let users = db.keyspace("users").unwrap();
    users.put("0007", "value of 7").unwrap();
    assert_eq!(visited(users.iter(), false, usize::MAX), ["0007"]);
    assert_eq!(visited(users.prefix("00"), true, usize::MAX), ["0007"]);
}

/// Rows that were copied out before the visit, and those that were not.
#[test]
fn a_visit_goes_on_where_walking_stopped() {
    let (db, _) = db();
    let users = db.keyspace("users").unwrap();
    for user in 1..=6 {
        users.put(format!("{user:04}"), format!("value of {user}")).unwrap();
    }
    let begun = |limit| {
        let mut range = users.iter().limit(limit);
        assert_eq!(range.next().unwrap().unwrap().0, b"0001");
        assert_eq!(range.next_back().unwrap().unwrap().0, b"0006");
        range
    };
    assert_eq!(visited(begun(usize::MAX), false, usize::MAX), ["0002", "0003", "0004", "0005"]);
    assert_eq!(visited(begun(usize::MAX), true, 3), ["0005", "0004", "0003"]);
    assert_eq!(visited(begun(4), false, usize::MAX), ["0002", "0003"]);
    assert_eq!(visited(begun(4), true, usize::MAX), ["0005", "0004"]);
}

/// A limit counts rows of both ends, and does not hide the far end of the range.
#[test]
fn a_limited_range_is_read_from_both_ends() {
    let (db, engine) = numbered(700);
    for limit in [0, 1, 2, 5, 300] {
        let keys = from_both_ends(db.iter().limit(limit), |i| i % 2 == 0);
        let front = limit.div_ceil(2);
        let expected = (0..front).chain(700 - (limit - front)..700).map(|i| format!("{i:04}"));
        assert_eq!(keys, expected.collect::<Vec<_>>(), "limit {limit}");
    }
    assert_eq!(engine.open_views(), 0);
}

#[test]
fn rows_come_with_their_values_and_without_a_prefix() {
    let (db, _) = numbered(300);
    let rows: Vec<_> = db.range("0100".."0102").map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[1].0.to_vec(), rows[1].1.to_vec()), (b"0101".to_vec(), b"value of 101".to_vec()));
}

#[test]
fn prefixes_mean_what_they_say() {
    let (db, _) = db();
    for key in [&b"a"[..], b"ab", b"ab\xff", b"ab\xff\xff", b"ac", b"\xff", b"\xff\xff", b""] {
        db.put(key, "").unwrap();
    }
    let count = |prefix: &[u8]| db.prefix(prefix).count();
    assert_eq!(count(b"ab"), 3);
    assert_eq!(count(b"ab\xff"), 2);
    assert_eq!(count(b"\xff"), 2);
    assert_eq!(count(b""), 8);
    assert_eq!(count(b"b"), 0);
}

#[test]
fn a_range_that_ends_before_it_starts_is_empty_and_costs_nothing() {
    let (db, engine) = numbered(10);
    assert_eq!(db.range("5".."1").count(), 0);
    assert_eq!(db.range("5".."5").count(), 0);
    db.delete_range("5".."1").unwrap();
    assert_eq!(db.iter().count(), 10);
    db.close().unwrap();
    assert_eq!(db.range("5".."1").count(), 0, "not even a view is opened");
    assert_eq!(engine.open_views(), 0);
}

#[test]
fn limits_hold_over_both_ends() {
    let (db, engine) = numbered(100);
    let key = |row: kvilt::Result<kvilt::Row>| text(&row.unwrap().0);
    assert_eq!(db.iter().limit(2).map(key).collect::<Vec<_>>(), ["0000", "0001"]);
    assert_eq!(db.iter().limit(2).rev().map(key).collect::<Vec<_>>(), ["0099", "0098"]);
    assert_eq!(db.iter().limit(0).count(), 0);
    assert_eq!(db.iter().limit(1000).count(), 100);
    let mut both = db.iter().limit(2);
    assert_eq!(both.next_back().map(key).as_deref(), Some("0099"));
    assert_eq!(both.next().map(key).as_deref(), Some("0000"));
    assert!(both.next().is_none());
    engine.scanned_rows.store(0, Ordering::SeqCst);
    assert_eq!(db.iter().limit(3).count(), 3);
    assert!(engine.scanned_rows.load(Ordering::SeqCst) <= 3, "what is not wanted is not read");
}

#[test]
fn keys_alone_come_from_both_ends_too() {
    let (db, _) = numbered(50);
    let mut keys = db.range("0010".."0020").keys().limit(3);
    assert_eq!(keys.next().unwrap().unwrap(), b"0010");
    assert_eq!(keys.next_back().unwrap().unwrap(), b"0019");
    assert_eq!(keys.count(), 1);
}

#[test]
fn nothing_is_read_before_it_is_asked_for_and_little_at_first() {
    let (db, engine) = db();
    for i in 0..2000 {
        db.put(format!("{i:06}"), [7; 1000]).unwrap();
    }
    let mut range = db.iter();
    assert_eq!(engine.scans.load(Ordering::SeqCst), 0);
    range.next().unwrap().unwrap();
    let first = engine.scanned_bytes.load(Ordering::SeqCst);
    assert!((1000..10_000).contains(&first), "{first} bytes for one row");
    assert_eq!(range.count(), 1999);
    let scans = engine.scans.load(Ordering::SeqCst);
    assert!(scans < 60, "{scans} scans for 2 MB");
}

#[test]
fn a_range_sees_the_moment_it_was_made_and_outlives_its_db() {
    let (db, engine) = numbered(10);
    let range = db.iter();
    db.put("0000", "later").unwrap();
    db.delete("0001").unwrap();
    db.put("00001", "later").unwrap();
    drop(db);
    let rows: Vec<_> = range.map(|row| text(&row.unwrap().1)).collect();
    assert_eq!(rows, (0..10).map(|i| format!("value of {i}")).collect::<Vec<_>>());
    assert_eq!(engine.open_views(), 0);
}

#[test]
fn an_error_is_given_once_and_ends_the_range() {
    for (good_scans, is_backward) in [(1, false), (1, true), (3, false), (3, true)] {
        let (db, engine) = numbered(1000);
        engine.scans_until_failure.store(good_scans, Ordering::SeqCst);
        let mut range = db.iter();
        let mut step = || if is_backward { range.next_back() } else { range.next() };
        let error = std::iter::from_fn(&mut step).find_map(Result::err).expect("the planted error");
        assert_eq!(error.kind(), ErrorKind::Corrupted);
        assert!(step().is_none());
        assert!(range.next().is_none() && range.next_back().is_none());
        assert_eq!(engine.open_views(), 0);
    }
}

#[test]
fn ranges_and_snapshots_may_go_to_other_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<kvilt::Db>();
    check::<kvilt::Keyspace>();
    check::<kvilt::Snapshot>();
    check::<kvilt::Range>();
    check::<kvilt::Keys>();
    check::<kvilt::WriteBatch>();
    check::<kvilt::Env>();
}
