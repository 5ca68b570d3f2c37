//! A crash at every disk operation of a script, and what must be left then.
//!
//! A script is played once, over a disk that makes images of what the death of the process, or a power cut,
//! could leave before each changing call. Each image is one *case*: a store is opened on it, and
//!
//! 1. all it contains is the state after some prefix of the writes: no shorter than what was safe — if
//!    the process died, and at level sync, all that was acknowledged, else all that was acknowledged before
//!    the last successful sync, close or checkpoint began — and no longer than what was called (the write in
//!    flight may be in or out, whole);
//! 2. its own check finds no damage;
//! 3. who opens it to read only, before, sees the same, and leaves the image as it is;
//! 4. it lives on: a few more steps are played and compared with the model, and in some operation of this
//!    life (recovery included) it is killed or the power goes again, up to the wanted number of lives.
//!
//! What is always true here: one thread, one seed, so a case can be seen again. Prefixes are recognised by
//! the fingerprints of the states that the model went through.

pub mod nested;
mod recorder;

use std::sync::Arc;

use kvilt_base::{Direction, Engine, ErrorKind, Level};
use kvilt_io::{Keep, MemoryDisk};

use crate::{
    dice::{Dice, mix},
    ledger::{Ledger, Promise},
    model::{Changes, Model, State, fingerprint, state_of_rows},
    reading::Manner,
    report::{Complaint, Failure, catching_panics, refused},
    run::{Player, all_rows, check_soundness},
    script::Script,
    subject::Subject,
    workload::Shape,
    world::World,
};
pub use recorder::Images;
use recorder::{End, Film, Recorder, Shot, When};

/// How thoroughly to crash.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Random images of each crash, besides killed, synced only, and a prefix.
    pub random_images: u64,
    /// Only one of these images of about each sixteenth crash, at random: more scripts for the same number of
    /// cases.
    pub is_sampled: bool,
    /// Lives of a store, the first included: a case may crash again until this many are used up.
    pub lives: u32,
    /// Stop after this many cases.
    pub cases_max: u64,
    /// What is done between crashes.
    pub afterlife: Shape,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            random_images: 3,
            is_sampled: false,
            lives: 4,
            cases_max: u64::MAX,
            afterlife: Shape::afterlife(),
        }
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Images that a store was opened on.
    pub cases: u64,
    /// Changing disk calls of the recorded runs: each was a crash.
    pub ops: u64,
    /// Cases whose power went again before their open was complete.
    pub crashes_in_recovery: u64,
    /// Cases in the second life and later.
    pub nested_cases: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: Tally) {
        self.cases += other.cases;
        self.ops += other.ops;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.nested_cases += other.nested_cases;
    }
}

/// Crashes a script at each of its disk operations. `tally` counts up to the failure, if there is one.
pub fn explore(
    subject: &dyn Subject,
    script: &Script,
    seed: u64,
    plan: &Plan,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let mut dice = Dice::new(seed);
    let afterlives = (1..=AFTERLIVES)
        .map(|i| plan.afterlife.script_over(Arc::clone(&script.keys), i << 20, &mut dice))
        .collect();
    let mut explorer = Explorer { subject, seed, plan, afterlives, tally };
    let mut step = 0;
    let mut crash = None;
    let outcome = catching_panics(|| explorer.play(script, &mut step, &mut crash));
    outcome.map_err(|complaint: Complaint| Failure { step, message: complaint.to_string(), crash })
}

/// Different scripts for lives after the first; each case takes one.
const AFTERLIVES: u32 = 12;

/// Most changing calls of a later life before its power goes.
const NESTED_OPS_MAX: usize = 40;

/// One image in so many is also opened to be read only: it costs as much as the open behind it.
const READ_ONE_OF: usize = 8;

struct Explorer<'a> {
    subject: &'a dyn Subject,
    seed: u64,
    plan: &'a Plan,
    afterlives: Vec<Script>,
    tally: &'a mut Tally,
}

/// What a life went through: the state it began with, and what each write made of it.
struct Past<'a> {
    base: &'a State,
    states: &'a [u64],
    writes: &'a [Changes],
    /// What the power may bring back as long as nothing of this life is safe: the life began after a kill,
    /// with what was not yet durable.
    below: &'a [u64],
}

impl Past<'_> {
    /// The state after this many writes.
    fn state_after(&self, writes: usize) -> State {
        let mut model = Model::with(self.base.clone());
        self.writes[..writes].iter().for_each(|changes| model.apply(changes));
        model.now().clone()
    }
}

impl Explorer<'_> {
    /// Plays the recorded life, and explores its crashes step by step, so that few images are held at once.
    fn play(
        &mut self,
        script: &Script,
        step: &mut usize,
        crash: &mut Option<String>,
    ) -> Result<(), Complaint> {
        let disk = MemoryDisk::of_any_kind(self.seed);
        let ledger = Arc::new(Ledger::default());
        let when = When::Always {
            images: Images::Drawn { random: self.plan.random_images },
            is_sampled: self.plan.is_sampled,
            seed: self.seed,
        };
        let film = Film::new(disk.clone(), Arc::clone(&ledger), when);
        let world = World::stepped(Arc::new(Recorder(Arc::clone(&film))), disk, self.seed);
        let mut player = Player::new(self.subject, &world, script, ledger).with_bystander(self.seed);
        player.open()?;
        self.explore_shots(&film, &player, crash)?;
        for position in 0..script.steps.len() {
            *step = position;
            player.play(position)?;
            self.explore_shots(&film, &player, crash)?;
            if self.tally.cases >= self.plan.cases_max {
                film.go_dark();
                player.abandon();
                return Ok(());
            }
        }
        player.close()?;
        film.shoot_now();
        self.explore_shots(&film, &player, crash)?;
        self.tally.ops += film.ops();
        Ok(())
    }

    fn explore_shots(
        &mut self,
        film: &Film,
        player: &Player<'_>,
        crash: &mut Option<String>,
    ) -> Result<(), Complaint> {
        let base = State::new();
        let past = Past { base: &base, states: player.states(), writes: player.writes(), below: &[] };
        for (i, shot) in film.take_shots().into_iter().enumerate() {
            let mut dice = Dice::new(mix(self.seed ^ mix(shot.op << 8 | i as u64)));
            let mut lives = told(&shot);
            let outcome = self.revive(shot, &past, &mut dice, 2, &mut lives);
            if outcome.is_err() {
                *crash = Some(lives);
            }
            outcome?;
        }
        Ok(())
    }

    /// One case: opens a store on an image and holds it to its past's promise; then its own life, and the
    /// next.
    fn revive(
        &mut self,
        shot: Shot,
        past: &Past<'_>,
        dice: &mut Dice,
        life: u32,
        lives: &mut String,
    ) -> Result<(), Complaint> {
        self.tally.cases += 1;
        self.tally.nested_cases += u64::from(life > 2);
        let ledger = Arc::new(Ledger::default());
        let when = if life < self.plan.lives { any_moment(dice) } else { When::Never };
        let (owed, left) = (self.owed(&shot), self.left_to_owe(&shot));
        let below = self.below(&shot, past);
        let script = dice.pick(&self.afterlives).clone();
        let image = shot.image;
        // Before there is another world: what is left of this one is collected first.
        let is_read = dice.chance(1, READ_ONE_OF);
        let read = if is_read { read_only(self.subject, &image, &script)? } else { None };
        let film = Film::new(image.clone(), Arc::clone(&ledger), when);
        let world = World::stepped(Arc::new(Recorder(Arc::clone(&film))), image.clone(), dice.number());
        let mut player = Player::new(self.subject, &world, &script, ledger).with_bystander(world.seed());

        let outcome = recover(&mut player, &script, past, owed);
        if film.is_dark() {
            // Recovery was cut short: the next one owes what this one did, unless this life was killed and
            // now the power goes, before it has made durable what it found.
            player.abandon();
            self.tally.crashes_in_recovery += 1;
            return self.revive_again(&film, past, Some(left), dice, life, lives);
        }
        let base = outcome?;
        same_when_read(read, &base)?;
        player.adopt(Model::with(base.clone()));
        for position in 0..script.steps.len() {
            match player.play(position) {
                Err(_) if film.is_dark() => break,
                outcome => {
                    outcome.map_err(|message| format!("in life {life}, step {position}: {message}"))?
                }
            }
        }
        film.go_dark();
        let (states, writes) = (player.states().to_vec(), player.writes().to_vec());
        player.abandon();
        let past = Past { base: &base, states: &states, writes: &writes, below: &below };
        self.revive_again(&film, &past, None, dice, life, lives)
    }

    /// What a store must contain that is opened on this image.
    fn owed(&self, shot: &Shot) -> Promise {
        let safe = match shot.end {
            End::Killed => shot.promise.acknowledged,
            End::PowerCut(_) => shot.promise.safe,
        };
        Promise { safe, ..shot.promise }
    }

    /// What a power cut may bring back as long as the life that begins with this image has made nothing safe:
    /// at level async an open does not make durable what a kill left.
    fn below(&self, shot: &Shot, past: &Past<'_>) -> Vec<u64> {
        if shot.end != End::Killed || self.subject.level() == Level::Sync {
            return Vec::new();
        }
        let Promise { safe, begun, .. } = shot.promise;
        let below = if safe == 0 { past.below } else { &[] };
        past.states[safe..=begun].iter().chain(below).copied().collect()
    }

    /// What is promised to later lives, if this one ends before its recovery is complete.
    fn left_to_owe(&self, shot: &Shot) -> Promise {
        match shot.end {
            End::PowerCut(_) => Promise { acknowledged: shot.promise.safe, ..shot.promise },
            End::Killed => shot.promise,
        }
    }

    fn revive_again(
        &mut self,
        film: &Film,
        past: &Past<'_>,
        promise: Option<Promise>,
        dice: &mut Dice,
        life: u32,
        lives: &mut String,
    ) -> Result<(), Complaint> {
        for mut shot in film.take_shots() {
            lives.push_str(&format!("; then in life {life} {}", told(&shot)));
            shot.promise = promise.unwrap_or(shot.promise);
            self.revive(shot, past, dice, life + 1, lives)?;
        }
        Ok(())
    }
}

fn told(shot: &Shot) -> String {
    match shot.end {
        End::Killed => format!("a kill at disk operation {}", shot.op),
        End::PowerCut(keep) => format!("a power cut at disk operation {} keeping {keep:?}", shot.op),
    }
}

/// Where a later life ends: often within recovery, which has few operations.
fn any_moment(dice: &mut Dice) -> When {
    let ops = if dice.chance(1, 2) { 8 } else { NESTED_OPS_MAX };
    let end = match dice.below(5) {
        0 => End::Killed,
        1 => End::PowerCut(Keep::SyncedOnly),
        2 => End::PowerCut(Keep::Prefix(dice.number())),
        _ => End::PowerCut(Keep::Random(dice.number())),
    };
    When::Once { op: dice.below(ops) as u64, end }
}

/// Opens a store and holds what it contains to the promise. Returns what it contains.
fn recover(
    player: &mut Player<'_>,
    script: &Script,
    past: &Past<'_>,
    promise: Promise,
) -> Result<State, Complaint> {
    player.open()?;
    let rows = all_rows(&*player.engine(), Manner::whole(Direction::Forward))?;
    let state = state_of_rows(script, &rows)?;
    let found = fingerprint(&state);
    let allowed = promise.safe..=promise.begun;
    let is_below = promise.safe == 0 && past.below.contains(&found);
    if !is_below && !past.states[allowed].contains(&found) {
        return Err(explain(&state, found, past, promise).into());
    }
    check_soundness(&*player.engine())?;
    Ok(state)
}

/// What a store contains for who opens it to read only, if the subject can; nothing of the disk may change by
/// it (B-7).
fn read_only(
    subject: &dyn Subject,
    image: &Arc<MemoryDisk>,
    script: &Script,
) -> Result<Option<State>, Complaint> {
    let (ops, fingerprint) = (image.ops(), image.fingerprint());
    let world = World::stepped(image.clone(), image.clone(), 0);
    let Some(opened) = subject.open_to_read(&world) else { return Ok(None) };
    let told = |complaint: Complaint| format!("to who only reads: {complaint}");
    let look = |engine: &dyn Engine| -> Result<State, Complaint> {
        let rows = all_rows(engine, Manner::whole(Direction::Forward))?;
        check_soundness(engine)?;
        engine.close().map_err(refused("close"))?;
        Ok(state_of_rows(script, &rows)?)
    };
    let state = match opened {
        // The making of a store was cut short: the next open makes an empty one.
        Err(error) if error.kind() == ErrorKind::InvalidArgument => State::new(),
        opened => opened.map_err(refused("open")).and_then(|engine| look(&*engine)).map_err(told)?,
    };
    world.step_until_idle()?;
    if (image.ops(), image.fingerprint()) != (ops, fingerprint) {
        return Err("who only reads has changed the disk".into());
    }
    Ok(Some(state))
}

/// Whether who only reads has seen what the next open shows.
fn same_when_read(read: Option<State>, recovered: &State) -> Result<(), Complaint> {
    let Some(read) = read.filter(|read| read != recovered) else { return Ok(()) };
    let keys = difference(&read, recovered);
    let shown = keys
        .iter()
        .take(5)
        .map(|key| format!("key {key} read only {:?}, then {:?}", read.get(key), recovered.get(key)));
    Err(format!("who only reads sees another state: {}", shown.collect::<Vec<_>>().join(", ")).into())
}

/// Says how a recovered state breaks the promise.
fn explain(state: &State, found: u64, past: &Past<'_>, promise: Promise) -> String {
    let Promise { begun, acknowledged, safe } = promise;
    let promised = format!("{begun} writes called, {acknowledged} acknowledged, {safe} safe");
    if let Some(writes) = past.states.iter().rposition(|state| *state == found) {
        return format!("recovered the state after {writes} writes ({promised})");
    }
    // Not a prefix at all: show the nearest one.
    let nearest = (0..=begun).rev().min_by_key(|writes| difference(&past.state_after(*writes), state).len());
    let writes = nearest.unwrap_or(0);
    let there = past.state_after(writes);
    let keys: Vec<String> = difference(&there, state)
        .into_iter()
        .take(5)
        .map(|key| format!("key {key} expected {:?} found {:?}", there.get(&key), state.get(&key)))
        .collect();
    format!(
        "recovered a state that never was ({promised}); nearest is after {writes} writes: {}",
        keys.join(", ")
    )
}

/// The keys on which two states differ.
fn difference(a: &State, b: &State) -> Vec<u16> {
    let mut keys: Vec<u16> =
        a.keys().chain(b.keys()).copied().filter(|key| a.get(key) != b.get(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}
