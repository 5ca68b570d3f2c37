//! `Pool`: write buffers that outlive the process, in a file of the run, and what tells the next process
//! whether they count. See `docs/design/0065-nothing-is-lost-to-a-kill.md` and `docs/format/pool.md`.
//!
//! The file begins with a page of numbers, the *front*; segments with buffers follow, each longer than the
//! one before. It is made when the first buffer is wanted, and grows while the buffers need it.
//!
//! What is always true:
//! - E-23: a record in a buffer that is not in the pool is written to its log before anybody can read it, and
//!   the pool says that it has *spilled*: then recovery reads the ends of logs, to find where whole records
//!   end. If that write fails, the pool has *lapsed*: then a kill falls back to the last checkpoint. Both are
//!   over with the next checkpoint. A buffer that follows bytes which are neither in the pool nor in the file
//!   of the log is not in the pool: recovery would find a gap before it.
//! - The pool knows when its run last changed a log, a table or a journal, by the clock of the file system;
//!   so one that was changed later was changed by somebody else. While a file is being changed its number is
//!   in a cell.

use std::{
    collections::BTreeSet,
    io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, atomic::AtomicU64, atomic::Ordering},
    time::Duration,
};

use kvilt_base::{Disk, File, FileName, Listed, directory, disk::Habitat, planted};
use kvilt_format::{
    FileIdentity,
    names::{LOG, POOL},
};
use kvilt_sync::segment::{Left, PAGE_BYTES, Place, Segment, Slot, left_in, table_bytes};
use parking_lot::Mutex;

use self::front::Front;

mod front;

/// The first segment's length, in bytes. A store that is never written has none.
const SEGMENT_BYTES_MIN: usize = 64 << 10;
/// No segment is made longer than this for the sake of many buffers, in bytes, but for a pool so large that
/// half of its segments would not do.
const SEGMENT_BYTES_MAX: usize = 8 << 20;
/// Segments of a pool.
const SEGMENTS_MAX: usize = 64;
/// A longer buffer, in bytes, is made for a record that is to be written at once, and is not in the pool.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// How long the kernel lets a page of a file wait for being written, by default: so a page that is changed
/// again and again is written once in this time.
const WRITE_BACK_INTERVAL: Duration = Duration::from_secs(30);
/// Batches, and files, that are written at the same time, and noted here. Those beyond wait for a cell.
const CELLS: usize = 64;
/// A file that was changed so much later than its owner says was changed by somebody else: the time between
/// the look at the clock and the end of a write, in nanoseconds.
const STAMP_SLACK_NS: u64 = 10_000_000_000;

/// With more files than this being changed at the same time, it is not asked whether a log is missing.
const UNSURE_MAX: usize = 10;

/// What the front begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"KVILTpoo");
const FORMAT_VERSION: u64 = 1;

// Places of the front.
const AT_MAGIC: usize = 0;
const AT_FORMAT_VERSION: usize = 1;
const AT_STORE: usize = 2;
const AT_RUN: usize = 3;
const AT_BOOT: Range<usize> = 4..6;
const AT_DEVICE: usize = 6;
const AT_INODE: usize = 7;
/// When the run was about to change a file last, by the clock of its process.
const AT_STAMP: usize = 8;
/// Journals up to this number tell nothing: some record was neither in the pool nor in its log.
const AT_LAPSED: usize = 9;
/// With journals up to this number the ends of logs are to be read: some record was not in the pool.
const AT_SPILLED: usize = 10;
/// How many segments there are, and each one's length in bytes.
const AT_SEGMENTS: usize = 11;
const AT_SEGMENT_BYTES: usize = 12;
/// When the run last changed a file, of those changes that are over, as the file system says; zero if that is
/// not known.
const AT_CHANGED: usize = AT_SEGMENT_BYTES + SEGMENTS_MAX;
const AT_CELLS: Range<usize> = 128..128 + CELLS;
/// Numbers of files that are being changed, and how long they were before.
const AT_CHANGES: Range<usize> = AT_CELLS.end..AT_CELLS.end + CELLS;
const AT_LENGTHS: usize = AT_CHANGES.end;
/// The sum of the numbers of the run's logs that have a file, those in cells with or without.
const AT_LOGS: usize = AT_LENGTHS + CELLS;
/// In a cell whose length is still to come: nothing was changed yet.
const UNDECIDED: u64 = u64::MAX;

/// See the module.
pub(crate) struct Pool {
    disk: Arc<dyn Disk>,
    id: FileIdentity,
    /// Names this run of the store, in the pool and in the journals.
    run: u64,
    bytes_max: u64,
    /// Made with the first buffer.
    opened: OnceLock<Opened>,
    /// Held by whoever makes it.
    making: Mutex<()>,
    /// The number of the newest journal.
    newest_journal: AtomicU64,
    /// The sum of the numbers of logs with a file.
    logs: Mutex<u64>,
}

struct Opened {
    habitat: Habitat,
    file: Arc<dyn File>,
    front: Front,
    segments: Mutex<Segments>,
}

struct Segments {
    all: Vec<Arc<Segment>>,
    /// The file's length, in bytes.
    end: u64,
    /// When the kernel last wrote what had changed, about.
    written_back_at: Duration,
}

impl Pool {
    /// The pool of a run, in the file with the number of `id`; nothing is made yet.
    pub(crate) fn new(disk: Arc<dyn Disk>, id: FileIdentity, run: u64, bytes_max: u64) -> Self {
        Pool {
            disk,
            id,
            run,
            bytes_max,
            opened: OnceLock::new(),
            making: Mutex::new(()),
            newest_journal: AtomicU64::new(0),
            logs: Mutex::new(0),
        }
    }

    /// What names its run, and where it lives. Makes it; none if that fails.
    pub(crate) fn run(&self) -> Option<(u64, Habitat)> {
        self.opened().map(|opened| (self.run, opened.habitat))
    }

    /// A buffer for `bytes` of a log; none if the pool has no room, and can have none.
    pub(crate) fn slot(&self, bytes: usize, place: Place) -> Option<Slot> {
        if bytes > BUFFER_BYTES_MAX {
            return None;
        }
        let opened = self.opened()?;
        let mut segments = opened.segments.lock();
        let found = segments.all.iter().find_map(|segment| segment.slot(bytes, place));
        found.or_else(|| {
            caught(|| opened.grow(&mut segments, bytes, self.bytes_max)).ok()?;
            segments.all.last()?.slot(bytes, place)
        })
    }

    /// What is in it stays for the next process, for the store could not be closed as it should.
    pub(crate) fn keep(&self) {
        if let Some(opened) = self.opened.get() {
            opened.segments.lock().all.iter().for_each(|segment| segment.keep());
        }
    }

    /// Nothing is in it that is needed: the file goes.
    pub(crate) fn close(&self) {
        if self.opened.get().is_some() {
            // The next open removes it, if this cannot.
            let _ = self.disk.remove(FileName::Of(POOL, self.id.number));
        }
    }

    /// What is not in the pool is about to be written to its log: until the next checkpoint recovery looks
    /// for where the whole records of logs end.
    pub(crate) fn spill(&self) {
        if let Some(opened) = self.opened.get() {
            opened.front.raise(AT_SPILLED, self.newest_journal.load(Ordering::SeqCst));
        }
    }

    /// A record could not be written: until the next checkpoint a kill falls back to the last one.
    pub(crate) fn lapse(&self) {
        if let Some(opened) = self.opened.get() {
            opened.front.raise(AT_LAPSED, self.newest_journal.load(Ordering::SeqCst));
        }
    }

    /// A journal with this number begins: what spills or lapses from now on counts for it.
    pub(crate) fn begin_journal(&self, number: u64) {
        self.newest_journal.fetch_max(number, Ordering::SeqCst);
    }

    /// A file of `len` bytes is about to grow, and has when what this returns is dropped: recovery trusts
    /// none that was changed later, or is shorter.
    pub(crate) fn change(&self, name: FileName, len: u64) -> Option<Change<'_>> {
        let front = &self.opened.get()?.front;
        if !front.is_mapped() {
            // Where each cell costs a call, the stamp has to do.
            front.raise_stamp(self.disk.now_ns());
            return None;
        }
        let place = claim(front, AT_CHANGES, UNDECIDED);
        front.set(AT_LENGTHS + place - AT_CHANGES.start, len);
        front.set(place, name.number());
        Some(Change { disk: &*self.disk, front, place, name, file: None })
    }

    /// A log of this run has a file now, or has none any more; it is being [changed](Pool::change).
    pub(crate) fn has_file(&self, log: u64, has_file: bool) {
        let mut logs = self.logs.lock();
        *logs = if has_file { logs.wrapping_add(log) } else { logs.wrapping_sub(log) };
        self.tell_logs(*logs);
    }

    fn tell_logs(&self, sum: u64) {
        if let Some(opened) = self.opened.get().filter(|opened| opened.front.is_mapped()) {
            opened.front.set(AT_LOGS, sum);
        }
    }

    /// The number of its own file: those of all logs of the run are higher.
    pub(crate) fn number(&self) -> u64 {
        self.id.number
    }

    /// Begins the batch with this id, which is whole when what this returns is dropped; none if there is no
    /// pool. Waits if all cells are taken, which lasts as long as a batch is copied.
    pub(crate) fn begin_batch(&self, id: u64) -> Option<Batch<'_>> {
        let front = &self.opened.get()?.front;
        Some(Batch { front, place: claim(front, AT_CELLS, id) })
    }

    /// Bytes of the file, and of these, how many the kernel has written or will write, about: each page that
    /// was used once in [`WRITE_BACK_INTERVAL`].
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let Some(opened) = self.opened.get() else { return (0, 0) };
        let segments = opened.segments.lock();
        let written = segments.all.iter().map(|segment| segment.pages_touched()).sum::<u64>();
        (segments.end, written * PAGE_BYTES as u64)
    }

    /// Takes note that the kernel has written what changed, if it is time.
    pub(crate) fn look_at_clock(&self, now: Duration) {
        let Some(opened) = self.opened.get() else { return };
        let mut segments = opened.segments.lock();
        if now.saturating_sub(segments.written_back_at) >= WRITE_BACK_INTERVAL {
            segments.written_back_at = now;
            segments.all.iter().for_each(|segment| segment.was_written_back());
        }
    }

    /// Takes out of the process's memory what no buffer has used since the last call, or, if `is_all`, what
    /// none uses now.
    pub(crate) fn give_back(&self, is_all: bool) {
        let Some(opened) = self.opened.get() else { return };
        let segments = opened.segments.lock().all.clone();
        segments.iter().for_each(|segment| segment.give_back(is_all));
    }

    fn opened(&self) -> Option<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Some(opened);
        }
        let _making = self.making.lock();
        if self.opened.get().is_none() {
            // If it fails, the next buffer tries it again: the disk may be full for a while.
            let made = caught(|| self.make())
                .inspect_err(|_| drop(self.disk.remove(FileName::Of(POOL, self.id.number))));
            let _ = self.opened.set(made.ok()?);
            // The first that were written may have found no room for it.
            self.tell_logs(*self.logs.lock());
        }
        self.opened.get()
    }

    fn make(&self) -> io::Result<Opened> {
        let habitat @ Habitat { boot, device, inode } = self.disk.habitat()?;
        let file = self.disk.create(FileName::Of(POOL, self.id.number))?;
        let front = Front::new(&self.disk, &file)?;
        front.set(AT_FORMAT_VERSION, FORMAT_VERSION);
        front.set(AT_STORE, self.id.store_id);
        front.set(AT_RUN, self.run);
        let (high, low) = boot.split_at(8);
        for (place, half) in AT_BOOT.zip([high, low]) {
            front.set(place, u64::from_le_bytes(half.try_into().expect("eight bytes")));
        }
        front.set(AT_DEVICE, device);
        front.set(AT_INODE, inode);
        front.set(AT_STAMP, self.disk.now_ns());
        if front.is_mapped() {
            // Later than whatever was changed before.
            front.set(AT_CHANGED, file.changed_ns()?);
        }
        // Last: from here on it counts.
        front.set(AT_MAGIC, MAGIC);
        let segments = Segments { all: Vec::new(), end: PAGE_BYTES as u64, written_back_at: Duration::ZERO };
        Ok(Opened { habitat, file, front, segments: Mutex::new(segments) })
    }
}

impl Opened {
    /// Adds a segment with room for a buffer of `buffer_bytes`.
    fn grow(&self, segments: &mut Segments, buffer_bytes: usize, bytes_max: u64) -> io::Result<()> {
        if !self.front.is_mapped() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let count = segments.all.len();
        let most = SEGMENT_BYTES_MAX.max(bytes_max as usize / (SEGMENTS_MAX / 2));
        let usual = (SEGMENT_BYTES_MIN << count.min(16)).min(most);
        let needed = buffer_bytes.next_multiple_of(PAGE_BYTES) + buffer_bytes / 32 + 2 * PAGE_BYTES;
        let bytes = usual.max(needed).next_multiple_of(PAGE_BYTES);
        let end = segments.end + bytes as u64;
        if count == SEGMENTS_MAX || end > bytes_max {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.allocate(end)?;
        let mapping = self.file.map(segments.end, bytes)?;
        segments.all.push(Segment::new(mapping));
        segments.end = end;
        self.front.set(AT_SEGMENT_BYTES + count, bytes as u64);
        self.front.set(AT_SEGMENTS, count as u64 + 1);
        Ok(())
    }
}

/// What a call says; an error if it panics: a put may be half done, so it must not end with a panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let panicked = |_| Err(io::Error::other("a call to the disk panicked"));
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked)
}

/// Takes one of these cells; waits if all are taken.
fn claim(front: &Front, places: Range<usize>, number: u64) -> usize {
    loop {
        match front.claim(places.clone(), number) {
            Some(place) => return place,
            None => std::thread::yield_now(),
        }
    }
}

/// A file that is being changed.
pub(crate) struct Change<'p> {
    disk: &'p dyn Disk,
    front: &'p Front,
    place: usize,
    name: FileName,
    /// It, if it is open.
    pub(crate) file: Option<Arc<dyn File>>,
}

impl Change<'_> {
    fn changed_ns(&self) -> io::Result<u64> {
        match &self.file {
            Some(file) => file.changed_ns(),
            None => self.disk.open(self.name)?.changed_ns(),
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // One that was not made needs no trust.
        if let Ok(changed) = caught(|| self.changed_ns()) {
            self.front.raise(AT_CHANGED, changed);
        }
        self.front.set(self.place, 0);
    }
}

/// A batch that is being written: while there is one, it is not whole.
pub(crate) struct Batch<'p> {
    front: &'p Front,
    place: usize,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.front.set(self.place, 0);
    }
}

/// What a run before has left.
pub(crate) struct LeftPool {
    number: u64,
    file: Arc<dyn File>,
    front: Vec<u8>,
    pub(crate) run: u64,
    pub(crate) boot: [u8; 16],
    /// When that run was about to change a file last, by the clock of its process.
    stamp_ns: u64,
    /// When the run that goes on for it wrote its own stamp over that, if it did.
    stamped_ns: AtomicU64,
    /// When it changed one last, of those changes that were over, as the file system says; zero if unknown.
    changed_ns: u64,
    /// Numbers of the files that it was changing, and how long they were before.
    being_changed: Vec<(u64, u64)>,
    /// Journals up to this number tell nothing.
    pub(crate) lapsed: u64,
    /// With journals up to this number the ends of logs are to be read.
    pub(crate) spilled: u64,
    /// Batches that are not whole.
    pub(crate) open_batches: Vec<u64>,
}

/// A buffer that was left, and where in the pool its bytes are.
pub(crate) struct LeftBuffer {
    pub(crate) left: Left,
    begin: u64,
}

impl LeftPool {
    /// The buffers; none if what says where they are makes no sense.
    pub(crate) fn buffers(&self) -> io::Result<Option<Vec<LeftBuffer>>> {
        let count = usize::try_from(word(&self.front, AT_SEGMENTS)).unwrap_or(usize::MAX);
        if count > SEGMENTS_MAX {
            return Ok(None);
        }
        let len = self.file.len()?;
        let (mut buffers, mut begin) = (Vec::new(), PAGE_BYTES as u64);
        for number in 0..count {
            let bytes = word(&self.front, AT_SEGMENT_BYTES + number);
            let end =
                begin.checked_add(bytes).filter(|end| *end <= len && bytes.is_multiple_of(PAGE_BYTES as u64));
            let Some(end) = end else { return Ok(None) };
            let mut table = vec![0; table_bytes(bytes as usize)];
            self.file.read_exact_at(begin, &mut table)?;
            let Some(left) = left_in(&table, bytes as usize) else { return Ok(None) };
            buffers
                .extend(left.into_iter().map(|left| LeftBuffer { left, begin: begin + left.begin as u64 }));
            begin = end;
        }
        Ok(Some(buffers))
    }

    /// What was published of a buffer.
    pub(crate) fn bytes(&self, buffer: &LeftBuffer) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; buffer.left.len];
        self.file.read_exact_at(buffer.begin, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether each log that has a file is among these, as far as can be known.
    pub(crate) fn has_all_logs(&self, listed: &[Listed]) -> bool {
        // Each of these may be in the sum, or not: it is enough that one of these sums is right.
        let unsure: BTreeSet<u64> = self.being_changed.iter().map(|(number, _)| *number).collect();
        if self.changed_ns == 0 || unsure.len() > UNSURE_MAX {
            return true;
        }
        let is_sure = |number: &u64| *number > self.number && !unsure.contains(number);
        let found = directory::numbers(listed, LOG).filter(is_sure).fold(0, u64::wrapping_add);
        let mut sums = vec![word(&self.front, AT_LOGS)];
        for number in &unsure {
            sums.extend(sums.clone().iter().map(|sum| sum.wrapping_sub(*number)));
        }
        sums.contains(&found)
    }

    /// The length of a file, if nobody but that run has changed it.
    pub(crate) fn own_len(&self, file: &dyn File) -> Option<u64> {
        let (changed_ns, len) = (file.changed_ns().ok()?, file.len().ok()?);
        let is_own = if self.changed_ns == 0 {
            changed_ns <= self.stamp_ns.saturating_add(STAMP_SLACK_NS)
        } else {
            // One that was only ever appended to, and is as long as before the last time, is not an older
            // one.
            let mut lens = self.being_changed.iter().filter(|(number, _)| *number == file.name().number());
            changed_ns <= self.changed_ns
                || lens.clone().next().is_some() && lens.all(|(_, before)| *before <= len)
        };
        is_own.then_some(len)
    }

    /// Whoever goes on for that run is about to change a file; from now on the stamp has to do. A slow disk
    /// may take longer for all files than a stamp is good for, so each one gets half of that time at least.
    pub(crate) fn stamp(&self, disk: &dyn Disk) -> io::Result<()> {
        let now_ns = disk.now_ns();
        // Relaxed: one thread recovers.
        let stamped_ns = self.stamped_ns.load(Ordering::Relaxed);
        if (stamped_ns..stamped_ns.saturating_add(STAMP_SLACK_NS / 2)).contains(&now_ns) && stamped_ns > 0 {
            return Ok(());
        }
        [(AT_STAMP, now_ns), (AT_CHANGED, 0)].into_iter().try_for_each(|(place, number)| {
            self.file.write_all_at((place * size_of::<u64>()) as u64, &number.to_ne_bytes())
        })?;
        self.stamped_ns.store(now_ns, Ordering::Relaxed);
        Ok(())
    }
}

/// The pool with this number, if a run before left it in this run of the kernel, in this directory.
pub(crate) fn left(disk: &dyn Disk, id: FileIdentity) -> Option<LeftPool> {
    let habitat = disk.habitat().ok()?;
    let file = disk.open(FileName::Of(POOL, id.number)).ok()?;
    let mut front = vec![0; PAGE_BYTES];
    file.read_exact_at(0, &mut front).ok()?;
    let get = |place| word(&front, place);
    let mut boot = [0; 16];
    for (half, place) in boot.chunks_mut(8).zip(AT_BOOT) {
        half.copy_from_slice(&get(place).to_le_bytes());
    }
    let found = Habitat { boot, device: get(AT_DEVICE), inode: get(AT_INODE) };
    let counts = get(AT_MAGIC) == MAGIC
        && get(AT_FORMAT_VERSION) == FORMAT_VERSION
        && get(AT_STORE) == id.store_id
        && planted!(PoolOfAnotherBoot, found == habitat => true);
    counts.then(|| LeftPool {
        number: id.number,
        run: get(AT_RUN),
        boot,
        stamp_ns: get(AT_STAMP),
        stamped_ns: AtomicU64::new(0),
        changed_ns: get(AT_CHANGED),
        being_changed: (0..CELLS)
            .map(|cell| (get(AT_CHANGES.start + cell), get(AT_LENGTHS + cell)))
            .filter(|(number, _)| !matches!(*number, 0 | UNDECIDED))
            .collect(),
        lapsed: get(AT_LAPSED),
        spilled: get(AT_SPILLED),
        open_batches: planted!(BatchCountedByParts, AT_CELLS.map(get).filter(|id| *id != 0).collect() => vec![]),
        file,
        front: front.clone(),
    })
}

/// The number at a place of the front. In the byte order of this machine: no other can have left it.
fn word(front: &[u8], place: usize) -> u64 {
    let at = place * size_of::<u64>();
    u64::from_ne_bytes(front[at..at + size_of::<u64>()].try_into().expect("eight bytes"))
}
