//! Row caches of stores with one budget: together they have about as much as that of one store alone.
//!
//! Alone in its process, as every test of memory.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Budget, Engine, World};
use kvilt_even::Options;
use kvilt_io::{ManualClock, MemoryDisk, SeededRng, StepSpawn};

const BUDGET: u64 = 8 << 20;
/// Of one store.
const SHARE: u64 = BUDGET / 10;
const STORES: u64 = 16;
/// Rows of a store: more than its part of the budget, so that most chunks have no munk.
const ROWS: u32 = 2_000;

/// A store whose background is moved by hand.
struct Bed {
    clock: Arc<ManualClock>,
    spawn: Arc<StepSpawn>,
    db: Arc<dyn Engine>,
    steps: u64,
}

impl Bed {
    fn open(budget: &Arc<Budget>, seed: u64) -> Bed {
        let clock = ManualClock::new();
        let spawn = StepSpawn::new(clock.clone(), seed);
        let world = World {
            clock: clock.clone(),
            rng: Arc::new(SeededRng::new(seed)),
            spawn: spawn.clone(),
            budget: Arc::clone(budget),
        };
        let db = kvilt_even::open(MemoryDisk::new(seed), world, Options::default()).expect("it opens");
        Bed { clock, spawn, db, steps: 0 }
    }

    /// Some time passes, and the background does what it wants, up to a bound.
    fn rest(&mut self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
        for _ in 0..200 {
            self.steps += 1;
            if !self.spawn.step(self.steps) {
                break;
            }
        }
    }
}

#[test]
fn many_stores_with_one_budget_share_what_one_would_have_for_rows() {
    let budget = Budget::new(BUDGET);
    let mut beds: Vec<Bed> = (0..STORES).map(|seed| Bed::open(&budget, seed)).collect();
    for bed in &mut beds {
        for row in 0..ROWS {
            bed.db.put(format!("{row:06}").as_bytes(), &[7; 500]).expect("there is room");
            if row % 50 == 0 {
                bed.rest(20);
            }
        }
        bed.rest(1_000);
    }
    let mut most = 0;
    for round in 0..8u32 {
        for bed in &mut beds {
            for i in 0..ROWS {
                let row = i.wrapping_mul(997).wrapping_add(round) % ROWS;
                let mut len = 0;
                assert!(
                    bed.db.get_with(format!("{row:06}").as_bytes(), None, &mut |v| len = v.len()).unwrap()
                );
                assert_eq!(len, 500);
                if i % 200 == 0 {
                    bed.rest(250);
                }
            }
        }
        most = beds.iter().map(|bed| bed.db.stats()["row_cache_bytes_now"]).sum();
    }
    println!("{most} bytes of rows in {STORES} stores, a share is {SHARE}");
    assert!(most > SHARE / 4, "{most} bytes: the gets found no rows to cache");
    assert!(most < SHARE * 3 / 2, "{most} bytes of rows, and one store would have {SHARE}");
    beds.iter().for_each(|bed| bed.db.close().expect("it closes"));
}
