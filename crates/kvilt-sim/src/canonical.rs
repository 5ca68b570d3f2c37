//! Canonical scripts: each goes one path through the store, short enough that every disk call of it can be
//! made to fail in every way, and named after the path. That it *goes* that path is checked by the store's
//! own figures. Here is what they are written with; each engine has its own.

use std::sync::Arc;

use kvilt_base::Direction;
use kvilt_io::{Keep, MemoryDisk};

use crate::{
    faults::{Case, recovered},
    report::Complaint,
    run::Player,
    script::{Expected, KeyId, Payload, Script, Span, Step},
    subject::Subject,
    world::World,
};

/// A script with a name.
pub struct Canonical {
    /// The path that it goes.
    pub name: &'static str,
    /// The store.
    pub subject: Box<dyn Subject>,
    /// What an earlier run does, which ends in a crash; nothing if empty.
    pub before: Vec<Step>,
    /// What is done.
    pub script: Script,
    /// Figures that are not zero afterwards, or the path was missed.
    pub reaches: &'static [&'static str],
}

/// Keys that all of them use.
pub const KEYS: KeyId = 64;

impl Canonical {
    /// The script on the disk that it begins with.
    pub fn case(&self) -> Result<Case<'_>, Complaint> {
        let mut case = Case::new(&*self.subject, &self.script, SEED);
        if !self.before.is_empty() {
            let earlier = Script { keys: Arc::clone(&self.script.keys), steps: self.before.clone() };
            let memory = MemoryDisk::new(SEED);
            let world = World::stepped(memory.clone(), memory.clone(), SEED);
            let mut player = Player::new(&*self.subject, &world, &earlier, Arc::default());
            player.open()?;
            for position in 0..earlier.steps.len() {
                player.play(position)?;
            }
            let left = memory.crash_image(Keep::All);
            let allowed = player.states().to_vec();
            player.abandon();
            let image = left.crash_image(Keep::All);
            let world = World::stepped(image.clone(), image, SEED);
            let mut player = Player::new(&*self.subject, &world, &earlier, Arc::default());
            player.open()?;
            let state = recovered(&player, &earlier, &allowed)?;
            player.abandon();
            case.origin = Some((left, state));
        }
        Ok(case)
    }
}

/// What chance does in all of them.
const SEED: u64 = 20;

/// Writes the steps of a script.
#[derive(Default)]
pub struct Plot {
    /// Those written so far.
    pub steps: Vec<Step>,
    number: u32,
}

impl Plot {
    /// For a script behind another one, whose payloads have other numbers.
    pub fn continued() -> Self {
        Plot { number: 10_000, ..Plot::default() }
    }

    fn value(&mut self, bytes: u32) -> Payload {
        self.number += 1;
        Payload { number: self.number, bytes }
    }

    /// A step of any kind.
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Puts to these keys, in this order.
    pub fn puts(mut self, keys: impl IntoIterator<Item = KeyId>, bytes: u32) -> Self {
        for key in keys {
            let value = self.value(bytes);
            self.steps.push(Step::Put(key, value));
        }
        self
    }

    /// Deletes these keys, in this order.
    pub fn deletes(mut self, keys: impl IntoIterator<Item = KeyId>) -> Self {
        self.steps.extend(keys.into_iter().map(Step::Delete));
        self
    }

    /// One batch to these keys; every fourth is a delete.
    pub fn batch(mut self, keys: impl IntoIterator<Item = KeyId>, bytes: u32) -> Self {
        let keys = keys.into_iter().enumerate();
        let changes = keys.map(|(i, key)| (key, (i % 4 != 3).then(|| self.value(bytes)))).collect();
        self.steps.push(Step::Batch(changes));
        self
    }

    /// Compares and swaps; no bytes: deletes.
    pub fn swap(mut self, key: KeyId, expected: Expected, bytes: Option<u32>) -> Self {
        let new = bytes.map(|bytes| self.value(bytes));
        self.steps.push(Step::Swap(key, expected, new));
        self
    }

    /// Gets these keys, in this order.
    pub fn gets(mut self, keys: impl IntoIterator<Item = KeyId>) -> Self {
        self.steps.extend(keys.into_iter().map(|key| Step::Get(key, None)));
        self
    }

    /// Scans everything, now or at a view.
    pub fn scan(self, view: Option<u8>) -> Self {
        self.step(Step::Scan {
            span: Span { start: 0, end: None },
            direction: Direction::Forward,
            rows_max: u32::MAX,
            batch_bytes: 4096,
            keys_only: false,
            view,
        })
    }

    /// So many steps of the workers.
    pub fn work(self, steps: u16) -> Self {
        self.step(Step::Background { steps, seed: 3 })
    }

    /// Time passes, and the workers use it.
    pub fn later(self, ms: u32) -> Self {
        self.step(Step::Advance { ms }).work(30)
    }

    /// Makes everything durable.
    pub fn sync(self) -> Self {
        self.step(Step::Sync)
    }

    /// Closes the store and opens it.
    pub fn reopen(self) -> Self {
        self.step(Step::Reopen)
    }

    /// The script on a store, with the figures that it must reach.
    pub fn of(
        self,
        name: &'static str,
        subject: impl Subject + 'static,
        reaches: &'static [&'static str],
    ) -> Canonical {
        let keys = Arc::new((0..KEYS).map(|i| format!("key/{i:04}").into_bytes()).collect());
        let script = Script { keys, steps: self.steps };
        let subject = Box::new(subject);
        Canonical { name, subject, before: Vec::new(), script, reaches }
    }
}
