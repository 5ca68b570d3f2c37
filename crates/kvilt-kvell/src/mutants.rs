//! Bugs planted in this crate, see [`kvilt_base::mutant`]; which layer finds each is in `docs/testing.md`.

kvilt_base::mutants! {
    /// A put is acknowledged when its write is submitted.
    AppliedAtSubmission,
    /// A slot that a view needs is freed.
    SlotOfViewFreed,
    /// A cut syncs no slab and no map.
    CutWithoutSync,
    /// An index snapshot of another cut is trusted.
    StaleSnapshotTrusted,
    /// Parts of a batch count after a kill.
    PartsOfBatchCount,
}
