//! `Sizing`: memory tables are made as large as the budget says, with a hash for as many keys as will fill
//! them if rows are as long as the options say.

use kvilt_base::{Error, Result};
use kvilt_sync::teks::{TeksOptions, TeksSteps, TeksTable};

use crate::options::{self, Options};

/// Slots of the least hash.
const SLOTS_MIN: usize = 64;

/// How a store makes its memory tables.
pub(crate) struct Sizing {
    /// Of a table's rows and hash.
    bytes: usize,
    /// Of key and value of a row, as the options say.
    row_bytes: usize,
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
            row_bytes: options.row_bytes,
            hash_key,
            steps: TeksSteps::first(options.steps),
        }
    }

    /// Makes a table that has room for these rows.
    ///
    /// Errors: `Io`.
    pub(crate) fn table(&self, room: Room) -> Result<TeksTable> {
        let mut options = TeksOptions::for_rows(self.bytes, self.row_bytes, self.hash_key);
        options.steps = self.steps;
        let needed = room.with_waste();
        options.arena_bytes = options.arena_bytes.max(needed.bytes);
        options.slots = options.slots.max(needed.rows).max(SLOTS_MIN);
        TeksTable::new(&options).map_err(|e| Error::io("make a memory table", e))
    }

    /// Whether an empty table has room for these rows.
    pub(crate) fn has_room(table: &TeksTable, room: Room) -> bool {
        let (fill, needed) = (table.fill(), room.with_waste());
        fill.arena_bytes >= needed.bytes && fill.slots >= needed.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_room_that_is_asked_for() {
        let sizing = Sizing::new(1 << 20, &Options::default(), [7; 16]);
        let room = Room { rows: 100_000, bytes: 5 << 20 };
        let table = sizing.table(room).unwrap();
        assert!(Sizing::has_room(&table, room));
        assert!(!Sizing::has_room(&sizing.table(Room::default()).unwrap(), room));
    }
}
