//! Settings of the engine `even`: how long chunks and logs become, and how tables are written.

pub use kvilt_even::Compression;

/// Settings of the engine `even`, for [`crate::Engine::Even`]. Everything has a default that was measured.
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("events");
/// use kvilt::even::{Compression, Options};
///
/// let options = Options::default().compression(Compression::Lz4).block_bytes(16 << 10);
/// let db = kvilt::Db::builder(path).engine(kvilt::Engine::Even(options)).open()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options(pub(crate) kvilt_even::Options);

impl Options {
    /// How table blocks are compressed. Default: [`Compression::None`].
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.0.compression = compression;
        self
    }

    /// Bytes that a chunk may hold before it must be split. Default: 10 MiB. Larger chunks mean
    /// fewer files, but longer rewrites and coarser caching. A small memory budget makes chunks smaller.
    #[must_use]
    pub fn chunk_bytes_max(mut self, bytes: u64) -> Self {
        self.0.chunk_bytes_max = bytes;
        self
    }

    /// Bytes at which the background splits a chunk. Default: 7 MiB, below
    /// [`Options::chunk_bytes_max`], so that writers seldom meet the limit and wait.
    #[must_use]
    pub fn chunk_bytes_rebalance(mut self, bytes: u64) -> Self {
        self.0.chunk_bytes_rebalance = bytes;
        self
    }

    /// Bytes below which a chunk is coalesced with a neighbour. Default: 1 MiB; at most half of
    /// [`Options::chunk_bytes_rebalance`], or a coalesced chunk would be split again.
    #[must_use]
    pub fn chunk_bytes_min(mut self, bytes: u64) -> Self {
        self.0.chunk_bytes_min = bytes;
        self
    }

    /// Bytes of log that a chunk outside memory may have before a scan of it pays for a rewrite.
    /// Default: 2 MiB. Less makes cold scans faster and writes more.
    #[must_use]
    pub fn log_bytes_max_cold(mut self, bytes: u64) -> Self {
        self.0.log_bytes_max_cold = bytes;
        self
    }

    /// Bytes of log that a chunk in memory may have. Default: 20 MiB. It bounds what must be
    /// read when the chunk is loaded again; its gets and scans do not read the log.
    #[must_use]
    pub fn log_bytes_max_cached(mut self, bytes: u64) -> Self {
        self.0.log_bytes_max_cached = bytes;
        self
    }

    /// Bytes of a table's block before compression. Default: 4096, a page: what a cold get reads
    /// and checks. Larger blocks compress better.
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.0.block_bytes = bytes;
        self
    }
}
