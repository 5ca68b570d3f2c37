//! The bugs planted in `even` and in the crates below it, each with the layer that should find it and the
//! rule that it breaks: R and D of the rules learned from the papers, else an invariant.

use kvilt_even::mutants as even;
use kvilt_format::mutants as format;
use kvilt_sync::mutants as sync;

use crate::mutants::{
    Layer::{Crash, Damage, EveryCrash, Faults, Model, Nested},
    Planted,
};

/// All of them.
pub(super) static PLANTED: &[Planted] = &[
    Crash.finds(&even::NamesNotSynced, "R5"),
    Crash.finds(&even::LogNotSynced, "R5"),
    Crash.finds(&even::LogLeftOut, "D2"),
    Crash.finds(&even::LengthNotSynced, "R4"),
    Crash.finds(&even::SummaryNotSynced, "E-14"),
    Crash.finds(&even::TableNotSynced, "E-21"),
    Crash.finds(&format::EditNotSynced, "R5"),
    Crash.finds(&format::ManifestNotSynced, "R5"),
    Crash.finds(&format::ManifestNameNotSynced, "R5"),
    Faults.finds(&even::EditKeptAfterFailure, "R5"),
    Damage.finds(&format::WitnessNotTold, "F-8"),
    Crash.finds(&even::RemovedEarly, "R5"),
    Crash.finds(&even::DirtyTakenEarly, "D2"),
    Crash.finds(&even::EmptyLogForgotten, "D2"),
    Faults.finds(&even::NotTakenBack, "D2"),
    Crash.finds(&even::PaperGarbageCollection, "R1"),
    Crash.finds(&even::CheckpointWithoutEpoch, "R2"),
    Crash.finds(&even::DeadForgotten, "R2"),
    Crash.finds(&even::DeadTooMany, "R2"),
    Crash.finds(&even::DeadSummedUp, "R2"),
    // E-5, too.
    Crash.finds(&even::AppendBehindTornTail, "R3"),
    Crash.finds(&even::LiveOrphan, "E-8"),
    Crash.finds(&even::NumberReused, "R5"),
    EveryCrash.finds(&even::VisibleNotDurable, "R7"),
    Crash.finds(&even::ReplayNotSynced, "R7"),
    Nested.finds(&even::OrphansRemovedEarly, "R7"),
    Crash.finds(&even::PoolOfAnotherBoot, "B-5"),
    Crash.finds(&even::ChangeNotNoted, "E-22"),
    EveryCrash.finds(&even::BatchCountedByParts, "B-4"),
    Crash.finds(&even::SpillNotRead, "E-23"),
    Crash.finds(&even::NotWrittenThrough, "E-23"),
    Crash.finds(&even::EpochBegunAgain, "R2"),
    Crash.finds(&even::FoundNotNoted, "E-22"),
    Crash.finds(&even::FoundNotSynced, "R5"),
    Crash.finds(&sync::PublishedEarly, "S-90"),
    Crash.finds(&sync::PublishedLate, "S-90"),
    Crash.finds(&even::AcknowledgedEarly, "D6"),
    Faults.finds(&even::AppliedEarly, "D1"),
    Crash.finds(&even::ChainForgotten, "E-11"),
    Crash.finds(&even::BatchHalfReplayed, "B-4"),
    Crash.finds(&even::CommitNotShown, "B-7"),
    Crash.finds(&even::BatchInPieces, "B-4"),
    Crash.finds(&even::CommitRemovedEarly, "R5"),
    Model.finds(&even::BorderDropped, "E-3"),
    Model.finds(&even::TombstoneDropped, "R1"),
    Model.finds(&even::ViewIgnored, "R1"),
    Model.finds(&even::PutDuringSort, "E-3"),
    Model.finds(&even::PartsExchanged, "E-4"),
    Model.finds(&even::EvictedHalfIndexed, "E-4"),
    Model.finds(&even::DeletesNotInSpan, "E-4"),
    Model.finds(&even::LoadNotCaughtUp, "E-3"),
    Model.finds(&even::RowCacheNotTold, "D3"),
    Model.finds(&sync::TicketIgnored, "D3"),
    Model.finds(&even::MunksKept, "E-19"),
    Model.finds(&sync::KeptForReaders, "S-19"),
    Model.finds(&sync::TombstonesInAList, "E-20"),
    Model.finds(&sync::TombstonesPiledUp, "E-20"),
    Model.finds(&sync::RangeEndIncluded, "B-1"),
    Model.finds(&even::TombstoneNotInSpan, "E-4"),
    Model.finds(&even::RangeDeleteNotTold, "D3"),
    Model.finds(&sync::TombstoneUnderView, "E-17"),
    Model.finds(&even::TailNotFrozen, "E-3"),
    Model.finds(&even::ReplacedUnderView, "E-13"),
    Model.finds(&even::ReplacedBelowTail, "E-13"),
    Model.finds(&sync::ViewsNotListed, "S-7"),
    Model.finds(&even::OldestFirst, "E-4"),
    Faults.finds(&even::SyncRetried, "B-6"),
    Faults.finds(&even::NotPoisoned, "B-6"),
    Faults.finds(&even::BufferDropped, "B-5"),
    Model.finds(&even::CarriedNotWritten, "E-15"),
    Damage.finds(&even::DamageIsTornTail, "R4"),
    Damage.finds(&format::ChecksumIgnored, "D8"),
    Damage.finds(&format::FilterBelieved, "F-5"),
    Model.finds(&even::CopyOutdated, "B-3"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_planted_bug_has_a_layer_that_should_find_it() {
        let declared = [even::ALL, format::ALL, sync::ALL].concat();
        let names: BTreeSet<&str> = declared.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), declared.len(), "two bugs of one name");
        assert_eq!(names, PLANTED.iter().map(|planted| planted.mutant.name()).collect());
        assert_eq!(PLANTED.len(), declared.len());
    }
}
