//! The engine of a third party in the workshop, through nothing but public seams: its descriptor, and the
//! configurations that it is tested with. A broken one is caught, so what is passed can be failed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{any::Any, path::Path, sync::Arc, time::Duration};

use kvilt_base::{
    Capabilities, CheckReport, Descriptor, Direction, Disk, Durability, Engine, KeyRange, Listed, Part,
    Progress, ReadView, Recognised, RepairReport, Result, Rows, Salvaged, Scanned, Settings, Stats, Swap,
    World, WriteBatch, disk::FileKind,
};
use kvilt_example_engine::{JournalEngine, KINDS, NAME};
use kvilt_sim::{
    Subject, Tested,
    campaign::{Campaign, Kind, Outcome, run_campaign},
    subject::Described,
};

/// The engine under test: the right one, or the one that forgets deletes.
struct Journals<D> {
    descriptor: fn(JournalEngine) -> D,
}

impl<D: Descriptor + 'static> Tested for Journals<D> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kinds(&self) -> &'static [FileKind] {
        KINDS
    }

    /// Both levels, with journals that are replaced all the time, now and then, and never.
    fn configurations(&self) -> u64 {
        6
    }

    fn configuration(&self, number: u64) -> Box<dyn Subject> {
        let interval = Duration::from_millis([20, 300, 2_000][(number % 3) as usize]);
        let durability = match number / 3 {
            0 => Durability::Async { interval },
            _ => Durability::Sync { interval },
        };
        self.with([1 << 8, 8 << 10, 1 << 20][(number % 3) as usize], durability)
    }

    fn tiny(&self, durability: Durability) -> Box<dyn Subject> {
        self.with(1 << 8, durability)
    }
}

impl<D: Descriptor + 'static> Journals<D> {
    fn with(&self, journal_bytes_slack: u64, durability: Durability) -> Box<dyn Subject> {
        let engine = Arc::new((self.descriptor)(JournalEngine { journal_bytes_slack }));
        let mut settings = Settings::default();
        settings.durability = durability;
        Box::new(Described {
            engine,
            settings,
            budget_bytes: 1 << 20,
            dead_bytes_at_rest: journal_bytes_slack,
            moments: |_, _| None,
            would_wait: |_| false,
            rests_on_boot: false,
        })
    }
}

const RIGHT: Journals<JournalEngine> = Journals { descriptor: |engine| engine };
const FORGETFUL: Journals<Forgetful> = Journals { descriptor: Forgetful };

fn of(kind: Kind, seeds: u64) -> Outcome {
    let outcome = run_campaign(&Campaign { threads: 2, ..Campaign::new(kind, 0..seeds) }, &RIGHT);
    assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
    assert_eq!(outcome.seeds, seeds);
    outcome
}

#[test]
fn its_answers_are_those_of_an_ordered_map() {
    let outcome = of(Kind::Model, 18);
    assert!(outcome.operations > 18 * 1_000, "{outcome:?}");
}

#[test]
fn what_threads_saw_of_it_was_possible_through_power_cuts_too() {
    let campaign = Campaign { time: Duration::from_secs(6), ..Campaign::new(Kind::History, 0..3) };
    let outcome = run_campaign(&campaign, &RIGHT);
    assert!(outcome.reports.is_empty(), "{}", outcome.reports[0]);
    assert!(outcome.operations > 5_000 && outcome.tally.cases > 0, "{outcome:?}");
}

#[test]
fn a_crash_at_any_disk_operation_leaves_a_prefix_of_its_writes() {
    let outcome = of(Kind::Crash, 9);
    assert!(outcome.tally.cases > 5_000 && outcome.tally.crashes_in_recovery > 100, "{:?}", outcome.tally);
}

#[test]
fn a_fault_at_any_disk_call_is_an_error_or_nothing() {
    let outcome = of(Kind::Faults, 3);
    assert!(outcome.fault_runs > 300, "{outcome:?}");
}

#[test]
fn one_that_forgets_deletes_is_caught_by_the_model() {
    let outcome = run_campaign(&Campaign::new(Kind::Model, 0..3), &FORGETFUL);
    let report = outcome.reports.first().expect("a lost delete is seen");
    // A put and its delete; the rest is looked at when the script has ended.
    let (script, _) = report.reduced.as_ref().unwrap();
    assert!(script.steps.len() <= 3, "{report}");
}

/// The engine with a bug: a delete says that it was done, and does nothing.
#[derive(Debug)]
struct Forgetful(JournalEngine);

impl Descriptor for Forgetful {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn parts(&self) -> &'static [Part] {
        self.0.parts()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn validate(&self, settings: &Settings, budget_bytes: u64) -> Result<()> {
        self.0.validate(settings, budget_bytes)
    }

    fn recognise(&self, listed: &[Listed]) -> Recognised {
        self.0.recognise(listed)
    }

    fn open(&self, disk: Arc<dyn Disk>, world: World, settings: &Settings) -> Result<Arc<dyn Engine>> {
        Ok(Arc::new(WithoutDeletes(self.0.open(disk, world, settings)?)))
    }

    fn lock_to_salvage(&self, disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>> {
        self.0.lock_to_salvage(disk)
    }

    fn salvage(
        &self,
        disk: &dyn Disk,
        save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RepairReport> {
        self.0.salvage(disk, save, progress)
    }
}

struct WithoutDeletes(Arc<dyn Engine>);

impl Engine for WithoutDeletes {
    fn get_with(&self, key: &[u8], at: Option<&ReadView>, found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.get_with(key, at, found)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    fn delete(&self, _key: &[u8]) -> Result<()> {
        Ok(())
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        self.0.write(batch)
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.0.compare_and_swap(key, expected, new)
    }

    fn delete_range(&self, range: &KeyRange) -> Result<()> {
        self.0.delete_range(range)
    }

    fn view(&self) -> Result<ReadView> {
        self.0.view()
    }

    fn scan(
        &self,
        view: &ReadView,
        range: &KeyRange,
        direction: Direction,
        rows: &mut dyn Rows,
    ) -> Result<Scanned> {
        self.0.scan(view, range, direction, rows)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn checkpoint_to(&self, directory: &Path) -> Result<()> {
        self.0.checkpoint_to(directory)
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn check(&self, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
        self.0.check(progress)
    }

    fn close(&self) -> Result<()> {
        self.0.close()
    }
}
