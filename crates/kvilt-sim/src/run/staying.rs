//! A reader that stays: a few steps of a script are played within a get, whose reader keeps what it found.
//! Behind each step, within or not, the store is held to its budget.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Player;
use crate::{
    economy::hold_to_budget,
    report::{Complaint, refused},
    script::Step,
};

/// A get that stays begins at one step in this many …
const STAYS_IN: usize = 150;
/// … and at most this many steps are played within it.
const STEPS_MAX: usize = 120;

impl Player<'_> {
    /// Plays the step at this position of the script, or, now and then, that and some behind it while a
    /// reader stays. Says at which it is, and returns how many it played.
    pub(super) fn play_some(&mut self, position: usize, at: &AtomicUsize) -> Result<usize, Complaint> {
        let length = self.length_of_stay(position);
        let key = self.model.now().keys().next().copied().filter(|_| length > 1);
        let Some(key) = key else {
            at.store(position, Relaxed);
            self.play(position)?;
            self.hold_to_budget(0)?;
            return Ok(1);
        };
        let engine = self.engine();
        let value = self.model.now()[&key].expanded();
        let mut outcome = Ok(());
        let found_bytes = self.subject.bytes_to_find(&engine.stats());
        let is_found = engine.get_with(&self.script.keys[usize::from(key)], None, &mut |found| {
            outcome = (position..position + length).try_for_each(|position| {
                at.store(position, Relaxed);
                self.play(position)?;
                self.hold_to_budget(found_bytes)
            });
            if outcome.is_ok() && found != value {
                outcome = Err("a value has changed under its reader".into());
            }
        });
        outcome?;
        if is_found.map_err(refused("get"))? { Ok(length) } else { Err(format!("key {key} is gone").into()) }
    }

    /// For how many steps a reader stays: none of them closes the store or makes another. It would be in the
    /// way of other worlds.
    fn length_of_stay(&mut self, position: usize) -> usize {
        let Some(dice) = self.stayer.as_mut() else { return 0 };
        if !dice.chance(1, STAYS_IN) || !self.world.is_alone() {
            return 0;
        }
        let steps = self.script.steps[position..].iter().take(dice.between(2, STEPS_MAX));
        steps.take_while(|step| !matches!(step, Step::Reopen | Step::Copy)).count()
    }

    fn hold_to_budget(&self, found_bytes: u64) -> Result<(), Complaint> {
        let engine = self.engine.as_ref();
        engine.map_or(Ok(()), |engine| hold_to_budget(self.subject, self.world, &**engine, found_bytes))
    }
}
