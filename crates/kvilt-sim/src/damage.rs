//! Every byte damaged: a reference store, and each way in which its files may be hurt, one at a time.
//!
//! In each case the store is opened, scanned, asked for every key and checked. What it may do is answer
//! right, or say `Corrupted`; and what is damaged below the lengths that were synced must be found, by the
//! open or by the check. Nothing else: no other answer, no row skipped, no panic. Now and then the damaged
//! store also lives on: it is written to, its workers must come to rest, and a checkpoint of what is sound
//! must succeed; and now and then its content is rescued as a repair would do it, see `rescue`.

pub mod blow;
pub mod reference;
mod rescue;

use kvilt_base::{CheckReport, Direction, Engine, Error, ErrorKind, KeyRange, Result, RowBatch};

use self::{blow::Blow, reference::Reference};
use crate::{
    report::{Failure, catching_panics},
    world::World,
};

/// How many cases there were, and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageTally {
    /// Cases run.
    pub cases: u64,
    /// Of these, single bits flipped.
    pub flips: u64,
    /// Cases in which the open said so.
    pub refused: u64,
    /// Cases in which the store opened, and some read said so.
    pub contained: u64,
    /// Cases in which all answers were right, and the check found something.
    pub found: u64,
    /// Cases in which nothing that counts was hurt.
    pub harmless: u64,
}

impl DamageTally {
    /// Adds those of another tally.
    pub fn add(&mut self, other: DamageTally) {
        self.cases += other.cases;
        self.flips += other.flips;
        self.refused += other.refused;
        self.contained += other.contained;
        self.found += other.found;
        self.harmless += other.harmless;
    }
}

/// Runs those of the blows whose number leaves `shard` when divided by `shards`.
pub fn run_blows(
    reference: &Reference,
    blows: impl Iterator<Item = Blow>,
    (shard, shards): (u64, u64),
    tally: &mut DamageTally,
) -> Result<(), Failure> {
    for (number, blow) in (0..).zip(blows) {
        if number % shards != shard {
            continue;
        }
        let outcome = catching_panics(|| run_blow(reference, &blow, number / shards));
        let verdict = outcome.map_err(|message| Failure::at_step(0, format!("{blow}: {message}")))?;
        tally.cases += 1;
        tally.flips += u64::from(matches!(blow, Blow::Flip { .. }));
        match verdict {
            Verdict::Refused => tally.refused += 1,
            Verdict::Contained => tally.contained += 1,
            Verdict::Found => tally.found += 1,
            Verdict::Harmless => tally.harmless += 1,
        }
    }
    Ok(())
}

enum Verdict {
    Refused,
    Contained,
    Found,
    Harmless,
}

/// One damaged store in so many lives on.
const LIVES_ON: u64 = 61;
/// The content of one in so many is rescued, and of each in which whole files are wrong.
const RESCUED: u64 = 9;

fn run_blow(reference: &Reference, blow: &Blow, turn: u64) -> Result<Verdict, String> {
    let disk = reference.disk();
    if !blow.strike(&disk, reference) {
        return Ok(Verdict::Harmless);
    }
    let is_hurt = reference.is_hurt(&disk);
    if blow.is_whole() || turn.is_multiple_of(RESCUED) {
        rescue::rescue(&disk, reference, is_hurt)?;
    }
    let world = World::stepped(disk.clone(), disk, turn);
    let engine = match reference.subject.open(&world) {
        Ok(engine) => engine,
        Err(error) => return allow(&error, "open").map(|()| Verdict::Refused),
    };
    let mut is_read_damaged = reads_of(&*engine, reference, Direction::Forward)?;
    is_read_damaged |= gets_of(&*engine, reference)?;
    if turn.is_multiple_of(LIVES_ON) {
        is_read_damaged |= reads_of(&*engine, reference, Direction::Backward)?;
    }
    let report = engine.check(&mut |_| true).map_err(|error| format!("check failed: {error}"))?;
    let is_found = !report.damages.is_empty();
    if is_read_damaged && !is_found {
        return Err("a read said that something is damaged, and the check finds nothing".into());
    }
    if is_hurt && !is_found {
        return Err("the check does not find damage below what was synced".into());
    }
    if !is_hurt && is_found {
        return Err(format!("the check finds damage where none counts: {}", first_of(&report)));
    }
    if turn.is_multiple_of(LIVES_ON) {
        live_on(&*engine, &world, reference)?;
    }
    Ok(match (is_read_damaged, is_found) {
        (true, _) => Verdict::Contained,
        (false, true) => Verdict::Found,
        (false, false) => Verdict::Harmless,
    })
}

fn first_of(report: &CheckReport) -> String {
    format!("{:?}", report.damages[0])
}

/// The only error that damage may become.
fn allow(error: &Error, operation: &str) -> Result<(), String> {
    if error.kind() != ErrorKind::Corrupted {
        return Err(format!("{operation} failed with {error:?}"));
    }
    if error.file().is_none() || error.offset().is_none() {
        return Err(format!("{operation} does not say where: {error:?}"));
    }
    Ok(())
}

/// Scans everything: rows must be the reference's, up to the end or to an error. True if there was one.
fn reads_of(engine: &dyn Engine, reference: &Reference, direction: Direction) -> Result<bool, String> {
    let view = engine.view().map_err(|error| format!("view failed: {error}"))?;
    let mut rows: Box<dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>> = match direction {
        Direction::Forward => Box::new(reference.rows.iter()),
        Direction::Backward => Box::new(reference.rows.iter().rev()),
    };
    let mut left = Some(KeyRange::all());
    while let Some(range) = left {
        let mut batch = RowBatch::new(4 << 10, usize::MAX, false);
        match engine.scan(&view, &range, direction, &mut batch) {
            Ok(rest) => left = rest.left(),
            Err(error) => return allow(&error, "a scan").map(|()| true),
        }
        for (key, value) in batch.into_rows() {
            let expected = rows.next();
            if expected.is_none_or(|(k, v)| **k != *key || **v != *value) {
                return Err(format!("a scan gives {key:?}, not {:?}", expected.map(|(k, _)| k)));
            }
        }
    }
    match rows.next() {
        Some((key, _)) => Err(format!("a scan ends before {key:?}, without an error")),
        None => Ok(false),
    }
}

/// Asks for each key that there is or was. True if an answer was an error.
fn gets_of(engine: &dyn Engine, reference: &Reference) -> Result<bool, String> {
    let mut is_damaged = false;
    for key in &reference.keys {
        match engine.get(key, None) {
            Ok(value) if value.as_deref() == reference.rows.get(key).map(Vec::as_slice) => {}
            Ok(value) => return Err(format!("a get of {key:?} gives {value:?}")),
            Err(error) => {
                allow(&error, "a get")?;
                is_damaged = true;
            }
        }
    }
    Ok(is_damaged)
}

/// Writes, works and checkpoints: what is sound goes on, and nothing spins.
fn live_on(engine: &dyn Engine, world: &World, reference: &Reference) -> Result<(), String> {
    for key in reference.keys.iter().step_by(7) {
        match engine.put(key, b"after the damage") {
            Ok(()) => {
                let value = engine.get(key, None).map_err(|e| format!("what was put cannot be read: {e}"))?;
                if value.as_deref() != Some(b"after the damage") {
                    return Err(format!("after a put, {key:?} has {value:?}"));
                }
            }
            Err(error) => allow(&error, "a put")?,
        }
    }
    for _ in 0..3 {
        world.step_until_idle().map_err(|complaint| complaint.to_string())?;
        world.advance(3_000);
    }
    engine.sync().map_err(|error| format!("a checkpoint fails because of damage: {error}"))
}
