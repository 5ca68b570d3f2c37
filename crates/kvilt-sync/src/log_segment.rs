//! `LogSegment`: a log that many threads append to, in a mapping that outlives the process.
//!
//! A record is a word of eight bytes, which begins with the body's length, and the body. Room is reserved
//! under a lock, which stores the length; the body is copied outside of it; the whole word comes last. What
//! the words say is the caller's affair (`docs/format/redo.md`).
//!
//! What is always true:
//! - S-91: behind the last record that was reserved stands a word of zero, and it stood there before the
//!   record's length did. A record's whole word is stored behind its body. A process that dies between two
//!   instructions has done the first, so the compiler's order (Release) is enough.
//! - S-92: of the records before the offset that [`LogSegment::filled`] returns, each is whole.
#![expect(unsafe_code, reason = "memory that the next process reads")]

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64 as SharedWord, Ordering as WordOrdering},
    },
};

use kvilt_base::Mapping;

use crate::shim::{AtomicUsize, Mutex, Ordering, Patience};

/// Bytes of a word; records begin at multiples of it.
pub const WORD_BYTES: usize = 8;

/// See the module.
pub struct LogSegment {
    mapping: Arc<Mapping>,
    state: Mutex<State>,
    /// Records that were reserved and are not whole yet, by the side on which they were counted.
    unfilled: [AtomicUsize; 2],
    /// Held while a side is waited for.
    waiting: Mutex<()>,
    /// Records that were given up: they will never be whole.
    given_up: AtomicUsize,
}

struct State {
    /// Where the next record begins.
    end: usize,
    is_sealed: bool,
    /// On which side the next record is counted.
    side: usize,
}

impl LogSegment {
    /// Begins a log in a mapping that nobody else writes to, behind this header, whose length is a multiple
    /// of a word. Whatever was in the mapping is forgotten before the header is there.
    pub fn begin(mapping: Arc<Mapping>, header: &[u8]) -> LogSegment {
        assert!(header.len().is_multiple_of(WORD_BYTES), "records begin at multiples of a word");
        assert!(header.len() + WORD_BYTES <= mapping.len(), "a segment has room for its header and a word");
        let segment = LogSegment::at(mapping, header.len());
        segment.store(header.len(), 0);
        for (number, word) in header.chunks_exact(WORD_BYTES).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("a word has eight bytes"));
            segment.store(number * WORD_BYTES, word);
        }
        segment
    }

    /// Goes on with a log that somebody else began and left, behind its last record.
    pub fn resume(mapping: Arc<Mapping>, end: u64) -> LogSegment {
        let end = usize::try_from(end).expect("a log lies in its mapping");
        assert!(
            end.is_multiple_of(WORD_BYTES) && end + WORD_BYTES <= mapping.len(),
            "it has room for its end"
        );
        let segment = LogSegment::at(mapping, end);
        segment.store(end, 0);
        segment
    }

    fn at(mapping: Arc<Mapping>, end: usize) -> LogSegment {
        LogSegment {
            mapping,
            state: Mutex::new(State { end, is_sealed: false, side: 0 }),
            unfilled: [AtomicUsize::new(0), AtomicUsize::new(0)],
            waiting: Mutex::new(()),
            given_up: AtomicUsize::new(0),
        }
    }

    /// Room for a record with a body of this length, which is not zero and less than 4 GiB. None if there is
    /// none, or the segment is sealed. `then` runs before any record behind it has room, so what it counts
    /// comes in the order of the records; it must not wait for another reservation.
    pub fn reserve<T>(&self, body_len: usize, then: impl FnOnce() -> T) -> Option<(Reserved<'_>, T)> {
        let first = u64::from(u32::try_from(body_len).expect("a body has less than 4 GiB"));
        let record_bytes = WORD_BYTES + body_len.next_multiple_of(WORD_BYTES);
        let mut state = self.state.lock();
        let (offset, end) = (state.end, state.end + record_bytes);
        if state.is_sealed || end + WORD_BYTES > self.mapping.len() {
            return None;
        }
        // Relaxed: the lock orders it before the wait of whoever turns the sides.
        self.unfilled[state.side].fetch_add(1, Ordering::Relaxed);
        let reserved = Reserved { segment: self, offset, body_len, side: state.side, is_filled: false };
        self.store(end, 0);
        self.store(offset, first);
        state.end = end;
        // Still under the lock.
        let counted = then();
        Some((reserved, counted))
    }

    /// Appends a word without a body at `offset`, if the log still ends there. False if it does not, if there
    /// is no room, or if the segment is sealed.
    pub fn append_word_at(&self, offset: u64, word: u64) -> bool {
        let mut state = self.state.lock();
        let (end, wanted) = (state.end + WORD_BYTES, offset);
        let offset = state.end;
        if wanted != offset as u64 || state.is_sealed || end + WORD_BYTES > self.mapping.len() {
            return false;
        }
        self.store(end, 0);
        self.store(offset, word);
        state.end = end;
        true
    }

    /// Ends the log with a word, for which there always is room: nothing is reserved any more.
    pub fn seal(&self, word: impl FnOnce(u64) -> u64) {
        let mut state = self.state.lock();
        if !state.is_sealed {
            state.is_sealed = true;
            self.store(state.end, word(state.end as u64));
            // It is to be synced like what is before it.
            state.end += WORD_BYTES;
        }
    }

    /// Waits until all that was reserved before is whole, and says where it ends. None if a record was given
    /// up: then no one can say so any more.
    pub fn filled(&self) -> Option<u64> {
        let _waiting = self.waiting.lock();
        let (end, before) = {
            let mut state = self.state.lock();
            state.side ^= 1;
            (state.end, state.side ^ 1)
        };
        let mut patience = Patience::new();
        // Acquire: pairs with the Release of those who filled.
        while self.unfilled[before].load(Ordering::Acquire) > 0 {
            patience.wait();
        }
        // Relaxed: counted before the side was left.
        (self.given_up.load(Ordering::Relaxed) == 0).then_some(end as u64)
    }

    /// Bytes of the mapping.
    pub fn capacity(&self) -> usize {
        self.mapping.len()
    }

    /// Where the next record would begin.
    pub fn end(&self) -> u64 {
        self.state.lock().end as u64
    }

    fn store(&self, offset: usize, word: u64) {
        // Release: behind everything before it in the order of this thread (S-91).
        self.word(offset).store(word.to_le(), WordOrdering::Release);
    }

    fn word(&self, offset: usize) -> &SharedWord {
        assert!(offset.is_multiple_of(WORD_BYTES) && offset + WORD_BYTES <= self.mapping.len());
        // SAFETY: within the mapping (asserted).
        let word = unsafe { self.mapping.base().add(offset) };
        // SAFETY: valid as long as the mapping, which is borrowed; aligned, since a mapping begins with a
        // page; words are accessed by this function alone, and bodies, which are copied, are none.
        unsafe { SharedWord::from_ptr(word.cast()) }
    }
}

impl fmt::Debug for LogSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogSegment({} of {} bytes)", self.end(), self.capacity())
    }
}

/// Room for a record, to be filled at once: [`LogSegment::filled`] waits for it.
#[derive(Debug)]
pub struct Reserved<'s> {
    segment: &'s LogSegment,
    offset: usize,
    body_len: usize,
    side: usize,
    is_filled: bool,
}

impl Reserved<'_> {
    /// Where the record lies.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// Copies the body and stores the whole word. Panics if the body has another length than was reserved.
    pub fn fill(mut self, body: &[u8], word: u64) {
        assert_eq!(body.len(), self.body_len, "a body has the length that was reserved for it");
        // SAFETY: the record and the word behind it lie within the mapping, as `reserve` saw.
        let to = unsafe { self.segment.mapping.base().add(self.offset + WORD_BYTES) };
        // SAFETY: these bytes of the mapping were reserved for this record alone, are neither words nor read
        // by this process, and `body` is memory of the process, hence elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), to, body.len()) };
        self.segment.store(self.offset, word);
        self.is_filled = true;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.is_filled {
            // Relaxed: the Release below is behind it.
            self.segment.given_up.fetch_add(1, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire of whoever waits.
        self.segment.unfilled[self.side].fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
#[expect(clippy::unwrap_used, clippy::disallowed_types, reason = "tests; the file behind a mapping")]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const HEADER: [u8; 16] = *b"header of a file";

    /// A segment, and the file that it is in.
    fn segment(bytes: usize) -> (LogSegment, std::fs::File) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes as u64).unwrap();
        file.write_all_at(&vec![0xa5; bytes], 0).unwrap();
        let mapping = Arc::new(Mapping::of(&file, 0, bytes).unwrap());
        (LogSegment::begin(mapping, &HEADER), file)
    }

    fn word_at(file: &std::fs::File, offset: u64) -> u64 {
        let mut word = [0; WORD_BYTES];
        file.read_exact_at(&mut word, offset).unwrap();
        u64::from_le_bytes(word)
    }

    #[test]
    fn what_was_reserved_has_its_length_and_what_was_filled_its_word_and_body() {
        let (segment, file) = segment(4096);
        let one = segment.reserve(5, || ()).unwrap().0;
        let two = segment.reserve(9, || ()).unwrap().0;
        assert_eq!((one.offset(), two.offset()), (16, 32));
        two.fill(b"nine more", 9 | 77 << 32);
        // S-91: as a process that dies now leaves it.
        assert_eq!([16, 32, 56].map(|offset| word_at(&file, offset)), [5, 9 | 77 << 32, 0]);
        one.fill(b"first", 5 | 66 << 32);
        assert!(!segment.append_word_at(64, 1) && segment.append_word_at(56, 56 << 32));
        let mut body = [0; 5];
        file.read_exact_at(&mut body, 24).unwrap();
        assert_eq!(&body, b"first");
        assert_eq!([16, 56, 64].map(|offset| word_at(&file, offset)), [5 | 66 << 32, 56 << 32, 0]);
        segment.seal(|offset| offset);
        assert_eq!(word_at(&file, 64), 64);
        assert!(segment.reserve(1, || ()).is_none() && !segment.append_word_at(72, 1));
        assert_eq!(segment.filled(), Some(72));
    }

    #[test]
    fn a_segment_has_room_up_to_its_last_word_and_always_for_its_end() {
        let (segment, file) = segment(64);
        assert!(segment.reserve(40, || ()).is_none(), "the word behind has no room");
        segment.reserve(32, || ()).unwrap().0.fill(&[1; 32], 3);
        assert!(segment.reserve(1, || ()).is_none() && !segment.append_word_at(segment.end(), 1));
        segment.seal(|_| 9);
        assert_eq!(word_at(&file, 56), 9);
    }

    #[test]
    fn a_record_that_was_given_up_is_told_of() {
        let (segment, _file) = segment(4096);
        segment.reserve(3, || ()).unwrap().0.fill(b"abc", 1);
        assert!(segment.filled().is_some());
        drop(segment.reserve(3, || ()));
        assert_eq!(segment.filled(), None);
    }

    /// S-92, by threads: whenever it is asked, what is before is whole.
    #[test]
    fn all_before_the_filled_end_is_whole() {
        let (segment, file) = segment(1 << 20);
        std::thread::scope(|scope| {
            for thread in 0..3_u8 {
                let segment = &segment;
                scope.spawn(move || {
                    while let Some((reserved, ())) = segment.reserve(24, || ()) {
                        reserved.fill(&[thread; 24], 24 | 1 << 32);
                    }
                });
            }
            let mut checked = 16;
            while checked + 40 < 1 << 20 {
                let filled = segment.filled().unwrap();
                for offset in (checked..filled).step_by(32) {
                    assert_eq!(word_at(&file, offset), 24 | 1 << 32, "at {offset}");
                }
                checked = filled;
            }
        });
    }
}
