//! The canonical scripts of `kvell`.

use std::time::Duration;

use kvilt_base::Durability;
use kvilt_kvell::Options;

use super::described;
use crate::{
    canonical::{Canonical, KEYS, Plot},
    script::{Expected, Span, Step},
    subject::Described,
};

/// Between cuts in the background.
const INTERVAL: Duration = Duration::from_millis(500);

/// Two shards, so that a batch is in several.
fn store(durability: Durability) -> Described {
    let mut options = Options::default();
    (options.shards, options.queue_depth) = (2, 4);
    described(options, durability, 2 << 20)
}

fn asynchronous() -> Described {
    store(Durability::Async { interval: INTERVAL })
}

fn synchronous() -> Described {
    store(Durability::Sync { interval: INTERVAL })
}

/// All of them.
pub(super) fn scripts() -> Vec<Canonical> {
    let mut all = paths_of_slots();
    all.extend(paths_of_opens());
    all
}

fn paths_of_slots() -> Vec<Canonical> {
    vec![
        Plot::default().puts(0..8, 60).sync().puts(0..4, 60).deletes(3..6).sync().puts(2..9, 60).sync().of(
            "slots used again",
            asynchronous(),
            &["cuts", "blocks_written"],
        ),
        Plot::default()
            .puts(0..8, 60)
            .batch((0..KEYS).step_by(9), 700)
            .puts(0..3, 5_000)
            .puts(1..3, 30)
            .later(700)
            .scan(None)
            .of("batch over shards and classes", synchronous(), &["batches", "cuts"]),
        Plot::default()
            .puts(0..12, 120)
            .step(Step::OpenView(0))
            .step(Step::DeleteRange(Span { start: 4, end: Some(9) }))
            .later(700)
            .puts(4..6, 50)
            .scan(Some(0))
            .step(Step::CloseView(0))
            .later(700)
            .puts(0..3, 120)
            .scan(None)
            .of("range delete under a view", asynchronous(), &["views", "cuts"]),
        Plot::default().puts(0..9, 60).later(700).puts(4..12, 60).later(700).deletes(0..2).later(700).of(
            "cuts in the background",
            asynchronous(),
            &["cuts", "map_pages_written"],
        ),
        Plot::default().puts(0..9, 60).sync().puts(0..5, 90).step(Step::Copy).puts(0..3, 60).of(
            "copy of slots",
            asynchronous(),
            &["cuts"],
        ),
    ]
}

fn paths_of_opens() -> Vec<Canonical> {
    let crashed = |subject| {
        let before = Plot::default()
            .puts(0..14, 60)
            .sync()
            .puts(5..9, 70)
            .deletes(0..3)
            .batch(4..8, 600)
            .step(Step::DeleteRange(Span { start: 10, end: Some(12) }))
            .puts(11..13, 40)
            .steps;
        let plot = Plot::continued().gets([0, 6, 9]).puts(3..6, 50).sync().scan(None);
        (before, plot, subject)
    };
    let (before, plot, subject) = crashed(asynchronous());
    let recovered = Canonical { before, ..plot.of("open at the last cut", subject, &["cuts"]) };
    let (before, plot, subject) = crashed(synchronous());
    let replayed = Canonical { before, ..plot.of("items behind the cut", subject, &["cuts"]) };
    vec![
        Plot::default()
            .puts(0..6, 60)
            .reopen()
            .swap(3, Expected::Current, Some(80))
            .deletes(0..1)
            .reopen()
            .scan(None)
            .of("open by index snapshots", synchronous(), &["cuts"]),
        recovered,
        replayed,
    ]
}
