//! Bugs planted in this crate, see [`kvilt_base::mutant`]; which layer finds each is in `docs/testing.md`.

kvilt_base::mutants! {
    // Munks, eviction, row cache.
    /// A row read before a put is cached after it.
    TicketIgnored,

    // Death of the process.
    /// A record in a write buffer is published before all its bytes are there, and some that are not its own.
    PublishedEarly,
    /// A record in a write buffer is published with the next one.
    PublishedLate,

    // Memory.
    /// What is replaced waits for every reader that there is, also for one that began before it was made.
    KeptForReaders,

    // Range deletes.
    /// Range tombstones stay below newer ones though nobody tells them apart.
    TombstonesPiledUp,
    /// A tree of range tombstones is as deep as it has nodes.
    TombstonesInAList,
    /// A range tombstone deletes the first key behind its range.
    RangeEndIncluded,
    /// A range tombstone goes when a newer one covers it, although a view lies between the two.
    TombstoneUnderView,

    // Views, gets, batches.
    /// A compaction sees no open view.
    ViewsNotListed,

    // The memory table of `teks`.
    /// A key moves to its last choice past one with room.
    MovedPastRoom,
    /// A key that moves is not written to where it goes.
    MovedKeyLost,
    /// A scan weaves as many keys as fill hands, and leaves the others.
    WeavesWholeHands,
    /// A scan that begins at a key that is not there is at its end.
    MissedSeekEnds,
    /// A key is written in place under a view.
    WrittenInPlaceUnderView,
}
