//! Reads all slabs of a shard: the index of what counts, and what may count behind the cut.

use std::{collections::HashMap, collections::VecDeque, io, sync::Arc};

use bytes::BytesMut;
use kvilt_base::{
    Disk, Error, File, KeyRange, Result, Version,
    queue::{Queue, Transfer, Work, aligned},
};
use kvilt_format::{
    FileIdentity,
    slab::{Class, Content, Decoded, Item, PAGE_BYTES, Root, check_slab_header, slab_name},
};

use crate::{
    index::{BulkLoad, Index, Twice},
    place::Place,
    slab::Slab,
};

/// What is read at once, in bytes, unless a block is longer.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that are read at the same time.
pub(crate) const PIECES_IN_FLIGHT: usize = 4;

/// An item behind the cut.
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) version: Version,
    pub(crate) batch_len: u32,
    pub(crate) content: Owned,
}

impl Found {
    /// The item at a place.
    pub(crate) fn of(place: Place, item: &Item<'_>) -> Self {
        let content = match item.content {
            Content::Value { key, .. } => Owned::Value { key: key.to_vec() },
            Content::Tombstone { place } => Owned::Tombstone { place: Place::from_u64(place) },
            Content::RangeDelete { start, end } => {
                Owned::RangeDelete { range: KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) } }
            }
        };
        Found { place, version: item.version, batch_len: item.batch_len, content }
    }
}

/// What it says, as far as an index needs it.
pub(crate) enum Owned {
    Value { key: Vec<u8> },
    Tombstone { place: Place },
    RangeDelete { range: KeyRange },
}

/// What the slabs of a shard have.
#[derive(Default)]
pub(crate) struct Scanned {
    pub(crate) index: Index,
    pub(crate) behind: Vec<Found>,
    /// Keys of items that a tombstone behind the cut names.
    pub(crate) named: HashMap<Place, Vec<u8>>,
    pub(crate) version_max: Version,
}

/// Reads the whole pages that a file has from `offset` on, as many as the buffer takes; says how many bytes.
pub(crate) fn read_pages(file: &dyn File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let there = usize::try_from(file.len()?.saturating_sub(offset)).unwrap_or(usize::MAX);
    let len = there.min(buffer.len()) / PAGE_BYTES * PAGE_BYTES;
    file.read_exact_at(offset, &mut buffer[..len])?;
    Ok(len)
}

/// Opens the slab of a class, whose last used slot is this; none if there is no file, and none is needed.
///
/// Errors: `Corrupted` if it is missing, too short, or not this one; `Io`.
pub(crate) fn open_slab(
    disk: &dyn Disk,
    root: &Root,
    shard: u32,
    class: Class,
    last_used: Option<u64>,
) -> Result<Option<Slab>> {
    let name = slab_name(shard, class);
    let failed = |e| Error::io("open a slab", e).in_file(name);
    let file = match disk.open(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return match last_used {
                None => Ok(None),
                Some(_) => Err(Error::corrupted(name, 0, "the file is missing, and rows are in it")),
            };
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(Error::corrupted(name, 0, e.to_string()));
        }
        opened => opened.map_err(failed)?,
    };
    let id = FileIdentity { store_id: root.store_id, number: name.number() };
    let mut page = aligned(PAGE_BYTES);
    let len = read_pages(&*file, 0, &mut page).map_err(failed)?;
    match check_slab_header(&page[..len], id) {
        Ok(()) => {}
        // Its making was cut short.
        Err(_) if last_used.is_none() => return Ok(None),
        Err(error) => return Err(error),
    }
    let file_len = file.len().map_err(failed)?;
    let mut slab = Slab::new(class, file);
    slab.has_grown(file_len);
    if let Some(last) = last_used.filter(|last| *last >= slab.slots()) {
        let message = format!("the file has {file_len} bytes, and a row in slot {last}");
        return Err(Error::corrupted(name, file_len, message));
    }
    Ok(Some(slab))
}

/// Reads all slabs. With `has_behind`, items of the last run behind the cut are gathered. `run_bytes`: memory
/// for entries that are not in the index yet.
///
/// Errors: `Corrupted` if a used slot has no item; `Io`.
pub(crate) fn scan(
    queue: &dyn Queue,
    root: &Root,
    shard: u32,
    slabs: &[Option<Slab>],
    has_behind: bool,
    run_bytes: usize,
) -> Result<Scanned> {
    let mut scanned = Scanned::default();
    let mut index = BulkLoad::new(run_bytes);
    // Tombstones come first: their class is the first one.
    for slab in slabs.iter().flatten() {
        let id = FileIdentity { store_id: root.store_id, number: slab_name(shard, slab.class()).number() };
        let (scanned, index) = (&mut scanned, &mut index);
        Reader { root, shard, slab, id, has_behind, scanned, index }.read(queue)?;
    }
    scanned.index = index.finish().map_err(|twice| has_key_twice(shard, &twice))?;
    Ok(scanned)
}

fn has_key_twice(shard: u32, Twice(one, other): &Twice) -> Error {
    let location = |place: &Place| {
        let class = place.size_class();
        (slab_name(shard, class), class.slot_offset(place.slot()))
    };
    let ((file, offset), (other_file, other_offset)) = (location(one), location(other));
    let message =
        format!("two slots that are used have one key, the other one in {other_file} at {other_offset}");
    Error::corrupted(file, offset, message)
}

/// Whether an item is one that was written behind the cut.
pub(crate) fn is_behind(root: &Root, item: &Item<'_>) -> bool {
    item.version >= Version::new(root.epoch, 0)
        && (item.version > root.version || root.in_flight.binary_search(&item.version).is_ok())
}

struct Reader<'r> {
    root: &'r Root,
    shard: u32,
    slab: &'r Slab,
    id: FileIdentity,
    has_behind: bool,
    scanned: &'r mut Scanned,
    index: &'r mut BulkLoad,
}

impl Reader<'_> {
    fn read(&mut self, queue: &dyn Queue) -> Result<()> {
        let class = self.slab.class();
        let blocks = class.block_of(self.slab.slots());
        let piece_blocks = (PIECE_BYTES / class.block_bytes()).max(1) as u64;
        let mut pieces: VecDeque<u64> = (0..blocks).step_by(piece_blocks as usize).collect();
        pieces.retain(|first| self.is_needed(*first, piece_blocks.min(blocks - first)));
        let mut in_flight = 0;
        let mut done = Vec::new();
        let mut outcome = Ok(());
        loop {
            let mut transfers = Vec::new();
            while in_flight < PIECES_IN_FLIGHT
                && outcome.is_ok()
                && let Some(first) = pieces.pop_front()
            {
                let len = piece_blocks.min(blocks - first) as usize * class.block_bytes();
                transfers.push(self.transfer(first, aligned(len)));
                in_flight += 1;
            }
            if in_flight == 0 {
                return outcome;
            }
            if !transfers.is_empty() {
                queue.submit(transfers);
            }
            queue.reap(&mut done);
            for completed in done.drain(..) {
                in_flight -= 1;
                let offset = class.block_offset(completed.token);
                let read = completed
                    .outcome
                    .map_err(|e| Error::io("read a slab", e).at(self.slab.file().name(), offset));
                let taken = read.and_then(|()| self.take(completed.token, completed.work.bytes()));
                outcome = outcome.and(taken);
            }
        }
    }

    fn transfer(&self, first_block: u64, buffer: BytesMut) -> Transfer {
        Transfer {
            token: first_block,
            file: Arc::clone(self.slab.file()),
            offset: self.slab.class().block_offset(first_block),
            work: Work::Read(buffer),
        }
    }

    /// Whether something that counts may be in these blocks.
    fn is_needed(&self, first_block: u64, blocks: u64) -> bool {
        let slots = self.slab.class().slots_a_block();
        self.has_behind || !self.slab.used().are_clear(first_block * slots..(first_block + blocks) * slots)
    }

    fn take(&mut self, first_block: u64, bytes: &[u8]) -> Result<()> {
        let class = self.slab.class();
        for (number, block) in bytes.chunks_exact(class.block_bytes()).enumerate() {
            let first_slot = (first_block + number as u64) * class.slots_a_block();
            for slot in first_slot..first_slot + class.slots_a_block() {
                let begin = class.offset_in_block(slot);
                self.take_slot(slot, &block[begin..begin + class.slot_bytes()])?;
            }
        }
        Ok(())
    }

    fn take_slot(&mut self, slot: u64, bytes: &[u8]) -> Result<()> {
        let class = self.slab.class();
        let is_used = self.slab.used().get(slot);
        if !is_used && !self.has_behind {
            return Ok(());
        }
        let offset = class.slot_offset(slot);
        // Of any key it could be said that it is not there, so nobody may ask.
        let damaged = |what: &str| {
            let message = format!("{what}; whose row it was is not known: `kvilt repair` copies all others");
            Err(Error::corrupted(self.slab.file().name(), offset, message))
        };
        let item = match Item::decode(bytes, self.id, offset) {
            Decoded::Item(item) => item,
            _ if !is_used => return Ok(()),
            Decoded::Empty => return damaged("there is no item where a row is"),
            Decoded::Bad(why) => return damaged(why),
        };
        self.scanned.version_max = self.scanned.version_max.max(item.version);
        let place = Place::new(class.number(), slot);
        if is_used {
            let Content::Value { key, .. } = item.content else {
                return damaged("there is something else where a row is");
            };
            if item.version > self.root.version {
                return damaged("the row is newer than the root, so that is not the newest one");
            }
            if self.scanned.named.contains_key(&place) {
                self.scanned.named.insert(place, key.to_vec());
            }
            self.index.push(key, place).map_err(|twice| has_key_twice(self.shard, &twice))?;
        } else if is_behind(self.root, &item) {
            self.take_behind(place, &item);
        }
        Ok(())
    }

    fn take_behind(&mut self, place: Place, item: &Item<'_>) {
        let found = Found::of(place, item);
        match &found.content {
            Owned::Value { key } if self.scanned.named.contains_key(&place) => {
                self.scanned.named.insert(place, key.clone());
            }
            Owned::Tombstone { place } => {
                self.scanned.named.insert(*place, Vec::new());
            }
            Owned::Value { .. } | Owned::RangeDelete { .. } => {}
        }
        self.scanned.behind.push(found);
    }
}
