//! How a table of engine `teks` is made.

use super::TeksTable;

/// A table is made with as many slots that this part of them is taken when its arena is full.
const PLANNED_SLOTS: (usize, usize) = (3, 4);

/// How a table is made.
#[derive(Clone, Debug)]
pub struct TeksOptions {
    /// Room for rows, in bytes; memory is taken as it is written. At most 32 GiB.
    pub arena_bytes: usize,
    /// Slots of the hash; each takes 8 bytes.
    pub slots: usize,
    /// The key of the hash: nobody outside may know it, who chooses keys.
    pub hash_key: [u8; 16],
    /// The paper's steps.
    pub steps: TeksSteps,
}

/// The steps by which the paper improves on a hash with a list; all of them are taken but for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeksSteps {
    /// The list is woven behind the put, not in it.
    pub is_asynchronous: bool,
    /// Puts go on at once.
    pub is_concurrent: bool,
    /// A seek to a key that is there asks the hash.
    pub has_shortcut: bool,
    /// A record that no reader needs goes when another takes its place.
    pub is_in_place: bool,
}

impl Default for TeksSteps {
    fn default() -> Self {
        TeksSteps::first(4)
    }
}

impl TeksSteps {
    /// The first of the steps in the paper's order, which is that of the fields: 4 are all, and as usual.
    pub fn first(count: usize) -> Self {
        let [is_asynchronous, is_concurrent, has_shortcut, is_in_place] =
            [0, 1, 2, 3].map(|step| step < count);
        TeksSteps { is_asynchronous, is_concurrent, has_shortcut, is_in_place }
    }
}

impl TeksOptions {
    /// A table that is full with `bytes` bytes of rows and hash together, if keys and values have
    /// `row_bytes` bytes on average.
    pub fn for_rows(bytes: usize, row_bytes: usize, hash_key: [u8; 16]) -> Self {
        let slots_a_row = PLANNED_SLOTS.1 as f64 / PLANNED_SLOTS.0 as f64;
        let item_bytes = TeksTable::row_bytes(row_bytes, 0) as f64;
        let rows = bytes as f64 / (item_bytes + slots_a_row * size_of::<u64>() as f64);
        let slots = (rows * slots_a_row) as usize;
        let arena_bytes = bytes.saturating_sub(slots * size_of::<u64>());
        TeksOptions { arena_bytes, slots, hash_key, steps: TeksSteps::default() }
    }
}
