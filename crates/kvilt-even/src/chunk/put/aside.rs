//! `Aside`: logs of which a put has set a full buffer aside (docs/design/0054-full-buffers-behind-the-gate.md).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use kvilt_sync::published::settle;

use crate::{files::Files, funk::log::ChunkLog, store::Store};

/// How often a put that filled a buffer waits for space, some milliseconds each time, before it goes on all the same.
const SPACE_WAITS_MAX: u32 = 4;

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

    /// The put is done, so it must not end as if it was not, neither with an error nor with a panic. Whoever needs the log's next buffer
    /// writes this one first, and meets what was met here.
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
    /// Step 6 of a put. One that filled a buffer waits here for the background to give back space if there is too little:
    /// others have the gate meanwhile.
    pub(super) fn write_aside(&self, aside: Aside) {
        let has_filled = !aside.0.is_empty();
        aside.write(&self.files);
        let mut waits = 0;
        while has_filled && waits < SPACE_WAITS_MAX && self.is_short_of_space() {
            self.stall(&self.counters.stalls_space);
            waits += 1;
        }
    }
}
