//! Opening a store: which slots count, and the index of what is in them.
//!
//! A store that was closed has its indexes in snapshots. Any other is read whole: slots that the map of the
//! last cut has set count; and if nothing can be missing of what the last run did (the same boot and
//! directory, or a run at level sync), so do items of that run behind the cut, in the order of their numbers.
//!
//! What is always true: nothing is changed before all of it was read and found right.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
};

use kvilt_base::{
    Direction, Disk, Error, ErrorKind, FileName, Level, Listed, Result, Settings, Version, World,
    directory::{self, DirectoryLock},
    disk::Habitat,
    engine_name, planted,
    queue::aligned,
    unfinished::{not_empty, refuse_unfinished},
};
use kvilt_format::{
    FileIdentity,
    names::{MAP, ROOT, SLAB},
    slab::{MapTotal, PAGE_BYTES, ROOT_COPY_BYTES, Root, encode_map_header, map_name},
};

use crate::{
    NAME, Options,
    blocks::Edit,
    cut::Cutter,
    load::{self, Loaded, Terms},
    parts,
    place::Place,
    scan::{self, Found},
    shard::{Locked, Shard},
    snapshot,
    state::{Charges, Ground, State},
    store::{Rooted, Store},
};

/// Opens the store in `disk`, or makes one.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    world: &World,
    options: &Options,
    settings: &Settings,
) -> Result<(Arc<Store>, DirectoryLock)> {
    let lock = match settings.read_only {
        true => directory::lock_to_read(&*disk)?,
        false => directory::lock(&*disk)?,
    };
    let listed = directory::list(&*disk)?;
    if !settings.is_unfinished {
        refuse_unfinished(&listed, &disk.place())?;
    }
    let root = match read_root(&*disk) {
        // A making that was cut short: slabs are made only after the root is durable.
        Err(error) if error.kind() == ErrorKind::Corrupted && first_slab(&listed).is_none() => None,
        root => root?,
    };
    let root = match root {
        Some(root) => {
            engine_name::expect(&*disk, NAME)?;
            root
        }
        None => {
            allow_making(&*disk, &listed, settings)?;
            directory::sign(&*disk, &lock)?;
            make(&disk, world, options, &listed)?
        }
    };
    Opening { disk, world, options, settings, listed, root }.open(lock)
}

/// The root that counts; none if there is no store.
///
/// Errors: `Corrupted`, `UnsupportedVersion`, `Io`.
pub(crate) fn read_root(disk: &dyn Disk) -> Result<Option<Root>> {
    let failed = |e| Error::io("read the root", e).in_file(ROOT);
    let file = match disk.open(ROOT) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A link, or a directory.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(Error::corrupted(ROOT, 0, e.to_string()));
        }
        opened => opened.map_err(failed)?,
    };
    let mut bytes = vec![0; 2 * ROOT_COPY_BYTES];
    let len = file.read_full_at(0, &mut bytes).map_err(failed)?;
    Root::newest(&bytes[..len])
}

fn first_slab(listed: &[Listed]) -> Option<FileName> {
    directory::numbers(listed, SLAB).next().map(|number| FileName::Of(SLAB, number))
}

fn allow_making(disk: &dyn Disk, listed: &[Listed], settings: &Settings) -> Result<()> {
    if let Some(name) = first_slab(listed) {
        return Err(Error::corrupted(ROOT, 0, format!("there is no root, but {name}: a store without it")));
    }
    let place = disk.place();
    if !settings.create || settings.read_only {
        return Err(Error::invalid(format!("there is no store in {place}")));
    }
    let is_free = |item: &Listed| match item {
        Listed::Ours(FileName::LOCK | FileName::UNFINISHED | FileName::ENGINE) => true,
        // What a making left that was cut short.
        Listed::Ours(name) => *name == ROOT || name.kind() == MAP,
        Listed::Foreign(_) => false,
    };
    if listed.iter().all(is_free) { Ok(()) } else { Err(not_empty(&place)) }
}

/// Makes an empty store, durably: the root last, in both copies.
fn make(disk: &Arc<dyn Disk>, world: &World, options: &Options, listed: &[Listed]) -> Result<Root> {
    let failed = |name: FileName| move |e| Error::io("make a store", e).in_file(name);
    engine_name::write(&**disk, NAME)?;
    disk.sync_dir().map_err(failed(FileName::ENGINE))?;
    for item in listed {
        if let Listed::Ours(name) = item
            && (*name == ROOT || name.kind() == MAP)
        {
            disk.remove(*name).map_err(failed(*name))?;
        }
    }
    let store_id = world.rng.next_u64();
    let mut hash_key = [0; 16];
    for half in hash_key.chunks_exact_mut(8) {
        half.copy_from_slice(&world.rng.next_u64().to_le_bytes());
    }
    for shard in 0..options.shards {
        let name = map_name(shard);
        let id = FileIdentity { store_id, number: name.number() };
        let file = disk.create(name).map_err(failed(name))?;
        let mut page = aligned(PAGE_BYTES);
        page.copy_from_slice(&encode_map_header(id)[..]);
        file.write_all_at(0, &page).and_then(|()| file.sync()).map_err(failed(name))?;
    }
    disk.sync_dir().map_err(failed(ROOT))?;
    let mut root = Root {
        store_id,
        generation: 1,
        cut: 0,
        version: Version::new(0, 0),
        in_flight: Vec::new(),
        hash_key,
        epoch: 0,
        level: Level::Async,
        habitat: Habitat::NOWHERE,
        is_clean: false,
        maps: vec![MapTotal::default(); options.shards as usize],
    };
    let file = disk.create(ROOT).map_err(failed(ROOT))?;
    for _ in 0..2 {
        root.generation += 1;
        file.write_all_at(root.offset(), &root.encode()[..])
            .and_then(|()| file.sync())
            .map_err(failed(ROOT))?;
    }
    disk.sync_dir().map_err(failed(ROOT))?;
    Ok(root)
}

/// Whether the directory was copied while the store was open: its files may be of different moments.
pub(crate) fn was_copied(root: &Root, habitat: Habitat) -> bool {
    !root.is_clean && root.habitat != Habitat::NOWHERE && root.habitat.inode != habitat.inode
}

/// Whether nothing can be missing of what the last run did.
pub(crate) fn is_whole(root: &Root, habitat: Habitat) -> bool {
    root.level == Level::Sync && root.epoch > 0
        || root.habitat != Habitat::NOWHERE && root.habitat.boot == habitat.boot
}

/// A run of entries has this part of its shard's memory, and at most this many bytes.
const RUN_PART: u64 = 4;
const RUN_BYTES_MAX: u64 = 1 << 30;

struct Opening<'o> {
    disk: Arc<dyn Disk>,
    world: &'o World,
    options: &'o Options,
    settings: &'o Settings,
    listed: Vec<Listed>,
    root: Root,
}

impl Opening<'_> {
    fn open(self, lock: DirectoryLock) -> Result<(Arc<Store>, DirectoryLock)> {
        let begun = self.world.clock.now();
        let habitat = Habitat::of(&*self.disk);
        let root = &self.root;
        if was_copied(root, habitat) {
            let message = "the store was copied while it was open, so rows may be missing in the copy; open the \
                           original, copy it closed or by `checkpoint_to`, or run `kvilt repair`";
            return Err(Error::corrupted(ROOT, 0, message));
        }
        let is_whole = planted!(BootNotCompared, is_whole(root, habitat) => true);
        let is_read_only = self.settings.read_only;
        let terms = Terms { is_whole, is_read_only, run_bytes: self.run_bytes() };
        let mut shards = load::load_all(&*self.world.spawn, &self.disk, root, terms)?;
        let version_max = shards.iter().map(|shard| shard.version_max).max().unwrap_or_default();
        if !root.is_clean {
            self.apply_behind(&mut shards)?;
        }
        // Above all versions that the last run gave out, also if there were more than an epoch counts.
        let epoch = root.epoch.max(root.version.epoch()).max(version_max.epoch()) + 1;
        let epoch = planted!(EpochNotRaised, epoch => root.epoch.max(1));
        let counted: Vec<_> = shards.iter_mut().map(|shard| std::mem::take(&mut shard.counted)).collect();
        let shards = shards.into_iter().enumerate();
        let shards: Result<Vec<Shard>> =
            shards.map(|(number, loaded)| self.shard(number as u32, loaded)).collect();
        let file = match self.settings.read_only {
            true => None,
            false => {
                directory::sign(&*self.disk, &lock)?;
                let opened = self.disk.open(ROOT).map_err(|e| Error::io("open the root", e).in_file(ROOT))?;
                // The copy that was read may be one that a killed process did not sync, and the other one is
                // written over next. Written once more, since a sync that failed then may have left it in
                // the kernel's cache, where no later sync finds anything to do.
                opened
                    .write_all_at(root.offset(), &root.encode()[..])
                    .and_then(|()| opened.sync())
                    .map_err(|e| Error::io("sync the root", e).in_file(ROOT))?;
                // The same holds for the names of slabs.
                self.disk
                    .sync_dir()
                    .map_err(|e| Error::io("sync the directory", e).in_file(self.disk.place()))?;
                Some(opened)
            }
        };
        let rooted = Rooted { last_cut: root.cut, root: root.clone(), file, unfinished: None };
        let store = Arc::new(Store::new(
            Arc::clone(&self.disk),
            self.world,
            self.settings.clone(),
            shards?,
            Version::new(epoch, 0),
            rooted,
        ));
        if !self.settings.read_only {
            for (shard, counted) in store.shards.iter().zip(counted) {
                let mut state = shard.lock();
                write_again(shard, &mut state, counted)?;
                state.make_room_for_deletes()?;
            }
            // Before anything is written: what was found is durable, the snapshots count no more, and items
            // of this run have versions that none of the last run has.
            let level = store.level();
            store.cut_with(&mut store.rooted.lock(), &mut |root| {
                let is_clean = planted!(CloseNotTakenBack, false => root.is_clean);
                (root.epoch, root.level, root.habitat, root.is_clean) = (epoch, level, habitat, is_clean);
            })?;
            snapshot::remove(&*self.disk, &self.listed);
            let worker = self.world.spawn.spawn("cutter", Box::new(Cutter::new(&store)));
            let _ = store.worker.set(worker);
        }
        let micros = self.world.clock.now().saturating_sub(begun).as_micros();
        store.counters.open_us.store(micros as u64, std::sync::atomic::Ordering::Relaxed);
        Ok((store, lock))
    }

    /// Memory of a shard for entries that are not in its index yet. Its page cache is empty until it is open.
    fn run_bytes(&self) -> usize {
        let shard_bytes = self.world.budget.bytes_max() / self.root.maps.len().max(1) as u64;
        (shard_bytes / RUN_PART).min(RUN_BYTES_MAX) as usize
    }

    /// Applies the items behind the cut that count, in the order of their numbers: those of whole batches.
    fn apply_behind(&self, shards: &mut [Loaded]) -> Result<()> {
        let mut items: BTreeMap<Version, Vec<(usize, Found)>> = BTreeMap::new();
        for (number, shard) in shards.iter_mut().enumerate() {
            for found in std::mem::take(&mut shard.behind) {
                items.entry(found.version).or_default().push((number, found));
            }
        }
        for batch in items.into_values() {
            let is_whole = batch.iter().all(|(_, found)| found.batch_len as usize == batch.len());
            if !planted!(PartsOfBatchCount, is_whole => true) {
                continue;
            }
            for (number, found) in batch {
                apply(shards, number, found)?;
            }
        }
        Ok(())
    }

    fn shard(&self, number: u32, loaded: Loaded) -> Result<Shard> {
        let shards = self.root.maps.len();
        let queue = self
            .disk
            .queue(self.options.queue_depth)
            .map_err(|e| Error::io("make an I/O queue", e).in_file(self.disk.place()))?;
        let budget = &self.world.budget;
        let charges = Charges {
            index: budget.charge(parts::INDEX, 0),
            cache: budget.charge(parts::CACHE, 0),
            work: budget.charge(parts::WORK, 0),
        };
        let ground = Ground {
            disk: Arc::clone(&self.disk),
            store_id: self.root.store_id,
            shard: number,
            level: self.settings.durability.level(),
            budget: Arc::clone(budget),
            shards: shards as u64,
            memory_bytes: budget.bytes_max() / shards as u64,
            // A root names those in flight, and a range delete may be one of them.
            writes_max: ((kvilt_format::slab::IN_FLIGHT_MAX - 1) / shards).max(1),
        };
        Ok(Shard::new(State::new(ground, loaded.index, loaded.slabs, loaded.map, charges), queue))
    }
}

/// Writes the blocks of what counts behind the cut once more: after a sync that failed, they may be in the
/// kernel's cache, where a read finds them and no later sync does.
fn write_again(shard: &Shard, state: &mut Locked<'_>, places: Vec<Place>) -> Result<()> {
    planted!(FoundNotWrittenAgain => return Ok(()));
    let mut in_flight = VecDeque::new();
    for place in places {
        if in_flight.len() == WRITTEN_AGAIN_IN_FLIGHT
            && let Some(ticket) = in_flight.pop_front()
        {
            shard.wait(state, ticket)?;
        }
        let location = state.slab(place.class()).expect("a place is in a slab").location(place.slot());
        let nothing = Edit { at: 0, bytes: Vec::new() };
        in_flight.push_back(state.blocks.edit(&location, false, nothing));
    }
    while let Some(ticket) = in_flight.pop_front() {
        shard.wait(state, ticket)?;
    }
    Ok(())
}

/// Blocks that are written again at the same time.
const WRITTEN_AGAIN_IN_FLIGHT: usize = 64;

/// The slots that the maps of the root's cut have set.
///
/// Errors: `Corrupted`, `Io`.
pub(crate) fn used_slots(disk: &dyn Disk) -> Result<BTreeSet<(u32, Place)>> {
    let root = read_root(disk)?.ok_or_else(|| Error::corrupted(ROOT, 0, "there is no root"))?;
    let mut used = BTreeSet::new();
    for shard in 0..root.maps.len() as u32 {
        for (class, slots) in load::load_map(disk, &root, shard)?.1 {
            used.extend(slots.into_iter().map(|slot| (shard, Place::new(class.number(), slot))));
        }
    }
    Ok(used)
}

/// Applies an item behind the cut.
fn apply(shards: &mut [Loaded], number: usize, found: Found) -> Result<()> {
    match found.content {
        scan::Owned::Value { key } => {
            let shard = &mut shards[number];
            use_slot(shard, found.place);
            shard.counted.push(found.place);
            if let Some(before) = shard.index.insert(&key, found.place) {
                free_slot(shard, before);
            }
        }
        scan::Owned::Tombstone { place } => {
            let shard = &mut shards[number];
            if !planted!(TombstoneIgnored, false => true)
                && let Some(key) = shard.named.get(&place)
                && shard.index.get(key) == Some(place)
            {
                shard.index.remove(key);
                free_slot(shard, place);
            }
        }
        scan::Owned::RangeDelete { range } => {
            for shard in shards {
                planted!(RangeDeleteIgnored => break);
                let removed = shard.index.take_range(&range);
                let mut entries = crate::index::Entries::default();
                removed.walk(&range, Direction::Forward, usize::MAX, &mut entries);
                for (_, place) in entries.iter() {
                    free_slot(shard, place);
                }
            }
        }
    }
    Ok(())
}

fn use_slot(shard: &mut Loaded, place: Place) {
    let class = place.size_class();
    let slab = shard.slabs[usize::from(place.class())].as_mut().expect("an item was found in a slab");
    slab.becomes_used(place.slot());
    shard.map.changes(class, place.slot());
}

fn free_slot(shard: &mut Loaded, place: Place) {
    let class = place.size_class();
    let slab = shard.slabs[usize::from(place.class())].as_mut().expect("a place is in a slab");
    slab.becomes_unused(place.slot());
    shard.map.changes(class, place.slot());
    // K-4: not free before the cut that ends the recovery is durable. Nothing takes a slot before that.
    slab.becomes_free(place.slot());
}
