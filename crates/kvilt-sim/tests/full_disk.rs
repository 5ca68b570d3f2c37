//! Disks that fill up, in a process of their own: what the store decides by its memory depends on what else
//! the process frees, and here every disk call counts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use kvilt_sim::engines;

/// The reserve: whenever the disk fills up behind the first checkpoint, deletes and syncs go on.
#[test]
fn from_any_disk_call_on_the_disk_may_be_full() {
    let mut lives = 0;
    for canonical in engines::ALL.iter().flat_map(|engine| engine.canonical_with_reserve()) {
        let case = canonical.case().unwrap_or_else(|complaint| panic!("{}: {complaint}", canonical.name));
        lives += case
            .fill(1)
            .unwrap_or_else(|(op, failure)| panic!("{}, full from call {op} on: {failure}", canonical.name));
    }
    println!("{lives} lives on disks that fill up");
    assert!(lives > 1_000, "only {lives} lives");
}
