//! `MemoryQueue`: transfers in flight on a disk in memory, executed when somebody reaps, in an order that the
//! seed chooses.
//!
//! What is always true: a transfer is executed whole, within one call of the world. Until then the world has
//! a `Flight` for it, of which an image may show any sectors. A write that a crash kept from being executed
//! stays one.
//!
//! Lock order: what a queue has in flight, then the world.

use std::{fmt, io, mem, ops::Range, sync::Arc};

use bytes::Bytes;
use kvilt_base::{
    Completed, Means, MeansKind, Queue, Transfer, Work,
    queue::{foreign, found},
};
use parking_lot::Mutex;

use super::{
    State, Turn, World, crash,
    file::{MemoryFile, room_for},
    inode::Inode,
};
use crate::SeededRng;

/// See the module.
pub(super) struct MemoryQueue {
    world: Arc<World>,
    depth: usize,
    rng: SeededRng,
    submitted: Mutex<Submitted>,
}

/// What was submitted and not reaped.
#[derive(Default)]
struct Submitted {
    /// Oldest first.
    in_flight: Vec<Begun>,
    /// Those that could not be begun.
    refused: Vec<Completed>,
}

struct Begun {
    flight: u64,
    inode: Arc<Inode>,
    transfer: Transfer,
}

/// A transfer that was submitted and not executed.
struct Flight {
    number: u64,
    inode: Arc<Inode>,
    range: Range<usize>,
    /// What it writes; none if it reads.
    bytes: Option<Bytes>,
    /// A crash has come first.
    is_lost: bool,
}

/// A write that was submitted and not executed.
#[derive(Clone)]
pub(super) struct FlyingWrite {
    pub(super) inode: Arc<Inode>,
    pub(super) offset: usize,
    pub(super) bytes: Bytes,
}

/// All flights of a world.
#[derive(Default)]
pub(super) struct Flights {
    queues: u64,
    begun: u64,
    /// Oldest first.
    list: Vec<Flight>,
}

impl Flights {
    /// Panics if it overlaps another and one of the two is a write: who submits must not do that.
    fn begin(&mut self, inode: &Arc<Inode>, transfer: &Transfer) -> u64 {
        let start = usize::try_from(transfer.offset).expect("it was checked");
        let range = start..start + transfer.work.len();
        let bytes = match &transfer.work {
            Work::Read(_) => None,
            Work::Write { bytes, .. } => Some(bytes.clone()),
        };
        for other in self.list.iter().filter(|other| !other.is_lost && Arc::ptr_eq(&other.inode, inode)) {
            let overlaps = other.range.start < range.end && range.start < other.range.end;
            assert!(
                !overlaps || (other.bytes.is_none() && bytes.is_none()),
                "{}: bytes {range:?} were submitted while {:?} are in flight, and one of the two is a write",
                transfer.file.name(),
                other.range,
            );
        }
        let number = self.begun;
        self.begun += 1;
        self.list.push(Flight { number, inode: inode.clone(), range, bytes, is_lost: false });
        number
    }

    fn end(&mut self, number: u64) {
        self.list.retain(|flight| flight.number != number);
    }

    /// A crash comes first: a write may be there in part.
    fn lose(&mut self, number: u64) {
        self.list
            .iter_mut()
            .filter(|flight| flight.number == number)
            .for_each(|flight| flight.is_lost = true);
    }

    /// The crash has not happened after all, and what it kept from being executed never was submitted.
    pub(super) fn forget_lost(&mut self) {
        self.list.retain(|flight| !flight.is_lost);
    }

    /// The writes among them, oldest first.
    pub(super) fn writes(&self) -> Vec<FlyingWrite> {
        let write = |flight: &Flight| {
            let bytes = flight.bytes.clone().filter(|bytes| !bytes.is_empty())?;
            Some(FlyingWrite { inode: flight.inode.clone(), offset: flight.range.start, bytes })
        };
        self.list.iter().filter_map(write).collect()
    }
}

impl MemoryQueue {
    pub(super) fn new(world: &Arc<World>, depth: usize) -> io::Result<Self> {
        let mut state = world.state.lock();
        state.check()?;
        state.flights.queues += 1;
        let rng = SeededRng::new(world.seed ^ (state.flights.queues << 48));
        Ok(MemoryQueue { world: world.clone(), depth: depth.max(1), rng, submitted: Mutex::default() })
    }

    /// The inode of a transfer that can be begun.
    fn inode_of(&self, transfer: &Transfer) -> io::Result<Arc<Inode>> {
        let file = found::<MemoryFile>(&*transfer.file).filter(|file| Arc::ptr_eq(&file.world, &self.world));
        let inode = file.ok_or_else(|| foreign(transfer.file.name()))?.inode.clone();
        transfer.check()?;
        Ok(inode)
    }

    fn execute(&self, begun: Begun) -> Completed {
        let Begun { flight, inode, mut transfer } = begun;
        let offset = usize::try_from(transfer.offset).expect("it was checked");
        let outcome = match &mut transfer.work {
            Work::Read(buffer) => {
                let mut state = self.world.state.lock();
                state.flights.end(flight);
                state.check().and_then(|()| match inode.read(transfer.offset, buffer) {
                    read if read < buffer.len() => Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok(()),
                })
            }
            Work::Write { bytes, is_durable } => self.write(flight, (&inode, offset), bytes, *is_durable),
        };
        transfer.complete(outcome)
    }

    fn write(
        &self,
        flight: u64,
        (inode, offset): (&Inode, usize),
        bytes: &[u8],
        is_durable: bool,
    ) -> io::Result<()> {
        let written = self.world.change(|state, turn| {
            if turn == Turn::Last {
                return Ok(());
            }
            state.flights.end(flight);
            let room = room_for(state, inode, offset as u64, bytes.len())?;
            let is_failing = is_durable && state.fails_sync();
            if room < bytes.len() || is_failing || !is_durable {
                inode.write(offset, &bytes[..room]);
            } else {
                inode.write_durably(offset, bytes);
            }
            if is_failing {
                inode.lose_unsynced();
                return Err(rustix::io::Errno::IO.into());
            }
            if room < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        if self.world.state.lock().is_crashed {
            self.world.state.lock().flights.lose(flight);
        }
        written
    }
}

impl Queue for MemoryQueue {
    fn submit(&self, transfers: Vec<Transfer>) {
        let mut submitted = self.submitted.lock();
        let mut able = Vec::with_capacity(transfers.len());
        for transfer in transfers {
            match self.inode_of(&transfer) {
                Ok(inode) => able.push((inode, transfer)),
                Err(error) => submitted.refused.push(transfer.complete(Err(error))),
            }
        }
        let mut state = self.world.state.lock();
        let turn = match able.iter().any(|(_, transfer)| transfer.work.is_write()) {
            true => state.turn(),
            false => state.check().map(|()| Turn::Whole),
        };
        for (inode, transfer) in able {
            if turn.is_err() {
                submitted.refused.push(transfer.complete(Err(crash())));
                continue;
            }
            let flight = state.flights.begin(&inode, &transfer);
            submitted.in_flight.push(Begun { flight, inode, transfer });
        }
    }

    fn reap(&self, done: &mut Vec<Completed>) {
        let mut submitted = self.submitted.lock();
        done.append(&mut submitted.refused);
        let within_depth = submitted.in_flight.len().min(self.depth);
        if within_depth == 0 {
            return;
        }
        for left in (0..self.rng.below(within_depth as u64) + 1).map(|n| within_depth as u64 - n) {
            let begun = submitted.in_flight.remove(self.rng.below(left) as usize);
            done.push(self.execute(begun));
        }
        if self.world.state.lock().is_crashed {
            let lost = mem::take(&mut submitted.in_flight);
            done.extend(lost.into_iter().map(|begun| self.execute(begun)));
        }
    }

    fn means(&self) -> Means {
        Means { kind: MeansKind::Memory, is_direct: false }
    }
}

impl Drop for MemoryQueue {
    fn drop(&mut self) {
        for begun in mem::take(&mut self.submitted.get_mut().in_flight) {
            self.execute(begun);
        }
    }
}

impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryQueue({} in flight)", self.submitted.lock().in_flight.len())
    }
}

impl State {
    /// Whether a sync, within the changing call at hand, fails by plan.
    pub(super) fn fails_sync(&mut self) -> bool {
        let op = self.ops - 1;
        self.sync_failure_at.take_if(|at| *at <= op).is_some()
    }
}
