//! Settings of the engine `kvell`: how many shards a store has, and how deep their I/O queues are.

use crate::machine;

/// Settings of the engine `kvell`, for [`crate::Engine::Kvell`].
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("sessions");
/// use kvilt::{Db, Engine, kvell::Options};
///
/// let db = Db::builder(path).engine(Engine::Kvell(Options::default().shards(4))).open()?;
/// db.put(b"user/17", b"online")?;
/// assert_eq!(db.get(b"user/17")?.unwrap(), b"online");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options(pub(crate) kvilt_kvell::Options);

impl Default for Options {
    /// A shard for each core.
    fn default() -> Self {
        let mut options = kvilt_kvell::Options::default();
        options.shards = machine::cores().min(kvilt_kvell::SHARDS_MAX);
        Options(options)
    }
}

impl Options {
    /// Shards of a store that is made, 1 to 64. Default: one for each core of this machine. A store keeps the
    /// number that it was made with.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> Self {
        self.0.shards = shards;
        self
    }

    /// Reads and writes that a shard has in flight at once. Default: 64.
    #[must_use]
    pub fn queue_depth(mut self, depth: usize) -> Self {
        self.0.queue_depth = depth;
        self
    }
}
