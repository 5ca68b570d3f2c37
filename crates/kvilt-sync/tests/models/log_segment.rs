//! M16, sync of a log that others append to: what a sync calls whole is whole (S-92), as S-91 has it stored.
//!
//! Two writers reserve and fill; a third thread asks twice how far all is filled, and looks at each record
//! before that. Left out: the sync itself, and the bodies.

use std::os::unix::fs::FileExt as _;

use kvilt_base::Mapping;
use kvilt_sync::LogSegment;

use crate::explorer::{
    explore,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

const BYTES: usize = 4096;
const HEADER: [u8; 8] = [7; 8];
/// A whole word of a body of eight bytes.
const WORD: u64 = 8 | 1 << 32;

#[test]
fn all_before_the_filled_end_is_whole() {
    explore(|| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES as u64).unwrap();
        let mapping = std::sync::Arc::new(Mapping::of(&file, 0, BYTES).unwrap());
        let segment = Arc::new(LogSegment::begin(mapping, &HEADER));
        // An explorer changes threads at accesses that others see, and storing a record is none.
        let between = Arc::new(AtomicUsize::new(0));
        let writers = [1, 2].map(|_| {
            let (segment, between) = (Arc::clone(&segment), Arc::clone(&between));
            thread::spawn(move || {
                let reserved = segment.reserve(8, || ()).unwrap().0;
                between.fetch_add(1, Ordering::SeqCst);
                reserved.fill(&[1; 8], WORD);
            })
        });
        for _ in 0..2 {
            let filled = segment.filled().unwrap();
            between.fetch_add(1, Ordering::SeqCst);
            for offset in (HEADER.len() as u64..filled).step_by(16) {
                let mut word = [0; 8];
                file.read_exact_at(&mut word, offset).unwrap();
                assert_eq!(u64::from_le_bytes(word), WORD, "at {offset}");
            }
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(segment.filled(), Some(8 + 32));
    });
}
