//! `Aside`: logs of which a put has set a full buffer aside
//! (docs/design/0054-full-buffers-behind-the-gate.md).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use kvilt_sync::published::settle;

use crate::{files::Files, funk::log::ChunkLog, store::Store};

/// While there is too little space, a put that filled a buffer waits for this many steps of the background, …
const SPACE_WAITS: u32 = 4;
/// … and, as steps of small chunks take microseconds, for about this time, before it goes on all the same.
const SPACE_WAIT: Duration = Duration::from_millis(4);

/// Their buffers are written once all gates are given back: others put to these chunks meanwhile.
#[derive(Default)]
pub(super) struct Aside(Vec<Arc<ChunkLog>>, IsLarge);

/// Whether one of the buffers was made for a large record.
type IsLarge = bool;

impl Aside {
    pub(super) fn push(&mut self, log: Arc<ChunkLog>) {
        self.0.push(log);
    }

    pub(super) fn push_large(&mut self, log: Arc<ChunkLog>) {
        self.0.push(log);
        self.1 = true;
    }

    /// The put is done, so it must not end as if it was not, neither with an error nor with a panic. Whoever
    /// needs the log's next buffer writes this one first, and meets what was met here.
    pub(super) fn write(self, files: &Files) {
        for log in self.0 {
            let _is_met_again = catch_unwind(AssertUnwindSafe(|| log.write_aside(files)));
        }
        if self.1 {
            // The buffer is replaced, and goes now.
            settle();
        }
    }
}

impl Store {
    /// Step 6 of a put. While there is too little space, a put that filled a buffer waits here for the
    /// background to give some back, and so does now and then one that filled none: a short delete may kill a
    /// long row. Others have the gate.
    pub(super) fn write_aside(&self, aside: Aside) {
        let has_filled = !aside.0.is_empty();
        aside.write(&self.files);
        if !self.is_short_of_space() {
            return;
        }
        if !has_filled && !self.is_turn_to_wait_for_space() {
            return;
        }
        let began = self.world.clock.now();
        let (mut waits, mut waited, mut has_waited) = (0, Duration::ZERO, true);
        // Where the clock stands still, as in the simulation, to wait for time is in vain.
        while self.is_short_of_space() && (waits < SPACE_WAITS || has_waited && waited < SPACE_WAIT) {
            self.stall(&self.counters.stalls_space);
            let by_now = self.world.clock.now().saturating_sub(began);
            has_waited = by_now > waited;
            (waits, waited) = (waits + 1, by_now);
        }
    }
}
