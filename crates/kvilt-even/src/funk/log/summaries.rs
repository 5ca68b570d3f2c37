//! Summaries in a log: what its records say but for their values, so that who needs no values need not read
//! them.
//!
//! A log of a few megabytes has a fiftieth of that in keys. Who makes its index or its order reads it whole
//! if nothing tells the keys otherwise; behind an open nothing does, and behind each summary that was written
//! here something does. `docs/design/0053-summaries-in-logs.md`.
//!
//! A summary lies at the beginning of a buffer, or behind what that carries over from the one before, for
//! which a put makes it that has the gate and has announced nothing.
//!
//! * **E-14** A summary tells of all records between a place and its own, and the one that the manifest names
//!   lies below the log's durable length.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use kvilt_base::{Charge, EntryRef, Error, Result, Version, planted};
use kvilt_format::{
    FileIdentity,
    log::{
        Decoded, EARLIER_MAX, HEADER_BYTES, Outline, Outlines, SUMMARY_BODY_BYTES_MAX, Summary, decode_record,
    },
};

use super::ChunkLog;
use crate::{files::Files, parts};

/// What is read of the last summary at first.
const READ_BYTES: u64 = 4 << 10;

/// How often a log is summed up, and when not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryRule {
    /// Bytes of records that a summary tells of, at least.
    pub(crate) covered_bytes: u64,
    /// Of these, the summary takes so many percent at most: else records are so short that reading them costs
    /// little more.
    pub(crate) percent: u64,
}

/// Where the summaries of a log lie. Zero stands for none.
pub(super) struct Summaries {
    /// The newest.
    last: AtomicU64,
    /// The newest that a power cut leaves.
    durable: AtomicU64,
}

impl Summaries {
    /// Of a log of which the last one is known.
    pub(super) fn of(last: Option<u64>) -> Self {
        let last = last.unwrap_or(0);
        Summaries { last: AtomicU64::new(last), durable: AtomicU64::new(last) }
    }

    /// The newest one.
    pub(super) fn last(&self) -> Option<u64> {
        some(self.last.load(Ordering::Acquire))
    }

    /// One was appended at `offset`. The caller has the gate.
    pub(super) fn appended(&self, offset: u64) {
        self.last.store(offset, Ordering::Release);
    }

    /// The newest one that is durable.
    pub(super) fn durable(&self) -> Option<u64> {
        planted!(SummaryNotSynced => return self.last());
        some(self.durable.load(Ordering::Acquire))
    }

    /// All before the durable length, which has grown, has this as its last one.
    pub(super) fn became_durable(&self, last: Option<u64>) {
        self.durable.fetch_max(last.unwrap_or(0), Ordering::AcqRel);
    }
}

fn some(offset: u64) -> Option<u64> {
    (offset > 0).then_some(offset)
}

/// What the next summary will tell of: records since the last one, of buffers that are full or written. To
/// gather each as it is put would touch three more lines of memory for each put; those of a buffer were put
/// together, or are in the processor's cache.
pub(super) struct Gathered {
    outlines: Outlines,
    /// Behind what was gathered last, and the summary behind that.
    end: u64,
    /// Where the last summaries lie, oldest first.
    earlier: VecDeque<u64>,
    rule: SummaryRule,
    charge: Charge,
}

impl Gathered {
    /// Nothing yet of a log without records.
    pub(super) fn new(base: Version, files: &Files) -> Self {
        let charge = files.budget.charge(parts::LOG_INDEXES, 0);
        let (outlines, rule) = (Outlines::new(base), files.summary_rule);
        Gathered { outlines, end: HEADER_BYTES as u64, earlier: VecDeque::new(), rule, charge }
    }

    /// These bytes lie at `start`, or will: whole records, but for a header or a summary that they may begin
    /// with. What of them is gathered already is passed by.
    pub(super) fn gather(&mut self, start: u64, bytes: &[u8]) {
        // None if a summary lies behind what is gathered of them, which is all; or if bytes are missing
        // before them, which only a planted bug makes: nothing is summed up any more.
        let known = self.end.checked_sub(start).map(|known| known as usize);
        let Some(records) = known.and_then(|known| bytes.get(known..)) else { return };
        self.outlines.push_records(records);
        self.end += records.len() as u64;
        let covered = self.outlines.covered_bytes().max(self.rule.covered_bytes);
        let most = covered.saturating_mul(self.rule.percent) / 100;
        if self.outlines.len() as u64 > most.min(SUMMARY_BODY_BYTES_MAX as u64 / 2) {
            // What is gathered from here on tells of what comes from here on.
            self.outlines.clear();
        }
        self.count_memory();
    }

    fn count_memory(&mut self) {
        let (bytes, counted) = (self.outlines.memory_bytes() as u64, self.charge.bytes());
        if bytes > counted {
            self.charge.grow(bytes - counted);
        } else if bytes < counted {
            self.charge.shrink(counted - bytes);
        }
    }

    /// The summary that is due at `offset`, where the log ends, if all before that is gathered.
    pub(super) fn due(&mut self, id: FileIdentity, offset: u64) -> Option<Vec<u8>> {
        if self.outlines.covered_bytes() < self.rule.covered_bytes || self.end != offset {
            return None;
        }
        let summary = self.outlines.summary(id, offset, self.earlier.iter().rev().copied());
        self.outlines.clear();
        self.end += summary.len() as u64;
        self.earlier.push_back(offset);
        if self.earlier.len() > EARLIER_MAX {
            self.earlier.pop_front();
        }
        Some(summary)
    }
}

impl ChunkLog {
    /// The last summary in its durable bytes. Asked before [`ChunkLog::durable_len`], so that it lies before
    /// that.
    pub(crate) fn durable_summary(&self) -> Option<u64> {
        self.summaries.durable()
    }

    /// Gives every live record of a part of it, but for its value, to `each`, in the order written. Entries
    /// that a crash cut off are left out. Returns how many bytes it read.
    pub(crate) fn for_each_outline(
        &self,
        files: &Files,
        place: Range<u64>,
        each: &mut dyn FnMut(Outline<'_>) -> Result<()>,
    ) -> Result<u64> {
        let (mut at, mut read) = (place.start.max(HEADER_BYTES as u64), 0);
        for summary in self.summaries_in(files, &place)? {
            let covered = summary.covered();
            read += self.outlines_read(files, at..covered.start, each)? + (summary.end() - covered.end);
            let mut outlines = summary.outlines();
            while let Some(outline) = outlines.next() {
                let is_wanted = (at..place.end).contains(&outline.offset);
                let is_dead = is_wanted && files.dead.contain(outline.version);
                let is_dead = planted!(DeadSummedUp, is_dead => false);
                if is_wanted && !is_dead {
                    each(outline)?;
                }
            }
            at = at.max(summary.end());
        }
        Ok(read + self.outlines_read(files, at..place.end, each)?)
    }

    /// The same from the records themselves.
    fn outlines_read(
        &self,
        files: &Files,
        place: Range<u64>,
        each: &mut dyn FnMut(Outline<'_>) -> Result<()>,
    ) -> Result<u64> {
        self.for_each(files, place.start, place.end, &mut |offset, entry, _batch| {
            let EntryRef { key, version, kind, .. } = entry;
            each(Outline { offset, kind, key, version })
        })?;
        Ok(place.end.saturating_sub(place.start))
    }

    /// The summaries that tell of records in `place`, oldest first.
    fn summaries_in(&self, files: &Files, place: &Range<u64>) -> Result<Vec<Summary>> {
        let mut newest_first = Vec::new();
        let mut known = VecDeque::from_iter(self.summaries.last());
        let mut likely_bytes = READ_BYTES;
        while let Some(at) = known.pop_front().filter(|at| *at > place.start) {
            let summary = self.summary_at(files, at, likely_bytes)?;
            // They tell of equally many bytes, so they are equally long, nearly.
            let bytes = summary.end() - at;
            likely_bytes = bytes + bytes / 8;
            if known.is_empty() {
                known.extend(summary.earlier().iter().filter(|at| **at > place.start));
                self.will_read_summaries(files, &known, likely_bytes)?;
            }
            if summary.covered().start < place.end {
                newest_first.push(summary);
            }
        }
        newest_first.reverse();
        Ok(newest_first)
    }

    /// Has the system fetch them all at once: one after the other they would be waited for one by one.
    fn will_read_summaries(&self, files: &Files, places: &VecDeque<u64>, bytes: u64) -> Result<()> {
        let in_file = self.end().start;
        for at in places.iter().filter(|at| **at < in_file) {
            self.opened(files)?.will_read(*at, bytes.min(in_file - at) as usize);
        }
        Ok(())
    }

    fn summary_at(&self, files: &Files, at: u64, likely_bytes: u64) -> Result<Summary> {
        let tail = self.end();
        let mut read = Vec::new();
        let mut wanted = likely_bytes;
        loop {
            let bytes = if at >= tail.start {
                tail.bytes_from(at)
            } else {
                read.resize(wanted.min(tail.start - at) as usize, 0);
                let got = self.opened(files)?.read_exact_at(at, &mut read);
                got.map_err(|e| self.read_failed(at, e))?;
                &read
            };
            match decode_record(bytes, self.identity, at, self.base) {
                Decoded::Summary { len } => {
                    return Summary::decode(bytes[..len].to_vec(), at, self.base)
                        .map_err(|e| self.bad_summary(at, e.0));
                }
                Decoded::Incomplete { needed } if at + needed as u64 <= tail.start => wanted = needed as u64,
                Decoded::Incomplete { .. } | Decoded::Record { .. } => {
                    return Err(self.bad_summary(at, "none is there"));
                }
                Decoded::Bad(why) => return Err(self.bad_summary(at, why)),
            }
        }
    }

    fn bad_summary(&self, at: u64, why: &str) -> Error {
        Error::corrupted(self.name(), at, format!("a log's summary that was synced is damaged: {why}"))
    }
}

#[cfg(test)]
mod tests;
