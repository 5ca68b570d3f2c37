//! The twenty canonical scripts of `even`.

use kvilt_base::Durability;
use std::time::Duration;

use super::Even;
use crate::{
    canonical::{Canonical, KEYS, Plot},
    script::{Expected, Span, Step},
};

/// All of them, on stores that keep this many bytes back for full disks; none: as little as a tiny one does.
pub(super) fn scripts(reserve_bytes_max: Option<u64>) -> Vec<Canonical> {
    let stores = Stores { reserve_bytes_max };
    let mut all = plain_paths(&stores);
    all.extend(structure_paths(&stores));
    all.extend(durability_paths(&stores));
    all.extend(reading_paths(&stores));
    all
}

/// The stores of the scripts.
struct Stores {
    reserve_bytes_max: Option<u64>,
}

impl Stores {
    /// Tiny limits, checkpoints when asked for or after half a second.
    fn asynchronous(&self) -> Even {
        let mut even = Even::tiny();
        even.options.settings.durability = Durability::Async { interval: Duration::from_millis(500) };
        if let Some(bytes) = self.reserve_bytes_max {
            even.options.reserve_bytes_max = bytes;
        }
        even
    }

    /// The same with so little memory that no munk stays, but the row cache has room.
    fn short_of_memory(&self) -> Even {
        let mut even = self.asynchronous();
        even.budget_bytes = 16 << 10;
        even.options.row_cache_percent = 60;
        even
    }
}

fn plain_paths(stores: &Stores) -> Vec<Canonical> {
    vec![
        Plot::default().puts(0..20, 60).sync().puts(0..10, 60).deletes(3..6).sync().scan(None).of(
            "put and flush",
            stores.asynchronous(),
            &["puts", "log_bytes_written", "checkpoints"],
        ),
        Plot::default().puts(0..50, 120).work(20).batch((0..KEYS).step_by(5), 40).sync().scan(None).of(
            "batch over several chunks",
            stores.asynchronous(),
            &["batches", "splits"],
        ),
        Plot::default()
            .puts(0..50, 120)
            .work(20)
            .step(Step::DeleteRange(Span { start: 4, end: Some(30) }))
            .work(10)
            .puts(10..14, 50)
            .later(700)
            .scan(None)
            .of("range delete", stores.asynchronous(), &["splits", "checkpoints"]),
        Plot::default()
            .puts(0..10, 60)
            .swap(3, Expected::Current, Some(70))
            .swap(4, Expected::Wrong, Some(70))
            .swap(5, Expected::Current, None)
            .swap(20, Expected::Absent, Some(30))
            .sync()
            .reopen()
            .swap(3, Expected::Current, Some(80))
            .swap(20, Expected::Wrong, None)
            .of("swap", stores.short_of_memory(), &["puts", "checkpoints"]),
    ]
}

fn structure_paths(stores: &Stores) -> Vec<Canonical> {
    let many = || Plot::default().puts(0..60, 120).work(30);
    vec![
        // Twice what is put is read so often that it is woven in.
        (0..2)
            .fold(
                Plot::default().puts((0..90).map(|i| i % 12), 60).work(10).puts(0..12, 60).work(10),
                |plot, round| {
                    let plot = plot.puts([round, round + 6], 60).step(Step::Delete(round + 3));
                    plot.gets((0..400).map(|i| i % 13)).later(100)
                },
            )
            .sync()
            .of("munk rebalance", stores.asynchronous(), &["munk_compactions", "munk_weavings"]),
        Plot::default()
            .puts((0..90).map(|i| i % 6), 90)
            .work(20)
            .sync()
            .puts((0..90).map(|i| i % 6), 90)
            .work(20)
            .sync()
            .scan(None)
            .of("funk rewrite", stores.asynchronous(), &["funk_rebalances", "table_bytes_written"]),
        many().puts(0..20, 90).work(30).sync().scan(None).of("split", stores.asynchronous(), &["splits"]),
        (0..8)
            .fold(many().step(Step::DeleteRange(Span { start: 2, end: Some(58) })), |plot, _| {
                plot.later(1_100)
            })
            .scan(None)
            .of("coalesce", stores.asynchronous(), &["coalesces", "splits"]),
        Plot::default()
            .puts(0..60, 900)
            .sync()
            .later(600)
            .later(200)
            .later(200)
            .later(200)
            .gets((0..1500).map(|i| 40 + i % 20))
            .later(200)
            .later(200)
            .gets((0..1500).map(|i| 40 + i % 20))
            .later(200)
            .scan(None)
            .of(
                "eviction and load",
                Even { budget_bytes: 32 << 10, ..stores.asynchronous() },
                &["munk_evictions", "munk_loads"],
            ),
        Plot::default()
            .puts(0..30, 60)
            .step(Step::OpenView(0))
            .puts((0..90).map(|i| i % 8), 90)
            .work(20)
            .step(Step::Get(3, Some(0)))
            .scan(Some(0))
            .step(Step::CloseView(0))
            .work(10)
            .sync()
            .scan(None)
            .of("snapshot and compaction", stores.asynchronous(), &["views", "munk_compactions"]),
    ]
}

fn durability_paths(stores: &Stores) -> Vec<Canonical> {
    let synchronous = || stores.asynchronous().synchronous();
    let crashed = |even| {
        let before = Plot::default().puts(0..30, 60).work(10).sync().puts(5..25, 70).steps;
        let plot = Plot::continued().gets([0, 6, 29]).puts(10..14, 50).sync().scan(None);
        (before, plot, even)
    };
    let (before, plot, even) = crashed(stores.asynchronous());
    let opened = Canonical { before, ..plot.of("open after a crash", even, &["checkpoints", "torn_tails"]) };
    let (before, plot, even) = crashed(synchronous());
    let replayed = Canonical { before, ..plot.of("replay of the commit log", even, &["puts"]) };
    vec![
        Plot::default().puts(0..20, 60).later(600).puts(10..30, 60).later(600).puts(0..5, 60).later(600).of(
            "checkpoints in the background",
            stores.asynchronous(),
            &["checkpoints"],
        ),
        Plot::default()
            .puts(0..6, 60)
            .batch(0..4, 40)
            .deletes(1..2)
            .swap(2, Expected::Current, Some(20))
            .step(Step::DeleteRange(Span { start: 4, end: Some(6) }))
            .scan(None)
            .of("commit log", synchronous(), &["commit_bytes_written"]),
        Plot::default().puts(0..12, 60).later(400).puts(0..12, 60).later(400).puts(4..8, 60).of(
            "commit log and checkpoints",
            synchronous(),
            &["commit_bytes_written", "checkpoints"],
        ),
        opened,
        replayed,
        Plot::default().puts(0..20, 60).sync().reopen().gets(0..3).puts(5..9, 60).reopen().scan(None).of(
            "open after a clean close",
            stores.asynchronous(),
            &["checkpoints", "bytes_read"],
        ),
        Plot::default().puts(0..60, 120).work(5).puts(0..20, 90).reopen().scan(None).of(
            "close with much to do",
            stores.asynchronous(),
            &["splits"],
        ),
        Plot::default().puts(0..50, 120).work(20).sync().puts(0..5, 60).step(Step::Copy).puts(0..3, 60).of(
            "copy",
            stores.asynchronous(),
            &["checkpoints", "splits"],
        ),
    ]
}

fn reading_paths(stores: &Stores) -> Vec<Canonical> {
    vec![
        Plot::default().puts(0..40, 60).sync().reopen().gets(0..6).puts(0..10, 60).gets(0..6).scan(None).of(
            "index of a log",
            stores.short_of_memory(),
            &["gets_from_log", "log_bytes_written"],
        ),
        Plot::default()
            .puts((0..120).map(|i| i % 40), 90)
            .later(100)
            .sync()
            .reopen()
            .gets((0..16).map(|i| i % 4))
            .puts(1..3, 50)
            .gets(0..4)
            .of("row cache", stores.short_of_memory(), &["gets_from_row_cache", "gets_from_table"]),
    ]
}
