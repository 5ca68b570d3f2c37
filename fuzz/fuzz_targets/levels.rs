//! The target `levels`; what it does stands in `kvilt_sim::teks::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kvilt_sim::teks::fuzzing::levels(input));
