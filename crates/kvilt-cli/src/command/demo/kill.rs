//! Kills a writing process with SIGKILL, opens the store again, and checks what is there.

use std::{
    hash::{BuildHasher, RandomState},
    io::{BufRead, BufReader},
    path::Path,
    process::{Child as Process, Command, Stdio},
    time::Duration,
};

use kvilt::Keyspace;

use super::{
    KEYSPACE,
    child::{LAST_KEY, number_key},
    ensure,
    flights::Flights,
    report::{self, Report},
};
use crate::{
    failure::Failure,
    globals::{DurabilityChoice, Globals},
    stopwatch::Stopwatch,
};

/// The child is killed after it has made this many promises: at level sync each waits for the drive twice.
const PROMISES_ASYNC: usize = 10_000;
const PROMISES_SYNC: usize = 200;

/// Starts a writer, kills it in the middle of its writing, and checks that what it wrote up to some moment is
/// there, without a hole; that this moment is not before its last promise; and that nothing else has changed.
pub(super) fn kill_a_writer(
    globals: &Globals,
    dir: &Path,
    durability: DurabilityChoice,
    flights: &Flights,
    report: &mut Report,
) -> Result<(), Failure> {
    let db = globals.open(dir)?;
    let keyspace = db.keyspace(KEYSPACE)?;
    keyspace.delete_range(..)?;
    db.close()?;
    drop((keyspace, db));

    let promised = write_and_kill(globals, dir, durability)?;

    let stopwatch = Stopwatch::start();
    let db = globals.open(dir)?;
    let open_ms = stopwatch.elapsed().as_secs_f64() * 1e3;
    let kept = check_numbers(&db.keyspace(KEYSPACE)?)?;
    ensure(kept > promised, || {
        format!("number {promised} was acknowledged, but only {kept} numbers are left")
    })?;
    flights.compare_all(&db, "a scan after the kill")?;
    db.close()?;
    report.line(
        &format!("writer killed at level {}", durability.name()),
        &[
            ("kept", report::count(kept), "numbers kept, none missing between"),
            ("promised", report::count(promised + 1), "were promised"),
            ("open millis", report::number(open_ms, 1), "ms to open"),
        ],
    );
    Ok(())
}

/// Runs the child, kills it, and returns the last number that it said was put.
fn write_and_kill(globals: &Globals, dir: &Path, durability: DurabilityChoice) -> Result<u64, Failure> {
    let promises = match durability {
        DurabilityChoice::Async => PROMISES_ASYNC,
        DurabilityChoice::Sync => PROMISES_SYNC,
    };
    let broken = |what: &str, error| Failure::Damaged(format!("{what} the writing process: {error}"));
    let program = std::env::current_exe().map_err(|error| broken("cannot find the program for", error))?;
    let mut child = Command::new(program)
        .arg("demo-child")
        .arg(dir)
        .args(globals.for_child(durability))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| broken("cannot start", error))?;
    let promised = read_promises_and_kill(&mut child, promises);
    // Killed or ended by itself: in either case nothing of it is left running.
    let _ = child.kill();
    child.wait().map_err(|error| broken("cannot wait for", error))?;
    promised.map_err(|error| broken("cannot read from", error))?.ok_or_else(|| {
        Failure::Damaged("the writing process ended before it had written anything".to_string())
    })
}

fn read_promises_and_kill(child: &mut Process, promises: usize) -> std::io::Result<Option<u64>> {
    let stdout = child.stdout.take().expect("the child was started with a pipe");
    let mut promised = None;
    for (i, line) in BufReader::new(stdout).lines().enumerate() {
        // A last line that the kill cut short is no promise.
        if let Ok(number) = line?.parse() {
            promised = promised.max(Some(number));
        }
        if i + 1 == promises {
            wait_a_little();
            child.kill()?;
            // What is still in the pipe was promised before the kill: it is read to the end.
        }
    }
    Ok(promised)
}

/// The reader of a pipe is woken the moment a promise is made. Spinning for some time, at most a few
/// milliseconds and never the same, lets the writer get anywhere between two promises before it is killed.
fn wait_a_little() {
    let stopwatch = Stopwatch::start();
    let micros = u64::from(RandomState::new().hash_one("kill") as u8) * 16;
    while stopwatch.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

/// Checks that the numbers go from zero up without a hole, and that the last one fits; says how many there
/// are.
fn check_numbers(keyspace: &Keyspace) -> Result<u64, Failure> {
    let mut count = 0;
    for row in keyspace.prefix("number/") {
        let (key, value) = row?;
        let is_next = *key == *number_key(count).as_bytes() && *value == *format!("{count:0100}").as_bytes();
        ensure(is_next, || format!("after {count} numbers comes {key:?}"))?;
        count += 1;
    }
    let last = keyspace.get(LAST_KEY)?;
    let last: Option<u64> = last.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
    let may_be = [count.checked_sub(1), count.checked_sub(2)];
    ensure(may_be.contains(&last), || format!("there are {count} numbers, but the last is {last:?}"))?;
    Ok(count)
}
