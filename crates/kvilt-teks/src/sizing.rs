//! `Sizing`: memory tables are made as large as the budget says, with a hash for as many keys as will fill
//! them: as long rows as there were, and before the first as the options say.

use kvilt_base::{Error, Result};
use kvilt_sync::teks::{TeksFill, TeksOptions, TeksSteps, TeksTable};

use crate::options::{self, Options};

/// A memory table tells how long rows are when this part of its arena or of its slots is used.
const TELLING_PART: usize = 4;
/// But a key counts as taking at most as many times of what the options say: shorter rows may follow.
const LONGER_MAX: usize = 8;
/// Slots of the least hash.
const SLOTS_MIN: usize = 64;

/// How a store makes its memory tables.
pub(crate) struct Sizing {
    /// Of a table's rows and hash.
    bytes: usize,
    /// What a key takes of the arena, in bytes, as the options say.
    item_bytes: usize,
    hash_key: [u8; 16],
    steps: TeksSteps,
}

/// Room that rows need in a memory table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Room {
    /// For one more row.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.rows += 1;
        let bytes = TeksTable::row_bytes(key.len(), value.map_or(0, <[u8]>::len));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// For one row.
    pub(crate) fn of(key: &[u8], value: Option<&[u8]>) -> Self {
        let mut room = Room::default();
        room.add(key, value);
        room
    }

    /// Somewhat more: a table counts as full before its end, and its lanes leave some of it unused.
    pub(crate) fn with_waste(self) -> Self {
        let bytes = self.bytes.saturating_add(self.bytes / 8).saturating_add(4096);
        Room { rows: self.rows + self.rows / 4, bytes }
    }
}

impl Sizing {
    /// Of a store with this budget. Nobody outside may know the key of the hash.
    pub(crate) fn new(budget_bytes: u64, options: &Options, hash_key: [u8; 16]) -> Self {
        Sizing {
            bytes: options::table_bytes(budget_bytes),
            item_bytes: TeksTable::row_bytes(options.row_bytes, 0),
            hash_key,
            steps: TeksSteps::first(options.steps),
        }
    }

    /// Makes a table that has room for these rows. `earlier` are the fills of those before it, newest first.
    ///
    /// Errors: `Io`.
    pub(crate) fn table(&self, earlier: impl IntoIterator<Item = TeksFill>, room: Room) -> Result<TeksTable> {
        TeksTable::new(&self.options(earlier, room)).map_err(|e| Error::io("make a memory table", e))
    }

    /// Whether an empty table has room for these rows.
    pub(crate) fn has_room(table: &TeksTable, room: Room) -> bool {
        let (fill, needed) = (table.fill(), room.with_waste());
        fill.arena_bytes >= needed.bytes && fill.slots >= needed.rows
    }

    fn options(&self, earlier: impl IntoIterator<Item = TeksFill>, room: Room) -> TeksOptions {
        let is_telling = |fill: &TeksFill| {
            let is_used = fill.used_bytes >= fill.arena_bytes / TELLING_PART;
            fill.keys > 0 && (is_used || fill.keys >= fill.slots / TELLING_PART)
        };
        let told = earlier.into_iter().find(is_telling).map(|fill| fill.used_bytes / fill.keys);
        let item_bytes = told.map_or(self.item_bytes, |bytes| bytes.min(self.item_bytes * LONGER_MAX));
        let mut options = TeksOptions::for_items(self.bytes, item_bytes, self.hash_key);
        options.steps = self.steps;
        let needed = room.with_waste();
        options.arena_bytes = options.arena_bytes.max(needed.bytes);
        options.slots = options.slots.max(needed.rows).max(SLOTS_MIN);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second table has a hash for rows of the first, though the options say that they are longer.
    #[test]
    fn a_table_is_made_for_rows_as_there_were() {
        let sizing = Sizing::new(64 << 20, &Options::default(), [7; 16]);
        let fill = |keys, used_bytes| TeksFill {
            keys,
            used_bytes,
            ..sizing.table([], Room::default()).unwrap().fill()
        };
        let keys = |fills: &[TeksFill]| sizing.options(fills.iter().copied(), Room::default()).slots * 3 / 4;
        let usual = keys(&[]);
        assert_eq!(keys(&[fill(10, 1000)]), usual, "a table that has little tells nothing");
        assert_eq!(keys(&[fill(0, 7 << 20)]), usual, "nor does one without a key");
        let short = keys(&[fill(10, 1000), fill(70_000, 7 << 20)]);
        assert!((7 << 20) / 104 < short && short < (8 << 20) / 104, "{short} keys of 104 bytes");
        let long = keys(&[fill(7_000, 7 << 20), fill(70_000, 7 << 20)]);
        assert!((7 << 20) / 1048 < long && long < (8 << 20) / 1048, "{long} keys of 1048 bytes");
        assert!(keys(&[fill(1, 7 << 20)]) >= usual / LONGER_MAX, "shorter rows may follow");
        // Rows so short that the hash is full when a tenth of the arena is used.
        let tiny = keys(&[fill(usual, usual * 48)]);
        assert!((7 << 20) / 59 < tiny && tiny < (8 << 20) / 48, "{tiny} keys of 48 bytes");
    }

    #[test]
    fn a_table_has_the_room_that_is_asked_for() {
        let sizing = Sizing::new(1 << 20, &Options::default(), [7; 16]);
        let room = Room { rows: 100_000, bytes: 5 << 20 };
        let table = sizing.table([], room).unwrap();
        assert!(Sizing::has_room(&table, room));
        assert!(!Sizing::has_room(&sizing.table([], Room::default()).unwrap(), room));
    }
}
