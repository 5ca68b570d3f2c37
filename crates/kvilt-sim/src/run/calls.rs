//! The calls that write: what a step of a script asks of the engine.

use kvilt_base::{Engine, Swap, WriteBatch};

use super::Player;
use crate::{
    report::{Complaint, refused},
    script::{Expected, KeyId, Payload, Step},
};

impl Player<'_> {
    /// Calls the engine for a step that writes.
    pub(super) fn call(&mut self, step: &Step, is_change: bool) -> Result<(), Complaint> {
        let engine = self.engine();
        let script = self.script;
        let key_bytes = |key: KeyId| script.keys[usize::from(key)].as_slice();
        let outcome = match step {
            Step::Put(key, value) => {
                value.expand_into(&mut self.scratch);
                engine.put(key_bytes(*key), &self.scratch)
            }
            Step::Delete(key) => engine.delete(key_bytes(*key)),
            Step::Batch(changes) => {
                let mut batch = WriteBatch::new();
                for (key, value) in changes {
                    match value {
                        Some(value) => batch.put(key_bytes(*key), value.expanded()),
                        None => batch.delete(key_bytes(*key)),
                    };
                }
                engine.write(batch)
            }
            Step::DeleteRange(span) => engine.delete_range(&script.range(*span)),
            Step::Swap(key, expected, new) => return self.swap(&*engine, *key, *expected, *new, is_change),
            _ => unreachable!("not a write"),
        };
        outcome.map_err(refused("write"))
    }

    fn swap(
        &mut self,
        engine: &dyn Engine,
        key: KeyId,
        expected: Expected,
        new: Option<Payload>,
        is_change: bool,
    ) -> Result<(), Complaint> {
        let there = self.model.now().get(&key).map(|value| value.expanded());
        let expected = match expected {
            Expected::Current => there.clone(),
            Expected::Absent => None,
            Expected::Wrong => Some(b"never written".to_vec()),
        };
        let new = new.map(Payload::expanded);
        let outcome = engine
            .compare_and_swap(&self.script.keys[usize::from(key)], expected.as_deref(), new.as_deref())
            .map_err(refused("swap"))?;
        match (outcome, is_change) {
            (Swap::Done, true) => Ok(()),
            (Swap::Differs(found), false) if found.as_deref() == there.as_deref() => Ok(()),
            (outcome, _) => {
                Err(format!("a swap of key {key} came out as {outcome:?}, the model has {there:?}").into())
            }
        }
    }
}
