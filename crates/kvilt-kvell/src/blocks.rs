//! `Blocks`: the page cache of a shard, and its reads and writes in flight (KVell, SOSP '19, sections 4.2 and
//! 5.3).
//!
//! A block is what is read and written at once: a page with several slots, or all pages of one long slot.
//! Nothing here waits: a call leaves transfers in the outbox and returns a ticket, and whoever holds the
//! shard submits the one, reaps, and claims the other (see `shard`).
//!
//! What is always true:
//! - K-1: at most one transfer of a block is in flight. Two readers share a read; edits that come while the
//!   block is in flight share the next write.
//! - K-2: an image that a reader gets has every slot whose write has completed. A write changes the bytes of
//!   free slots alone, so a reader may be given an image that is still being written, and a torn page has
//!   every other slot whole.
//! - K-3: a write that failed is taken back, by writing the block as it was before, and only then reported:
//!   what was refused must not come back after the death of the process. If it cannot be taken back the
//!   shard is spoilt, and the store takes no more writes.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use kvilt_base::{
    Error, ErrorKind, File, Result,
    queue::{BLOCK_BYTES, Completed, Transfer, Work, aligned},
};
use parking_lot::Condvar;
use quick_cache::{
    Weighter,
    unsync::{Cache, DefaultLifecycle},
};

use crate::frames::Frames;

/// A longer block, in bytes, is not cached, unless it is less than a 64th of the cache.
const CACHED_BYTES_MAX: usize = 64 << 10;

/// A block of a size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockId(u64);

impl BlockId {
    pub(crate) fn new(class: u8, block: u64) -> Self {
        BlockId(u64::from(class) << 56 | block)
    }
}

/// Where a block lies.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) id: BlockId,
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

/// Bytes of a block that are to change.
pub(crate) struct Edit {
    pub(crate) at: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The right to learn how a transfer ended. It must be claimed or forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// A block that was asked for.
pub(crate) enum Found {
    Now(Bytes),
    Later(Ticket),
}

enum Outcome {
    /// With whom to wake, if somebody sleeps.
    Pending(Option<Arc<Condvar>>),
    Done(Result<Bytes>),
}

struct Flight {
    location: Location,
    kind: FlightKind,
    /// To be told how it ended.
    tickets: Vec<Ticket>,
    /// Edits that came meanwhile.
    next: Vec<(Edit, Ticket)>,
}

enum FlightKind {
    Read,
    /// The image, and what takes it back.
    Write {
        image: Bytes,
        before: Bytes,
    },
    /// A failed write is taken back: the image as it was, and why.
    TakeBack {
        before: Bytes,
        because: Error,
    },
}

/// Mixes the bits of a number: blocks and tickets are numbered by us, so nobody can choose ones that collide.
#[derive(Clone, Copy, Default)]
struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

type Mix = BuildHasherDefault<MixHasher>;

#[derive(Clone)]
struct ByLen;

impl Weighter<BlockId, Bytes> for ByLen {
    fn weight(&self, _: &BlockId, block: &Bytes) -> u64 {
        block.len() as u64
    }
}

/// What the blocks of a shard have done.
#[derive(Clone, Copy, Default)]
pub(crate) struct BlockFigures {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

/// See the module.
pub(crate) struct Blocks {
    cache: Cache<BlockId, Bytes, ByLen, Mix>,
    flights: HashMap<BlockId, Flight, Mix>,
    tickets: HashMap<Ticket, Outcome, Mix>,
    last_ticket: u64,
    outbox: Vec<Transfer>,
    /// Whether a write must survive a power cut when it completes.
    writes_are_durable: bool,
    frames: Frames,
    /// Bytes of images in flight.
    flight_bytes: u64,
    spoilt: Option<Error>,
    figures: BlockFigures,
}

impl Blocks {
    pub(crate) fn new(cache_bytes: u64, writes_are_durable: bool) -> Self {
        Blocks {
            cache: Cache::with(
                blocks_in(cache_bytes),
                cache_bytes,
                ByLen,
                Mix::default(),
                DefaultLifecycle::default(),
            ),
            flights: HashMap::default(),
            tickets: HashMap::default(),
            last_ticket: 0,
            outbox: Vec::new(),
            writes_are_durable,
            frames: Frames::default(),
            flight_bytes: 0,
            spoilt: None,
            figures: BlockFigures::default(),
        }
    }

    /// The block's image, or a ticket for it.
    pub(crate) fn read(&mut self, location: &Location) -> Found {
        // In flight first: what is cached of such a block is older.
        match self.flights.get(&location.id).map(|flight| &flight.kind) {
            Some(FlightKind::Write { image: block, .. } | FlightKind::TakeBack { before: block, .. })
                if block.len() == location.len =>
            {
                self.figures.hits += 1;
                return Found::Now(block.clone());
            }
            Some(_) => {
                let ticket = self.ticket();
                let flight = self.flights.get_mut(&location.id).expect("it was there just now");
                flight.tickets.push(ticket);
                self.figures.misses += 1;
                return Found::Later(ticket);
            }
            None => {}
        }
        if let Some(block) = self.cache.get(&location.id) {
            self.figures.hits += 1;
            return Found::Now(block.clone());
        }
        let ticket = self.ticket();
        self.begin_read(location.clone(), vec![ticket], Vec::new());
        self.figures.misses += 1;
        Found::Later(ticket)
    }

    /// Changes bytes of a block. `is_fresh`: no slot of it counts, so it need not be read.
    pub(crate) fn edit(&mut self, location: &Location, is_fresh: bool, edit: Edit) -> Ticket {
        let ticket = self.ticket();
        if let Some(flight) = self.flights.get_mut(&location.id) {
            flight.next.push((edit, ticket));
            return ticket;
        }
        let cached = self.cache.get(&location.id).cloned();
        match cached {
            Some(before) => self.begin_edits(location.clone(), before, vec![(edit, ticket)]),
            None if is_fresh => {
                let before = zeros(location.len);
                self.begin_edits(location.clone(), before, vec![(edit, ticket)]);
            }
            None => self.begin_read(location.clone(), Vec::new(), vec![(edit, ticket)]),
        }
        ticket
    }

    /// Writes a block that is one slot. The image is aligned, see [`aligned`].
    pub(crate) fn write(&mut self, location: &Location, image: BytesMut) -> Ticket {
        let ticket = self.ticket();
        if let Some(flight) = self.flights.get_mut(&location.id) {
            // Somebody still reads what was there.
            flight.next.push((Edit { at: 0, bytes: image.to_vec() }, ticket));
            return ticket;
        }
        let image = self.seal(image);
        // What was there counts no more, so a page of zeros takes it back: it has no item.
        let before = zeros(BLOCK_BYTES);
        self.begin_write(location.clone(), image, before, vec![ticket]);
        ticket
    }

    /// What is to be submitted.
    pub(crate) fn take_outbox(&mut self) -> Vec<Transfer> {
        std::mem::take(&mut self.outbox)
    }

    pub(crate) fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The transfer in the outbox, if it is the only one, and need not be durable.
    pub(crate) fn take_lone(&mut self) -> Option<Transfer> {
        match &self.outbox[..] {
            [Transfer { work: Work::Read(_) | Work::Write { is_durable: false, .. }, .. }] => {
                self.outbox.pop()
            }
            _ => None,
        }
    }

    /// How a ticket's transfer ended, if it has. The image is the block's after it.
    pub(crate) fn claim(&mut self, ticket: Ticket) -> Option<Result<Bytes>> {
        match self.tickets.get(&ticket) {
            Some(Outcome::Pending(_)) => None,
            Some(Outcome::Done(_)) => match self.tickets.remove(&ticket) {
                Some(Outcome::Done(outcome)) => Some(outcome),
                _ => unreachable!("it was looked at just now"),
            },
            None => unreachable!("a ticket is claimed once"),
        }
    }

    /// Nobody waits for this one any more.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.tickets.remove(&ticket);
    }

    /// What is notified when the ticket can be claimed, or somebody must reap.
    pub(crate) fn sleep(&mut self, ticket: Ticket) -> Arc<Condvar> {
        let condvar = Arc::new(Condvar::new());
        self.tickets.insert(ticket, Outcome::Pending(Some(Arc::clone(&condvar))));
        condvar
    }

    /// Somebody who sleeps, to take over the reaping.
    pub(crate) fn sleeper(&self) -> Option<&Condvar> {
        self.flights
            .values()
            .flat_map(|flight| flight.tickets.iter().chain(flight.next.iter().map(|(_, t)| t)))
            .find_map(|ticket| match self.tickets.get(ticket) {
                Some(Outcome::Pending(Some(condvar))) => Some(&**condvar),
                _ => None,
            })
    }

    /// A transfer has ended.
    pub(crate) fn complete(&mut self, completed: Completed) {
        let id = BlockId(completed.token);
        let flight = self.flights.remove(&id).expect("a transfer that ended was in flight");
        match (flight.kind, completed.work, completed.outcome) {
            (FlightKind::Read, Work::Read(buffer), Ok(())) => {
                self.figures.reads += 1;
                self.figures.read_bytes += buffer.len() as u64;
                let block = self.seal(buffer);
                self.finish(flight.tickets, &Ok(block.clone()));
                self.settle(flight.location, block, flight.next);
            }
            (FlightKind::Read, work, outcome) => {
                if let Work::Read(buffer) = work
                    && buffer.len() == BLOCK_BYTES
                {
                    self.frames.give_back(buffer);
                }
                let error = failed("read a block", &outcome, &flight.location);
                self.fail_read(flight.location, flight.tickets, flight.next, error);
            }
            (FlightKind::Write { image, before }, _, outcome) => {
                self.flight_bytes -= image.len() as u64;
                match outcome {
                    Ok(()) => {
                        self.figures.writes += 1;
                        self.figures.written_bytes += image.len() as u64;
                        self.finish(flight.tickets, &Ok(image.clone()));
                        self.settle(flight.location, image, flight.next);
                    }
                    Err(_) => {
                        let because = failed("write a block", &outcome, &flight.location);
                        // A durable write that failed is a failed sync: nobody knows what the drive has.
                        if self.writes_are_durable && because.kind() != ErrorKind::NoSpace {
                            self.spoil(because.clone());
                        }
                        self.begin_take_back(flight.location, before, because, flight.tickets, flight.next);
                    }
                }
            }
            (FlightKind::TakeBack { before, because }, _, outcome) => {
                let was_full = because.kind() == ErrorKind::NoSpace;
                self.finish(flight.tickets, &Err(because));
                match outcome {
                    Ok(()) if before.len() == flight.location.len => {
                        self.settle(flight.location, before, flight.next);
                    }
                    Ok(()) => {}
                    Err(_) => {
                        let error = failed("take a failed write back", &outcome, &flight.location);
                        let edits = flight.next.into_iter().map(|(_, ticket)| ticket);
                        self.finish(edits, &Err(error.clone()));
                        // On a full disk neither of the two was written.
                        if !was_full || error.kind() != ErrorKind::NoSpace {
                            self.spoil(error);
                        }
                    }
                }
            }
        }
    }

    /// Nothing may be written any more.
    pub(crate) fn spoil(&mut self, why: Error) {
        self.spoilt.get_or_insert(why);
    }

    /// Why nothing may be written any more, if something is wrong.
    pub(crate) fn spoilt(&self) -> Option<&Error> {
        self.spoilt.as_ref()
    }

    pub(crate) fn has_in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Bytes of images in flight.
    pub(crate) fn flight_bytes(&self) -> u64 {
        self.flight_bytes
    }

    /// Bytes of pages that are free.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.frames.spare_bytes()
    }

    /// Bytes of cached blocks.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Lets the cache have this many bytes.
    pub(crate) fn set_cache_bytes(&mut self, bytes: u64) {
        if self.cache.capacity() != bytes {
            self.cache.set_capacity(bytes);
        }
    }

    pub(crate) fn figures(&self) -> BlockFigures {
        self.figures
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.tickets.insert(ticket, Outcome::Pending(None));
        ticket
    }

    fn finish(&mut self, tickets: impl IntoIterator<Item = Ticket>, outcome: &Result<Bytes>) {
        for ticket in tickets {
            // One that was forgotten is not there.
            if let Some(entry) = self.tickets.get_mut(&ticket) {
                let before = std::mem::replace(entry, Outcome::Done(outcome.clone()));
                if let Outcome::Pending(Some(condvar)) = before {
                    condvar.notify_one();
                }
            }
        }
    }

    /// A block's image is known: it is written with the edits that came meanwhile, or else cached.
    fn settle(&mut self, location: Location, block: Bytes, edits: Vec<(Edit, Ticket)>) {
        if !edits.is_empty() {
            self.begin_edits(location, block, edits);
        } else if block.len() <= CACHED_BYTES_MAX.max((self.cache.capacity() / 64) as usize) {
            self.cache.insert(location.id, block);
        } else {
            self.cache.remove(&location.id);
        }
    }

    fn begin_read(&mut self, location: Location, tickets: Vec<Ticket>, next: Vec<(Edit, Ticket)>) {
        let buffer = self.buffer(location.len);
        let flight = Flight { location, kind: FlightKind::Read, tickets, next };
        self.begin(flight, Work::Read(buffer));
    }

    /// A read has failed: whoever began it learns so, and for those who came later it is read once more. It
    /// may have been begun long ago, by a scan that has ended, and reaped only now that somebody waits.
    fn fail_read(
        &mut self,
        location: Location,
        mut tickets: Vec<Ticket>,
        mut next: Vec<(Edit, Ticket)>,
        error: Error,
    ) {
        let all = tickets.iter().chain(next.iter().map(|(_, ticket)| ticket));
        let first = all.min().copied();
        self.finish(first, &Err(error));
        let is_waiting = |ticket: &Ticket| Some(*ticket) != first && self.tickets.contains_key(ticket);
        tickets.retain(is_waiting);
        next.retain(|(_, ticket)| is_waiting(ticket));
        if !tickets.is_empty() || !next.is_empty() {
            self.begin_read(location, tickets, next);
        }
    }

    fn begin_edits(&mut self, location: Location, before: Bytes, edits: Vec<(Edit, Ticket)>) {
        let mut image = self.buffer(location.len);
        image.copy_from_slice(&before);
        let mut tickets = Vec::with_capacity(edits.len());
        for (edit, ticket) in edits {
            image[edit.at..edit.at + edit.bytes.len()].copy_from_slice(&edit.bytes);
            tickets.push(ticket);
        }
        let image = self.seal(image);
        self.begin_write(location, image, before, tickets);
    }

    fn begin_write(&mut self, location: Location, image: Bytes, before: Bytes, tickets: Vec<Ticket>) {
        self.flight_bytes += image.len() as u64;
        let work = Work::Write { bytes: image.clone(), is_durable: self.writes_are_durable };
        let kind = FlightKind::Write { image, before };
        self.begin(Flight { location, kind, tickets, next: Vec::new() }, work);
    }

    fn begin_take_back(
        &mut self,
        location: Location,
        before: Bytes,
        because: Error,
        tickets: Vec<Ticket>,
        next: Vec<(Edit, Ticket)>,
    ) {
        let mut image = aligned(before.len());
        image.copy_from_slice(&before);
        let work = Work::Write { bytes: image.freeze(), is_durable: self.writes_are_durable };
        self.begin(Flight { location, kind: FlightKind::TakeBack { before, because }, tickets, next }, work);
    }

    fn begin(&mut self, flight: Flight, work: Work) {
        let Location { id, offset, .. } = flight.location;
        let file = Arc::clone(&flight.location.file);
        self.outbox.push(Transfer { token: id.0, file, offset, work });
        let before = self.flights.insert(id, flight);
        kvilt_base::invariant!("K-1", before.is_none(), "two transfers of block {id:?}");
    }

    /// An aligned buffer, with anything in it.
    pub(crate) fn buffer(&self, len: usize) -> BytesMut {
        if len == BLOCK_BYTES { self.frames.take() } else { aligned(len) }
    }

    /// The buffer, to be read by many.
    fn seal(&self, buffer: BytesMut) -> Bytes {
        if buffer.len() == BLOCK_BYTES { self.frames.seal(buffer) } else { buffer.freeze() }
    }
}

fn zeros(len: usize) -> Bytes {
    static PAGE: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    if len == BLOCK_BYTES { Bytes::from_static(&PAGE) } else { Bytes::from(vec![0; len]) }
}

fn failed(doing: &str, outcome: &std::io::Result<()>, location: &Location) -> Error {
    let source = match outcome {
        Err(e) => std::io::Error::new(e.kind(), e.to_string()),
        Ok(()) => std::io::Error::other("the queue gave back something else"),
    };
    Error::io(doing, source).at(location.file.name(), location.offset)
}

/// About how many blocks a cache of this size has.
fn blocks_in(bytes: u64) -> usize {
    usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX).max(16)
}

#[cfg(test)]
mod tests {
    use kvilt_base::{Disk as _, FileName};
    use kvilt_format::names::SLAB;
    use kvilt_io::MemoryDisk;

    use super::*;

    fn location(disk: &MemoryDisk) -> Location {
        let file = disk.create(FileName::Of(SLAB, 1)).unwrap();
        Location { id: BlockId::new(1, 7), file, offset: 0, len: BLOCK_BYTES }
    }

    fn done(transfer: Transfer) -> Completed {
        transfer.complete(Ok(()))
    }

    /// K-1, and what comes of edits that come meanwhile: one write for all of them, with all bytes.
    #[test]
    fn of_a_block_one_transfer_is_in_flight_and_what_comes_meanwhile_shares_the_next() {
        let mut blocks = Blocks::new(1 << 20, false);
        let location = location(&MemoryDisk::new(1));
        let edit = |at: usize, byte: u8| Edit { at, bytes: vec![byte; 2] };
        let Found::Later(read) = blocks.read(&location) else { panic!("nothing is cached") };
        let Found::Later(again) = blocks.read(&location) else { panic!("nothing has arrived") };
        let edits = [blocks.edit(&location, false, edit(0, 1)), blocks.edit(&location, false, edit(2, 2))];
        let mut outbox = blocks.take_outbox();
        assert_eq!(outbox.len(), 1);
        blocks.complete(done(outbox.pop().unwrap()));
        for ticket in [read, again] {
            assert_eq!(blocks.claim(ticket).unwrap().unwrap()[..], [0; BLOCK_BYTES]);
        }
        let mut outbox = blocks.take_outbox();
        assert_eq!(outbox.len(), 1, "both edits share a write");
        let late = blocks.edit(&location, false, edit(1, 3));
        assert!(blocks.take_outbox().is_empty(), "K-1");
        let Found::Now(seen) = blocks.read(&location) else { panic!("the image that is written is there") };
        assert_eq!(seen[..4], [1, 1, 2, 2]);
        blocks.complete(done(outbox.pop().unwrap()));
        assert!(edits.into_iter().all(|ticket| blocks.claim(ticket).unwrap().is_ok()));
        assert!(blocks.claim(late).is_none());
        let mut outbox = blocks.take_outbox();
        assert_eq!(outbox.pop().unwrap().work.bytes()[..4], [1, 3, 3, 2]);
    }

    /// A scan reads ahead and ends at the first block that cannot be read, so nobody reaps the others.
    #[test]
    fn a_failed_read_is_told_to_who_began_it_and_tried_again_for_who_came_later() {
        let failed = |transfer: Transfer| transfer.complete(Err(std::io::Error::other("the drive")));
        let mut blocks = Blocks::new(1 << 20, false);
        let location = location(&MemoryDisk::new(1));
        let Found::Later(ahead) = blocks.read(&location) else { panic!("nothing is cached") };
        blocks.forget(ahead);
        let Found::Later(read) = blocks.read(&location) else { panic!("nothing has arrived") };
        let edit = blocks.edit(&location, false, Edit { at: 0, bytes: vec![1] });
        let first = blocks.take_outbox().pop().unwrap();
        blocks.complete(failed(first));
        assert!(blocks.claim(read).is_none() && blocks.claim(edit).is_none());
        let second = blocks.take_outbox().pop().unwrap();
        blocks.complete(failed(second));
        assert!(blocks.claim(read).unwrap().is_err());
        let third = blocks.take_outbox().pop().unwrap();
        blocks.complete(done(third));
        let write = blocks.take_outbox().pop().unwrap();
        assert_eq!(write.work.bytes()[..1], [1]);
        blocks.complete(done(write));
        assert!(blocks.claim(edit).unwrap().is_ok());
        // Where nobody waits nothing is read again.
        let other = Location { id: BlockId::new(1, 8), ..location };
        let Found::Later(alone) = blocks.read(&other) else { panic!("nothing is cached") };
        let fourth = blocks.take_outbox().pop().unwrap();
        blocks.complete(failed(fourth));
        assert!(blocks.claim(alone).unwrap().is_err());
        assert!(!blocks.has_outbox() && !blocks.has_in_flight());
    }

    /// K-3: nothing is reported before the block is as it was, and what comes meanwhile is built on that.
    #[test]
    fn a_failed_write_is_reported_when_it_has_been_taken_back() {
        let mut blocks = Blocks::new(1 << 20, false);
        let location = location(&MemoryDisk::new(1));
        let ticket = blocks.edit(&location, true, Edit { at: 0, bytes: vec![1] });
        let transfer = blocks.take_outbox().pop().unwrap();
        let next = blocks.edit(&location, false, Edit { at: 1, bytes: vec![2] });
        blocks.complete(transfer.complete(Err(std::io::Error::other("the drive"))));
        assert!(blocks.claim(ticket).is_none());
        let take_back = blocks.take_outbox().pop().unwrap();
        assert_eq!(take_back.work.bytes()[..2], [0, 0]);
        blocks.complete(done(take_back));
        assert!(blocks.claim(ticket).unwrap().is_err());
        let last = blocks.take_outbox().pop().unwrap();
        assert_eq!(last.work.bytes()[..2], [0, 2]);
        blocks.complete(done(last));
        assert_eq!(blocks.claim(next).unwrap().unwrap()[..2], [0, 2]);
        assert!(blocks.spoilt().is_none());
    }
}
