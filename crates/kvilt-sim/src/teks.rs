//! Engine `teks` under test: its configurations, and what only it has.
//!
//! Where it stands: beside `even` and `kvell`; `fuzzing` tests the decoders of its files, and needs no store.

mod canonical;
mod damage;
pub mod fuzzing;
mod mutants;

use std::{sync::Arc, time::Duration};

use kvilt_base::{Durability, FileName, Settings, Stats, disk::FileKind};
use kvilt_format::names::{REDO, TABLE};
use kvilt_io::Call;
use kvilt_teks::{KINDS, NAME, Options};

use crate::{
    bystander::Moment,
    canonical::Canonical,
    dice::Dice,
    fuzzing::Target,
    mutants::Planted,
    subject::{Described, Recipe, Subject, Tested},
};

/// The engine.
pub const TEKS: Teks = Teks;

/// The engine under test.
pub struct Teks;

/// How many configurations seeds go round.
const CONFIGURATIONS: u64 = 24;

/// Room that the redo log and tables that wait to be merged take beside rows, in bytes.
const SLACK_BYTES: u64 = 64 << 20;

impl Tested for Teks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kinds(&self) -> &'static [FileKind] {
        KINDS
    }

    fn configurations(&self) -> u64 {
        CONFIGURATIONS
    }

    /// Memory tables of some rows, of many, of all; of three in turn, the second is synchronous.
    fn configuration(&self, number: u64) -> Box<dyn Subject> {
        let mut dice = Dice::new(number ^ 0x7e45);
        let interval = Duration::from_millis(*dice.pick(&[20, 300, 2_000]));
        let durability = match number % 3 {
            1 => Durability::Sync { interval },
            _ => Durability::Async { interval },
        };
        let mut options = Options::default();
        options.row_bytes = *dice.pick(&[8, 128, 4096]) as usize;
        let budget_bytes = *dice.pick(&[256 << 10, 1 << 20, ROOMY_BYTES]);
        subject(options, durability, budget_bytes)
    }

    fn tiny(&self, durability: Durability) -> Box<dyn Subject> {
        subject(Options::default(), durability, 256 << 10)
    }

    fn paths(&self) -> &'static [&'static str] {
        &["rotations", "flushes", "merges", "batches"]
    }

    fn canonical(&self) -> Vec<Canonical> {
        canonical::scripts()
    }

    /// A recovery has more disk calls than one of `even`: it writes two catalogues and begins a segment.
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
        moments: if budget_bytes >= ROOMY_BYTES { moment } else { |_, _| None },
        would_wait,
        rests_on_boot: false,
    }
}

/// From as many tables of level 0 on, a put waits for merges.
const LEVEL_0_SLOW: u64 = 8;

/// The store's own bounds: of sealed tables, and of those of level 0.
fn would_wait(stats: &Stats) -> bool {
    stats["sealed_now"] > 1 || stats["level_0_tables_now"] >= LEVEL_0_SLOW
}

/// Memory, in bytes, with which hardly a put waits for a flush: the thread that would flush may be that of
/// the put.
const ROOMY_BYTES: u64 = 64 << 20;

/// Flushes and merges write tables, and syncs are done, without locks that a put could need.
fn moment(call: Call, name: FileName) -> Option<Moment> {
    match call {
        Call::Write | Call::Sync if name.kind() == TABLE => Some(Moment::Making),
        Call::Sync if name.kind() == REDO => Some(Moment::Making),
        _ => None,
    }
}
