//! Actors: real threads that write, read and scan one store at once, and record what they saw as a
//! [`History`]. They share nothing but the store and the clock, so recording adds no order that the store
//! does not make itself.

use std::{sync::Mutex, thread, time::Duration};

use kvilt_base::{Clock, Engine, KeyRange, ReadView, Swap, WriteBatch};

use crate::{
    dice::Dice,
    history::{Get, History, Interval, Moment, Scan, Write},
    reading::{Manner, any_manner, read_both_ends, read_rows},
    report::{Complaint, refused},
};

/// Who acts, on what, for how long.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Threads.
    pub threads: usize,
    /// Keys, few enough that threads meet.
    pub keys: u32,
    /// Longest value, in bytes; at least 8.
    pub value_bytes_max: usize,
    /// Operations a thread does at most.
    pub operations: u64,
    /// Time after which no thread begins another operation.
    pub time: Duration,
    /// Chance.
    pub seed: u64,
    /// The power may go meanwhile: a refused operation ends its thread, and is no fault; a refused write may
    /// have happened or not.
    pub may_be_refused: bool,
}

/// What a thread mostly does: weights of put, delete, batch, swap, range delete, get, pair of gets, scan, and
/// look at a view held for long, sync.
const ROLES: [[u32; 10]; 4] = [
    [600, 60, 100, 60, 10, 100, 40, 30, 0, 8],
    [60, 0, 600, 20, 0, 80, 160, 80, 0, 8],
    [40, 10, 20, 40, 0, 500, 300, 60, 30, 4],
    [40, 10, 40, 10, 0, 40, 60, 500, 300, 1],
];

/// A range of so many keys is read in pieces of any size; in a longer one, pieces grow.
const SHORT_KEYS: usize = 48;
/// A long range is read from both ends in so many pieces.
const LONG_PIECES: usize = 32;
/// One of three scans is of all keys, or with many keys one for each so many: it costs as much as hundreds of
/// other operations.
const WHOLE_KEYS: usize = 64;

/// Lets the cast act on an engine. Returns what happened, or the first thing that is wrong by itself: a
/// failed operation, a value that is not what somebody wrote, a view that changed.
pub fn perform(engine: &dyn Engine, cast: &Cast, clock: &dyn Clock) -> Result<History, Complaint> {
    let begun = now(clock);
    let mut history = History::default();
    let numbers = Numbers { thread: 0, next: 0 };
    let mut stage = Actor::new(engine, cast, clock, 0, numbers);
    match stage.delete_range(0, cast.keys) {
        Err(Complaint::Refused(..)) if cast.may_be_refused => {}
        outcome => outcome?,
    }
    history.absorb(std::mem::take(&mut stage.history));

    let recorded = Mutex::new(Ok(history));
    let until = begun + cast.time.as_nanos() as Moment;
    thread::scope(|scope| {
        for thread in 1..=cast.threads {
            let recorded = &recorded;
            scope.spawn(move || {
                let numbers = Numbers { thread: thread as u64, next: 0 };
                let mut actor = Actor::new(engine, cast, clock, thread, numbers);
                let outcome = match actor.act(until) {
                    Err(Complaint::Refused(..)) if cast.may_be_refused => Ok(()),
                    outcome => outcome,
                };
                let mut recorded = recorded.lock().expect("no thread panics while it holds this");
                match (outcome, recorded.as_mut()) {
                    (Ok(()), Ok(history)) => history.absorb(actor.history),
                    (Err(complaint), Ok(_)) => *recorded = Err(complaint),
                    (_, Err(_)) => {}
                }
            });
        }
    });
    recorded.into_inner().expect("no thread panicked")
}

/// Every row of a store that a cast acted on, and the number of the write that made it.
pub fn rows_of(engine: &dyn Engine, cast: &Cast) -> Result<Vec<(u32, u64)>, Complaint> {
    let clock = kvilt_io::ManualClock::new();
    let mut reader = Actor::new(engine, cast, &*clock, 0, Numbers { thread: 0, next: 0 });
    let view = engine.view().map_err(refused("view"))?;
    reader.rows(&view, 0, cast.keys)
}

/// Gives every write of a thread a number that no other write has.
struct Numbers {
    thread: u64,
    next: u64,
}

impl Numbers {
    fn take(&mut self) -> u64 {
        self.next += 1;
        (self.thread << 40) | self.next
    }
}

struct Actor<'a> {
    engine: &'a dyn Engine,
    cast: &'a Cast,
    clock: &'a dyn Clock,
    dice: Dice,
    role: [u32; 10],
    numbers: Numbers,
    history: History,
    /// A view held over many operations, and what it showed first.
    held: Option<(ReadView, Vec<(u32, u64)>)>,
}

impl<'a> Actor<'a> {
    fn new(
        engine: &'a dyn Engine,
        cast: &'a Cast,
        clock: &'a dyn Clock,
        thread: usize,
        numbers: Numbers,
    ) -> Self {
        let dice = Dice::new(cast.seed ^ (thread as u64) << 32);
        let role = ROLES[thread % ROLES.len()];
        Actor { engine, cast, clock, dice, role, numbers, history: History::default(), held: None }
    }

    fn act(&mut self, until: Moment) -> Result<(), Complaint> {
        for _ in 0..self.cast.operations {
            if now(self.clock) >= until {
                break;
            }
            let key = self.key();
            match self.dice.weighted(&self.role) {
                0 => self.put(key)?,
                1 => self.delete(key)?,
                2 => self.batch()?,
                3 => self.swap(key)?,
                4 => self.delete_range(key, (key + 4).min(self.cast.keys))?,
                5 => self.get(key)?,
                6 => {
                    self.get(key)?;
                    let other = self.key();
                    self.get(other)?;
                }
                7 => self.scan()?,
                8 => self.look_at_held_view()?,
                _ => {
                    let ((), when) = self.timed(|engine| engine.sync())?;
                    self.history.syncs.push(when);
                }
            }
        }
        Ok(())
    }

    fn key(&mut self) -> u32 {
        // Half of all operations meet on eight keys spread over the range.
        let keys = self.cast.keys as usize;
        let any = self.dice.below(keys);
        if self.dice.chance(1, 2) { (any % 8 * keys / 8) as u32 } else { any as u32 }
    }

    /// Calls the engine and notes when.
    fn timed<T>(
        &self,
        call: impl FnOnce(&dyn Engine) -> kvilt_base::Result<T>,
    ) -> Result<(T, Interval), Complaint> {
        let from = now(self.clock);
        let outcome = call(self.engine);
        let to = now(self.clock);
        outcome.map(|result| (result, Interval { from, to })).map_err(refused("an operation"))
    }

    /// Calls the engine for a write and notes it; a refused one may take effect at any time, or never.
    fn write(
        &mut self,
        number: u64,
        keys: Vec<(u32, bool)>,
        call: impl FnOnce(&dyn Engine) -> kvilt_base::Result<()>,
    ) -> Result<(), Complaint> {
        let from = now(self.clock);
        match self.timed(call) {
            Ok(((), when)) => {
                self.note_write(number, keys, when, None);
                Ok(())
            }
            Err(complaint) => {
                self.note_write(number, keys, Interval { from, to: Moment::MAX }, None);
                Err(complaint)
            }
        }
    }

    fn note_write(&mut self, number: u64, keys: Vec<(u32, bool)>, when: Interval, swapped: Option<u64>) {
        self.history.writes.push(Write { number, when, keys, swapped });
    }

    fn put(&mut self, key: u32) -> Result<(), Complaint> {
        let number = self.numbers.take();
        let value = value_bytes(number, self.cast.value_bytes_max);
        self.write(number, vec![(key, false)], |engine| engine.put(&key_bytes(key), &value))
    }

    fn delete(&mut self, key: u32) -> Result<(), Complaint> {
        let number = self.numbers.take();
        self.write(number, vec![(key, true)], |engine| engine.delete(&key_bytes(key)))
    }

    fn delete_range(&mut self, first: u32, end: u32) -> Result<(), Complaint> {
        let number = self.numbers.take();
        let keys = (first..end).map(|key| (key, true)).collect();
        self.write(number, keys, |engine| engine.delete_range(&range_of(first, end)))
    }

    fn batch(&mut self) -> Result<(), Complaint> {
        let number = self.numbers.take();
        let mut keys: Vec<(u32, bool)> =
            (0..self.dice.between(2, 8)).map(|_| (self.key(), self.dice.chance(1, 12))).collect();
        keys.sort_unstable();
        keys.dedup_by_key(|(key, _)| *key);
        let mut batch = WriteBatch::new();
        for &(key, is_delete) in &keys {
            if is_delete {
                batch.delete(key_bytes(key));
            } else {
                batch.put(key_bytes(key), value_bytes(number, self.cast.value_bytes_max));
            }
        }
        self.write(number, keys, |engine| engine.write(batch))
    }

    /// Replaces what a get just saw, if it is still there.
    fn swap(&mut self, key: u32) -> Result<(), Complaint> {
        let (found, when) = self.timed(|engine| engine.get(&key_bytes(key), None))?;
        let seen = self.decoded(found.as_deref())?;
        self.history.gets.push(Get { key, seen, when });
        let number = self.numbers.take();
        let value = value_bytes(number, self.cast.value_bytes_max);
        let (expected, from) = (found.as_deref(), now(self.clock));
        let outcome = self.timed(|engine| engine.compare_and_swap(&key_bytes(key), expected, Some(&value)));
        if outcome.is_err() {
            self.note_write(number, vec![(key, false)], Interval { from, to: Moment::MAX }, None);
        }
        let (swap, when) = outcome?;
        match swap {
            Swap::Done => {
                // What it replaced, it also read.
                self.history.gets.push(Get { key, seen, when });
                self.note_write(number, vec![(key, false)], when, seen);
            }
            Swap::Differs(other) => {
                let other = self.decoded(other.as_deref())?;
                if other == seen {
                    return Err(
                        format!("a swap on key {key} differs from {seen:?}, which it says it found").into()
                    );
                }
                self.history.gets.push(Get { key, seen: other, when });
            }
        }
        Ok(())
    }

    fn get(&mut self, key: u32) -> Result<(), Complaint> {
        let (found, when) = self.timed(|engine| engine.get(&key_bytes(key), None))?;
        let seen = self.decoded(found.as_deref())?;
        self.history.gets.push(Get { key, seen, when });
        Ok(())
    }

    fn scan(&mut self) -> Result<(), Complaint> {
        let (view, when) = self.timed(|engine| engine.view())?;
        let (first, end) = if self.is_whole() {
            (0, self.cast.keys)
        } else {
            let first = self.key();
            (first, (first + self.dice.between(1, 40) as u32).min(self.cast.keys))
        };
        let rows = self.rows(&view, first, end)?;
        // The same view again, in another manner: the same rows, whatever happened meanwhile.
        if self.dice.chance(1, 3) && self.rows(&view, first, end)? != rows {
            return Err(format!("view {} of {first}..{end} changed between two scans", view.version()).into());
        }
        if self.held.is_none() && (first, end) == (0, self.cast.keys) {
            self.held = Some((view, rows.clone()));
        }
        self.history.scans.push(Scan { first, end, rows, when });
        Ok(())
    }

    /// A view held for long still shows what it showed; now and then another takes its place.
    fn look_at_held_view(&mut self) -> Result<(), Complaint> {
        let Some((view, rows)) = self.held.take() else { return self.scan() };
        if self.is_whole() {
            let now = self.rows(&view, 0, self.cast.keys)?;
            if now != rows {
                return Err(format!(
                    "held view {} changed: {:?}",
                    view.version(),
                    first_difference(&rows, &now)
                )
                .into());
            }
        } else {
            let key = self.key();
            let found = self.engine.get(&key_bytes(key), Some(&view)).map_err(refused("get at a view"))?;
            let seen = self.decoded(found.as_deref())?;
            let scanned = rows.iter().find(|(k, _)| *k == key).map(|(_, number)| *number);
            if seen != scanned {
                return Err(format!(
                    "at view {} a get of key {key} saw {seen:?}, a scan {scanned:?}",
                    view.version()
                )
                .into());
            }
        }
        if !self.dice.chance(1, 8) {
            self.held = Some((view, rows));
        }
        Ok(())
    }

    /// Whether to read all keys this time.
    fn is_whole(&mut self) -> bool {
        self.dice.chance(1, (self.cast.keys as usize / WHOLE_KEYS).max(3))
    }

    fn rows(&mut self, view: &ReadView, first: u32, end: u32) -> Result<Vec<(u32, u64)>, Complaint> {
        let (range, keys) = (range_of(first, end), (end - first) as usize);
        let rows = if self.dice.chance(1, 4) {
            let turns = self.dice.number();
            read_both_ends(self.engine, view, &range, turns, (keys / LONG_PIECES).max(3))?
        } else {
            let manner = Manner { grows: keys > SHORT_KEYS, ..any_manner(&mut self.dice) };
            let mut rows = read_rows(self.engine, view, &range, manner)?;
            if manner.direction == kvilt_base::Direction::Backward {
                rows.reverse();
            }
            rows
        };
        rows.into_iter()
            .map(|(key, value)| {
                let key = key_of(&key).ok_or_else(|| format!("a scan showed a strange key {key:?}"))?;
                let number = self.decoded(Some(&value))?.ok_or("a row without a value")?;
                Ok((key, number))
            })
            .collect()
    }

    /// The number in a value, which must be exactly what the writer of that number wrote.
    fn decoded(&self, value: Option<&[u8]>) -> Result<Option<u64>, Complaint> {
        let Some(value) = value else { return Ok(None) };
        let number = value.first_chunk::<8>().map(|n| u64::from_be_bytes(*n));
        match number {
            Some(number) if is_value_of(number, self.cast.value_bytes_max, value) => Ok(Some(number)),
            _ => Err(format!(
                "a value that nobody wrote: {} B, {:?}",
                value.len(),
                &value[..value.len().min(16)]
            )
            .into()),
        }
    }
}

fn first_difference(a: &[(u32, u64)], b: &[(u32, u64)]) -> Option<((u32, u64), (u32, u64))> {
    a.iter().zip(b).find(|(x, y)| x != y).map(|(x, y)| (*x, *y))
}

fn now(clock: &dyn Clock) -> Moment {
    clock.now().as_nanos() as Moment
}

fn key_bytes(key: u32) -> Vec<u8> {
    format!("history/{key:06}").into_bytes()
}

fn key_of(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes.strip_prefix(b"history/")?).ok()?.parse().ok()
}

fn range_of(first: u32, end: u32) -> KeyRange {
    KeyRange { start: key_bytes(first), end: Some(key_bytes(end)) }
}

/// The number, repeated to a length that follows from it.
fn value_bytes(number: u64, bytes_max: usize) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(value_len(number, bytes_max)).collect()
}

fn value_len(number: u64, bytes_max: usize) -> usize {
    let spread = crate::dice::mix(number) as usize;
    8 + spread % (bytes_max.max(8) - 7)
}

/// Whether these are [`value_bytes`]. Every row of every scan is asked for, so nothing is allocated.
fn is_value_of(number: u64, bytes_max: usize, bytes: &[u8]) -> bool {
    let pattern = number.to_be_bytes();
    bytes.len() == value_len(number, bytes_max)
        && bytes.chunks(pattern.len()).all(|chunk| *chunk == pattern[..chunk.len()])
}
