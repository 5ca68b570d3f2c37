//! A real process is killed with SIGKILL, again and again: no acknowledged put may be missing afterwards, at
//! either level (B-5, R7).
//!
//! The child is this program again, told to run one test only. Two threads of it count, each on its own: they
//! put a number, and say it on the pipe when the put has returned.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kvilt::{Builder, Db, Durability};

const CYCLES: u64 = 24;
const THREADS: u64 = 2;
/// It ends by itself here, in case nobody kills it.
const NUMBERS_MAX: u64 = 1_000_000;
const DIRECTORY: &str = "KVILT_KILL_TEST_DIRECTORY";
const LEVEL: &str = "KVILT_KILL_TEST_LEVEL";

fn builder(directory: &Path, level: &str) -> Builder {
    let durability = match level {
        // Some checkpoints in each life of the child, so that kills meet them too.
        "async" => Durability::Async { interval: Duration::from_millis(20) },
        "sync" => Durability::Sync,
        other => panic!("no level {other}"),
    };
    Db::builder(directory).memory_budget(16 << 20).durability(durability)
}

fn key(thread: u64, number: u64) -> String {
    format!("{thread}/{number:012}")
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 20 + (number % 400) as usize]
}

/// How many numbers of a thread there are; they must follow each other.
fn count(db: &Db, thread: u64) -> u64 {
    let mut count = 0;
    for row in db.prefix(format!("{thread}/")) {
        let (found, bytes) = row.unwrap();
        assert_eq!(*found, *key(thread, count).as_bytes(), "a number is missing");
        assert_eq!(*bytes, *value(count), "number {count} of thread {thread}");
        count += 1;
    }
    count
}

#[test]
#[ignore = "the child of the tests below"]
fn child_counts_until_killed() {
    let (Some(directory), Ok(level)) = (std::env::var_os(DIRECTORY), std::env::var(LEVEL)) else { return };
    let db = builder(Path::new(&directory), &level).open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = db.clone();
            scope.spawn(move || {
                let first = count(&db, thread);
                for number in first..NUMBERS_MAX {
                    db.put(key(thread, number), value(number)).unwrap();
                    // One line a write, so that lines of the threads do not mix.
                    std::io::stdout().lock().write_all(format!("{thread} {number}\n").as_bytes()).unwrap();
                }
            });
        }
    });
}

/// Kills the child when it has acknowledged so many puts, and returns, for each thread, how many it had by
/// then.
fn kill_after(child: &mut Child, puts: u64) -> [u64; THREADS as usize] {
    let mut acknowledged = [0; THREADS as usize];
    let mut lines = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // A last line that the kill cut short ends without a newline: it may be a number cut short, too.
        let Some((thread, number)) = line.as_deref().ok().and_then(|line| line.split_once(' ')) else {
            continue;
        };
        let (Ok(thread), Ok(number)) = (thread.parse::<usize>(), number.parse::<u64>()) else { continue };
        if let Some(count) = acknowledged.get_mut(thread) {
            *count = number.max(*count - u64::from(*count > 0)) + 1;
        }
        lines += 1;
        if lines == puts {
            child.kill().unwrap();
            // What is still in the pipe was acknowledged before the kill: it is read to the end.
        }
    }
    child.wait().unwrap();
    assert!(lines >= puts, "the child ended by itself after {lines} puts");
    acknowledged
}

/// A child lives for up to `puts_max` puts.
fn kill_again_and_again(level: &str, puts_max: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut total = 0;
    for cycle in 0..CYCLES {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_counts_until_killed", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env(LEVEL, level)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // From the very first puts, in one of three lives, to some checkpoints later.
        let puts = 1 + dice % if cycle % 3 == 0 { 20 } else { puts_max };
        let acknowledged = kill_after(&mut child, puts);
        // A reader sees what the writer after it sees, and takes nothing from it.
        let reader = builder(directory.path(), level).read_only(true).open().unwrap();
        let seen = [0, 1].map(|thread| count(&reader, thread));
        reader.close().unwrap();
        let db = builder(directory.path(), level).open().unwrap();
        for (thread, &acknowledged) in (0..).zip(&acknowledged) {
            let found = count(&db, thread);
            assert_eq!(found, seen[thread as usize], "cycle {cycle}: a reader saw another state");
            assert!(
                found >= acknowledged,
                "cycle {cycle}: {acknowledged} puts of thread {thread} were acknowledged, {found} are there"
            );
            total += u64::from(acknowledged > 0);
        }
        let damages = db.check().unwrap().damages;
        assert!(damages.is_empty(), "cycle {cycle}: {damages:?}");
        // Leaked in every other cycle: then the next child finds what a process leaves that exits without
        // close.
        if cycle % 2 == 0 { db.close().unwrap() } else { drop(db) }
    }
    assert!(total >= CYCLES, "the children were killed before they wrote: {total}");
}

#[test]
fn no_acknowledged_put_is_lost_by_a_kill_at_level_async() {
    kill_again_and_again("async", 4_000);
}

#[test]
fn no_acknowledged_put_is_lost_by_a_kill_at_level_sync() {
    kill_again_and_again("sync", 300);
}
