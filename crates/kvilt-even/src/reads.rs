//! `Reads`: what reads of logs and tables come to, and whether the drive must be asked for them.
//!
//! A read that the page cache answers takes a microsecond or two, one of the drive fifty or more. The system
//! does not say which it was, so every read is timed. [`crate::rebalance`] asks: while the drive is waited
//! for, memory that munks do not need is of more use to the page cache, which keeps pages instead of chunks.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kvilt_base::{Clock, File, FileName};
use parking_lot::Mutex;

use crate::stats::{Counter, RareCounter};

/// A read that takes longer, and longer than its bytes are copied, has waited for the drive.
const WAIT_MIN: Duration = Duration::from_micros(20);
/// Bytes that are copied in a microsecond, at least.
const COPIED_A_MICROSECOND: u64 = 1 << 10;
/// The drive is waited for if one read in so many waits, and until not even one in twice as many does.
const WAITED_OF: u64 = 10;
/// So few waits prove nothing.
const WAITED_MIN: u64 = 32;

/// What was read so many seconds ago counts for nothing.
const SECONDS_MAX: u32 = 100;

/// Shared by all files of a store that hold rows.
pub(crate) struct Reads {
    clock: Arc<dyn Clock>,
    pub(crate) bytes: Counter,
    pub(crate) done: Counter,
    pub(crate) waited: RareCounter,
    pub(crate) ahead: RareCounter,
    lately: Mutex<Lately>,
    is_waiting: AtomicBool,
}

/// Reads of the last seconds, the older the less; and what had been counted when they were looked at last.
#[derive(Default)]
struct Lately {
    done: u64,
    waited: u64,
    done_before: u64,
    waited_before: u64,
}

impl Reads {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Reads {
            clock,
            bytes: Counter::default(),
            done: Counter::default(),
            waited: RareCounter::default(),
            ahead: RareCounter::default(),
            lately: Mutex::default(),
            is_waiting: AtomicBool::new(false),
        })
    }

    /// The same file, with its reads counted here.
    pub(crate) fn watch(self: &Arc<Self>, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(WatchedFile { file, reads: Arc::clone(self) })
    }

    /// Whether reads wait for the drive, of late.
    pub(crate) fn wait_for_the_drive(&self) -> bool {
        // Relaxed: a statistic.
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// So many seconds have passed.
    pub(crate) fn age(&self, seconds: u32) {
        for _ in 0..seconds.min(SECONDS_MAX) {
            self.age_once();
        }
    }

    fn age_once(&self) {
        let (done, waited) = (self.done.sum(), self.waited.sum());
        let mut lately = self.lately.lock();
        *lately = Lately {
            done: lately.done / 4 * 3 + (done - lately.done_before),
            waited: lately.waited / 4 * 3 + (waited - lately.waited_before),
            done_before: done,
            waited_before: waited,
        };
        let of = if self.wait_for_the_drive() { 2 * WAITED_OF } else { WAITED_OF };
        let is_waiting = lately.waited >= WAITED_MIN && lately.waited * of >= lately.done;
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
    }

    fn count(&self, bytes: usize, took: Duration) {
        self.done.add(1);
        self.bytes.add(bytes as u64);
        if took >= WAIT_MIN + Duration::from_micros(bytes as u64 / COPIED_A_MICROSECOND) {
            self.waited.add(1);
        }
    }
}

/// A file whose reads are counted.
#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    reads: Arc<Reads>,
}

impl File for WatchedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = self.reads.clock.now();
        let read = self.file.read_at(offset, buffer)?;
        self.reads.count(read, self.reads.clock.now().saturating_sub(begun));
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn will_read(&self, offset: u64, len: usize) {
        self.reads.ahead.add(1);
        self.file.will_read(offset, len);
    }

    fn will_sync(&self, offset: u64, len: u64) {
        self.file.will_sync(offset, len);
    }

    fn will_not_read(&self, offset: u64, len: u64) {
        self.file.will_not_read(offset, len);
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<kvilt_base::Mapping>> {
        self.file.map(offset, len)
    }

    fn changed_ns(&self) -> io::Result<u64> {
        self.file.changed_ns()
    }

    fn name(&self) -> FileName {
        self.file.name()
    }

    fn behind(&self) -> Option<&Arc<dyn File>> {
        Some(&self.file)
    }
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reads {{ {} done, {} waited }}", self.done.sum(), self.waited.sum())
    }
}
