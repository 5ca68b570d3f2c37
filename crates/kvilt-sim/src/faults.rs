//! A disk fault at every call of a script, and what the store may do about it.
//!
//! A script is played over a disk on which one chosen call fails. After that
//!
//! 1. only the operations that needed the call may fail, and those of a store that is poisoned or has no
//!    room; with an error of a kind that fits the fault, never a panic, never as corruption;
//! 2. every answer is still right: a refused write is not visible, reads go on, also when poisoned (B-6);
//! 3. an interrupted or short read or write is no fault at all: nothing fails;
//! 4. a failed sync poisons, always; nothing else does but a panic, and in sync mode a durable write that
//!    could not be applied;
//! 5. once the disk is well again, a store that is not poisoned takes writes;
//! 6. after a power cut the promise of [`crate::crash`] holds; the refused write that came last may be in,
//!    whole.
//!
//! A call that *panics* stands for a bug in our own code below an operation, or in a worker: the operation is
//! as good as refused, nobody hangs, and 2, 5 and 6 hold.

mod full;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use kvilt_base::{Direction, Error, ErrorKind, Level};
use kvilt_io::{Call, Fault, FaultyDisk, Keep, MemoryDisk, PLANNED_PANIC, Times};

use crate::{
    dice::mix,
    ledger::{Ledger, Promise},
    model::{Model, State, fingerprint, state_of_rows},
    reading::Manner,
    report::{Complaint, Failure, catching_panics},
    run::{Player, all_rows, check_soundness},
    script::{Payload, Script, Step},
    subject::Subject,
    world::World,
};

/// Which call fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The kind of call.
    pub call: Call,
    /// How many of its kind pass before.
    pub passes: u64,
    /// How it fails.
    pub fault: Fault,
    /// Once, or from then on until the script has ended.
    pub times: Times,
}

/// A script, the store that it is played on, and the disk that it begins with.
pub struct Case<'a> {
    /// What is tested.
    pub subject: &'a dyn Subject,
    /// What is done.
    pub script: &'a Script,
    /// Decides what chance does.
    pub seed: u64,
    /// What an earlier run left, and what is in it; none for an empty disk.
    pub origin: Option<(Arc<MemoryDisk>, State)>,
}

/// What a case's runs amounted to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    /// Disk calls of the script without a fault.
    pub calls: u64,
    /// Of these, how many were to fail.
    pub chosen: u64,
    /// Of these, how many met each kind of fault that was planned for them.
    pub points: u64,
    /// Runs with a fault.
    pub runs: u64,
}

impl Coverage {
    /// Adds another case's.
    pub fn add(&mut self, other: Coverage) {
        self.calls += other.calls;
        self.chosen += other.chosen;
        self.points += other.points;
        self.runs += other.runs;
    }
}

impl<'a> Case<'a> {
    /// A script on an empty disk.
    pub fn new(subject: &'a dyn Subject, script: &'a Script, seed: u64) -> Self {
        Case { subject, script, seed, origin: None }
    }

    /// Lets each call of the trouble's kind fail in its way, whatever its number; the first failure. For
    /// reducing: the same call is not the same number in a shorter script.
    pub fn find_alike(&self, trouble: Trouble) -> Option<Failure> {
        let calls = self.count_calls();
        let count = calls.into_iter().find(|(call, _)| *call == trouble.call)?.1;
        (0..count).rev().find_map(|passes| self.endure(Trouble { passes, ..trouble }).err())
    }

    /// Lets every `stride`-th call of each kind fail in each way. `coverage` counts up to the failure, if
    /// there is one.
    pub fn explore(&self, stride: u64, coverage: &mut Coverage) -> Result<(), (Trouble, Failure)> {
        self.explore_from(mix(self.seed) % stride, stride, coverage)
    }

    /// The same from the call with the number `first` on.
    pub fn explore_from(
        &self,
        first: u64,
        stride: u64,
        coverage: &mut Coverage,
    ) -> Result<(), (Trouble, Failure)> {
        for (call, count) in self.count_calls() {
            coverage.calls += count;
            for passes in (first..count).step_by(stride as usize) {
                coverage.chosen += 1;
                let mut has_met_all = true;
                for (fault, times) in faults_of(call) {
                    let trouble = Trouble { call, passes, fault, times };
                    coverage.runs += 1;
                    has_met_all &= self.endure(trouble).map_err(|failure| (trouble, failure))?;
                }
                coverage.points += u64::from(has_met_all);
            }
        }
        Ok(())
    }

    /// How many calls of each kind the script makes if none fails.
    fn count_calls(&self) -> Vec<(Call, u64)> {
        let memory = self.memory();
        let faulty = FaultyDisk::new(memory.clone());
        let none = Trouble { call: Call::Lock, passes: u64::MAX, fault: Fault::Short, times: Times::Once };
        let mut counts = Vec::new();
        // What goes wrong without a fault is another test's affair.
        let _ = self.play(&memory, &faulty, none, &AtomicUsize::new(0), |patient, _| {
            counts = Call::ALL.iter().map(|call| (*call, faulty.calls(*call))).collect();
            patient.player.abandon();
            Ok(())
        });
        counts
    }

    /// The disk that it begins with, anew.
    pub(crate) fn memory(&self) -> Arc<MemoryDisk> {
        match &self.origin {
            Some((disk, _)) => disk.crash_image(Keep::All),
            None => MemoryDisk::of_any_kind(self.seed),
        }
    }
}

/// The ways in which a call is made to fail.
fn faults_of(call: Call) -> impl Iterator<Item = (Fault, Times)> {
    use Fault::{Interrupted, Io, LostSync, NoSpace, Panic, Short, TooManyFiles};
    use Times::{Always, Once};
    let all = [
        (Io, Once),
        (NoSpace, Once),
        (NoSpace, Always),
        (Interrupted, Once),
        (TooManyFiles, Once),
        (Panic, Once),
    ];
    let own: &[(Fault, Times)] = match call {
        Call::Read | Call::Write => &[(Short, Once)],
        Call::Sync | Call::QueueWrite => &[(LostSync, Once)],
        _ => &[],
    };
    all.into_iter().chain(own.iter().copied())
}

impl Case<'_> {
    /// Plays the script over a disk with one fault; says whether that was met.
    pub fn endure(&self, trouble: Trouble) -> Result<bool, Failure> {
        let memory = self.memory();
        let faulty = FaultyDisk::new(memory.clone());
        faulty.fail(Some(trouble.call), trouble.passes, trouble.fault, trouble.times);
        let step = AtomicUsize::new(0);
        let outcome: Result<(), Complaint> = catching_panics(|| {
            let finish = |patient: Patient<'_>, world: &World| patient.finish(&memory, self.seed, world);
            self.play(&memory, &faulty, trouble, &step, finish)
        });
        outcome.map_err(|complaint| Failure {
            step: step.load(Relaxed),
            message: complaint.to_string(),
            crash: Some(format!("{trouble:?}")),
        })?;
        Ok(faulty.met() > 0)
    }

    /// Plays the script and leaves the rest to `then`.
    fn play(
        &self,
        memory: &Arc<MemoryDisk>,
        faulty: &Arc<FaultyDisk>,
        trouble: Trouble,
        step: &AtomicUsize,
        then: impl FnOnce(Patient<'_>, &World) -> Result<(), Complaint>,
    ) -> Result<(), Complaint> {
        let world = World::stepped(faulty.clone(), memory.clone(), self.seed);
        let script = with_coda(self.script);
        let mut player = Player::new(self.subject, &world, &script, Arc::new(Ledger::default()));
        if let Some((_, state)) = &self.origin {
            player.adopt(Model::with(state.clone()));
        }
        let mut patient = Patient {
            subject: self.subject,
            script: &script,
            player,
            faulty,
            trouble,
            refused: Vec::new(),
            is_poisoned: false,
            met_before: 0,
            is_excused: false,
        };
        patient.open()?;
        for position in 0..self.script.steps.len() {
            step.store(position, Relaxed);
            patient.play(position)?;
        }
        step.store(self.script.steps.len(), Relaxed);
        then(patient, &world)
    }
}

/// The script, and a write behind it that shows that the store still takes some.
fn with_coda(script: &Script) -> Script {
    let mut script = script.clone();
    script.steps.push(Step::Put(0, Payload { number: u32::MAX, bytes: 40 }));
    script
}

/// A store on a disk with a fault.
struct Patient<'a> {
    subject: &'a dyn Subject,
    script: &'a Script,
    player: Player<'a>,
    faulty: &'a FaultyDisk,
    trouble: Trouble,
    /// The states that each write refused since the last acknowledged one would have made.
    refused: Vec<u64>,
    is_poisoned: bool,
    /// Faults met before the store was opened last.
    met_before: u64,
    /// Whether the fault met the writing of a copy: whether it was the copy's sync or the store's own, for
    /// the checkpoint before it, cannot be told from outside.
    is_excused: bool,
}

/// Calls `body`, which is unwound by a planned panic or not at all.
fn unless_panicked<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).map_or_else(
        |panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            if text != Some(PLANNED_PANIC) {
                std::panic::resume_unwind(panic);
            }
            None
        },
        Some,
    )
}

impl Patient<'_> {
    /// Opens the store; if that is refused, again on a disk that is well.
    fn open(&mut self) -> Result<(), Complaint> {
        let outcome = match unless_panicked(|| self.player.open()) {
            Some(Ok(())) => Ok(()),
            Some(Err(Complaint::Refused(_, error))) => {
                self.judge(&error)?;
                self.faulty.heal();
                self.player.open()
            }
            Some(wrong) => wrong,
            None => self.player.open(),
        };
        self.met_before = self.faulty.met();
        self.is_poisoned = false;
        outcome
    }

    fn play(&mut self, position: usize) -> Result<(), Complaint> {
        let step = &self.script.steps[position];
        let met = self.faulty.met();
        let outcome = unless_panicked(|| self.player.play(position));
        if *step == Step::Reopen && matches!(outcome, Some(Ok(()))) {
            self.met_before = self.faulty.met();
            self.is_poisoned = false;
        }
        self.is_excused |= *step == Step::Copy && self.faulty.met() > met;
        match outcome {
            Some(Ok(())) => {
                if step.is_write() {
                    self.refused.clear();
                }
                Ok(())
            }
            Some(Err(Complaint::Refused(_, error))) => {
                self.judge(&error)?;
                self.is_withdrawn()
            }
            Some(wrong) => wrong,
            None => self.is_withdrawn(),
        }
    }

    /// The last step was refused, or ended by a panic: a write is as good as not called, a close closed.
    fn is_withdrawn(&mut self) -> Result<(), Complaint> {
        self.refused.extend(self.player.withdraw());
        if self.player.is_open() { Ok(()) } else { self.reopen() }
    }

    /// A close or an open within the script was refused: the next open, on a disk that is well, keeps the
    /// promise.
    fn reopen(&mut self) -> Result<(), Complaint> {
        self.faulty.heal();
        self.player.open()?;
        self.is_poisoned = false;
        self.met_before = self.faulty.met();
        let state = recovered(&self.player, self.script, &self.allowed())?;
        self.player.adopt(Model::with(state));
        self.refused.clear();
        Ok(())
    }

    /// Fingerprints of the states that may be found after a power cut now.
    fn allowed(&self) -> Vec<u64> {
        let Promise { safe, begun, .. } = self.player.promise();
        let mut allowed = self.player.states()[safe..=begun].to_vec();
        allowed.extend(&self.refused);
        allowed
    }

    /// Whether an error fits the fault.
    fn judge(&mut self, error: &Error) -> Result<(), Complaint> {
        let Trouble { call, fault, .. } = self.trouble;
        let kind = error.kind();
        self.is_poisoned |= kind == ErrorKind::Poisoned;
        let is_transfer = matches!(call, Call::Read | Call::Write);
        let is_harmless = fault == Fault::Short || (is_transfer && fault == Fault::Interrupted);
        let fits = match kind {
            ErrorKind::Io => !matches!(fault, Fault::NoSpace | Fault::Panic) || self.is_excused,
            ErrorKind::NoSpace => fault == Fault::NoSpace,
            ErrorKind::Poisoned => self.may_be_poisoned(),
            _ => false,
        };
        if is_harmless || !fits {
            return Err(format!("{:?} made an operation fail with {error:?}", self.trouble).into());
        }
        Ok(())
    }

    /// Whether the store must be poisoned: a sync of its own failed since it was opened.
    fn must_be_poisoned(&self) -> bool {
        let is_sync = matches!(self.trouble.call, Call::Sync | Call::SyncDir);
        is_sync
            && self.faulty.met() > self.met_before
            && !self.is_excused
            && !matches!(self.trouble.fault, Fault::Short | Fault::Panic)
    }

    /// Whether it may be. A full disk is met by waiting, with a commit log too.
    fn may_be_poisoned(&self) -> bool {
        let Trouble { call, fault, .. } = self.trouble;
        let is_sync = matches!(call, Call::Sync | Call::SyncDir);
        let has_commit_log = self.subject.level() == Level::Sync;
        let may_fail_to_apply = has_commit_log && fault != Fault::NoSpace;
        is_sync || fault == Fault::Panic || may_fail_to_apply || self.is_excused
    }

    /// The disk is well again: everything reads, an unpoisoned store writes, and a power cut leaves a prefix.
    fn finish(mut self, memory: &Arc<MemoryDisk>, seed: u64, world: &World) -> Result<(), Complaint> {
        let must_be_poisoned = self.must_be_poisoned();
        self.faulty.heal();
        self.player.compare_all()?;
        match self.player.engine().sync() {
            // The fault may have met the background, which nobody has heard of yet.
            Err(error) if error.kind() == ErrorKind::Poisoned => self.judge(&error)?,
            Err(error) => return Err(Complaint::Refused("sync on a disk that is well", error)),
            Ok(()) if must_be_poisoned => return Err("a failed sync has not poisoned the store".into()),
            Ok(()) if self.is_poisoned => return Err("a poisoned store takes writes again".into()),
            Ok(()) => {
                self.refused.clear();
                self.player.play(self.script.steps.len() - 1)?;
                world.advance(1_000);
                world.step_until_idle()?;
                check_soundness(&*self.player.engine())?;
            }
        }
        let allowed = self.allowed();
        let images = [Keep::SyncedOnly, Keep::All, Keep::Random(seed)].map(|keep| memory.crash_image(keep));
        self.player.abandon();
        for image in images {
            let world = World::stepped(image.clone(), image, seed);
            let mut player = Player::new(self.subject, &world, self.script, Arc::default());
            player.open()?;
            recovered(&player, self.script, &allowed)?;
            player.close()?;
        }
        Ok(())
    }
}

/// What an open store contains, which must be one of the allowed states.
pub(crate) fn recovered(player: &Player<'_>, script: &Script, allowed: &[u64]) -> Result<State, Complaint> {
    let engine = player.engine();
    let rows = all_rows(&*engine, Manner::whole(Direction::Forward))?;
    let state = state_of_rows(script, &rows)?;
    if !allowed.contains(&fingerprint(&state)) {
        let rows = state.len();
        return Err(
            format!("recovered a state of {rows} rows that is none of {} allowed", allowed.len()).into()
        );
    }
    check_soundness(&*engine)?;
    Ok(state)
}
