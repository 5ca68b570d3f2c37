//! Bugs planted in this crate, see [`kvilt_base::mutant`]; which layer finds each is in `docs/testing.md`.

kvilt_base::mutants! {
    /// A put is acknowledged when its write is submitted.
    AppliedAtSubmission,
    /// A slot that a view needs is freed.
    SlotOfViewFreed,
    /// A cut syncs no slab and no map.
    CutWithoutSync,
    /// Parts of a batch count after a kill.
    PartsOfBatchCount,
    /// A slot is free at once when its item is superseded.
    FreedAtOnce,
    /// A cut frees what was superseded after its moment, too.
    FreedWithWrongCut,
    /// A cut syncs no map.
    MapNotSynced,
    /// A cut syncs no slab.
    SlabNotSynced,
    /// A map page is written over the copy that counts.
    MapWrittenInPlace,
    /// The pages of a cut that failed are taken for written.
    FailedCutForgotten,
    /// A root has the version of the cut before.
    VersionNotRaised,
    /// Tombstones behind the cut are passed over.
    TombstoneIgnored,
    /// Range deletes behind the cut are passed over.
    RangeDeleteIgnored,
    /// An open goes on in the epoch of the run before.
    EpochNotRaised,
    /// Items behind the cut count after a power cut.
    BootNotCompared,
    /// An open leaves the root's word that the store was closed.
    CloseNotTakenBack,
    /// A recovery syncs what it found behind the cut, and does not write it again.
    FoundNotWrittenAgain,
    /// The name of a new slab is not synced.
    SlabNameNotSynced,
    /// Writes at level sync are not durable.
    WritesNotDurable,
    /// A failed sync is passed over.
    SyncFailureIgnored,
    /// Notes that a view needs are dropped with those of a view that was closed.
    NoteLost,
    /// What a range delete took out is not noted for views.
    RemovedNotNoted,
    /// An open trusts an index snapshot of another cut than the root's.
    SnapshotOfAnotherCut,
    /// A block is written without the slots that it had.
    BlockTakenForFresh,
}
