//! A check beside merges.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use bed::{ASYNC, figure, key, open};
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
