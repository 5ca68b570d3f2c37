//! The engine `even`: EvenDB (EuroSys '20), complete, with the places settled where the paper is silent or
//! wrong.
//!
//! # One picture
//!
//! ```text
//!            chunk index: first key → chunk                     (volatile, published atomically)
//!                 │            │             │
//!               chunk        chunk         chunk                (a key range, a gate, a state)
//!               ╱    ╲         │           ╱    ╲
//!           munk     funk    funk      munk     funk
//!        (memory)   (files)                                     munk: run + tails     funk: tables + logs
//!                       ╲      │       ╱
//!                  manifest: the set of live files and the checkpoint they belong to
//! ```
//!
//! A put goes to its chunk's log and, if the chunk is popular enough to have one, to its munk. A get or scan
//! of a chunk with a munk reads memory only. Without one, an index over the log says where a record lies, and
//! what the log does not have is in a table.
//!
//! # Three lives
//!
//! * **A put's.** Gate, room, announce, version, log, munk, retire: `chunk/put.rs`. Versions and pending puts
//!   are in `kvilt-sync`; scans advance the version, puts do not.
//! * **A chunk's.** Cold, cached, split, coalesced: `chunk.rs` for the states, `rebalance.rs` for who moves
//!   them.
//! * **A file's.** Written by a chunk, named by the manifest at a checkpoint, shared by the halves of a
//!   split, replaced by a rewrite, removed when the manifest has let go and nobody reads it: `checkpoint.rs`,
//!   `files.rs`.
//!
//! # What is always true
//!
//! In full in `docs/invariants.md`; here each in a few words, with the file that keeps it.
//!
//! | | | |
//! | --- | --- | --- |
//! | E-1 | chunks cover all keys without gap or overlap | `index.rs` |
//! | E-2 | a retired chunk never changes | `chunk.rs` |
//! | E-3 | a munk has everything that its chunk has | `munk.rs` |
//! | E-4 | newer parts hold newer entries | `funk.rs` |
//! | E-5 | a log belongs to one run of the store | `funk/log.rs` |
//! | E-6 | the manifest never promises more of a log than was synced | `funk/log.rs` |
//! | E-7 | nothing waits or fails while a put is announced, nor does I/O if its buffer is in the pool | `chunk/put.rs` |
//! | E-8 | no file is removed that somebody may still need | `files.rs` |
//! | E-9 | a checkpoint covers every version in the tables that its manifest names | `checkpoint.rs` |
//! | E-10 | a damaged chunk takes no writes and no background job | `chunk.rs` |
//! | E-11 | the commit logs hold exactly the writes behind the checkpoint | `commit.rs` |
//! | E-12 | no write that brings data begins while the reserve is short | `reserve.rs` |
//! | E-13 | a row is replaced in place only if no tail and no view has need of the old one | `chunk/put.rs` |
//! | E-14 | summaries say what the records that they cover say | `funk/log/summaries.rs` |
//! | E-15 | each byte of a log is written by one buffer | `funk/log/tail.rs` |
//! | E-16 | a worker rests without end only if it has nothing to do later | `rest.rs` |
//! | E-17 | a range tombstone is forgotten only for a newer one that every reader sees | `kvilt_sync::tombstones` |
//! | E-18 | no open takes an unfinished directory for a store | `unfinished.rs` |
//! | E-19 | while munks have more than their share, none is loaded and one after the other goes | `rebalance/memory.rs` |
//! | E-20 | steps of an operation grow logarithmically at most | `heads.rs`, `kvilt_sync::tombstones` |
//! | E-21 | the manifest names no table that was not synced | `funk/unsynced.rs` |
//! | E-22 | the journal tells each change of a chunk's files since the checkpoint | `journal.rs` |
//! | E-23 | nobody reads a record that a kill would take | `pool.rs` |
//!
//! Reading order: the order of the modules below.
#![forbid(unsafe_code)]

#[cfg(test)]
mod bed;

mod engine;
mod store;

mod chunk;
mod heads;
mod index;
mod key_hash;
mod shared_key;

mod funk;
mod growing;
mod munk;
mod retain;

mod checkpoint;
mod commit;
mod copy;
mod descriptor;
mod figures;
mod files;
mod journal;
mod pool;
mod reads;
mod rebalance;
mod recovery;
mod reserve;
mod rest;

mod check;
mod layout;
#[doc(hidden)]
pub mod mutants;
pub mod options;
pub mod parts;
mod poison;
mod salvage;
mod stats;
mod views;

use std::sync::Arc;

use kvilt_base::{Disk, Engine, Result, World};

pub use kvilt_format::names::KINDS;

pub use options::{Compression, Options};
pub use salvage::{lock_to_salvage, salvage};

/// The name of the engine, which its stores bear.
pub const NAME: &str = "even";

/// Opens the store in `disk`, or makes one there.
///
/// Errors: `Busy` if somebody has it open, with the process id; `InvalidArgument` if the options make no
/// sense or the directory holds something else; `UnsupportedVersion` if a newer Kvilt wrote it; `Corrupted`,
/// `Io`.
pub fn open(disk: Arc<dyn Disk>, world: World, options: Options) -> Result<Arc<dyn Engine>> {
    Ok(engine::Even::open(disk, world, &options)?)
}
