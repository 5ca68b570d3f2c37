//! A table: entries in order, in blocks; which block holds what; a filter; a footer that ties them together.
//!
//! Where it stands: a chunk's file form is one or more tables and logs; rebalances write tables, gets and
//! scans read them. Format: `docs/format/table.md`.
//!
//! ```text
//! header 64 | block | block | … | filter | index | footer 96
//! ```
//!
//! Always true: entries are ordered and never twice the same (F-6); each stored block has a checksum that
//! covers its bytes, its file and its offset; a table is immutable, so readers share it without a lock.

mod block;
mod footer;
mod index;
mod large;
mod measure;
mod reader;
mod salvage;
mod source;
mod stored;
mod verify;
mod writer;

pub use reader::Table;
pub use salvage::{SalvagedBlock, SalvagedEntry};
pub use source::TableSource;
pub use writer::{Compression, TableOptions, TableSummary, TableWriter};

#[cfg(test)]
mod tests;
