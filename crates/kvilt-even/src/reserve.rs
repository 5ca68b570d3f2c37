//! `Reserve`: room on the disk, kept back for the writes that make room.
//!
//! A full disk refuses every write, also those that would end this: a delete needs a record, a checkpoint an
//! edit of the manifest, a rewrite a table. So the store keeps a file that is nothing but allocated blocks.
//! When such a write meets a full disk, the reserve gives some of them and the write is tried again. Writes
//! that bring data never use it: as long as it is *short*, they first bring it back, or fail as `NoSpace`.
//!
//! | from | to | function | condition |
//! | --- | --- | --- | --- |
//! | whole, none | whole | [`Reserve::keep`], [`Reserve::grow_with`] | a checkpoint succeeded, or much was written; the store may have grown |
//! | none | short | [`Reserve::found`] | an open finds less than the least: the store is new, or the run before gave of it |
//! | whole, short | short | [`Reserve::give`] | a checkpoint, a delete or a rewrite met a full disk, and enough is left |
//! | short | whole | [`Reserve::keep`], [`Reserve::allow_data`] | there is room again, and nobody has a [`Lease`] |
//! | short | none | the same | the disk refuses for another reason; data must not wait for that |
//!
//! * **E-12** While the reserve is short, no write that brings data begins.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use kvilt_base::{Disk, Error, ErrorKind, Result};
use kvilt_format::names::RESERVE;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Of a store's bytes, this part is kept back …
const SHARE: u64 = 16;
/// … but at least this much: a checkpoint of a small store needs a manifest, and a few pages of logs.
const BYTES_MIN: u64 = 64 << 10;
/// It is looked after whenever so many bytes were written to logs.
const LOGGED_STEP: u64 = BYTES_MIN * SHARE;
/// It is given in as many pieces, so that what is not needed yet is nobody else's.
const PIECES: u64 = 4;
/// A write is tried again as often as there are pieces.
pub(crate) const TRIES_MAX: u64 = PIECES;

/// The reserve of one store. Its lock is a leaf, held across disk calls: who wants the room must not race who
/// takes it.
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    bytes_max: u64,
    /// Whether room was given up that has not come back. Written under the lock.
    is_short: AtomicBool,
    /// Bytes written to logs since the last checkpoint, which has not counted them.
    logged: AtomicU64,
    held: Mutex<Held>,
    /// Held alone by a rewrite, shared by those who try again. Taken before `held`.
    rewriting: RwLock<()>,
}

struct Held {
    /// Length of the file; zero if there is none.
    bytes: u64,
    /// What it is to be; never less than before.
    wanted: u64,
    /// Whether this run has seen its blocks: a copied file may have none.
    is_allocated: bool,
    /// Writes that are just being tried again.
    leases: u32,
}

impl Held {
    fn piece_bytes(&self) -> u64 {
        self.wanted.div_ceil(PIECES)
    }
}

/// What the room is given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A checkpoint that has logs to write, or nothing more than the manifest.
    Checkpoint { has_logs: bool },
    /// Deletes in the commit log.
    Deletes,
    /// Deletes in a chunk's log, whose gate a rewrite may be waiting for.
    DeletesUnderGate,
    /// A chunk's new table.
    Rewrite,
}

impl Use {
    /// How much must stay: without a checkpoint behind them, deletes and rewrites free nothing.
    fn leaves(self, whole: u64) -> u64 {
        match self {
            Use::Checkpoint { has_logs: false } => 0,
            Use::Checkpoint { has_logs: true } | Use::Deletes | Use::DeletesUnderGate => whole / PIECES,
            Use::Rewrite => whole / 2,
        }
    }
}

/// As long as this lives, nobody takes the room back that was given.
pub(crate) struct Lease<'a> {
    reserve: &'a Reserve,
    /// Whether there is more room than before; if not, to try again once more is of no use.
    pub(crate) has_given: bool,
    _turn: Option<RwLockReadGuard<'a, ()>>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.reserve.held.lock().leases -= 1;
    }
}

impl Reserve {
    /// The reserve that an open found, of so many bytes; of at most `bytes_max`, none if that is zero. If
    /// there is less than the least it is short: the store is new, or the run before gave of it. The first
    /// write that brings data makes it.
    pub(crate) fn found(disk: Arc<dyn Disk>, bytes_max: u64, bytes: u64) -> Self {
        let wanted = bytes.clamp(BYTES_MIN.min(bytes_max), bytes_max);
        let is_short = AtomicBool::new(bytes < wanted);
        let held = Held { bytes, wanted, is_allocated: false, leases: 0 };
        Reserve {
            disk,
            bytes_max,
            is_short,
            logged: AtomicU64::new(0),
            held: Mutex::new(held),
            rewriting: RwLock::default(),
        }
    }

    /// Whether room was given up that has not come back.
    pub(crate) fn is_short(&self) -> bool {
        // Relaxed: whoever comes a moment early or late is as one who met the disk a moment earlier or later.
        self.is_short.load(Ordering::Relaxed)
    }

    /// How much it gives at a time.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.held.lock().piece_bytes()
    }

    /// To be asked by every write that brings data (E-12).
    pub(crate) fn allow_data(&self) -> Result<()> {
        if self.is_short() {
            self.restore(&mut self.held.lock());
        }
        if self.is_short() {
            let message = "the disk is full: writes of data wait until there is room for the reserve again";
            return Err(Error::new(ErrorKind::NoSpace, message).in_file(RESERVE));
        }
        Ok(())
    }

    /// So many bytes were written to a log: a disk may be full before the first checkpoint.
    pub(crate) fn grow_with(&self, bytes: u64) {
        // Relaxed: a statistic.
        let before = self.logged.fetch_add(bytes, Ordering::Relaxed);
        if (before / LOGGED_STEP) != (before + bytes) / LOGGED_STEP && !self.is_short() {
            self.resize_for(before + bytes);
        }
    }

    /// Behind a checkpoint: makes it as large as a store of so many bytes should have it, if there is room.
    pub(crate) fn keep(&self, store_bytes: u64) {
        self.logged.store(0, Ordering::Relaxed);
        self.resize_for(store_bytes);
    }

    /// It never shrinks by itself.
    fn resize_for(&self, store_bytes: u64) {
        let mut held = self.held.lock();
        let least = BYTES_MIN.min(self.bytes_max);
        let wanted = (store_bytes / SHARE).next_power_of_two().clamp(least, self.bytes_max);
        let before = held.wanted;
        held.wanted = before.max(wanted);
        if held.bytes < held.wanted || !held.is_allocated {
            self.restore(&mut held);
        }
        if held.bytes < held.wanted && before < held.wanted {
            // There is no room for a larger one; but maybe for the one that there was.
            held.wanted = before;
            if held.bytes < before {
                self.restore(&mut held);
            }
        }
    }

    /// Gives of it to a write that met a full disk: what that needs, a quarter of the whole at least. None if
    /// to try again would not help.
    pub(crate) fn give(&self, to: Use, bytes_needed: u64) -> Option<Lease<'_>> {
        let turn = match to {
            // Waits while a rewrite runs, which takes all the room that it finds. Recursive: one who waits
            // for another to try again must not meet a rewrite between them.
            Use::Checkpoint { .. } | Use::Deletes => Some(self.rewriting.read_recursive()),
            Use::DeletesUnderGate => Some(self.rewriting.try_read_recursive()?),
            Use::Rewrite => None,
        };
        let mut held = self.held.lock();
        let piece = bytes_needed.max(held.piece_bytes());
        let left = held.bytes.saturating_sub(piece).max(to.leaves(held.wanted));
        let is_enough = left < held.bytes && bytes_needed <= held.bytes - left;
        if is_enough {
            match left {
                0 => self.disk.remove(RESERVE).ok()?,
                _ => self.resize(left).ok()?,
            }
            held.bytes = left;
        } else if !self.is_short() {
            return None;
        }
        // If it was short before, others may have taken for a moment what is there: it is worth to try.
        held.leases += 1;
        self.is_short.store(true, Ordering::Relaxed);
        Some(Lease { reserve: self, has_given: is_enough, _turn: turn })
    }

    /// To be held by a rewrite: nobody tries again beside it. None if somebody just does.
    pub(crate) fn rewrite_alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.rewriting.try_write()
    }

    /// Tries to make it what it is to be.
    fn restore(&self, held: &mut Held) {
        if held.leases > 0 || held.wanted == 0 {
            return;
        }
        let made = if held.bytes == 0 { self.make(held.wanted) } else { self.resize(held.wanted) };
        if made.is_ok() {
            (held.bytes, held.is_allocated) = (held.wanted, true);
        }
        let is_full =
            made.is_err_and(|error| Error::io("make the reserve", error).kind() == ErrorKind::NoSpace);
        if !is_full {
            self.is_short.store(false, Ordering::Relaxed);
        }
    }

    fn make(&self, bytes: u64) -> io::Result<()> {
        let file = self.disk.create(RESERVE)?;
        // What has no room is no reserve. The first error is the one that counts.
        file.allocate(bytes).inspect_err(|_| drop(self.disk.remove(RESERVE)))
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.disk.open(RESERVE)?.allocate(bytes)
    }
}

#[cfg(test)]
mod tests;
