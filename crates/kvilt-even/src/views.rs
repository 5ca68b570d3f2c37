//! Views and their age: a snapshot or scan that is kept beyond the limit expires.
//!
//! What is always true: S-9, a view is marked expired before any version is dropped that only it needs;
//! readers ask behind each read and before they give out what they read, so an expired view gives an error
//! and no wrong row. Why so: `docs/design/0025-forks-and-old-views.md`.

use kvilt_base::{Error, ErrorKind, Result, Version};

use crate::store::Store;

impl Store {
    /// Fails if the view of this version has expired. Asked behind a read.
    pub(crate) fn allow_view(&self, view: Version) -> Result<()> {
        if self.versions.is_expired(view) {
            let limit = self.config.view_age_max;
            return Err(Error::new(
                ErrorKind::SnapshotTooOld,
                format!(
                    "the snapshot or scan was open for longer than {limit:?}, and what it saw may be gone"
                ),
            ));
        }
        Ok(())
    }

    /// Lets views expire that are older than the limit.
    pub(crate) fn expire_views(&self) {
        if let Some(limit) = self.world.clock.now().checked_sub(self.config.view_age_max) {
            self.counters.views_expired.add(self.versions.expire_views(limit) as u64);
        }
    }

    /// The views that a compaction keeps versions for, ascending.
    pub(crate) fn kept_views(&self) -> Vec<Version> {
        self.expire_views();
        self.versions.open_views()
    }
}
