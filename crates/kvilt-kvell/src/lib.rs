//! Engine `kvell`: items lie unsorted in slabs, and an index in memory says where each one is (KVell, SOSP
//! '19; `docs/design/0066-kvell.md`). For random reads and updates of data far beyond memory on a fast drive.
//!
//! ```text
//!   key --hash--> shard:  index (memory) --place--> slab, block, slot (file)
//!                         page cache  <--blocks-->  I/O queue
//!                         occupancy map: which slots count, as of the last cut (file)
//!   root (file): the cut that counts, for all shards
//! ```
//!
//! A put writes its item to a free slot and then makes the index point there. What the slot before held stays
//! until a cut has made the new one durable. A get looks into the index and reads one block.
//!
//! | file | what |
//! | --- | --- |
//! | `options`, `descriptor`, `engine` | settings; as the façade knows it; the contract's methods |
//! | `store` | what the shards share: root, views, versions |
//! | `shard`, `state` | a shard behind its lock, and what the lock guards |
//! | `index`, `place` | keys and places, ordered, in memory |
//! | `slab`, `bits`, `map` | slots of a size class; which are free; the occupancy map |
//! | `frames`, `blocks` | memory of pages; the page cache, and reads and writes in flight |
//! | `history` | what keys had before, for views |
//! | `write`, `read`, `cut` | puts, batches, range deletes; gets and scans; making durable |
//! | `window` | reads in flight of a scan or of a get of many keys |
//! | `recovery`, `load`, `scan`, `snapshot` | opening; a shard's files; all slabs read; the index of a closed store |
//! | `check`, `copy`, `salvage` | verification; a consistent copy; what is left of a damaged store |
//!
//! What is always true (`docs/invariants.md` has the reasons, and where each is kept):
//!
//! - K-1 of a block, one transfer is in flight; K-2 a reader's image has every completed write; K-3 a failed
//!   write is taken back before it is reported
//! - K-4 a slot is free only behind a durable cut, and if no view needs it; K-5 a view's notes come before
//!   the index; K-6 the map's page that counts is never written over; K-9 nor any slot before both copies of
//!   the root are durable
//! - K-7 no lock is held during I/O; K-8 the writes of a key follow each other
//!
//! Floor 2: the disk is seen through the seams of floor 0 only, and nothing is unsafe.
#![forbid(unsafe_code)]

mod bits;
mod blocks;
mod check;
mod copy;
mod cut;
mod descriptor;
mod engine;
mod figures;
mod frames;
mod history;
pub mod index;
mod load;
mod map;
#[doc(hidden)]
pub mod mutants;
mod options;
mod parts;
pub mod place;
mod read;
mod recovery;
mod salvage;
mod scan;
mod shard;
mod slab;
mod snapshot;
mod state;
mod store;
mod window;
mod write;

pub use options::Options;

/// Most shards of a store.
pub const SHARDS_MAX: u32 = kvilt_format::slab::SHARDS_MAX as u32;

/// The engine's name.
pub const NAME: &str = "kvell";

/// The kinds of its files.
pub use kvilt_format::names::SLAB_KINDS as KINDS;
