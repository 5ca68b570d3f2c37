//! Orders of logs, made of munks while these are there: without, a scan's first step would be to read the
//! whole log.

use std::sync::Arc;

use kvilt_base::{Direction, EntryRef, KeyRange};

use crate::{
    funk::{log::ChunkLog, log_order::LogOrder},
    munk::{entries_of, run::RunReader, tail::Tail},
    retain::Retain,
    store::Store,
};

impl Store {
    /// The order of a log's first `upto` bytes, made of all rows that its chunk has in memory: in runs, each
    /// with the part of the chunk's range that it has, and in tails. `upto` was read under the gate, together
    /// with the tails. None if it cannot be had this way, or a record cannot be read: who scans the log will
    /// find out why.
    pub(super) fn order_of<'m>(
        &self,
        (log, upto): (&ChunkLog, u64),
        runs: impl Iterator<Item = (RunReader<'m>, &'m KeyRange)>,
        tails: &[Arc<Tail>],
    ) -> Option<LogOrder> {
        let mut order = log.order_of_munk(upto)?;
        // Views that are opened from here on see the newest of all that was put before `upto` was read.
        let views = self.kept_views();
        for (run, range) in runs {
            let mut rows = entries_of(run, tails, range, Direction::Forward);
            let mut each = |row: EntryRef<'_>| {
                order.push(row);
                Ok(())
            };
            Retain::new(&views, &[]).run(&mut rows, &mut each).ok()?;
        }
        order.finish(&self.files).ok()?
    }
}
