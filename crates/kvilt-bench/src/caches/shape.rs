//! `Shape`: how many rows there are, what they weigh, and where each lies in the files: in which chunk, and
//! in which pages.
//!
//! Always true: the data are a fraction of 4 GiB, and chunks, ranges and gets of a second are the same
//! fraction of what they are there, so that a chunk has as many popular ranges, and is looked at as often, as
//! in the scenario `limited`.

use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};

use crate::keys::KEY_BYTES;

/// Bytes of key and value: what a row adds to the data, whatever holds it.
pub(super) const ROW_BYTES: u64 = 800 + KEY_BYTES as u64;
/// Bytes of a row's record in a log: `docs/format/log.md`, with a version of two bytes.
const RECORD_BYTES: u64 = ROW_BYTES + 10;
/// Bytes of a page of the page cache. What the system has of its own for each is not in a process's limit.
pub(super) const PAGE_BYTES: u64 = 4096;
/// A munk's bytes for a row beside key and value: its head 20, its place 4, a place by hash 8, a head 8.
const MUNK_OVERHEAD_BYTES: u64 = 40;
/// What `kvilt-sync` charges for a cached row beside key and value, and the id of its chunk before the key.
pub(super) const CACHED_OVERHEAD_BYTES: u64 = 128 + 8;

/// The data of the scenario `limited`.
const FULL_BYTES: u64 = 4 << 30;
/// A chunk that is larger is split.
const FULL_CHUNK_BYTES: u64 = 7 << 20;
/// Gets of a second that two threads make there.
const FULL_GETS_A_SECOND: u64 = 70_000;

/// In which order rows lie in the file of their chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As a load in order, or a rewrite, leaves them.
    Keys,
    /// As random puts leave them in their chunk's log.
    Puts,
}

/// Rows, and where they lie.
pub(super) struct Shape {
    pub(super) rows: u32,
    pub(super) rows_a_chunk: u32,
    pages_a_chunk: u32,
    /// Of each row, its place in the file of its chunk; as in the order of keys if there is none.
    places: Vec<u32>,
}

impl Shape {
    pub(super) fn new(rows: u32, order: Order) -> Self {
        let rows_a_chunk = (u64::from(rows) * FULL_CHUNK_BYTES / FULL_BYTES).max(1) as u32;
        let file_bytes = u64::from(rows_a_chunk) * RECORD_BYTES;
        let mut places = Vec::new();
        if order == Order::Puts {
            let mut chance = SmallRng::seed_from_u64(u64::from(rows));
            for first in (0..rows).step_by(rows_a_chunk as usize) {
                let mut chunk: Vec<u32> = (0..rows_a_chunk.min(rows - first)).collect();
                chunk.shuffle(&mut chance);
                places.append(&mut chunk);
            }
        }
        Shape { rows, rows_a_chunk, pages_a_chunk: file_bytes.div_ceil(PAGE_BYTES) as u32, places }
    }

    /// How many times as large the scenario is.
    pub(super) fn scale(&self) -> f64 {
        FULL_BYTES as f64 / self.data_bytes() as f64
    }

    pub(super) fn data_bytes(&self) -> u64 {
        u64::from(self.rows) * ROW_BYTES
    }

    /// Gets of a second, scaled as everything.
    pub(super) fn gets_a_second(&self) -> u64 {
        ((FULL_GETS_A_SECOND as f64 / self.scale()) as u64).max(1)
    }

    pub(super) fn chunks(&self) -> usize {
        self.rows.div_ceil(self.rows_a_chunk) as usize
    }

    pub(super) fn pages(&self) -> usize {
        self.chunks() * self.pages_a_chunk as usize
    }

    pub(super) fn chunk_of(&self, row: u32) -> usize {
        (row / self.rows_a_chunk) as usize
    }

    /// The first row of a chunk, and the first behind it.
    pub(super) fn rows_of(&self, chunk: usize) -> std::ops::Range<u32> {
        let first = chunk as u32 * self.rows_a_chunk;
        first..(first + self.rows_a_chunk).min(self.rows)
    }

    /// The pages of a chunk's file.
    pub(super) fn pages_of(&self, chunk: usize) -> std::ops::Range<u32> {
        let first = chunk as u32 * self.pages_a_chunk;
        first..first + self.pages_a_chunk
    }

    /// The first and the last page of a row's record, which may be one.
    pub(super) fn pages_at(&self, row: u32) -> (u32, u32) {
        let place = self.places.get(row as usize).copied().unwrap_or(row % self.rows_a_chunk);
        let first = self.pages_of(self.chunk_of(row)).start;
        let begin = u64::from(place) * RECORD_BYTES;
        let page = |at: u64| first + (at / PAGE_BYTES) as u32;
        (page(begin), page(begin + RECORD_BYTES - 1))
    }

    /// What a chunk's munk weighs.
    pub(super) fn munk_bytes(&self, chunk: usize) -> u64 {
        self.rows_of(chunk).len() as u64 * (ROW_BYTES + MUNK_OVERHEAD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_row_has_a_place_of_its_own_in_its_chunk_in_either_order() {
        for order in [Order::Keys, Order::Puts] {
            let shape = Shape::new(20_000, order);
            assert_eq!((shape.rows_a_chunk, shape.chunks()), (34, 589));
            assert_eq!(shape.munk_bytes(0), 34 * 854);
            let mut of_a_page = vec![0; shape.pages()];
            for row in 0..shape.rows {
                let (first, last) = shape.pages_at(row);
                let pages = shape.pages_of(shape.chunk_of(row));
                assert!(pages.contains(&first) && pages.contains(&last) && last <= first + 1);
                of_a_page[first as usize] += 1;
            }
            assert!(of_a_page.iter().all(|rows| *rows <= 5), "five records fit into a page");
        }
        let by_puts = Shape::new(20_000, Order::Puts);
        let places: HashSet<u32> = by_puts.places[34..68].iter().copied().collect();
        assert_eq!(places, (0..34).collect());
        assert_ne!(by_puts.places[..34], by_puts.places[34..68], "each chunk has an order of its own");
    }

    #[test]
    fn in_the_order_of_keys_records_lie_one_behind_the_other() {
        let shape = Shape::new(20_000, Order::Keys);
        let pages: Vec<_> = (0..6).map(|row| shape.pages_at(row)).collect();
        assert_eq!(pages, [(0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (1, 1)]);
        assert_eq!(shape.pages_at(34), (7, 7), "a chunk has a file of its own");
    }
}
