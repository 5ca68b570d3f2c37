//! Settings of the engine `teks`: how long its rows are.

/// Settings of the engine `teks`, for [`crate::Engine::Teks`].
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("sessions");
/// use kvilt::{Db, Engine, teks::Options};
///
/// let db = Db::builder(path).engine(Engine::Teks(Options::default().row_bytes(400))).open()?;
/// db.put(b"user/17", b"online")?;
/// assert_eq!(db.prefix(b"user/").count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options(pub(crate) kvilt_teks::Options);

impl Options {
    /// Bytes of key and value that a row has, about, 1 to 1 MiB. Default: 128. It decides how many keys the
    /// hash of a memory table has room for. With shorter rows the hash is full before the table has used its
    /// memory; with longer ones it takes memory that rows could have. It may be another at each open.
    #[must_use]
    pub fn row_bytes(mut self, bytes: usize) -> Self {
        self.0.row_bytes = bytes;
        self
    }

    /// For measurements: takes only the first of the paper's four steps.
    #[doc(hidden)]
    #[must_use]
    pub fn steps(mut self, count: usize) -> Self {
        self.0.steps = count;
        self
    }
}
