//! Crashes within recoveries, all of them: a canonical script is crashed at every disk call, the recovery of
//! each image again at every disk call, and so on to a depth.
//!
//! A *recovery* is an open, a look at everything, a check, and the first checkpoint of the new life, with
//! which the crashed one is put away. What is held against each image that is opened:
//!
//! 1. what is found is one of the states that its past allows. A recovery that was cut short owes more than
//!    the life before it: where the image lost nothing any more, the next one must find exactly what this one
//!    found, for the state after n crashes is the state after one;
//! 2. the store's own check finds no damage;
//! 3. it lives on: what is put and synced behind it is there after one more power cut.
//!
//! There are far too many paths, but few places where they lead: a recovery is decided by the image, so
//! images that are equal, and of which the same is owed, are one *state* and played once, at the least depth
//! at which they come up.
//!
//! What is always true here: no bystander, and chance is drawn from the state alone, so that equal states go
//! the same way.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use kvilt_base::{Disk as _, Level};
use kvilt_io::{Keep, MemoryDisk};

use super::{End, Film, Images, Recorder, Shot, When, told};
use crate::{
    canonical::Canonical,
    faults::{Case, recovered},
    ledger::{Ledger, Promise},
    model::Model,
    report::{Complaint, Failure, catching_panics},
    run::Player,
    script::{Payload, Script, Step},
    world::World,
};

/// How thoroughly to crash.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Crashes in a row: one is in the script, the others are in recoveries.
    pub depth: u32,
    /// What is made of each moment.
    pub images: Images,
    /// The script is crashed at each so many-th of its changing calls; recoveries at all of theirs.
    pub stride: u64,
    /// Decides what chance does.
    pub seed: u64,
}

/// What was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Changing disk calls of the script.
    pub calls: u64,
    /// Images, by their depth: those of the script's crashes first.
    pub cases: Vec<u64>,
    /// Of these, how many were a state that had been played already.
    pub equal: Vec<u64>,
    /// Different states.
    pub states: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.states += other.states;
        for (own, others) in [(&mut self.cases, &other.cases), (&mut self.equal, &other.equal)] {
            own.resize(own.len().max(others.len()), 0);
            own.iter_mut().zip(others).for_each(|(own, other)| *own += other);
        }
    }

    /// Images at all depths.
    pub fn cases_in_all(&self) -> u64 {
        self.cases.iter().sum()
    }

    /// Images that were equal to one played before.
    pub fn equal_in_all(&self) -> u64 {
        self.equal.iter().sum()
    }
}

/// Crashes a canonical script, and all recoveries. `tally` counts up to the failure, if there is one.
pub fn explore(canonical: &Canonical, plan: &Plan, tally: &mut Tally) -> Result<(), Failure> {
    let (mut step, mut lives) = (0, None);
    let outcome = catching_panics(|| {
        let case = canonical.case()?;
        tally.cases = vec![0; plan.depth as usize];
        tally.equal = vec![0; plan.depth as usize];
        let coda = coda(case.script);
        let mut explorer = Explorer { case, coda, plan, played: HashMap::new(), tally };
        let outcome = explorer.play(&mut step, &mut lives);
        explorer.tally.states = explorer.played.len() as u64;
        outcome
    });
    outcome.map_err(|complaint: Complaint| Failure { step, message: complaint.to_string(), crash: lives })
}

/// What comes behind a recovery: its checkpoint, and the life of the store that goes on.
fn coda(script: &Script) -> Script {
    let put = Step::Put(0, Payload { number: 1 << 30, bytes: 40 });
    Script { keys: Arc::clone(&script.keys), steps: vec![Step::Sync, put, Step::Sync] }
}

struct Explorer<'a> {
    case: Case<'a>,
    coda: Script,
    plan: &'a Plan,
    /// States, each with the number of crashes that were still to come when it was played.
    played: HashMap<u64, u32>,
    tally: &'a mut Tally,
}

/// An image, and what is owed of it.
struct State {
    shot: Shot,
    debt: Debt,
}

/// The fingerprints of what may be found by the next recovery.
#[derive(Clone, Hash)]
struct Debt {
    /// If the image holds everything that was written.
    if_killed: Arc<[u64]>,
    /// If what was not synced may be missing.
    if_cut: Arc<[u64]>,
}

impl Debt {
    fn exactly(found: u64) -> Self {
        let found: Arc<[u64]> = Arc::new([found]);
        Debt { if_killed: Arc::clone(&found), if_cut: found }
    }

    /// Of a life of which these are the states after its writes.
    fn of(promise: Promise, states: &[u64]) -> Self {
        let if_cut = states[promise.safe..=promise.begun].into();
        let if_killed = states[promise.acknowledged..=promise.begun].into();
        Debt { if_killed, if_cut }
    }
}

impl State {
    fn allowed(&self) -> &[u64] {
        match self.shot.end {
            End::Killed => &self.debt.if_killed,
            End::PowerCut(_) => &self.debt.if_cut,
        }
    }

    /// Decides all that comes of it. What a second crash is owed counts only while it could still take
    /// something.
    fn key(&self, rests_on_boot: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.shot.image.fingerprint(), self.allowed()).hash(&mut hasher);
        if !self.is_durable(rests_on_boot) {
            self.debt.if_cut.hash(&mut hasher);
        }
        if rests_on_boot {
            self.shot.image.habitat().map(|habitat| habitat.boot).ok().hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Whether a power cut can take nothing of it.
    fn is_durable(&self, rests_on_boot: bool) -> bool {
        self.shot.image.unsynced() == 0 && !(rests_on_boot && self.shot.end == End::Killed)
    }
}

impl Explorer<'_> {
    /// Plays the script, and explores its crashes step by step, so that few images are held at once.
    fn play(&mut self, step: &mut usize, lives: &mut Option<String>) -> Result<(), Complaint> {
        let Plan { stride, images, seed, .. } = *self.plan;
        let memory = self.case.memory();
        let ledger = Arc::new(Ledger::default());
        let film = Film::new(memory.clone(), Arc::clone(&ledger), When::Every { stride, images, seed });
        let world = World::stepped(Arc::new(Recorder(Arc::clone(&film))), memory, self.case.seed);
        let script = self.case.script;
        let mut player = Player::new(self.case.subject, &world, script, ledger);
        if let Some((_, state)) = &self.case.origin {
            player.adopt(Model::with(state.clone()));
        }
        player.open()?;
        self.explore_shots(&film, &player, lives)?;
        for position in 0..script.steps.len() {
            *step = position;
            player.play(position)?;
            self.explore_shots(&film, &player, lives)?;
        }
        player.close()?;
        film.shoot_now();
        self.explore_shots(&film, &player, lives)?;
        self.tally.calls += film.ops();
        Ok(())
    }

    fn explore_shots(
        &mut self,
        film: &Film,
        player: &Player<'_>,
        lives: &mut Option<String>,
    ) -> Result<(), Complaint> {
        for shot in film.take_shots() {
            let debt = Debt::of(shot.promise, player.states());
            self.revive(State { shot, debt }, 1).map_err(|(complaint, told)| {
                *lives = Some(told);
                complaint
            })?;
        }
        Ok(())
    }

    /// One case: an image at this depth. What went wrong comes with the story of its lives.
    fn revive(&mut self, state: State, depth: u32) -> Result<(), (Complaint, String)> {
        self.tally.cases[depth as usize - 1] += 1;
        let key = state.key(self.case.subject.rests_on_boot());
        let to_come = self.plan.depth - depth;
        match self.played.get(&key) {
            Some(then) if *then >= to_come => {
                self.tally.equal[depth as usize - 1] += 1;
                return Ok(());
            }
            _ => self.played.insert(key, to_come),
        };
        let story = told(&state.shot);
        let next = self.recover(state, key, to_come).map_err(|complaint| (complaint, story.clone()))?;
        for state in next {
            let in_next = |(complaint, told): (Complaint, String)| {
                (complaint, format!("{story}; then in recovery {depth} {told}"))
            };
            self.revive(state, depth + 1).map_err(in_next)?;
        }
        Ok(())
    }

    /// Opens a store on the image, holds it to its past, and lets it live on. Returns what crashes of this
    /// recovery leave.
    fn recover(&self, state: State, key: u64, to_come: u32) -> Result<Vec<State>, Complaint> {
        let subject = self.case.subject;
        let is_durable = state.is_durable(subject.rests_on_boot());
        let allowed = state.allowed().to_vec();
        let image = Arc::clone(&state.shot.image);
        let ledger = Arc::new(Ledger::default());
        let when = if to_come > 0 {
            When::Every { stride: 1, images: self.plan.images, seed: key ^ self.plan.seed }
        } else {
            When::Never
        };
        let film = Film::new(image.clone(), Arc::clone(&ledger), when);
        let world = World::stepped(Arc::new(Recorder(Arc::clone(&film))), image.clone(), self.case.seed);
        let mut player = Player::new(subject, &world, &self.coda, ledger);
        player.open()?;
        let found = Model::with(recovered(&player, &self.coda, &allowed)?);
        let mut calls_to_be_safe = film.ops();
        let exactly = Debt::exactly(found.fingerprint());
        let or_found = |before: &[u64]| before.iter().copied().chain([found.fingerprint()]).collect();
        let is_lost_before = Debt {
            if_killed: Arc::clone(&exactly.if_killed),
            if_cut: if is_durable { Arc::clone(&exactly.if_cut) } else { or_found(&state.debt.if_cut) },
        };
        player.adopt(found);
        player.play(0).map_err(|complaint| format!("in the recovery's checkpoint: {complaint}"))?;
        if subject.level() == Level::Async && !subject.rests_on_boot() {
            calls_to_be_safe = film.ops();
        }
        film.shoot_now();
        let shots = film.take_shots();
        film.stop();
        self.live_on(player, &film, &image)?;
        let owed = |shot: &Shot| if shot.op < calls_to_be_safe { &is_lost_before } else { &exactly };
        Ok(shots.into_iter().map(|shot| State { debt: owed(&shot).clone(), shot }).collect())
    }

    /// A put and a sync behind the recovery, a power cut, and one more look.
    fn live_on(&self, mut player: Player<'_>, film: &Film, image: &Arc<MemoryDisk>) -> Result<(), Complaint> {
        let told = |complaint: Complaint| format!("in the life behind the recovery: {complaint}");
        player.play(1).map_err(told)?;
        player.play(2).map_err(told)?;
        let allowed = [player.model().fingerprint()];
        let left = image.crash_image(Keep::SyncedOnly);
        film.go_dark();
        player.abandon();
        let world = World::stepped(left.clone(), left, self.case.seed);
        let mut player = Player::new(self.case.subject, &world, &self.coda, Arc::default());
        player.open().map_err(told)?;
        recovered(&player, &self.coda, &allowed).map_err(told)?;
        player.abandon();
        Ok(())
    }
}
