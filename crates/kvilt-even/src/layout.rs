//! What the store consists of: its chunks, and the files in its directory.

use kvilt_base::{FileName, Layout, LayoutRange, Result, layout::files_by_kind};
use kvilt_format::{
    FORMAT_VERSION,
    names::{COMMIT, LOG, MANIFEST, MANIFEST_TEMP, TABLE},
};
use kvilt_sync::published::pin;

use crate::store::Store;

/// What a kind of files is called.
fn word_for(name: FileName) -> &'static str {
    match name {
        FileName::Of(LOG, _) => "log",
        FileName::Of(TABLE, _) => "table",
        FileName::Of(COMMIT, _) => "commit log",
        FileName::Of(MANIFEST | MANIFEST_TEMP, _) => "manifest",
        FileName::Of(..) | FileName::Once(_) => "other",
    }
}

impl Store {
    /// Chunks as ranges; files as the disk has them. No file is opened.
    pub(crate) fn layout(&self) -> Result<Layout> {
        self.poison.allow_read()?;
        let mut layout = Layout { format_version: FORMAT_VERSION, ..Layout::default() };
        {
            let pin = pin();
            for chunk in self.index.load(&pin).chunks() {
                let funk = &chunk.state(&pin).funk;
                let file_bytes = funk.table_bytes() + funk.log_bytes();
                layout.ranges.push(LayoutRange { keys: chunk.range.clone(), file_bytes });
            }
        }
        layout.files = files_by_kind(&*self.files.disk, word_for)?;
        Ok(layout)
    }
}
