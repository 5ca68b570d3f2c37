//! `Mix`: for each chunk the better of "whole munk" and "rows", decided by what each byte earns; pages in the
//! rest of memory.
//!
//! What is earned is a read of the drive that is spared. A munk of a chunk would spare all reads that the
//! chunk's gets make of the drive now, for its bytes less those that the chunk's cached rows give back; a
//! byte of the row cache spares what its rows at the edge spare, those that would go first. A chunk gets a
//! munk if it earns clearly more. How much oftener than others its gets were read from the drive before is
//! remembered, and what they would read now is estimated by it: when that earns less than rows do, the munk
//! goes.
//!
//! The engine can know all of it: gets and reads of the drive are counted for each chunk, hits at the edge by
//! the row cache.

use super::{
    pages::{Admission, Pages},
    policy::{Cache, RowsBy, put},
    rows::Rows,
    shape::{PAGE_BYTES, Shape},
};

/// Seconds between two looks at the chunks.
const LOOK_SECONDS: u64 = 10;
/// Chunks that get or lose a munk at a look, at most.
const CHANGES_A_LOOK: usize = 8;
/// Of what was counted before, this part stays at each look.
const KEPT_OF_PAST: f64 = 0.9;
/// A munk comes if it earns this times what rows earn, and goes if it earns less than they.
const EARNS_TO_COME: f64 = 1.5;
/// Fewer reads that the edge has spared prove nothing.
const EDGE_EARNED_MIN: f64 = 64.0;
/// Munks leave the row cache this part of what both have.
const ROWS_PART_MIN: u64 = 8;
/// A munk that would cost less than this part of its bytes more than the rows it replaces costs that part.
const COST_PART_MIN: f64 = 0.05;

pub(super) struct Mix<'s> {
    shape: &'s Shape,
    by: RowsBy,
    rows: Box<dyn Rows>,
    pages: Pages,
    /// What rows and munks have together.
    bytes: u64,
    has_munks: bool,
    chunks: Vec<Heat>,
    seconds: u64,
    row_misses: f64,
    drive_reads: f64,
    edge_hits: u64,
    edge_earned: f64,
    loads: u64,
}

#[derive(Clone, Default)]
struct Heat {
    has_munk: bool,
    gets: f64,
    drive_reads: f64,
    /// How much oftener its gets were read from the drive, before it had a munk, than those of all chunks
    /// without one; and what its munk cost more than its rows.
    read_oftener: f64,
    cost: f64,
}

impl<'s> Mix<'s> {
    /// `percent` of the memory are for rows and munks.
    pub(super) fn new(
        shape: &'s Shape,
        (memory, percent): (u64, u64),
        by: RowsBy,
        has_munks: bool,
        admission: Admission,
    ) -> Self {
        let bytes = memory / 100 * percent;
        Mix {
            shape,
            by,
            rows: by.cache(shape.rows, bytes),
            pages: Pages::new(shape.pages(), ((memory - bytes) / PAGE_BYTES) as usize, admission),
            bytes,
            has_munks,
            chunks: vec![Heat::default(); shape.chunks()],
            seconds: 0,
            row_misses: 0.0,
            drive_reads: 0.0,
            edge_hits: 0,
            edge_earned: 0.0,
            loads: 0,
        }
    }

    /// Reads of the drive that a byte at the edge of the row cache spares between two looks.
    fn edge_earns(&mut self) -> f64 {
        let (hits, rows) = self.rows.edge();
        // Of rows that are not cached, pages have some.
        let read_part = self.drive_reads / self.row_misses.max(1.0);
        self.edge_earned += (hits - self.edge_hits) as f64 * read_part;
        self.edge_hits = hits;
        self.edge_earned / (rows.max(1) as u64 * self.by.row_bytes()) as f64
    }

    /// What a munk of the chunk costs more than its rows in the row cache.
    fn cost_beside_rows(&self, chunk: usize) -> f64 {
        let cached = self.shape.rows_of(chunk).filter(|row| self.rows.has(*row)).count() as u64;
        let bytes = self.shape.munk_bytes(chunk) as f64;
        (bytes - (cached * self.by.row_bytes()) as f64).max(bytes * COST_PART_MIN)
    }

    /// Of the gets of chunks without a munk, those that were read from the drive.
    fn read_part(&self) -> f64 {
        let cold = self.chunks.iter().filter(|heat| !heat.has_munk);
        let (gets, reads) =
            cold.fold((1.0, 0.0), |(gets, reads), heat| (gets + heat.gets, reads + heat.drive_reads));
        f64::max(reads / gets, 1e-6)
    }

    fn look(&mut self) {
        let earned = self.edge_earns();
        // Nothing is known yet.
        let changes = if self.edge_earned < EDGE_EARNED_MIN { 0 } else { CHANGES_A_LOOK };
        for _ in 0..changes {
            if !self.evict_worst(earned) && !self.load_best(earned * EARNS_TO_COME) {
                break;
            }
        }
        for heat in &mut self.chunks {
            heat.gets *= KEPT_OF_PAST;
            heat.drive_reads *= KEPT_OF_PAST;
        }
        self.edge_earned *= KEPT_OF_PAST;
        self.row_misses *= KEPT_OF_PAST;
        self.drive_reads *= KEPT_OF_PAST;
    }

    fn load_best(&mut self, least: f64) -> bool {
        let room = (self.bytes - self.bytes / ROWS_PART_MIN).saturating_sub(self.munk_bytes());
        // Dear to know exactly, so only of chunks that would be worth it if most of their rows were cached.
        let earns = |chunk: usize| self.chunks[chunk].drive_reads / self.cost_beside_rows(chunk);
        let promising = (0..self.shape.chunks()).filter(|chunk| {
            let heat = &self.chunks[*chunk];
            let cost_min = self.shape.munk_bytes(*chunk) as f64 * COST_PART_MIN;
            !heat.has_munk && heat.drive_reads / cost_min > least && self.shape.munk_bytes(*chunk) <= room
        });
        let valued = promising.map(|chunk| (chunk, earns(chunk)));
        let best = valued.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, earns)| *earns > least);
        let Some((chunk, _)) = best else { return false };
        let (cost, read_part) = (self.cost_beside_rows(chunk), self.read_part());
        let heat = &mut self.chunks[chunk];
        heat.read_oftener = heat.drive_reads / heat.gets.max(1.0) / read_part;
        heat.cost = cost;
        heat.has_munk = true;
        self.loads += 1;
        self.shape.rows_of(chunk).for_each(|row| self.rows.forget(row));
        self.fit_rows()
    }

    fn evict_worst(&mut self, least: f64) -> bool {
        let read_part = self.read_part();
        let munks = self.chunks.iter().enumerate().filter(|(_, heat)| heat.has_munk);
        let valued =
            munks.map(|(chunk, heat)| (chunk, heat.gets * read_part * heat.read_oftener / heat.cost));
        let worst = valued.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, earns)| *earns < least);
        let Some((chunk, _)) = worst else { return false };
        self.chunks[chunk] = Heat::default();
        self.fit_rows()
    }

    /// Gives the row cache what munks leave; true, for something was done.
    fn fit_rows(&mut self) -> bool {
        self.rows.resize(((self.bytes - self.munk_bytes()) / self.by.row_bytes()) as usize);
        true
    }

    fn munk_bytes(&self) -> u64 {
        let munks = (0..self.shape.chunks()).filter(|chunk| self.chunks[*chunk].has_munk);
        munks.map(|chunk| self.shape.munk_bytes(chunk)).sum()
    }
}

impl Cache for Mix<'_> {
    fn get(&mut self, row: u32) -> bool {
        let heat = &mut self.chunks[self.shape.chunk_of(row)];
        heat.gets += 1.0;
        if heat.has_munk || self.rows.get(row) {
            return true;
        }
        let is_there = self.pages.read(self.shape.pages_at(row));
        self.rows.fill(row);
        let read = f64::from(u8::from(!is_there));
        heat.drive_reads += read;
        self.drive_reads += read;
        self.row_misses += 1.0;
        is_there
    }

    fn put(&mut self, row: u32) {
        put(&mut *self.rows, row);
    }

    fn scan(&mut self) {
        for row in (0..self.shape.rows).filter(|row| !self.chunks[self.shape.chunk_of(*row)].has_munk) {
            self.pages.read(self.shape.pages_at(row));
        }
    }

    fn tick(&mut self) {
        self.seconds += 1;
        if self.has_munks && self.seconds.is_multiple_of(LOOK_SECONDS) {
            self.look();
        }
    }

    fn munks(&self) -> (usize, u64) {
        (self.chunks.iter().filter(|heat| heat.has_munk).count(), self.loads)
    }
}
