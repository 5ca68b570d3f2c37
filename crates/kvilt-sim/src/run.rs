//! One script, one store, one model: every answer is compared. A [`Player`] plays a script step by step; a
//! crash run looks at its [`Ledger`] to know what had been promised when the power went.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use kvilt_base::{Direction, Engine, Figure, KeyRange, Level, ReadView};

use crate::{
    bystander::{Moment, Presence, WHILE_GETTING, WHILE_WORKING},
    dice::{Dice, mix},
    economy,
    ledger::{Ledger, Promise},
    model::{Changes, Model, State, rows_in},
    passer::{Errand, Seen},
    reading::{Manner, Row, read_both_ends, read_many, read_rows},
    report::{Complaint, Failure, catching_panics, refused},
    script::{KeyId, Payload, Script, Span, Step, VIEW_SLOTS},
    subject::Subject,
    world::World,
};

mod calls;
mod staying;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Operations on the store that were compared with the model.
    pub operations: u64,
    /// Fingerprint of the last state.
    pub fingerprint: u64,
    /// Calls that changed the disk.
    pub disk_operations: u64,
    /// Figures of the store, summed over its lives, in the order of [`kvilt_base::Stats::figures`].
    pub figures: Vec<(&'static str, u64)>,
}

/// Plays a whole script against a fresh store in `world`; ends with a check, a close, an open, and a look at
/// everything. A panic is a failure like any other.
pub fn run(subject: &dyn Subject, world: &World, script: &Script) -> Result<Summary, Failure> {
    let step = AtomicUsize::new(0);
    let outcome = catching_panics(|| {
        let mut player = Player::new(subject, world, script, Arc::default()).with_bystander(world.seed());
        player.open()?;
        let mut position = 0;
        while position < script.steps.len() {
            position += player.play_some(position, &step)?;
        }
        step.store(script.steps.len(), Relaxed);
        player.finish()
    });
    outcome.map_err(|complaint| Failure::at_step(step.load(Relaxed), complaint.to_string()))
}

/// Plays a script, step by step.
pub struct Player<'a> {
    subject: &'a dyn Subject,
    world: &'a World,
    script: &'a Script,
    engine: Option<Arc<dyn Engine>>,
    views: [Option<ReadView>; VIEW_SLOTS],
    model: Model,
    /// Fingerprint of the state after each write; the first is of the state before all.
    states: Vec<u64>,
    writes: Vec<Changes>,
    ledger: Arc<Ledger>,
    /// Checkpoints seen, and the writes acknowledged when the number before this one, and this one, was seen
    /// last.
    checkpoints: (u64, [usize; 2]),
    /// Chance for somebody who writes while the background runs; none if nobody does.
    bystander: Option<Dice>,
    /// The same for somebody who comes between the steps of a write.
    passer: Option<Dice>,
    /// The same for a reader that stays within a get while steps are played.
    stayer: Option<Dice>,
    summary: Summary,
    scratch: Vec<u8>,
}

impl<'a> Player<'a> {
    /// A player for an empty store. Nothing is opened yet.
    pub fn new(subject: &'a dyn Subject, world: &'a World, script: &'a Script, ledger: Arc<Ledger>) -> Self {
        let model = Model::new();
        Player {
            subject,
            world,
            script,
            engine: None,
            views: [const { None }; VIEW_SLOTS],
            states: vec![model.fingerprint()],
            model,
            writes: Vec::new(),
            ledger,
            checkpoints: (0, [0; 2]),
            bystander: None,
            passer: None,
            stayer: None,
            summary: Summary::default(),
            scratch: Vec::new(),
        }
    }

    /// Adds a writer that comes while the background waits for the disk, for every second seed another one
    /// between steps of writes, and now and then a reader that stays.
    #[must_use]
    pub fn with_bystander(mut self, seed: u64) -> Self {
        self.bystander = Some(Dice::new(mix(seed)));
        let mut dice = Dice::new(mix(!seed));
        self.passer = dice.chance(1, 2).then_some(dice);
        self.stayer = Some(Dice::new(mix(seed ^ 0x0057_a9e5)));
        self
    }

    /// Takes what an open store contains for the state before the first write, and forgets those before.
    pub fn adopt(&mut self, model: Model) {
        self.states = vec![model.fingerprint()];
        self.writes.clear();
        self.ledger.forget();
        self.model = model;
    }

    /// Fingerprints of the state after each write called so far; the first is of the state before all.
    pub fn states(&self) -> &[u64] {
        &self.states
    }

    /// The writes called so far.
    pub fn writes(&self) -> &[Changes] {
        &self.writes
    }

    /// Opens the store.
    pub fn open(&mut self) -> Result<(), Complaint> {
        let engine = self.subject.open(self.world).map_err(refused("open"))?;
        self.engine = Some(engine);
        self.checkpoints = (0, [0; 2]);
        Ok(())
    }

    /// Takes back the write that the store has just refused, if the last step was one. Returns the
    /// fingerprint of the state that it would have made.
    pub fn withdraw(&mut self) -> Option<u64> {
        if self.writes.len() == self.ledger.now().acknowledged {
            return None;
        }
        self.writes.pop();
        self.ledger.withdraw();
        self.states.pop()
    }

    /// Whether the store is open; a close or an open that was refused leaves none.
    pub fn is_open(&self) -> bool {
        self.engine.is_some()
    }

    /// What the store must contain.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What is promised.
    pub fn promise(&self) -> Promise {
        self.ledger.now()
    }

    /// The open store.
    pub fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(self.engine.as_ref().expect("the store is open between steps"))
    }

    /// Plays the step at this position of the script.
    pub fn play(&mut self, position: usize) -> Result<(), Complaint> {
        let script = self.script;
        let step = &script.steps[position];
        if !matches!(step, Step::Background { .. } | Step::Advance { .. }) {
            self.summary.operations += 1;
        }
        match step {
            step if step.is_write() => self.write(step),
            Step::Get(key, None) => self.attended_get(*key),
            Step::Get(key, view) => self.get(*key, *view),
            Step::GetMany(keys, view) => self.get_many(keys, *view),
            Step::Scan { .. } | Step::ScanBothEnds { .. } => self.scan(step),
            Step::OpenView(slot) => {
                let view = self.engine().view().map_err(refused("view"))?;
                self.views[usize::from(*slot)] = Some(view);
                self.model.open_view(*slot);
                Ok(())
            }
            Step::CloseView(slot) => {
                self.views[usize::from(*slot)] = None;
                self.model.close_view(*slot);
                Ok(())
            }
            Step::Sync => self.sync(),
            Step::Background { steps, seed } => {
                self.admit_bystander(WHILE_WORKING, None);
                self.world.step_background(*steps, *seed);
                let puts = self.dismiss_bystander();
                self.note_checkpoints();
                match puts?.last() {
                    // Before anything else is written: a checkpoint that takes the store for idle would be
                    // wrong.
                    Some(last) if last.number % 2 == 0 => self.sync(),
                    _ => Ok(()),
                }
            }
            Step::Advance { ms } => {
                self.world.advance(*ms);
                Ok(())
            }
            Step::Reopen => {
                self.close()?;
                self.open()
            }
            Step::Check => self.check(),
            Step::Copy => self.copy(),
            _ => unreachable!("every other step is a write"),
        }
    }

    /// Lets the background come to rest, which it must; checks, closes, opens again, and compares everything.
    pub fn finish(mut self) -> Result<Summary, Complaint> {
        self.world.step_until_idle()?;
        self.check()?;
        self.compare_all()?;
        self.close()?;
        self.open()?;
        self.compare_all()?;
        economy::weigh(self.subject, self.world, &self.engine())?;
        self.close()?;
        let disk_operations = self.world.memory().map_or(0, |memory| memory.ops());
        Ok(Summary { fingerprint: self.model.fingerprint(), disk_operations, ..self.summary })
    }

    /// Leaves the store as it is when the power has gone. It is told to close, so that its workers end; that
    /// cannot succeed, and must not panic.
    pub fn abandon(mut self) {
        self.views = [const { None }; VIEW_SLOTS];
        if let Some(engine) = self.engine.take() {
            let _ = engine.close();
        }
    }

    /// Closes the store.
    pub fn close(&mut self) -> Result<(), Complaint> {
        self.views = [const { None }; VIEW_SLOTS];
        self.model.close_views();
        let engine = self.engine.take().expect("the store is open between steps");
        self.add_figures(&engine.stats().figures());
        let acknowledged = self.ledger.now().acknowledged;
        engine.close().map_err(refused("close"))?;
        self.ledger.secure(acknowledged);
        Ok(())
    }

    fn add_figures(&mut self, figures: &[Figure]) {
        if self.summary.figures.is_empty() {
            self.summary.figures = figures.iter().map(|figure| (figure.name, figure.value)).collect();
            return;
        }
        for (sum, figure) in self.summary.figures.iter_mut().zip(figures) {
            sum.1 += figure.value;
        }
    }

    /// The promise of a background checkpoint, as far as it can be seen from outside. Checkpoints follow one
    /// another: the second after a look began when the first was complete, so it covers all that was
    /// acknowledged when we looked.
    fn note_checkpoints(&mut self) {
        // An engine without checkpoints has none to wait for.
        let count = self.engine().stats().own("checkpoints").unwrap_or(0);
        let acknowledged = self.ledger.now().acknowledged;
        let (seen, [before, at]) = self.checkpoints;
        match count.saturating_sub(seen) {
            0 => self.checkpoints = (count, [before, acknowledged]),
            1 => {
                self.ledger.secure(before);
                self.checkpoints = (count, [at, acknowledged]);
            }
            _ => {
                self.ledger.secure(at);
                self.checkpoints = (count, [at, acknowledged]);
            }
        }
    }

    fn sync(&mut self) -> Result<(), Complaint> {
        let acknowledged = self.ledger.now().acknowledged;
        self.engine().sync().map_err(refused("sync"))?;
        self.ledger.secure(acknowledged);
        Ok(())
    }

    fn admit_bystander(&mut self, waits_for: &[Moment], key: Option<KeyId>) {
        let Some(dice) = &mut self.bystander else { return };
        let mut dice = Dice::new(dice.number());
        // Some come at one kind of moment only: what goes wrong there is not put right by the next put.
        let waits_for = if dice.chance(1, 2) { waits_for.to_vec() } else { vec![*dice.pick(waits_for)] };
        self.world.bystander().enter(Presence {
            engine: self.engine(),
            moments: self.subject.moments(),
            would_wait: self.subject.would_wait(),
            waits_for,
            keys: Arc::clone(&self.script.keys),
            key,
            level: self.subject.level(),
            ledger: Arc::clone(&self.ledger),
            dice,
            puts: Vec::new(),
            key_bytes: 0,
            refused: None,
        });
    }

    /// What the bystander put has happened, the last of it perhaps not. Returns the values.
    fn dismiss_bystander(&mut self) -> Result<Vec<Payload>, Complaint> {
        let presence = self.world.bystander().leave();
        let Some(Presence { puts, refused: error, .. }) = presence else { return Ok(Vec::new()) };
        let acknowledged = puts.len() - usize::from(error.is_some());
        for (number, &(key, value)) in puts.iter().enumerate() {
            let changes = self.model.changes(&Step::Put(key, value)).expect("a put changes its key");
            let mut after = self.model.clone();
            after.apply(&changes);
            self.states.push(after.fingerprint());
            self.writes.push(changes);
            if number < acknowledged {
                self.model = after;
            }
        }
        match error {
            None => Ok(puts.into_iter().map(|(_, value)| value).collect()),
            Some(error) => Err(refused("a bystander's put")(error)),
        }
    }

    fn write(&mut self, step: &Step) -> Result<(), Complaint> {
        let changes = self.model.changes(step);
        if let Some(changes) = &changes {
            let mut after = self.model.clone();
            after.apply(changes);
            self.states.push(after.fingerprint());
            self.writes.push(changes.clone());
            self.ledger.begin(self.subject.level());
            self.passed_call(step, true)?;
            self.ledger.acknowledge(self.subject.level());
            self.model = after;
            Ok(())
        } else {
            self.passed_call(step, false)
        }
    }

    /// Calls the engine for a step that writes; who comes between its own steps must see the store as it was
    /// before.
    fn passed_call(&mut self, step: &Step, is_change: bool) -> Result<(), Complaint> {
        let acknowledged = self.ledger.now().acknowledged;
        let errand = self.errand();
        errand.iter().for_each(|errand| self.world.passer().send(self.engine(), errand.clone()));
        let outcome = self.call(step, is_change);
        let seen = self.world.passer().recall();
        outcome?;
        match (seen.transpose()?, errand) {
            (Some(Seen::Synced), _) => self.ledger.secure(acknowledged),
            (Some(Seen::Value(found)), Some(Errand::Get(key))) => {
                let key = self.script.keys.binary_search(&key).expect("it comes for a key of the script");
                let right = self.model.now().get(&(key as KeyId)).copied();
                if !is_value(found.as_deref(), right, &mut self.scratch) {
                    let found = told(found.as_deref());
                    return Err(format!("within a write, key {key} has {found}, expected {right:?}").into());
                }
            }
            (Some(Seen::Rows(rows)), _) => {
                let (whole, manner) = (Span { start: 0, end: None }, Manner::whole(Direction::Forward));
                compare(self.script, self.model.now(), whole, manner, &rows, &mut self.scratch)
                    .map_err(|message| format!("within a write: {message}"))?;
            }
            (Some(Seen::Value(_)) | None, _) => {}
        }
        Ok(())
    }

    /// What somebody comes for within this write. With a commit log, a checkpoint takes its place among the
    /// writes.
    fn errand(&mut self) -> Option<Errand> {
        let has_commit_log = self.subject.level() == Level::Sync;
        let dice = self.passer.as_mut().and_then(|dice| dice.chance(1, 6).then_some(dice))?;
        Some(match dice.below(4) {
            0 | 1 if !has_commit_log => Errand::Sync,
            0 | 2 => Errand::Get(dice.pick(&self.script.keys).clone()),
            _ => Errand::Scan,
        })
    }

    /// Gets a key now, while a bystander may put it: what was there before, or any of that, is right.
    fn attended_get(&mut self, key: KeyId) -> Result<(), Complaint> {
        let mut right = vec![self.model.now().get(&key).copied()];
        self.admit_bystander(WHILE_GETTING, Some(key));
        let found = self.engine().get(&self.script.keys[usize::from(key)], None);
        right.extend(self.dismiss_bystander()?.into_iter().map(Some));
        let found = found.map_err(refused("get"))?;
        if !right.iter().any(|value| is_value(found.as_deref(), *value, &mut self.scratch)) {
            let found = told(found.as_deref());
            return Err(format!("get of key {key}: expected one of {right:?}, found {found}").into());
        }
        Ok(())
    }

    /// Gets several keys in one call, at a view or now, and compares each.
    fn get_many(&mut self, keys: &[KeyId], view: Option<u8>) -> Result<(), Complaint> {
        let held = view.and_then(|slot| self.views[usize::from(slot)].as_ref());
        let bytes: Vec<&[u8]> = keys.iter().map(|key| &self.script.keys[usize::from(*key)][..]).collect();
        let found = read_many(&*self.engine(), &bytes, held)?;
        for (key, found) in keys.iter().zip(found) {
            let expected = self.model.at(view).get(key).copied();
            if !is_value(found.as_deref(), expected, &mut self.scratch) {
                let found = told(found.as_deref());
                return Err(
                    format!("get of key {key} among {keys:?}: expected {expected:?}, found {found}").into()
                );
            }
        }
        Ok(())
    }

    /// Gets a key at a view, or now, and compares.
    fn get(&mut self, key: KeyId, view: Option<u8>) -> Result<(), Complaint> {
        let held = view.and_then(|slot| self.views[usize::from(slot)].as_ref());
        let expected = self.model.at(view).get(&key).copied();
        let bytes = &self.script.keys[usize::from(key)];
        let found = self.engine().get(bytes, held).map_err(refused("get"))?;
        if !is_value(found.as_deref(), expected, &mut self.scratch) {
            return Err(
                format!("get of key {key}: expected {expected:?}, found {}", told(found.as_deref())).into()
            );
        }
        Ok(())
    }

    fn scan(&mut self, step: &Step) -> Result<(), Complaint> {
        let (Step::Scan { span, view, .. } | Step::ScanBothEnds { span, view, .. }) = step else {
            unreachable!("not a scan")
        };
        let engine = self.engine();
        let (range, state) = (self.script.range(*span), self.model.at(*view));
        let new_view;
        let view = match view.and_then(|slot| self.views[usize::from(slot)].as_ref()) {
            Some(view) => view,
            None => {
                new_view = engine.view().map_err(refused("view"))?;
                &new_view
            }
        };
        match step {
            Step::ScanBothEnds { turns, batch_rows, .. } => {
                let rows = read_both_ends(&*engine, view, &range, *turns, usize::from(*batch_rows))?;
                let manner = Manner::whole(Direction::Forward);
                compare(self.script, &state, *span, manner, &rows, &mut self.scratch)
            }
            Step::Scan { direction, rows_max, batch_bytes, keys_only, .. } => {
                let manner = Manner {
                    rows_max: *rows_max as usize,
                    batch_bytes: *batch_bytes as usize,
                    keys_only: *keys_only,
                    ..Manner::whole(*direction)
                };
                let rows = read_rows(&*engine, view, &range, manner)?;
                compare(self.script, &state, *span, manner, &rows, &mut self.scratch)
            }
            _ => unreachable!("not a scan"),
        }
    }

    fn check(&mut self) -> Result<(), Complaint> {
        check_soundness(&*self.engine())
    }

    /// A copy opens as a store of its own with the same content.
    fn copy(&mut self) -> Result<(), Complaint> {
        let Some(copied) = self.world.copy(&*self.engine())? else { return Ok(()) };
        let engine = self.subject.open(&copied).map_err(refused("open of a copy"))?;
        check_soundness(&*engine).map_err(|message| format!("in a copy: {message}"))?;
        let rows = all_rows(&*engine, Manner::whole(Direction::Forward))?;
        let whole = Span { start: 0, end: None };
        let manner = Manner::whole(Direction::Forward);
        compare(self.script, self.model.now(), whole, manner, &rows, &mut self.scratch)
            .map_err(|message| format!("in a copy: {message}"))?;
        engine.close().map_err(refused("close of a copy"))
    }

    /// Compares everything with the model, by scans in both directions and by gets.
    pub fn compare_all(&mut self) -> Result<(), Complaint> {
        let whole = Span { start: 0, end: None };
        for direction in [Direction::Forward, Direction::Backward] {
            let manner = Manner::whole(direction);
            let rows = all_rows(&*self.engine(), manner)?;
            compare(self.script, self.model.now(), whole, manner, &rows, &mut self.scratch)?;
        }
        for key in 0..self.script.keys.len() {
            self.get(key as KeyId, None)?;
        }
        Ok(())
    }
}

/// Every row of a store, now.
pub fn all_rows(engine: &dyn Engine, manner: Manner) -> Result<Vec<Row>, Complaint> {
    let view = engine.view().map_err(refused("view"))?;
    read_rows(engine, &view, &KeyRange::all(), manner)
}

/// The store's own check must find no damage.
pub fn check_soundness(engine: &dyn Engine) -> Result<(), Complaint> {
    let report = engine.check(&mut |_| true).map_err(refused("check"))?;
    match report.damages.first() {
        None => Ok(()),
        Some(damage) => {
            Err(format!("check found {} damages, first: {damage:?}", report.damages.len()).into())
        }
    }
}

/// Compares rows read in some manner with a state.
fn compare(
    script: &Script,
    state: &State,
    span: Span,
    manner: Manner,
    rows: &[Row],
    scratch: &mut Vec<u8>,
) -> Result<(), Complaint> {
    let inside = rows_in(state, span);
    let expected: Vec<(KeyId, Payload)> = match manner.direction {
        Direction::Forward => inside.take(manner.rows_max).collect(),
        Direction::Backward => inside.rev().take(manner.rows_max).collect(),
    };
    for (i, (row, (key, value))) in rows.iter().zip(&expected).enumerate() {
        let key_bytes = &script.keys[usize::from(*key)];
        if row.0 != *key_bytes {
            return Err(format!("row {i} of a scan has key {:?}, expected {key} {key_bytes:?}", row.0).into());
        }
        let is_right =
            if manner.keys_only { row.1.is_empty() } else { is_value(Some(&row.1), Some(*value), scratch) };
        if !is_right {
            return Err(
                format!("a scan shows key {key} with {}, expected {value}", told(Some(&row.1))).into()
            );
        }
    }
    if rows.len() != expected.len() {
        return Err(format!("a scan found {} rows, expected {}", rows.len(), expected.len()).into());
    }
    Ok(())
}

fn is_value(found: Option<&[u8]>, expected: Option<Payload>, scratch: &mut Vec<u8>) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some(found), Some(expected)) => {
            expected.expand_into(scratch);
            found == scratch.as_slice()
        }
        _ => false,
    }
}

/// What a value is, for people: its number and its length.
fn told(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".into(),
        Some(bytes) => match bytes.first_chunk::<4>() {
            Some(number) => format!("#{} ({} B)", u32::from_be_bytes(*number), bytes.len()),
            None => format!("{} B", bytes.len()),
        },
    }
}
