//! Engine `kvell` under test: what only it has.
//!
//! Where it stands: beside `even`; `fuzzing` tests the decoders of its files, and needs no store.

pub mod fuzzing;
