//! Row 10, S-60: a child made by `fork` may use no handle that it inherited, and harms nothing by dropping
//! it.

use std::time::Duration;

use kvilt::{Db, Durability, Env, ErrorKind, WriteBatch};
use kvilt_sync::forked::in_child;

fn open(path: &std::path::Path, durability: Durability) -> Db {
    let env = Env::new(8 << 20).unwrap();
    Db::builder(path).env(&env).durability(durability).open().unwrap()
}

const INTERVAL: Duration = Duration::from_millis(20);
const MODES: [Durability; 3] =
    [Durability::Async { interval: INTERVAL }, Durability::Written { interval: INTERVAL }, Durability::Sync];

fn is_forked<T>(outcome: kvilt::Result<T>) -> bool {
    outcome.err().is_some_and(|error| error.kind() == ErrorKind::Forked)
}

/// The number of the first thing that a child was allowed to do with the handle; zero if there is none.
fn first_allowed(db: &Db, snapshot: &kvilt::Snapshot, named: &kvilt::Keyspace) -> u8 {
    let mut batch = WriteBatch::new();
    batch.put("k", "child");
    let refused = [
        is_forked(db.get("k")),
        is_forked(db.put("k", "child")),
        is_forked(db.delete("k")),
        is_forked(db.delete_range(..)),
        is_forked(db.write(batch)),
        is_forked(db.update("k", |_| Some("child"))),
        is_forked(db.compare_and_swap("k", None, Some(b"child"))),
        is_forked(db.iter().next().unwrap_or_else(|| Ok(Default::default()))),
        is_forked(snapshot.get("k")),
        is_forked(snapshot.iter().next().unwrap_or_else(|| Ok(Default::default()))),
        is_forked(named.put("k", "child")),
        is_forked(db.keyspace("another")),
        is_forked(db.keyspaces()),
        is_forked(db.drop_keyspace("named")),
        is_forked(db.sync()),
        is_forked(db.check()),
        is_forked(db.checkpoint_to("nowhere")),
        is_forked(db.close()),
        db.stats().puts == 0,
    ];
    refused.iter().position(|refused| !refused).map_or(0, |i| i as u8 + 1)
}

#[test]
fn a_forked_child_is_refused_everything_and_told_what_to_do() {
    for durability in MODES {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), durability);
        let named = db.keyspace("named").unwrap();
        db.put("k", "parent").unwrap();
        let snapshot = db.snapshot();
        assert_eq!(in_child(|| first_allowed(&db, &snapshot, &named)), 0);
        let told = in_child(|| {
            let text = db.get("k").err().map(|error| error.to_string()).unwrap_or_default();
            u8::from(!text.contains("open stores after the fork"))
        });
        assert_eq!(told, 0);
        assert_eq!(db.get("k").unwrap().unwrap(), b"parent");
        // Every handle there is, in the child: what a drop of the last one does, it does to its own memory.
        let mut handles = Some((db, named, snapshot));
        assert_eq!(in_child(|| handles.take().map_or(1, |_| 0)), 0, "the child hung");
        let (db, ..) = handles.unwrap();
        assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::Busy);
        db.close().unwrap();
    }
}

/// The parent's threads do not exist in the child, its locks may be held there for ever, and the lock on the
/// directory is one for both: dropping must neither wait, nor write, nor unlock.
#[test]
fn a_forked_child_that_drops_its_copies_takes_nothing_from_the_parent() {
    for durability in MODES {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), durability);
        std::thread::scope(|scope| {
            let writers = [0, 1].map(|thread| {
                let db = db.clone();
                scope.spawn(move || {
                    (0..3000u32).for_each(|i| db.put(format!("{thread}{i:05}"), [7; 50]).unwrap())
                })
            });
            for _ in 0..20 {
                let (db, snapshot, scan) = (db.clone(), db.snapshot(), db.iter());
                assert_eq!(in_child(move || drop_all(db, snapshot, scan)), 0, "the child hung or panicked");
            }
            for writer in writers {
                writer.join().unwrap();
            }
        });
        let rival = Db::open(dir.path());
        assert_eq!(rival.unwrap_err().kind(), ErrorKind::Busy, "the directory is still the parent's");
        db.sync().unwrap();
        assert!(db.check().unwrap().damages.is_empty());
        db.close().unwrap();
        drop(db);
        let db = open(dir.path(), durability);
        assert_eq!(db.iter().count(), 6000);
        assert!(db.check().unwrap().damages.is_empty());
    }
}

fn drop_all(db: Db, snapshot: kvilt::Snapshot, scan: kvilt::Range) -> u8 {
    drop(scan);
    drop(snapshot);
    drop(db);
    0
}

/// As in a daemon that forks: the child lets go of what it inherited and opens stores of its own.
#[test]
fn a_child_may_have_stores_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (parents, childs) = (dir.path().join("parents"), dir.path().join("childs"));
    let code = in_child(|| {
        // The one thread of a process is what may fork and go on in both.
        let mut parent = Some(Db::open(&parents).unwrap());
        parent.as_ref().unwrap().put("k", "v").unwrap();
        let env = Env::process().unwrap();
        let code = in_child(|| {
            drop(parent.take());
            if Db::open(&parents).err().map(|error| error.kind()) != Some(ErrorKind::Busy) {
                return 1;
            }
            if Db::builder(&childs).env(&env).open().err().map(|error| error.kind())
                != Some(ErrorKind::Forked)
            {
                return 2;
            }
            let db = Db::open(&childs).unwrap();
            db.put("k", "v").unwrap();
            db.close().unwrap();
            3
        });
        parent.unwrap().close().unwrap();
        code
    });
    assert_eq!(code, 3);
    for path in [parents, childs] {
        assert_eq!(open(&path, Durability::default()).get("k").unwrap().unwrap(), b"v");
    }
}
