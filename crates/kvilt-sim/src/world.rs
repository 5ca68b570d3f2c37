//! What a store lives in — disk, clock, chance, workers — and the one place that knows which engine is
//! tested.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use kvilt_base::{Budget, Clock, Disk, Engine, Hand, Result, Rng, Spawn, Worker};
pub use kvilt_even::KINDS;
use kvilt_even::{Durability, Options, options::Compression};
use kvilt_io::{ManualClock, MemoryDisk, NativeClock, NativeSpawn, SeededRng, StepSpawn};
use kvilt_sync::published::settle;

use crate::{
    bystander::{Attended, Bystander, Moment},
    dice::Dice,
    passer::Passer,
    report::{Complaint, refused},
};

/// Steps after which workers of a small store must have come to rest.
const IDLE_STEPS_MAX: u32 = 20_000;

/// What a crash may take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No acknowledged write (sync mode).
    Nothing,
    /// When the process dies no acknowledged write; when the power goes, writes since the last sync, newest
    /// first (written mode).
    PowerOnly,
    /// Writes since the last sync, newest first (async mode).
    SinceSync,
}

/// A store under test: how it is opened, and what it promises.
pub trait Subject: Sync {
    /// Opens the store in this world, making it if the disk is empty.
    fn open(&self, world: &World) -> Result<Arc<dyn Engine>>;

    /// Opens the store in this world to be read only; none if this subject cannot.
    fn open_to_read(&self, world: &World) -> Option<Result<Arc<dyn Engine>>> {
        let _ = world;
        None
    }

    /// What a crash may take back.
    fn loss(&self) -> Loss;

    /// Bytes that files of a store at rest may hold beyond 1.3 times its rows.
    fn dead_bytes_at_rest(&self) -> u64;

    /// Bytes of memory that a munk may have before puts to it wait; 0 if it has none.
    fn munk_bytes_max(&self) -> u64;

    /// What is tested, with its options, for reports.
    fn name(&self) -> String;
}

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
        let memory = MemoryDisk::new(seed);
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
        self.bystander.look(Moment::Pause);
    }

    fn between(&self) {
        self.passer.come();
    }
}

/// The engine `even` with some options and memory.
#[derive(Clone, Debug)]
pub struct Even {
    /// Its options.
    pub options: Options,
    /// Its memory, in bytes.
    pub budget_bytes: u64,
}

/// How many configurations [`Even::of_seed`] goes through.
pub const CONFIGURATIONS: u64 = 36;

impl Even {
    /// Tiny limits, so that every path runs within a few dozen operations; asynchronous.
    pub fn tiny() -> Self {
        Even { options: Options::tiny(), budget_bytes: 256 << 10 }
    }

    /// Limits as users have them, so that few rows are one chunk; nothing is written for want of time.
    pub fn roomy() -> Self {
        let mut options = Options::default();
        options.durability = Durability::Async { interval: Duration::from_secs(3600) };
        Even { options, budget_bytes: 64 << 20 }
    }

    /// The configuration that a seed tests: one of [`CONFIGURATIONS`], by turns.
    pub fn of_seed(seed: u64) -> Self {
        Even::configuration(seed % CONFIGURATIONS)
    }

    /// A configuration by its number: the first is [`Even::tiny`], the others vary every limit from almost
    /// nothing to plenty; in turn they are asynchronous, synchronous, and written.
    pub fn configuration(number: u64) -> Self {
        let mut dice = Dice::new(number ^ 0xc0f1);
        let mut even = Even::tiny();
        if number > 0 {
            even.vary(&mut dice);
        }
        let interval = Duration::from_millis(*dice.pick(&[20, 300, 2_000]));
        even.options.durability = match number % 3 {
            0 => Durability::Async { interval },
            1 => Durability::Sync { interval },
            _ => Durability::Written { interval },
        };
        even
    }

    fn vary(&mut self, dice: &mut Dice) {
        let options = &mut self.options;
        options.chunk_bytes_max = *dice.pick(&[1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10]);
        options.chunk_bytes_rebalance = options.chunk_bytes_max / 4 * 3;
        options.chunk_bytes_min = options.chunk_bytes_rebalance / *dice.pick(&[2, 4, 16]);
        options.log_bytes_max_cold = *dice.pick(&[256, 1 << 10, 4 << 10]);
        options.log_bytes_max_cached = options.log_bytes_max_cold * *dice.pick(&[1, 4, 16]);
        options.log_bytes_max_unread = options.log_bytes_max_cold * *dice.pick(&[1, 6, 40]);
        options.log_buffer_bytes_max = *dice.pick(&[64, 512, 8 << 10]);
        options.block_bytes = *dice.pick(&[64, 256, 4 << 10]);
        options.row_cache_percent = *dice.pick(&[0, 10, 60]) as u32;
        options.compression = *dice.pick(&[Compression::None, Compression::Lz4]);
        self.budget_bytes = *dice.pick(&[1, 16 << 10, 64 << 10, 256 << 10, 64 << 20]);
        self.options.dead_bytes_slack = *dice.pick(&[1 << 10, 16 << 10, 64 << 20]);
        // In most less than a row, so that rewrites and scans take all rows as they take large ones
        // elsewhere.
        self.options.streamed_bytes_min = *dice.pick(&[64, 200, 1 << 20]);
    }

    /// The same, synchronous.
    #[must_use]
    pub fn synchronous(mut self) -> Self {
        self.options.durability = Durability::Sync { interval: Duration::from_millis(300) };
        self
    }
}

/// Memory of who only reads: what commit logs hold must have room in a part of it.
const READERS_BUDGET_BYTES: u64 = 64 << 20;

impl Even {
    fn open_in(
        &self,
        world: &World,
        budget_bytes: u64,
        options: kvilt_even::Options,
    ) -> Result<Arc<dyn Engine>> {
        let around = kvilt_base::World {
            clock: world.clock(),
            rng: world.rng(),
            spawn: world.spawn(),
            budget: Budget::new(budget_bytes),
        };
        kvilt_even::open(world.disk(), around, options)
    }
}

impl Subject for Even {
    fn open(&self, world: &World) -> Result<Arc<dyn Engine>> {
        self.open_in(world, self.budget_bytes, self.options.clone())
    }

    fn open_to_read(&self, world: &World) -> Option<Result<Arc<dyn Engine>>> {
        let mut options = self.options.clone();
        options.read_only = true;
        Some(self.open_in(world, READERS_BUDGET_BYTES, options))
    }

    fn loss(&self) -> Loss {
        match self.options.durability {
            Durability::Sync { .. } => Loss::Nothing,
            Durability::Written { .. } => Loss::PowerOnly,
            Durability::Async { .. } => Loss::SinceSync,
        }
    }

    fn dead_bytes_at_rest(&self) -> u64 {
        self.options.dead_bytes_slack / 4
    }

    fn munk_bytes_max(&self) -> u64 {
        let Options { chunk_bytes_max, chunk_bytes_rebalance, .. } = self.options;
        // As chunks shrink with the budget; puts wait from twice their most on. A row of up to an eighth of
        // it is not too large for a munk.
        let fitted = chunk_bytes_rebalance.min((self.budget_bytes / 16).max(4 << 10));
        2 * fitted * chunk_bytes_max / chunk_bytes_rebalance + (self.budget_bytes / 8).max(4 << 10)
    }

    fn name(&self) -> String {
        format!("even with {} bytes of memory and {:?}", self.budget_bytes, self.options)
    }
}
