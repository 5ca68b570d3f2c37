//! The target `root`; what it does stands in `kvilt_sim::kvell::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kvilt_sim::kvell::fuzzing::root(input));
