//! Row 10, S-60: a child made by `fork` may use no handle that it inherited, and harms nothing by dropping
//! it.

#![expect(clippy::disallowed_methods, reason = "looks at the files of a store")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use kvilt::{Db, Durability, Engine, Env, ErrorKind, WriteBatch};
use kvilt_sync::forked::in_child;

fn open(path: &std::path::Path, durability: Durability, engine: &Engine) -> Db {
    let env = Env::new(8 << 20).unwrap();
    Db::builder(path).env(&env).durability(durability).engine(engine.clone()).open().unwrap()
}

/// Each level of durability of each engine.
fn modes() -> Vec<(Durability, Engine)> {
    let [_, kvell, teks] = crate::engines();
    let engines = [Engine::default(), kvell, teks];
    engines.into_iter().flat_map(|engine| MODES.map(|durability| (durability, engine.clone()))).collect()
}

const INTERVAL: Duration = Duration::from_millis(20);
/// Longer than any test: nothing is checkpointed meanwhile.
const HOUR: Duration = Duration::from_secs(3600);
/// Children of a parent, and its puts before each: no more than fit its first write buffer, so that it
/// changes nothing itself while it waits for a child.
const ROUNDS: u8 = 4;
const PUTS: usize = 10;
const MODES: [Durability; 2] = [Durability::Async { interval: INTERVAL }, Durability::Sync];

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
    for (durability, engine) in modes() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), durability, &engine);
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
    for (durability, engine) in modes() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), durability, &engine);
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
        let db = open(dir.path(), durability, &engine);
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

/// The child shares the memory in which write buffers are. The parent is a child, too, so that it can end as
/// a killed process does.
#[test]
fn a_forked_child_leaves_to_the_next_process_what_its_parent_had_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let [path, childs] = ["parents", "childs"].map(|name| dir.path().join(name));
    let open = |path: &Path| {
        let env = Env::new(8 << 20).unwrap();
        Db::builder(path).env(&env).durability(Durability::Async { interval: HOUR }).open().unwrap()
    };
    let code = in_child(|| {
        let db = open(&path);
        for round in 0..ROUNDS {
            for i in 0..PUTS {
                db.put(format!("{round}/{i:03}"), [round; 20]).unwrap();
            }
            let before = contents(&path);
            let (snapshot, scan) = (db.snapshot(), db.iter());
            let mut handles = Some((db.clone(), snapshot, scan));
            let code = in_child(|| {
                if !is_forked(db.put("k", "child")) || !is_forked(db.sync()) || !is_forked(db.close()) {
                    return 1;
                }
                let own = open(&childs);
                own.put("k", [round]).unwrap();
                drop(handles.take());
                own.close().unwrap();
                // Not as `in_child` does, but with all that an exit runs.
                std::process::exit(0)
            });
            if code != 0 || contents(&path) != before {
                return round + 1;
            }
        }
        std::mem::forget(db);
        0
    });
    assert_eq!(code, 0, "the child of this round was allowed something, or changed something");
    let db = open(&path);
    let rows: Vec<_> = db.iter().map(|row| row.unwrap()).collect();
    assert_eq!(rows.len(), usize::from(ROUNDS) * PUTS);
    assert!(rows.iter().all(|(key, value)| value.as_ref() == [key[0] - b'0'; 20]));
    assert!(db.check().unwrap().damages.is_empty());
}

/// All files of a store.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
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
        assert_eq!(open(&path, Durability::default(), &Engine::default()).get("k").unwrap().unwrap(), b"v");
    }
}
