//! Work: what an operation takes as the store, its range tombstones and its readers grow; in steps
//! ([`kvilt_base::steps`]), never in time.
//!
//! The rule (E-20): with eight times as much of one of them no get, seek, put or range delete takes more than
//! three times the steps. What searches goes down a tree or halves an array, so steps grow as a logarithm
//! does: by less than half. Only builds that count steps look.

use std::sync::Arc;

use kvilt_base::{Direction, Engine, KeyRange, ReadView, steps::take_steps};

use crate::{
    dice::{Dice, mix},
    reading::{Manner, read_rows},
    report::{Complaint, refused},
    subject::{Subject, Tested},
    world::World,
};

/// Of what grows, there is so much at first …
const FEW: u32 = 160;
/// … and so much in the end.
const MANY: u32 = 8 * FEW;
/// Rows where something else grows.
const ROWS: u32 = 512;
/// Time after which rows that nobody writes to are sorted, in milliseconds.
const REST_MS: u32 = 2_000;
/// Operations of each kind that are looked at each time.
const SAMPLES: u64 = 32;
/// Steps may become so many times as many …
const GROWTH_MAX: u64 = 3;
/// … and fewer than this are few, whatever they were.
const STEPS_FEW: u64 = 100;
/// One seed in so many is held to this: it takes as long as a script or two.
const SEEDS_A_LOOK: u64 = 12;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growing {
    Rows,
    /// Ranges that lie apart, each deleted once.
    Tombstones,
    /// One range, deleted again and again.
    Repeats,
    /// Open views, between any two of which something is put.
    Views,
}

/// What is looked at.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Get,
    Seek,
    Put,
    DeleteRange,
}

impl Operation {
    /// A range delete last: behind an open the next get may pay for it.
    const ALL: [Operation; 4] = [Operation::Get, Operation::Seek, Operation::Put, Operation::DeleteRange];
}

/// Fails if an operation's work grows as one of these does, in a store that stays open or in one that has
/// just been opened. Only some seeds look, and only engines that count steps have a store for it.
pub fn keep_to_steps(tested: &dyn Tested, seed: u64) -> Result<(), Complaint> {
    if !cfg!(debug_assertions) || !seed.is_multiple_of(SEEDS_A_LOOK) {
        return Ok(());
    }
    let Some(subject) = tested.roomy() else { return Ok(()) };
    for growing in [Growing::Rows, Growing::Tombstones, Growing::Repeats, Growing::Views] {
        for is_warm in [true, false] {
            let look = Look { growing, dice: Dice::new(mix(seed)), views: Vec::new() };
            look.keeps_to_steps(&*subject, seed, is_warm)?;
        }
    }
    Ok(())
}

/// One store that grows.
struct Look {
    growing: Growing,
    dice: Dice,
    views: Vec<ReadView>,
}

impl Look {
    fn keeps_to_steps(mut self, subject: &dyn Subject, seed: u64, is_warm: bool) -> Result<(), Complaint> {
        let world = World::fresh(seed);
        let mut engine = subject.open(&world).map_err(refused("open"))?;
        if self.growing != Growing::Rows {
            self.put(&*engine, 0..ROWS)?;
            world.advance(REST_MS);
            world.step_until_idle()?;
        }
        if !is_warm {
            engine.close().map_err(refused("close"))?;
            engine = subject.open(&world).map_err(refused("open"))?;
        }
        self.grow(&world, &engine, 0..FEW)?;
        let few = self.steps(&*engine, FEW)?;
        self.grow(&world, &engine, FEW..MANY)?;
        let many = self.steps(&*engine, MANY)?;
        for (operation, (few, many)) in Operation::ALL.iter().zip(few.into_iter().zip(many)) {
            if many > GROWTH_MAX * few.max(STEPS_FEW) {
                let (growing, when) =
                    (self.growing, if is_warm { "in a warm store" } else { "behind an open" });
                return Err(format!(
                    "{operation:?} took {few} steps beside {FEW} of {growing:?}, {when}, and {many} beside {MANY}"
                )
                .into());
            }
        }
        self.views.clear();
        engine.close().map_err(refused("close"))
    }

    fn grow(
        &mut self,
        world: &World,
        engine: &Arc<dyn Engine>,
        numbers: std::ops::Range<u32>,
    ) -> Result<(), Complaint> {
        match self.growing {
            Growing::Rows => {
                self.put(&**engine, numbers)?;
                world.advance(REST_MS);
                world.step_until_idle()?;
            }
            Growing::Tombstones => {
                for number in numbers {
                    self.put(&**engine, number..number + 1)?;
                    put_beside(&**engine, number)?;
                    delete_beside(&**engine, number)?;
                }
            }
            Growing::Repeats => {
                for _ in numbers {
                    put_beside(&**engine, 0)?;
                    delete_beside(&**engine, 0)?;
                }
            }
            Growing::Views => {
                for number in numbers {
                    self.put(&**engine, number % ROWS..number % ROWS + 1)?;
                    self.views.push(engine.view().map_err(refused("view"))?);
                }
            }
        }
        // What was put aside for whoever asks first is put in order.
        engine.get(&key(0), None).map_err(refused("get")).map(drop)
    }

    fn put(&mut self, engine: &dyn Engine, numbers: std::ops::Range<u32>) -> Result<(), Complaint> {
        for number in numbers {
            engine.put(&key(number), &self.dice.number().to_be_bytes()).map_err(refused("put"))?;
        }
        Ok(())
    }

    /// The mean steps of each operation. What the background did meanwhile does not count.
    fn steps(&mut self, engine: &dyn Engine, size: u32) -> Result<Vec<u64>, Complaint> {
        let size = match self.growing {
            Growing::Rows | Growing::Tombstones => size,
            Growing::Repeats => 1,
            Growing::Views => ROWS,
        };
        let mut all = Vec::new();
        for operation in Operation::ALL {
            let (mut steps, mut count) = (0, 0);
            for _ in 0..SAMPLES {
                let number = self.dice.below(size as usize) as u32;
                if matches!(operation, Operation::DeleteRange) {
                    // Where an engine sees that there is nothing, it deletes nothing.
                    put_beside(engine, number)?;
                }
                let before = engine.stats().background_steps;
                take_steps();
                match operation {
                    Operation::Get => engine.get(&key(number), None).map_err(refused("get")).map(drop)?,
                    Operation::Seek => {
                        let view = engine.view().map_err(refused("view"))?;
                        let manner = Manner { rows_max: 1, ..Manner::whole(Direction::Forward) };
                        let range = KeyRange { start: key(number), end: None };
                        read_rows(engine, &view, &range, manner)?;
                    }
                    Operation::Put => self.put(engine, number..number + 1)?,
                    Operation::DeleteRange => delete_beside(engine, number)?,
                }
                let taken = take_steps();
                if engine.stats().background_steps == before {
                    (steps, count) = (steps + taken, count + 1);
                }
            }
            all.push(steps / u64::max(count, 1));
        }
        Ok(all)
    }
}

/// Puts a row behind the one with this number.
fn put_beside(engine: &dyn Engine, number: u32) -> Result<(), Complaint> {
    engine.put(&[key(number), vec![1]].concat(), b"").map_err(refused("put"))
}

/// Deletes it by its range.
fn delete_beside(engine: &dyn Engine, number: u32) -> Result<(), Complaint> {
    let range =
        KeyRange { start: [key(number), vec![0]].concat(), end: Some([key(number), vec![2]].concat()) };
    engine.delete_range(&range).map_err(refused("range delete"))
}

/// Numbers that follow one another have keys that lie apart.
fn key(number: u32) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec()
}
