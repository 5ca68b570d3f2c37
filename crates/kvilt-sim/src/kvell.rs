//! Engine `kvell` under test: its configurations, and what only it has.
//!
//! Where it stands: beside `even`; `fuzzing` tests the decoders of its files, and needs no store.

mod canonical;
mod damage;
pub mod fuzzing;
mod mutants;

use std::{sync::Arc, time::Duration};

use kvilt_base::{Durability, FileName, Level, Settings, disk::FileKind};
use kvilt_format::names::{MAP, ROOT, SLAB};
use kvilt_io::Call;
use kvilt_kvell::{KINDS, NAME, Options};

use crate::{
    bystander::Moment,
    canonical::Canonical,
    dice::Dice,
    fuzzing::Target,
    mutants::Planted,
    subject::{Described, Recipe, Subject, Tested},
};

/// The engine.
pub const KVELL: Kvell = Kvell;

/// The engine under test.
pub struct Kvell;

/// How many configurations seeds go round.
const CONFIGURATIONS: u64 = 24;

/// Room that slabs of a few rows take beside them, in bytes: a slab grows by 64 KiB at least, and there is
/// one for each size class and shard.
const SLACK_BYTES: u64 = 64 << 20;

impl Tested for Kvell {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kinds(&self) -> &'static [FileKind] {
        KINDS
    }

    fn configurations(&self) -> u64 {
        CONFIGURATIONS
    }

    /// One to three shards; page caches of nothing, of some blocks, of all; of three in turn, the second is
    /// synchronous.
    fn configuration(&self, number: u64) -> Box<dyn Subject> {
        let mut dice = Dice::new(number ^ 0x5eb1);
        let interval = Duration::from_millis(*dice.pick(&[20, 300, 2_000]));
        let durability = match number % 3 {
            1 => Durability::Sync { interval },
            _ => Durability::Async { interval },
        };
        let mut options = Options::default();
        options.shards = 1 + (number / 3 % 3) as u32;
        options.queue_depth = *dice.pick(&[1, 3, 64]) as usize;
        // A shard has room for some keys of 30 KiB, and their index is no larger than half of it.
        let budget_bytes = u64::from(options.shards) * *dice.pick(&[768 << 10, 2 << 20, 64 << 20]);
        subject(options, durability, budget_bytes)
    }

    fn tiny(&self, durability: Durability) -> Box<dyn Subject> {
        subject(Options::default(), durability, 1 << 20)
    }

    fn paths(&self) -> &'static [&'static str] {
        &["cuts", "cache_hits", "cache_misses", "blocks_written", "batches"]
    }

    fn canonical(&self) -> Vec<Canonical> {
        canonical::scripts()
    }

    /// A recovery has more disk calls than one of `even`: it takes a cut.
    fn recoveries_in_a_row(&self) -> u32 {
        3
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

fn subject(options: Options, durability: Durability, budget_bytes: u64) -> Box<dyn Subject> {
    Box::new(described(options, durability, budget_bytes))
}

fn described(options: Options, durability: Durability, budget_bytes: u64) -> Described {
    let mut settings = Settings::default();
    settings.durability = durability;
    Described {
        engine: Arc::new(options),
        settings,
        budget_bytes,
        dead_bytes_at_rest: SLACK_BYTES,
        moments: moment,
        would_wait: |_| false,
        // What is behind the last cut counts if the machine was not started again since.
        rests_on_boot: durability.level() == Level::Async,
    }
}

/// A cut holds no shard while it writes and syncs. A get's read is none: a put of the same block would wait
/// for it, on this very thread.
fn moment(call: Call, name: FileName) -> Option<Moment> {
    match call {
        Call::Write | Call::Sync if name == ROOT || name.kind() == MAP => Some(Moment::Making),
        Call::Sync if name.kind() == SLAB => Some(Moment::Making),
        _ => None,
    }
}
