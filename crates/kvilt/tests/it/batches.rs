//! Batches: over keyspaces, with limits, against the wrong store.

use kvilt::{ErrorKind, KEY_BYTES_MAX, WriteBatch};

use crate::db;

#[test]
fn a_batch_spans_keyspaces_and_later_operations_win() {
    let (db, _) = db();
    let (a, b) = (db.keyspace("a").unwrap(), db.keyspace("b").unwrap());
    b.put("gone", "x").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "1").put("k", "2").delete("absent");
    batch.put_in(&a, "k", "in a").put_in(&b, "k", "in b").delete_in(&b, "gone");
    assert_eq!((batch.len(), batch.is_empty()), (6, false));
    assert!(batch.bytes() > 10);
    db.write(batch).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), b"2");
    assert_eq!(a.get("k").unwrap().unwrap(), b"in a");
    assert_eq!(b.get("k").unwrap().unwrap(), b"in b");
    assert_eq!(b.iter().count(), 1);
}

#[test]
fn an_empty_or_cleared_batch_does_nothing() {
    let (db, engine) = db();
    let mut batch = WriteBatch::new();
    db.write(WriteBatch::new()).unwrap();
    batch.put("k", "v").put(vec![0; KEY_BYTES_MAX + 1], "");
    batch.clear();
    assert!(batch.is_empty() && batch.bytes() == 0);
    db.write(batch).unwrap();
    assert!(engine.raw_rows().is_empty());
}

#[test]
fn a_batch_with_one_bad_operation_writes_nothing() {
    let (db, engine) = db();
    let mut batch = WriteBatch::new();
    batch.put("k", "v").put(vec![0; KEY_BYTES_MAX + 1], "").put("l", "v");
    assert_eq!(db.write(batch).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(engine.raw_rows().is_empty());
}

#[test]
fn a_keyspace_of_another_store_is_refused() {
    let ((here, _), (there, _)) = (db(), db());
    let foreign = there.keyspace("x").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_in(&foreign, "k", "v");
    let error = here.write(batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("another store"), "{error}");
    let error = here.snapshot().keyspace(&foreign).get("k").unwrap_err();
    assert!(error.message().contains("another store"), "{error}");
}

#[test]
fn a_dropped_keyspace_is_refused() {
    let (db, _) = db();
    let dropped = db.keyspace("x").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "v").put_in(&dropped, "k", "v");
    db.drop_keyspace("x").unwrap();
    let error = db.write(batch).unwrap_err();
    assert!(error.message().contains("`x` was dropped"), "{error}");
    assert_eq!(db.get("k").unwrap(), None);
}
