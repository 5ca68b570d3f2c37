//! `Subject`: a store under test; `Tested`: an engine under test, which is all that the oracles and campaigns
//! know of one.
//!
//! An engine that has a [`Descriptor`] needs no subject of its own: [`Described`] is one. What else an engine
//! can be asked for (paths, references for damage, planted bugs, fuzz targets) is left out by default.

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

use kvilt_base::{
    Descriptor, Durability, Engine, FileName, Level, Remainder, Result, Settings, Stats, disk::FileKind,
};
use kvilt_io::{Call, MemoryDisk};

use crate::{bystander::Moment, canonical::Canonical, fuzzing::Target, mutants::Planted, world::World};

/// What moment it is before such a call on such a file, if a put may come there: the engine holds no lock
/// then that a put could need.
pub type Moments = fn(Call, FileName) -> Option<Moment>;

/// A store under test: how it is opened, and what it promises.
pub trait Subject: Send + Sync {
    /// What is tested, with its options, for reports.
    fn name(&self) -> String;

    /// Opens the store in this world, making it if the disk is empty.
    fn open(&self, world: &World) -> Result<Arc<dyn Engine>>;

    /// Opens the store in this world to be read only; none if this subject cannot.
    fn open_to_read(&self, world: &World) -> Option<Result<Arc<dyn Engine>>> {
        let _ = world;
        None
    }

    /// Which writes survive a power cut: at level async, those before the last sync. The death of the process
    /// takes back no acknowledged write.
    fn level(&self) -> Level;

    /// Whether what a kill left counts only as long as the kernel runs, though all of it may be synced: a
    /// power cut takes it back until the next open has made it durable.
    fn rests_on_boot(&self) -> bool {
        false
    }

    /// Its engine's descriptor, by which a damaged store is salvaged; none if it cannot be.
    fn descriptor(&self) -> Option<&dyn Descriptor> {
        None
    }

    /// Whether it has so little memory that puts wait for it all the time: then scripts have fewer steps.
    fn is_starved(&self) -> bool {
        false
    }

    /// Bytes that files of a store at rest may hold beyond 1.3 times its rows.
    fn dead_bytes_at_rest(&self) -> u64;

    /// Bytes of memory that a reader which begins now may keep.
    fn bytes_to_find(&self, stats: &Stats) -> u64 {
        stats.memory_bytes_now
    }

    /// Bytes of memory that may be charged while a reader keeps `found_bytes`.
    fn bytes_chargeable(&self, stats: &Stats, found_bytes: u64) -> u64 {
        let _ = (stats, found_bytes);
        u64::MAX
    }

    /// Where among disk calls somebody may put.
    fn moments(&self) -> Moments {
        |_, _| None
    }

    /// Whether a put would wait for the background now: then nobody puts while that waits for the disk, on
    /// the same thread.
    fn would_wait(&self) -> fn(&Stats) -> bool {
        |_| false
    }

    /// Whether a file says nothing of rows: it is not damaged, and its length does not count.
    fn is_beside(&self, name: FileName) -> bool {
        name == FileName::LOCK
    }

    /// The same store, but one that comes to rest with as few bytes in logs as can be.
    fn settling(&self) -> Option<Box<dyn Subject>> {
        None
    }
}

/// An engine under test.
pub trait Tested: Sync {
    /// Its name, as its descriptor has it.
    fn name(&self) -> &'static str;

    /// The kinds of its files.
    fn kinds(&self) -> &'static [FileKind];

    /// How many configurations there are.
    fn configurations(&self) -> u64;

    /// A configuration by its number.
    fn configuration(&self, number: u64) -> Box<dyn Subject>;

    /// The configuration that a seed tests: all of them by turns.
    fn of_seed(&self, seed: u64) -> Box<dyn Subject> {
        self.configuration(seed % self.configurations())
    }

    /// A store of tiny limits, so that every path runs within a few dozen operations.
    fn tiny(&self, durability: Durability) -> Box<dyn Subject>;

    /// A store of limits as users have them, whose operations may not take more steps as it grows; none if
    /// the engine counts no steps.
    fn roomy(&self) -> Option<Box<dyn Subject>> {
        None
    }

    /// Figures which show that a path ran: none may stay small in a campaign over all configurations.
    fn paths(&self) -> &'static [&'static str] {
        &[]
    }

    /// Short scripts, each of which goes one path.
    fn canonical(&self) -> Vec<Canonical> {
        Vec::new()
    }

    /// The same on stores that keep as much room back for full disks as one has that is not tiny.
    fn canonical_with_reserve(&self) -> Vec<Canonical> {
        self.canonical()
    }

    /// How many crashes in a row, the first in a script and the others in recoveries, the check goes through:
    /// as many as come to an end within a minute.
    fn recoveries_in_a_row(&self) -> u32 {
        4
    }

    /// What stores to be damaged are made of.
    fn references(&self) -> Vec<Recipe> {
        Vec::new()
    }

    /// The bugs planted in it.
    fn planted(&self) -> &'static [Planted] {
        &[]
    }

    /// Its fuzz targets.
    fn fuzz_targets(&self) -> &'static [Target] {
        &[]
    }
}

/// What of a store's files counts: which bytes of each were synced.
pub type Synced = fn(&MemoryDisk) -> Result<BTreeMap<FileName, Vec<Range<u64>>>>;

/// How the last run of a store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastEnd {
    /// In a power cut, behind writes that nothing made durable.
    PowerCut,
    /// In a close.
    Close,
}

/// What a store is made of that is to be damaged.
pub struct Recipe {
    /// How it is opened in its first runs.
    pub earlier: Vec<Box<dyn Subject>>,
    /// How it is opened in its last run, and when it is damaged.
    pub last: Box<dyn Subject>,
    /// How that ends.
    pub end: LastEnd,
    /// What of its files counts.
    pub synced: Synced,
    /// Whether nothing tells that such a file, as a whole, is one of an earlier time.
    pub is_unfound_when_older: fn(FileName) -> bool,
}

/// A store by the descriptor of its engine.
#[derive(Clone)]
pub struct Described {
    /// The engine with its own settings.
    pub engine: Arc<dyn Descriptor>,
    /// Those that all engines have.
    pub settings: Settings,
    /// Its memory, in bytes.
    pub budget_bytes: u64,
    /// See [`Subject::dead_bytes_at_rest`].
    pub dead_bytes_at_rest: u64,
    /// See [`Subject::moments`].
    pub moments: Moments,
    /// See [`Subject::would_wait`].
    pub would_wait: fn(&Stats) -> bool,
    /// See [`Subject::rests_on_boot`].
    pub rests_on_boot: bool,
}

impl fmt::Debug for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} bytes of memory, {:?}", self.engine.name(), self.budget_bytes, self.settings)
    }
}

impl Subject for Described {
    fn name(&self) -> String {
        format!("{self:?} and {:?}", self.engine)
    }

    fn open(&self, world: &World) -> Result<Arc<dyn Engine>> {
        self.engine.open(world.disk(), world.around(self.budget_bytes), &self.settings)
    }

    fn open_to_read(&self, world: &World) -> Option<Result<Arc<dyn Engine>>> {
        if !self.engine.capabilities().has_read_only {
            return None;
        }
        let mut settings = self.settings.clone();
        settings.read_only = true;
        Some(self.engine.open(world.disk(), world.around(self.budget_bytes), &settings))
    }

    fn level(&self) -> Level {
        let after_power_cut = self.engine.capabilities().after_power_cut;
        assert_eq!(after_power_cut, Remainder::Prefix, "no oracle knows what else a power cut may leave");
        self.settings.durability.level()
    }

    fn rests_on_boot(&self) -> bool {
        self.rests_on_boot
    }

    fn descriptor(&self) -> Option<&dyn Descriptor> {
        self.engine.capabilities().has_repair.then_some(&*self.engine)
    }

    fn dead_bytes_at_rest(&self) -> u64 {
        self.dead_bytes_at_rest
    }

    fn moments(&self) -> Moments {
        self.moments
    }

    fn would_wait(&self) -> fn(&Stats) -> bool {
        self.would_wait
    }
}
