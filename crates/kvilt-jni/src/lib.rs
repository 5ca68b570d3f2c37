//! A door: what the Java classes of Kvilt (`java/kvilt-java`) call.
//!
//! ```text
//!  Java    Kvilt, Keyspace, Snapshot, KviltIterator, WriteBatch      who may be called, and until when
//!             │  numbers, addresses of buffers, byte[]
//!  ───────────┼──────────────────────────────────────────────────── border: no panic, no Rust type crosses
//!             ▼
//!  Rust    reads, scans, writes, stores                              bytes in and out of `kvilt`
//! ```
//!
//! Java owns all lifetimes: a `Handle` there counts the calls that run, and lets go of a view or iterator
//! here when it is closed and the last of them has returned. So nothing here counts or locks for a call. The
//! paths that are called most (get, put, delete, a block of a scan) take addresses and lengths, and call
//! nothing of Java's: rows are copied from the store to memory that Java reads, or back, once.
//!
//! Read `border` first: it is the one file with unsafe code, and names what Java must keep to. Then `reads`,
//! `scans`, `writes` and `stores`, whose functions are the methods of the Java class `Native`, in its order.
//!
//! Where this stands: floor 4, a door; it imports `kvilt` and nothing else of ours. Always true here: every
//! function that Java calls goes through `border::call` or `border::call_java`, so a panic becomes an
//! exception, and an error keeps its kind and its whole text.
#![deny(unsafe_code)]

mod border;
mod failure;
mod packed;
mod reads;
mod scans;
mod settings;
mod stores;
mod writes;

use kvilt::{Db, Keyspace, Snapshot};

/// What a `Kvilt`, a `Keyspace` or a `Snapshot` of Java reads and writes: a keyspace, now or at a moment.
pub(crate) struct View {
    pub(crate) db: Db,
    pub(crate) keyspace: Keyspace,
    /// None means now.
    pub(crate) at: Option<Snapshot>,
}

impl View {
    /// The keyspace, now.
    pub(crate) fn now(db: &Db, keyspace: Keyspace) -> View {
        View { db: db.clone(), keyspace, at: None }
    }

    /// The moment to scan at: its own, or a new one.
    pub(crate) fn moment(&self) -> Snapshot {
        self.at.clone().unwrap_or_else(|| self.keyspace.snapshot())
    }
}
