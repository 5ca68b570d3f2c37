//! The cut: a moment of the whole store is made durable (record 0066).
//!
//! ```text
//!   1  under all locks: which slots are used, which versions were given out, which writes are in flight
//!   2  map pages to their other copies; slabs and maps synced
//!   3  the root, in both copies, one after the other, each synced
//!   4  slots that nothing needed at 1 are free
//! ```
//!
//! What is always true:
//! - K-9: slots are freed after both copies of the root are durable: whichever of them a crash or damage
//!   leaves, no slot that it counts was written over.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kvilt_base::{Error, ErrorKind, File, Next, Result, Version, Worker, planted};
use kvilt_format::slab::Root;

use crate::{
    map::{self, PageImage},
    store::{PanicGuard, Rooted, Store},
};

/// Entries of a range delete that are dealt with under one lock.
const REMOVED_A_STEP: usize = 4096;

/// A cut whose root is not durable yet.
pub(crate) struct UnfinishedCut {
    root: Root,
    /// Of each shard, the pages that are durable.
    images: Vec<Vec<PageImage>>,
}

/// What a cut makes durable of a shard.
struct Cut {
    images: Vec<PageImage>,
    map_file: Arc<dyn File>,
    slab_files: Vec<(usize, Arc<dyn File>)>,
    /// Whether slots wait for it to be free.
    has_waiting: bool,
}

impl Store {
    /// Writes, and on a full disk once more behind a cut, which frees what was superseded before it, and the
    /// slots of tombstones.
    pub(crate) fn with_room<T>(&self, write: &mut dyn FnMut() -> Result<T>) -> Result<T> {
        match write() {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // The first error is the one to report.
                self.cut().map_err(|_| error)?;
                write()
            }
            outcome => outcome,
        }
    }

    /// Makes everything durable that has completed.
    pub(crate) fn cut(&self) -> Result<()> {
        let mut rooted = self.rooted.lock();
        self.ensure_healthy()?;
        if rooted.file.is_none() {
            // A close came first, and has told its caller whether everything is durable.
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        self.cut_with(&mut rooted, &mut |_| {})
    }

    /// The same, with a root that is changed before it is written. Without a change nothing is written if
    /// nothing was done since the last cut.
    pub(crate) fn cut_with(&self, rooted: &mut Rooted, change: &mut dyn FnMut(&mut Root)) -> Result<()> {
        if rooted.file.is_none() {
            return Ok(());
        }
        let _guard = PanicGuard(self);
        self.finish_cut(rooted)?;
        let cut = rooted.last_cut + 1;
        let mut root = rooted.root.clone();
        let cuts = self.begin_cut(cut, &mut root);
        change(&mut root);
        let (has_something, before) = (cuts.iter().any(has_something), &rooted.root);
        if !has_something && root.is_clean == before.is_clean && root.epoch == before.epoch {
            return Ok(());
        }
        rooted.last_cut = cut;
        if let Err(error) = self.make_durable(&cuts) {
            for (shard, cut) in self.shards.iter().zip(&cuts) {
                let mut state = shard.lock();
                planted!(FailedCutForgotten => continue);
                state.map.is_not_durable(&cut.images);
                for (class, _) in &cut.slab_files {
                    state.slabs[*class].as_mut().expect("a slab stays").has_written();
                }
            }
            return Err(error);
        }
        let images = cuts.into_iter().map(|cut| cut.images).collect();
        rooted.unfinished = Some(UnfinishedCut { root, images });
        self.finish_cut(rooted)
    }

    /// Writes the root of a cut whose maps and slabs are durable. If that fails, the root may count or not,
    /// so nothing else is begun before it has been written again.
    fn finish_cut(&self, rooted: &mut Rooted) -> Result<()> {
        let (Some(file), Some(cut)) = (&rooted.file, &mut rooted.unfinished) else { return Ok(()) };
        self.write_root(&**file, &mut cut.root)?;
        for (shard, images) in self.shards.iter().zip(&cut.images) {
            let mut state = shard.lock();
            state.map.is_durable(images, cut.root.cut);
            state.frees();
            state.charge();
        }
        rooted.root = cut.root.clone();
        rooted.unfinished = None;
        self.counters.cuts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The moment of the cut.
    fn begin_cut(&self, cut: u64, root: &mut Root) -> Vec<Cut> {
        loop {
            while self.deal_with_removed() {}
            let mut states = self.lock_all();
            if states.iter().any(|state| state.history.has_removed()) {
                continue;
            }
            let in_flight: BTreeSet<Version> =
                states.iter().flat_map(|state| state.in_flight.iter().copied()).collect();
            root.in_flight = in_flight.into_iter().collect();
            // Relaxed: versions are given out under a shard's lock.
            let version = Version::from_u64(self.version.load(Ordering::Relaxed));
            root.version = planted!(VersionNotRaised, version => root.version);
            root.cut = cut;
            let mut cuts = Vec::with_capacity(states.len());
            root.maps.clear();
            for state in &mut states {
                let state = &mut **state;
                let mut unneeded = Vec::new();
                state.history.prune(&mut unneeded);
                state.unused.extend(unneeded);
                let unused = std::mem::take(&mut state.unused);
                state.unused_before_cut.extend(unused);
                let images = state.map.take_images(&state.slabs, cut);
                root.maps.push(state.map.total_with(&images, cut));
                let written = state.slabs.iter_mut().enumerate().filter_map(|(class, slab)| {
                    let slab = slab.as_mut().filter(|slab| slab.is_written())?;
                    slab.is_synced();
                    Some((class, Arc::clone(slab.file())))
                });
                let slab_files = written.collect();
                let has_waiting = !state.unused_before_cut.is_empty();
                cuts.push(Cut { images, map_file: Arc::clone(state.map.file()), slab_files, has_waiting });
            }
            return cuts;
        }
    }

    fn make_durable(&self, cuts: &[Cut]) -> Result<()> {
        for cut in cuts.iter().filter(|cut| !cut.images.is_empty()) {
            map::write(&*cut.map_file, &cut.images)?;
            self.counters.map_pages.fetch_add(cut.images.len() as u64, Ordering::Relaxed);
        }
        for cut in cuts {
            let slabs = cut.slab_files.iter().map(|(_, file)| file);
            let maps = std::iter::once(&cut.map_file).filter(|_| !cut.images.is_empty());
            for file in slabs.chain(maps) {
                planted!(CutWithoutSync => continue);
                planted!(MapNotSynced => if file.name().kind() == kvilt_format::names::MAP { continue });
                planted!(SlabNotSynced => if file.name().kind() == kvilt_format::names::SLAB { continue });
                self.sync(&**file)?;
            }
        }
        Ok(())
    }

    /// Writes the root to both copies, and makes it the one with the second's generation.
    fn write_root(&self, file: &dyn File, root: &mut Root) -> Result<()> {
        for _ in 0..2 {
            root.generation += 1;
            let offset = root.offset();
            if let Err(e) = file.write_all_at(offset, &root.encode()[..]) {
                // The next try writes this copy again: the other one is durable.
                root.generation -= 1;
                return Err(Error::io("write the root", e).at(file.name(), offset));
            }
            self.sync(file)?;
        }
        Ok(())
    }

    /// A sync that failed may have lost anything: nobody goes on as if it could be tried again.
    fn sync(&self, file: &dyn File) -> Result<()> {
        let sync = || planted!(SyncFailureIgnored, file.sync() => file.sync().or(Ok(())));
        sync().map_err(|e| Error::io("sync", e).in_file(file.name())).inspect_err(|error| self.poison(error))
    }

    /// Deals with a piece of what range deletes took out of the indexes. Whether there is more.
    fn deal_with_removed(&self) -> bool {
        let mut has_more = false;
        for shard in &self.shards {
            let mut state = shard.lock();
            let dealt = state.history.deal_with_removed(REMOVED_A_STEP);
            for place in dealt.places {
                state.becomes_unused(place);
            }
            state.unused.extend(dealt.unneeded);
            has_more |= state.history.has_removed();
        }
        has_more
    }
}

fn has_something(cut: &Cut) -> bool {
    !cut.images.is_empty() || !cut.slab_files.is_empty() || cut.has_waiting
}

/// Takes a cut each interval while there is something to be made durable.
pub(crate) struct Cutter {
    store: std::sync::Weak<Store>,
    /// When the next cut may begin.
    due: Duration,
}

impl Cutter {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Cutter { store: Arc::downgrade(store), due: Duration::ZERO }
    }
}

impl Worker for Cutter {
    fn step(&mut self) -> Next {
        let Some(store) = self.store.upgrade() else { return Next::Done };
        if store.is_closed.load(Ordering::Acquire) {
            return Next::Done;
        }
        store.counters.background_steps.fetch_add(1, Ordering::Relaxed);
        store.expire_views();
        let interval = store.settings.durability.bounded().interval();
        let now = store.clock.now();
        if now >= self.due && store.has_work.swap(false, Ordering::SeqCst) {
            self.due = now.saturating_add(interval);
            // An error is reported by the next write or sync that needs the cut; and it is tried again.
            if store.cut().is_err() && store.ensure_healthy().is_ok() {
                store.has_work.store(true, Ordering::SeqCst);
                self.due = store.clock.now().saturating_add(interval);
            }
        } else if !store.has_work.load(Ordering::SeqCst) {
            store.doze.lie_down();
            if !store.has_work.load(Ordering::SeqCst) {
                return Next::Rest(store.first_expiry().map(|expiry| expiry.saturating_sub(now)));
            }
            store.doze.rise();
        }
        // A view that is opened meanwhile expires behind that.
        let expiry = store.first_expiry().unwrap_or(now.saturating_add(store.settings.view_age_max));
        Next::Rest(Some(expiry.min(self.due).saturating_sub(store.clock.now())))
    }

    fn panicked(&mut self, message: &str) {
        if let Some(store) = self.store.upgrade() {
            store.poison(&Error::new(ErrorKind::Poisoned, format!("a worker panicked: {message}")));
        }
    }
}
