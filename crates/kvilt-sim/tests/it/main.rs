//! The workshop at work: first on a toy, to test the tests; then on the engine.
#![expect(clippy::unwrap_used, reason = "a test may panic; clippy knows only functions marked as tests")]

mod crash;
mod damage;
mod determinism;
mod even;
mod faults;
mod history;
mod model;
mod oracles;
mod rest;
mod toy;
