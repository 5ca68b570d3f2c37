//! `State`: what a shard's lock guards: index, slabs, map, blocks, and what is on its way.
//!
//! Every method is short and does no I/O but what makes room: a slab's file that becomes longer, or is made.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use kvilt_base::{Budget, Charge, Disk, Error, ErrorKind, KeyRange, Level, Result, Version, planted};
use kvilt_format::{
    FileIdentity,
    slab::{CLASS_COUNT, Class, Content, Item, PAGE_BYTES, encode_slab_header, slab_name},
};

use crate::{
    blocks::{Blocks, Edit, Ticket},
    history::History,
    index::Index,
    map::Map,
    place::Place,
    slab::Slab,
};

/// The cache keeps this much, in bytes, whatever the index needs: a shard with nothing in flight cannot work.
pub(crate) const CACHE_BYTES_MIN: u64 = 64 << 10;
/// Budget and gauges are looked at again when the index has changed by this much, in bytes.
const RECHARGE_BYTES: u64 = 16 << 10;

/// What a shard is given of the store.
pub(crate) struct Ground {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) store_id: u64,
    pub(crate) shard: u32,
    pub(crate) level: Level,
    pub(crate) budget: Arc<Budget>,
    pub(crate) shards: u64,
    /// Memory of this shard, in bytes.
    pub(crate) memory_bytes: u64,
    /// Writes that may have keys reserved at once, beside a range delete.
    pub(crate) writes_max: usize,
}

/// What a shard's memory is used for.
pub(crate) struct Charges {
    pub(crate) index: Charge,
    pub(crate) cache: Charge,
    pub(crate) work: Charge,
}

/// See the module.
pub(crate) struct State {
    pub(crate) ground: Ground,
    pub(crate) index: Index,
    /// By class; none before the first item of a class.
    pub(crate) slabs: Vec<Option<Slab>>,
    pub(crate) map: Map,
    pub(crate) blocks: Blocks,
    pub(crate) history: History,
    /// The number of the newest view.
    pub(crate) clock: u64,
    /// Slots that nothing needs since the last cut began: free when the next is durable.
    pub(crate) unused: Vec<Place>,
    /// The same since the cut before: free when the one under way is durable.
    pub(crate) unused_before_cut: Vec<Place>,
    /// Versions of the writes that were begun and are neither applied nor given up.
    pub(crate) in_flight: BTreeSet<Version>,
    /// Transfers that were submitted to the queue and have not been reaped.
    pub(crate) queued: usize,
    /// How often a cut has freed slots.
    pub(crate) times_freed: u64,
    pub(crate) is_reaping: bool,
    charges: Charges,
    busy: HashSet<Box<[u8]>>,
    /// Writes that have keys reserved: each may be in flight when a cut comes.
    reservations: usize,
    closed_range: Option<KeyRange>,
    /// Whether somebody waits for keys, or may.
    is_waited_for: bool,
    charged_index_bytes: u64,
    /// Bytes of the map and of the slabs' bits.
    fixed_bytes: u64,
}

/// A slot that was taken, for an item that is on its way there.
pub(crate) struct Written {
    pub(crate) place: Place,
    pub(crate) ticket: Ticket,
}

impl State {
    pub(crate) fn new(
        ground: Ground,
        index: Index,
        slabs: Vec<Option<Slab>>,
        map: Map,
        charges: Charges,
    ) -> Self {
        debug_assert_eq!(slabs.len(), CLASS_COUNT);
        let blocks = Blocks::new(
            ground.memory_bytes,
            planted!(WritesNotDurable, ground.level == Level::Sync => false),
        );
        let mut state = State {
            ground,
            index,
            slabs,
            map,
            blocks,
            history: History::default(),
            clock: 0,
            unused: Vec::new(),
            unused_before_cut: Vec::new(),
            in_flight: BTreeSet::new(),
            queued: 0,
            times_freed: 0,
            is_reaping: false,
            charges,
            busy: HashSet::new(),
            reservations: 0,
            closed_range: None,
            is_waited_for: false,
            charged_index_bytes: 0,
            fixed_bytes: 0,
        };
        state.charge();
        state
    }

    // Keys.

    /// Makes the keys the caller's, all or none.
    pub(crate) fn reserve<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]> + Clone) -> bool {
        let is_closed = |key: &[u8]| self.closed_range.as_ref().is_some_and(|range| range.contains(key));
        let may_write = self.reservations < self.ground.writes_max
            && keys.clone().all(|key| !self.busy.contains(key) && !is_closed(key));
        if may_write {
            self.busy.extend(keys.map(Box::from));
            self.reservations += 1;
        } else {
            self.is_waited_for = true;
        }
        may_write
    }

    /// Whether somebody may wait for them.
    pub(crate) fn release<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        for key in keys {
            self.busy.remove(key);
        }
        self.reservations -= 1;
        std::mem::take(&mut self.is_waited_for)
    }

    /// Nobody begins to write a key of the range; false while another range is closed.
    pub(crate) fn close_range(&mut self, range: &KeyRange) -> bool {
        let may = self.closed_range.is_none();
        if may {
            self.closed_range = Some(range.clone());
        } else {
            self.is_waited_for = true;
        }
        may
    }

    pub(crate) fn has_busy_in(&mut self, range: &KeyRange) -> bool {
        let has = self.busy.iter().any(|key| range.contains(key));
        self.is_waited_for |= has;
        has
    }

    pub(crate) fn open_range(&mut self) {
        self.closed_range = None;
        self.is_waited_for = false;
    }

    // Places.

    /// What a view sees of a key; none: what there is now.
    pub(crate) fn find(&self, key: &[u8], view: Option<u64>) -> Option<Place> {
        match view.and_then(|view| self.history.get(key, view)) {
            Some(noted) => noted,
            None => self.index.get(key),
        }
    }

    pub(crate) fn slab(&self, class: u8) -> Option<&Slab> {
        self.slabs.get(usize::from(class))?.as_ref()
    }

    fn slab_mut(&mut self, place: Place) -> &mut Slab {
        self.slabs[usize::from(place.class())].as_mut().expect("a place is in a slab")
    }

    /// The key has this place from now on; none: it has no value.
    pub(crate) fn apply(&mut self, key: &[u8], place: Option<Place>) {
        let before = match place {
            Some(place) => {
                let class = place.size_class();
                self.slab_mut(place).becomes_used(place.slot());
                self.map.changes(class, place.slot());
                self.index.insert(key, place)
            }
            None => self.index.remove(key),
        };
        if let Some(before) = before {
            self.becomes_unused(before);
        }
        let is_kept = self.history.note(key, before, self.clock);
        let is_kept = planted!(SlotOfViewFreed, is_kept => false);
        planted!(FreedAtOnce => {
            if let (false, Some(before)) = (is_kept, before) {
                return self.give_back(before);
            }
        });
        if !is_kept {
            self.unused.extend(before);
        }
        self.charge_if_changed();
    }

    /// A slot's item counts no more; the slot is not free yet.
    pub(crate) fn becomes_unused(&mut self, place: Place) {
        let class = place.size_class();
        self.slab_mut(place).becomes_unused(place.slot());
        self.map.changes(class, place.slot());
    }

    /// A slot that was written and is not needed: free when the next cut is durable.
    pub(crate) fn is_spent(&mut self, place: Place) {
        self.slab_mut(place).has_written();
        self.unused.push(place);
    }

    /// A slot to which nothing was written, or from which it was taken back.
    pub(crate) fn give_back(&mut self, place: Place) {
        self.slab_mut(place).becomes_free(place.slot());
    }

    /// A cut is durable.
    pub(crate) fn frees(&mut self) {
        self.times_freed += 1;
        planted!(FreedWithWrongCut => self.unused_before_cut.append(&mut self.unused));
        for place in std::mem::take(&mut self.unused_before_cut) {
            self.slab_mut(place).becomes_free(place.slot());
        }
    }

    // Writing.

    /// Begins to write an item to a free slot.
    ///
    /// Errors: `NoSpace`, `Io`: then nothing has changed.
    pub(crate) fn write(
        &mut self,
        version: Version,
        batch_len: u32,
        content: Content<'_>,
    ) -> Result<Written> {
        let item = Item { version, batch_len, content };
        let len = item.encoded_len();
        let class = match content {
            Content::Tombstone { .. } => Class::TOMBSTONES,
            Content::Value { .. } | Content::RangeDelete { .. } => {
                Class::of_len(len).expect("an item within the limits of key and value has a class")
            }
        };
        let (slot, is_fresh) = self.take_slot(class)?;
        let is_fresh = planted!(BlockTakenForFresh, is_fresh => true);
        let id = self.identity_of(class);
        let place = Place::new(class.number(), slot);
        let location = self.slab_mut(place).location(slot);
        let ticket = if class.slots_a_block() == 1 {
            let mut image = self.blocks.buffer(location.len);
            item.encode_into(&mut image, id, class.slot_offset(slot));
            self.blocks.write(&location, image)
        } else {
            let mut bytes = vec![0; len];
            item.encode_into(&mut bytes, id, class.slot_offset(slot));
            self.blocks.edit(&location, is_fresh, Edit { at: class.offset_in_block(slot), bytes })
        };
        Ok(Written { place, ticket })
    }

    pub(crate) fn identity_of(&self, class: Class) -> FileIdentity {
        FileIdentity { store_id: self.ground.store_id, number: slab_name(self.ground.shard, class).number() }
    }

    /// Takes room for tombstones, so that deletes go on when the disk is full: each cut frees their slots.
    ///
    /// Errors: `Io`. A disk that is full already is none.
    pub(crate) fn make_room_for_deletes(&mut self) -> Result<()> {
        let class = Class::TOMBSTONES;
        let mut made = self.ensure_slab(class);
        if made.is_ok() && self.slab(class.number()).is_some_and(|slab| slab.slots() == 0) {
            made = self.grow(class);
        }
        match made {
            Err(error) if error.kind() == ErrorKind::NoSpace && self.blocks.spoilt().is_none() => Ok(()),
            made => made,
        }
    }

    fn ensure_slab(&mut self, class: Class) -> Result<()> {
        if self.slabs[usize::from(class.number())].is_none() {
            let slab = self.new_slab(class)?;
            self.slabs[usize::from(class.number())] = Some(slab);
        }
        Ok(())
    }

    fn take_slot(&mut self, class: Class) -> Result<(u64, bool)> {
        self.ensure_slab(class)?;
        let taken = self.slabs[usize::from(class.number())].as_mut().and_then(Slab::take);
        match taken {
            Some(taken) => Ok(taken),
            None => {
                self.grow(class)?;
                let slab = self.slabs[usize::from(class.number())].as_mut().expect("it was made above");
                Ok(slab.take().expect("it has grown"))
            }
        }
    }

    /// Makes a slab longer: by a part of its length, or by a block if there is no room for that.
    fn grow(&mut self, class: Class) -> Result<()> {
        let slab = self.slabs[usize::from(class.number())].as_mut().expect("a slab that grows is there");
        let file = Arc::clone(slab.file());
        let failed = |e| Error::io("take room for a slab", e).in_file(file.name());
        let mut grown = Err(Error::new(ErrorKind::NoSpace, "no room"));
        for len in [slab.grown_len(), slab.least_grown_len()] {
            let slots = class.blocks_in(len) * class.slots_a_block();
            grown = self.map.grow(class, slots).and_then(|()| file.allocate(len).map_err(failed));
            if grown.is_ok() {
                slab.has_grown(len);
                break;
            }
        }
        self.charge();
        grown
    }

    /// Makes the file of a class. Its name and its first page are durable before anything counts in it.
    fn new_slab(&mut self, class: Class) -> Result<Slab> {
        let name = slab_name(self.ground.shard, class);
        let failed = |e| Error::io("make a slab", e).in_file(name);
        let disk = &self.ground.disk;
        let file = match disk.create(name) {
            // One whose making was cut short: nothing counts in it.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                disk.remove(name).and_then(|()| disk.create(name))
            }
            created => created,
        }
        .map_err(failed)?;
        let mut page = kvilt_base::queue::aligned(PAGE_BYTES);
        page.copy_from_slice(&encode_slab_header(self.identity_of(class))[..]);
        let written = file.write_all_at(0, &page);
        let is_written = written.is_ok();
        let sync_dir = || planted!(SlabNameNotSynced, disk.sync_dir() => Ok(()));
        let made = written.and_then(|()| file.sync()).and_then(|()| sync_dir()).map_err(failed);
        if let Err(error) = made {
            // The first error is the one to tell.
            let _ = disk.remove(name);
            if is_written {
                // A sync that failed may have lost anything.
                self.blocks.spoil(error.clone());
            }
            return Err(error);
        }
        Ok(Slab::new(class, file))
    }

    // Memory.

    /// Refuses a key that the index has no room for.
    ///
    /// Errors: `LimitReached`, with what is needed.
    pub(crate) fn allow_new(&self, key: &[u8]) -> Result<()> {
        let needed = self.index_bytes() + self.index.bytes_of_new(key) + CACHE_BYTES_MIN;
        if needed <= self.ground.memory_bytes {
            return Ok(());
        }
        let message = format!(
            "the index has no room for a new key: {} keys of this shard take {} KiB of its {} KiB, and a new \
             one needs {} KiB; updates and deletes go on",
            self.index.len(),
            self.index_bytes() >> 10,
            self.ground.memory_bytes >> 10,
            needed.div_ceil(1 << 10)
        );
        Err(Error::new(ErrorKind::LimitReached, message).by_setting("memory_budget"))
    }

    /// Bytes of the index and what else has to be in memory.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index.bytes() + self.fixed_bytes
    }

    /// Bytes of all that is charged.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.charges.index.bytes() + self.charges.cache.bytes() + self.charges.work.bytes()
    }

    fn charge_if_changed(&mut self) {
        if self.index.bytes().abs_diff(self.charged_index_bytes) >= RECHARGE_BYTES {
            self.charge();
        }
    }

    /// Counts what is used, and lets the cache have the rest.
    pub(crate) fn charge(&mut self) {
        let bits = self.slabs.iter().flatten().map(|slab| slab.slots() / 4).sum::<u64>();
        (self.charged_index_bytes, self.fixed_bytes) = (self.index.bytes(), self.map.bytes() + bits);
        let index = self.index_bytes();
        let work = self.history.bytes() + self.blocks.flight_bytes();
        let own = self.ground.memory_bytes.saturating_sub(index + work);
        // Other stores may share the budget.
        let budget = &self.ground.budget;
        let room = budget.bytes_max().saturating_sub(budget.used_in_all()) / self.ground.shards;
        let cache = own.min(self.charges.cache.bytes() + room).max(CACHE_BYTES_MIN);
        self.blocks.set_cache_bytes(cache);
        self.charges.index.set(index);
        // Pages that are free are not taken from the cache: they were its own.
        self.charges.work.set(work + self.blocks.spare_bytes());
        self.charges.cache.set(self.blocks.cache_bytes());
    }
}
