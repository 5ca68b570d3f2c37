//! `Room`: memory that replaced rows had, until other rows have it.
//!
//! ```text
//!   replaced ─► waiting (few) ─► batch, with a pin ─► returned ─► free ─► taken
//! ```

use std::sync::Arc;

use crate::shim::Mutex;

/// So many replaced rows go to a pin together, which costs an allocation …
const BATCH_ROWS: usize = 8;
/// … or as many as have so many bytes.
const BATCH_BYTES: usize = 32 << 10;
/// What is left of a span that was taken is used for another row, or it is lost, if it is shorter.
const REST_BYTES_MIN: u32 = 32;
/// More free spans than this of many lengths mean that rows have lengths for which they are of no use; and
/// from here on an array costs more than a tree would.
const FREE_MAX: usize = 1 << 10;

/// A row's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) bytes: u32,
    pub(super) place: u32,
}

/// Replaced rows that a pin may still see: its drop says that none does.
pub(super) struct Batch {
    spans: Vec<Span>,
    returned: Arc<Mutex<Vec<Span>>>,
}

pub(super) struct Room {
    /// By length, so that the shortest is taken in which a row fits; of one length the last, which moves none
    /// if rows are as long as each other. An array that keeps its capacity: a tree's nodes came and went with
    /// two puts in three, and threads that write to one chunk waited for each other in the allocator.
    free: Vec<Span>,
    waiting: Vec<Span>,
    waiting_bytes: usize,
    returned: Arc<Mutex<Vec<Span>>>,
    /// Changes places with `returned`, so that both keep their capacity and whoever drops a batch hardly
    /// waits; empty otherwise.
    collected: Vec<Span>,
    /// Bytes of all spans above and of batches.
    reusable: usize,
    /// So much fresh memory may still be taken for rows that replace others.
    growth_left: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            free: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            returned: Arc::new(Mutex::new(Vec::new())),
            collected: Vec::new(),
            reusable: 0,
            growth_left: 0,
        }
    }
}

impl Room {
    pub(super) fn grows_at_most(&mut self, bytes: usize) {
        self.growth_left = bytes;
    }

    /// So much fresh memory is taken, which it [could](Room::can_grow).
    pub(super) fn grows(&mut self, bytes: usize) {
        self.growth_left -= bytes;
    }

    /// Where a row of so many bytes can be written.
    pub(super) fn take(&mut self, bytes: usize) -> Option<u32> {
        let bytes = u32::try_from(bytes).ok()?;
        let at = self.shortest(bytes).or_else(|| {
            self.collect();
            self.shortest(bytes)
        })?;
        let span = self.free.remove(at);
        self.reusable -= span.bytes as usize;
        let rest = Span { bytes: span.bytes - bytes, place: span.place + bytes };
        if rest.bytes >= REST_BYTES_MIN {
            self.reusable += rest.bytes as usize;
            insert(&mut self.free, rest);
        }
        Some(span.place)
    }

    /// Where the next row of so many bytes would be that replaces another, if memory is free for it.
    pub(super) fn next(&self, bytes: usize) -> Option<u32> {
        self.shortest(bytes as u32).map(|at| self.free[at].place)
    }

    /// Whether so much fresh memory may still be taken.
    pub(super) fn can_grow(&self, bytes: usize) -> bool {
        bytes <= self.growth_left
    }

    /// Which of the free spans is the last of the shortest that have so many bytes.
    fn shortest(&self, bytes: u32) -> Option<usize> {
        let last = self.free.last().filter(|span| span.bytes >= bytes)?;
        if last.bytes == bytes {
            return Some(self.free.len() - 1);
        }
        let first = self.free.partition_point(|span| span.bytes < bytes);
        let alike = self.free[first..].partition_point(|span| span.bytes == self.free[first].bytes);
        Some(first + alike - 1)
    }

    /// What pins have let go of is free.
    fn collect(&mut self) {
        std::mem::swap(&mut self.collected, &mut *self.returned.lock());
        for span in self.collected.drain(..) {
            let is_as_long = self.free.last().is_some_and(|longest| longest.bytes == span.bytes);
            if self.free.len() < FREE_MAX || is_as_long {
                insert(&mut self.free, span);
            } else {
                self.reusable -= span.bytes as usize;
            }
        }
    }

    /// A row was replaced that had this memory.
    pub(super) fn replaced(&mut self, span: Span) {
        self.reusable += span.bytes as usize;
        self.waiting_bytes += span.bytes as usize;
        self.waiting.push(span);
    }

    /// What is to wait for pins, if there is enough of it, or if it is wanted soon.
    pub(super) fn batch(&mut self, is_wanted: bool) -> Option<Batch> {
        let is_enough = self.waiting.len() >= BATCH_ROWS || self.waiting_bytes >= BATCH_BYTES;
        (is_enough || is_wanted && !self.waiting.is_empty()).then(|| {
            self.waiting_bytes = 0;
            let spans = std::mem::replace(&mut self.waiting, Vec::with_capacity(BATCH_ROWS));
            Batch { spans, returned: Arc::clone(&self.returned) }
        })
    }

    /// Whether a row of so many bytes may have room once all is free that was replaced.
    pub(super) fn may_have_room_later(&self, bytes: usize) -> bool {
        bytes <= self.reusable
    }

    /// Bytes of memory that rows have had and others will have.
    pub(super) fn reusable(&self) -> usize {
        self.reusable
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.returned.lock().append(&mut self.spans);
    }
}

/// Behind those that are as long as it.
fn insert(free: &mut Vec<Span>, span: Span) {
    let is_longest = free.last().is_none_or(|last| last.bytes <= span.bytes);
    let at = if is_longest { free.len() } else { free.partition_point(|other| other.bytes <= span.bytes) };
    free.insert(at, span);
}
