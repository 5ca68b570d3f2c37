//! The façade over each real engine: random operations against a map, through reopens, in both modes.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use kvilt::{Db, Durability, Engine, Env, WriteBatch};

/// A generator of numbers that is the same on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Each engine, with limits so small that few rows go all of its ways.
fn engines() -> [Engine; 3] {
    let [_, kvell, teks] = crate::engines();
    let even = kvilt::even::Options::default()
        .compression(kvilt::even::Compression::Lz4)
        .chunk_bytes_max(64 << 10)
        .chunk_bytes_rebalance(48 << 10)
        .chunk_bytes_min(8 << 10)
        .log_bytes_max_cold(16 << 10)
        .log_bytes_max_cached(64 << 10)
        .block_bytes(1 << 10);
    [Engine::Even(even), kvell, teks]
}

fn open(path: &std::path::Path, durability: Durability, engine: &Engine) -> Db {
    Db::builder(path).durability(durability).memory_budget(2 << 20).engine(engine.clone()).open().unwrap()
}

fn change(db: &Db, model: &mut Model, dice: &mut Dice) {
    let key = |dice: &mut Dice| format!("{:05}", dice.below(3000)).into_bytes();
    let value = |dice: &mut Dice| vec![dice.below(256) as u8; dice.below(300) as usize];
    match dice.below(20) {
        0..=9 => {
            let (key, value) = (key(dice), value(dice));
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        10..=13 => {
            let key = key(dice);
            db.delete(&key).unwrap();
            model.remove(&key);
        }
        14..=16 => {
            let mut batch = WriteBatch::new();
            for _ in 0..dice.below(8) {
                let (key, value) = (key(dice), value(dice));
                batch.put(&key, &value);
                model.insert(key, value);
            }
            db.write(batch).unwrap();
        }
        17 | 18 => {
            let key = key(dice);
            let new = db.update(&key, |old| old.map(|old| [old, b"+"].concat())).unwrap();
            assert_eq!(new.map(|v| v.to_vec()), model.get(&key).map(|old| [old, &b"+"[..]].concat()));
            model.entry(key).and_modify(|old| old.push(b'+'));
        }
        _ => {
            let (start, end) = (key(dice), key(dice));
            if dice.below(4) == 0 {
                db.delete_range(start.clone()..end.clone()).unwrap();
                model.retain(|key, _| !(start <= *key && *key < end));
            }
        }
    }
}

fn assert_same(db: &Db, model: &Model) {
    let rows: Vec<_> = db.iter().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let engine = db.engine_name();
    assert!(rows == expected, "{engine}: {} rows, expected {}", rows.len(), expected.len());
    let backward = db.iter().keys().rev().map(|key| key.unwrap().to_vec());
    assert!(backward.eq(model.keys().rev().cloned()));
}

#[test]
fn random_operations_equal_a_map_through_reopens() {
    engines().iter().for_each(random_operations_equal_a_map);
}

fn random_operations_equal_a_map(engine: &Engine) {
    for durability in [Durability::Async { interval: Duration::from_millis(20) }, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let (mut model, mut dice) = (Model::new(), Dice(42));
        let rounds = if durability == Durability::Sync { 400 } else { 4000 };
        for _ in 0..4 {
            let db = open(dir.path(), durability, engine);
            assert_same(&db, &model);
            let before = (db.snapshot(), model.clone());
            for _ in 0..rounds {
                change(&db, &mut model, &mut dice);
                let key = format!("{:05}", dice.below(3000)).into_bytes();
                assert_eq!(db.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
            }
            assert_same(&db, &model);
            let keys: Vec<Vec<u8>> = (0..3000).step_by(7).map(|i| format!("{i:05}").into_bytes()).collect();
            for (found, model) in [(db.get_many(&keys), &model), (before.0.get_many(&keys), &before.1)] {
                let right = keys.iter().map(|key| model.get(key).map(Vec::as_slice));
                assert!(found.unwrap().iter().map(|value| value.as_deref()).eq(right));
            }
            let rows = before.0.iter().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap());
            assert!(rows.eq(before.1.into_iter()), "the snapshot moved");
            assert!(db.check().unwrap().damages.is_empty());
            drop(before.0);
            db.close().unwrap();
        }
    }
}

#[test]
fn a_copy_is_a_store_of_its_own() {
    engines().iter().for_each(a_copy_is_a_store);
}

fn a_copy_is_a_store(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let db = open(&dir.path().join("store"), Durability::default(), engine);
    let users = db.keyspace("users").unwrap();
    for i in 0..1000 {
        users.put(format!("{i}"), vec![b'x'; 100]).unwrap();
    }
    db.checkpoint_to(&copy).unwrap();
    users.delete_range(..).unwrap();
    db.close().unwrap();
    let db = open(&copy, Durability::default(), engine);
    assert_eq!(db.keyspace("users").unwrap().iter().count(), 1000);
    assert!(db.check().unwrap().damages.is_empty());
}

#[test]
fn stores_of_one_environment_share_its_budget_whatever_their_engines() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::new(4 << 20).unwrap();
    let open = |i: usize| {
        let builder = Db::builder(dir.path().join(format!("store{i}"))).env(&env);
        builder.engine(engines()[i % 3].clone()).open().unwrap()
    };
    let stores: Vec<Db> = (0..5).map(open).collect();
    for (i, db) in stores.iter().enumerate() {
        for row in 0..100 {
            db.put(format!("{row}"), format!("{i}")).unwrap();
        }
    }
    for (i, db) in stores.iter().enumerate() {
        assert_eq!(db.get("7").unwrap().unwrap(), i.to_string().into_bytes());
        assert_eq!(db.iter().count(), 100);
    }
}

/// Gets and scans hold no lock while they show rows, wherever these come from: memory, a buffer, files, with
/// a snapshot or without.
#[test]
fn closures_that_are_shown_rows_may_call_the_store() {
    engines().iter().for_each(closures_may_call_the_store);
}

fn closures_may_call_the_store(engine: &Engine) {
    for durability in [Durability::Async { interval: Duration::from_secs(3600) }, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        const KEYS: u32 = 600;
        let key = |number: u32| format!("{number:05}");
        for round in 0..3u8 {
            // Another round finds the rows of the one before in files.
            let db = open(&path, durability, engine);
            if round == 0 {
                (0..KEYS).for_each(|number| db.put(key(number), [round; 100]).unwrap());
            }
            let snapshot = db.snapshot();
            for number in (0..KEYS).step_by(7) {
                let same = key(number);
                let expected = [round; 100];
                let call = |value: &[u8]| {
                    assert_eq!(value, expected);
                    db.put(&same, [round + 1; 100]).unwrap();
                    assert_eq!(db.get_with(&same, |value| value[0]).unwrap(), Some(round + 1));
                };
                assert!(db.get_with(&same, call).unwrap().is_some());
                assert!(snapshot.get_with(&same, call).unwrap().is_some());
            }
            let mut shown = 0;
            let visited = snapshot.iter().visit(|key, value| {
                assert_eq!(value, [round; 100]);
                db.delete_range(key..[key, b"\0"].concat().as_slice()).unwrap();
                db.put(key, [round + 1; 100]).unwrap();
                assert_eq!(&db.get(key).unwrap().unwrap()[..], [round + 1; 100]);
                shown += 1;
                ControlFlow::Continue(())
            });
            visited.unwrap();
            assert_eq!(shown, KEYS);
            drop(snapshot);
            db.close().unwrap();
        }
    }
}
