//! A disk that is full from some call on, and what a store with a reserve does all the same.
//!
//! A script is played on a disk that from one chosen call on has no more room than it has then. From there
//!
//! 1. only what brings data may be refused, and only as `NoSpace`; of what is refused nothing is visible;
//! 2. deleting all that is there succeeds, and so does a sync behind it;
//! 3. a power cut, at one chosen call and at the end, leaves what was promised, and the store opens on the
//!    full disk, where again all can be deleted;
//! 4. with room again the store takes writes at once.

use std::sync::Arc;

use kvilt_base::{Direction, ErrorKind};
use kvilt_io::{Keep, MemoryDisk};

use super::{Case, recovered};
use crate::{
    dice::mix,
    ledger::{Ledger, Promise},
    model::Model,
    reading::Manner,
    report::{Complaint, Failure, catching_panics, refused},
    run::{Player, all_rows, check_soundness},
    script::{Payload, Script, Step},
    world::World,
};

/// Steps that come first, so that there is a checkpoint, and with it a reserve. Where nothing was written,
/// none is taken.
const FURNISHING: [Step; 4] = [
    Step::Put(0, Payload { number: u32::MAX - 1, bytes: 8 }),
    Step::Sync,
    Step::Advance { ms: 3_000 },
    Step::Background { steps: 60, seed: 5 },
];

/// What a life on such a disk amounted to.
struct Life {
    /// The changing call behind which there is a reserve.
    furnished: u64,
    /// How many changing calls there were.
    ops: u64,
}

/// What happens to the disk, by numbers of changing calls.
#[derive(Clone, Copy)]
struct Fate {
    full_at: u64,
    cut_at: Option<u64>,
}

impl Case<'_> {
    /// Lets the disk be full from every `stride`-th changing call on, without a power cut and with one at
    /// some later call. Says how many lives that were, or at which call the disk of the first wrong one was
    /// full.
    pub fn fill(&self, stride: u64) -> Result<u64, (u64, Failure)> {
        let script = besieged(self.script);
        let live = |fate: Fate| {
            let life = catching_panics(|| self.live(&script, fate));
            let crash = fate.cut_at.map(|op| format!("power cut at call {op}"));
            life.map_err(|complaint| {
                (fate.full_at, Failure { step: 0, message: complaint.to_string(), crash })
            })
        };
        let unharmed = live(Fate { full_at: u64::MAX, cut_at: None })?;
        let mut lives = 1;
        for full_at in (unharmed.furnished..unharmed.ops).step_by(stride as usize) {
            let life = live(Fate { full_at, cut_at: None })?;
            let cut_at = full_at + mix(self.seed ^ full_at) % (life.ops - full_at).max(1);
            live(Fate { full_at, cut_at: Some(cut_at) })?;
            lives += 2;
        }
        Ok(lives)
    }

    fn live(&self, script: &Script, fate: Fate) -> Result<Life, Complaint> {
        let memory = self.memory();
        memory.set_full_at(Some(fate.full_at));
        memory.set_crash_at(fate.cut_at);
        let world = World::stepped(memory.clone(), memory.clone(), self.seed);
        let mut player = Player::new(self.subject, &world, script, Arc::new(Ledger::default()));
        if let Some((_, state)) = &self.origin {
            player.adopt(Model::with(state.clone()));
        }
        player.open()?;
        let mut life = Life { furnished: 0, ops: 0 };
        let mut withdrawn = Vec::new();
        let (coda, besieged) = script.steps.split_last().expect("it ends with a put");
        for (position, step) in besieged.iter().enumerate() {
            if position == FURNISHING.len() {
                life.furnished = memory.ops();
            }
            match player.play(position) {
                // Whoever was refused by a disk that is gone; what was answered before is right or a
                // complaint.
                Ok(()) | Err(Complaint::Refused(..)) if memory.has_crashed() => {
                    self.survive(player, &memory, &withdrawn)?;
                    return Ok(life);
                }
                Ok(()) if step.is_write() => withdrawn.clear(),
                Ok(()) => {}
                Err(Complaint::Refused(_, error))
                    if error.kind() == ErrorKind::NoSpace && brings_data(step) =>
                {
                    withdrawn.extend(player.withdraw());
                }
                Err(wrong) => return Err(format!("step {position}, {step:?}: {wrong}").into()),
            }
        }
        life.ops = memory.ops();
        player.compare_all()?;
        memory.set_full_at(None);
        memory.set_capacity(None);
        player.play(besieged.len()).map_err(|wrong| format!("{coda:?} with room again: {wrong}"))?;
        world.step_until_idle()?;
        check_soundness(&*player.engine())?;
        self.survive(player, &memory, &[])?;
        Ok(life)
    }

    /// What a power cut leaves is what was promised; the disk stays as full as it was.
    fn survive(&self, player: Player<'_>, memory: &MemoryDisk, withdrawn: &[u64]) -> Result<(), Complaint> {
        let Promise { safe, begun, .. } = player.promise();
        let allowed: Vec<u64> = player.states()[safe..=begun].iter().chain(withdrawn).copied().collect();
        let keeps = [Keep::SyncedOnly, Keep::All, Keep::Random(self.seed ^ memory.ops())];
        let images = keeps.map(|keep| memory.crash_image(keep));
        player.abandon();
        for image in images {
            let world = World::stepped(image.clone(), image, self.seed);
            let mut player = Player::new(self.subject, &world, self.script, Arc::default());
            player.open()?;
            recovered(&player, self.script, &allowed)?;
            let engine = player.engine();
            for key in self.script.keys.iter() {
                engine.delete(key).map_err(refused("delete behind a power cut"))?;
            }
            engine.sync().map_err(refused("sync behind a power cut"))?;
            if !all_rows(&*engine, Manner::whole(Direction::Forward))?.is_empty() {
                return Err("rows are there that were deleted".into());
            }
            drop(engine);
            player.close()?;
        }
        Ok(())
    }
}

/// The script behind what makes a reserve, and before deletes of everything, a sync, and a last put.
fn besieged(script: &Script) -> Script {
    let deletes = (0..script.keys.len()).map(|key| Step::Delete(key as _));
    let steps = FURNISHING.into_iter().chain(script.steps.iter().cloned()).chain(deletes);
    let coda = Step::Put(0, Payload { number: u32::MAX, bytes: 40 });
    Script { keys: Arc::clone(&script.keys), steps: steps.chain([Step::Sync, coda]).collect() }
}

/// Whether a full disk may refuse the step.
fn brings_data(step: &Step) -> bool {
    match step {
        Step::Put(..) | Step::Copy => true,
        Step::Batch(changes) => changes.iter().any(|(_, value)| value.is_some()),
        Step::Swap(_, _, new) => new.is_some(),
        Step::Delete(_)
        | Step::DeleteRange(_)
        | Step::Get(..)
        | Step::GetMany(..)
        | Step::Scan { .. }
        | Step::ScanBothEnds { .. }
        | Step::OpenView(_)
        | Step::CloseView(_)
        | Step::Sync
        | Step::Background { .. }
        | Step::Advance { .. }
        | Step::Reopen
        | Step::Check => false,
    }
}
