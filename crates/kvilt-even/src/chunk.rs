//! `Chunk`: a key range and all that belongs to it (EvenDB §3.1).
//!
//! | state | munk | funk | who reads what |
//! | --- | --- | --- | --- |
//! | cached | some | files, not read | gets and scans: the munk. Puts: log and munk. |
//! | cold | none | files, log indexed | gets: row cache, log index, tables. Scans: files. Puts: log and its index. |
//! | retired | as it was | as it was | readers that still hold it: frozen, complete up to its retirement. Puts: look again. |
//!
//! ```text
//!   cold ──load──▶ cached ──evict──▶ cold        cached, cold ──split, coalesce──▶ retired
//! ```
//!
//! Thread rule: `state` is published; readers follow it without a lock. It is replaced by whoever holds the
//! gate. Puts hold the gate for a microsecond each: one writer at a time in a chunk, so the order of records
//! in the log, of entries in the munk and of row-cache updates is the same, and needs no counter (the paper
//! lets puts into a chunk concurrently and then orders them by a per-chunk counter; see `docs/design/`).
//!
//! * **E-2** A retired chunk never changes again.
//! * **E-10** A chunk whose files were found damaged takes no writes, and no background job changes it.

pub(crate) mod get;
pub(crate) mod ledger;
pub(crate) mod put;
pub(crate) mod scan;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use kvilt_base::{Error, ErrorKind, KeyRange};
use kvilt_sync::published::{Pin, Published, pin};
use parking_lot::{Mutex, MutexGuard};

use self::ledger::Ledger;
use crate::{funk::Funk, munk::Munk};

/// What a chunk consists of; replaced as a whole. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ChunkState {
    pub(crate) munk: Option<Arc<Munk>>,
    pub(crate) funk: Arc<Funk>,
    /// What the row cache knows the chunk's rows by. Fresh whenever rows may have changed without the row
    /// cache being told: after a time with a munk, and after a range delete.
    pub(crate) cold_id: u64,
}

/// What only the holder of the gate may use.
pub(crate) struct GateState {
    /// Set once, when other chunks have taken over the range.
    pub(crate) is_retired: bool,
}

/// A key range and all that belongs to it.
pub(crate) struct Chunk {
    pub(crate) id: u64,
    pub(crate) range: KeyRange,
    state: Published<ChunkState>,
    gate: Mutex<GateState>,
    /// Taken by the background job that is changing the chunk's structure; there is at most one.
    is_busy: AtomicBool,
    /// Whether it waits in the queue of chunks that want the background's attention.
    pub(crate) is_queued: AtomicBool,
    pub(crate) heat: Heat,
    pub(crate) ledger: Ledger,
    /// Until when, in microseconds of the clock, no background job is tried after one failed.
    retry_at_us: AtomicU64,
    failures: AtomicU32,
    damage: OnceLock<Error>,
}

/// How much a chunk is used, decaying: what decides about munks (EvenDB §4).
#[derive(Default)]
pub(crate) struct Heat {
    /// Gets, sampled.
    pub(crate) gets: AtomicU32,
    pub(crate) scans: AtomicU32,
    pub(crate) puts: AtomicU32,
    /// What readers have had to look into the munk's tails for since these were sorted last, in searches of
    /// one: gets sampled, and of scans each time that another of run and tails came first.
    pub(crate) tail_searches: AtomicU32,
    /// What scans have read for want of order in logs since the funk was rewritten last, in bytes read at one
    /// go.
    pub(crate) unordered_cost_bytes: AtomicU64,
    /// Whether of what was sorted last much had been overwritten, so that sorting frees memory.
    pub(crate) has_overwrites: AtomicBool,
    /// Whether the indexes of its logs shall make room: until the funk is rewritten.
    pub(crate) is_index_unwanted: AtomicBool,
    /// Whether something is to be put that is too large for a munk beside the budget.
    pub(crate) is_munk_unwanted: AtomicBool,
    /// Deletes since the funk was rewritten last.
    pub(crate) deletes: AtomicU32,
    /// The benefit that a munk would have, accumulated with decay.
    pub(crate) score: AtomicU64,
}

impl Heat {
    /// The heat of a half of a chunk.
    pub(crate) fn halved(&self) -> Heat {
        let half = |n: &AtomicU32| AtomicU32::new(n.load(Ordering::Relaxed) / 2);
        Heat {
            gets: half(&self.gets),
            scans: half(&self.scans),
            puts: half(&self.puts),
            tail_searches: AtomicU32::new(0),
            unordered_cost_bytes: AtomicU64::new(0),
            has_overwrites: AtomicBool::new(self.has_overwrites.load(Ordering::Relaxed)),
            is_index_unwanted: AtomicBool::new(false),
            is_munk_unwanted: AtomicBool::new(false),
            deletes: half(&self.deletes),
            score: AtomicU64::new(self.score.load(Ordering::Relaxed) / 2),
        }
    }

    /// Moves what was counted into the score and halves what was there, for each of so many periods, of which
    /// the last ends now.
    pub(crate) fn decay(&self, periods: u32) {
        let reads = self.reads();
        // Relaxed, here and below: statistics; a count lost between load and store costs nothing.
        self.gets.store(0, Ordering::Relaxed);
        self.scans.store(0, Ordering::Relaxed);
        let puts = self.puts.load(Ordering::Relaxed);
        self.puts.store(puts.checked_shr(periods).unwrap_or(0), Ordering::Relaxed);
        // What was read was read when the first of them began: or there would not have been several.
        let score = self.score.load(Ordering::Relaxed) / 2 + reads;
        self.score.store(score.checked_shr(periods - 1).unwrap_or(0), Ordering::Relaxed);
    }

    /// Forgets the past: after an eviction, only what comes speaks for a load.
    pub(crate) fn forget(&self) {
        self.gets.store(0, Ordering::Relaxed);
        self.scans.store(0, Ordering::Relaxed);
        self.tail_searches.store(0, Ordering::Relaxed);
        self.score.store(0, Ordering::Relaxed);
    }

    /// What a munk saves: a get its read, a scan its sorting and reads. A put saves nothing by it, for it
    /// goes to the log either way.
    pub(crate) fn to_gain(&self) -> u64 {
        PUT_WEIGHT_INVERSE * (self.score.load(Ordering::Relaxed) + self.reads())
    }

    /// What evicting a munk loses: as before, and where nobody reads, the one that is written most stays.
    pub(crate) fn to_lose(&self) -> u64 {
        self.to_gain() + u64::from(self.puts.load(Ordering::Relaxed))
    }

    fn reads(&self) -> u64 {
        let count = |n: &AtomicU32| u64::from(n.load(Ordering::Relaxed));
        count(&self.gets) + 4 * count(&self.scans)
    }
}

/// So many puts weigh as much as one get.
pub(crate) const PUT_WEIGHT_INVERSE: u64 = 64;

impl Chunk {
    /// A live chunk.
    pub(crate) fn new(id: u64, range: KeyRange, state: ChunkState, heat: Heat, ledger: Ledger) -> Arc<Self> {
        Arc::new(Chunk {
            id,
            range,
            state: Published::new(state),
            gate: Mutex::new(GateState { is_retired: false }),
            is_busy: AtomicBool::new(false),
            is_queued: AtomicBool::new(false),
            heat,
            ledger,
            retry_at_us: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            damage: OnceLock::new(),
        })
    }

    /// Bytes of the longer of its bounds.
    pub(crate) fn bound_bytes(&self) -> usize {
        self.range.end.as_ref().map_or(0, Vec::len).max(self.range.start.len())
    }

    /// What it consists of now.
    pub(crate) fn state<'p>(&self, pin: &'p Pin) -> &'p ChunkState {
        self.state.load(pin)
    }

    /// Waits for the gate; the guard is what allows to change the chunk.
    pub(crate) fn gate(&self) -> MutexGuard<'_, GateState> {
        self.gate.lock()
    }

    /// The gate, if nobody has it.
    pub(crate) fn try_gate(&self) -> Option<MutexGuard<'_, GateState>> {
        self.gate.try_lock()
    }

    /// Replaces the state. The guard is this chunk's own.
    pub(crate) fn replace_state(&self, gate: &MutexGuard<'_, GateState>, state: ChunkState) {
        kvilt_base::invariant!("E-2", !gate.is_retired, "chunk {} is retired", self.id);
        let bytes = {
            let pin = pin();
            let munk = self.state(&pin).munk.as_deref();
            munk.map_or(0, |munk| munk.bytes_beside(state.munk.as_deref()))
        };
        self.state.replace_counting(state, bytes);
    }

    /// A background job failed: the next is tried later, and after each failure later still.
    pub(crate) fn back_off(&self, now: Duration) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(6);
        let retry_at = now + Duration::from_millis(1000 << failures);
        self.retry_at_us.store(retry_at.as_micros() as u64, Ordering::Relaxed);
    }

    /// Takes note of what reading its files came to: if they are damaged, it is read-only from now on, and no
    /// background job touches it (**E-10**). Nothing that could tell what was lost is overwritten or removed.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() == ErrorKind::Corrupted {
            let message =
                format!("this key range is read-only, for its files are damaged: {}", error.message());
            let mut damage = Error::new(ErrorKind::Corrupted, message);
            if let Some(file) = error.file() {
                damage = match error.offset() {
                    Some(offset) => damage.at(file, offset),
                    None => damage.in_file(file),
                };
            }
            let _ = self.damage.set(damage);
        }
    }

    /// Whether its files were found damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// Fails if its files were found damaged.
    pub(crate) fn allow_write(&self) -> Result<(), Error> {
        self.damage.get().map_or(Ok(()), |damage| Err(damage.clone()))
    }

    /// A background job succeeded.
    pub(crate) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Whether it is too early to try a background job again.
    pub(crate) fn is_backing_off(&self, now: Duration) -> bool {
        let retry_at = self.retry_at_us.load(Ordering::Relaxed);
        retry_at != 0 && (now.as_micros() as u64) < retry_at
    }

    /// When that is over, if it is.
    pub(crate) fn retry_at(&self, now: Duration) -> Option<Duration> {
        self.is_backing_off(now).then(|| Duration::from_micros(self.retry_at_us.load(Ordering::Relaxed)))
    }

    /// Takes the right to change the structure, if nobody has it.
    pub(crate) fn try_occupy(self: &Arc<Self>) -> Option<Occupied> {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Occupied(Arc::clone(self)))
    }

    /// Whether somebody has that right.
    pub(crate) fn is_occupied(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }
}

/// The right to change a chunk's structure: munk, parts, range. Given back when dropped, also on a panic.
pub(crate) struct Occupied(Arc<Chunk>);

impl std::ops::Deref for Occupied {
    type Target = Arc<Chunk>;
    fn deref(&self) -> &Arc<Chunk> {
        &self.0
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}
