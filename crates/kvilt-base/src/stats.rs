//! `Stats`: figures about every part of a store, as plain values.

/// Declares the struct together with the list of its figures, so that no figure can be left out of either.
macro_rules! figures {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Figures since the store was opened, or at this moment where the name says so (`_now`).
        /// Units stand in the names: `_bytes`, `_us`; all others count.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Stats {
            /// Every figure with its name, in the order of the fields.
            pub fn figures(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

figures! {
    /// Chunks in the index.
    chunks_now,
    /// Chunks that have a munk.
    munks_now,
    /// Live files: tables, logs, commit logs, manifest.
    files_now,
    /// Their length together.
    disk_bytes_now,
    /// Of these, about how many hold rows that were overwritten or deleted, or that are no rows.
    dead_bytes_now,
    /// Snapshots and scans that are open.
    open_views_now,
    /// Age of the oldest of them that keeps old versions.
    oldest_view_age_us_now,
    /// Memory budget.
    budget_bytes,
    /// Memory in munks.
    munk_bytes_now,
    /// Memory in the row cache.
    row_cache_bytes_now,
    /// Memory in log indexes of munk-less chunks.
    log_index_bytes_now,
    /// Memory in open tables: block indexes and filters.
    table_bytes_now,
    /// Memory in log write buffers.
    log_buffer_bytes_now,
    /// Values of all stores of the process that were replaced and that some reader still sees.
    waiting_values_now,
    /// Memory that these alone keep; what of it was in munks is in `munk_bytes_now` as well.
    waiting_bytes_now,
    /// Gets, in all.
    gets,
    /// Gets answered by a munk.
    gets_from_munk,
    /// Gets answered by the row cache.
    gets_from_row_cache,
    /// Gets answered by a log.
    gets_from_log,
    /// Gets answered by a table.
    gets_from_table,
    /// Puts and deletes, those in batches included.
    puts,
    /// Write batches of more than one operation.
    batches,
    /// Scans opened, snapshots included.
    views,
    /// Of these, how many were kept beyond the limit on their age and expired.
    views_expired,
    /// Rows that scans returned.
    scanned_rows,
    /// Entries that scans had to pass over: old versions and tombstones.
    scanned_skips,
    /// Munk compactions.
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
    /// Steps that the background has taken, those included that found nothing to do: none in a store in which nothing changes.
    background_steps,
    /// Age of the last completed checkpoint, or of the open if there is none.
    checkpoint_age_us_now,
    /// Keys and values given by puts.
    user_bytes,
    /// Written to chunk logs.
    log_bytes_written,
    /// Written to tables.
    table_bytes_written,
    /// Written to manifests.
    manifest_bytes_written,
    /// Written to commit logs (sync mode only).
    commit_bytes_written,
    /// Bytes read from logs and tables.
    bytes_read,
    /// Reads of logs and tables.
    reads,
    /// Of these, how many took so long that the drive must have been waited for, not the page cache.
    reads_waited,
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
    /// Log tails ignored at open because no checkpoint covers them.
    torn_tails,
    /// Time from the start of open to ready.
    open_us,
}

impl Stats {
    /// Bytes written for each byte the user wrote; zero before the first put.
    pub fn write_amplification(&self) -> f64 {
        let written = self.log_bytes_written
            + self.table_bytes_written
            + self.manifest_bytes_written
            + self.commit_bytes_written;
        if self.user_bytes == 0 { 0.0 } else { written as f64 / self.user_bytes as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_counts_every_kind_of_write() {
        let stats = Stats {
            user_bytes: 100,
            log_bytes_written: 110,
            table_bytes_written: 50,
            manifest_bytes_written: 5,
            commit_bytes_written: 35,
            ..Stats::default()
        };
        assert_eq!(stats.write_amplification(), 2.0);
        assert_eq!(Stats::default().write_amplification(), 0.0);
        assert!(stats.figures().contains(&("user_bytes", 100)));
    }
}
