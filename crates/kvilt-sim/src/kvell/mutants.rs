//! The bugs planted in `kvell`, each with the layer that should find it and the rule that it breaks: an
//! invariant, or a promise of the contract.

use kvilt_kvell::mutants as kvell;

use crate::mutants::{
    Layer::{Crash, Damage, EveryCrash, Faults, Model},
    Planted,
};

/// All of them.
pub(super) static PLANTED: &[Planted] = &[
    Faults.finds(&kvell::AppliedAtSubmission, "B-6"),
    Model.finds(&kvell::SlotOfViewFreed, "K-4"),
    Crash.finds(&kvell::CutWithoutSync, "B-5"),
    Crash.finds(&kvell::PartsOfBatchCount, "B-4"),
    Crash.finds(&kvell::FreedAtOnce, "K-4"),
    Crash.finds(&kvell::FreedWithWrongCut, "K-4"),
    Crash.finds(&kvell::MapNotSynced, "B-5"),
    Crash.finds(&kvell::SlabNotSynced, "B-5"),
    Crash.finds(&kvell::MapWrittenInPlace, "K-6"),
    Faults.finds(&kvell::FailedCutForgotten, "B-5"),
    Crash.finds(&kvell::VersionNotRaised, "B-5"),
    Crash.finds(&kvell::TombstoneIgnored, "B-5"),
    Crash.finds(&kvell::RangeDeleteIgnored, "B-5"),
    EveryCrash.finds(&kvell::EpochNotRaised, "B-5"),
    Crash.finds(&kvell::BootNotCompared, "B-5"),
    Crash.finds(&kvell::CloseNotTakenBack, "B-5"),
    Faults.finds(&kvell::FoundNotWrittenAgain, "B-6"),
    Crash.finds(&kvell::SlabNameNotSynced, "B-5"),
    Crash.finds(&kvell::WritesNotDurable, "B-5"),
    Faults.finds(&kvell::SyncFailureIgnored, "B-6"),
    Model.finds(&kvell::NoteLost, "K-5"),
    Model.finds(&kvell::RemovedNotNoted, "K-5"),
    Damage.finds(&kvell::SnapshotOfAnotherCut, "B-5"),
    Model.finds(&kvell::BlockTakenForFresh, "K-2"),
];
