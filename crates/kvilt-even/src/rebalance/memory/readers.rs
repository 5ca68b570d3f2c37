//! What readers give back of the memory that they made others than munks take: tables that were opened,
//! orders of logs.
//!
//! Where it stands: behind each get and each chunk of a scan that read files. Always true: what is given back
//! can be read again.

use std::sync::atomic::Ordering;

use kvilt_sync::published::pin;

use crate::{funk::PartFile, store::Store};

/// Readers do it again when this part of the budget has come since they did.
const GROWN_PART: u64 = 16;

impl Store {
    /// Keeps within the budget what was read from files.
    pub(crate) fn keep_readers_within_budget(&self) {
        if self.config.is_read_only {
            self.give_back_what_was_read();
        } else {
            self.help_background_forget();
        }
    }

    /// Nothing runs in the background: whatever can be read again is given back, all at once, so that to look
    /// at every chunk costs little for each byte that was read.
    fn give_back_what_was_read(&self) {
        self.share_rows();
        if self.other_memory() <= self.config.budget_bytes / 4 * 3 {
            return;
        }
        let pin = pin();
        for chunk in self.index.load(&pin).chunks() {
            for part in &chunk.state(&pin).funk.parts {
                match &part.file {
                    PartFile::Table(table) => table.close(),
                    PartFile::Log(log) => log.forget(true),
                }
            }
        }
        pin.flush();
    }

    /// A scan of one cold chunk after the other may put logs in order, and open tables, faster than the
    /// background gives them back, or evicts munks for them: once all together takes a quarter more than the
    /// budget, the scan does so itself.
    fn help_background_forget(&self) {
        let (used, budget) = (self.files.budget.used_in_all(), self.config.budget_bytes);
        // Relaxed: a hint.
        let left = &self.munk_room.left_by_readers;
        if used <= budget + budget / 4 {
            if left.load(Ordering::Relaxed) > 0 {
                left.store(0, Ordering::Relaxed);
            }
        } else if used > left.load(Ordering::Relaxed) + budget / GROWN_PART {
            self.forget_orders();
            self.close_unread_tables(&pin());
            left.store(self.files.budget.used_in_all(), Ordering::Relaxed);
        }
    }
}
