//! What a check finds in the files of a store that was closed.

use crate::{
    bed::{self, Bed},
    salvaging::{closed_store, files, is_of_rows},
};

#[test]
fn a_changed_byte_of_any_table_or_log_is_found_by_its_file() {
    let (disk, _) = closed_store();
    // The first open removes what had been replaced.
    let bed = Bed::new(64 << 20);
    let db = bed.open(disk.clone(), bed::without_checkpoints()).unwrap();
    assert!(bed.rests_within(1_000));
    db.close().unwrap();
    let mut found = 0;
    for name in files(&disk, is_of_rows) {
        let Some(good) = disk.contents(name) else { continue };
        assert!(disk.flip_bit(name, 70, 3), "a byte of the first block or record");
        let bed = Bed::new(64 << 20);
        let db = bed.open(disk.clone(), bed::without_checkpoints()).unwrap();
        let report = db.check(&mut |_| true).unwrap();
        if disk.contents(name).is_none() {
            assert!(report.damages.is_empty(), "{report:?}");
            continue;
        }
        let damaged: Vec<Option<String>> = report.damages.iter().map(|damage| damage.file.clone()).collect();
        assert_eq!(damaged, [Some(name.to_string())], "{name}: {report:?}");
        db.close().unwrap();
        disk.replace(name, good);
        found += 1;
    }
    assert!(found > 2, "{found}");
}
