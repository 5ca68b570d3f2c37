//! Single rows: get, put, delete, compare and swap, update; limits on keys and values.

use kvilt::{ErrorKind, KEY_BYTES_MAX, Swap, VALUE_BYTES_MAX, Value};

use crate::{db, text};

#[test]
fn what_was_put_is_got_for_keys_of_every_length() {
    let (db, _) = db();
    for len in [0, 1, 63, 64, 256, 257, KEY_BYTES_MAX] {
        let key = vec![b'k'; len];
        db.put(&key, format!("{len}")).unwrap();
        assert_eq!(db.get(&key).unwrap().map(|v| text(&v)), Some(len.to_string()));
        assert_eq!(db.get_with(&key, <[u8]>::len).unwrap(), Some(len.to_string().len()));
        assert!(db.contains_key(&key).unwrap());
    }
    assert_eq!(db.iter().count(), 7);
    db.delete("").unwrap();
    assert_eq!(db.get("").unwrap(), None);
    assert!(!db.contains_key("").unwrap());
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused_and_nothing_is_written() {
    let (db, engine) = db();
    let long_key = vec![0; KEY_BYTES_MAX + 1];
    let long_value = vec![0; VALUE_BYTES_MAX + 1];
    let errors = [
        db.put(&long_key, "").unwrap_err(),
        db.put("k", &long_value).unwrap_err(),
        db.get(&long_key).unwrap_err(),
        db.delete(&long_key).unwrap_err(),
        db.compare_and_swap("k", None, Some(&long_value)).unwrap_err(),
        db.put_if_absent(&long_key, "").unwrap_err(),
        db.snapshot().get(&long_key).unwrap_err(),
        db.get_many([&long_key[1..], &long_key]).unwrap_err(),
        db.snapshot().get_many([&long_key]).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.message().contains("65537 bytes") || error.message().contains("67108865 bytes"),
            "{error}"
        );
    }
    assert!(engine.raw_rows().is_empty());
    db.put("k", &long_value[1..]).unwrap();
}

#[test]
fn many_keys_are_answered_in_the_order_asked() {
    let (db, _) = db();
    let words = |values: Vec<Option<Value>>| -> Vec<Option<String>> {
        values.into_iter().map(|value| value.map(|value| text(&value))).collect()
    };
    let told = |words: &[&str]| -> Vec<Option<String>> {
        words.iter().map(|word| (!word.is_empty()).then(|| word.to_string())).collect()
    };
    db.put("", "empty").unwrap();
    db.put("b", "before").unwrap();
    db.put("c", "gone").unwrap();
    let other = db.keyspace("other").unwrap();
    other.put("b", "of another").unwrap();
    let (before, keys) = (db.snapshot(), ["c", "b", "a", "", "b"]);
    db.put("b", "after").unwrap();
    db.delete("c").unwrap();
    assert_eq!(words(db.get_many(keys).unwrap()), told(&["", "after", "", "empty", "after"]));
    assert_eq!(words(before.get_many(keys).unwrap()), told(&["gone", "before", "", "empty", "before"]));
    assert_eq!(words(other.get_many(keys).unwrap()), told(&["", "of another", "", "", "of another"]));
    assert!(db.get_many::<&str>([]).unwrap().is_empty());
    db.drop_keyspace("other").unwrap();
    assert_eq!(other.get_many(keys).unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
    assert_eq!(db.get_many(keys).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_swap_happens_only_if_the_expected_value_is_there() {
    let (db, _) = db();
    assert_eq!(db.compare_and_swap("k", Some(b"a"), Some(b"b")).unwrap(), Swap::Differs(None));
    assert_eq!(db.put_if_absent("k", "a").unwrap(), Swap::Done);
    assert_eq!(db.put_if_absent("k", "b").unwrap(), Swap::Differs(Some(Value::copied(b"a"))));
    assert_eq!(db.compare_and_swap("k", Some(b"a"), Some(b"b")).unwrap(), Swap::Done);
    assert_eq!(db.compare_and_swap("k", Some(b"b"), None).unwrap(), Swap::Done);
    assert_eq!(db.compare_and_swap("k", None, None).unwrap(), Swap::Done);
    assert_eq!(db.get("k").unwrap(), None);
}

#[test]
fn an_update_starts_over_when_another_writer_came_in_between() {
    let (db, _) = db();
    db.put("k", "1").unwrap();
    let mut seen = Vec::new();
    let new = db
        .update("k", |old| {
            let old = old.map(text);
            seen.push(old.clone());
            if seen.len() == 1 {
                db.put("k", "5").unwrap();
            }
            Some(format!("{}+", old.unwrap()))
        })
        .unwrap();
    assert_eq!(seen, [Some("1".to_string()), Some("5".to_string())]);
    assert_eq!(new.unwrap(), b"5+");
    let none: Option<Value> = db.update("k", |_| None::<&[u8]>).unwrap();
    assert_eq!(none, None);
    assert_eq!(db.get("k").unwrap(), None);
}

#[test]
fn many_threads_update_one_counter_and_no_step_is_lost() {
    let (db, _) = db();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let db = db.clone();
            scope.spawn(move || {
                for _ in 0..250 {
                    db.update("n", |old| {
                        let old = old.map_or(0, |old| text(old).parse::<u32>().unwrap());
                        Some((old + 1).to_string())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(db.get("n").unwrap().unwrap(), b"1000");
}

#[test]
fn after_close_every_call_says_so() {
    let (db, _) = db();
    let (ks, snapshot) = (db.keyspace("x").unwrap(), db.snapshot());
    db.close().unwrap();
    db.close().unwrap();
    let errors = [
        db.put("k", "v").unwrap_err(),
        db.get("k").unwrap_err(),
        db.compare_and_swap("k", Some(b"other"), Some(b"new")).unwrap_err(),
        ks.delete("k").unwrap_err(),
        snapshot.get("k").unwrap_err(),
        db.snapshot().get("k").unwrap_err(),
        db.iter().next().unwrap().unwrap_err(),
        db.keyspaces().unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
}

#[test]
fn damage_is_told_in_the_users_keys() {
    let (db, engine) = db();
    db.keyspace("users").unwrap().put("ada", "1").unwrap();
    let key = engine.raw_rows().into_iter().find(|(_, value)| value == b"1").unwrap().0;
    engine.damage(kvilt::KeyRange { start: key, end: None });
    let damage = db.check().unwrap().damages.remove(0);
    assert_eq!(damage.range.unwrap().start, b"ada");
    assert_eq!(damage.message, "planted by the test (keyspace `users`)");
}
