//! A store in which nothing changes costs nothing: its workers rest without end (E-16), whatever went before,
//! and whoever changes something wakes them. Steps are counted, on a clock that the test moves.

use std::{sync::Arc, time::Duration};

use kvilt_base::{Clock, Direction, Durability, Engine, ErrorKind, KeyRange, RowBatch, WriteBatch};
use kvilt_even::Options;
use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};

use super::{Bed, never, put_rows, rows};

const INTERVAL: Duration = Duration::from_millis(500);
/// More steps than this on the way to rest are more than it takes: a worker that looks each tick has as many
/// in five seconds.
const STEPS_TO_REST: u64 = 100;

fn tiny() -> Options {
    let mut options = Options::tiny();
    options.settings.durability = Durability::Async { interval: INTERVAL };
    options
}

/// Everything that a rest by time waits for comes, until nobody rests by time; says how many steps that took.
fn steps_to_rest(bed: &Bed) -> u64 {
    let mut steps = bed.spawn.step_all_until_idle();
    while let Some(due) = bed.spawn.next_deadline() {
        bed.clock.advance(due.saturating_sub(bed.clock.now()));
        steps += bed.spawn.step_all_until_idle();
        assert!(steps < 10_000, "after {:?} it does not rest: {:?}", bed.clock.now(), bed.spawn.ready());
    }
    steps
}

/// Steps within a while that begins and ends at rest.
fn steps_within(bed: &Bed, time: Duration) -> u64 {
    bed.clock.advance(time);
    bed.spawn.step_all_until_idle()
}

fn day() -> Duration {
    Duration::from_secs(24 * 60 * 60)
}

#[test]
fn a_store_that_was_only_opened_rests_without_end() {
    for options in [tiny(), never(), Options::default()] {
        let bed = Bed::new(64 << 20);
        let disk = MemoryDisk::new(1);
        let db = bed.open(disk.clone(), options.clone()).unwrap();
        let steps = steps_to_rest(&bed);
        assert!(steps < STEPS_TO_REST, "{steps}");
        let ops = disk.ops();
        assert_eq!(steps_within(&bed, day()), 0);
        assert_eq!(disk.ops(), ops);
        db.close().unwrap();
        let db = bed.open(disk.clone(), options).unwrap();
        let ops = disk.ops();
        assert!(steps_to_rest(&bed) < STEPS_TO_REST);
        assert_eq!(disk.ops(), ops, "an open store in which nothing was changed writes nothing");
        assert_eq!(rows(&*db).unwrap(), []);
    }
}

#[test]
fn after_a_burst_of_every_kind_of_operation_a_store_rests_without_end() {
    for level in [Durability::Async { interval: INTERVAL }, Durability::Sync { interval: INTERVAL }] {
        let bed = Bed::new(1 << 20);
        let mut options = tiny();
        options.settings.durability = level;
        let db = bed.open(MemoryDisk::new(1), options).unwrap();
        for round in 0..10u8 {
            put_rows(&*db, 500, round);
            bed.clock.advance(Duration::from_millis(70));
            bed.spawn.step_all_until_idle();
            for i in 0..200u32 {
                db.delete(format!("key{:04}", i * 2).as_bytes()).unwrap();
                db.get_with(format!("key{i:04}").as_bytes(), None, &mut |_| {}).unwrap();
            }
            let mut batch = WriteBatch::new();
            batch.put("a", "1").put("z", "2").delete("key0001");
            db.write(batch).unwrap();
            db.delete_range(&KeyRange { start: b"key03".into(), end: Some(b"key04".into()) }).unwrap();
            rows(&*db).unwrap();
        }
        let before = db.stats();
        steps_to_rest(&bed);
        assert_eq!(steps_within(&bed, day()), 0, "{level:?}");
        let after = db.stats();
        assert!(before["chunks_now"] > 3, "{before:?}");
        assert_eq!(after["checkpoint_age_us_now"], 0, "all that there is is durable");
        let steps = after.background_steps - before.background_steps;
        let done = |stats: &kvilt_base::Stats| {
            stats["munk_compactions"]
                + stats["munk_weavings"]
                + stats["funk_rebalances"]
                + stats["splits"]
                + stats["coalesces"]
                + stats["munk_loads"]
                + stats["munk_evictions"]
                + stats["checkpoints"]
        };
        let worked = done(&after) - done(&before);
        assert!(steps < STEPS_TO_REST + 12 * worked, "{steps} steps for {worked} pieces of work");
    }
}

/// The checkpointer that rests is woken by the first change, whatever that is, and comes when it would have
/// come without the rest.
#[test]
fn the_first_change_behind_a_rest_is_durable_within_an_interval() {
    let begin = |bed: &Bed| {
        let disk = MemoryDisk::new(1);
        let db = bed.open(disk, tiny()).unwrap();
        db.put(b"a", b"1").unwrap();
        steps_to_rest(bed);
        // Somewhere between two multiples of the interval.
        bed.clock.advance(day() + Duration::from_millis(130));
        db
    };
    type Write = fn(&dyn Engine);
    let writes: [Write; 5] = [
        |db| db.put(b"b", b"2").unwrap(),
        |db| db.delete(b"a").unwrap(),
        |db| db.delete_range(&KeyRange::all()).unwrap(),
        |db| {
            let mut batch = WriteBatch::new();
            batch.put("x", "1").put("y", "2");
            db.write(batch).unwrap();
        },
        |db| drop(db.compare_and_swap(b"a", Some(b"1"), Some(b"2")).unwrap()),
    ];
    for write in writes {
        let bed = Bed::new(64 << 20);
        let db = begin(&bed);
        let before = db.stats()["checkpoints"];
        write(&*db);
        bed.spawn.step_all_until_idle();
        assert_eq!(db.stats()["checkpoints"], before, "not at once: others may follow");
        assert_eq!(db.stats()["checkpoint_age_us_now"], 0);
        bed.clock.advance(INTERVAL);
        bed.spawn.step_all_until_idle();
        assert_eq!(db.stats()["checkpoints"], before + 1);
        steps_to_rest(&bed);
        assert_eq!(db.stats()["checkpoints"], before + 1, "and none for nothing");
    }
}

/// Both looked at a view before they rested, and rested without end: nobody let it expire.
#[test]
fn a_view_expires_in_a_store_at_rest() {
    for is_opened_at_rest in [false, true] {
        let bed = Bed::new(64 << 20);
        let db = bed.open(MemoryDisk::new(1), tiny()).unwrap();
        db.put(b"a", b"1").unwrap();
        if is_opened_at_rest {
            steps_to_rest(&bed);
        }
        let view = db.view().unwrap();
        let of_view = |db: &Arc<dyn Engine>| db.get_with(b"a", Some(&view), &mut |_| {});
        bed.spawn.step_all_until_idle();
        let limit = Options::default().settings.view_age_max;
        let mut steps = 0;
        loop {
            let due = bed.spawn.next_deadline().unwrap();
            if due >= limit {
                break;
            }
            bed.clock.advance(due.saturating_sub(bed.clock.now()));
            steps += bed.spawn.step_all_until_idle();
        }
        assert!(of_view(&db).unwrap());
        steps += steps_to_rest(&bed);
        assert!(steps < STEPS_TO_REST, "{steps}: it rests until the view is due");
        assert_eq!(of_view(&db).unwrap_err().kind(), ErrorKind::SnapshotTooOld);
        assert_eq!(db.stats().views_expired, 1);
    }
}

/// Rows that a snapshot keeps, and files that it reads, wait for it; nobody asks each tick whether it has
/// gone.
#[test]
fn beside_an_old_snapshot_a_store_hardly_moves_and_gives_back_its_files_soon_after_it() {
    let bed = Bed::new(64 << 20);
    let db = bed.open(MemoryDisk::new(1), tiny()).unwrap();
    put_rows(&*db, 60, 1);
    let view = db.view().unwrap();
    let mut batch = RowBatch::new(1 << 20, 1000, false);
    db.scan(&view, &KeyRange::all(), Direction::Forward, &mut batch).unwrap();
    put_rows(&*db, 60, 2);
    let minute = Duration::from_secs(60);
    for _ in 0..600 {
        bed.clock.advance(Duration::from_millis(100));
        bed.spawn.step_all_until_idle();
    }
    let before = db.stats().background_steps;
    for _ in 0..6000 {
        bed.clock.advance(minute / 600);
        bed.spawn.step_all_until_idle();
    }
    let steps = db.stats().background_steps - before;
    assert!(steps < 200, "{steps} steps in ten minutes");
    drop(view);
    steps_to_rest(&bed);
    assert_eq!(steps_within(&bed, day()), 0);
}

/// A full disk refuses a checkpoint again and again: it is asked less and less often, and comes to rest once
/// there is room.
#[test]
fn on_a_full_disk_a_store_asks_now_and_then_and_rests_when_there_is_room_again() {
    let faulty = FaultyDisk::new(MemoryDisk::new(1));
    let bed = Bed::new(64 << 20);
    let db = bed.open(faulty.clone(), tiny()).unwrap();
    put_rows(&*db, 30, 1);
    faulty.fail(Some(Call::Write), 0, Fault::NoSpace, Times::Always);
    let hour = 60 * 60;
    let count = |seconds: u64| {
        let before = db.stats().background_steps;
        let end = bed.clock.now() + Duration::from_secs(seconds);
        bed.spawn.step_all_until_idle();
        while let Some(due) = bed.spawn.next_deadline().filter(|due| *due < end) {
            bed.clock.advance(due.saturating_sub(bed.clock.now()));
            bed.spawn.step_all_until_idle();
        }
        db.stats().background_steps - before
    };
    count(60);
    let steps = count(hour);
    assert!(steps > 0 && steps < hour, "{steps} steps in an hour");
    assert!(db.stats()["checkpoint_age_us_now"] > 1_000_000, "one that fails is missed");
    faulty.heal();
    let before = db.stats()["checkpoints"];
    count(5);
    assert!(db.stats()["checkpoints"] > before, "within seconds");
    steps_to_rest(&bed);
    assert_eq!(steps_within(&bed, day()), 0);
    assert_eq!(rows(&*db).unwrap().len(), 30);
}

#[test]
fn a_poisoned_store_rests_without_end() {
    let faulty = FaultyDisk::new(MemoryDisk::new(1));
    let bed = Bed::new(64 << 20);
    let db = bed.open(faulty.clone(), tiny()).unwrap();
    put_rows(&*db, 30, 1);
    faulty.fail(Some(Call::Sync), 0, Fault::Io, Times::Always);
    assert!(db.sync().is_err());
    assert!(steps_to_rest(&bed) < STEPS_TO_REST);
    assert_eq!(steps_within(&bed, day()), 0);
    assert_eq!(db.put(b"a", b"1").unwrap_err().kind(), ErrorKind::Poisoned);
}

/// Its munks were worth keeping as long as nobody needed their memory; and at rest it does not see who does.
#[test]
fn a_store_at_rest_gives_its_memory_to_another_that_needs_it() {
    let bed = Bed::new(4 << 20);
    let resting = bed.open(MemoryDisk::new(1), tiny()).unwrap();
    for i in 0..6000u32 {
        resting.put(format!("key{i:06}").as_bytes(), &[1; 200]).unwrap();
        if i % 50 == 0 {
            bed.spawn.step_all_until_idle();
        }
    }
    steps_to_rest(&bed);
    let before = resting.stats();
    assert!(before["munks_now"] > 10 && before["munk_bytes_now"] > 1 << 20, "{before:?}");
    let busy = bed.open(MemoryDisk::new(2), tiny()).unwrap();
    for round in 0..40u32 {
        for i in 0..1000u32 {
            busy.put(format!("key{round:02}{i:06}").as_bytes(), &[2; 200]).unwrap();
        }
        bed.clock.advance(Duration::from_millis(60));
        bed.spawn.step_all_until_idle();
    }
    let after = resting.stats();
    let evicted = after["munk_evictions"] - before["munk_evictions"];
    assert!(evicted >= 5, "{evicted} of {} munks", before["munks_now"]);
    steps_to_rest(&bed);
    assert_eq!(steps_within(&bed, day()), 0);
    assert_eq!(rows(&*resting).unwrap().len(), 6000);
}

/// Two hundred, in one environment, of which each was used.
#[test]
fn many_stores_at_rest_do_not_move_and_one_that_is_used_moves_alone() {
    let bed = Bed::new(64 << 20);
    let stores: Vec<_> =
        (0..200).map(|i| bed.open(MemoryDisk::new(i), Options::default()).unwrap()).collect();
    for db in &stores {
        put_rows(&**db, 20, 1);
    }
    let steps = steps_to_rest(&bed);
    assert!(steps < 200 * STEPS_TO_REST, "{steps}");
    assert_eq!(steps_within(&bed, day()), 0);
    let moved = || stores.iter().map(|db| db.stats().background_steps).collect::<Vec<_>>();
    let before = moved();
    put_rows(&*stores[77], 20, 2);
    steps_to_rest(&bed);
    let after = moved();
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(before != after, i == 77, "store {i}");
    }
    assert!(bed.budget.used_in_all() <= bed.budget.bytes_max());
}
