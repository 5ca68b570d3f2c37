//! Runs of real threads: in peace, and through power cuts and kills. What is left after one is one more scan,
//! made at some moment between the last sync and the cut; so the rules of [`crate::history`] decide about it,
//! too.

use std::{collections::BTreeMap, sync::Arc};

use kvilt_base::{Clock, Disk, Engine, KeyRange, Level};
use kvilt_io::{Keep, MemoryDisk};

use crate::{
    actor::{Cast, perform, rows_of},
    dice::Dice,
    history::{History, Interval, Moment, Scan},
    report::{Complaint, refused},
    run::check_soundness,
    subject::Subject,
    world::World,
};

/// What threads did.
#[derive(Clone, Debug, Default)]
pub struct Acted {
    /// Operations recorded and checked.
    pub operations: u64,
    /// Power cuts survived.
    pub power_cuts: u64,
    /// Figures of the store.
    pub figures: BTreeMap<&'static str, u64>,
}

/// Lets a cast act on a fresh store, and checks what they saw, what the store's own check says, and that it
/// closes.
pub fn act_in_peace(
    subject: &dyn Subject,
    cast: &Cast,
    clock: &dyn Clock,
    disk: Arc<dyn Disk>,
) -> Result<Acted, Complaint> {
    let world = World::threaded(disk, cast.seed);
    let engine = subject.open(&world).map_err(refused("open"))?;
    let history = perform(&*engine, cast, clock)?;
    check_soundness(&*engine)?;
    let figures = engine.stats().figures().into_iter().map(|figure| (figure.name, figure.value)).collect();
    engine.close().map_err(refused("close"))?;
    check_history(&history)?;
    Ok(Acted { operations: history.len() as u64, power_cuts: 0, figures })
}

fn check_history(history: &History) -> Result<(), Complaint> {
    history.check().first().map_or(Ok(()), |violation| Err(violation.to_string().into()))
}

/// Lets a cast act on one store again and again; each time the power goes at some disk operation, and what is
/// left must be a prefix of what they did that holds all that was promised.
pub fn act_through_power_cuts(
    subject: &dyn Subject,
    cast: &Cast,
    clock: &dyn Clock,
    cuts: u64,
) -> Result<Acted, Complaint> {
    let mut dice = Dice::new(cast.seed);
    let mut disk = MemoryDisk::of_any_kind(cast.seed);
    let mut acted = Acted::default();
    for cut in 0..cuts {
        let cast = Cast { seed: dice.number(), may_be_refused: true, ..cast.clone() };
        let world = World::threaded(disk.clone(), cast.seed);
        let engine = subject.open(&world).map_err(refused("open"))?;
        // Every round begins with an empty store, durably: the power may go before the cast's first write.
        engine.delete_range(&KeyRange::all()).map_err(refused("delete range"))?;
        engine.sync().map_err(refused("sync"))?;
        let crash_at = disk.ops() + dice.below(400) as u64;
        let keep = match dice.below(8) {
            0 | 1 => Some(Keep::SyncedOnly),
            2 | 3 => None,
            _ => Some(Keep::Random(dice.number())),
        };
        // Where a write needs no disk, actors would go on without one, which nobody does who was killed: the
        // kill comes behind them, while the workers work.
        let is_killed_behind = keep.is_none() && subject.level() == Level::Async;
        disk.set_crash_at((!is_killed_behind).then_some(crash_at));
        let mut history = perform(&*engine, &cast, clock)?;
        let ended = clock.now().as_nanos() as Moment;
        // Without anything lost: the process is killed.
        let image = keep.map_or_else(|| disk.kill_image(), |keep| disk.crash_image(keep));
        let has_crashed = disk.has_crashed() || is_killed_behind;
        // It is told to close, so that its workers end; that may fail, and must neither panic nor hang. If it
        // says that it succeeded, it is held to that.
        let is_closed = engine.close().is_ok();
        drop(engine);
        disk = if has_crashed || disk.has_crashed() { image } else { disk };
        disk.set_crash_at(None);

        let safe = history.syncs.iter().map(|sync| sync.from).max().unwrap_or(0);
        let is_all_safe = subject.level() == Level::Sync || keep.is_none();
        let from = if is_closed || is_all_safe { ended } else { safe };
        let rows = rows_after_cut(subject, &disk, &cast)?;
        history.scans.push(Scan { first: 0, end: cast.keys, rows, when: Interval { from, to: ended } });
        check_history(&history).map_err(|violation| {
            format!("after crash {cut} keeping {keep:?}, with the scan in {from}..{ended} made after it: {violation}")
        })?;
        acted.operations += history.len() as u64;
        acted.power_cuts += 1;
    }
    Ok(acted)
}

/// What a store contains after a power cut; and it is sound.
fn rows_after_cut(
    subject: &dyn Subject,
    disk: &Arc<MemoryDisk>,
    cast: &Cast,
) -> Result<Vec<(u32, u64)>, Complaint> {
    let world = World::threaded(disk.clone(), cast.seed);
    let engine: Arc<dyn Engine> = subject.open(&world).map_err(refused("open after a power cut"))?;
    let rows = rows_of(&*engine, cast)?;
    check_soundness(&*engine)?;
    engine.close().map_err(refused("close"))?;
    Ok(rows)
}
