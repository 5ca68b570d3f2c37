//! `describe`: exact where all is read, near the truth where not, and right about keyspaces, largest rows and
//! files.

use kvilt::{Db, Description};

use crate::stand_in::StandIn;

/// A store of many chunks: rows of two sizes in two keyspaces, some of them deleted.
fn many_chunks(dir: &std::path::Path) -> Db {
    let db = Db::builder(dir.join("store"))
        .engine(kvilt::Engine::Even(
            kvilt::even::Options::default()
                .chunk_bytes_max(64 << 10)
                .chunk_bytes_rebalance(32 << 10)
                .chunk_bytes_min(4 << 10),
        ))
        .memory_budget(32 << 20)
        .open()
        .unwrap();
    let users = db.keyspace("users").unwrap();
    for i in 0..20_000u32 {
        db.put(format!("{i:08}"), [b'v'; 92]).unwrap();
        if i % 4 == 0 {
            users.put(format!("{i:08}"), [b'u'; 192]).unwrap();
        }
    }
    users.put("the largest", vec![b'x'; 5000]).unwrap();
    db.delete_range("00001000".."00002000").unwrap();
    db.sync().unwrap();
    db
}

const ROWS: u64 = 19_000 + 5001;
const ROW_BYTES: u64 = 19_000 * 100 + 5000 * 200 + 5011;

fn rows_of(description: &Description, name: &str) -> (u64, u64) {
    let keyspace = description.keyspaces.iter().find(|keyspace| keyspace.name == name).unwrap();
    (keyspace.rows, keyspace.row_bytes)
}

#[test]
fn a_deep_description_is_exact_and_a_quick_one_is_near() {
    let dir = tempfile::tempdir().unwrap();
    let db = many_chunks(dir.path());
    let deep = db.describe_with(true, |_| true).unwrap();
    assert!(deep.is_exact && deep.chunks > 16 && deep.chunks_read == deep.chunks, "{deep:?}");
    assert_eq!((deep.rows(), deep.row_bytes()), (ROWS, ROW_BYTES));
    assert_eq!(rows_of(&deep, ""), (19_000, 1_900_000));
    assert_eq!(rows_of(&deep, "users"), (5001, 1_005_011));
    let largest = &deep.largest_rows[0];
    assert_eq!(
        (largest.keyspace.as_str(), &largest.key[..], largest.bytes),
        ("users", &b"the largest"[..], 5011)
    );
    assert!(deep.largest_rows.is_sorted_by(|a, b| a.bytes >= b.bytes) && deep.largest_rows.len() == 5);
    let quick = db.describe().unwrap();
    assert!(!quick.is_exact && quick.chunks_read <= 8, "{quick:?}");
    for (about, exact) in [(quick.rows(), ROWS), (quick.row_bytes(), ROW_BYTES)] {
        assert!(about > exact / 2 && about < exact * 2, "{about} for {exact}");
    }
    db.close().unwrap();
}

#[test]
fn files_are_what_the_directory_has() {
    let dir = tempfile::tempdir().unwrap();
    let db = many_chunks(dir.path());
    db.close().unwrap();
    drop(db);
    let db = Db::open(dir.path().join("store")).unwrap();
    let description = db.describe().unwrap();
    assert_eq!(description.format_version, 1);
    let logs_and_tables =
        ["log", "table"].map(|kind| description.files.get(kind).map_or(0, |kind| kind.bytes));
    assert!(logs_and_tables.iter().sum::<u64>() > ROW_BYTES, "{description:?}");
    assert_eq!(description.files["manifest"].files, 1);
    assert_eq!(
        description.file_bytes() - description.files["manifest"].bytes - description.files["other"].bytes,
        logs_and_tables.iter().sum()
    );
}

#[test]
fn a_description_can_be_cancelled_and_tells_how_far_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let db = many_chunks(dir.path());
    let mut calls = 0;
    let description = db
        .describe_with(true, |progress| {
            assert!(progress.done <= progress.total);
            calls += 1;
            calls < 3
        })
        .unwrap();
    assert!(description.is_cancelled && !description.is_exact && description.chunks_read == 2);
    assert!(description.rows() < ROWS);
    db.close().unwrap();
    assert_eq!(db.describe().unwrap_err().kind(), kvilt::ErrorKind::Closed);
}

#[test]
fn an_engine_without_files_is_counted_all_the_same() {
    let db = Db::over(StandIn::new(), "nowhere");
    db.put("k", "v").unwrap();
    db.keyspace("empty").unwrap();
    let description = db.describe().unwrap();
    assert_eq!((description.rows(), description.row_bytes(), description.file_bytes()), (1, 2, 0));
    assert_eq!(rows_of(&description, "empty"), (0, 0));
    assert_eq!(description.keyspaces.len(), 2, "the catalogue is nobody's");
}
