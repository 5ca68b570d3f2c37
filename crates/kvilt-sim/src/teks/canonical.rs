//! The canonical scripts of `teks`.

use std::time::Duration;

use kvilt_base::Durability;
use kvilt_teks::Options;

use super::described;
use crate::{
    canonical::{Canonical, KEYS, Plot},
    script::{Expected, Span, Step},
    subject::Described,
};

/// Between syncs in the background.
const INTERVAL: Duration = Duration::from_millis(500);

/// The least memory that there may be: a memory table has 32 KiB, and six rows of `LONG` bytes fill it.
fn store(durability: Durability) -> Described {
    described(Options::default(), durability, 256 << 10)
}

/// Bytes of a long value.
const LONG: u32 = 5_000;

fn asynchronous() -> Described {
    store(Durability::Async { interval: INTERVAL })
}

fn synchronous() -> Described {
    store(Durability::Sync { interval: INTERVAL })
}

/// All of them.
pub(super) fn scripts() -> Vec<Canonical> {
    let mut all = paths_of_tables();
    all.extend(paths_of_opens());
    all
}

fn paths_of_tables() -> Vec<Canonical> {
    vec![
        Plot::default().puts(0..9, LONG).later(700).deletes(2..4).puts(0..2, 60).later(700).gets(0..5).of(
            "rotation and flush",
            asynchronous(),
            &["rotations", "flushes"],
        ),
        Plot::default()
            .puts(0..4, LONG)
            .batch((0..KEYS).step_by(5), 900)
            .scan(None)
            .later(700)
            .batch(0..5, LONG)
            .later(700)
            .of("batch over two tables", synchronous(), &["batches", "rotations", "flushes"]),
        Plot::default()
            .puts(0..10, 600)
            .step(Step::OpenView(0))
            .step(Step::DeleteRange(Span { start: 4, end: Some(8) }))
            .puts(5..6, 50)
            .puts(10..16, LONG)
            .later(700)
            .scan(Some(0))
            .step(Step::CloseView(0))
            .puts(10..16, LONG)
            .later(700)
            .scan(None)
            .of("range delete under a view", asynchronous(), &["views", "flushes"]),
        Plot::default()
            .puts(0..7, LONG)
            .later(700)
            .puts(3..9, LONG)
            .deletes(0..1)
            .later(700)
            .puts(8..14, LONG)
            .later(700)
            .puts(2..8, LONG)
            .deletes(9..11)
            .later(700)
            .gets(0..3)
            .of("merge of level 0", asynchronous(), &["flushes", "merges"]),
        // A row in one of a table's four: the log becomes long and the table does not become full.
        (0..11).fold(Plot::default(), |plot, _| plot.puts(0..2, 7_000)).sync().puts(0..1, 60).later(700).of(
            "segments of the log",
            asynchronous(),
            &["log_bytes_now"],
        ),
        Plot::default().puts(0..7, LONG).sync().puts(0..5, 90).step(Step::Copy).puts(0..3, 60).of(
            "copy of tables and log",
            asynchronous(),
            &["rotations"],
        ),
    ]
}

fn paths_of_opens() -> Vec<Canonical> {
    let crashed = |subject| {
        let before = Plot::default()
            .puts(0..8, LONG)
            .later(700)
            .puts(5..9, 70)
            .sync()
            .deletes(0..2)
            .batch(3..7, 600)
            .step(Step::DeleteRange(Span { start: 10, end: Some(12) }))
            .puts(11..13, 40)
            .steps;
        let plot = Plot::continued().gets([0, 6, 9]).puts(3..6, 50).sync().scan(None);
        (before, plot, subject)
    };
    let (before, plot, subject) = crashed(asynchronous());
    let recovered = Canonical { before, ..plot.of("open after a crash", subject, &[]) };
    let (before, plot, subject) = crashed(synchronous());
    let replayed = Canonical { before, ..plot.of("open after a crash, level sync", subject, &[]) };
    vec![
        Plot::default()
            .puts(0..7, LONG)
            .reopen()
            .swap(3, Expected::Current, Some(80))
            .deletes(0..1)
            .reopen()
            .scan(None)
            .of("open after a clean close", synchronous(), &["sorted_tables_now"]),
        recovered,
        replayed,
    ]
}
