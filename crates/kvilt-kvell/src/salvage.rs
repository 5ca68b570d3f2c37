//! What is left of a damaged store: every slot of every slab is looked at, and of each key the newest item
//! is saved.
//!
//! If root and maps are sound, slots that they have set are saved, and behind the cut what an open would
//! count: whole batches, where nothing can be missing of the last run. Then it is known that nothing newer
//! was lost but what is damaged. Else any item may be one that was deleted since, and the report says so.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
};

use kvilt_base::{
    Damage, Disk, Error, ErrorKind, File, FileName, KeyRange, Listed, RepairReport, Result, Salvaged,
    Version, directory, disk::Habitat, queue::aligned,
};
use kvilt_format::{
    FileIdentity,
    names::{ROOT, SLAB},
    slab::{Class, Content, Decoded, Item, PAGE_BYTES, Root, slab_name, slab_of},
};

use crate::{
    place::Place,
    recovery,
    scan::{self, Found, Owned},
};

/// Takes the reader's lock.
pub(crate) fn lock_to_salvage(disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>> {
    let listed = directory::list(disk)?;
    let has_rows = |item: &Listed| matches!(item, Listed::Ours(name) if *name == ROOT || name.kind() == SLAB);
    if !listed.iter().any(has_rows) {
        return Err(Error::invalid(format!("there is nothing of a store in {}", disk.place())));
    }
    directory::lock_to_read(disk)
}

/// The newest item of a key.
#[derive(Clone, Copy)]
struct Newest {
    version: Version,
    shard: u32,
    place: Place,
}

/// Gives all that can be saved to `save`.
pub(crate) fn salvage(
    disk: &dyn Disk,
    save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let _lock = lock_to_salvage(disk)?;
    let root = sound(recovery::read_root(disk))?.flatten();
    let habitat = Habitat::of(disk);
    let counted = sound(recovery::used_slots(disk))?;
    let is_known = counted.is_some();
    let was_copied = root.as_ref().is_some_and(|root| recovery::was_copied(root, habitat));
    let counts_behind = |root: &Root| !root.is_clean && (was_copied || recovery::is_whole(root, habitat));
    let mut salvage = Salvage {
        disk,
        report: RepairReport { is_proven: is_known && !was_copied, ..RepairReport::default() },
        store_id: root.as_ref().map(|root| root.store_id),
        behind: root.filter(|root| is_known && counts_behind(root)).map(Behind::new),
        counted,
        found: BTreeMap::new(),
    };
    // A directory has them in any order. The tombstones of a shard come first.
    let numbers: BTreeSet<u64> = directory::numbers(&directory::list(disk)?, SLAB).collect();
    let names: Vec<FileName> = numbers.into_iter().map(|number| FileName::Of(SLAB, number)).collect();
    let total = names.iter().filter_map(|name| disk.len(*name).ok()).sum::<u64>().max(1);
    let mut done = 0;
    for name in names {
        salvage.look_at(name, &mut |bytes| {
            done += bytes;
            progress(done.min(total), total);
        })?;
    }
    salvage.lose_what_is_not_there();
    salvage.apply_behind();
    salvage.save(save)?;
    if !salvage.report.is_proven {
        salvage.report.losses.insert(
            0,
            Damage {
                what: "root".to_string(),
                file: Some(ROOT.to_string()),
                offset: None,
                range: Some(KeyRange::all()),
                message: if is_known { COPIED.to_string() } else { DAMAGED.to_string() },
            },
        );
    }
    Ok(salvage.report)
}

/// Why a salvage of a copied directory is not proven.
const COPIED: &str =
    "the store was copied while it was open: what was saved may be older than it was, or deleted since";
/// Why one without root or maps is not.
const DAMAGED: &str =
    "root or occupancy maps are damaged: what was saved may be older than it was, or deleted since";

struct Salvage<'s> {
    disk: &'s dyn Disk,
    report: RepairReport,
    /// The store's own, by its root; none if that is damaged.
    store_id: Option<u64>,
    /// The slots that count, by shard, and were not looked at yet; none if that is not known.
    counted: Option<BTreeSet<(u32, Place)>>,
    found: BTreeMap<Vec<u8>, Newest>,
    /// None if only those count.
    behind: Option<Behind>,
}

/// What was written behind the cut.
struct Behind {
    root: Root,
    /// By version, each with its shard.
    items: BTreeMap<Version, Vec<(u32, Found)>>,
    /// The keys at places that a tombstone names, once they are known.
    named: HashMap<(u32, Place), Vec<u8>>,
}

impl Behind {
    fn new(root: Root) -> Self {
        Behind { root, items: BTreeMap::new(), named: HashMap::new() }
    }

    /// Takes an item of a slot that the maps do not have. Slabs of tombstones come first of their shard.
    fn take(&mut self, shard: u32, place: Place, item: &Item<'_>) {
        if !scan::is_behind(&self.root, item) {
            return;
        }
        let found = Found::of(place, item);
        if let Owned::Tombstone { place } = &found.content {
            self.named.insert((shard, *place), Vec::new());
        }
        self.items.entry(item.version).or_default().push((shard, found));
    }

    /// Notes the key of an item that counts, if a tombstone names it.
    fn note(&mut self, shard: u32, place: Place, item: &Item<'_>) {
        if let Content::Value { key, .. } = item.content
            && let Some(named) = self.named.get_mut(&(shard, place))
        {
            *named = key.to_vec();
        }
    }
}

impl Salvage<'_> {
    /// Looks at all slots of a slab.
    fn look_at(&mut self, name: FileName, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let failed = |e| Error::io("read a slab", e).in_file(name);
        let Some((shard, class)) = slab_of(name.number()) else { return Ok(()) };
        let file = self.disk.open(name).map_err(failed)?;
        let mut page = aligned(PAGE_BYTES);
        let len = scan::read_pages(&*file, 0, &mut page).map_err(failed)?;
        let Some(id) = self.identity(&page[..len], name, shard, class) else { return Ok(()) };
        // The last one may be there in part.
        let end = file.len().map_err(failed)? + class.block_bytes() as u64 - 1;
        let blocks = class.blocks_in(end);
        let mut buffer = aligned(class.block_bytes());
        for block in 0..blocks {
            progress(class.block_bytes() as u64);
            if let Err(e) = read_block(&*file, class, block, &mut buffer) {
                self.lose(name, class.block_offset(block), &format!("it cannot be read: {e}"));
                continue;
            }
            let first = block * class.slots_a_block();
            for slot in first..first + class.slots_a_block() {
                let begin = class.offset_in_block(slot);
                self.take(name, id, shard, class, slot, &buffer[begin..begin + class.slot_bytes()]);
            }
        }
        Ok(())
    }

    fn take(&mut self, name: FileName, id: FileIdentity, shard: u32, class: Class, slot: u64, bytes: &[u8]) {
        let place = Place::new(class.number(), slot);
        let counts = self.counted.as_mut().map(|counted| counted.remove(&(shard, place)));
        if counts == Some(false) && self.behind.is_none() {
            return;
        }
        let offset = class.slot_offset(slot);
        let item = match Item::decode(bytes, id, offset) {
            Decoded::Item(item) => item,
            Decoded::Empty if counts == Some(true) => return self.lose(name, offset, "a row is missing"),
            Decoded::Bad(why) if counts == Some(true) => return self.lose(name, offset, why),
            Decoded::Empty | Decoded::Bad(_) => return,
        };
        if let Some(behind) = &mut self.behind {
            behind.note(shard, place, &item);
            if counts == Some(false) {
                return behind.take(shard, place, &item);
            }
        }
        let Content::Value { key, .. } = item.content else {
            if counts == Some(true) {
                self.lose(name, offset, "there is something else where a row is");
            }
            return;
        };
        let newest = Newest { version: item.version, shard, place };
        let entry = self.found.entry(key.to_vec()).or_insert(newest);
        if entry.version < newest.version {
            *entry = newest;
        }
    }

    /// Applies what counts behind the cut, as an open does: whole batches, in the order of their versions.
    fn apply_behind(&mut self) {
        let Some(Behind { items, named, .. }) = self.behind.take() else { return };
        for (version, batch) in items {
            if batch.iter().any(|(_, item)| item.batch_len as usize != batch.len()) {
                continue;
            }
            for (shard, item) in batch {
                match item.content {
                    Owned::Value { key } => {
                        self.found.insert(key, Newest { version, shard, place: item.place });
                    }
                    Owned::Tombstone { place } => {
                        if let Some(key) = named.get(&(shard, place))
                            && self.found.get(key).is_some_and(|row| (row.shard, row.place) == (shard, place))
                        {
                            self.found.remove(key);
                        }
                    }
                    Owned::RangeDelete { range } => self.found.retain(|key, _| !range.contains(key)),
                }
            }
        }
    }

    /// The identity that salts what the slab has: the root knows it, or else its own first page tells it.
    /// None if nothing does, or if the slab is of another store.
    fn identity(&mut self, page: &[u8], name: FileName, shard: u32, class: Class) -> Option<FileIdentity> {
        let told = identity(page, name);
        let is_in = |(of, place): &(u32, Place)| (*of, place.class()) == (shard, class.number());
        let first = (shard, Place::new(class.number(), 0));
        if self.counted.as_ref().is_some_and(|counted| !counted.range(first..).next().is_some_and(is_in)) {
            // No row of the last cut is in it: its making may have been cut short, as an open takes it.
            return told.filter(|told| Some(told.store_id) == self.store_id);
        }
        let Some(store_id) = self.store_id else {
            if told.is_none() {
                self.lose(name, 0, "the first page is damaged, so its rows are not known");
            }
            return told;
        };
        let id = FileIdentity { store_id, number: name.number() };
        match told {
            Some(told) if told != id => {
                self.lose(name, 0, "the file is of another store");
                return None;
            }
            Some(_) => {}
            None => self.lose(name, 0, "the first page is damaged"),
        }
        Some(id)
    }

    /// Slots that count, and that no slab has: its file is missing, too short, or of another store.
    fn lose_what_is_not_there(&mut self) {
        let mut missing: BTreeMap<(u32, u8), (u64, u64)> = BTreeMap::new();
        for (shard, place) in std::mem::take(&mut self.counted).unwrap_or_default() {
            let entry = missing.entry((shard, place.class())).or_insert((place.slot(), 0));
            entry.1 += 1;
        }
        for ((shard, class), (first, rows)) in missing {
            let class = Class::new(class).expect("a place is of a class");
            let message = format!("the file does not have the slots of {rows} rows from here on");
            self.lose(slab_name(shard, class), class.slot_offset(first), &message);
        }
    }

    fn lose(&mut self, name: FileName, offset: u64, message: &str) {
        self.report.losses.push(Damage {
            what: "checksum".to_string(),
            file: Some(name.to_string()),
            offset: Some(offset),
            range: Some(KeyRange::all()),
            message: message.to_string(),
        });
    }

    /// Reads the rows again that were found, in the order of keys.
    fn save(&mut self, save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>) -> Result<()> {
        for (key, newest) in std::mem::take(&mut self.found) {
            let class = newest.place.size_class();
            let name = slab_name(newest.shard, class);
            let failed = |e| Error::io("read a slab", e).in_file(name);
            let file = self.disk.open(name).map_err(failed)?;
            let mut block = aligned(class.block_bytes());
            let slot = newest.place.slot();
            read_block(&*file, class, class.block_of(slot), &mut block).map_err(failed)?;
            let begin = class.offset_in_block(slot);
            let item = Item::decode_verified(&block[begin..begin + class.slot_bytes()]);
            if let Ok(Some(Item { content: Content::Value { value, .. }, .. })) = item {
                save(Salvaged::Row(&key, value))?;
                self.report.rows += 1;
                self.report.bytes += (key.len() + value.len()) as u64;
            }
        }
        Ok(())
    }
}

/// Reads a block; what the file does not have is zeros, which are no item.
fn read_block(file: &dyn File, class: Class, block: u64, buffer: &mut [u8]) -> io::Result<()> {
    let len = file.read_full_at(class.block_offset(block), buffer)?;
    buffer[len..].fill(0);
    Ok(())
}

/// What was read; none if it is damaged.
fn sound<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == ErrorKind::Corrupted => Ok(None),
        read => read.map(Some),
    }
}

/// The identity that a slab's own first page tells.
fn identity(page: &[u8], name: FileName) -> Option<FileIdentity> {
    let id = kvilt_format::read_identity(page, name).ok()?;
    kvilt_format::slab::check_slab_header(page, id).ok()?;
    (id.number == name.number()).then_some(id)
}
