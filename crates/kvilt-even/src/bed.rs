//! `bed`: an open store for unit tests that call its parts one by one; its workers step only when told.

use std::sync::Arc;

use kvilt_base::Disk;
use kvilt_io::{ManualClock, SeededRng, StepSpawn};
use kvilt_sync::budget::Budget;

use crate::{
    options::Options,
    recovery,
    store::{Store, World},
};

/// Opens the store in `disk`, or makes one.
pub(crate) fn open(disk: Arc<dyn Disk>, options: &Options) -> Arc<Store> {
    let clock = ManualClock::new();
    let world = World {
        rng: Arc::new(SeededRng::new(1)),
        spawn: StepSpawn::new(clock.clone(), 1),
        clock,
        budget: Budget::new(64 << 20),
    };
    recovery::open(disk, world, options).unwrap().0
}
