//! How a scan ends for rows that break and go on, and for those that want no more.

use kvilt_io::MemoryDisk;

use super::*;
use crate::{bed, chunk::put::Change, funk::log::IfFull, options::Options};

/// Takes a key, and says how many more it wants, or nothing.
struct One {
    key: Option<Vec<u8>>,
    says: bool,
}

impl Rows for One {
    fn take(&mut self, key: &[u8], _value: &[u8]) -> ControlFlow<()> {
        self.key = Some(key.to_vec());
        ControlFlow::Break(())
    }

    fn wanted(&self) -> Option<u64> {
        self.says.then(|| u64::from(self.key.is_none()))
    }
}

#[test]
fn a_scan_that_was_broken_off_says_what_is_left_or_that_it_was_enough() {
    let store = bed::open(MemoryDisk::new(1), &Options::tiny());
    for key in [b"a", b"b", b"c"] {
        store.apply_one(Change { key, value: Some(b"value") }, IfFull::Fail).unwrap();
    }
    let range = KeyRange::new("a".."c");
    for (direction, first, left) in [
        (Direction::Forward, b"a", KeyRange { start: b"a\0".to_vec(), end: Some(b"c".to_vec()) }),
        (Direction::Backward, b"b", KeyRange::new("a".."b")),
    ] {
        for (says, left) in [(false, Scanned::Left(left)), (true, Scanned::Enough)] {
            let mut rows = One { key: None, says };
            let found = store.scan(Version::NEWEST, &range, direction, &mut rows).unwrap();
            assert_eq!((rows.key.as_deref(), found), (Some(&first[..]), left), "{direction:?} {says}");
        }
    }
}
