//! The hash by which indexes of logs and runs know a key.

use std::hash::BuildHasher;

/// The upper half of a key's hash. The same in every process: nothing that is stored depends on it, but
/// replays of one seed should take one path.
pub(crate) fn key_hash(key: &[u8]) -> u32 {
    (foldhash::fast::FixedState::with_seed(0x6b76_696c).hash_one(key) >> 32) as u32
}

/// Which of so many places belongs to a hash: by its highest bits, so that places come in the order of
/// hashes.
pub(crate) fn place_of(hash: u32, places: usize) -> usize {
    ((u64::from(hash) * places as u64) >> 32) as usize
}
