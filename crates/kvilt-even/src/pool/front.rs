//! `Front`: the numbers with which the pool begins. Mapped; or, where a file system maps no file shared,
//! written to the file one by one, which costs a call each.
//!
//! What is always true: what was set outlives the process, and each number is there whole, in the order in
//! which they were set.

use std::{io, ops::Range, sync::Arc};

use kvilt_base::{Disk, File};
use kvilt_sync::segment::{PAGE_BYTES, Words};
use parking_lot::Mutex;

use super::{AT_STAMP, caught};

const WORDS: usize = PAGE_BYTES / size_of::<u64>();
/// Where it costs a call, the stamp is set again when it is older than this, in nanoseconds: less than what
/// recovery allows.
const STAMP_AGE_MAX_NS: u64 = 2_000_000_000;

/// See the module.
pub(super) enum Front {
    Mapped(Words),
    Written(Mutex<Written>),
}

pub(super) struct Written {
    disk: Arc<dyn Disk>,
    file: Arc<dyn File>,
    words: Box<[u64; WORDS]>,
}

impl Written {
    fn set(&mut self, place: usize, number: u64) {
        self.words[place] = number;
        let offset = (place * size_of::<u64>()) as u64;
        if caught(|| self.file.write_all_at(offset, &number.to_ne_bytes())).is_err() {
            // It does not say any more what is: without it, a kill falls back to the last checkpoint.
            let _ = self.disk.remove(self.file.name());
        }
    }
}

impl Front {
    pub(super) fn new(disk: &Arc<dyn Disk>, file: &Arc<dyn File>) -> io::Result<Front> {
        let mapping = file.allocate(PAGE_BYTES as u64).and_then(|()| file.map(0, PAGE_BYTES));
        match mapping {
            Ok(mapping) => Ok(Front::Mapped(Words::new(mapping))),
            Err(e) if e.kind() == io::ErrorKind::StorageFull => Err(e),
            Err(_) => {
                file.write_all_at(0, &[0; PAGE_BYTES])?;
                let (disk, file, words) = (Arc::clone(disk), Arc::clone(file), Box::new([0; WORDS]));
                Ok(Front::Written(Mutex::new(Written { disk, file, words })))
            }
        }
    }

    pub(super) fn is_mapped(&self) -> bool {
        matches!(self, Front::Mapped(_))
    }

    pub(super) fn set(&self, place: usize, number: u64) {
        match self {
            Front::Mapped(words) => words.set(place, number),
            Front::Written(written) => written.lock().set(place, number),
        }
    }

    /// Makes the number at `place` at least so large.
    pub(super) fn raise(&self, place: usize, number: u64) {
        match self {
            Front::Mapped(words) => words.raise(place, number),
            Front::Written(written) => {
                let mut written = written.lock();
                if written.words[place] < number {
                    written.set(place, number);
                }
            }
        }
    }

    pub(super) fn raise_stamp(&self, now_ns: u64) {
        let is_due = match self {
            Front::Mapped(_) => true,
            Front::Written(written) => written.lock().words[AT_STAMP] + STAMP_AGE_MAX_NS < now_ns,
        };
        if is_due {
            self.raise(AT_STAMP, now_ns);
        }
    }

    /// Puts `number` into the first of these places that holds zero, and says which; none if none does.
    pub(super) fn claim(&self, mut places: Range<usize>, number: u64) -> Option<usize> {
        match self {
            Front::Mapped(words) => words.claim(places, number),
            Front::Written(written) => {
                let mut written = written.lock();
                let free = places.find(|place| written.words[*place] == 0)?;
                written.set(free, number);
                Some(free)
            }
        }
    }
}
