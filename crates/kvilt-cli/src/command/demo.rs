//! `kvilt demo`: shows what the store does on real data, and checks that it does it.
//!
//! Each part does something, compares the store with a map in memory or with a rule, and adds lines to the
//! report. The first thing that is wrong ends the demo with an error.

pub(crate) mod child;
mod crowd;
mod flights;
mod kill;
mod report;

use std::path::{Path, PathBuf};

use clap::Args;
use kvilt::{Db, Stats};

use crate::{
    engine::EngineOption,
    failure::Failure,
    globals::{DurabilityChoice, Globals},
    stopwatch::{Stopwatch, grouped},
};
use flights::Flights;
use report::Report;

/// The keyspace that marks a store as the demo's own, so that no other is ever emptied. Holds the counters.
const KEYSPACE: &str = "kvilt-demo";

/// Show what the store does, with the flights of January 2013, and check it. Exit code 3 if anything is
/// wrong.
///
/// Loads 27,004 flights, scans them by prefix, holds a snapshot while rows are overwritten and deleted behind
/// it, runs writers and scanners together for two seconds, kills a writing process with SIGKILL and opens the
/// store again. The store is kept, to be looked at.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where to make the store: a directory that does not exist, is empty, or is of an earlier demo.
    #[arg(default_value = "demo-store")]
    dir: PathBuf,
    #[command(flatten)]
    engine: EngineOption,
}

impl Demo {
    pub(crate) fn run(self, globals: &Globals) -> Result<(), Failure> {
        let mut report = Report::new(globals);
        let db = open_empty(globals, &self.dir, self.engine)?;
        let mut flights = Flights::load(&db, &mut report)?;
        flights.scan_a_day(&db, &mut report)?;
        flights.hold_a_snapshot(&db, &mut report)?;
        crowd::run(&db, &flights, &mut report)?;
        tell_costs(&db, &mut report)?;
        db.close()?;
        drop(db);
        for durability in [DurabilityChoice::Async, DurabilityChoice::Sync] {
            kill::kill_a_writer(globals, &self.dir, durability, &flights, &mut report)?;
        }
        check_all(globals, &self.dir, &mut report)?;
        report.end(&self.dir)
    }
}

/// Says what is wrong unless `is_right`.
fn ensure(is_right: bool, wrong: impl FnOnce() -> String) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err(Failure::Damaged(format!("the demo found a fault: {}", wrong()))) }
}

/// Opens a new store, or one of an earlier demo, emptied. Any other store is left alone.
fn open_empty(globals: &Globals, dir: &Path, engine: EngineOption) -> Result<Db, Failure> {
    let db = globals.open_or_create(dir, engine)?;
    let keyspaces = db.keyspaces()?;
    let is_ours = keyspaces.iter().any(|name| name == KEYSPACE);
    let is_empty = keyspaces.is_empty() && db.iter().limit(1).next().transpose()?.is_none();
    if !is_ours && !is_empty {
        let message = format!("{} holds rows that are not the demo's; name another directory", dir.display());
        return Err(Failure::Usage(message));
    }
    db.delete_range(..)?;
    db.drop_keyspace(KEYSPACE)?;
    db.keyspace(KEYSPACE)?;
    ensure(db.iter().limit(1).next().is_none(), || "rows are left after all were deleted".to_string())?;
    Ok(db)
}

/// What the work so far has cost, by the store's own figures.
fn tell_costs(db: &Db, report: &mut Report) -> Result<(), Failure> {
    db.sync()?;
    let stats = db.stats();
    report.line(
        "write amplification",
        &[
            ("times", report::number(stats.write_amplification(), 2), "×"),
            ("user bytes", report::count(stats.user_bytes), "bytes given"),
            ("written bytes", report::count(stats.bytes_written), "bytes written"),
        ],
    );
    match db.engine_name() {
        "kvell" => tell_kvell(&stats, report),
        "teks" => tell_teks(&stats, report),
        _ => tell_even(&stats, report),
    }
    Ok(())
}

fn tell_even(stats: &Stats, report: &mut Report) {
    let share = |hits: u64| report::number(100.0 * hits as f64 / stats.gets.max(1) as f64, 1);
    report.line(
        "gets answered by",
        &[
            ("munk percent", share(stats["gets_from_munk"]), "% munk"),
            ("row cache percent", share(stats["gets_from_row_cache"]), "% row cache"),
            ("log percent", share(stats["gets_from_log"]), "% log"),
            ("table percent", share(stats["gets_from_table"]), "% table"),
        ],
    );
    report.line(
        "structure",
        &[
            ("chunks", report::count(stats["chunks_now"]), "chunks"),
            ("munks", report::count(stats["munks_now"]), "in memory"),
            ("splits", report::count(stats["splits"]), "splits"),
            ("rebalances", report::count(stats["funk_rebalances"]), "funk rebalances"),
            ("checkpoints", report::count(stats["checkpoints"]), "checkpoints"),
        ],
    );
}

fn tell_kvell(stats: &Stats, report: &mut Report) {
    let (hits, misses) = (stats["cache_hits"], stats["cache_misses"]);
    let share = report::number(100.0 * hits as f64 / (hits + misses).max(1) as f64, 1);
    report.line(
        "blocks",
        &[
            ("cached percent", share, "% found in the page cache"),
            ("read", report::count(misses), "read"),
            ("written", report::count(stats["blocks_written"]), "written"),
        ],
    );
    report.line(
        "structure",
        &[
            ("shards", report::count(stats["shards_now"]), "shards"),
            ("keys", report::count(stats["index_keys_now"]), "keys"),
            ("index bytes", report::count(stats["index_bytes_now"]), "bytes of index and maps"),
            ("cuts", report::count(stats["cuts"]), "cuts"),
        ],
    );
    let through = if stats["io_uring_now"] == 1 { "io_uring" } else { "a pool of threads" };
    let cache = if stats["io_direct_now"] == 1 { "past" } else { "through" };
    report.line(
        "reads and writes",
        &[(
            "io uring",
            report::text(format!("by {through},"), stats["io_uring_now"]),
            &format!("{cache} the kernel's page cache"),
        )],
    );
}

fn tell_teks(stats: &Stats, report: &mut Report) {
    report.line(
        "memory tables",
        &[
            ("keys", report::count(stats["table_keys_now"]), "keys"),
            ("bytes", report::count(stats["table_bytes_now"]), "bytes"),
            ("rotations", report::count(stats["rotations"]), "became full"),
            ("flushes", report::count(stats["flushes"]), "were flushed"),
        ],
    );
    report.line(
        "structure",
        &[
            ("sorted tables", report::count(stats["sorted_tables_now"]), "sorted tables"),
            ("level 0", report::count(stats["level_0_tables_now"]), "of level 0"),
            ("merges", report::count(stats["merges"]), "merges"),
            ("log bytes", report::count(stats["log_bytes_now"]), "bytes of redo log"),
        ],
    );
}

fn check_all(globals: &Globals, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    let db = globals.open(dir)?;
    let stopwatch = Stopwatch::start();
    let found = db.check()?;
    let millis = stopwatch.elapsed().as_secs_f64() * 1e3;
    db.close()?;
    ensure(found.damages.is_empty(), || format!("the check found damage: {:?}", found.damages))?;
    report.line(
        "check of every file",
        &[
            ("files", report::count(found.files), "files sound"),
            ("entries", report::count(found.entries), "entries"),
            ("millis", report::number(millis, 1), "ms"),
        ],
    );
    Ok(())
}

/// Bytes for people.
fn megabytes(bytes: u64) -> String {
    format!("{}.{:02} MB", grouped(bytes / 1_000_000), bytes % 1_000_000 / 10_000)
}
