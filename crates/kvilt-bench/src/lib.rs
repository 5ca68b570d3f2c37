//! `kvilt-bench`: workloads, a driver that lets threads work on a store, and what is measured meanwhile.
//!
//! | file | what |
//! | --- | --- |
//! | [`keys`] | numbers to keys, and how popular each key is |
//! | [`events`] | events of many apps in the order of time, and who reads them |
//! | [`work`] | what the threads do: `P`, `A` … `F`, `ingest`, `analytics`, `popular`, `readseq` |
//! | [`store`] | what a store must offer to take part, Kvilt's and others' |
//! | [`contestants`] | Kvilt's own entries |
//! | [`drive`] | what the drive does by itself |
//! | [`driver`] | threads on a store for some seconds |
//! | [`meter`] | what the process used: memory, processor, device, system calls |
//! | [`limit`] | a ceiling on the memory of the process, page cache included |
//! | [`steady`] | what is measured once the data have been put over several times |
//! | [`scenario`] | sizes, budgets and the order of phases |
//! | [`run`] | one scenario on one store in this process: its measurements as JSON lines |
//! | [`errand`] | one run in a process of its own, which may not take for ever |
//! | [`compare`] | many runs, each in a process of its own, the stores in turn: medians and ratios |
//! | [`caches`] | cache policies by simulation: gets missed against memory, without any store |
//! | [`plot`] | drawings as SVG |
//! | [`cli`] | the command line that this crate and `kvilt-bench-compare` share |
//!
//! Every store of a comparison gets the same bytes, the same memory budget and the same threads, and says
//! what it promises about durability, which stands in its results.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures the real machine: its clock, its files, its processes"
)]

pub mod caches;
pub mod cli;
pub mod compare;
pub mod contestants;
pub mod drive;
pub mod driver;
pub mod errand;
pub mod events;
pub mod keys;
pub mod limit;
pub mod meter;
pub mod plot;
pub mod run;
pub mod scenario;
pub mod steady;
pub mod store;
pub mod work;
