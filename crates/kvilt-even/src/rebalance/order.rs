//! Orders of logs, made of munks while these are there: without, a scan's first step would be to read the whole log.

use kvilt_base::{Direction, KeyRange, Result};

use crate::{
    funk::{log::ChunkLog, log_order::LogOrder},
    munk::{entries_of, run::Run, tail::Tail},
    retain::Retain,
    store::Store,
};
use std::sync::Arc;

impl Store {
    /// The order of a log's first `upto` bytes, made of all rows that its chunk has in memory: in runs, each with the part of
    /// the chunk's range that it has, and in tails. `upto` was read under the gate, together with the tails. None if it cannot be had
    /// this way.
    pub(super) fn order_of<'m>(
        &self,
        (log, upto): (&ChunkLog, u64),
        runs: impl Iterator<Item = (&'m Run, &'m KeyRange)>,
        tails: &[Arc<Tail>],
    ) -> Result<Option<LogOrder>> {
        let Some(mut order) = log.order_of_munk(upto) else { return Ok(None) };
        // Views that are opened from here on see the newest of all that was put before `upto` was read.
        let views = self.kept_views();
        for (run, range) in runs {
            let mut rows = entries_of(run, tails, range, Direction::Forward);
            Retain::new(&views, &[]).run(&mut rows, &mut |row| {
                order.push(row);
                Ok(())
            })?;
        }
        order.finish(&self.files)
    }
}
