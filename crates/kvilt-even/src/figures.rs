//! `Figures`: what this engine counts beside what every engine does.

use kvilt_base::declare_figures;

declare_figures! {
    /// Figures of one store. What each is stands with it, for users.
    #[derive(Default)]
    pub(crate) struct Figures {
        /// Chunks in the index.
        chunks_now,
        /// Chunks that have a munk.
        munks_now,
        /// Memory in munks, of all stores that share the budget.
        munk_bytes_now,
        /// Memory in this store's row cache.
        row_cache_bytes_now,
        /// Memory in log indexes, of all stores that share the budget.
        log_index_bytes_now,
        /// Memory in open tables, of all stores that share the budget: block indexes and filters.
        table_bytes_now,
        /// Memory in log write buffers, of all stores that share the budget.
        log_buffer_bytes_now,
        /// Gets answered by a munk.
        gets_from_munk,
        /// Gets answered by the row cache.
        gets_from_row_cache,
        /// Gets answered by a log.
        gets_from_log,
        /// Gets answered by a table.
        gets_from_table,
        /// Munks whose tails were sorted into a new run.
        munk_compactions,
        /// Tails woven into a munk's run, which stays where it is, because they were read.
        munk_weavings,
        /// Funk rebalances: a chunk's files rewritten.
        funk_rebalances,
        /// Of these, how many were begun to free dead bytes.
        space_rewrites,
        /// Chunks split.
        splits,
        /// Neighbours coalesced.
        coalesces,
        /// Munks loaded from disk.
        munk_loads,
        /// Munks evicted.
        munk_evictions,
        /// Checkpoints completed.
        checkpoints,
        /// Time since the last checkpoint, or the open if there is none; zero if nothing waits for one.
        checkpoint_age_us_now,
        /// Written to chunk logs.
        log_bytes_written,
        /// Written to tables.
        table_bytes_written,
        /// Written to manifests.
        manifest_bytes_written,
        /// Written to commit logs (level sync only).
        commit_bytes_written,
        /// The file with the write buffers, from which a killed process loses nothing.
        pool_bytes_now,
        /// What the kernel writes of it, about: each page that was used once in 30 seconds.
        pool_bytes_written,
        /// Records that were written to their logs at once, because their buffers had no room in the pool or
        /// the file system maps no files: nothing is lost to a kill either, but each costs a call.
        writes_through,
        /// Of these, those whose write failed: a kill before the next checkpoint falls back to the last one.
        writes_through_failed,
        /// Records of logs that the system was asked to fetch before they were read.
        reads_ahead,
        /// Puts that waited for a munk's tail to be compacted.
        stalls_tail_full,
        /// Time they waited.
        stalls_tail_full_us,
        /// Puts that waited for memory.
        stalls_memory,
        /// Time they waited.
        stalls_memory_us,
        /// Puts that waited for a log to be rewritten.
        stalls_log_full,
        /// Time they waited.
        stalls_log_full_us,
        /// Puts that waited because files held too many dead bytes.
        stalls_space,
        /// Time they waited.
        stalls_space_us,
        /// Tails of logs and commit logs that the open ignored; normal after a crash.
        torn_tails,
    }
}
