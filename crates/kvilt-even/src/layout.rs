//! What the store consists of: its chunks, and the files in its directory.

use kvilt_base::{FileName, Layout, LayoutRange, Listed, Result, directory};
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
        let disk = &*self.files.disk;
        for listed in directory::list(disk)? {
            let Listed::Ours(name) = listed else { continue };
            let Some(bytes) = self.len_if_there(name)? else { continue };
            let kind = layout.files.entry(word_for(name)).or_default();
            kind.files += 1;
            kind.bytes += bytes;
        }
        Ok(layout)
    }

    /// None for a file that was removed since the directory was listed.
    fn len_if_there(&self, name: FileName) -> Result<Option<u64>> {
        directory::len_of(&*self.files.disk, name).map(Some).or_else(|error| {
            let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<std::io::Error>());
            match source {
                Some(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
                _ => Err(error),
            }
        })
    }
}
