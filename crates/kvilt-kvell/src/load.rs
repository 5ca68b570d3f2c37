//! What the files of a shard say: its map, its slabs, and the index, from a snapshot or from all the slabs.
//!
//! Shards are loaded at the same time, by a worker each.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::Arc,
};

use kvilt_base::{Disk, Error, Next, Result, Spawn, Version, Worker, queue::aligned};
use kvilt_format::{
    FileIdentity,
    slab::{
        CLASS_COUNT, Class, DecodedPage, MAP_PAGE_SLOTS, MapPage, MapTotal, PAGE_BYTES, Root,
        check_map_header, map_name, map_page_offset, newest_of_pair, pair_stamp,
    },
};
use parking_lot::Mutex;

use crate::{
    index::Index,
    map::{Map, Pair},
    place::Place,
    scan::{self, Found},
    slab::Slab,
    snapshot,
};

/// A shard as its files say.
pub(crate) struct Loaded {
    pub(crate) slabs: Vec<Option<Slab>>,
    pub(crate) map: Map,
    pub(crate) index: Index,
    /// Items behind the cut that may count.
    pub(crate) behind: Vec<Found>,
    /// Keys at places that a tombstone behind the cut names.
    pub(crate) named: HashMap<Place, Vec<u8>>,
    pub(crate) version_max: Version,
    /// Places of the items behind the cut that do count.
    pub(crate) counted: Vec<Place>,
}

/// The slots of a class that a map has set.
pub(crate) type Used = BTreeMap<Class, Vec<u64>>;

/// How the shards of a store are loaded.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// Nothing can be missing of what the last run did.
    pub(crate) is_whole: bool,
    pub(crate) is_read_only: bool,
    /// See [`scan::scan`].
    pub(crate) run_bytes: usize,
}

/// Loads all shards.
///
/// Errors: `Corrupted`, `Io`.
pub(crate) fn load_all(
    spawn: &dyn Spawn,
    disk: &Arc<dyn Disk>,
    root: &Root,
    terms: Terms,
) -> Result<Vec<Loaded>> {
    let root = Arc::new(root.clone());
    let loads = (0..root.maps.len() as u32).map(|shard| {
        let load = Load { disk: Arc::clone(disk), root: Arc::clone(&root), shard, terms };
        let outcome = Arc::new(Mutex::new(None));
        let loader = Loader { load: load.clone(), outcome: Arc::clone(&outcome) };
        (load, outcome, spawn.spawn("loader", Box::new(loader)))
    });
    // All of them are begun before the first is waited for.
    let loads: Vec<_> = loads.collect();
    for (_, _, hand) in &loads {
        hand.join();
    }
    let loaded = loads.into_iter().map(|(load, outcome, _)| {
        // None if there was no thread for it, or if it panicked: then it does so here again.
        let outcome = outcome.lock().take();
        outcome.unwrap_or_else(|| load.run())
    });
    loaded.collect()
}

/// The job of loading a shard.
#[derive(Clone)]
struct Load {
    disk: Arc<dyn Disk>,
    root: Arc<Root>,
    shard: u32,
    terms: Terms,
}

struct Loader {
    load: Load,
    outcome: Arc<Mutex<Option<Result<Loaded>>>>,
}

impl Worker for Loader {
    fn step(&mut self) -> Next {
        *self.outcome.lock() = Some(self.load.run());
        Next::Done
    }

    fn panicked(&mut self, _message: &str) {}
}

impl Load {
    fn run(&self) -> Result<Loaded> {
        let (disk, root, shard) = (&*self.disk, &*self.root, self.shard);
        let (mut map, used) = load_map(disk, root, shard)?;
        let slabs = load_slabs(disk, root, shard, &used)?;
        for slab in slabs.iter().flatten() {
            map.add_pairs(slab.class(), slab.slots());
        }
        if !root.is_clean && !self.terms.is_read_only {
            wait_for_writes(&slabs)?;
        }
        if root.is_clean
            && let Some(index) = snapshot::load(disk, root, shard)?
        {
            let (behind, named, version_max) = (Vec::new(), HashMap::new(), Version::ZERO);
            let counted = Vec::new();
            return Ok(Loaded { slabs, map, index, behind, named, version_max, counted });
        }
        let queue = disk
            .queue(scan::PIECES_IN_FLIGHT)
            .map_err(|e| Error::io("make an I/O queue", e).in_file(disk.place()))?;
        let has_behind = self.terms.is_whole && !root.is_clean;
        let scanned = scan::scan(&*queue, root, shard, &slabs, has_behind, self.terms.run_bytes)?;
        Ok(Loaded {
            slabs,
            map,
            index: scanned.index,
            behind: scanned.behind,
            named: scanned.named,
            version_max: scanned.version_max,
            counted: Vec::new(),
        })
    }
}

/// Waits until no write of the last run is under way: a process that was killed may leave some to its
/// io_uring, and one that came after this run's write to the same slot would undo it.
fn wait_for_writes(slabs: &[Option<Slab>]) -> Result<()> {
    for slab in slabs.iter().flatten() {
        let file = slab.file();
        let waited = file.len().and_then(|len| file.allocate(len));
        waited.map_err(|e| Error::io("wait for earlier writes", e).in_file(file.name()))?;
    }
    Ok(())
}

/// The slabs of a shard, with these slots used.
fn load_slabs(disk: &dyn Disk, root: &Root, shard: u32, used: &Used) -> Result<Vec<Option<Slab>>> {
    let mut slabs: Vec<Option<Slab>> = (0..CLASS_COUNT).map(|_| None).collect();
    for class in Class::all() {
        let slots = used.get(&class).map_or(&[][..], Vec::as_slice);
        let mut slab = scan::open_slab(disk, root, shard, class, slots.iter().max().copied())?;
        if let Some(slab) = &mut slab {
            slots.iter().for_each(|slot| slab.becomes_used(*slot));
            // Where a process was killed, a slab may be visible and not durable: the cut that ends the
            // recovery syncs it.
            slab.has_written();
            if root.is_clean {
                slab.is_synced();
            }
        }
        slabs[usize::from(class.number())] = slab;
    }
    Ok(slabs)
}

/// The map of a shard, and the slots that it has set.
///
/// Errors: `Corrupted`, `Io`.
pub(crate) fn load_map(disk: &dyn Disk, root: &Root, shard: u32) -> Result<(Map, Used)> {
    let name = map_name(shard);
    let id = FileIdentity { store_id: root.store_id, number: name.number() };
    let failed = |e| Error::io("read an occupancy map", e).in_file(name);
    let file = match disk.open(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::corrupted(name, 0, "the file is missing"));
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(Error::corrupted(name, 0, e.to_string()));
        }
        opened => opened.map_err(failed)?,
    };
    let mut page = aligned(PAGE_BYTES);
    let len = scan::read_pages(&*file, 0, &mut page).map_err(failed)?;
    check_map_header(&page[..len], id)?;
    let (mut pairs, mut used, mut changed) = (Vec::new(), Used::new(), BTreeSet::new());
    let total = root.maps[shard as usize];
    let mut found = MapTotal::default();
    // What stands behind these is of cuts that came to nothing: a later cut may have the number of one.
    for number in 0..u64::from(total.pairs) {
        let mut pair = aligned(2 * PAGE_BYTES);
        scan::read_pages(&*file, map_page_offset(number, 0), &mut pair).map_err(failed)?;
        let page = |copy: usize| pair[copy * PAGE_BYTES..].first_chunk().expect("a pair has two pages");
        let decoded = [0, 1].map(|copy| MapPage::decode(page(copy), id, map_page_offset(number, copy)));
        let Some(copy) = newest_of_pair([&decoded[0], &decoded[1]], root.cut) else {
            break;
        };
        let DecodedPage::Page(page) = &decoded[copy] else { break };
        // The other one may be of a cut that came to nothing, which a later one must not count.
        if matches!(&decoded[1 - copy], DecodedPage::Page(other) if other.cut > root.cut) {
            changed.insert(number as usize);
        }
        pairs.push(Pair { class: page.class, first_slot: page.first_slot, current: Some((copy, page.cut)) });
        found.pairs += 1;
        found.stamps = found.stamps.wrapping_add(pair_stamp(number, page.cut));
        let set = (0..MAP_PAGE_SLOTS).filter(|n| page.is_set(*n)).map(|n| page.first_slot + n);
        used.entry(page.class).or_default().extend(set);
    }
    if found != total {
        let message =
            format!("the map has {} pages that count, and the root knows of {}", found.pairs, total.pairs);
        return Err(Error::corrupted(name, map_page_offset(u64::from(found.pairs), 0), message));
    }
    Ok((Map::new(file, id, pairs, changed), used))
}
