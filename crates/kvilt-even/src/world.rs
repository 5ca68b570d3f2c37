//! `World`: what the engine is given of the world beside its disk.

use std::sync::Arc;

use kvilt_base::{Clock, Rng, Spawn};
use kvilt_sync::budget::Budget;

/// What the engine is given of the world.
#[derive(Clone)]
pub struct World {
    /// Time, for scheduling and statistics.
    pub clock: Arc<dyn Clock>,
    /// Chance, for identities.
    pub rng: Arc<dyn Rng>,
    /// Threads, for background work.
    pub spawn: Arc<dyn Spawn>,
    /// Memory; may be shared with other stores.
    pub budget: Arc<Budget>,
}
