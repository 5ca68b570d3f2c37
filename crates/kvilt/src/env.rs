//! `Env`: what the stores of one process share — memory, time, chance and background threads.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use kvilt_base::{Budget, Clock, Error, Result, Rng, Spawn, World};
use kvilt_io::{NativeClock, NativeRng, NativeSpawn};
use kvilt_sync::Home;

use crate::{machine, pool::Pool};

/// The default budget is this part of the memory the process may use: enough to cache well, little enough to
/// leave room for the application and for the system's page cache.
const MEMORY_SHARE: u64 = 4;

/// Smallest memory budget, in bytes. Below it the buffers that every store needs would not fit.
pub(crate) const BUDGET_BYTES_MIN: u64 = 1 << 20;

/// What several stores of one process share: one memory budget, and what runs in the background.
///
/// A program with one store need not know it: [`crate::Db::open`] uses the process's own, [`Env::process`]. A
/// program with many small stores opens them in one `Env`, and one number bounds the memory of all of them:
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let directory = dir.path();
/// let env = kvilt::Env::new(64 << 20)?;
/// let tenants: Vec<kvilt::Db> = (0..3)
///     .map(|i| kvilt::Db::builder(directory.join(format!("tenant-{i}"))).env(&env).open())
///     .collect::<kvilt::Result<_>>()?;
/// tenants[0].put("k", "v")?;
/// assert!(env.memory_used_bytes() <= env.memory_budget_bytes());
/// # Ok(())
/// # }
/// ```
///
/// Its stores also share a few threads for their background work: one more than there is work at the moment,
/// so a thousand idle stores have one, which waits until something changes. Cheap to clone; all clones are
/// the same. Open files are shared by all stores of a process in any case: at most half of the limit on
/// descriptors.
#[derive(Clone)]
pub struct Env(Arc<Shared>);

struct Shared {
    budget: Arc<Budget>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    spawn: Arc<dyn Spawn>,
    /// Its threads are this process's; a child made by `fork` has none of them.
    home: Home,
}

impl Env {
    /// An environment whose stores together use `memory_budget_bytes` of memory.
    ///
    /// Errors: `InvalidArgument` below 1 MiB; `Io` if the system gives no random numbers.
    pub fn new(memory_budget_bytes: u64) -> Result<Env> {
        if memory_budget_bytes < BUDGET_BYTES_MIN {
            return Err(Error::invalid(format!(
                "the memory budget is {memory_budget_bytes} bytes; it must be at least {BUDGET_BYTES_MIN}"
            ))
            .by_setting("memory_budget"));
        }
        let rng = NativeRng::new().map_err(|error| Error::io("ask the system for random numbers", error))?;
        let clock: Arc<dyn Clock> = Arc::new(NativeClock::new());
        let pool = Pool::new(Arc::new(NativeSpawn::new()), Arc::clone(&clock));
        Ok(Env(Arc::new(Shared {
            budget: Budget::new(memory_budget_bytes),
            clock,
            rng: Arc::new(rng),
            spawn: Arc::new(pool),
            home: Home::here(),
        })))
    }

    /// The process's own: what stores use that name no other. Its budget is a quarter of the memory that the
    /// process may use; limits of control groups (containers), version 1 and 2, are respected. A child made
    /// by `fork` gets one of its own.
    ///
    /// Errors: `Io` if the system gives no random numbers.
    pub fn process() -> Result<Env> {
        static PROCESS: Mutex<Option<Env>> = Mutex::new(None);
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(env) = process.as_ref().filter(|env| env.0.home.is_here()) {
            return Ok(env.clone());
        }
        let env = Env::new((machine::memory_bytes() / MEMORY_SHARE).max(BUDGET_BYTES_MIN))?;
        // What a child inherited is not to be taken down by it.
        std::mem::forget(process.replace(env.clone()));
        Ok(env)
    }

    /// The memory that its stores may use together, in bytes.
    pub fn memory_budget_bytes(&self) -> u64 {
        self.0.budget.bytes_max()
    }

    /// The memory that its stores use now, in bytes.
    pub fn memory_used_bytes(&self) -> u64 {
        self.0.budget.used_in_all()
    }

    pub(crate) fn world(&self) -> Result<World> {
        self.0.home.allow_write()?;
        Ok(World {
            clock: Arc::clone(&self.0.clock),
            rng: Arc::clone(&self.0.rng),
            spawn: Arc::clone(&self.0.spawn),
            budget: Arc::clone(&self.0.budget),
        })
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Env({:?})", self.0.budget)
    }
}
