//! Bugs planted in this crate, see [`kvilt_base::mutant`]; which layer finds each is in `docs/testing.md`.

kvilt_base::mutants! {
    // Versions.
    /// A flush or a merge sees no open view.
    ViewsPassedOver,
    /// A delete waiting for an older entry of its key is dropped, though one follows.
    HeldDeleteDropped,
    /// A flush leaves out deletes.
    DeleteNotFlushed,
    /// A range delete has the version of puts before it.
    RangeDeleteNotAbove,
    /// A range delete that deletes a few rows one by one leaves the last.
    LastOfFewLeft,
    /// An open goes on in the epoch of the run before.
    EpochNotRaised,

    // Sources.
    /// The sorted table before the oldest cached one is taken to be in memory.
    SortedPassedOver,
    /// Of cached tables, the newest goes first.
    NewestCachedEvicted,
    /// A flushed table comes behind older ones of level 0.
    FlushedBehindOlder,
    /// A scan of a level ends with the first table that has rows of its range.
    LevelEndsEarly,

    // The log.
    /// A segment is used again although a table that is not flushed has rows of it.
    SegmentFreedEarly,
    /// A table's rows are taken to begin in the segment behind the current one.
    TableBeginsBehindItsRows,
    /// Names of segments are not synced.
    SegmentNameNotSynced,
    /// A mark is stored though its segment was not synced.
    SegmentNotSynced,
    /// A failed sync of a segment is passed over.
    SyncFailureIgnored,
    /// At level sync a write returns before its record is durable.
    AcknowledgedBeforeSync,
    /// Each change of a batch has a record of its own.
    BatchInPieces,
    /// Records behind one that is torn count after a power cut.
    TornPassedAfterPowerCut,
    /// What lies behind the log's end follows when it goes on.
    BehindNotRemoved,
    /// A recovery syncs what it found, and does not write it again.
    FoundNotWrittenAgain,
    /// A recovery leaves records that are not whole as they are.
    NotMadeVoid,
    /// A store that is closed does not say where its log ends.
    EndNotNoted,

    // The catalogue.
    /// A catalogue is not synced.
    CatalogueNotSynced,
    /// The names of a catalogue and its tables are not synced.
    NamesNotSynced,
    /// A sorted table is not synced before a catalogue names it.
    TableNotSynced,
    /// A range delete is in no catalogue when its log is freed.
    RangeDeleteNotNamed,
    /// The inputs of a merge are removed before the catalogue is durable that does without them.
    InputsRemovedEarly,
    /// A recovery removes what its catalogue does not name before that is durable.
    UnneededRemovedEarly,
}
