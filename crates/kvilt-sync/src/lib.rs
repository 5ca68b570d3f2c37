//! Floor 1: where threads meet.
//!
//! Everything in Kvilt that two threads touch at once goes through one of these primitives, and the unsafe
//! code that this takes lives here and nowhere else, so that the engines above can forbid it. Each module
//! says in its head what it promises, numbered S-1 and on; models in `tests/models` try the interleavings of
//! the protocols, miri runs the unit tests of the unsafe parts.
//!
//! # Who meets whom
//!
//! ```text
//!              get                put               scan, snapshot          background worker
//!               │                  │                      │                        │
//!   pin, load   ▼                  ▼                      ▼                        ▼
//!   ┌─────────────────┐   chunk gate (a mutex)    Versions::open_view      Versions::open_views
//!   │  Published      │   Versions::announce      waits for puts at or     what must be kept
//!   │  index, state   │   AppendBuffer::append    below its view           Published::replace
//!   └─────────────────┘   Pile::insert                                     under the chunk gate
//!   Rows::under           Rows::replace                                    Rows::hold
//!   Pile::find            RowCache::writing
//!   RowCache::get         Pending dropped: retired
//! ```
//!
//! - A **get** writes no cache line that another reader writes: it pins, loads, searches. Only the row cache,
//!   for chunks without a munk, takes a lock, of one shard and for a map look-up.
//! - A **put** holds its chunk's gate, so a chunk has one writer at a time; pile and append buffer have
//!   writer locks of their own, which the gate keeps uncontended and which make them sound without it.
//! - A **scan** waits for announced puts, never a put for a scan (S-3, S-4).
//! - A **worker** builds aside, then replaces a published value under the gate for microseconds.
//!
//! # Lock order
//!
//! Whoever holds one of these may take those further down, never up; two of one kind only where it says how.
//! An engine's own locks (in `even`: checkpoint, chunk gates, structure) come before all of them, in the
//! order that its `store.rs` says.
//!
//! | | lock | held for |
//! | --- | --- | --- |
//! | 1 | commit queue ([`Group`]) | queueing and taking items; never while a leader writes, syncs or applies |
//! | 2 | one row-cache shard | map work |
//! | 3 | one writer of a [`Pile`], [`AppendBuffer`] or [`Rows`], who sorts a pile, who begins to hold rows | one insert, one copy, one sort |
//! | 3 | a lane of a [`TeksTable`]; under it its moves in the hash, or the writes of one key | one put |
//! | 4 | what is [`spare`]; rows that pins have let go of | putting in or taking out one mapping or block, or a few rows |
//!
//! Not locks, but waits, and so in the order too: an announced put ([`Pending`]) waits for nothing and takes
//! only 2 and 3 (its gates it has already). [`Versions::open_view`] and [`Versions::wait_for_pending`] wait
//! for announced puts, hence must not be called by who holds a [`Pending`]; while holding gates they may be
//! called, because an announced put needs no further gate. The lock behind the overflow of open views nests
//! inside everything. A [`Pin`] blocks nobody, but keeps what it found: it is dropped before any wait. The
//! locks of [`eras`] are held for a few moves of pointers, and nothing is taken or dropped under them.
//!
//! # What is always true
//!
//! - No user code runs under a lock of this crate, and no disk is touched by it. (The engine's own does in
//!   [`Rows::replace`], which says what it must not do.)
//! - Every atomic access says its partner; where a store must come before a later load, there is an explicit
//!   `fence(SeqCst)`.
//! - The safe interface is sound whatever safe code does with it: an invariant numbered S- that callers must
//!   keep protects results, never memory.
//!
//! Reading order: the order of the modules below.

mod ahead;
mod blocks;
mod memory;
mod shim;

pub mod spare;

pub mod eras;
pub mod published;
pub mod versions;

pub mod append;
pub mod log_segment;
pub mod pile;
pub mod region;
pub mod rows;
pub mod segment;
pub mod teks;
pub mod tombstones;

pub mod doze;
pub mod group;
pub mod row_cache;

#[doc(hidden)]
pub mod mutants;

#[cfg(feature = "test-fork")]
pub mod forked;
pub mod home;

pub use ahead::fetch_ahead;
pub use append::AppendBuffer;
pub use doze::Doze;
pub use group::Group;
pub use home::Home;
pub use log_segment::LogSegment;
pub use pile::{Found, Full, Pile, PileSource};
pub use published::{Pin, Published, pin, settle, waiting};
pub use region::Region;
pub use row_cache::{RowCache, Ticket, Writing};
pub use rows::{Rows, RowsBuilder, RowsWeaver};
pub use teks::TeksTable;
pub use versions::{Pending, Versions, View};
