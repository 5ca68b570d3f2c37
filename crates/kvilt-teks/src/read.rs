//! Reads: gets and scans. They take no lock and wait for no writer; a scan weaves what was put before it.

use std::{ops::ControlFlow, slice};

use kvilt_base::{
    Direction, KeyRange, Kind, Merge, Result, Rows, Scanned, Source, Version, Visible, key::successor, limits,
};

use kvilt_sync::{
    Pin,
    tombstones::{Hidden, Over},
};

use crate::{
    sources::{Seen, Sources},
    store::Store,
};

/// Rows that a scan gives before it returns and is called again: what it reads is kept that long.
const ROWS_A_SCAN: usize = 1024;

impl Store {
    pub(crate) fn get(
        &self,
        key: &[u8],
        view: Option<Version>,
        found: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        limits::check_key(key, limits::ENGINE_KEY_BYTES_MAX)?;
        self.ensure_open()?;
        // Relaxed: a statistic.
        self.counters.gets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.find(key, view.unwrap_or(Version::NEWEST), found)
    }

    /// Calls `found` with the value that a reader at `view` sees, if there is one.
    pub(crate) fn find(&self, key: &[u8], view: Version, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let pin = kvilt_sync::pin();
        let sources = self.sources.load(&pin);
        let is_value = |version: Version, kind: Kind| {
            kind == Kind::Put && sources.tombstones.hide(key, version, view, &self.versions) != Hidden::Yes
        };
        for memory in sources.memories() {
            if let Some(row) = memory.table.under(&pin).get(key, view, &Seen(&self.versions)) {
                self.ensure_view(view)?;
                let is_value = is_value(row.version, row.kind);
                if is_value {
                    pin.apart(|| found(row.value));
                }
                return Ok(is_value);
            }
        }
        let mut outcome = Ok(false);
        for sorted in sources.sorted_with(key) {
            let is_there = sorted.table.get(key, view, |version, kind, value| {
                outcome = self.ensure_view(view).map(|()| is_value(version, kind));
                if matches!(outcome, Ok(true)) {
                    pin.apart(|| found(value));
                }
            })?;
            if is_there {
                return outcome;
            }
        }
        self.ensure_view(view)?;
        Ok(false)
    }

    pub(crate) fn scan(
        &self,
        view: Version,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        self.ensure_open()?;
        self.ensure_view(view)?;
        if range.is_empty() {
            return Ok(Scanned::Ended);
        }
        let pin = kvilt_sync::pin();
        let sources = self.sources.load(&pin);
        let merge = Merge::new(self.streams(&pin, sources, range, direction, view)?, direction)?;
        let mut visible =
            Visible::new(merge, direction, view, Over::new(slice::from_ref(&sources.tombstones)));
        let (mut left, mut given, mut expired, mut has_broken) = (range.clone(), 0, Ok(()), false);
        let flow = visible.each(|key, value| {
            expired = self.ensure_view(view);
            if expired.is_err() {
                return ControlFlow::Break(());
            }
            given += 1;
            has_broken = pin.apart(|| rows.take(key, value)).is_break();
            if !has_broken && given < ROWS_A_SCAN {
                return ControlFlow::Continue(());
            }
            match direction {
                Direction::Forward => left.start = successor(key),
                Direction::Backward => left.end = Some(key.to_vec()),
            }
            ControlFlow::Break(())
        })?;
        self.counters.scanned_rows.fetch_add(given as u64, std::sync::atomic::Ordering::Relaxed);
        expired?;
        self.ensure_view(view)?;
        Ok(match flow {
            ControlFlow::Continue(()) => Scanned::Ended,
            ControlFlow::Break(()) if has_broken && rows.wanted() == Some(0) => Scanned::Enough,
            ControlFlow::Break(()) => Scanned::Left(left),
        })
    }

    /// The streams of all sources that may have keys of a range, newest first.
    pub(crate) fn streams<'s>(
        &'s self,
        pin: &'s Pin,
        sources: &'s Sources,
        range: &'s KeyRange,
        direction: Direction,
        view: Version,
    ) -> Result<Vec<Box<dyn Source + 's>>> {
        let mut streams: Vec<Box<dyn Source + 's>> = Vec::new();
        for memory in sources.memories() {
            let rows = memory.table.under(pin).rows(range, direction, view, Seen(&self.versions));
            streams.push(Box::new(rows));
        }
        sources.push_sorted(range, direction, &mut streams)?;
        Ok(streams)
    }
}
