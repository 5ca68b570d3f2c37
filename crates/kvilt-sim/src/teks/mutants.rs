//! The bugs planted in `teks` and in its memory table, each with the layer that should find it and the rule
//! that it breaks: an invariant, or a promise of the contract.

use kvilt_sync::mutants as sync;
use kvilt_teks::mutants as teks;

use crate::mutants::{
    Layer::{Crash, Damage, Faults, Model, Nested},
    Planted,
};

/// All of them.
pub(super) static PLANTED: &[Planted] = &[
    // What the published code of the paper does.
    Model.finds(&sync::WeavesWholeHands, "T-3"),
    Model.finds(&sync::MissedSeekEnds, "T-4"),
    Model.finds(&sync::MovedKeyLost, "T-2"),
    Model.finds(&sync::WrittenInPlaceUnderView, "T-5"),
    Crash.finds(&teks::BatchInPieces, "B-4"),
    // What is easily done wrong.
    Model.finds(&sync::MovedPastRoom, "T-2"),
    Model.finds(&teks::ViewsPassedOver, "S-7"),
    Model.finds(&teks::HeldDeleteDropped, "B-1"),
    Model.finds(&teks::DeleteNotFlushed, "B-1"),
    Model.finds(&teks::RangeDeleteNotAbove, "B-1"),
    Model.finds(&teks::LastOfFewLeft, "B-1"),
    Model.finds(&teks::EpochNotRaised, "B-1"),
    Model.finds(&teks::SortedPassedOver, "B-1"),
    Model.finds(&teks::NewestCachedEvicted, "B-1"),
    Model.finds(&teks::FlushedBehindOlder, "B-1"),
    Model.finds(&teks::LevelEndsEarly, "B-1"),
    Crash.finds(&teks::SegmentFreedEarly, "T-12"),
    Crash.finds(&teks::TableBeginsBehindItsRows, "T-12"),
    Nested.finds(&teks::SegmentNameNotSynced, "T-11"),
    Crash.finds(&teks::SegmentNotSynced, "T-11"),
    Faults.finds(&teks::SyncFailureIgnored, "B-6"),
    Crash.finds(&teks::AcknowledgedBeforeSync, "B-5"),
    Crash.finds(&teks::TornPassedAfterPowerCut, "B-5"),
    Nested.finds(&teks::BehindNotRemoved, "T-11"),
    Faults.finds(&teks::FoundNotWrittenAgain, "B-6"),
    Crash.finds(&teks::NotMadeVoid, "T-11"),
    Damage.finds(&teks::EndNotNoted, "T-11"),
    Crash.finds(&teks::CatalogueNotSynced, "B-5"),
    Crash.finds(&teks::NamesNotSynced, "B-5"),
    Nested.finds(&teks::TableNotSynced, "B-5"),
    Model.finds(&teks::RangeDeleteNotNamed, "B-1"),
    Crash.finds(&teks::InputsRemovedEarly, "B-5"),
    Nested.finds(&teks::UnneededRemovedEarly, "B-5"),
];
