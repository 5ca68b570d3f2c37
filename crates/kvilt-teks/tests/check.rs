//! A check beside merges.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use bed::{ASYNC, figure, key, open};
use kvilt_base::{Disk as _, Listed, directory};
use kvilt_io::MemoryDisk;

/// Files that a merge has removed since the check began are not missing.
#[test]
fn tables_that_are_merged_meanwhile_are_no_damage() {
    let (db, spawn) = open(MemoryDisk::new(1), ASYNC).unwrap();
    let put = |round: u8| {
        (0..300).for_each(|number| db.put(&key(number), &[round; 100]).unwrap());
        spawn.step_all_until_idle();
    };
    (0..4).for_each(put);
    let (merges, mut calls) = (figure(&*db, "merges"), 0);
    let report = db.check(&mut |_| {
        calls += 1;
        if calls == 1 {
            (4..12).for_each(put);
        }
        true
    });
    assert_eq!(report.unwrap().damages, []);
    assert!(calls > 1 && figure(&*db, "merges") > merges);
}

/// A byte of a durable record, in any segment of the log of an open store, and a segment that is gone.
#[test]
fn damage_of_the_log_is_found() {
    let disk = MemoryDisk::new(1);
    let (db, _) = open(disk.clone(), ASYNC).unwrap();
    // More rows than a segment has room for; nothing is flushed, as the background rests.
    (0..500).for_each(|number| db.put(&key(number), &[7; 200]).unwrap());
    db.sync().unwrap();
    (0..10).for_each(|number| db.put(&key(number), b"not synced").unwrap());
    let sound = db.check(&mut |_| true).unwrap();
    assert!(sound.damages.is_empty() && sound.files >= 2 && sound.bytes > 100_000, "{sound:?}");
    let mut found = 0;
    for listed in directory::list(&*disk).unwrap() {
        let Listed::Ours(name) = listed else { continue };
        if name.kind() != kvilt_format::names::REDO {
            continue;
        }
        let file = disk.open(name).unwrap();
        let mut byte = [0];
        file.read_exact_at(1_000, &mut byte).unwrap();
        if byte[0] != 7 {
            continue;
        }
        file.write_all_at(1_000, &[8]).unwrap();
        let report = db.check(&mut |_| true).unwrap();
        file.write_all_at(1_000, &byte).unwrap();
        let damage = report.damages.first().unwrap_or_else(|| panic!("{name}: {report:?}"));
        assert_eq!(damage.file, Some(name.to_string()));
        assert!(damage.offset.is_some_and(|offset| (700..1_000).contains(&offset)), "{damage:?}");
        found += 1;
    }
    assert!(found >= 2, "{found} segments");
    assert_eq!(db.check(&mut |_| true).unwrap(), sound);
    let first =
        directory::numbers(&directory::list(&*disk).unwrap(), kvilt_format::names::REDO).min().unwrap();
    disk.remove(kvilt_base::FileName::Of(kvilt_format::names::REDO, first)).unwrap();
    let report = db.check(&mut |_| true).unwrap();
    assert!(report.damages[0].message.contains("missing"), "{report:?}");
}
