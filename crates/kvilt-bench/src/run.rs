//! One scenario on one store in this process. Every measurement is a JSON object, handed out as soon as it is
//! there.

use std::{
    io,
    ops::Range,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::AtomicU64,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvilt_io::QueueBy;
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};

use crate::{
    drive::{self, Drive},
    driver::{Played, Stage, Until, play},
    keys::{KEY_BYTES, key_of, scattered},
    limit::Limit,
    meter::{Meter, disk_bytes, load_average, resident_bytes},
    scenario::Scenario,
    store::{Contestant, Store},
    work::{NamedWork, Work},
};

/// Rows of one call that loads.
const LOADED_TOGETHER: usize = 1000;

/// Random bytes that the values of all threads that load in a random order are cut out of.
const NOISE_BYTES: usize = 1 << 20;

/// So many gets, and so many scans, are looked at one by one after an open; and rows of such a scan.
const LOOKS: usize = 50;
const LOOK_ROWS: u64 = 100;

/// How long a writer works before it is killed.
const WORK_BEFORE_KILL: Duration = Duration::from_millis(1500);

/// Runs the whole scenario in an empty directory; `told` gets a JSON object a measurement.
pub fn run(
    contestant: &dyn Contestant,
    scenario: &Scenario,
    directory: &Path,
    told: &mut dyn FnMut(Value) -> Result<()>,
) -> Result<()> {
    let limit = scenario.limit_bytes.map(Limit::impose);
    let refused = match &limit {
        Some(Err(error)) => Some(format!("{error:#}")),
        _ => None,
    };
    told(json!({
        "kind": "start", "store": contestant.name(), "engine": contestant.engine(),
        "promise": contestant.promise(), "load": load_average(), "limit_refused": refused,
        "scenario": scenario.to_json(),
    }))?;
    let store = contestant.open(directory, scenario.budget_bytes)?;
    let drive =
        scenario.is_drive_measured.then(|| Drive::beside(directory, scenario.data_bytes, scenario.phase));
    let drive = drive.transpose()?;
    if let Some(drive) = &drive {
        told(
            json!({"kind": "drive", "load": load_average(), "plans": drive.measure(drive::PLANS, QueueBy::Best)?}),
        )?;
    }
    let threads_max =
        scenario.works.iter().filter_map(|work| work.threads).fold(scenario.threads, usize::max);
    let mut stage = Stage {
        store: &*store,
        directory,
        records: scenario.records(),
        newest: AtomicU64::new(scenario.records()),
        inserting: (0..threads_max).map(|_| AtomicU64::new(u64::MAX)).collect(),
        events: AtomicU64::new(0),
        value_bytes: scenario.value_bytes,
        threads: scenario.threads,
        seed: scenario.seed,
        is_space_watched: scenario.steady.is_some(),
    };
    let mut data_bytes = scenario.data_bytes;
    if !scenario.has_events() {
        let phase = measured(&stage, data_bytes, || load(&*store, scenario))?;
        told(named(if scenario.is_load_random { "fillrandom" } else { "load" }, phase, &*store))?;
        let phase = measured(&stage, data_bytes, || warm(&stage, scenario))?;
        told(named("warm", phase, &*store))?;
    }
    for work in &scenario.works {
        stage.threads = work.threads.unwrap_or(scenario.threads);
        let beside = drive.as_ref().map(|drive| drive.measure(drive::BESIDE, QueueBy::Best)).transpose()?;
        let mut phase = phase_of(&stage, work, scenario, data_bytes)
            .with_context(|| format!("{} of {work}", contestant.name()))?;
        phase["drive"] = json!(beside);
        if matches!(work.work, Work::Ingest) {
            data_bytes = phase["put_bytes"].as_u64().unwrap_or(data_bytes);
        }
        told(named(&work.name, phase, &*store))?;
    }
    told(opens(contestant, scenario, store, directory)?)?;
    drop(drive);
    drop(limit);
    Ok(())
}

/// Plays one work, in steady state if the scenario wants that.
fn phase_of(stage: &Stage, work: &NamedWork, scenario: &Scenario, data_bytes: u64) -> Result<Value> {
    let steady = scenario.steady.filter(|_| work.work.puts_over());
    let reached = steady.map(|steady| {
        let progress = progress_bar(&work.name, steady.until(stage));
        let reached = steady.reach(stage, work, &progress);
        progress.finish_and_clear();
        reached
    });
    let reached = reached.transpose()?;
    let until = until(work, scenario);
    let mut phase = measured(stage, data_bytes, || {
        let progress = progress_bar(&work.name, until);
        let played = play(stage, &work.work, until, &progress);
        progress.finish_and_clear();
        played
    })?;
    if let Some(reached) = reached {
        phase["steady"] = reached.figures(stage, &phase)?;
    }
    Ok(phase)
}

fn until(work: &NamedWork, scenario: &Scenario) -> Until {
    match work.work {
        Work::Ingest => Until::Operations(scenario.records()),
        // A whole scan is an operation a row, and a thread looks up only behind it.
        Work::ReadSeq => Until::Operations(1),
        Work::Keys { .. } | Work::Analytics(_) => Until::Elapsed(scenario.phase),
    }
}

fn progress_bar(name: &str, until: Until) -> ProgressBar {
    let length = match until {
        Until::Elapsed(time) => time.as_millis() as u64,
        Until::Operations(count) | Until::PutBytes(count) => count,
    };
    let style = ProgressStyle::with_template("{msg:>16} {wide_bar} {percent:>3}% {eta}")
        .expect("a template that was tried");
    ProgressBar::new(length).with_style(style).with_message(name.to_owned())
}

/// Measures a phase and, apart from it, what settling afterwards costs: its bytes count for the phase.
fn measured(stage: &Stage, data_bytes: u64, phase: impl FnOnce() -> Result<Played>) -> Result<Value> {
    let (before, figures_before) = (Meter::now(), stage.store.figures());
    let played = phase()?;
    let used = Meter::now().since(&before);
    let figures_each_second = rates(&figures_before, &stage.store.figures(), played.elapsed);
    let settling = Instant::now();
    stage.store.settle()?;
    let settled = settling.elapsed();
    let in_all = Meter::now().since(&before);
    let (resident, resident_max) = resident_bytes();
    let disk = disk_bytes(stage.directory);
    let mut figures = played.to_json();
    let part = |bytes: u64, of: u64| if of == 0 { Value::Null } else { json!(bytes as f64 / of as f64) };
    figures["threads"] = json!(stage.threads);
    figures["used"] = used.to_json();
    let pages_each_second = |bytes: u64| json!(bytes as f64 / 4096.0 / played.elapsed.as_secs_f64());
    figures["pages_read_each_second"] = pages_each_second(used.read_bytes);
    figures["pages_written_each_second"] = pages_each_second(used.written_bytes);
    figures["figures_each_second"] = figures_each_second;
    figures["settle_seconds"] = json!(settled.as_secs_f64());
    figures["write_amplification"] = part(in_all.written_bytes, played.put_bytes);
    figures["written_bytes"] = json!(in_all.written_bytes);
    figures["space_amplification"] = part(disk, data_bytes);
    figures["resident_bytes"] = json!(resident);
    figures["resident_bytes_max"] = json!(resident_max);
    figures["processor_micros_an_operation"] =
        json!(used.processor.as_secs_f64() * 1e6 / played.operations.max(1) as f64);
    figures["load"] = json!(load_average());
    Ok(figures)
}

/// How fast each of the store's counters grew; what is a state, and no counter, ends in `_now`.
fn rates(before: &Value, after: &Value, time: Duration) -> Value {
    let grown = after.as_object().into_iter().flatten().filter_map(|(name, after)| {
        let grown = after.as_u64()?.checked_sub(before[name].as_u64()?)?;
        (!name.ends_with("_now") && grown > 0)
            .then(|| (name.clone(), json!((grown as f64 / time.as_secs_f64()).round())))
    });
    Value::Object(grown.collect())
}

fn named(name: &str, mut phase: Value, store: &dyn Store) -> Value {
    phase["kind"] = json!("phase");
    phase["phase"] = json!(name);
    phase["figures"] = store.figures();
    phase
}

/// Loads all records in the order of their keys, many together; or in random order, each alone, by as many
/// threads as the scenario says.
fn load(store: &dyn Store, scenario: &Scenario) -> Result<Played> {
    let records = scenario.records();
    let operations = records * if scenario.is_load_random { scenario.load_times } else { 1 };
    let progress = progress_bar("load", Until::Operations(operations));
    let begun = Instant::now();
    let shares = if scenario.is_load_random { scenario.load_threads() as u64 } else { 1 };
    let put_bytes: u64 = thread::scope(|scope| {
        let progress = &progress;
        let share = |number| number * records / shares..(number + 1) * records / shares;
        let load = if scenario.is_load_random { put_share } else { load_share };
        let hands: Vec<_> = (0..shares)
            .map(|number| scope.spawn(move || load(store, scenario, share(number), progress)))
            .collect();
        hands.into_iter().map(|hand| hand.join().expect("no thread of a benchmark panics")).sum::<Result<_>>()
    })?;
    progress.finish_and_clear();
    Played::of_load(operations, begun.elapsed(), put_bytes)
}

/// Loads the records with these numbers, many together, and says how many bytes that were.
fn load_share(
    store: &dyn Store,
    scenario: &Scenario,
    numbers: Range<u64>,
    progress: &ProgressBar,
) -> Result<u64> {
    let mut chance = SmallRng::seed_from_u64(scenario.seed ^ numbers.start);
    let (mut rows, mut put_bytes) = (Vec::with_capacity(LOADED_TOGETHER), 0);
    for number in numbers.clone() {
        let mut value = vec![0; scenario.value_bytes];
        chance.fill_bytes(&mut value);
        put_bytes += (KEY_BYTES + value.len()) as u64;
        rows.push((key_of(number).to_vec(), value));
        if rows.len() == LOADED_TOGETHER || number + 1 == numbers.end {
            store.load(&rows)?;
            progress.inc(rows.len() as u64);
            rows.clear();
        }
    }
    Ok(put_bytes)
}

/// Puts as many records as these numbers are, each alone and somewhere among all, as often as the scenario
/// says; and says how many bytes that were. Values are cut out of some noise: to make them takes less time
/// than to put them.
fn put_share(
    store: &dyn Store,
    scenario: &Scenario,
    numbers: Range<u64>,
    progress: &ProgressBar,
) -> Result<u64> {
    let mut chance = SmallRng::seed_from_u64(scenario.seed ^ numbers.start);
    let mut noise = vec![0; NOISE_BYTES / scenario.load_threads() + scenario.value_bytes];
    chance.fill_bytes(&mut noise);
    for _ in 0..scenario.load_times {
        for number in numbers.clone() {
            let at = chance.random_range(0..noise.len() - scenario.value_bytes);
            let key = key_of(scattered(number, scenario.records()));
            store.put(&key, &noise[at..at + scenario.value_bytes])?;
            if number.is_multiple_of(LOADED_TOGETHER as u64) {
                progress.inc(LOADED_TOGETHER as u64);
            }
        }
    }
    let rows = (numbers.end - numbers.start) * scenario.load_times;
    Ok(rows * (KEY_BYTES + scenario.value_bytes) as u64)
}

/// Gets random records, as many as there are or for as long as the scenario says, so that caches hold what
/// fits.
fn warm(stage: &Stage, scenario: &Scenario) -> Result<Played> {
    let work: NamedWork = "readrandom".parse()?;
    let until = scenario.warm.map_or(Until::Operations(stage.records), Until::Elapsed);
    let progress = progress_bar("warm", until);
    let played = play(stage, &work.work, until, &progress);
    progress.finish_and_clear();
    played
}

/// How long it takes to close, to open, to find a first row and to look at others; and to open after a writer
/// was killed.
fn opens(
    contestant: &dyn Contestant,
    scenario: &Scenario,
    store: Box<dyn Store>,
    directory: &Path,
) -> Result<Value> {
    let millis = |begun: Instant| begun.elapsed().as_secs_f64() * 1e3;
    let closing = Instant::now();
    store.close()?;
    let close = millis(closing);
    let (open_clean, first_get, store) = open_once(contestant, scenario, directory)?;
    let looks = first_looks(&*store, scenario)?;
    store.close()?;
    work_and_be_killed(contestant, scenario, directory)?;
    let (open_killed, first_get_killed, store) = open_once(contestant, scenario, directory)?;
    store.close()?;
    Ok(json!({
        "kind": "open", "close_ms": close, "open_clean_ms": open_clean, "first_get_ms": first_get,
        "open_killed_ms": open_killed, "first_get_killed_ms": first_get_killed, "first_looks": looks,
    }))
}

/// What the first gets and scans at random places take after an open, in milliseconds.
fn first_looks(store: &dyn Store, scenario: &Scenario) -> Result<Value> {
    let mut chance = SmallRng::seed_from_u64(scenario.seed);
    let mut look = |is_scan: bool| -> Result<f64> {
        let from = scenario.place(&mut chance);
        let begun = Instant::now();
        if is_scan {
            store.scan(&from, None, LOOK_ROWS, &mut |_, _| {})?;
        } else {
            store.get(&from, &mut |_| {})?;
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    let mut spread = |is_scan| -> Result<Value> {
        let mut took = (0..LOOKS).map(|_| look(is_scan)).collect::<Result<Vec<f64>>>()?;
        took.sort_by(f64::total_cmp);
        Ok(json!({ "median_ms": took[LOOKS / 2], "max_ms": took[LOOKS - 1] }))
    };
    Ok(json!({ "get": spread(false)?, "scan": spread(true)? }))
}

type Opened = (f64, f64, Box<dyn Store>);

/// Milliseconds of an open and of the first get.
fn open_once(contestant: &dyn Contestant, scenario: &Scenario, directory: &Path) -> Result<Opened> {
    let millis = |begun: Instant| begun.elapsed().as_secs_f64() * 1e3;
    let begun = Instant::now();
    let store = contestant.open(directory, scenario.budget_bytes)?;
    let open = millis(begun);
    let begun = Instant::now();
    let is_found = store.get(&key_of(scenario.records() / 2), &mut |_| {})?;
    let first_get = millis(begun);
    ensure!(is_found || scenario.has_events(), "a record is gone after an open");
    Ok((open, first_get, store))
}

/// Starts this program again as a writer, and kills it at work.
fn work_and_be_killed(contestant: &dyn Contestant, scenario: &Scenario, directory: &Path) -> Result<()> {
    let mut writer = Command::new(std::env::current_exe()?)
        .args(["write-for-ever", "--store", contestant.name(), "--scenario", &scenario.name, "--dir"])
        .arg(directory)
        .args(["--budget-mb", &(scenario.budget_bytes >> 20).to_string()])
        .args(["--data-mb", &(scenario.data_bytes >> 20).to_string()])
        .args(["--value-bytes", &scenario.value_bytes.to_string()])
        // It ends with its standard input, so that nobody writes for ever if this process is killed first.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("a writer to be killed")?;
    thread::sleep(WORK_BEFORE_KILL);
    ensure!(writer.try_wait()?.is_none(), "the writer ended before it was killed");
    writer.kill()?;
    writer.wait()?;
    Ok(())
}

/// What the writer does until it is killed, or nobody is there to kill it: puts random records.
pub fn write_for_ever(contestant: &dyn Contestant, scenario: &Scenario, directory: &Path) -> Result<()> {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    });
    let store = contestant.open(directory, scenario.budget_bytes)?;
    let mut chance = SmallRng::seed_from_u64(scenario.seed);
    let mut value = vec![0; scenario.value_bytes];
    loop {
        chance.fill_bytes(&mut value[..8]);
        store.put(&key_of(chance.random_range(0..scenario.records())), &value)?;
    }
}
