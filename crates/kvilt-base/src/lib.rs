//! Floor 0: the words of Kvilt, and the seams to the world.
//!
//! Everything above speaks in these terms: a [`Value`] lives under a key; a write gives it a [`Version`];
//! key, version and what was written make an entry ([`EntryRef`]). Sorted streams of entries are
//! [`Source`]s; [`Merge`] makes one stream of several, and [`Visible`] keeps what a reader at one version
//! may see. An [`Engine`] is the contract every engine signs. Disk, time, chance and threads come in as
//! arguments ([`Disk`], [`Clock`], [`Rng`], [`Spawn`]), so that a test can crash a disk at any write and step
//! every background job by hand.
//!
//! What is always true here: no file, clock or thread is touched, nothing is unsafe, and no other crate of
//! Kvilt is imported.
//!
//! Reading order: the order of the modules below.
#![forbid(unsafe_code)]

pub mod batch;
pub mod budget;
pub mod copying;
pub mod descriptor;
pub mod directory;
pub mod disk;
pub mod engine;
pub mod engine_name;
pub mod entry;
pub mod env;
pub mod error;
pub mod invariant;
pub mod key;
pub mod large;
pub mod layout;
pub mod limits;
pub mod mapping;
pub mod merge;
#[doc(hidden)]
pub mod mutant;
pub mod queue;
pub mod rows;
pub mod sampling;
pub mod settings;
pub mod stats;
pub mod steps;
pub mod unfinished;
pub mod value;
pub mod version;
pub mod visible;

pub use batch::{Operation, OperationRef, WriteBatch};
pub use budget::{Budget, Charge, Part};
pub use descriptor::{Capabilities, Descriptor, Recognised, Remainder, Salvaged, World};
pub use disk::{Disk, File, FileName, Listed};
pub use engine::{CheckReport, Damage, Engine, Progress, ReadView, RepairReport, Swap};
pub use entry::{EntryRef, Kind};
pub use env::{Clock, Hand, Next, Rng, Spawn, Worker};
pub use error::{Error, ErrorKind, Result};
pub use key::KeyRange;
pub use large::Large;
pub use layout::{FilesOfKind, Layout, LayoutRange};
pub use mapping::Mapping;
pub use merge::{Direction, Each, LargeValues, Merge, Source, Streamed};
#[doc(hidden)]
pub use mutant::{Mutant, mutant};
pub use queue::{Completed, Means, MeansKind, Queue, Transfer, Work};
pub use rows::{BatchRows, RowBatch, Rows, Scanned};
pub use settings::{Durability, Level, Settings};
pub use stats::{Figure, Stats, Unit};
pub use unfinished::Unfinished;
pub use value::Value;
pub use version::Version;
pub use visible::{Hiding, RangeTombstone, Visible};
