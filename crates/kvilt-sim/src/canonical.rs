//! The twenty canonical scripts: each goes one path through the store, short enough that every disk call of
//! it can be made to fail in every way, and named after the path. That it *goes* that path is checked by the
//! store's own figures.

use std::{sync::Arc, time::Duration};

use kvilt_base::Direction;
use kvilt_even::Durability;
use kvilt_io::{Keep, MemoryDisk};

use crate::{
    faults::{Case, recovered},
    report::Complaint,
    run::Player,
    script::{Expected, KeyId, Payload, Script, Span, Step},
    world::{Even, World},
};

/// A script with a name.
pub struct Canonical {
    /// The path that it goes.
    pub name: &'static str,
    /// The store.
    pub even: Even,
    /// What an earlier run does, which ends in a crash; nothing if empty.
    pub before: Vec<Step>,
    /// What is done.
    pub script: Script,
    /// Figures that are not zero afterwards, or the path was missed.
    pub reaches: &'static [&'static str],
}

/// Keys that all of them use.
const KEYS: KeyId = 64;

impl Canonical {
    /// All of them.
    pub fn all() -> Vec<Canonical> {
        let mut all = plain_paths();
        all.extend(structure_paths());
        all.extend(durability_paths());
        all.extend(reading_paths());
        all
    }

    /// The script on the disk that it begins with.
    pub fn case(&self) -> Result<Case<'_>, Complaint> {
        let mut case = Case::new(&self.even, &self.script, SEED);
        if !self.before.is_empty() {
            let earlier = Script { keys: Arc::clone(&self.script.keys), steps: self.before.clone() };
            let memory = MemoryDisk::new(SEED);
            let world = World::stepped(memory.clone(), memory.clone(), SEED);
            let mut player = Player::new(&self.even, &world, &earlier, Arc::default());
            player.open()?;
            for position in 0..earlier.steps.len() {
                player.play(position)?;
            }
            let left = memory.crash_image(Keep::All);
            let allowed = player.states().to_vec();
            player.abandon();
            let image = left.crash_image(Keep::All);
            let world = World::stepped(image.clone(), image, SEED);
            let mut player = Player::new(&self.even, &world, &earlier, Arc::default());
            player.open()?;
            let state = recovered(&player, &earlier, &allowed)?;
            player.abandon();
            case.origin = Some((left, state));
        }
        Ok(case)
    }
}

/// What chance does in all of them.
const SEED: u64 = 20;

/// Writes the steps of a script.
#[derive(Default)]
struct Plot {
    steps: Vec<Step>,
    number: u32,
}

impl Plot {
    /// For a script behind another one, whose payloads have other numbers.
    fn continued() -> Self {
        Plot { number: 10_000, ..Plot::default() }
    }

    fn value(&mut self, bytes: u32) -> Payload {
        self.number += 1;
        Payload { number: self.number, bytes }
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Puts to these keys, in this order.
    fn puts(mut self, keys: impl IntoIterator<Item = KeyId>, bytes: u32) -> Self {
        for key in keys {
            let value = self.value(bytes);
            self.steps.push(Step::Put(key, value));
        }
        self
    }

    fn deletes(mut self, keys: impl IntoIterator<Item = KeyId>) -> Self {
        self.steps.extend(keys.into_iter().map(Step::Delete));
        self
    }

    /// One batch to these keys; every fourth is a delete.
    fn batch(mut self, keys: impl IntoIterator<Item = KeyId>, bytes: u32) -> Self {
        let keys = keys.into_iter().enumerate();
        let changes = keys.map(|(i, key)| (key, (i % 4 != 3).then(|| self.value(bytes)))).collect();
        self.steps.push(Step::Batch(changes));
        self
    }

    fn swap(mut self, key: KeyId, expected: Expected, bytes: Option<u32>) -> Self {
        let new = bytes.map(|bytes| self.value(bytes));
        self.steps.push(Step::Swap(key, expected, new));
        self
    }

    fn gets(mut self, keys: impl IntoIterator<Item = KeyId>) -> Self {
        self.steps.extend(keys.into_iter().map(|key| Step::Get(key, None)));
        self
    }

    fn scan(self, view: Option<u8>) -> Self {
        self.step(Step::Scan {
            span: Span { start: 0, end: None },
            direction: Direction::Forward,
            rows_max: u32::MAX,
            batch_bytes: 4096,
            keys_only: false,
            view,
        })
    }

    /// So many steps of the workers.
    fn work(self, steps: u16) -> Self {
        self.step(Step::Background { steps, seed: 3 })
    }

    /// Time passes, and the workers use it.
    fn later(self, ms: u32) -> Self {
        self.step(Step::Advance { ms }).work(30)
    }

    fn sync(self) -> Self {
        self.step(Step::Sync)
    }

    fn reopen(self) -> Self {
        self.step(Step::Reopen)
    }

    fn of(self, name: &'static str, even: Even, reaches: &'static [&'static str]) -> Canonical {
        let keys = Arc::new((0..KEYS).map(|i| format!("key/{i:04}").into_bytes()).collect());
        let script = Script { keys, steps: self.steps };
        Canonical { name, even, before: Vec::new(), script, reaches }
    }
}

/// Tiny limits, checkpoints when asked for or after half a second.
fn asynchronous() -> Even {
    let mut even = Even::tiny();
    even.options.durability = Durability::Async { interval: Duration::from_millis(500) };
    even
}

/// The same with so little memory that no munk stays, but the row cache has room.
fn short_of_memory() -> Even {
    let mut even = asynchronous();
    even.budget_bytes = 16 << 10;
    even.options.row_cache_percent = 60;
    even
}

fn plain_paths() -> Vec<Canonical> {
    vec![
        Plot::default().puts(0..20, 60).sync().puts(0..10, 60).deletes(3..6).sync().scan(None).of(
            "put and flush",
            asynchronous(),
            &["puts", "log_bytes_written", "checkpoints"],
        ),
        Plot::default().puts(0..50, 120).work(20).batch((0..KEYS).step_by(5), 40).sync().scan(None).of(
            "batch over several chunks",
            asynchronous(),
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
            .of("range delete", asynchronous(), &["splits", "checkpoints"]),
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
            .of("swap", short_of_memory(), &["puts", "checkpoints"]),
    ]
}

fn structure_paths() -> Vec<Canonical> {
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
            .of("munk rebalance", asynchronous(), &["munk_compactions", "munk_weavings"]),
        Plot::default()
            .puts((0..90).map(|i| i % 6), 90)
            .work(20)
            .sync()
            .puts((0..90).map(|i| i % 6), 90)
            .work(20)
            .sync()
            .scan(None)
            .of("funk rewrite", asynchronous(), &["funk_rebalances", "table_bytes_written"]),
        many().puts(0..20, 90).work(30).sync().scan(None).of("split", asynchronous(), &["splits"]),
        (0..8)
            .fold(many().step(Step::DeleteRange(Span { start: 2, end: Some(58) })), |plot, _| {
                plot.later(1_100)
            })
            .scan(None)
            .of("coalesce", asynchronous(), &["coalesces", "splits"]),
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
                Even { budget_bytes: 32 << 10, ..asynchronous() },
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
            .of("snapshot and compaction", asynchronous(), &["views", "munk_compactions"]),
    ]
}

fn durability_paths() -> Vec<Canonical> {
    let synchronous = || asynchronous().synchronous();
    let crashed = |even| {
        let before = Plot::default().puts(0..30, 60).work(10).sync().puts(5..25, 70).steps;
        let plot = Plot::continued().gets([0, 6, 29]).puts(10..14, 50).sync().scan(None);
        (before, plot, even)
    };
    let (before, plot, even) = crashed(asynchronous());
    let opened = Canonical { before, ..plot.of("open after a crash", even, &["checkpoints", "torn_tails"]) };
    let (before, plot, even) = crashed(synchronous());
    let replayed = Canonical { before, ..plot.of("replay of the commit log", even, &["puts"]) };
    vec![
        Plot::default().puts(0..20, 60).later(600).puts(10..30, 60).later(600).puts(0..5, 60).later(600).of(
            "checkpoints in the background",
            asynchronous(),
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
            asynchronous(),
            &["checkpoints", "bytes_read"],
        ),
        Plot::default().puts(0..60, 120).work(5).puts(0..20, 90).reopen().scan(None).of(
            "close with much to do",
            asynchronous(),
            &["splits"],
        ),
        Plot::default().puts(0..50, 120).work(20).sync().puts(0..5, 60).step(Step::Copy).puts(0..3, 60).of(
            "copy",
            asynchronous(),
            &["checkpoints", "splits"],
        ),
    ]
}

fn reading_paths() -> Vec<Canonical> {
    vec![
        Plot::default().puts(0..40, 60).sync().reopen().gets(0..6).puts(0..10, 60).gets(0..6).scan(None).of(
            "index of a log",
            short_of_memory(),
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
            .of("row cache", short_of_memory(), &["gets_from_row_cache", "gets_from_table"]),
    ]
}
