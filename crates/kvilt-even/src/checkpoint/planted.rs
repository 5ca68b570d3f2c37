//! The planted bug `PaperGarbageCollection`, which takes more than a line: in no build but that of the
//! feature `mutants`.

use kvilt_base::{Result, mutant};

use crate::{mutants, store::Store};

impl Store {
    /// The paper's rule: a rewritten funk becomes durable at once, with whatever it dropped.
    pub(crate) fn commit_rewrite_if_planted(&self) -> Result<()> {
        if !mutant(&mutants::PaperGarbageCollection) {
            return Ok(());
        }
        let mut durable = self.checkpoint.durable.lock();
        let mut cut = self.cut(None);
        cut.version = durable.root.checkpoint;
        self.files.sync_names()?;
        let edit = self.edit(&durable, &cut, &[], false);
        self.write_edit(&mut durable, &edit)?;
        self.sweep(&durable, cut.made_before, false);
        Ok(())
    }
}
