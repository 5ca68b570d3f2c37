//! `Segment`: write buffers in a mapping that outlives the process, and what the next process finds of them.
//!
//! A segment is a table of entries and pages behind it. A buffer is a run of pages; the entry of the run's
//! first page says which log it is of, where in the log it begins, and how many of its bytes were published.
//!
//! | offset in the entry | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | number of the log; 0: no buffer begins here |
//! | 8 | 8 | offset in the log of the buffer's first byte |
//! | 16 | 8 | bytes published |
//! | 24 | 8 | pages of the run |
//! | 32 | 8 | id of the last batch that went to it; 0: none |
//! | 40 | 8 | offset in the log where that batch begins |
//! | 48 | 16 | zero |
//!
//! What is always true:
//! - S-90: an entry with a log's number is whole, and the bytes that it calls published were copied before. A
//!   process that dies between two instructions has done the first: its memory is not reordered by its death,
//!   so the compiler's order (Release) is enough.
//! - A child made by `fork` shares the mapping, and by dropping its copies of slots changes nothing in it.
#![expect(unsafe_code, reason = "memory that the next process reads")]

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kvilt_base::Mapping;
use parking_lot::Mutex;
use rustix::mm::{Advice, madvise};

use crate::Home;

/// Bytes of a page: what buffers are made of.
pub const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 64;

/// An entry's fields, by their order.
#[derive(Clone, Copy)]
enum Field {
    Log,
    Offset,
    Len,
    Pages,
    Batch,
    BatchBegin,
}

/// A mapping that is shared by buffers.
pub struct Segment {
    mapping: Arc<Mapping>,
    shape: Shape,
    pages: Mutex<Pages>,
    /// Slots are not given back any more.
    is_kept: AtomicBool,
    home: Home,
}

/// What is known of the pages of buffers, a bit for each.
struct Pages {
    used: Vec<u64>,
    /// Used since the system wrote them back.
    touched: Vec<u64>,
    /// Used since the last [`Segment::give_back`].
    recent: Vec<u64>,
    /// Mapped, since they were used and not given back.
    mapped: Vec<u64>,
    /// How many times a page, of the table too, came to be touched.
    touches: u64,
}

fn bit(page: usize) -> (usize, u64) {
    (page / 64, 1 << (page % 64))
}

/// How many pages the table takes, and how many follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    table_pages: usize,
    pages: usize,
}

impl Shape {
    fn of_bytes(bytes: usize) -> Shape {
        let all = bytes / PAGE_BYTES;
        let table_pages = (all * ENTRY_BYTES).div_ceil(PAGE_BYTES + ENTRY_BYTES);
        Shape { table_pages, pages: all - table_pages }
    }
}

/// Where in a log a buffer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The log's number, which is not zero.
    pub log: u64,
    /// The offset of the buffer's first byte.
    pub offset: u64,
}

impl Segment {
    /// Over a mapping that nobody else uses. Whatever was in it is forgotten.
    pub fn new(mapping: Arc<Mapping>) -> Arc<Segment> {
        let shape = Shape::of_bytes(mapping.len());
        let none = vec![0; shape.pages.div_ceil(u64::BITS as usize)];
        // Forgetting touches the table.
        let pages = Pages {
            used: none.clone(),
            touched: none.clone(),
            recent: none.clone(),
            mapped: none,
            touches: shape.table_pages as u64,
        };
        let segment = Segment {
            mapping,
            shape,
            pages: Mutex::new(pages),
            is_kept: AtomicBool::new(false),
            home: Home::here(),
        };
        (0..shape.pages).for_each(|page| segment.entry(page, Field::Log).store(0, Ordering::Relaxed));
        Arc::new(segment)
    }

    /// Bytes that a buffer can have, at most.
    pub fn buffer_bytes_max(&self) -> usize {
        self.shape.pages * PAGE_BYTES
    }

    /// A run of pages for `bytes` of a log; none if there is none that long.
    pub fn slot(self: &Arc<Self>, bytes: usize, place: Place) -> Option<Slot> {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let first = {
            let known = &mut *self.pages.lock();
            let first = free_run(&known.used, self.shape.pages, pages)?;
            for (word, bit) in (first..first + pages).map(bit) {
                known.used[word] |= bit;
                known.recent[word] |= bit;
                known.mapped[word] |= bit;
                known.touches += u64::from(known.touched[word] & bit == 0);
                known.touched[word] |= bit;
            }
            first
        };
        let slot = Slot { segment: Arc::clone(self), first, pages };
        slot.set(Field::Offset, place.offset);
        slot.set(Field::Len, 0);
        slot.set(Field::Pages, pages as u64);
        slot.set(Field::Batch, 0);
        slot.set(Field::BatchBegin, 0);
        // Last: from here on the entry counts (S-90).
        slot.set(Field::Log, place.log);
        Some(slot)
    }

    /// Leaves everything to the next process: a slot that is dropped from now on is not given back.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// How many times a page came to be used, or was again after the system had written it back.
    pub fn pages_touched(&self) -> u64 {
        self.pages.lock().touches
    }

    /// The system has written back what changed; what is used from now on changes again, and the table with
    /// it.
    pub fn was_written_back(&self) {
        let known = &mut *self.pages.lock();
        known.touched.clone_from(&known.used);
        let used: u64 = known.used.iter().map(|word| u64::from(word.count_ones())).sum();
        known.touches += used + if used > 0 { self.shape.table_pages as u64 } else { 0 };
    }

    /// Takes out of the process's memory what no buffer has used since the last call, or, if `is_all`, what
    /// none uses now. The file keeps the bytes, and a page that is used again is mapped again.
    pub fn give_back(&self, is_all: bool) {
        let idle = {
            let known = &mut *self.pages.lock();
            let recent = std::mem::replace(&mut known.recent, known.used.clone());
            let mut idle = vec![0; known.used.len()];
            for (word, idle) in idle.iter_mut().enumerate() {
                let kept = known.used[word] | if is_all { 0 } else { recent[word] };
                *idle = known.mapped[word] & !kept;
                known.mapped[word] &= kept;
            }
            idle
        };
        for run in runs(&idle) {
            let begin = base(&self.mapping, self.shape, run.start);
            // SAFETY: whole pages of the mapping, which stays. It is shared with a file, whose page cache has
            // the bytes: a thread that uses a page afterwards, or at the same time, faults the same ones in.
            // If the kernel refuses, the pages stay until the mapping is dropped.
            let _ = unsafe { madvise(begin.cast(), run.len() * PAGE_BYTES, Advice::LinuxDontNeed) };
        }
    }

    fn entry(&self, page: usize, field: Field) -> &AtomicU64 {
        entry(&self.mapping, self.shape, page, field)
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({} pages)", self.shape.pages)
    }
}

fn entry(mapping: &Mapping, shape: Shape, page: usize, field: Field) -> &AtomicU64 {
    assert!(page < shape.pages, "a page of the segment");
    let at = page * ENTRY_BYTES + field as usize * size_of::<u64>();
    // SAFETY: `page` is one of the segment's, and the table has an entry for each, within the mapping.
    let field = unsafe { mapping.base().add(at) };
    // SAFETY: valid as long as the mapping, which is borrowed; aligned, since a mapping begins with a page;
    // and whoever uses it does so by this function.
    unsafe { AtomicU64::from_ptr(field.cast()) }
}

/// The first run of `wanted` pages that are not used.
fn free_run(used: &[u64], pages: usize, wanted: usize) -> Option<usize> {
    let (mut page, mut run) = (0, 0);
    while page < pages {
        if page % 64 == 0 && used[page / 64] == u64::MAX {
            (page, run) = (page + 64, 0);
            continue;
        }
        run = if used[page / 64] >> (page % 64) & 1 == 0 { run + 1 } else { 0 };
        page += 1;
        if run == wanted {
            return Some(page - wanted);
        }
    }
    None
}

/// The runs of pages whose bit is set.
fn runs(bits: &[u64]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for page in (0..bits.len() * 64).filter(|page| bits[page / 64] >> (page % 64) & 1 == 1) {
        match runs.last_mut().filter(|run| run.end == page) {
            Some(run) => run.end += 1,
            None => runs.push(page..page + 1),
        }
    }
    runs
}

/// A run of pages, which its owner fills from the beginning. Given back when dropped, unless the segment is
/// [kept](Segment::keep).
#[derive(Debug)]
pub struct Slot {
    segment: Arc<Segment>,
    first: usize,
    pages: usize,
}

impl Slot {
    /// Where its bytes begin: valid for [`Slot::capacity`] bytes while it lives, and nobody else's.
    pub(crate) fn base(&self) -> *mut u8 {
        base(&self.segment.mapping, self.segment.shape, self.first)
    }

    /// Bytes that it has room for.
    pub fn capacity(&self) -> usize {
        self.pages * PAGE_BYTES
    }

    /// Its first `len` bytes were written, and are the log's from now on, whatever becomes of the
    /// process.
    pub fn publish(&self, len: usize) {
        self.set(Field::Len, len as u64);
    }

    /// A batch with this id, which is not zero, goes on here; it began in the log at `begin`.
    pub fn note_batch(&self, id: u64, begin: u64) {
        if self.get(Field::Batch) != id {
            // In between it is no batch's: neither the one before, which is whole, nor this one.
            self.set(Field::Batch, 0);
            self.set(Field::BatchBegin, begin);
            self.set(Field::Batch, id);
        }
    }

    /// The batch that went to it last, and where in the log that began.
    pub fn last_batch(&self) -> Option<(u64, u64)> {
        let id = self.get(Field::Batch);
        (id != 0).then(|| (id, self.get(Field::BatchBegin)))
    }

    fn get(&self, field: Field) -> u64 {
        self.segment.entry(self.first, field).load(Ordering::Relaxed)
    }

    fn set(&self, field: Field, value: u64) {
        // Release: behind everything before it in the order of this thread (S-90).
        self.segment.entry(self.first, field).store(value, Ordering::Release);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A lock that some thread of the parent held would never be given back in a child.
        if self.segment.is_kept.load(Ordering::Acquire) || !self.segment.home.is_here() {
            return;
        }
        self.set(Field::Log, 0);
        let used = &mut self.segment.pages.lock().used;
        (self.first..self.first + self.pages).map(bit).for_each(|(word, bit)| used[word] &= !bit);
    }
}

fn base(mapping: &Mapping, shape: Shape, first: usize) -> *mut u8 {
    // SAFETY: behind the table, at a page of the segment, within the mapping.
    unsafe { mapping.base().add((shape.table_pages + first) * PAGE_BYTES) }
}

/// A buffer that a process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Of which log, and from where.
    pub place: Place,
    /// Where in the segment its bytes begin.
    pub begin: usize,
    /// How many were published.
    pub len: usize,
    /// The batch that went to it last, and where in the log that began.
    pub batch: Option<(u64, u64)>,
}

/// Bytes of the table with which a segment of `segment_bytes` begins.
pub fn table_bytes(segment_bytes: usize) -> usize {
    Shape::of_bytes(segment_bytes).table_pages * PAGE_BYTES
}

/// The buffers that a process has left in a segment of `segment_bytes`, which begins with `table`; none if an
/// entry makes no sense, so that nothing in it can be trusted.
pub fn left_in(table: &[u8], segment_bytes: usize) -> Option<Vec<Left>> {
    let shape = Shape::of_bytes(segment_bytes);
    let mut left = Vec::new();
    let mut page = 0;
    while page < shape.pages {
        let get = |field: Field| {
            let at = page * ENTRY_BYTES + field as usize * size_of::<u64>();
            Some(u64::from_ne_bytes(table.get(at..at + size_of::<u64>())?.try_into().ok()?))
        };
        let log = get(Field::Log)?;
        if log == 0 {
            page += 1;
            continue;
        }
        let (len, pages, id) = (get(Field::Len)?, get(Field::Pages)?, get(Field::Batch)?);
        let fits = |pages: &u64| (1..=(shape.pages - page) as u64).contains(pages);
        let pages = Some(pages).filter(fits)? as usize;
        let len = usize::try_from(len).ok().filter(|len| *len <= pages * PAGE_BYTES)?;
        left.push(Left {
            place: Place { log, offset: get(Field::Offset)? },
            begin: (shape.table_pages + page) * PAGE_BYTES,
            len,
            batch: if id == 0 { None } else { Some((id, get(Field::BatchBegin)?)) },
        });
        page += pages;
    }
    Some(left)
}

/// Numbers in a mapping that outlives the process: what is set is there for the next one.
pub struct Words(Arc<Mapping>);

impl Words {
    /// All that fit into the mapping; nothing is changed.
    pub fn new(mapping: Arc<Mapping>) -> Words {
        Words(mapping)
    }

    /// The number at `place`.
    pub fn get(&self, place: usize) -> u64 {
        self.at(place).load(Ordering::Acquire)
    }

    /// Changes the number at `place`, behind everything that this thread did before (S-90).
    pub fn set(&self, place: usize, number: u64) {
        self.at(place).store(number, Ordering::Release);
    }

    /// Makes the number at `place` at least so large.
    pub fn raise(&self, place: usize, number: u64) {
        self.at(place).fetch_max(number, Ordering::AcqRel);
    }

    /// Puts `number` into the first of these places that holds zero, and says which; none if none does.
    pub fn claim(&self, mut places: Range<usize>, number: u64) -> Option<usize> {
        places.find(|place| {
            let empty = self.at(*place);
            empty.load(Ordering::Relaxed) == 0
                && empty.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    fn at(&self, place: usize) -> &AtomicU64 {
        let at = place * size_of::<u64>();
        assert!(at + size_of::<u64>() <= self.0.len(), "a number of the mapping");
        // SAFETY: within the mapping, see the line before.
        let word = unsafe { self.0.base().add(at) };
        // SAFETY: valid as long as the mapping, which is borrowed with `self`; aligned, since a mapping
        // begins with a page; and whoever uses it does so by this function.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({:?})", self.0)
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
#[expect(
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a mapping is of a file, and a test that fails may say where and no more"
)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// A mapping, and what it is of.
    fn mapping(pages: usize) -> (Arc<Mapping>, std::fs::File) {
        let file = tempfile::tempfile().unwrap();
        file.set_len((pages * PAGE_BYTES) as u64).unwrap();
        (Arc::new(Mapping::of(&file, 0, pages * PAGE_BYTES).unwrap()), file)
    }

    fn left(file: &std::fs::File) -> Option<Vec<Left>> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        left_in(&bytes[..table_bytes(bytes.len())], bytes.len())
    }

    #[test]
    fn what_was_published_is_found_and_what_was_given_back_is_not() {
        let (mapping, file) = mapping(200);
        let segment = Segment::new(mapping);
        assert_eq!(segment.shape, Shape { table_pages: 4, pages: 196 });
        let slot = segment.slot(10_000, Place { log: 7, offset: 64 }).unwrap();
        let one = crate::AppendBuffer::in_slot(slot, 10_000);
        one.append(b"first").unwrap();
        one.append_parts(&[b"sec", b"ond"]).unwrap();
        let two = segment.slot(1, Place { log: 9, offset: 0 }).unwrap();
        two.note_batch(3, 40);
        drop(segment.slot(1, Place { log: 8, offset: 0 }).unwrap());
        let found = left(&file).unwrap();
        let at = |page: usize| (4 + page) * PAGE_BYTES;
        let first = Left { place: Place { log: 7, offset: 64 }, begin: at(0), len: 11, batch: None };
        let second = Left { place: Place { log: 9, offset: 0 }, begin: at(3), len: 0, batch: Some((3, 40)) };
        assert_eq!(found, [first, second]);
        let mut bytes = [0; 11];
        file.read_exact_at(&mut bytes, found[0].begin as u64).unwrap();
        assert_eq!(&bytes, b"firstsecond");
        drop((one, two));
        assert_eq!(left(&file).unwrap(), []);
    }

    #[test]
    fn runs_are_found_where_there_is_room_and_none_where_there_is_not() {
        let segment = Segment::new(mapping(140).0);
        let pages = segment.shape.pages;
        let place = Place { log: 1, offset: 0 };
        let slots: Vec<Slot> = (0..pages).map(|_| segment.slot(PAGE_BYTES, place).unwrap()).collect();
        assert!(segment.slot(1, place).is_none());
        let firsts: Vec<usize> = slots.iter().map(|slot| slot.first).collect();
        assert_eq!(firsts, (0..pages).collect::<Vec<_>>());
        // Two holes of three and of five pages, one across the border of two words.
        let is_hole = |first| (10..13).contains(&first) || (62..67).contains(&first);
        let kept: Vec<Slot> = slots.into_iter().filter(|slot| !is_hole(slot.first)).collect();
        let five = segment.slot(5 * PAGE_BYTES, place).unwrap();
        let three = segment.slot(2 * PAGE_BYTES + 1, place).unwrap();
        assert_eq!((five.first, three.first), (62, 10));
        assert!(segment.slot(1, place).is_none());
        drop((kept, three, five));
        assert_eq!(segment.slot(segment.buffer_bytes_max(), place).unwrap().first, 0);
    }

    /// Bytes of the mapping that are in this process's memory.
    fn resident_bytes(mapping: &Mapping) -> usize {
        let begin = format!("{:x}-", mapping.base() as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_it = maps.lines().skip_while(|line| !line.starts_with(&begin));
        let line = of_it.into_iter().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pages_that_no_buffer_uses_are_given_back_and_their_bytes_stay_in_the_file() {
        let (mapping, file) = mapping(200);
        let segment = Segment::new(Arc::clone(&mapping));
        let place = Place { log: 7, offset: 0 };
        let fill = |slot: &Slot, byte| {
            // SAFETY: the slot's own bytes, which nobody else has.
            unsafe { slot.base().write_bytes(byte, slot.capacity()) };
        };
        let [first, second, third] = [1, 2, 3].map(|byte| {
            let slot = segment.slot(50 * PAGE_BYTES, place).unwrap();
            fill(&slot, byte);
            slot
        });
        // Not exactly: the kernel maps more than one page at a time, or takes some away, as it pleases.
        let resident = |most: usize| assert!(resident_bytes(&mapping) <= (4 + most) * PAGE_BYTES);
        let byte_at = |page: usize| {
            let mut byte = [0];
            file.read_exact_at(&mut byte, ((4 + page) * PAGE_BYTES) as u64).unwrap();
            byte[0]
        };
        assert!(resident_bytes(&mapping) > 100 * PAGE_BYTES, "there is nothing to give back");
        drop(second);
        segment.give_back(false);
        resident(150);
        segment.give_back(false);
        resident(100);
        assert_eq!([byte_at(0), byte_at(50), byte_at(100)], [1, 2, 3]);
        // Those that are used again come back, and what is used stays whatever is asked.
        let second = segment.slot(10 * PAGE_BYTES, place).unwrap();
        fill(&second, 4);
        segment.give_back(true);
        resident(150);
        assert!(resident_bytes(&mapping) > 50 * PAGE_BYTES, "the first and the third are used");
        drop((first, second));
        segment.give_back(true);
        resident(50);
        assert_eq!([byte_at(0), byte_at(50), byte_at(60), byte_at(100)], [1, 4, 2, 3]);
        drop(third);
        segment.give_back(true);
        resident(0);
        assert_eq!(byte_at(149), 3);
    }

    /// What a child frees of what its parent had replaced may be a new buffer of the parent's by then.
    #[test]
    fn a_slot_that_a_forked_child_drops_stays_its_parents() {
        let (mapping, file) = mapping(50);
        let segment = Segment::new(mapping);
        let place = Place { log: 7, offset: 0 };
        let mut slot = Some(segment.slot(PAGE_BYTES, place).unwrap());
        assert_eq!(crate::forked::in_child(|| u8::from(slot.take().is_none())), 0);
        assert_eq!(left(&file).unwrap().iter().map(|left| left.place).collect::<Vec<_>>(), [place]);
        slot.take();
        assert_eq!(left(&file).unwrap(), []);
    }

    #[test]
    fn a_table_that_makes_no_sense_is_not_trusted() {
        let (mapping, file) = mapping(50);
        let segment = Segment::new(mapping);
        let slot = segment.slot(PAGE_BYTES, Place { log: 1, offset: 0 }).unwrap();
        let wrong = [(Field::Pages, 0), (Field::Pages, 50), (Field::Len, 4097), (Field::Pages, u64::MAX)];
        for (field, value) in wrong {
            let good = slot.get(field);
            slot.set(field, value);
            assert!(left(&file).is_none(), "{value}");
            slot.set(field, good);
        }
        assert_eq!(left(&file).unwrap().len(), 1);
    }
}
