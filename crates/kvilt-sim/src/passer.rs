//! `Passer`: somebody who comes between two steps of a write: to read, or to make everything durable.
//!
//! A bystander writes while the background waits; a passer is the other way round. When a write has made room
//! and has not taken its version yet ([`kvilt_base::Spawn::between`]), it calls the store on that very
//! thread, once, for an errand that the seed chose. So a checkpoint meets, in scripts too, a put that has
//! marked its chunk and not written to it.
//!
//! What is always true: it takes no gate, for the write has its own; what it saw is compared with the model
//! as it was before the write. Why so: `docs/design/0030-a-bystander.md`.

use std::sync::{Arc, Mutex, PoisonError};

use kvilt_base::{Direction, Engine};

use crate::{
    reading::{Manner, Row},
    report::{Complaint, refused},
    run::all_rows,
};

/// One who may come by; at most one at a time.
#[derive(Default)]
pub struct Passer(Mutex<Option<Visit>>);

/// A passer with a store to call, and what came of it.
pub struct Visit {
    /// The store.
    pub engine: Arc<dyn Engine>,
    /// What it comes for.
    pub errand: Errand,
    /// What it saw; none before it came.
    pub seen: Option<Result<Seen, Complaint>>,
}

/// What a passer comes for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Makes everything durable that was acknowledged.
    Sync,
    /// Reads this key.
    Get(Vec<u8>),
    /// Reads everything.
    Scan,
}

/// What an errand has shown.
#[derive(Clone, Debug)]
pub enum Seen {
    /// Nothing but that it went well.
    Synced,
    /// The value of the key.
    Value(Option<Vec<u8>>),
    /// Every row.
    Rows(Vec<Row>),
}

impl Passer {
    /// Will come at the next occasion.
    pub fn send(&self, engine: Arc<dyn Engine>, errand: Errand) {
        *self.visit() = Some(Visit { engine, errand, seen: None });
    }

    /// Goes away, and tells what it saw; nothing if it was not sent, or had no occasion.
    pub fn recall(&self) -> Option<Result<Seen, Complaint>> {
        self.visit().take()?.seen
    }

    /// Between two steps of a write. While it does its errand it is not there.
    pub fn come(&self) {
        let Some(mut visit) = self.visit().take() else { return };
        if visit.seen.is_none() {
            visit.seen = Some(visit.run());
        }
        *self.visit() = Some(visit);
    }

    fn visit(&self) -> std::sync::MutexGuard<'_, Option<Visit>> {
        // A panic of the engine under its errand is told by whoever catches it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit {
    fn run(&self) -> Result<Seen, Complaint> {
        match &self.errand {
            Errand::Sync => {
                self.engine.sync().map_err(refused("a sync within a write")).map(|()| Seen::Synced)
            }
            Errand::Get(key) => {
                let value = self.engine.get(key, None).map_err(refused("a get within a write"))?;
                Ok(Seen::Value(value.map(|value| value.to_vec())))
            }
            Errand::Scan => Ok(Seen::Rows(all_rows(&*self.engine, Manner::whole(Direction::Forward))?)),
        }
    }
}
