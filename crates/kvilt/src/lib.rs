//! An embedded, ordered key-value store for data with spatial locality.
//!
//! Kvilt keeps a sorted map from bytes to bytes in a directory. It is made for composite keys such as
//! `app/time/user`, `thread/message` or `node/edge/node`, where popular prefixes make popular *ranges* of
//! keys: it caches and writes whole ranges, so reads, writes and scans that lie side by side are cheap
//! together.
//!
//! ```
//! # fn main() -> kvilt::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("events");
//! let db = kvilt::Db::open(path)?;
//! db.put("app42/2024-05-01/ada", "login")?;
//! db.put("app42/2024-05-02/bob", "logout")?;
//! for row in db.prefix("app42/") {
//!     let (key, value) = row?;
//!     println!("{key:?} = {value:?}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! This page is a guide, from opening to closing. Each part links to the type with the details; all examples
//! run in the tests.
//!
//! # 1. Open
//!
//! [`Db::open`] takes a directory, and makes a store in it if there is none. [`Db`] is cheap to clone, and
//! may be used by any number of threads at once. One process at a time may have a store open; the second gets
//! an error that names the first.
//!
//! Two settings are worth a thought; [`Builder`] has the rest:
//!
//! ```
//! # fn main() -> kvilt::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("events");
//! let db = kvilt::Db::builder(path)
//!     .memory_budget(128 << 20) // one hard number for all memory; default: a quarter of what there is
//!     .durability(kvilt::Durability::Sync) // default: Async
//!     .open()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Builder::engine`] chooses which [`Engine`] keeps a store that is made. The default suits keys whose
//! popular ones lie side by side, [`Engine::Kvell`] random reads and updates far beyond memory, and
//! [`Engine::Teks`] keys in no order that are written, read and scanned at once, most of them in memory.
//!
//! # 2. Write and read
//!
//! Anything that is bytes goes in; a [`Value`], which derefs to `[u8]`, comes out.
//!
//! ```
//! # fn main() -> kvilt::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = kvilt::Db::open(dir.path().join("events"))?;
//! db.put(b"k", vec![1, 2, 3])?;
//! assert_eq!(db.get("k")?.unwrap(), [1, 2, 3].as_slice());
//! db.delete("k")?;
//! assert_eq!(db.get("k")?, None);
//! # Ok(())
//! # }
//! ```
//!
//! Keys are ordered bytewise: write numbers big-endian, times as RFC 3339 text or big-endian counts, and put
//! first in a key what you look things up by. A key may have 0 bytes to 64 KiB, a value 0 bytes to 64 MiB.
//!
//! # 3. Scan
//!
//! [`Db::range`] takes any range of keys, [`Db::prefix`] a prefix, [`Db::iter`] everything. The [`Range`]
//! they return is lazy, owned and double-ended, and sees one moment of the whole store, whatever is written
//! meanwhile:
//!
//! ```
//! # fn main() -> kvilt::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = kvilt::Db::open(dir.path().join("events"))?;
//! for minute in 0..60u32 {
//!     db.put(format!("sensor7/{minute:02}"), minute.to_be_bytes())?;
//! }
//! assert_eq!(db.range("sensor7/10".."sensor7/20").count(), 10);
//! let (newest, _) = db.prefix("sensor7/").next_back().unwrap()?;
//! assert_eq!(newest, b"sensor7/59");
//! let first_keys = db.iter().limit(3).keys().collect::<kvilt::Result<Vec<_>>>()?;
//! assert_eq!(first_keys.len(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! # 4. Change several rows at once
//!
//! A [`WriteBatch`] is seen whole or not at all: by gets, by scans, by snapshots, and after a crash.
//! [`Db::compare_and_swap`], [`Db::put_if_absent`] and [`Db::update`] change one row depending on what it
//! holds. [`Db::delete_range`] deletes any number of rows in one cheap step.
//!
//! # 5. Hold a moment
//!
//! A [`Snapshot`] is the whole store, all keyspaces, as it was when it was taken. It is owned, may be sent to
//! another thread, and blocks nobody.
//!
//! ```
//! # fn main() -> kvilt::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = kvilt::Db::open(dir.path().join("events"))?;
//! db.put("a", "old")?;
//! let moment = db.snapshot();
//! db.delete_range(..)?;
//! assert_eq!(moment.get("a")?.unwrap(), b"old");
//! assert_eq!(moment.iter().count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # 6. Separate what does not belong together
//!
//! A [`Keyspace`] is a map of its own inside the store, with all the methods of [`Db`]. Keyspaces cost
//! nothing, so use one for each tenant, index or table; batches and snapshots span them.
//!
//! # 7. Know what survives
//!
//! A write that returned survives the death of the process. It survives a power cut when the checkpoint that
//! follows it is complete (one begins half a second after the last began), or when [`Db::sync`] returns;
//! [`Durability::Sync`] makes each write durable before it returns. After a crash the store is what it was at
//! some moment before: never a later write without an earlier one, never half a batch. See [`Durability`].
//!
//! # 8. Several stores in one process
//!
//! Stores share the memory budget and the background threads of their [`Env`]. By default that is the
//! process's own, so ten stores use together what one would.
//!
//! # 9. When something is wrong
//!
//! Every error is an [`Error`]: its [`kind`](Error::kind) says what to do next, its text says what happened,
//! where, and what to do. After a failed sync the store is poisoned: reads go on, writes fail until it is
//! opened again, because nobody can know what the drive kept.
//!
//! ```
//! # fn main() -> kvilt::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let db = kvilt::Db::open(dir.path().join("events"))?;
//! let error = db.put(vec![0; 100_000], "").unwrap_err();
//! assert_eq!(error.kind(), kvilt::ErrorKind::InvalidArgument);
//! println!("{error}");
//! # Ok(())
//! # }
//! ```
//!
//! [`Db::check`] reads and verifies every byte; [`Db::stats`] shows what the store is doing;
//! [`Db::checkpoint_to`] makes a copy while it runs, and
//! [`Db::convert_to`] one by another engine. Of a damaged store, [`repair`] copies what is provably
//! intact.
//!
//! # 10. Close
//!
//! [`Db::close`] makes everything durable and says if that failed. Dropping the last handle does the same,
//! but has nobody to tell.
//!
//! Where this stands: floor 3, the façade. It picks engine and disk, prefixes keys with their keyspace,
//! checks limits, and is otherwise thin. Always true here: nothing is unsafe; files, clocks and threads are
//! reached through `kvilt-io` alone.
#![forbid(unsafe_code)]

mod batch;
mod bounds;
mod builder;
mod catalogue;
mod convert;
mod db;
mod description;
mod engines;
mod env;
pub mod even;
mod keyspace;
pub mod kvell;
mod machine;
mod options;
mod pool;
mod range;
mod repair;
mod snapshot;
mod space;
mod store;
pub mod teks;

pub use batch::WriteBatch;
pub use bounds::KeyBounds;
pub use builder::Builder;
pub use convert::ConvertReport;
pub use db::Db;
pub use description::{Description, KeyspaceFigures, LargeRow};
pub use engines::Engine;
pub use env::Env;
pub use keyspace::Keyspace;
pub use options::Durability;
pub use range::{Keys, Range, Row};
pub use repair::{repair, repair_with};
pub use snapshot::Snapshot;

pub use kvilt_base::{
    CheckReport, Damage, Error, ErrorKind, Figure, FilesOfKind, KeyRange, Progress, RepairReport, Result,
    Stats, Swap, Unit, Value,
    limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, VALUE_BYTES_MAX},
};
