//! What the store consists of: the files in its directory.

use kvilt_base::{
    FileName, KeyRange, Layout, LayoutRange, Result,
    layout::{FilesOfKind, files_by_kind},
};
use kvilt_format::{
    FORMAT_VERSION,
    names::{REDO, TABLE},
};

use crate::store::Store;

/// What a kind of files is called.
fn word_for(name: FileName) -> &'static str {
    match name {
        FileName::Of(TABLE, _) => "table",
        FileName::Of(REDO, _) => "log",
        FileName::Of(..) | FileName::Once(_) => "other",
    }
}

impl Store {
    /// All keys as one range; files as the disk has them. No file is opened.
    pub(crate) fn layout(&self) -> Result<Layout> {
        let files = files_by_kind(&*self.disk, word_for)?;
        let file_bytes = files.get("table").map_or(0, |kind| kind.bytes);
        let ranges = vec![LayoutRange { keys: KeyRange::all(), file_bytes }];
        Ok(Layout { format_version: FORMAT_VERSION, files, ranges })
    }

    /// Files of the redo log. A store that is only read has no log of its own, but that of earlier runs.
    pub(crate) fn log_files(&self) -> Result<FilesOfKind> {
        match self.log.get() {
            Some(log) => Ok(log.files()),
            None => Ok(files_by_kind(&*self.disk, word_for)?.get("log").copied().unwrap_or_default()),
        }
    }
}
