//! Opening a store: its sorted tables as the catalogue names them, and the redo log read into memory tables.
//!
//! What is always true: nothing is changed before all of it was read and found right.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use kvilt_base::{
    Disk, EntryRef, Error, ErrorKind, FileName, KeyRange, Kind, Level, Listed, RangeTombstone, Result,
    Settings, Version, World,
    directory::{self, DirectoryLock},
    disk::Habitat,
    engine_name, planted,
    unfinished::{not_empty, refuse_unfinished},
};
use kvilt_format::{
    levels::Levels,
    names::{LEVEL_KINDS, LEVELS, REDO, TABLE},
    redo::{Change, Changes},
};
use kvilt_sync::{Versions, tombstones::Tombstones};

use crate::{
    NAME, Options,
    catalogue::{self, Catalogue},
    install::describe,
    log::{self, Chain, Known, Log, Position},
    options::log_sizes,
    sizing::{Room, Sizing},
    sources::{Memory, Sorted, Sources, open_table},
    store::Store,
    worker::{Flusher, Merger, Syncer},
};

/// An open has the log's rows flushed if its segments leave as much room unused, in segments.
const UNUSED_SEGMENTS_MAX: u64 = 4;

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
    let begun = world.clock.now();
    let listed = directory::list(&*disk)?;
    directory::refuse_strange(&listed, LEVEL_KINDS)?;
    if !settings.is_unfinished {
        refuse_unfinished(&listed, &disk.place())?;
    }
    let levels = match catalogue::newest(&*disk, &listed) {
        // A making that was cut short: other files are made only after the first catalogue is durable.
        Err(error) if error.kind() == ErrorKind::Corrupted && !has_rows(&listed) => None,
        newest => newest?,
    };
    let levels = match levels {
        Some(levels) => {
            engine_name::expect(&*disk, NAME)?;
            levels
        }
        None => {
            allow_making(&*disk, &listed, settings)?;
            directory::sign(&*disk, &lock)?;
            make(&*disk, world, &listed)?
        }
    };
    let levels = Levels { last_file: last_file(&listed, &levels), ..levels };
    let opening = Opening { disk: &disk, world, options, settings, levels };
    let store = opening.open(&lock)?;
    let micros = world.clock.now().saturating_sub(begun).as_micros();
    store.counters.open_us.store(micros as u64, Relaxed);
    Ok((store, lock))
}

/// The highest number that a table or a catalogue has: what was cut short may have a higher one than the
/// catalogue knows.
fn last_file(listed: &[Listed], levels: &Levels) -> u64 {
    let numbers = directory::numbers(listed, TABLE).chain(directory::numbers(listed, LEVELS));
    numbers.fold(levels.last_file, u64::max)
}

/// Whether there are files that hold rows.
fn has_rows(listed: &[Listed]) -> bool {
    directory::numbers(listed, TABLE).chain(directory::numbers(listed, REDO)).next().is_some()
}

fn allow_making(disk: &dyn Disk, listed: &[Listed], settings: &Settings) -> Result<()> {
    let place = disk.place();
    if has_rows(listed) {
        let message = "there are tables or logs, but no catalogue: a store without it";
        return Err(Error::corrupted(FileName::Of(LEVELS, 1), 0, message));
    }
    if !settings.create || settings.read_only {
        return Err(Error::invalid(format!("there is no store in {place}")));
    }
    let is_free = |item: &Listed| match item {
        Listed::Ours(FileName::LOCK | FileName::UNFINISHED | FileName::ENGINE) => true,
        // What a making left that was cut short.
        Listed::Ours(name) => name.kind() == LEVELS,
        Listed::Foreign(_) => false,
    };
    if listed.iter().all(is_free) { Ok(()) } else { Err(not_empty(&place)) }
}

/// Makes an empty store, durably.
fn make(disk: &dyn Disk, world: &World, listed: &[Listed]) -> Result<Levels> {
    engine_name::write(disk, NAME)?;
    disk.sync_dir().map_err(|e| Error::io("make a store", e).in_file(FileName::ENGINE))?;
    for number in directory::numbers(listed, LEVELS) {
        let name = FileName::Of(LEVELS, number);
        disk.remove(name).map_err(|e| Error::io("make a store", e).in_file(name))?;
    }
    let number = 1;
    let levels = Levels {
        store_id: world.rng.next_u64(),
        number,
        epoch: 0,
        level: Level::Async,
        habitat: Habitat::NOWHERE,
        last_file: number,
        log_first: 1,
        log_synced: (1, 0),
        levels: Vec::new(),
        tombstones: Vec::new(),
    };
    catalogue::write(disk, number, &levels.encode(), &mut false)?;
    Ok(levels)
}

struct Opening<'o> {
    disk: &'o Arc<dyn Disk>,
    world: &'o World,
    options: &'o Options,
    settings: &'o Settings,
    levels: Levels,
}

impl Opening<'_> {
    fn open(self, lock: &DirectoryLock) -> Result<Arc<Store>> {
        let Opening { disk, world, options, settings, ref levels } = self;
        let habitat = Habitat::of(&**disk);
        // Whether nothing can be missing of what the last run did.
        let is_whole = levels.habitat != Habitat::NOWHERE && levels.habitat == habitat;
        let is_whole = planted!(TornPassedAfterPowerCut, is_whole => true);
        let sizing = Sizing::new(world.budget.bytes_max(), options, self.hash_key());
        let table = sizing.table(Room::default())?;
        let bounds = (levels.log_first, Version::ZERO);
        let sources = self.sources(Arc::new(Memory::new(table, 1, bounds, &world.budget)))?;
        let newest = sources.sorted().map(|sorted| sorted.table.version_max()).max().unwrap_or_default();
        // Above all versions that earlier runs gave out.
        let epoch =
            levels.epoch.max(newest.epoch()) + planted!(EpochNotRaised, 1 => u32::from(levels.epoch == 0));
        let versions = Versions::new(Version::new(epoch, 0));
        let catalogue = Catalogue::new(Arc::clone(disk), levels.clone());
        let store = Arc::new(Store::new(
            (Arc::clone(disk), world),
            (settings.clone(), options.clone()),
            versions,
            catalogue,
            (sources, sizing),
        ));
        let chain = self.replay(&store, is_whole)?;
        if !settings.read_only {
            directory::sign(&**disk, lock)?;
            self.begin(&store, chain, epoch, habitat)?;
            let spawn = &world.spawn;
            // In this order, see `FLUSHER`.
            let workers = vec![
                spawn.spawn("flusher", Box::new(Flusher::new(&store))),
                spawn.spawn("merger", Box::new(Merger::new(&store))),
                spawn.spawn("syncer", Box::new(Syncer::new(&store))),
            ];
            let _ = store.workers.set(workers);
            store.wake();
        }
        Ok(store)
    }

    /// The sources as the catalogue says, with this active table.
    fn sources(&self, active: Arc<Memory>) -> Result<Sources> {
        let levels = &self.levels;
        let open = |of: &kvilt_format::levels::TableOf| {
            let table = open_table(&**self.disk, levels.store_id, of)?;
            Ok(Arc::new(Sorted::new(of.clone(), table, 0, &self.world.budget)))
        };
        let level = |tables: &Vec<_>| tables.iter().map(open).collect::<Result<Vec<_>>>();
        let mut tombstones = Tombstones::default();
        levels.tombstones.iter().for_each(|tombstone| tombstones.push_old(tombstone));
        Ok(Sources {
            active,
            sealed: Vec::new(),
            cached: Vec::new(),
            levels: levels.levels.iter().map(level).collect::<Result<_>>()?,
            tombstones: Arc::new(tombstones),
        })
    }

    fn hash_key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        for half in key.chunks_exact_mut(8) {
            half.copy_from_slice(&self.world.rng.next_u64().to_le_bytes());
        }
        key
    }

    /// Reads the log into memory tables.
    fn replay(&self, store: &Store, is_whole: bool) -> Result<Chain> {
        let (sequence, offset) = self.levels.log_synced;
        let known = Known { first: self.levels.log_first, synced: Position { sequence, offset }, is_whole };
        log::replay(&**self.disk, self.levels.store_id, known, &mut |replayed| apply(store, replayed.changes))
    }

    /// Begins this run: the log behind what earlier runs left, and a catalogue that says which run it is.
    fn begin(&self, store: &Arc<Store>, chain: Chain, epoch: u32, habitat: Habitat) -> Result<()> {
        // The catalogue that was found may be one that a killed process did not sync; nothing else may be
        // changed before one is durable that says the same.
        planted!(UnneededRemovedEarly => self.remove_unneeded(&self.levels)?);
        store.catalogue.lock().renew()?;
        // On a full disk there may be no other room for what comes next.
        self.remove_unneeded(store.catalogue.lock().levels())?;
        let log = Log::begin(
            Arc::clone(self.disk),
            self.levels.store_id,
            log_sizes(self.world.budget.bytes_max()),
            chain,
        )?;
        log.sync()?;
        let synced = log.synced();
        let _ = store.log.set(log);
        self.let_go_of_log(store, synced)?;
        let (sources, level) = (store.sources_now(), store.level());
        store.with_room(|| {
            store.catalogue.lock().change(|levels| {
                describe(&sources, levels);
                levels.log_synced = (synced.sequence, synced.offset);
                (levels.epoch, levels.level, levels.habitat) = (epoch, level, habitat);
            })
        })?;
        let log_first = store.catalogue.lock().levels().log_first;
        store.log.get().iter().for_each(|log| log.free_until(log_first));
        flush_short_segments(store)
    }

    /// A store that is opened again and again does not keep the logs of all its runs: if no row came from
    /// them they are not needed. If they are long, or this run had to begin in a file of the reserve, their
    /// rows are to be flushed.
    fn let_go_of_log(&self, store: &Store, end: Position) -> Result<()> {
        let sources = store.sources_now();
        if !sources.active.table.is_empty() || !sources.sealed.is_empty() {
            let is_short = store.is_short() && sources.sealed.is_empty();
            return match is_short || store.is_overlong(&sources, end) {
                true => store.rotate_unannounced(&sources.active, Room::default()),
                false => Ok(()),
            };
        }
        let table = store.next_table(Room::default())?;
        let bounds = (end.sequence, store.versions.current());
        let memory = Memory::new(table, sources.active.number + 1, bounds, &store.budget);
        store.change_sources(|sources| sources.active = Arc::new(memory));
        Ok(())
    }

    /// Removes tables that a flush or a merge left that was cut short, and older catalogues. Only behind a
    /// catalogue of this run: the one that was found may be one that a killed process did not sync, and then
    /// a power cut brings the one before back, with its tables.
    fn remove_unneeded(&self, levels: &Levels) -> Result<()> {
        let needed: BTreeSet<u64> = levels.levels.iter().flatten().map(|table| table.number).collect();
        for listed in directory::list(&**self.disk)? {
            let is_unneeded = match listed {
                Listed::Ours(FileName::Of(kind, number)) if kind == TABLE => !needed.contains(&number),
                Listed::Ours(FileName::Of(kind, number)) if kind == LEVELS => number != levels.number,
                _ => false,
            };
            if let Listed::Ours(name) = listed
                && is_unneeded
            {
                self.disk
                    .remove(name)
                    .map_err(|e| Error::io("remove what is not needed", e).in_file(name))?;
            }
        }
        Ok(())
    }
}

/// Sees to it that the log's segments of earlier runs go if much of their room is not used, or the disk is
/// full: few rows are flushed now, more of them behind the open. So a program that opens the store for each
/// write does not fill the disk.
///
/// Errors: those of a flush, but for want of room: then the background tries again.
fn flush_short_segments(store: &Store) -> Result<()> {
    let segment_bytes = log_sizes(store.budget.bytes_max()).segment_bytes;
    let unused_bytes = store.log.get().map_or(0, Log::unused_bytes);
    if !store.is_short() && unused_bytes < UNUSED_SEGMENTS_MAX * segment_bytes {
        return Ok(());
    }
    let sources = store.sources_now();
    let used_bytes: usize = sources.unflushed().map(|memory| memory.table.fill().used_bytes).sum();
    if !sources.active.table.is_empty() {
        store.rotate_unannounced(&sources.active, Room::default())?;
    }
    let are_few = used_bytes as u64 <= segment_bytes;
    while are_few && has_flushed(store)? {}
    Ok(())
}

/// Flushes a table. Whether there was one, and room for it.
fn has_flushed(store: &Store) -> Result<bool> {
    match store.with_room(|| store.flush_oldest()) {
        Err(error) if error.kind() == ErrorKind::NoSpace => Ok(false),
        flushed => flushed,
    }
}

/// Applies a record of the log.
fn apply(store: &Store, changes: Changes<'_>) -> Result<()> {
    let mut room = Room::default();
    for change in changes.clone() {
        match change {
            Change::Put { key, value } => room.add(key, Some(value)),
            Change::Delete { key } => room.add(key, None),
            Change::DeleteRange { .. } => {}
        }
    }
    store.make_large_room(room)?;
    for change in changes {
        let version = store.versions.current();
        match change {
            Change::Put { key, value } => {
                store.put_to_table(EntryRef { key, version, kind: Kind::Put, value }, 0)?;
            }
            Change::Delete { key } => {
                store.put_to_table(EntryRef { key, version, kind: Kind::Tombstone, value: &[] }, 0)?;
            }
            Change::DeleteRange { start, end } => {
                store.versions.advance();
                let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
                store.add_tombstone(&RangeTombstone { range, version: store.versions.current() });
            }
        }
    }
    Ok(())
}
