//! All that the workshop knows of the engine `even`.
//!
//! Here: its configurations. Beside it: `canonical` (scripts of its paths), `damage` (the stores that are
//! damaged), `economy` (the memory it may have), `fuzzing` (decoders of its files), `mutants` (planted bugs).

mod canonical;
mod damage;
mod economy;
pub mod fuzzing;
mod mutants;

use std::{sync::Arc, time::Duration};

use kvilt_base::{Descriptor, Durability, Engine, FileName, Level, Result, Stats, disk::FileKind};
use kvilt_even::{KINDS, Options, options::Compression};
use kvilt_format::names::{JOURNAL, LOG, MANIFEST, MANIFEST_TEMP, POOL, RESERVE, TABLE};
use kvilt_io::Call;

use crate::{
    bystander::Moment,
    canonical::Canonical,
    dice::Dice,
    fuzzing::Target,
    mutants::Planted,
    subject::{Moments, Recipe, Subject, Tested},
    world::World,
};

/// The engine.
pub const EVEN: EvenEngine = EvenEngine;

/// See [`EVEN`].
#[derive(Clone, Copy, Debug)]
pub struct EvenEngine;

impl Tested for EvenEngine {
    fn name(&self) -> &'static str {
        Options::default().name()
    }

    fn kinds(&self) -> &'static [FileKind] {
        KINDS
    }

    fn configurations(&self) -> u64 {
        CONFIGURATIONS
    }

    fn configuration(&self, number: u64) -> Box<dyn Subject> {
        Box::new(Even::configuration(number))
    }

    fn tiny(&self, durability: Durability) -> Box<dyn Subject> {
        let mut even = Even::tiny();
        even.options.settings.durability = durability;
        Box::new(even)
    }

    fn roomy(&self) -> Option<Box<dyn Subject>> {
        Some(Box::new(Even::roomy()))
    }

    fn paths(&self) -> &'static [&'static str] {
        PATHS
    }

    fn canonical(&self) -> Vec<Canonical> {
        canonical::scripts(None)
    }

    fn canonical_with_reserve(&self) -> Vec<Canonical> {
        // As much as a store of this size has that is not tiny.
        canonical::scripts(Some(64 << 10))
    }

    fn references(&self) -> Vec<Recipe> {
        damage::references()
    }

    fn planted(&self) -> &'static [Planted] {
        mutants::PLANTED
    }

    fn fuzz_targets(&self) -> &'static [Target] {
        fuzzing::TARGETS
    }
}

/// Every path that scripts should take in a campaign over all configurations.
const PATHS: &[&str] = &[
    "splits",
    "coalesces",
    "munk_compactions",
    "munk_weavings",
    "funk_rebalances",
    "munk_loads",
    "munk_evictions",
    "checkpoints",
    "gets_from_munk",
    "gets_from_row_cache",
    "gets_from_log",
    "gets_from_table",
    "batches",
    "commit_bytes_written",
    "stalls_memory",
];

/// A store of the engine `even` with some options and memory.
#[derive(Clone, Debug)]
pub struct Even {
    /// Its options.
    pub options: Options,
    /// Its memory, in bytes.
    pub budget_bytes: u64,
}

/// How many configurations seeds go round.
const CONFIGURATIONS: u64 = 36;

impl Even {
    /// Tiny limits, so that every path runs within a few dozen operations; asynchronous.
    pub fn tiny() -> Self {
        Even { options: Options::tiny(), budget_bytes: 256 << 10 }
    }

    /// Limits as users have them, so that few rows are one chunk; nothing is written for want of time.
    pub fn roomy() -> Self {
        let mut options = Options::default();
        options.settings.durability = Durability::Async { interval: Duration::from_secs(3600) };
        Even { options, budget_bytes: 64 << 20 }
    }

    /// A configuration by its number: the first is [`Even::tiny`], the others vary every limit from almost
    /// nothing to plenty; of three in turn, the second is synchronous.
    pub fn configuration(number: u64) -> Self {
        let mut dice = Dice::new(number ^ 0xc0f1);
        let mut even = Even::tiny();
        if number > 0 {
            even.vary(&mut dice);
            // With room for all buffers, for some, for none.
            even.options.pool_bytes_max = [u64::MAX, 128 << 10, 0][(number / 3 % 3) as usize];
        }
        let interval = Duration::from_millis(*dice.pick(&[20, 300, 2_000]));
        even.options.settings.durability = match number % 3 {
            1 => Durability::Sync { interval },
            _ => Durability::Async { interval },
        };
        even
    }

    fn vary(&mut self, dice: &mut Dice) {
        let options = &mut self.options;
        options.chunk_bytes_max = *dice.pick(&[1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10]);
        options.chunk_bytes_rebalance = options.chunk_bytes_max / 4 * 3;
        options.chunk_bytes_min = options.chunk_bytes_rebalance / *dice.pick(&[2, 4, 16]);
        options.log_bytes_max_cold = *dice.pick(&[256, 1 << 10, 4 << 10]);
        options.log_bytes_max_cached = options.log_bytes_max_cold * *dice.pick(&[1, 4, 16]);
        options.log_bytes_max_unread = options.log_bytes_max_cold * *dice.pick(&[1, 6, 40]);
        options.log_buffer_bytes_max = *dice.pick(&[64, 512, 8 << 10]);
        options.block_bytes = *dice.pick(&[64, 256, 4 << 10]);
        options.row_cache_percent = *dice.pick(&[0, 10, 60]) as u32;
        options.compression = *dice.pick(&[Compression::None, Compression::Lz4]);
        self.budget_bytes = *dice.pick(&[1, 16 << 10, 64 << 10, 256 << 10, 64 << 20]);
        self.options.dead_bytes_slack = *dice.pick(&[1 << 10, 16 << 10, 64 << 20]);
        // In most less than a row, so that rewrites and scans take all rows as they take large ones
        // elsewhere.
        self.options.streamed_bytes_min = *dice.pick(&[64, 200, 1 << 20]);
    }

    /// The same, synchronous.
    #[must_use]
    pub fn synchronous(mut self) -> Self {
        self.options.settings.durability = Durability::Sync { interval: Duration::from_millis(300) };
        self
    }
}

fn moment(call: Call, name: FileName) -> Option<Moment> {
    let FileName::Of(kind, _) = name else { return None };
    match (call, kind) {
        (Call::Read, TABLE) => Some(Moment::Read),
        // The background may read logs under a gate.
        (Call::Read, LOG) => Some(Moment::ReadByGet),
        (Call::Write | Call::Sync, TABLE | MANIFEST | MANIFEST_TEMP) | (Call::Sync, LOG) => {
            Some(Moment::Making)
        }
        // Others are synced with the commit log's tail held, or before the store is open.
        _ => None,
    }
}

/// Memory of who only reads: what commit logs hold must have room in a part of it.
const READERS_BUDGET_BYTES: u64 = 64 << 20;

/// Stores with less memory, in bytes, rewrite some thirty times what is put while puts wait for memory that
/// there is not.
const BUDGET_BYTES_MIN: u64 = 64 << 10;
/// A log of a settled store is at most this long, in bytes: less than a row or two.
const SETTLED_LOG_BYTES_MAX: u64 = 256;

impl Subject for Even {
    fn name(&self) -> String {
        format!("even with {} bytes of memory and {:?}", self.budget_bytes, self.options)
    }

    fn open(&self, world: &World) -> Result<Arc<dyn Engine>> {
        kvilt_even::open(world.disk(), world.around(self.budget_bytes), self.options.clone())
    }

    fn open_to_read(&self, world: &World) -> Option<Result<Arc<dyn Engine>>> {
        let mut options = self.options.clone();
        options.settings.read_only = true;
        Some(kvilt_even::open(world.disk(), world.around(READERS_BUDGET_BYTES), options))
    }

    fn level(&self) -> Level {
        self.options.settings.durability.level()
    }

    fn descriptor(&self) -> Option<&dyn Descriptor> {
        Some(&self.options)
    }

    fn is_starved(&self) -> bool {
        self.budget_bytes < BUDGET_BYTES_MIN
    }

    fn dead_bytes_at_rest(&self) -> u64 {
        self.options.dead_bytes_slack / 4
    }

    fn bytes_to_find(&self, stats: &Stats) -> u64 {
        economy::bytes_to_find(self, stats)
    }

    fn bytes_chargeable(&self, stats: &Stats, found_bytes: u64) -> u64 {
        economy::bytes_chargeable(self, stats, found_bytes)
    }

    fn moments(&self) -> Moments {
        moment
    }

    fn is_beside(&self, name: FileName) -> bool {
        // The reserve is there or not as the last crash pleased; pool and journal count only as long as the
        // kernel lives that has them, and nothing on the drive is read for them.
        matches!(name, FileName::LOCK | RESERVE | FileName::Of(JOURNAL | POOL, _))
    }

    fn settling(&self) -> Option<Box<dyn Subject>> {
        let mut even = self.clone();
        let options = &mut even.options;
        options.log_bytes_max_cold = SETTLED_LOG_BYTES_MAX;
        options.log_bytes_max_cached = SETTLED_LOG_BYTES_MAX;
        options.log_bytes_max_unread = SETTLED_LOG_BYTES_MAX;
        Some(Box::new(even))
    }
}
