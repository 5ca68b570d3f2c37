//! The workshop: it tests any [`kvilt_base::Engine`], by seed, and is imported by nobody.
//!
//! Six questions, each with its oracle:
//!
//! | question | asked by | oracle |
//! | --- | --- | --- |
//! | does every operation answer right? | [`run`]: a long script on one thread | [`model`]: an ordered map, and its state at every open view |
//! | what is left after a power cut? | [`crash`]: a short script, crashed at every disk operation, again and again | the states that the model went through: one of those still allowed |
//! | and if recoveries crash, too? | [`crash::nested`]: canonical scripts, crashed in every recovery to a depth | the same, and: n crashes leave what one does |
//! | what if a disk call fails? | [`faults`]: a short script, with a fault at every call | the same, and: the right kind of error, from the right operations |
//! | what if the disk's bytes are wrong? | [`damage`]: a reference store, with each bit flipped, each file cut, exchanged, gone | the store's content: right, or `Corrupted` |
//! | is what threads saw possible? | [`actor`]: real threads on one store | [`history`]: rules on intervals; per key exact |
//!
//! A [`script`] is plain data, made by [`workload`] from a seed; [`shrink`] drops what does not matter from
//! one that fails, and [`report`] prints it. [`campaign`] runs many seeds, and is what the command
//! `kvilt-sim` calls. [`settle`] says what a store takes at rest. [`reading`] holds every scan to the
//! contract of [`kvilt_base::Engine::scan`].
//!
//! What is simulated: the disk (every legal state after a power cut, torn at 512 bytes), time, chance, and
//! when background work moves. What is not: the kernel, the file system, threads within a crash run,
//! processes that are killed; the engine's and the command's own tests do these.
//!
//! What is always true here: a seed decides everything but histories. An engine is a value, [`Tested`]; only
//! the module of its own and the list [`engines`] know it by name. To see a printed failure again, run
//! `kvilt-sim model|crash|faults --engine NAME --seeds N`.
//!
//! ```
//! use kvilt_sim::workload::Shape;
//! let script = Shape::crash().script(7);
//! assert_eq!(script, Shape::crash().script(7));
//! println!("{script}");
//! ```
//!
//! Reading order: `subject`, `script`, `workload`, `model`, `run`, `crash`, `faults`, `canonical`, `history`,
//! `actor`, then the rest.
#![forbid(unsafe_code)]

pub mod actor;
pub mod bystander;
pub mod campaign;
pub mod canonical;
pub mod crash;
pub mod damage;
pub mod dice;
pub mod economy;
pub mod engines;
pub mod even;
pub mod faults;
pub mod fuzzing;
pub mod history;
pub mod kvell;
pub mod ledger;
pub mod model;
pub mod mutants;
pub mod passer;
pub mod reading;
pub mod report;
pub mod run;
pub mod script;
pub mod settle;
pub mod shrink;
pub mod subject;
mod taste;
pub mod teks;
pub mod threads;
pub mod work;
pub mod workload;
pub mod world;

pub use report::{Failure, Report};
pub use script::Script;
pub use subject::{Subject, Tested};
