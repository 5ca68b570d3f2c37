//! `memory`: what stores take of a real machine's memory, in the cases in which that is hard to bound.
//!
//! Each case runs in a process of its own, for memory that one has touched would count for the next, and
//! tells the highest resident memory that the kernel saw of it. What is allowed is a formula of the budget: a
//! sixth part more for what allocators keep, 64 MiB for what is not counted, and what the caller itself
//! holds.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use kvilt::{Db, WriteBatch};

use crate::{
    engines::{self, usual_store},
    tools,
};

const MIB: u64 = 1 << 20;
/// So long a slow reader looks at its row.
const SLOW_READ: Duration = Duration::from_secs(2);
/// So long a hot set is overwritten.
const HOT: Duration = Duration::from_secs(60);
/// About the longest key.
const LONG_KEY_BYTES: u64 = 60_000;
/// The largest value.
const VALUE_BYTES: u64 = 64 * MIB;

/// Measure the highest resident memory of stores in cases that are hard to bound; fails if one takes more
/// than is allowed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Memory {
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// A line of JSON for each case.
    #[arg(long)]
    json: bool,
    /// Name them all and end.
    #[arg(long)]
    list: bool,
}

/// A case, alone in its process. Started by this program itself.
#[derive(Clone, Debug, Args)]
pub(crate) struct MemoryCase {
    name: String,
    place: PathBuf,
}

/// What is done to a store, and what that may take.
struct Case {
    name: &'static str,
    budget_mib: u64,
    /// Bytes beside the budget that the case may take: what the caller holds, and what it makes the store
    /// hold.
    besides: u64,
    play: fn(&Db) -> Result<()>,
}

impl Case {
    fn allowed_bytes(&self) -> u64 {
        self.budget_mib * MIB * 115 / 100 + 64 * MIB + self.besides
    }
}

const CASES: &[Case] = &[
    Case { name: "long_keys_with_a_common_prefix", budget_mib: 16, besides: 0, play: long_keys },
    Case { name: "long_keys_with_nothing_in_common", budget_mib: 16, besides: 0, play: random_long_keys },
    Case {
        name: "long_keys_that_differ_in_the_middle",
        budget_mib: 1,
        besides: 2 * LONG_KEY_BYTES,
        play: keys_that_differ_in_the_middle,
    },
    Case {
        name: "long_keys_scanned_to_and_fro",
        budget_mib: 1,
        besides: 2 * LONG_KEY_BYTES,
        play: to_and_fro,
    },
    Case {
        name: "range_deletes_between_long_keys",
        budget_mib: 16,
        besides: 2 * LONG_KEY_BYTES,
        play: range_deletes_between_long_keys,
    },
    Case { name: "large_values_budget_1", budget_mib: 1, besides: 2 * VALUE_BYTES, play: put_large },
    Case { name: "large_values_budget_64", budget_mib: 64, besides: 2 * VALUE_BYTES, play: put_large },
    Case { name: "large_values_read", budget_mib: 16, besides: 2 * VALUE_BYTES, play: read_large },
    // Of 4 Mi operations with 36 MiB: refused, or three times as much.
    Case { name: "a_batch_of_four_million", budget_mib: 64, besides: 3 * 36 * MIB, play: big_batch },
    Case { name: "batches_as_large_as_may_be", budget_mib: 64, besides: 3 * MIB, play: full_batches },
    Case { name: "puts_beside_a_slow_get", budget_mib: 8, besides: 0, play: puts_beside_a_slow_get },
    Case {
        name: "range_deletes_beside_a_slow_get",
        budget_mib: 64,
        besides: 0,
        play: deletes_beside_a_slow_get,
    },
    Case { name: "a_range_delete_for_each_row_visited", budget_mib: 8, besides: 0, play: deletes_in_a_visit },
    Case { name: "small_rows_with_a_budget_of_1", budget_mib: 1, besides: 0, play: small_rows },
    Case { name: "small_rows_with_a_budget_of_256", budget_mib: 256, besides: 0, play: small_rows },
    Case { name: "a_hot_set_for_a_minute", budget_mib: 64, besides: 0, play: hot_set },
    Case { name: "one_key_under_a_snapshot", budget_mib: 64, besides: 0, play: one_key_under_a_snapshot },
];

impl Memory {
    /// Runs the cases one after the other.
    pub(crate) fn run(&self) -> Result<()> {
        let is_chosen =
            |case: &&Case| self.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
        let chosen: Vec<&Case> = CASES.iter().filter(is_chosen).collect();
        ensure!(!chosen.is_empty(), "there is no such case");
        if self.list {
            chosen.iter().for_each(|case| println!("{}", case.name));
            return Ok(());
        }
        let mut above = 0;
        for case in chosen {
            ensure!(!tools::is_interrupted(), "interrupted");
            let begun = Instant::now();
            let resident = resident_of(case).with_context(|| case.name)?;
            let (allowed, seconds) = (case.allowed_bytes(), begun.elapsed().as_secs_f64());
            let is_above = resident > allowed;
            above += usize::from(is_above);
            if self.json {
                let line = serde_json::json!({
                    "case": case.name, "budget": case.budget_mib * MIB, "resident_max": resident, "allowed": allowed,
                    "is_above": is_above, "seconds": seconds,
                });
                println!("{line}");
            } else {
                let word = if is_above { "ABOVE" } else { "ok" };
                let mib = |bytes: u64| bytes / MIB;
                println!(
                    "{word:<5}  {:<36} {:>5} MiB of {:>5} allowed, budget {:>2} ({seconds:.1} s)",
                    case.name,
                    mib(resident),
                    mib(allowed),
                    case.budget_mib
                );
            }
        }
        ensure!(above == 0, "{above} cases took more memory than is allowed");
        Ok(())
    }
}

/// Plays a case in a process of its own, and says the most resident memory that it had.
fn resident_of(case: &Case) -> Result<u64> {
    let place = tempfile::tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    engines::tell(&mut command);
    command.arg("memory-case").arg(case.name).arg(place.path().join("store"));
    let output = command.output().context("start the case")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, told.trim());
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().with_context(|| format!("no figure: {said:?}"))
}

impl MemoryCase {
    /// Plays it, and prints how much resident memory that took at the most.
    pub(crate) fn run(&self) -> Result<()> {
        let case = CASES.iter().find(|case| case.name == self.name).context("there is no such case")?;
        let db = open(&self.place, case.budget_mib)?;
        (case.play)(&db)?;
        db.close()?;
        println!("{}", resident_max()?);
        Ok(())
    }
}

fn open(place: &Path, budget_mib: u64) -> Result<Db> {
    Ok(usual_store(place).memory_budget(budget_mib * MIB).open()?)
}

/// The most resident memory that this process had, in bytes.
pub(crate) fn resident_max() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).context("no VmHWM")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kilobytes << 10)
}

/// Numbers spread over 64 bits, the same in each run.
fn spread(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn long_keys(db: &Db) -> Result<()> {
    let key = |i: u64| [vec![b'p'; 60 << 10], i.to_be_bytes().to_vec()].concat();
    for i in 0..12_000 {
        db.put(key(i * 7919 % 12_000), i.to_be_bytes())?;
    }
    for i in 0..500 {
        ensure!(db.get(key(i * 23))?.is_some(), "a row is missing");
    }
    let rows = db.range(key(3000)..key(3200)).count();
    ensure!(rows == 200, "{rows} rows of 200");
    Ok(())
}

fn random_long_keys(db: &Db) -> Result<()> {
    let key = |i: u64| (0..7500).flat_map(|at| spread(spread(i) ^ at).to_be_bytes()).collect::<Vec<u8>>();
    for i in 0..4000 {
        db.put(key(i), i.to_be_bytes())?;
    }
    for i in 0..4000 {
        if i % 2 == 0 {
            db.delete(key(i))?;
        }
    }
    ensure!(db.iter().count() == 2000, "rows are missing, or came back");
    Ok(())
}

fn long_key(i: u64) -> Vec<u8> {
    [&[b'p'; LONG_KEY_BYTES as usize], i.to_be_bytes().as_slice()].concat()
}

fn keys_that_differ_in_the_middle(db: &Db) -> Result<()> {
    let half = |c| [c; LONG_KEY_BYTES as usize / 2];
    let key = |i: u64| [&half(b'p'), spread(i).to_be_bytes().as_slice(), &half(b'q')].concat();
    for i in 0..6000 {
        db.put(key(i), i.to_be_bytes())?;
    }
    // Chunks that are large for their bounds were rewritten for each row, for the memory of their logs'
    // indexes.
    let (written, put) = ((engines::chosen().rewritten_bytes)(&db.stats()), 6000 * LONG_KEY_BYTES);
    ensure!(written < 10 * put, "{} MiB were rewritten for {}", written / MIB, put / MIB);
    for _ in 0..2 {
        ensure!(db.iter().count() == 6000 && db.iter().rev().count() == 6000, "rows are missing");
    }
    for i in 0..1000 {
        db.put(key(i * 5), i.to_be_bytes())?;
    }
    ensure!(db.iter().rev().count() == 6000, "rows are missing, or came back");
    Ok(())
}

fn to_and_fro(db: &Db) -> Result<()> {
    for i in 0..4000 {
        db.put(long_key(i), i.to_be_bytes())?;
    }
    for _ in 0..2 {
        let mut rows = db.iter();
        for i in 0..500 {
            let (first, last) = (rows.next().context("no row")??, rows.next_back().context("no row")??);
            ensure!(first.0 == long_key(i) && last.0 == long_key(3999 - i), "another row");
        }
    }
    for i in 0..100 {
        let from = spread(i) % 3990;
        ensure!(db.range(long_key(from)..).take(5).count() == 5, "rows are missing");
        ensure!(db.range(..long_key(from + 5)).rev().take(5).count() == 5, "rows are missing");
    }
    Ok(())
}

fn range_deletes_between_long_keys(db: &Db) -> Result<()> {
    // Of keys without rows, over rows as they come, and over all rows.
    let place = |i: u64| spread(i) >> 24;
    for i in 0..3000 {
        db.put(long_key(place(i)), i.to_be_bytes())?;
        let from = place(i + 5000);
        db.delete_range(long_key(from)..long_key(from + 100 + i))?;
    }
    ensure!(db.iter().count() == 3000, "rows are missing");
    for i in 0..1500 {
        db.delete_range(long_key(place(i))..long_key(place(i) + 1))?;
    }
    ensure!(db.iter().rev().count() == 1500, "rows are missing, or came back");
    Ok(())
}

fn put_large(db: &Db) -> Result<()> {
    let mut value = vec![0; VALUE_BYTES as usize];
    for i in 0..36u8 {
        value[0] = i;
        db.put(format!("blob/{:02}", u32::from(i) * 7 % 36), &value)?;
    }
    db.delete_range("blob/".."blob0")?;
    ensure!(db.iter().next().is_none(), "a row is left");
    Ok(())
}

fn read_large(db: &Db) -> Result<()> {
    let key = |i: u8| format!("blob/{i}");
    for i in 0..6 {
        db.put(key(i), vec![i; VALUE_BYTES as usize])?;
    }
    db.sync()?;
    for i in 0..6 {
        let value = db.get(key(i))?.context("a row is missing")?;
        ensure!(value.len() == VALUE_BYTES as usize && value[1] == i, "another value");
    }
    let mut rows = 0;
    for row in db.iter() {
        rows += usize::from(row?.1.len() == VALUE_BYTES as usize);
    }
    for row in db.iter().rev() {
        rows += usize::from(row?.1.len() == VALUE_BYTES as usize);
    }
    ensure!(rows == 12, "{rows} rows of 12");
    ensure!(db.check()?.damages.is_empty(), "damage");
    Ok(())
}

fn big_batch(db: &Db) -> Result<()> {
    let mut batch = WriteBatch::new();
    for i in 0..4 << 20 {
        batch.put(spread(i).to_be_bytes(), "x");
    }
    match db.write(batch) {
        Err(error) if error.message().contains("batch_operations_max") => Ok(()),
        outcome => bail!("it was to be refused with the limit: {outcome:?}"),
    }
}

fn full_batches(db: &Db) -> Result<()> {
    for first in (0..2 << 20).step_by(32 << 10) {
        let mut batch = WriteBatch::new();
        for i in first..first + (32 << 10) {
            batch.put(spread(i).to_be_bytes(), i.to_be_bytes());
        }
        db.write(batch)?;
    }
    Ok(())
}

/// Fills a store, has one thread look at a row for a while, and another do `work` again and again meanwhile.
fn beside_a_slow_get(db: &Db, mut work: impl FnMut(u64) -> Result<()> + Send) -> Result<()> {
    for i in 0..100_000u64 {
        db.put(i.to_be_bytes(), [7; 100])?;
    }
    for i in 0..200_000u64 {
        db.get((i % 100_000).to_be_bytes())?;
    }
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut round = 0;
            while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
                work(round)?;
                round += 1;
            }
            Ok(())
        });
        let (_never, nothing) = mpsc::channel::<()>();
        db.get_with(99_999u64.to_be_bytes(), |_| {
            let _slow = nothing.recv_timeout(SLOW_READ);
        })?;
        drop(done);
        worker.join().expect("the worker does not panic")
    })
}

fn puts_beside_a_slow_get(db: &Db) -> Result<()> {
    beside_a_slow_get(db, |round| Ok(db.put((round % 100_000).to_be_bytes(), [8; 100])?))
}

fn deletes_beside_a_slow_get(db: &Db) -> Result<()> {
    beside_a_slow_get(db, |round| {
        let from = round * 10 % 90_000;
        Ok(db.delete_range(from.to_be_bytes()..(from + 5).to_be_bytes())?)
    })
}

fn small_rows(db: &Db) -> Result<()> {
    const ROWS: u64 = 10_000_000;
    for i in 0..ROWS {
        db.put(spread(i).to_be_bytes(), i.to_be_bytes())?;
    }
    for i in (0..ROWS).step_by(1000) {
        ensure!(db.get(spread(i).to_be_bytes())?.as_deref() == Some(&i.to_be_bytes()[..]), "row {i}");
    }
    ensure!(db.iter().count() as u64 == ROWS, "rows are missing");
    Ok(())
}

fn hot_set(db: &Db) -> Result<()> {
    let begun = Instant::now();
    for i in 0.. {
        db.put((spread(i) % 10_000).to_be_bytes(), [i as u8; 100])?;
        if i % 1000 == 0 && begun.elapsed() > HOT {
            break;
        }
    }
    ensure!(db.iter().count() == 10_000, "rows are missing");
    Ok(())
}

fn one_key_under_a_snapshot(db: &Db) -> Result<()> {
    const PUTS: u64 = 100_000_000;
    db.put("key", 0u64.to_be_bytes())?;
    let snapshot = db.snapshot();
    for i in 1..=PUTS {
        db.put("key", i.to_be_bytes())?;
    }
    ensure!(snapshot.get("key")?.as_deref() == Some(&0u64.to_be_bytes()[..]), "the snapshot has moved");
    ensure!(db.get("key")?.as_deref() == Some(&PUTS.to_be_bytes()[..]), "another value");
    Ok(())
}

fn deletes_in_a_visit(db: &Db) -> Result<()> {
    for i in 0..4000u64 {
        db.put(i.to_be_bytes(), [7; 100])?;
    }
    let mut outcome = Ok(());
    db.iter().visit(|key, _| {
        let next = [key, &[0]].concat();
        outcome = db.delete_range(key.to_vec()..next);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(outcome?)
}
