//! The target `manifest`; what it does stands in `kvilt_sim::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kvilt_sim::fuzzing::manifest(input));
