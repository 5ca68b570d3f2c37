//! Checkpoint: a durable, consistent cut while puts go on (EvenDB §3.5).
//!
//! 1. Where there is a commit log, in the order of its writes, so that a new one begins behind the cut
//!    (`commit.rs`). Under the structure lock: advance the global version (the *cut*) and note which chunks
//!    changed their files, and to what. So the cut and the set of files belong together.
//! 2. Wait for pending puts up to the cut; they take microseconds.
//! 3. Sync the tables that were written since the last checkpoint; write and sync every log that has unsynced
//!    bytes; sync the names of new files.
//! 4. Append one edit to the manifest — the cut, the files, their durable lengths — and sync it; write to the
//!    witness that it was synced. The witness is itself synced in step 3 of the next checkpoint, and at
//!    close.
//! 5. Remove files that the manifest no longer names and nobody reads.
//!
//! A rewritten funk thus becomes durable *together with* a cut that covers every version in it, and until
//! then the files it replaces stay. The paper keeps, in a rebalance, versions for active scans only; a crash
//! would then find neither the new version (above the last checkpoint) nor the old one (dropped). See
//! `docs/design/0003-checkpoint-is-the-root.md`.
//!
//! * **E-9** Every version in a table that the manifest names is at most the manifest's checkpoint.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kvilt_base::{Disk, Error, ErrorKind, FileName, Listed, Result, Version, planted};
use kvilt_format::{
    manifest::{Edit, FileRecord, ManifestWriter, PartKind, Root, Witness, read_root},
    names::{COMMIT, MANIFEST, WITNESS},
};
use kvilt_sync::published::{pin, settle};
use parking_lot::Mutex;

use crate::{
    commit::{CutOrder, Deed},
    funk::{
        Funk, Part, PartFile,
        log::ChunkLog,
        unsynced::{UnsyncedTable, sync_tables},
    },
    journal,
    pool::Pool,
    reserve::{TRIES_MAX, Use},
    store::Store,
};

/// So many logs have their syncs together; their descriptors cannot be closed until then.
const SYNCED_TOGETHER: usize = 64;
/// A manifest is written anew when it is this many times as long as it was when fresh …
const MANIFEST_GROWTH_MAX: u64 = 4;
/// … but not before it has this many bytes.
const MANIFEST_BYTES_MIN: u64 = 256 << 10;

/// What is durable, and how it is written down.
pub(crate) struct Durable {
    pub(crate) root: Root,
    /// None before the first checkpoint of this run, and after a failed write: then a fresh one is made.
    manifest: Option<ManifestWriter>,
    /// Has seen each manifest record that was synced.
    witness: Witness,
    fresh_bytes: u64,
    /// The recovery table as it should be.
    dead: Vec<(Version, Version)>,
    /// Number of the last checkpoint that succeeded.
    last_good: u64,
    /// Whether commit logs of an earlier run were replayed and are not yet covered by a checkpoint.
    has_old_commit_logs: bool,
}

/// The state of checkpoints.
pub(crate) struct Checkpoint {
    durable: Mutex<Durable>,
    /// Checkpoints begun so far.
    begun: AtomicU64,
    /// Whether the last left nothing to do for the next, as far as is known: what it wrote is proven, no file
    /// waits to be removed.
    is_settled: AtomicBool,
    /// When the last good one ended, in microseconds of the clock.
    pub(crate) ended_us: AtomicU64,
}

impl Checkpoint {
    /// Over what recovery found. `dead` is the recovery table with the crashed epoch entered.
    pub(crate) fn new(
        (root, witness): (Root, Witness),
        dead: Vec<(Version, Version)>,
        has_old_commit_logs: bool,
        now_us: u64,
    ) -> Self {
        let durable = Durable {
            root,
            witness,
            manifest: None,
            fresh_bytes: 0,
            dead,
            last_good: 0,
            has_old_commit_logs,
        };
        Checkpoint {
            durable: Mutex::new(durable),
            begun: AtomicU64::new(0),
            // Until something changes, what is on the disk is as good as what a checkpoint would write.
            is_settled: AtomicBool::new(!has_old_commit_logs),
            ended_us: AtomicU64::new(now_us),
        }
    }

    /// Whether the last left nothing to do for the next.
    pub(crate) fn is_settled(&self) -> bool {
        // Acquire: pairs with the stores of who makes one.
        self.is_settled.load(Ordering::Acquire)
    }

    /// Verifies manifest and witness on the disk; says how many bytes that were.
    pub(crate) fn verify(&self, disk: &dyn Disk) -> Result<u64> {
        let durable = self.durable.lock();
        durable.witness.verify()?;
        let Some((root, witness)) = read_root(disk)? else {
            return Err(Error::corrupted(WITNESS, 0, "manifest and witness are missing"));
        };
        // After a failed write the root in memory is ahead until a fresh manifest is made.
        if let Some(manifest) = &durable.manifest
            && root != durable.root
        {
            let message = "the manifest on the disk is not the one that was written";
            return Err(Error::corrupted(FileName::Of(MANIFEST, manifest.number()), 0, message));
        }
        Ok(witness.claim().len)
    }

    /// Looks at what is durable; no checkpoint runs meanwhile.
    pub(crate) fn with_durable<R>(&self, look: impl FnOnce(&Root) -> R) -> R {
        look(&self.durable.lock().root)
    }
}

/// What step 1 collects.
pub(crate) struct Cut {
    version: Version,
    /// First keys of changed chunks, with their funks of now; none if there is no such chunk any more. Not
    /// their munks: a cut lives as long as its checkpoint syncs, and would keep memory that was long since
    /// replaced.
    changed: BTreeMap<Vec<u8>, Option<Arc<Funk>>>,
    /// What was written since the last checkpoint: every new table of those funks, and maybe others.
    tables: Vec<UnsyncedTable>,
    /// Files with lower numbers were made before it.
    made_before: u64,
    /// Where the commit logs begin that hold what is behind this cut, if that changed.
    log_start: Option<LogStart>,
}

/// Where the commit logs begin that a checkpoint does not cover.
#[derive(Clone, Copy)]
pub(crate) struct LogStart {
    /// Those with smaller numbers are obsolete.
    pub(crate) first: u64,
    /// Whether there is one with this number.
    pub(crate) is_begun: bool,
}

impl Store {
    /// Makes durable everything that completed before this call. Concurrent callers share a checkpoint.
    pub(crate) fn checkpoint_now(&self, is_closing: bool) -> Result<()> {
        let begun_before = self.checkpoint.begun.load(Ordering::SeqCst);
        let mut durable = self.checkpoint.durable.lock();
        if durable.last_good > begun_before && !is_closing {
            // One that began after this call has covered it.
            return Ok(());
        }
        if let Some(cause) = self.poison.cause() {
            return Err(cause.clone());
        }
        let number = self.checkpoint.begun.fetch_add(1, Ordering::SeqCst) + 1;
        // By a panic it would forget which logs it took for its own.
        let half_done = self.poison.unless_done("a checkpoint");
        let result = self
            .run_checkpoint(&mut durable, is_closing)
            .or_else(|error| self.run_on_reserve(&mut durable, is_closing, error))
            .inspect(|()| self.keep_reserve(&durable.root));
        half_done.done();
        match &result {
            Ok(()) => {
                durable.last_good = number;
                let now = self.world.clock.now().as_micros() as u64;
                self.checkpoint.ended_us.store(now, Ordering::Relaxed);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Corrupted) => {
                planted!(NotPoisoned => return Err(error.clone()));
                self.poison.poison(error);
            }
            // A full disk, say: everything is still in memory, and the next checkpoint tries again.
            Err(_) => {}
        }
        result
    }

    /// Again, with the room of the reserve, if it was the disk that is full.
    fn run_on_reserve(&self, durable: &mut Durable, is_closing: bool, error: Error) -> Result<()> {
        let mut refused = error;
        for _ in 0..TRIES_MAX {
            if refused.kind() != ErrorKind::NoSpace {
                break;
            }
            self.forget_replaced_logs();
            let buffered: u64 = self.dirty.lock().iter().map(|log| log.buffered_bytes()).sum();
            let to = Use::Checkpoint { has_logs: buffered > 0 };
            let Some(lease) = self.files.reserve.give(to, buffered) else { break };
            match self.run_checkpoint(durable, is_closing) {
                Ok(()) => return Ok(()),
                Err(error) => refused = error,
            }
            if !lease.has_given {
                break;
            }
        }
        Err(refused)
    }

    /// Takes the logs off the list that rewrites have taken the place of: a checkpoint from here on names
    /// none of them, so what is left of them in memory needs no room.
    fn forget_replaced_logs(&self) {
        // In this order: a log that enters the list meanwhile is in use, and no log that was replaced comes
        // back.
        let mut replaced: HashSet<u64> = self.dirty.lock().iter().map(|log| log.number()).collect();
        let pin = pin();
        for chunk in self.index.load(&pin).chunks() {
            let funk = &chunk.state(&pin).funk;
            for number in funk.parts.iter().map(Part::number).chain(funk.log.iter().map(|log| log.number())) {
                replaced.remove(&number);
            }
        }
        self.dirty.lock().retain(|log| !replaced.contains(&log.number()));
    }

    /// Behind a checkpoint, which may have freed some room, or found the store grown.
    fn keep_reserve(&self, root: &Root) {
        self.files.reserve.keep(root.files.values().map(|record| record.len).sum());
    }

    /// Whether everything that this run was given is durable, so that nothing is lost if the last checkpoint
    /// cannot be written: the next open takes the store as after a crash.
    pub(crate) fn is_all_durable(&self) -> bool {
        let durable = self.checkpoint.durable.lock();
        !durable.has_old_commit_logs
            && self.counters.commit_bytes_written.sum() == 0
            && self.dirty.lock().is_empty()
            && self.structure.lock().changed.is_empty()
    }

    fn run_checkpoint(&self, durable: &mut Durable, is_closing: bool) -> Result<()> {
        let take_dirty = || std::mem::take(&mut *self.dirty.lock());
        let early = planted!(DirtyTakenEarly, Vec::new() => take_dirty());
        self.world.spawn.pause();
        let cut = self.cut_in_order(durable, is_closing)?;
        self.world.spawn.pause();
        self.versions.wait_for_pending(cut.version);
        let mut dirty = planted!(DirtyTakenEarly, take_dirty() => early);
        planted!(LogLeftOut => if dirty.len() > 1 { dirty.pop(); });
        let is_idle = dirty.is_empty()
            && cut.changed.is_empty()
            && cut.tables.is_empty()
            && !is_closing
            && cut.log_start.is_none();
        if is_idle && durable.manifest.is_some() {
            durable.witness.sync()?;
            self.files.pool.iter().for_each(|pool| pool.give_back(true));
            // What nobody could give up before may be given up by now.
            self.structure.lock().journals.checkpoint_failed(&self.files);
            let is_swept = self.sweep(durable, cut.made_before, false);
            self.checkpoint.is_settled.store(is_swept, Ordering::Release);
            return Ok(());
        }
        let synced = sync_tables(&cut.tables).and_then(|()| self.sync_logs(&dirty));
        let done = synced.and_then(|()| self.files.sync_names()).and_then(|()| {
            durable.witness.sync()?;
            let edit = self.edit(durable, &cut, &dirty, is_closing);
            self.write_edit(durable, &edit)
        });
        if let Err(error) = done {
            if error.kind() == ErrorKind::Poisoned {
                // After a failed sync the kernel may have dropped what it should have written.
                self.files.pool.iter().for_each(Pool::lapse);
            }
            planted!(NotTakenBack => return Err(error));
            self.take_back(cut, dirty);
            return Err(error);
        }
        self.structure.lock().journals.checkpoint_done(&self.files, cut.version);
        self.files.pool.iter().for_each(|pool| {
            pool.look_at_clock(self.world.clock.now());
            pool.give_back(false);
        });
        self.keep_dirty(&dirty, cut.version);
        self.let_go_of_logs();
        durable.has_old_commit_logs = false;
        if is_closing {
            durable.witness.sync()?;
        }
        self.counters.checkpoints.add(1);
        self.sweep(durable, cut.made_before, is_closing);
        // The next syncs the witness, and comes by again for files.
        self.checkpoint.is_settled.swap(false, Ordering::SeqCst);
        self.want_checkpoint();
        Ok(())
    }

    /// Step 1, where there is a commit log in the order of its writes.
    fn cut_in_order(&self, durable: &Durable, is_closing: bool) -> Result<Cut> {
        let Some(log) = &self.commit else {
            // Those of an earlier run are covered by now; this one makes none.
            let is_covering = durable.has_old_commit_logs;
            return Ok(
                self.cut(is_covering.then(|| LogStart { first: self.files.peek_number(), is_begun: false }))
            );
        };
        let root = &durable.root;
        let into = Arc::new(OnceLock::new());
        let order = CutOrder {
            is_closing,
            has_old_logs: durable.has_old_commit_logs,
            named: root.commit_is_begun.then_some(root.commit_first),
            into: Arc::clone(&into),
        };
        self.commit(log, Deed::Cut(order))?;
        let cut = Arc::into_inner(into).and_then(OnceLock::into_inner);
        Ok(cut.expect("a deed that succeeds leaves what it was for"))
    }

    /// Step 1.
    pub(crate) fn cut(&self, log_start: Option<LogStart>) -> Cut {
        let mut structure = self.structure.lock();
        let journal = structure.journals.number_of_next(&self.files);
        let version = self.versions.advance();
        let pin = pin();
        let index = self.index.load(&pin);
        let changed: BTreeMap<_, _> = std::mem::take(&mut structure.changed)
            .into_iter()
            .map(|key| {
                let funk = index.starting_at(&key).map(|chunk| Arc::clone(&chunk.state(&pin).funk));
                (key, funk)
            })
            .collect();
        // No chunk gets a table while the structure is locked, and each was added before (E-21).
        let tables = self.unsynced_tables.take();
        let changes = changed.iter().filter_map(|(key, funk): (&Vec<u8>, &Option<Arc<Funk>>)| {
            Some(journal::chunk_has(&self.files, key, funk.as_deref()?))
        });
        structure.journals.cut(&self.files, journal, version, changes);
        Cut { version, changed, tables, made_before: self.files.peek_number(), log_start }
    }

    /// Step 3. Of some at a time the system begins with all before the first is synced, so that one commit of
    /// the file system's journal is for all of them; but not where files are read, for it gives up first what
    /// it was told to begin with.
    fn sync_logs(&self, dirty: &[Arc<ChunkLog>]) -> Result<()> {
        for log in dirty {
            log.taken_for_sync();
        }
        let is_begun_before = self.nearly_all_have_munks(&pin());
        dirty.chunks(SYNCED_TOGETHER).try_for_each(|logs| {
            let written: Result<Vec<_>> = logs.iter().map(|log| log.write_out(&self.files)).collect();
            let written = written?;
            if is_begun_before {
                logs.iter().zip(&written).for_each(|(log, written)| log.begin_sync(written));
            }
            logs.iter().zip(written).try_for_each(|(log, written)| log.sync_written(written))
        })
    }

    /// What munks have the system need not keep as well, if hardly anything is read from files: else the
    /// system knows best what of them is.
    fn let_go_of_logs(&self) {
        let logs: Vec<_> = {
            let pin = pin();
            if !self.nearly_all_have_munks(&pin) {
                return;
            }
            let states = self.index.load(&pin).chunks().iter().map(|chunk| chunk.state(&pin));
            let with_munk = states.filter(|state| state.munk.is_some());
            with_munk.filter_map(|state| state.funk.log.clone()).collect()
        };
        logs.iter().for_each(|log| log.let_go());
    }

    /// A put behind the cut that found its log dirty did not enter it again, and then the log was taken off
    /// the list. What it wrote is on the disk but above the checkpoint: without this, the next one would take
    /// the store for idle.
    fn keep_dirty(&self, synced: &[Arc<ChunkLog>], cut: Version) {
        let above = synced.iter().filter(|log| log.reaches_above(cut) && log.becomes_dirty());
        self.dirty.lock().extend(above.cloned());
    }

    /// After a failure: everything is as dirty and as changed as before.
    fn take_back(&self, cut: Cut, dirty: Vec<Arc<ChunkLog>>) {
        self.unsynced_tables.take_back(cut.tables);
        let mut structure = self.structure.lock();
        structure.changed.extend(cut.changed.into_keys());
        structure.journals.checkpoint_failed(&self.files);
        drop(structure);
        let mut list = self.dirty.lock();
        list.extend(dirty.into_iter().filter(|log| log.becomes_dirty()));
    }

    /// Step 4: what changed since the last checkpoint.
    fn edit(&self, durable: &Durable, cut: &Cut, dirty: &[Arc<ChunkLog>], is_closing: bool) -> Edit {
        let root = &durable.root;
        let mut edit = Edit {
            next_file: Some(self.files.peek_number()),
            checkpoint: Some(cut.version),
            is_clean: Some(is_closing),
            commit_first: cut.log_start.map(|start| start.first),
            commit_is_begun: cut.log_start.map(|start| start.is_begun),
            ..Edit::default()
        };
        let mut records: BTreeMap<u64, FileRecord> = BTreeMap::new();
        let mut users: HashMap<u64, i64> = HashMap::new();
        for (key, funk) in &cut.changed {
            for number in root.chunks.get(key).into_iter().flatten() {
                *users.entry(*number).or_default() -= 1;
            }
            let Some(funk) = funk else {
                if root.chunks.contains_key(key) {
                    edit.chunks_removed.push(key.clone());
                }
                continue;
            };
            let (files, is_whole) = files_of(funk);
            if !is_whole || self.may_begin_soon(key, funk) {
                // Its log has no file yet: look again next time.
                self.structure.lock().changed.insert(key.clone());
            }
            for (number, record) in &files {
                *users.entry(*number).or_default() += 1;
                records.insert(*number, *record);
            }
            edit.chunks_upserted.push((key.clone(), files.into_iter().map(|(number, _)| number).collect()));
        }
        for log in dirty.iter().filter(|log| root.files.contains_key(&log.number())) {
            records.insert(log.number(), log_record(log));
        }
        let is_unused =
            |number: &u64| i64::from(root.users(*number)) + users.get(number).copied().unwrap_or(0) == 0;
        edit.files_removed =
            users.keys().copied().filter(|n| root.files.contains_key(n) && is_unused(n)).collect();
        edit.files_removed.sort_unstable();
        let is_news = |(number, record): &(u64, FileRecord)| {
            root.files.get(number) != Some(record) && !is_unused(number)
        };
        edit.files_upserted = records.into_iter().filter(is_news).collect();
        let mut dead = self.needed_dead(durable, &edit);
        planted!(DeadForgotten => dead.clear());
        edit.dead = (dead != root.dead).then_some(dead);
        edit
    }

    /// Whether a put may be about to write to the chunk's empty log. It marked the chunk as changed before it
    /// took its version, and the cut has taken the mark: without another one, no checkpoint would ever name
    /// the log. Who has the gate while the log is empty knows that the next put marks the chunk again.
    fn may_begin_soon(&self, key: &[u8], funk: &Funk) -> bool {
        let Some(log) = funk.log.as_ref().filter(|log| log.durable_len() == 0) else { return false };
        planted!(EmptyLogForgotten => return false);
        let pin = pin();
        let chunk = self.index.load(&pin).starting_at(key);
        let gate = chunk.map(|chunk| chunk.try_gate());
        // A chunk that was replaced takes no puts, and what took its place is marked.
        let is_busy = gate.as_ref().is_some_and(Option::is_none);
        is_busy || !log.is_empty()
    }

    /// The rows of the recovery table that some log still needs: an epoch is forgotten with its last log.
    fn needed_dead(&self, durable: &Durable, edit: &Edit) -> Vec<(Version, Version)> {
        let old = durable.root.files.iter().filter(|(n, _)| edit.files_removed.binary_search(n).is_err());
        let new = edit.files_upserted.iter().map(|(n, record)| (n, record));
        let logs: Vec<Version> = old
            .chain(new)
            .filter(|(_, record)| record.kind == PartKind::Log)
            .map(|(_, record)| record.base)
            .collect();
        let is_needed = |(last, next): &(Version, Version)| {
            logs.iter().any(|base| base < next && base.epoch() == last.epoch())
        };
        durable.dead.iter().copied().filter(is_needed).collect()
    }

    /// Step 4: appends the edit, or writes the whole root anew.
    fn write_edit(&self, durable: &mut Durable, edit: &Edit) -> Result<()> {
        durable.root.apply(edit)?;
        planted!(RemovedEarly => self.sweep(durable, 0, false));
        // Until it is written, the root in memory is ahead: a failure leaves no manifest to append to.
        let manifest = durable.manifest.take();
        let is_too_long = |m: &ManifestWriter| {
            m.len() > (durable.fresh_bytes * MANIFEST_GROWTH_MAX).max(MANIFEST_BYTES_MIN)
        };
        match manifest.filter(|m| !is_too_long(m)) {
            Some(mut manifest) => {
                let appended = manifest.append(edit);
                planted!(EditKeptAfterFailure => if appended.is_err() {
                    durable.manifest = Some(manifest);
                    return appended.map(|_| ());
                });
                let bytes = appended?;
                self.counters.manifest_bytes_written.add(bytes);
                // Synced with the next checkpoint's logs. A write that fails leaves the claim before: less is
                // proven, nothing is wrong.
                let _ = durable.witness.write(manifest.claim());
                durable.manifest = Some(manifest);
            }
            None => {
                let manifest = ManifestWriter::create(&*self.files.disk, &durable.root)?;
                self.counters.manifest_bytes_written.add(manifest.len());
                durable.fresh_bytes = manifest.len();
                // Durable before the older manifest goes: or without the newer one, it would pass for the
                // newest.
                let _ = durable.witness.write(manifest.claim());
                durable.witness.sync()?;
                self.remove_older_manifests(manifest.number());
                durable.manifest = Some(manifest);
            }
        }
        Ok(())
    }

    fn remove_older_manifests(&self, newest: u64) {
        // What is left behind by a failure here is removed by the next open.
        for listed in self.files.disk.list().unwrap_or_default() {
            if let Listed::Ours(name @ FileName::Of(MANIFEST, number)) = listed
                && number < newest
            {
                let _ = self.files.disk.remove(name);
            }
        }
    }

    /// Step 5. True if no file waits for somebody to let go of it.
    fn sweep(&self, durable: &Durable, made_before: u64, is_closing: bool) -> bool {
        // What was replaced is freed, and gives up its files, unless a reader still sees it; so a store that
        // is being closed does not wait for it.
        settle();
        let root = &durable.root;
        let swept = self.files.sweep(is_closing, made_before, |name| match name {
            FileName::Of(COMMIT, number) => number >= root.commit_first,
            _ => root.files.contains_key(&name.number()),
        });
        self.space.left_by_checkpoint(swept.left_bytes);
        swept.is_all
    }
}

/// The files of a funk, oldest first, with what the manifest is to know of them; and whether that is all of
/// them: a log that has not been written to the disk yet is left out.
fn files_of(funk: &Funk) -> (Vec<(u64, FileRecord)>, bool) {
    let mut files = Vec::with_capacity(funk.parts.len() + 1);
    for part in &funk.parts {
        files.push(match &part.file {
            PartFile::Table(table) => (table.number(), FileRecord::table(table.len())),
            PartFile::Log(log) => (log.number(), log_record(log)),
        });
    }
    let mut is_whole = true;
    // An empty log is no part of it yet: the put that ends that marks the chunk again.
    if let Some(log) = funk.log.as_ref().filter(|log| !log.is_empty()) {
        if log.durable_len() > 0 {
            files.push((log.number(), log_record(log)));
        } else {
            is_whole = false;
        }
    }
    // A closed log that was never synced holds only what is above the cut, so it may wait as well.
    let before = files.len();
    files.retain(|(_, record)| record.len > 0);
    is_whole &= files.len() == before;
    (files, is_whole)
}

fn log_record(log: &ChunkLog) -> FileRecord {
    // The summary first: a checkpoint that goes on meanwhile, or has failed, tells of more of the log before
    // it tells of that.
    let summary = log.durable_summary();
    let len = log.durable_len();
    let len = planted!(LengthNotSynced, len => log.len());
    FileRecord { kind: PartKind::Log, len, base: log.base(), summary }
}

#[cfg(feature = "mutants")]
mod planted;
#[cfg(test)]
mod tests;
