//! Keyspaces: apart from one another, listed, dropped for good, many.

use std::sync::Arc;

use kvilt::{Db, ErrorKind};

use crate::{db, stand_in::StandIn, text};

/// The same rows in an engine that was opened anew: what a restart would find.
fn reopened(engine: &StandIn) -> (Db, Arc<StandIn>) {
    let fresh = StandIn::new();
    for (key, value) in engine.raw_rows() {
        kvilt_base::Engine::put(&*fresh, &key, &value).unwrap();
    }
    (Db::over(fresh.clone(), "in memory"), fresh)
}

#[test]
fn keyspaces_do_not_see_one_another() {
    let (db, _) = db();
    let spaces: Vec<_> = (0..300).map(|i| db.keyspace(&format!("ks{i}")).unwrap()).collect();
    for (i, space) in spaces.iter().enumerate() {
        for key in ["", "a", "\u{7f}"] {
            space.put(key, format!("{i}")).unwrap();
        }
        space.put([0xff; 9], format!("{i}")).unwrap();
    }
    db.put("a", "default").unwrap();
    for (i, space) in spaces.iter().enumerate() {
        let rows: Vec<_> = space.iter().map(|row| text(&row.unwrap().1)).collect();
        assert_eq!(rows, vec![i.to_string(); 4]);
        assert_eq!(space.range("a"..).rev().count(), 3);
        assert_eq!(space.prefix([0xff]).count(), 1);
    }
    assert_eq!(db.iter().count(), 1);
    spaces[7].delete_range(..).unwrap();
    assert_eq!(spaces[6].iter().count() + spaces[7].iter().count() + spaces[8].iter().count(), 8);
}

#[test]
fn names_lead_to_the_same_keyspace_and_survive() {
    let (db, engine) = db();
    db.keyspace("users").unwrap().put("1", "ada").unwrap();
    db.keyspace("tags").unwrap().put("1", "maths").unwrap();
    assert_eq!(db.keyspace("users").unwrap().get("1").unwrap().unwrap(), b"ada");
    let (db, _) = reopened(&engine);
    assert_eq!(db.keyspaces().unwrap(), ["tags", "users"]);
    assert_eq!(db.keyspace("users").unwrap().get("1").unwrap().unwrap(), b"ada");
    assert_eq!(db.keyspace("new").unwrap().iter().count(), 0);
    assert_eq!(db.keyspace("new").unwrap().name(), "new");
}

#[test]
fn names_have_limits() {
    let (db, _) = db();
    for name in ["", &"x".repeat(256)] {
        assert_eq!(db.keyspace(name).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(db.drop_keyspace(name).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    db.keyspace(&"x".repeat(255)).unwrap();
    db.keyspace("schlüssel/räume \u{1f511}").unwrap();
}

#[test]
fn dropping_deletes_the_rows_and_ends_the_handles() {
    let (db, engine) = db();
    let (old, other) = (db.keyspace("t").unwrap(), db.keyspace("u").unwrap());
    old.put("k", "v").unwrap();
    other.put("k", "kept").unwrap();
    let before = old.snapshot();
    assert!(db.drop_keyspace("t").unwrap());
    assert!(!db.drop_keyspace("t").unwrap());
    assert!(!db.drop_keyspace("never there").unwrap());
    for error in [
        old.get("k").unwrap_err(),
        old.put("k", "v").unwrap_err(),
        old.delete_range(..).unwrap_err(),
        old.iter().next().unwrap().unwrap_err(),
        old.update("k", |_| Some("x")).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("`t` was dropped"), "{error}");
    }
    assert_eq!(before.get("k").unwrap().unwrap(), b"v", "a snapshot still sees the rows");
    let new = db.keyspace("t").unwrap();
    assert_eq!(new.get("k").unwrap(), None);
    assert_eq!(other.get("k").unwrap().unwrap(), b"kept");
    assert_eq!(db.keyspaces().unwrap(), ["t", "u"]);
    let rows_with_v = engine.raw_rows().iter().filter(|(_, value)| value == b"v").count();
    assert_eq!(rows_with_v, 0);
}

#[test]
fn a_row_that_slipped_in_while_dropping_is_gone_after_the_next_open() {
    let (db, engine) = db();
    let space = db.keyspace("t").unwrap();
    space.put("k", "v").unwrap();
    let row = engine.raw_rows().into_iter().find(|(_, value)| value == b"v").unwrap();
    db.drop_keyspace("t").unwrap();
    // As if a put that was checked before the drop reached the engine after it.
    kvilt_base::Engine::put(&*engine, &row.0, b"late").unwrap();
    let (db, engine) = reopened(&engine);
    assert_eq!(db.keyspaces().unwrap(), Vec::<String>::new());
    assert!(!engine.raw_rows().iter().any(|(_, value)| value == b"late"));
    let (db, engine) = reopened(&engine);
    db.keyspaces().unwrap();
    assert_eq!(engine.raw_rows().len(), 1, "only the next id is left in the catalogue");
}

/// Each use of the catalogue looks at a few marks, so that nobody waits for thousands.
#[test]
fn after_many_drops_the_next_open_sweeps_them_a_few_at_a_time() {
    let (db, engine) = db();
    for i in 0..300 {
        let name = format!("t{i}");
        db.keyspace(&name).unwrap().put("k", "v").unwrap();
    }
    let rows = engine.raw_rows();
    let late: Vec<_> = rows.iter().filter(|(_, value)| value == b"v").map(|(key, _)| key).collect();
    // Not all of them: what is between stays.
    (0..300).filter(|i| i % 100 != 50).for_each(|i| assert!(db.drop_keyspace(&format!("t{i}")).unwrap()));
    late.iter().step_by(7).for_each(|key| kvilt_base::Engine::put(&*engine, key, b"late").unwrap());
    let (db, engine) = reopened(&engine);
    let count_of = |wanted: &[u8]| engine.raw_rows().iter().filter(|(_, value)| value == wanted).count();
    let (late_before, all_before) = (count_of(b"late"), engine.raw_rows().len());
    assert_eq!(db.keyspace("t50").unwrap().get("k").unwrap().unwrap(), b"v");
    let swept = all_before - engine.raw_rows().len();
    assert!((64..=64 + late_before).contains(&swept), "{swept} of {all_before}");
    // Marks of this run are left alone, or a write that is still under way would stay for good.
    assert!(db.drop_keyspace("t50").unwrap());
    (0..4).for_each(|_| assert_eq!(db.keyspaces().unwrap(), ["t150", "t250"]));
    assert_eq!((count_of(b"late"), count_of(b"v")), (0, 2));
    // The next id, two names, and the mark of the one that was dropped now.
    assert_eq!(engine.raw_rows().len(), 2 + 4);
    let (db, engine) = reopened(&engine);
    db.keyspaces().unwrap();
    assert_eq!(engine.raw_rows().len(), 2 + 3);
}

#[test]
fn one_snapshot_spans_all_keyspaces() {
    let (db, _) = db();
    let (a, b) = (db.keyspace("a").unwrap(), db.keyspace("b").unwrap());
    for space in [&a, &b] {
        space.put("k", "old").unwrap();
    }
    let now = db.snapshot();
    for space in [&a, &b] {
        space.put("k", "new").unwrap();
        space.put("l", "new").unwrap();
        assert_eq!(now.keyspace(space).get("k").unwrap().unwrap(), b"old");
        assert_eq!(now.keyspace(space).range("k"..).count(), 1);
        assert_eq!(now.keyspace(space).prefix("l").count(), 0);
        assert!(!now.keyspace(space).contains_key("l").unwrap());
    }
    assert_eq!(now.iter().count(), 0);
}

#[test]
fn threads_that_ask_for_one_name_get_one_keyspace() {
    let (db, _) = db();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = db.clone();
            scope.spawn(move || {
                for i in 0..50 {
                    db.keyspace(&format!("ks{i}")).unwrap().put(format!("{thread}"), "").unwrap();
                }
            });
        }
    });
    assert_eq!(db.keyspaces().unwrap().len(), 50);
    for i in 0..50 {
        assert_eq!(db.keyspace(&format!("ks{i}")).unwrap().iter().count(), 4);
    }
}
