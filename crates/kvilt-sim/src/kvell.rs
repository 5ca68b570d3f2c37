//! Engine `kvell` under test: its configurations, and what only it has.
//!
//! Where it stands: beside `even`; `fuzzing` tests the decoders of its files, and needs no store.

pub mod fuzzing;

use std::{sync::Arc, time::Duration};

use kvilt_base::{Durability, Settings, disk::FileKind};
use kvilt_kvell::{KINDS, NAME, Options};

use crate::{
    dice::Dice,
    fuzzing::Target,
    subject::{Described, Subject, Tested},
};

/// The engine.
pub const KVELL: Kvell = Kvell;

/// The engine under test.
pub struct Kvell;

/// How many configurations seeds go round.
const CONFIGURATIONS: u64 = 12;

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
        let budget_bytes = *dice.pick(&[512 << 10, 2 << 20, 64 << 20]);
        subject(options, durability, budget_bytes)
    }

    fn tiny(&self, durability: Durability) -> Box<dyn Subject> {
        subject(Options::default(), durability, 1 << 20)
    }

    fn paths(&self) -> &'static [&'static str] {
        &["cuts", "cache_hits", "cache_misses", "blocks_written", "batches"]
    }

    fn fuzz_targets(&self) -> &'static [Target] {
        fuzzing::TARGETS
    }
}

fn subject(options: Options, durability: Durability, budget_bytes: u64) -> Box<dyn Subject> {
    let mut settings = Settings::default();
    settings.durability = durability;
    Box::new(Described { engine: Arc::new(options), settings, budget_bytes, dead_bytes_at_rest: SLACK_BYTES })
}
