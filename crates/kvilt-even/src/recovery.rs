//! Open and recovery (EvenDB §3.5): the manifest is read, and nothing else.
//!
//! Chunks are metadata: their files are opened when they are first read. What a crash left behind the last
//! checkpoint is not undone but ignored: bytes behind a log's durable length are never read, and versions
//! between the checkpoint and the new epoch are dead. Only at level sync a log is replayed, the
//! commit log, and that is bounded by one checkpoint interval.
//!
//! Opening changes nothing on disk that matters, so a crash during an open is as if it had not been tried.
//! What can make it fail is found before anything is changed; only a disk that refuses a write comes later.
//! An open that is to read only ends there: what commit logs hold it replays into memory, and nothing else is
//! done to what a crash left.
//!
//! * **B-7** An open that is refused for what it finds, and a store that is open to be read only, changes no
//!   file, and makes and removes none; and who only reads sees all that another open would show, or is
//!   refused.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kvilt_base::{
    Disk, Error, ErrorKind, FileName, KeyRange, Listed, Result, Version, World,
    directory::{self, DirectoryLock, len_of, lock, lock_to_read, sign},
    engine_name, mutant, planted,
    unfinished::refuse_unfinished,
};
use kvilt_format::{
    manifest::{Edit, ManifestWriter, PartKind, Root, Witness, read_root},
    names::{COMMIT, JOURNAL, LOG, MANIFEST, MANIFEST_TEMP, POOL, RESERVE, TABLE, WITNESS},
};
use kvilt_sync::{published::Published, row_cache::RowCache, versions::Versions};
use parking_lot::Mutex;

use self::killed::Killed;
use crate::{
    NAME,
    checkpoint::Checkpoint,
    chunk::{Chunk, ChunkState, Heat, ledger::Ledger},
    commit::CommitLog,
    files::{DeadVersions, Files, Hold},
    funk::{Funk, Part, PartFile, log::ChunkLog, table_file::TableFile, unsynced::UnsyncedTables},
    index::ChunkIndex,
    journal::{self, Journals},
    munk::{ChargedRun, Munk, run::Run},
    mutants,
    options::{Config, Options},
    poison::Poison,
    pool::Pool,
    rebalance::{MunkRoom, RowRoom, Space},
    reserve::Reserve,
    rest::Rest,
    stats::Counters,
    store::{Attention, ProgressSignal, Store, Structure},
};
use kvilt_sync::tombstones::Tombstones;

/// Opens the store in `disk`, or makes one.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    world: World,
    options: &Options,
) -> Result<(Arc<Store>, DirectoryLock)> {
    let opened_at = world.clock.now();
    let config = options.check(world.budget.bytes_max())?;
    refuse_strangers(&*disk, options)?;
    let lock = if config.is_read_only { lock_to_read(&*disk)? } else { lock(&*disk)? };
    let listed = directory::list(&*disk)?;
    if directory::numbers(&listed, MANIFEST).next().is_some() {
        engine_name::expect(&*disk, NAME)?;
    }
    let found = read_root(&*disk)?;
    refuse_false_reserve(&listed)?;
    let is_new = found.is_none();
    let (root, witness) = match found {
        Some(found) => found,
        None => {
            // Asked before the lock already; but what was there then may be gone, and something may have
            // come.
            refuse_strangers(&*disk, options)?;
            sign(&*disk, &lock)?;
            make(&*disk, &world)?
        }
    };
    let is_pooled = CommitLog::of_level(config.durability).is_none() && !config.is_read_only;
    let killed = if is_new { None } else { killed::find(&*disk, &root, &listed, config.is_read_only)? };
    let living = killed.as_ref().map_or(&root, |killed| &killed.root).clone();
    let mut leftovers = Leftovers::find(&living, &listed, &*disk)?;
    leftovers.next_file = leftovers.next_file.max(living.next_file);
    // What only the manifest names goes with the next checkpoint.
    leftovers
        .orphans
        .retain(|name| !matches!(name, FileName::Of(TABLE | LOG, n) if root.files.contains_key(n)));
    let epoch_base = killed.as_ref().map(|killed| (killed.epoch_base, killed.root.dead.clone()));
    let mut store =
        of_root(disk, world, config, (root, witness, is_new), (&leftovers, epoch_base), opened_at);
    if is_pooled {
        store.files.pool = Some(store.new_pool());
    }
    store.index.replace(store.recovered_index(&living)?);
    let mut relied_on = Vec::new();
    match &killed {
        Some(killed) if store.config.is_read_only => store.show_in_memory(killed),
        // Without a journal of its own, this run relies on the killed one's until its first checkpoint.
        Some(killed) if !store.go_on_for(killed)? => relied_on = leftovers.take_left_by_killed(),
        Some(_) | None => {}
    }
    // Nor does a journal tell anything before the first checkpoint where there are commit logs to replay.
    let needs_checkpoint = !relied_on.is_empty() || is_pooled && !leftovers.commit_logs.is_empty();
    let bytes_to_replay = store.survey(&leftovers.commit_logs)?;
    if store.config.is_read_only {
        store.allow_replay_in_memory(bytes_to_replay)?;
    } else {
        if !is_new {
            sign(&*store.files.disk, &lock)?;
        }
        store.files.leave(leftovers.make_way(&*store.files.disk, &listed, is_new)?);
        if store.files.reserve.is_short() {
            // Whoever puts next may need their room.
            while store.files.remove_leftover() {}
        }
    }
    store.replay(&leftovers.commit_logs)?;
    if is_new {
        store.give_first_munk();
    }
    if needs_checkpoint && !store.config.is_read_only {
        match store.checkpoint_now(false) {
            Ok(()) => relied_on.iter().for_each(|name| drop(store.files.disk.remove(*name))),
            // It can be opened all the same; until there is room, what was there before stays.
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            Err(error) => return Err(error),
        }
    }
    let open_us = (store.world.clock.now() - opened_at).as_micros() as u64;
    store.open_us.store(open_us, Ordering::Relaxed);
    Ok((Arc::new(store), lock))
}

/// Where the versions of a killed run began, and which were dead in it.
type Epoch = (Version, Vec<(Version, Version)>);

/// The store that a root describes. Its chunks are still to come; nothing is read or written.
fn of_root(
    disk: Arc<dyn Disk>,
    world: World,
    config: Config,
    (root, witness, is_new): (Root, Witness, bool),
    (leftovers, killed): (&Leftovers, Option<Epoch>),
    opened_at: Duration,
) -> Store {
    let (epoch_base, dead) = match killed {
        // Nothing was lost, so nothing more is dead than was.
        Some((epoch_base, dead)) => (planted!(EpochBegunAgain, epoch_base.next_epoch() => epoch_base), dead),
        None => next_epoch(&root, is_new),
    };
    let journals =
        Journals::new(root.checkpoint, epoch_base, dead.clone(), !leftovers.commit_logs.is_empty());
    let counters = Arc::<Counters>::default();
    counters.torn_tails.add(leftovers.torn_tails);
    let next_file = root.next_file.max(leftovers.next_file);
    let next_file = planted!(NumberReused, next_file => root.next_file);
    let reserve = Reserve::found(Arc::clone(&disk), config.reserve_bytes_max, leftovers.reserve_bytes);
    let mut files = Files::new(
        disk,
        root.store_id,
        next_file,
        DeadVersions(dead.clone()),
        reserve,
        &world,
        counters.clone(),
    );
    files.is_read_only = config.is_read_only;
    files.log_piece_bytes = config.log_piece_bytes;
    files.streamed_bytes_min = config.streamed_bytes_min;
    files.summary_rule = config.summary_rule;
    let commit = if config.is_read_only { None } else { CommitLog::of_level(config.durability) };
    Store {
        versions: Versions::new(epoch_base),
        index: Published::new(ChunkIndex::new(Vec::from_iter(first_chunk_placeholder()))),
        structure: Mutex::new(Structure { changed: BTreeSet::new(), journals }),
        checkpoint: Checkpoint::new(
            (root, witness),
            dead,
            !leftovers.commit_logs.is_empty(),
            opened_at.as_micros() as u64,
        ),
        commit,
        munk_room: MunkRoom::new(config.budget_bytes),
        space: Space::default(),
        row_cache: RowCache::new(config.row_cache_bytes as usize),
        row_room: Mutex::new(RowRoom::new(&world.budget, config.row_cache_bytes)),
        counters,
        poison: Poison::default(),
        dirty: Mutex::default(),
        unsynced_tables: UnsyncedTables::default(),
        attention: Attention::default(),
        progress: ProgressSignal::default(),
        rest: Rest::default(),
        hands: Mutex::default(),
        epoch_base,
        open_us: AtomicU64::new(0),
        next_id: AtomicU64::new(1),
        config,
        world,
        files,
    }
}

/// A directory with something in it, but no manifest, is not ours.
fn refuse_strangers(disk: &dyn Disk, options: &Options) -> Result<()> {
    let listed = directory::list(disk)?;
    if !options.settings.is_unfinished {
        refuse_unfinished(&listed, &disk.place())?;
    }
    if directory::numbers(&listed, MANIFEST).next().is_some() {
        return Ok(());
    }
    if let Some(name) = listed.iter().find_map(file_of_rows) {
        let message = format!("{} holds files of a store, but its manifest is missing", disk.place());
        return Err(Error::corrupted(name, 0, message));
    }
    let is_harmless = |l: &Listed| {
        matches!(
            l,
            Listed::Ours(
                FileName::LOCK
                    | FileName::ENGINE
                    | FileName::UNFINISHED
                    | WITNESS
                    | RESERVE
                    | FileName::Of(MANIFEST_TEMP, _)
            )
        )
    };
    if let Some(stranger) = listed.iter().find(|l| !is_harmless(l)) {
        let name = match stranger {
            Listed::Ours(name) => name.to_string(),
            Listed::Foreign(name) => name.clone(),
        };
        let place = disk.place();
        return Err(Error::invalid(format!(
            "{place} is not a Kvilt store: it has no manifest, but contains {name:?}"
        )));
    }
    allow_making(disk, options)
}

fn allow_making(disk: &dyn Disk, options: &Options) -> Result<()> {
    if options.settings.create && !options.settings.read_only {
        return Ok(());
    }
    Err(Error::invalid(format!("there is no store in {}, and it was not to be made", disk.place())))
}

/// Nobody would read it; but what bears a name of ours and is no file of ours is damage, whichever it is.
fn refuse_false_reserve(listed: &[Listed]) -> Result<()> {
    if listed.contains(&Listed::Foreign(RESERVE.to_string())) {
        return Err(Error::corrupted(RESERVE, 0, "it is not a regular file"));
    }
    Ok(())
}

/// The name of a file with rows, which only a store with a manifest can have made.
fn file_of_rows(listed: &Listed) -> Option<FileName> {
    match listed {
        Listed::Ours(name) if has_rows(*name) => Some(*name),
        Listed::Ours(_) | Listed::Foreign(_) => None,
    }
}

fn has_rows(name: FileName) -> bool {
    matches!(name, FileName::Of(TABLE | LOG | COMMIT, _))
}

fn make(disk: &dyn Disk, world: &World) -> Result<(Root, Witness)> {
    let root = Root::new(world.rng.next_u64());
    // First the name and the witness, so that a manifest never is without them.
    engine_name::write(disk, NAME)?;
    let witness = Witness::create(disk, root.store_id)?;
    ManifestWriter::create(disk, &root)?;
    Ok((root, witness))
}

/// Where this run's versions begin, and the recovery table with the last run entered.
fn next_epoch(root: &Root, is_new: bool) -> (Version, Vec<(Version, Version)>) {
    let mut dead = root.dead.clone();
    planted!(CheckpointWithoutEpoch => return (root.checkpoint.next(), dead));
    if root.is_clean {
        // Nothing was written behind the checkpoint: the epoch goes on.
        return (root.checkpoint.next(), dead);
    }
    let base = root.checkpoint.next_epoch();
    if !is_new {
        dead.push((root.checkpoint, base));
    }
    (base, dead)
}

/// After a kill, what can be read may not be durable yet. Before anything is done that relies on it —
/// removing what it replaces, showing what it says to a reader, adding to it — it is made so.
fn make_visible_durable(disk: &dyn Disk, listed: &[Listed]) -> Result<()> {
    let Some(newest) = directory::numbers(listed, MANIFEST).max() else { return Ok(()) };
    let name = FileName::Of(MANIFEST, newest);
    let manifest = disk.open(name).and_then(|file| file.sync());
    manifest.map_err(|e| Error::io("sync the manifest", e).in_file(name))?;
    disk.sync_dir().map_err(|e| Error::io("sync the directory", e).in_file(disk.place()))
}

/// What is in the directory besides what the manifest names.
#[derive(Default)]
struct Leftovers {
    /// Files of a run that no checkpoint of it came to name. Only removed once what the manifest names is
    /// durable.
    orphans: Vec<FileName>,
    next_file: u64,
    torn_tails: u64,
    /// To be replayed, in order.
    commit_logs: Vec<u64>,
    reserve_bytes: u64,
}

impl Leftovers {
    fn find(root: &Root, listed: &[Listed], disk: &dyn Disk) -> Result<Self> {
        let mut left = Leftovers::default();
        let newest_manifest = directory::numbers(listed, MANIFEST).max();
        for entry in listed {
            let Listed::Ours(name) = *entry else { continue };
            if name == RESERVE {
                left.reserve_bytes = len_of(disk, name)?;
            }
            let is_orphan = match name {
                // One without room is what a crash left of one that was being made.
                RESERVE => left.reserve_bytes == 0,
                FileName::Of(MANIFEST, n) => Some(n) != newest_manifest,
                FileName::Of(MANIFEST_TEMP, _) => true,
                FileName::Of(TABLE | LOG, n) => !root.files.contains_key(&n),
                FileName::Of(COMMIT, n) if mutant(&mutants::LiveOrphan) => n <= root.commit_first,
                FileName::Of(COMMIT, n) => n < root.commit_first,
                // What counts of them is in this run's by then.
                FileName::Of(JOURNAL | POOL, _) => true,
                // What the store has once; and what another engine might have, which this one never makes.
                FileName::Once(_) | FileName::Of(..) => false,
            };
            if has_rows(name) || matches!(name, FileName::Of(JOURNAL | POOL, _)) {
                left.next_file = left.next_file.max(name.number() + 1);
            }
            if is_orphan {
                left.orphans.push(name);
            } else if let FileName::Of(COMMIT, number) = name {
                left.commit_logs.push(number);
            }
        }
        left.commit_logs.sort_unstable();
        left.measure_open_logs(root, disk);
        Ok(left)
    }

    /// Only the last file of a chunk can have been its open log when the checkpoint was taken: what came
    /// after it is an orphan. So no other is asked for its length; a chunk may have a dozen.
    fn measure_open_logs(&mut self, root: &Root, disk: &dyn Disk) {
        for number in root.chunks.values().filter_map(|numbers| numbers.last()) {
            let durable = &root.files[number];
            // One that is missing or cannot be asked is damage of its chunk, which whoever reads it tells.
            if durable.kind == PartKind::Log
                && let Ok(len) = disk.len(FileName::Of(LOG, *number))
            {
                self.torn_tails += u64::from(len > durable.len);
            }
        }
    }
}

impl Leftovers {
    /// What a killed process left besides rows, which is removed no more.
    fn take_left_by_killed(&mut self) -> Vec<FileName> {
        let is_left = |name: &FileName| matches!(name, FileName::Of(JOURNAL | POOL, _));
        let (left, orphans) = self.orphans.iter().copied().partition(is_left);
        self.orphans = orphans;
        left
    }

    /// Makes what can be read durable, and then removes orphans but for those that it gives.
    fn make_way(&self, disk: &dyn Disk, listed: &[Listed], is_new: bool) -> Result<Vec<FileName>> {
        planted!(OrphansRemovedEarly => self.orphans.iter().for_each(|name| drop(disk.remove(*name))));
        planted!(VisibleNotDurable => return Ok(self.remove_small_orphans(disk)));
        if !is_new {
            make_visible_durable(disk, listed)?;
        }
        Ok(self.remove_small_orphans(disk))
    }

    /// Removes what may be in the way of a new file, and gives what may be long, and has its name for itself.
    fn remove_small_orphans(&self, disk: &dyn Disk) -> Vec<FileName> {
        let (of_rows, small): (Vec<FileName>, Vec<FileName>) =
            self.orphans.iter().partition(|name| has_rows(**name));
        for name in small {
            // Harmless if it fails: the next open finds it again.
            let _ = disk.remove(name);
        }
        of_rows
    }
}

/// An index must have a chunk before the recovered ones can be built over the store's files.
fn first_chunk_placeholder() -> Option<Arc<Chunk>> {
    let state = ChunkState { munk: None, funk: Arc::default(), cold_id: 0 };
    Some(Chunk::new(0, KeyRange::all(), state, Heat::default(), Ledger::new(Some(0))))
}

impl Store {
    /// The chunks that the manifest names, without reading any of their files.
    fn recovered_index(&self, root: &Root) -> Result<ChunkIndex> {
        {
            let mut known: HashMap<u64, PartFile> = HashMap::with_capacity(root.files.len());
            for (&number, record) in &root.files {
                let file = match record.kind {
                    PartKind::Table => PartFile::Table(TableFile::new(
                        &self.files,
                        number,
                        record.len,
                        None,
                        Hold::default(),
                    )),
                    PartKind::Log => {
                        let (len, summary) = (record.len, record.summary);
                        PartFile::Log(ChunkLog::recovered(&self.files, (number, record.base), len, summary))
                    }
                };
                known.insert(number, file);
            }
            let ends = root.chunks.keys().skip(1).cloned().map(Some).chain([None]);
            let mut chunks = Vec::with_capacity(root.chunks.len());
            for ((start, numbers), end) in root.chunks.iter().zip(ends) {
                let parts = numbers.iter().map(|number| Part {
                    file: known[number].clone(),
                    share_bytes: root.files[number].len / u64::from(root.users(*number).max(1)),
                });
                let funk = Funk { parts: parts.collect(), log: None };
                let has_files = !funk.parts.is_empty();
                #[cfg(feature = "mutants")]
                let funk = self.reopened_if_planted(funk);
                let range = KeyRange { start: start.clone(), end };
                let state = ChunkState { munk: None, funk: Arc::new(funk), cold_id: self.next_id() };
                // How much of its files is live is counted when there is time.
                let ledger = Ledger::new((!has_files).then_some(0));
                chunks.push(Chunk::new(self.next_id(), range, state, Heat::default(), ledger));
            }
            Ok(ChunkIndex::new(chunks))
        }
    }

    /// The pool of this run; nothing is made yet.
    fn new_pool(&self) -> Pool {
        let id = self.files.identity(self.files.next_number());
        let run = self.world.rng.next_u64();
        Pool::new(Arc::clone(&self.files.disk), id, run, self.config.pool_bytes_max)
    }

    /// Shows what a killed process had buffered, without a file being written.
    fn show_in_memory(&self, killed: &Killed) {
        let pin = kvilt_sync::published::pin();
        for chunk in self.index.load(&pin).chunks() {
            for part in &chunk.state(&pin).funk.parts {
                if let PartFile::Log(log) = &part.file
                    && let Some((begin, bytes)) = killed.in_memory.get(&log.number())
                {
                    log.ends_in_memory(&self.files, *begin, bytes);
                }
            }
        }
    }

    /// Goes on where a killed process stopped: the next checkpoint makes durable what its would have, and
    /// until then this run's journal tells what its told. False if that cannot be begun.
    fn go_on_for(&self, killed: &Killed) -> Result<bool> {
        let pin = kvilt_sync::published::pin();
        let index = self.index.load(&pin);
        let durable = self.checkpoint.with_durable(Root::clone);
        let mut structure = self.structure.lock();
        let mut changes = Vec::new();
        for chunk in index.chunks() {
            let (first_key, funk) = (&chunk.range.start, &chunk.state(&pin).funk);
            let mut is_grown = killed.changed.contains(first_key);
            for part in &funk.parts {
                let len = durable.files.get(&part.number()).map_or(0, |record| record.len);
                is_grown |= self.is_to_be_synced(part, len)?;
            }
            if is_grown {
                changes.push(journal::chunk_has(&self.files, first_key, funk));
                structure.changed.insert(first_key.clone());
            }
        }
        for key in killed.changed.iter().filter(|key| index.starting_at(key).is_none()) {
            if durable.chunks.contains_key(key) {
                changes.push(Edit { chunks_removed: vec![key.clone()], ..Edit::default() });
            }
            structure.changed.insert(key.clone());
        }
        for (number, record) in
            durable.files.iter().filter(|(number, _)| !killed.root.files.contains_key(number))
        {
            self.files.know(record.kind.name(*number), &Hold::default());
        }
        self.files.has_unsynced_names();
        planted!(FoundNotNoted => return Ok(true));
        Ok(structure.journals.go_on_with(&self.files, &changes))
    }

    /// Whether a part has more than its first `durable` bytes; the next checkpoint syncs the rest.
    fn is_to_be_synced(&self, part: &Part, durable: u64) -> Result<bool> {
        planted!(FoundNotSynced => return Ok(true));
        match &part.file {
            PartFile::Table(table) if durable == 0 => {
                self.unsynced_tables.add(table, self.files.open(FileName::Of(TABLE, table.number()))?);
                Ok(true)
            }
            PartFile::Log(log) if durable < log.len() => {
                if log.becomes_dirty() {
                    log.is_durable_up_to(durable, self.files.open(FileName::Of(LOG, log.number()))?);
                    self.dirty.lock().push(Arc::clone(log));
                }
                Ok(true)
            }
            PartFile::Table(_) | PartFile::Log(_) => Ok(false),
        }
    }

    /// A new store's only chunk begins with an empty munk.
    fn give_first_munk(&self) {
        let pin = kvilt_sync::published::pin();
        let chunk = self.index.load(&pin).find(b"");
        let gate = chunk.gate();
        let state = chunk.state(&pin).clone();
        if state.funk.log.is_none() {
            let munk = Munk {
                run: ChargedRun::new(Run::empty(), &self.files.budget),
                tails: vec![self.new_tail(0, &Run::empty())],
                tombstones: Tombstones::none(),
                covered_bytes: 0,
            };
            chunk.replace_state(&gate, ChunkState { munk: Some(Arc::new(munk)), ..state });
        }
    }
}

mod killed;
#[cfg(feature = "mutants")]
mod planted;
