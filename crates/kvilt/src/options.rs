//! Settings a user may type, as data. The builder's methods take them; each says its unit and its reason.

use std::time::Duration;

/// What survives the death of the process, and a crash of the machine.
///
/// Each level leaves, after any crash, a *consistent prefix* of the writes: if a write is lost, no write that
/// began after it completed survives; batches survive whole or not at all. They differ in how much may be
/// missing at its end. [`crate::Db::sync`] and [`crate::Db::close`] lose nothing at any level.
///
/// | a write that returned survives | `Async` | `Written` | `Sync` |
/// | --- | --- | --- | --- |
/// | the process is killed or aborts, or exits without `close` | if a checkpoint came behind it | yes | yes |
/// | the power goes, or the kernel crashes | if a checkpoint came behind it | if a checkpoint came behind it | yes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A write returns when every reader can see it; a checkpoint in the background makes it durable. A crash
    /// loses at most what was written in the last `interval`, plus the time one checkpoint takes. No write
    /// waits for the drive, and each row is written once: this is where the low write amplification comes
    /// from.
    Async {
        /// Time between the beginnings of checkpoints; longer than zero. Shorter loses less, and syncs more.
        interval: Duration,
    },
    /// A write returns when the kernel has it: it is appended to a log shared by all writers, by one system
    /// call for those that come together, and that log is not synced. So the death of the process, however it
    /// dies, loses nothing that returned; a power cut loses what [`Durability::Async`] loses. A checkpoint
    /// drops the log, so most of it is never written to the drive.
    Written {
        /// Time between the beginnings of checkpoints; longer than zero.
        interval: Duration,
    },
    /// A write returns when it is durable: an acknowledged write is never lost. Each is also written to a log
    /// shared by all writers and synced; writers that come together share one sync, so many threads, or
    /// [`crate::WriteBatch`]es, make it fast.
    Sync,
}

impl Default for Durability {
    /// [`Durability::Async`], every half second.
    fn default() -> Self {
        Durability::Async { interval: Duration::from_millis(500) }
    }
}
