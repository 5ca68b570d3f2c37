//! The planted bug `AppendBehindTornTail`, which takes more than a line: in no build but that of the feature
//! `mutants`.

use kvilt_base::{FileName, mutant};
use kvilt_format::names::LOG;

use crate::{
    funk::{Funk, Part, PartFile, log::ChunkLog},
    mutants,
    store::Store,
};

impl Store {
    /// The last log of a recovered chunk takes records again, behind whatever the crash left in it.
    pub(super) fn reopened_if_planted(&self, mut funk: Funk) -> Funk {
        if mutant(&mutants::AppendBehindTornTail)
            && let Some(Part { file: PartFile::Log(log), .. }) = funk.parts.last()
        {
            let (number, base) = (log.number(), log.base());
            let len = self.files.disk.len(FileName::Of(LOG, number)).unwrap_or(0).max(log.durable_len());
            funk.log = Some(ChunkLog::reopened_for_append(&self.files, number, base, len));
            funk.parts.pop();
        }
        funk
    }
}
