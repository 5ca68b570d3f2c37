//! What a store under test lives in: disk, clock, chance, workers.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use kvilt_base::{Budget, Clock, Disk, Engine, Hand, Rng, Spawn, Worker};
use kvilt_io::{ManualClock, MemoryDisk, NativeClock, NativeSpawn, SeededRng, StepSpawn};
use kvilt_sync::published::settle;

use crate::{
    bystander::{Attended, Bystander},
    dice::Dice,
    passer::Passer,
    report::{Complaint, refused},
};

/// Steps after which workers of a small store must have come to rest.
const IDLE_STEPS_MAX: u32 = 20_000;

/// Everything around a store. In a stepped world one thread does all, by seed; in a threaded one workers have
/// threads of their own.
pub struct World {
    disk: Arc<dyn Disk>,
    /// Where copies of the store are found again; none if the disk is not in memory.
    memory: Option<Arc<MemoryDisk>>,
    clock: Arc<dyn Clock>,
    spawn: Arc<dyn Spawn>,
    rng: Arc<SeededRng>,
    /// Clock and workers again, if they are moved by hand.
    by_hand: Option<(Arc<ManualClock>, Arc<StepSpawn>)>,
    bystander: Arc<Bystander>,
    passer: Arc<Passer>,
    copies: AtomicU32,
    seed: u64,
    _counted: Counted,
}

/// Worlds that there are in this process.
static WORLDS: AtomicU32 = AtomicU32::new(0);

/// One of them.
struct Counted;

impl Counted {
    fn new() -> Self {
        WORLDS.fetch_add(1, Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        WORLDS.fetch_sub(1, Relaxed);
    }
}

impl World {
    /// A stepped world over `disk`, which is, or wraps, `memory`.
    ///
    /// Garbage of earlier stores is collected first: gauges of memory count what waits for it, so a store's
    /// decisions would depend on what ran before. For the same reason a run that must be repeatable has a
    /// thread of its own, and none beside it.
    pub fn stepped(disk: Arc<dyn Disk>, memory: Arc<MemoryDisk>, seed: u64) -> World {
        settle();
        let clock = ManualClock::new();
        let spawn = StepSpawn::new(Arc::clone(&clock), seed);
        let (bystander, passer) = (Arc::<Bystander>::default(), Arc::<Passer>::default());
        World {
            disk: Arc::new(Attended { disk, bystander: Arc::clone(&bystander) }),
            memory: Some(memory),
            clock: clock.clone(),
            spawn: Arc::new(Alone {
                spawn: spawn.clone(),
                bystander: Arc::clone(&bystander),
                passer: Arc::clone(&passer),
            }),
            rng: Arc::new(SeededRng::new(seed)),
            by_hand: Some((clock, spawn)),
            bystander,
            passer,
            copies: AtomicU32::new(0),
            seed,
            _counted: Counted::new(),
        }
    }

    /// A stepped world over a fresh disk in memory.
    pub fn fresh(seed: u64) -> World {
        let memory = MemoryDisk::of_any_kind(seed);
        World::stepped(memory.clone(), memory, seed)
    }

    /// A world whose workers run on threads.
    pub fn threaded(disk: Arc<dyn Disk>, seed: u64) -> World {
        World {
            disk,
            memory: None,
            clock: Arc::new(NativeClock::new()),
            spawn: Arc::new(NativeSpawn::new()),
            rng: Arc::new(SeededRng::new(seed)),
            by_hand: None,
            bystander: Arc::default(),
            passer: Arc::default(),
            copies: AtomicU32::new(0),
            seed,
            _counted: Counted::new(),
        }
    }

    /// Whether it is the only one in this process.
    pub fn is_alone(&self) -> bool {
        WORLDS.load(Relaxed) == 1
    }

    /// What chance was made from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The disk.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// The clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Chance.
    pub fn rng(&self) -> Arc<dyn Rng> {
        self.rng.clone()
    }

    /// Who may write while the background waits for the disk; only in a stepped world.
    pub fn bystander(&self) -> &Bystander {
        &self.bystander
    }

    /// Who may come between two steps of a write; only in a stepped world.
    pub fn passer(&self) -> &Passer {
        &self.passer
    }

    /// What starts workers.
    pub fn spawn(&self) -> Arc<dyn Spawn> {
        Arc::clone(&self.spawn)
    }

    /// What an engine is given of it, beside the disk, with so much memory.
    pub fn around(&self, budget_bytes: u64) -> kvilt_base::World {
        kvilt_base::World {
            clock: self.clock(),
            rng: self.rng(),
            spawn: self.spawn(),
            budget: Budget::new(budget_bytes),
        }
    }

    /// The disk in memory, if there is one.
    pub fn memory(&self) -> Option<&Arc<MemoryDisk>> {
        self.memory.as_ref()
    }

    /// Runs up to `steps` steps of workers, chosen by the seed; does nothing in a threaded world.
    pub fn step_background(&self, steps: u16, seed: u64) {
        let Some((_, spawn)) = &self.by_hand else { return };
        let mut dice = Dice::new(seed);
        for _ in 0..steps {
            if !spawn.step(dice.number()) {
                break;
            }
        }
    }

    /// Runs workers until none has anything to do; does nothing in a threaded world. Says who never rests.
    pub fn step_until_idle(&self) -> Result<(), Complaint> {
        let Some((_, spawn)) = &self.by_hand else { return Ok(()) };
        for _ in 0..IDLE_STEPS_MAX {
            if !spawn.step(self.rng.next_u64()) {
                return Ok(());
            }
        }
        Err(format!("workers never rest: {:?}", spawn.ready()).into())
    }

    /// Lets time pass; does nothing in a threaded world.
    pub fn advance(&self, ms: u32) {
        if let Some((clock, _)) = &self.by_hand {
            clock.advance(Duration::from_millis(u64::from(ms)));
        }
    }

    /// Copies a store of this world to a new directory, and returns a world around the copy; none if this
    /// world could not find it again.
    pub fn copy(&self, engine: &dyn Engine) -> Result<Option<World>, Complaint> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let number = self.copies.fetch_add(1, Relaxed);
        let path = PathBuf::from(format!("copy-{}-{number}", self.seed));
        engine.checkpoint_to(&path).map_err(refused("copy"))?;
        let disk = memory.directory(&path).ok_or("a copy made no directory")?;
        Ok(Some(World::stepped(disk.clone(), disk, self.seed ^ u64::from(number))))
    }
}

/// Workers of a stepped world, where nobody else moves while somebody waits: within a step, as a bystander's
/// put is, a wait would last as long as its limit, in real time, and change nothing.
struct Alone {
    spawn: Arc<StepSpawn>,
    bystander: Arc<Bystander>,
    passer: Arc<Passer>,
}

impl Spawn for Alone {
    fn spawn(&self, name: &str, worker: Box<dyn Worker>) -> Arc<dyn Hand> {
        self.spawn.spawn(name, worker)
    }

    fn help(&self) -> bool {
        if !self.bystander.is_putting() {
            self.spawn.help();
        }
        true
    }

    fn pause(&self) {
        self.bystander.look();
    }

    fn between(&self) {
        self.passer.come();
    }
}
