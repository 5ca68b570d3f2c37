//! Settings a user may type, as data. The builder's methods take them; each says its unit and its reason.

use std::time::Duration;

/// What survives the death of the process, and a crash of the machine.
///
/// No level loses a write that returned to the death of the process. They differ in what a power cut takes.
/// Each leaves, after any crash, a *consistent prefix* of the writes: if a write is lost, no write that began
/// after it completed survives; batches survive whole or not at all. [`crate::Db::sync`] and
/// [`crate::Db::close`] make everything durable at either level.
///
/// | a write that returned survives | `Async` | `Sync` |
/// | --- | --- | --- |
/// | the process is killed or aborts, or exits without `close` | yes | yes |
/// | the power goes, or the kernel crashes | if a checkpoint came behind it | yes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A write returns when every reader can see it; a checkpoint in the background makes it durable. Write
    /// buffers lie in a file that is mapped shared, so the death of the process, however it dies, loses
    /// nothing that returned: the kernel has it. A power cut loses at most what was written in the last
    /// `interval`, plus the time one checkpoint takes. No write waits for the drive, and each row is written
    /// once: this is where the low write amplification comes from.
    Async {
        /// Time between the beginnings of checkpoints; longer than zero. Shorter loses less to a power cut,
        /// and syncs more.
        interval: Duration,
    },
    /// A write returns when it is durable: an acknowledged write is never lost, not to a power cut either.
    /// Each is also written to a log shared by all writers and synced; writers that come together share one
    /// sync: it is fast with many threads, or with [`crate::WriteBatch`]es.
    Sync,
}

impl Default for Durability {
    /// [`Durability::Async`], every half second.
    fn default() -> Self {
        Durability::Async { interval: Duration::from_millis(500) }
    }
}
