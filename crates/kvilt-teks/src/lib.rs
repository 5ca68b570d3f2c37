//! Floor 2: the engine `teks`, after TeksDB (POMACS '19): a log-structured store whose memory table is found
//! by hash and in order (`docs/design/0068-teks.md`).
//!
//! A write is appended to the redo log and put into the active memory table. A full table is sealed, flushed
//! to sorted tables of level 0, and these are merged into lower levels.
//!
//! | module | is about |
//! | --- | --- |
//! | `descriptor`, `engine`, `options` | the engine as the façade knows it; the contract's methods; settings |
//! | `store` | what its threads share; the lock order |
//! | `sizing` | how memory tables are made |
//! | `sources` | where rows are: memory tables, sorted tables by level, range deletes |
//! | `run` | the sorted tables of a level as one source |
//! | `write`, `range_delete` | puts, batches and swaps; range deletes, by a tombstone or by row |
//! | `read` | gets and scans |
//! | `log` | the redo log: segments that are mapped and used in turn |
//! | `retain` | which versions of a key some reader can still see |
//! | `flush`, `merge` | memory tables become sorted tables of level 0; full levels are merged downwards |
//! | `room` | what gives room back on a full disk, and the reserve of the log for that |
//! | `output`, `install` | the sorted tables that these write; how they take effect |
//! | `catalogue` | which sorted tables there are, durably |
//! | `recovery`, `worker` | opening; the background |
//! | `check`, `copy`, `salvage` | verification; a consistent copy; what is left of a damaged store |
//! | `figures`, `layout`, `parts` | counters; which files there are; what uses the budget |
//!
//! Floor 2: the disk is seen through the seams of floor 0 only, and nothing is unsafe.
#![forbid(unsafe_code)]

mod catalogue;
mod check;
mod copy;
mod descriptor;
mod engine;
mod figures;
mod flush;
mod install;
mod layout;
pub mod log;
mod merge;
pub mod mutants;
mod options;
mod output;
mod parts;
mod range_delete;
mod read;
mod recovery;
mod retain;
mod room;
mod run;
mod salvage;
mod sizing;
mod sources;
mod store;
mod worker;
mod write;

pub use options::Options;

/// The engine's name.
pub const NAME: &str = "teks";

/// The kinds of its files.
pub use kvilt_format::names::LEVEL_KINDS as KINDS;

#[cfg(test)]
mod threads;
