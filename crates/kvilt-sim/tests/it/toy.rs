//! A toy engine — a map and one log — that is right, or wrong in one way of our choice. It tests the tests:
//! the oracles must find nothing in the right one and each flaw in the others.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kvilt_base::{
    CheckReport, Direction, Disk, Durability, Engine, Error, ErrorKind, File, FileName, KeyRange, Level,
    Listed, Operation, Progress, ReadView, Result, Scanned, Stats, Swap, Version, WriteBatch,
    disk::{FileKind, LockFailure},
};
use kvilt_sim::{Subject, Tested, world::World};

/// A toy's log.
const LOG: FileKind = FileKind::new("log");

/// What is wrong with a toy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// Sync does not sync.
    SyncForgotten,
    /// A new log replaces the old one before its name is durable.
    DirectorySyncForgotten,
    /// After a crash, appends go behind the torn tail of the old log.
    AppendBehindTornTail,
    /// A batch is one record an operation.
    BatchInPieces,
    /// Records are believed without a checksum.
    ChecksumIgnored,
    /// Readers can see a batch half applied.
    TornBatch,
    /// Gets are answered from a copy that lags behind.
    StaleGet,
    /// A view shows what is there when it is read, not when it was opened.
    LateView,
    /// A swap compares, and writes later.
    SwapInTwoSteps,
    /// A backward scan forgets a row at the end of a piece.
    BackwardScanSkips,
    /// A delete of a range leaves its first key.
    RangeStartLeft,
    /// Writes go on after a failed sync.
    SyncFailureForgotten,
    /// A log that was replaced stays.
    OldLogsKept,
}

/// Toys of one flaw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toys {
    pub(crate) flaw: Flaw,
    pub(crate) level: Level,
}

impl Subject for Toys {
    fn open(&self, world: &World) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(Toy::open(world.disk(), self.flaw, self.level)?))
    }

    fn level(&self) -> Level {
        self.level
    }

    fn dead_bytes_at_rest(&self) -> u64 {
        0
    }

    fn name(&self) -> String {
        format!("toy {:?} {:?}", self.flaw, self.level)
    }
}

/// Asynchronous toys as an engine under test.
pub(crate) struct ToyEngine {
    /// What is wrong with the store of a seed: it differs for odd ones and others at the most.
    pub(crate) flaw_of: fn(u64) -> Flaw,
}

impl Tested for ToyEngine {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn kinds(&self) -> &'static [FileKind] {
        &[LOG]
    }

    fn configurations(&self) -> u64 {
        2
    }

    fn configuration(&self, number: u64) -> Box<dyn Subject> {
        Box::new(Toys { flaw: (self.flaw_of)(number), level: Level::Async })
    }

    fn tiny(&self, durability: Durability) -> Box<dyn Subject> {
        Box::new(Toys { flaw: (self.flaw_of)(0), level: durability.level() })
    }
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

struct Toy {
    disk: Arc<dyn Disk>,
    flaw: Flaw,
    level: Level,
    state: Arc<Mutex<State>>,
    /// Held until the store is closed.
    lock: Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

struct State {
    rows: Arc<Rows>,
    stale: Arc<Rows>,
    writes: u64,
    log: Arc<dyn File>,
    log_end: u64,
    views: HashMap<u64, Arc<Rows>>,
    views_opened: u64,
    is_closed: bool,
    is_poisoned: bool,
}

/// Closes a view when dropped.
struct Held(Arc<Mutex<State>>, u64);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).views.remove(&self.1);
    }
}

const RECORD_HEAD_BYTES: usize = 12;

impl Toy {
    fn open(disk: Arc<dyn Disk>, flaw: Flaw, level: Level) -> Result<Toy> {
        let lock = disk.lock().map_err(|failure| match failure {
            LockFailure::Held(_) | LockFailure::HeldByReaders => {
                Error::new(ErrorKind::Busy, "the toy is held")
            }
            LockFailure::Io(error) => Error::io("lock", error),
        })?;
        let (number, rows, end) = recover(&*disk, flaw)?;
        let (log, log_end) = if flaw == Flaw::AppendBehindTornTail && number > 0 {
            (disk.open(FileName::Of(LOG, number)).map_err(io)?, end)
        } else {
            // The new log begins with everything, and replaces the old one only when it is durable.
            let log = disk.create(FileName::Of(LOG, number + 1)).map_err(io)?;
            let changes: Vec<Operation> = rows
                .iter()
                .map(|(key, value)| Operation::Put { key: key.clone(), value: value.clone() })
                .collect();
            let record = encode(&changes);
            log.write_all_at(0, &record).map_err(io)?;
            log.sync().map_err(io)?;
            if flaw != Flaw::DirectorySyncForgotten {
                disk.sync_dir().map_err(io)?;
            }
            for old in logs(&*disk)?.into_iter().filter(|old| *old <= number && flaw != Flaw::OldLogsKept) {
                disk.remove(FileName::Of(LOG, old)).map_err(io)?;
            }
            (log, record.len() as u64)
        };
        let rows = Arc::new(rows);
        let state = State {
            stale: Arc::clone(&rows),
            rows,
            writes: 0,
            log,
            log_end,
            views: HashMap::new(),
            views_opened: 0,
            is_closed: false,
            is_poisoned: false,
        };
        Ok(Toy { disk, flaw, level, state: Arc::new(Mutex::new(state)), lock: Mutex::new(Some(lock)) })
    }

    fn state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(|poisoned| {
            // A panic left something half done.
            let mut state = poisoned.into_inner();
            state.is_poisoned = true;
            state
        });
        if state.is_closed { Err(Error::new(ErrorKind::Closed, "the toy is closed")) } else { Ok(state) }
    }

    /// Logs and applies operations as one.
    fn apply(&self, changes: &[Operation]) -> Result<()> {
        self.apply_under(self.state()?, changes)
    }

    /// The same for who holds the state already, to choose the operations by it.
    fn apply_under<'a>(&'a self, mut state: MutexGuard<'a, State>, changes: &[Operation]) -> Result<()> {
        state.check_poison()?;
        if self.flaw == Flaw::BatchInPieces {
            for change in changes {
                state.append(&encode(std::slice::from_ref(change)))?;
            }
        } else {
            state.append(&encode(changes))?;
        }
        if self.level == Level::Sync {
            state.sync(self.flaw)?;
        }
        for (i, change) in changes.iter().enumerate() {
            if self.flaw == Flaw::TornBatch && i == 1 {
                drop(state);
                std::thread::yield_now();
                state = self.state()?;
            }
            apply_to(Arc::make_mut(&mut state.rows), change);
        }
        state.writes += 1;
        if state.writes.is_multiple_of(8) {
            state.stale = Arc::clone(&state.rows);
        }
        Ok(())
    }

    fn rows(&self, at: Option<&ReadView>) -> Result<Arc<Rows>> {
        let state = self.state()?;
        Ok(match at {
            Some(view) if self.flaw != Flaw::LateView => Arc::clone(&state.views[&view.version().to_u64()]),
            None if self.flaw == Flaw::StaleGet => Arc::clone(&state.stale),
            _ => Arc::clone(&state.rows),
        })
    }
}

impl State {
    fn check_poison(&self) -> Result<()> {
        if self.is_poisoned { Err(Error::new(ErrorKind::Poisoned, "a sync failed")) } else { Ok(()) }
    }

    fn sync(&mut self, flaw: Flaw) -> Result<()> {
        if flaw == Flaw::SyncForgotten {
            return Ok(());
        }
        let outcome = self.log.sync().map_err(io);
        self.is_poisoned |= outcome.is_err() && flaw != Flaw::SyncFailureForgotten;
        outcome
    }

    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.log.write_all_at(self.log_end, record).map_err(io)?;
        self.log_end += record.len() as u64;
        Ok(())
    }
}

impl Engine for Toy {
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let rows = self.rows(at)?;
        let value = rows.get(key);
        if let Some(value) = value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.apply(&[Operation::Put { key: key.to_vec(), value: value.to_vec() }])
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.apply(&[Operation::Delete { key: key.to_vec() }])
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        self.apply(&batch.into_operations())
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        let mut state = self.state()?;
        let found = state.rows.get(key).cloned();
        if found.as_deref() != expected {
            return Ok(Swap::Differs(found.map(Into::into)));
        }
        let change = match new {
            Some(value) => Operation::Put { key: key.to_vec(), value: value.to_vec() },
            None => Operation::Delete { key: key.to_vec() },
        };
        if self.flaw == Flaw::SwapInTwoSteps {
            drop(state);
            std::thread::yield_now();
            state = self.state()?;
        }
        state.check_poison()?;
        state.append(&encode(std::slice::from_ref(&change)))?;
        if self.level == Level::Sync {
            state.sync(self.flaw)?;
        }
        apply_to(Arc::make_mut(&mut state.rows), &change);
        Ok(Swap::Done)
    }

    fn delete_range(&self, range: &KeyRange) -> Result<()> {
        // A put between the look and the delete would outlive a delete that came after it.
        let state = self.state()?;
        let skip = usize::from(self.flaw == Flaw::RangeStartLeft);
        let inside = state.rows.keys().filter(|key| range.contains(key)).skip(skip);
        let changes: Vec<Operation> = inside.map(|key| Operation::Delete { key: key.clone() }).collect();
        self.apply_under(state, &changes)
    }

    fn view(&self) -> Result<ReadView> {
        let mut state = self.state()?;
        state.views_opened += 1;
        let number = state.views_opened;
        let rows = Arc::clone(&state.rows);
        state.views.insert(number, rows);
        Ok(ReadView::new(Version::from_u64(number), Box::new(Held(Arc::clone(&self.state), number))))
    }

    fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        into: &mut dyn kvilt_base::Rows,
    ) -> Result<Scanned> {
        let rows = self.rows(Some(view))?;
        let mut inside: Vec<(&Vec<u8>, &Vec<u8>)> =
            rows.iter().filter(|(key, _)| range.contains(key)).collect();
        if direction == Direction::Backward {
            inside.reverse();
        }
        let mut left = range.clone();
        for (key, value) in inside {
            match direction {
                Direction::Forward => left.start = kvilt_base::key::successor(key),
                Direction::Backward => left.end = Some(key.clone()),
            }
            if into.take(key, value).is_continue() {
                continue;
            }
            if direction == Direction::Backward && self.flaw == Flaw::BackwardScanSkips {
                let before = rows.range(..key.clone()).next_back();
                left.end = before.map(|(key, _)| key.clone()).or(left.end);
            }
            return Ok(Scanned::Left(left));
        }
        Ok(Scanned::Ended)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state()?;
        state.check_poison()?;
        state.sync(self.flaw)
    }

    fn checkpoint_to(&self, directory: &Path) -> Result<()> {
        let copy = self.disk.new_directory(directory).map_err(io)?;
        let rows = self.rows(None)?;
        let log = copy.create(FileName::Of(LOG, 1)).map_err(io)?;
        let changes: Vec<Operation> = rows
            .iter()
            .map(|(key, value)| Operation::Put { key: key.clone(), value: value.clone() })
            .collect();
        log.write_all_at(0, &encode(&changes)).map_err(io)?;
        log.sync().map_err(io)?;
        copy.sync_dir().map_err(io)
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for number in logs(&*self.disk).unwrap_or_default() {
            let file = self.disk.open(FileName::Of(LOG, number));
            stats.files_now += 1;
            stats.disk_bytes_now += file.and_then(|file| file.len()).unwrap_or_default();
        }
        stats
    }

    fn check(&self, _progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
        self.state().map(|_| CheckReport::default())
    }

    fn close(&self) -> Result<()> {
        // A panic left something half done, which a close must not pass over.
        let is_half_done = self.state.is_poisoned();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return Ok(());
        }
        state.is_closed = true;
        state.is_poisoned |= is_half_done;
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        state.check_poison()?;
        state.sync(self.flaw)
    }
}

fn io(error: std::io::Error) -> Error {
    Error::io("the toy's disk", error)
}

fn apply_to(rows: &mut Rows, change: &Operation) {
    match change {
        Operation::Put { key, value } => rows.insert(key.clone(), value.clone()),
        Operation::Delete { key } => rows.remove(key),
    };
}

fn logs(disk: &dyn Disk) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> = disk
        .list()
        .map_err(io)?
        .into_iter()
        .filter_map(|listed| match listed {
            Listed::Ours(FileName::Of(LOG, number)) => Some(number),
            _ => None,
        })
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The newest log that has its first record, its rows, and its length; log 0 if there is none.
fn recover(disk: &dyn Disk, flaw: Flaw) -> Result<(u64, Rows, u64)> {
    let numbers = logs(disk)?;
    for &number in numbers.iter().rev() {
        let file = disk.open(FileName::Of(LOG, number)).map_err(io)?;
        let mut bytes = vec![0; file.len().map_err(io)? as usize];
        file.read_exact_at(0, &mut bytes).map_err(io)?;
        let mut rows = Rows::new();
        let mut left = bytes.as_slice();
        let mut records = 0;
        while let Some((changes, rest)) = decode(left, flaw == Flaw::ChecksumIgnored) {
            changes.iter().for_each(|change| apply_to(&mut rows, change));
            left = rest;
            records += 1;
        }
        if records > 0 {
            return Ok((number, rows, bytes.len() as u64));
        }
        disk.remove(FileName::Of(LOG, number)).map_err(io)?;
    }
    Ok((0, Rows::new(), 0))
}

/// Payload length (4), checksum (8), payload: operations as key length, value length + 1 (0: delete), bytes.
fn encode(changes: &[Operation]) -> Vec<u8> {
    let mut payload = vec![0xaa];
    for change in changes {
        payload.extend((change.key().len() as u32).to_le_bytes());
        payload.extend(change.value().map_or(0, |value| value.len() as u32 + 1).to_le_bytes());
        payload.extend(change.key());
        payload.extend(change.value().unwrap_or_default());
    }
    let mut record = (payload.len() as u32).to_le_bytes().to_vec();
    record.extend(checksum(&payload).to_le_bytes());
    record.extend(payload);
    record
}

fn decode(bytes: &[u8], is_credulous: bool) -> Option<(Vec<Operation>, &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let payload = bytes.get(RECORD_HEAD_BYTES..RECORD_HEAD_BYTES.checked_add(length)?)?;
    let expected = u64::from_le_bytes(bytes[4..RECORD_HEAD_BYTES].try_into().unwrap());
    if length == 0 || !is_credulous && checksum(payload) != expected {
        return None;
    }
    let mut changes = Vec::new();
    let mut left = &payload[1..];
    while !left.is_empty() {
        let key_length = u32::from_le_bytes(*left.first_chunk()?) as usize;
        let value_length = u32::from_le_bytes(*left.get(4..)?.first_chunk()?) as usize;
        let (key, rest) = left.get(8..)?.split_at_checked(key_length)?;
        let (value, rest) = rest.split_at_checked(value_length.saturating_sub(1))?;
        let key = key.to_vec();
        changes.push(match value_length {
            0 => Operation::Delete { key },
            _ => Operation::Put { key, value: value.to_vec() },
        });
        left = rest;
    }
    Some((changes, &bytes[RECORD_HEAD_BYTES + length..]))
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
    })
}
