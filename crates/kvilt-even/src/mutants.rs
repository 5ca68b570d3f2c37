//! Bugs planted in this crate, see [`kvilt_base::mutant`]; which layer finds each is in `docs/testing.md`.

kvilt_base::mutants! {
    // A checkpoint's order.
    /// Names of new files are not synced before the manifest has them.
    NamesNotSynced,
    /// A log is written but not synced before the manifest says how long it is.
    LogNotSynced,
    /// A checkpoint leaves out the last of the logs that changed.
    LogLeftOut,
    /// The manifest records what was appended to a log instead of what was synced.
    LengthNotSynced,
    /// The manifest records the last summary that was appended to a log instead of the last that was synced.
    SummaryNotSynced,
    /// A new table is not synced before the manifest names it.
    TableNotSynced,
    /// A manifest whose last append failed takes the next edit.
    EditKeptAfterFailure,
    /// Files are removed before the manifest that lets go of them is durable.
    RemovedEarly,
    /// The logs to sync are collected before the cut.
    DirtyTakenEarly,
    /// A log that is empty when a checkpoint looks is left out, though a put that marked its chunk before is
    /// about to write to it.
    EmptyLogForgotten,
    /// After a checkpoint that failed, its logs are taken for clean.
    NotTakenBack,
    /// A rewritten funk enters the manifest at once instead of with the next checkpoint (the paper's rule,
    /// which keeps versions for scans only).
    PaperGarbageCollection,

    // Rows that replace others in a run.
    /// A row takes the place of one that some view sees.
    ReplacedUnderView,
    /// A row takes the place of one in the run though a tail, which is looked at first, has the key.
    ReplacedBelowTail,

    // Recovery.
    /// Recovery goes on counting in the crashed epoch and forgets which of its versions are dead.
    CheckpointWithoutEpoch,
    /// Dead versions are forgotten while logs still have them.
    DeadForgotten,
    /// What a summary tells of versions that are dead counts.
    DeadSummedUp,
    /// The last version that a checkpoint covers counts as dead.
    DeadTooMany,
    /// After recovery, a chunk's old log is appended to, behind a tail that may be torn.
    AppendBehindTornTail,
    /// A commit log that is still needed is removed as an orphan.
    LiveOrphan,
    /// Numbers of files that a crash left behind are given out again.
    NumberReused,
    /// After a kill, what can be read is not made durable before it is relied on.
    VisibleNotDurable,
    /// What is replayed is not made durable before it is shown.
    ReplayNotSynced,
    /// Recovery removes what the manifest does not name before the manifest is durable that a kill left
    /// behind.
    OrphansRemovedEarly,

    // Death of the process.
    /// Recovery trusts the write buffers that another run of the kernel left.
    PoolOfAnotherBoot,
    /// A chunk's new files are not in the journal.
    ChangeNotNoted,
    /// Recovery takes what there is of a batch.
    BatchCountedByParts,
    /// Recovery takes a log whose records were written at once for whole.
    SpillNotRead,
    /// A record that has no room in the pool is not written at once.
    NotWrittenThrough,
    /// The run after a kill counts versions from where the killed one did.
    EpochBegunAgain,
    /// The run after a kill does not note what that found.
    FoundNotNoted,
    /// What a killed process left unsynced is taken for durable.
    FoundNotSynced,

    // The commit log.
    /// Writes are acknowledged before the commit log is synced.
    AcknowledgedEarly,
    /// Writes can be read before they are in the commit log.
    AppliedEarly,
    /// The batches that were replayed are not counted when the chain goes on.
    ChainForgotten,
    /// Of a batch, only the first change is replayed.
    BatchHalfReplayed,
    /// An open that only reads leaves out what commit logs hold.
    CommitNotShown,
    /// Each change of a batch gets a record of its own in the commit log.
    BatchInPieces,
    /// The commit log before is removed when the next one begins.
    CommitRemovedEarly,

    // Rebalance, split, coalesce.
    /// A child does not keep a part whose last key is the child's first.
    BorderDropped,
    /// Tombstones are dropped although an older entry is kept.
    TombstoneDropped,
    /// Versions that a view needs are dropped.
    ViewIgnored,
    /// What was put while a munk was sorted is lost when the sorted run takes its place.
    PutDuringSort,
    /// Where two chunks become one, the logs begun meanwhile come before the table.
    PartsExchanged,

    // Munks, eviction, row cache.
    /// An evicted chunk's log is indexed only from its middle on.
    EvictedHalfIndexed,
    /// A log with tombstones is taken to have only the keys that its chunk's munk has.
    DeletesNotInSpan,
    /// A load forgets what was put while it read.
    LoadNotCaughtUp,
    /// A put does not tell the row cache.
    RowCacheNotTold,

    // Memory.
    /// Munks are not evicted when memory is short.
    MunksKept,

    // Range deletes.
    /// A log's range tombstones do not count for the keys it may have, so a split leaves the log out.
    TombstoneNotInSpan,
    /// A range delete does not tell the row cache.
    RangeDeleteNotTold,
    /// A munk's range tombstones end before the open tail under them is sorted.
    TailNotFrozen,

    // Views, gets, batches.
    /// A get asks a cold chunk's parts oldest first.
    OldestFirst,

    // Failures and damage.
    /// A log's failed sync is an error like any other, and tried again.
    SyncRetried,
    /// A checkpoint that could not be synced does not poison.
    NotPoisoned,
    /// On a full disk, a log's buffer is dropped as if it had been written.
    BufferDropped,
    /// What a log's buffer begins with of the one before counts as written, all of it.
    CarriedNotWritten,
    /// A damaged record below a log's synced length ends the log silently.
    DamageIsTornTail,

    // Copies.
    /// A copy holds what the last checkpoint had, not what was there when it was asked for.
    CopyOutdated,
}
