//! What the store does when the disk says no: rows of the fault table in `docs/testing.md`, each by name.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;
mod checking;
mod checkpoints;
mod closing;
mod full_disk;
mod layouts;
mod old_views;
mod salvaging;
