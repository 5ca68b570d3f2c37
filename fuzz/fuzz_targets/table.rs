//! The target `table`; what it does stands in `kvilt_sim::even::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kvilt_sim::even::fuzzing::table(input));
