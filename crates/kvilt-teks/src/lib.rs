//! Floor 2: the engine `teks`, after TeksDB (POMACS '19): a log-structured store whose memory table is found
//! by hash and in order (`docs/design/0068-teks.md`).
//!
//! Where it stands: so far its log. The memory table is `kvilt_sync::teks`.
//!
//! | module | is about |
//! | --- | --- |
//! | `log` | the redo log: segments that are mapped and used in turn; making it durable; reading it back |
//!
//! Floor 2: the disk is seen through the seams of floor 0 only, and nothing is unsafe.
#![forbid(unsafe_code)]

pub mod log;
