//! A store on a disk that is full.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use bed::{ASYNC, Rows, SYNC, key, open_with, put_round, rows, rows_of};
use kvilt_base::{Engine, ErrorKind, KeyRange, Result};
use kvilt_io::MemoryDisk;

/// Puts keys of 700 bytes until there is no room; gives their number.
fn fill(db: &dyn Engine, model: &mut Rows) -> u32 {
    let value = vec![7; 700];
    for number in 1000.. {
        match db.put(&key(number), &value) {
            Ok(()) => drop(model.insert(key(number), value.clone())),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                return number;
            }
        }
    }
    unreachable!("a disk has an end")
}

fn full(durability: kvilt_base::Durability, work: impl Fn(&dyn Engine, &mut Rows) -> Result<()>) {
    let disk = MemoryDisk::new(3);
    let db = open_with(disk.clone(), 2, durability).unwrap();
    let mut model = Rows::new();
    put_round(&*db, 0..40, 0, &mut model);
    disk.set_capacity(Some(disk.total_bytes() + (300 << 10)));
    fill(&*db, &mut model);
    work(&*db, &mut model).unwrap();
    assert_eq!(rows(&*db), model);
    assert_eq!(rows_of(disk.kill_image()), model);
    db.close().unwrap();
    assert_eq!(rows_of(disk), model);
}

/// More deletes than a slab of tombstones has slots, the first of all on this store, and one by one.
#[test]
fn deletes_go_on() {
    for durability in [ASYNC, SYNC] {
        full(durability, |db, model| {
            for round in 0..60 {
                for number in 0..40 {
                    db.delete(&key(number))?;
                    model.remove(&key(number));
                }
                put_round(db, 0..40, round, model);
            }
            Ok(())
        });
    }
}

#[test]
fn updates_use_what_they_supersede() {
    full(ASYNC, |db, model| {
        for round in 0..300 {
            put_round(db, 0..40, round, model);
        }
        Ok(())
    });
}

#[test]
fn what_a_range_delete_took_out_is_room_for_puts() {
    full(ASYNC, |db, model| {
        let range = KeyRange { start: key(1000), end: None };
        db.delete_range(&range)?;
        model.retain(|key, _| !range.contains(key));
        assert!(fill(db, model) > 1100);
        Ok(())
    });
}

/// What only a view needed is room when it is closed, though nothing else has changed since.
#[test]
fn what_a_view_kept_is_room_for_puts() {
    full(ASYNC, |db, model| {
        let view = db.view()?;
        for number in 1000..1100 {
            db.delete(&key(number))?;
            model.remove(&key(number));
        }
        db.sync()?;
        fill(db, model);
        drop(view);
        let before = model.len();
        fill(db, model);
        assert!(model.len() > before + 50, "{} rows more", model.len() - before);
        Ok(())
    });
}
