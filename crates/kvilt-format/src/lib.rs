//! Floor 1, bytes and values: every file of a store, encoded and decoded.
//!
//! Where it stands: engines speak in entries, tables and roots; this crate turns them into bytes and back,
//! against the [`kvilt_base::File`] seam. It starts no thread, knows no path, and holds no unsafe code. The
//! formats are written down, byte for byte, in `docs/format/`; a test compares each worked example there with
//! the code.
//!
//! What is always true, for every format here (numbers as in `docs/invariants.md`):
//!
//! * **F-1** Integers are little-endian. Every file begins with a 64-byte header: magic, format version,
//!   header checksum, store id, file number. The layout of the header never changes, whatever the format
//!   version.
//! * **F-2** Every byte of a file is covered by a checksum, and every checksum by the file's identity
//!   ([`FileIdentity`]): a file of another store, or another file under this name, does not pass. In a slab
//!   what lies behind an item in its slot means nothing.
//! * **F-3** No bytes whatsoever make a decoder panic, loop for ever, or allocate more than the file's own
//!   length allows (a compressed block: more than LZ4 can pack into its length).
//! * **F-4** A length that the manifest calls durable is a promise: a bad record below it is `Corrupted`,
//!   with file and offset, and never skipped. What lies behind it is a torn tail and ends a log silently.
//! * **F-5** A damaged filter is ignored. It never makes a key absent.
//! * **F-6** Entries of a table come by key ascending and, for one key, newest version first; never twice the
//!   same key and version.
//! * **F-7** A newer format version is `UnsupportedVersion`; nothing is guessed and no byte is written.
//! * **F-9** The occupancy map that an open finds is that of its root, which has the sum of its pages'
//!   stamps.
//!
//! Reading order: the order of the modules below.
#![forbid(unsafe_code)]

pub mod coding;

pub mod checksum;
mod header;

pub mod bloom;
pub mod log;

mod record;

mod change;

pub mod commit;

pub mod redo;

pub mod levels;

pub mod table;

pub mod manifest;

pub mod journal;

pub mod slab;

#[doc(hidden)]
pub mod mutants;

pub mod names;

#[cfg(test)]
mod memory;

#[cfg(test)]
mod examples;

pub use checksum::FileIdentity;
pub use header::{FORMAT_VERSION, HEADER_BYTES, read_identity};
