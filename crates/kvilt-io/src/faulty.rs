//! `FaultyDisk`: a disk that fails where a test says, and counts the calls.
//!
//! What is always true: a call that fails was not passed on, and a call that does not fail was passed on
//! unchanged (a shortened one with fewer bytes). Without plans it is the disk inside.

mod queue;

use std::{any::Any, fmt, io, path::Path, sync::Arc};

use kvilt_base::{
    Disk, File, FileName, Listed, Mapping, Queue, disk::Habitat, disk::LockFailure, queue::BLOCK_BYTES,
};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::MemoryDisk;
use queue::FaultyQueue;

/// Declares the kinds of calls together with the list of them all.
macro_rules! calls {
    ($($name:ident: $what:ty => $method:ident,)+) => {
        /// Which call on a disk or a file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Call {
            $(
                #[doc = concat!("[`", stringify!($what), "::", stringify!($method), "`].")]
                $name,
            )+
        }

        impl Call {
            /// Every one, in the order of the declaration.
            pub const ALL: &[Call] = &[$(Call::$name),+];
        }
    };
}

calls! {
    Create: Disk => create,
    Open: Disk => open,
    Read: File => read_at,
    Write: File => write_at,
    Allocate: File => allocate,
    Sync: File => sync,
    SyncDir: Disk => sync_dir,
    Rename: Disk => rename,
    Remove: Disk => remove,
    Link: Disk => link,
    NewDirectory: Disk => new_directory,
    List: Disk => list,
    Lock: Disk => lock,
    Len: File => len,
    Queue: Disk => queue,
    QueueRead: Queue => submit,
    QueueWrite: Queue => submit,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// `EIO`: the device failed.
    Io,
    /// `ENOSPC`: the disk is full.
    NoSpace,
    /// `EINTR`: a signal came first. Transfers of queues pass, as above.
    Interrupted,
    /// `EMFILE`: the process is out of descriptors.
    TooManyFiles,
    /// A read or write of half the bytes, at least one. Other calls pass, those of queues too: these go on by
    /// themselves.
    Short,
    /// A sync that fails once and for good: it says `EIO`, later ones succeed and reads show the new bytes,
    /// but what was written since the last good one never reaches the platter
    /// ([`MemoryDisk::set_sync_failure_at`]). A durable write of a queue is passed on and the first to
    /// complete is such a sync, unless another comes before. On a disk that is not in memory, and for other
    /// calls, like [`Fault::Io`].
    LostSync,
    /// The call panics, with [`PLANNED_PANIC`] for its message.
    Panic,
}

/// What a [`Fault::Panic`] says.
pub const PLANNED_PANIC: &str = "a test planned this panic";

/// How often a planned fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Times {
    /// At one call.
    Once,
    /// At that call and every matching one after it, until [`FaultyDisk::heal`].
    Always,
}

/// A disk around another that fails on order. Shared freely; all its files and directories count together.
///
/// ```
/// use kvilt_base::{Disk, File, FileName, disk::FileKind};
/// const LOG: FileKind = FileKind::new("log");
/// use kvilt_io::{Call, Fault, FaultyDisk, MemoryDisk, Times};
///
/// let disk = FaultyDisk::new(MemoryDisk::new(1));
/// disk.fail(Some(Call::Write), 1, Fault::NoSpace, Times::Once);
/// let file = disk.create(FileName::Of(LOG, 1))?;
/// assert!(file.write_at(0, b"first").is_ok());
/// assert!(file.write_at(5, b"second").is_err());
/// assert!(file.write_at(5, b"third").is_ok());
/// assert_eq!(disk.calls(Call::Write), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FaultyDisk {
    inside: Arc<dyn Disk>,
    orders: Arc<Mutex<Orders>>,
}

#[derive(Default)]
struct Orders {
    plans: Vec<Plan>,
    calls: [u64; Call::ALL.len()],
    met: u64,
}

struct Plan {
    /// None: any call.
    call: Option<Call>,
    /// Matching calls that still pass.
    passes: u64,
    fault: Fault,
    times: Times,
}

impl Orders {
    /// Counts a call and says how it fails. Every plan that matches counts it, also when another one fires.
    fn meet(&mut self, call: Call) -> Option<Fault> {
        self.calls[call as usize] += 1;
        let mut met = None;
        self.plans.retain_mut(|plan| {
            if plan.call.is_some_and(|planned| planned != call) {
                return true;
            }
            if plan.passes > 0 {
                plan.passes -= 1;
                return true;
            }
            if met.is_some() {
                return true;
            }
            met = Some(plan.fault);
            plan.times == Times::Always
        });
        self.met += u64::from(met.is_some());
        met
    }
}

impl Fault {
    /// The error; none for a short call.
    fn error(self) -> Option<io::Error> {
        let errno = match self {
            Fault::Panic => panic!("{PLANNED_PANIC}"),
            Fault::Io | Fault::LostSync => Errno::IO,
            Fault::NoSpace => Errno::NOSPC,
            Fault::Interrupted => Errno::INTR,
            Fault::TooManyFiles => Errno::MFILE,
            Fault::Short => return None,
        };
        Some(errno.into())
    }
}

impl FaultyDisk {
    /// A disk that behaves as `inside` until told otherwise.
    pub fn new(inside: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(FaultyDisk { inside, orders: Arc::default() })
    }

    /// Plans a fault: `nth` more calls of this kind (none: of any kind) pass, the next one fails.
    pub fn fail(&self, call: Option<Call>, nth: u64, fault: Fault, times: Times) {
        self.orders.lock().plans.push(Plan { call, passes: nth, fault, times });
    }

    /// Takes all plans back.
    pub fn heal(&self) {
        self.orders.lock().plans.clear();
    }

    /// How many plans have not ended: those that were never reached, and those that go on.
    pub fn open_plans(&self) -> usize {
        self.orders.lock().plans.len()
    }

    /// How many calls have met a fault so far.
    pub fn met(&self) -> u64 {
        self.orders.lock().met
    }

    /// How many calls of this kind there were, failed ones included.
    pub fn calls(&self, call: Call) -> u64 {
        self.orders.lock().calls[call as usize]
    }

    /// How many calls of all kinds there were.
    pub fn calls_in_all(&self) -> u64 {
        self.orders.lock().calls.iter().sum()
    }

    fn meet(&self, call: Call) -> io::Result<()> {
        meet(&self.orders, call)
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultyFile { inside: file, disk: self.inside.clone(), orders: self.orders.clone() })
    }
}

fn meet(orders: &Mutex<Orders>, call: Call) -> io::Result<()> {
    let fault = orders.lock().meet(call);
    fault.and_then(Fault::error).map_or(Ok(()), Err)
}

impl Disk for FaultyDisk {
    fn create(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.meet(Call::Create)?;
        Ok(self.wrap(self.inside.create(name)?))
    }

    fn open(&self, name: FileName) -> io::Result<Arc<dyn File>> {
        self.meet(Call::Open)?;
        Ok(self.wrap(self.inside.open(name)?))
    }

    fn rename(&self, from: FileName, to: FileName) -> io::Result<()> {
        self.meet(Call::Rename)?;
        self.inside.rename(from, to)
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        self.meet(Call::Remove)?;
        self.inside.remove(name)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        self.meet(Call::List)?;
        self.inside.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.meet(Call::SyncDir)?;
        self.inside.sync_dir()
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.meet(Call::Lock).map_err(LockFailure::Io)?;
        self.inside.lock()
    }

    fn lock_shared(&self) -> Result<Box<dyn Any + Send + Sync>, LockFailure> {
        self.meet(Call::Lock).map_err(LockFailure::Io)?;
        self.inside.lock_shared()
    }

    fn sign(&self, lock: &(dyn Any + Send + Sync)) -> io::Result<()> {
        self.inside.sign(lock)
    }

    fn new_directory(&self, path: &Path) -> io::Result<Arc<dyn Disk>> {
        self.meet(Call::NewDirectory)?;
        let inside = self.inside.new_directory(path)?;
        Ok(Arc::new(FaultyDisk { inside, orders: self.orders.clone() }))
    }

    fn link(&self, name: FileName, into: &dyn Disk) -> io::Result<()> {
        self.meet(Call::Link)?;
        self.inside.link(name, into)
    }

    fn remove_if_made(&self) {
        self.inside.remove_if_made();
    }

    fn queue(&self, depth: usize) -> io::Result<Arc<dyn Queue>> {
        self.meet(Call::Queue)?;
        let queue = self.inside.queue(depth)?;
        Ok(Arc::new(FaultyQueue::new(queue, self.inside.clone(), self.orders.clone())))
    }

    fn habitat(&self) -> io::Result<Habitat> {
        self.inside.habitat()
    }

    fn now_ns(&self) -> u64 {
        self.inside.now_ns()
    }

    fn place(&self) -> String {
        self.inside.place()
    }

    fn close(&self) {
        self.inside.close();
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.inside.as_any()
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyDisk({:?})", self.inside)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inside: Arc<dyn File>,
    disk: Arc<dyn Disk>,
    orders: Arc<Mutex<Orders>>,
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} plans", self.plans.len())
    }
}

/// The disk in memory that this is, if it is one.
fn memory(disk: &dyn Disk) -> Option<&MemoryDisk> {
    disk.as_any().and_then(|disk| disk.downcast_ref())
}

/// How many of `len` bytes a short call moves: half of them, in whole blocks where a file has nothing else.
fn shortened(name: FileName, len: usize) -> usize {
    match name.kind().is_direct() {
        true => (len / 2).next_multiple_of(BLOCK_BYTES).min(len),
        false => len.div_ceil(2),
    }
}

impl File for FaultyFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let fault = self.orders.lock().meet(Call::Read);
        match fault.map(Fault::error) {
            None => self.inside.read_at(offset, buffer),
            Some(Some(error)) => Err(error),
            Some(None) => {
                let len = shortened(self.name(), buffer.len());
                self.inside.read_at(offset, &mut buffer[..len])
            }
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let fault = self.orders.lock().meet(Call::Write);
        match fault.map(Fault::error) {
            None => self.inside.write_at(offset, bytes),
            Some(Some(error)) => Err(error),
            Some(None) => self.inside.write_at(offset, &bytes[..shortened(self.name(), bytes.len())]),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let fault = self.orders.lock().meet(Call::Sync);
        if let (Some(Fault::LostSync), Some(memory)) = (fault, memory(&*self.disk)) {
            // The next sync, which is this one.
            memory.set_sync_failure_at(Some(0));
            return self.inside.sync();
        }
        fault.and_then(Fault::error).map_or_else(|| self.inside.sync(), Err)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        meet(&self.orders, Call::Allocate)?;
        self.inside.allocate(len)
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Arc<Mapping>> {
        meet(&self.orders, Call::Allocate)?;
        self.inside.map(offset, len)
    }

    fn changed_ns(&self) -> io::Result<u64> {
        meet(&self.orders, Call::Len)?;
        self.inside.changed_ns()
    }

    fn len(&self) -> io::Result<u64> {
        meet(&self.orders, Call::Len)?;
        self.inside.len()
    }

    fn name(&self) -> FileName {
        self.inside.name()
    }
}
