//! Reading ranges through the [`Engine`] trait, piece by piece, the way a scan of the public crate does; and
//! holding the engine to the contract of [`Engine::scan`] on the way: rows in order, inside the range, each
//! piece leaving less of the range than before.

use kvilt_base::{Direction, Engine, KeyRange, ReadView, RowBatch, Rows as _, Scanned};

use crate::{
    dice::Dice,
    report::{Complaint, refused},
};

/// A row, owned.
pub type Row = (Vec<u8>, Vec<u8>);

/// How to read a range.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// From which end.
    pub direction: Direction,
    /// Stop after this many rows.
    pub rows_max: usize,
    /// Rows asked for at a time.
    pub batch_rows: usize,
    /// Bytes asked for at a time.
    pub batch_bytes: usize,
    /// Without values: they come out empty.
    pub keys_only: bool,
    /// Each piece may have twice as many rows and bytes as the one before it: a long range that is read row
    /// by row costs a call for each, and shows no more than a short one.
    pub grows: bool,
}

impl Manner {
    /// Everything, in large pieces.
    pub fn whole(direction: Direction) -> Self {
        Manner {
            direction,
            rows_max: usize::MAX,
            batch_rows: usize::MAX,
            batch_bytes: 16 << 10,
            keys_only: false,
            grows: false,
        }
    }
}

/// How often an engine may return no row and leave the range as it was before we call it stuck.
const IDLE_PIECES_MAX: u32 = 1_000;

/// A range being read from both ends; rows from the back come in descending order.
struct Cursor<'a> {
    engine: &'a dyn Engine,
    view: &'a ReadView,
    /// What is left; none when all is read.
    left: Option<KeyRange>,
    idle_pieces: u32,
}

impl<'a> Cursor<'a> {
    fn new(engine: &'a dyn Engine, view: &'a ReadView, range: &KeyRange) -> Self {
        Cursor { engine, view, left: Some(range.clone()), idle_pieces: 0 }
    }

    /// Appends one piece to `rows`.
    fn read_piece(
        &mut self,
        direction: Direction,
        mut batch: RowBatch,
        rows: &mut Vec<Row>,
    ) -> Result<(), Complaint> {
        let Some(range) = self.left.take() else { return Ok(()) };
        let scanned = self.engine.scan(self.view, &range, direction, &mut batch).map_err(refused("scan"))?;
        if scanned == Scanned::Enough && batch.wanted() != Some(0) {
            return Err(format!("a scan of {range:?} ended as if no more was wanted").into());
        }
        let left = scanned.left();
        let is_full = batch.is_full();
        let first = rows.len();
        let is_idle = batch.is_empty();
        for (key, value) in batch.into_rows() {
            if !range.contains(&key) {
                return Err(format!("a scan of {range:?} returned a key outside: {key:?}").into());
            }
            if let Some(left) = &left
                && left.contains(&key)
            {
                return Err(format!("a scan returned {key:?} and left it to be read again").into());
            }
            let before = rows[first..].last().map(|(before, _)| before);
            let is_ordered = before.is_none_or(|before| match direction {
                Direction::Forward => before.as_slice() < &key[..],
                Direction::Backward => before.as_slice() > &key[..],
            });
            if !is_ordered {
                return Err(format!("a scan {direction:?} returned {key:?} after {before:?}").into());
            }
            rows.push((key.to_vec(), value.to_vec()));
        }
        if let Some(left) = &left
            && !range.covers(left)
        {
            return Err(format!("a scan of {range:?} left more than that: {left:?}").into());
        }
        self.idle_pieces = if is_idle && left.as_ref() == Some(&range) { self.idle_pieces + 1 } else { 0 };
        if is_full && is_idle {
            return Err("an empty batch was full from the start".into());
        }
        if self.idle_pieces > IDLE_PIECES_MAX {
            return Err(format!("a scan of {range:?} does not move on").into());
        }
        self.left = left;
        Ok(())
    }
}

/// Reads several keys in one call; says what is wrong if the engine does not answer each once, or fails.
pub fn read_many(
    engine: &dyn Engine,
    keys: &[&[u8]],
    at: Option<&ReadView>,
) -> Result<Vec<Option<Vec<u8>>>, Complaint> {
    let mut answers: Vec<Vec<Option<Vec<u8>>>> = vec![Vec::new(); keys.len()];
    engine
        .get_many(keys, at, &mut |i, value| answers[i].push(value.map(<[u8]>::to_vec)))
        .map_err(refused("get of many"))?;
    if let Some(i) = answers.iter().position(|answers| answers.len() != 1) {
        return Err(format!("key {i} of {} had {} answers", keys.len(), answers[i].len()).into());
    }
    Ok(answers.into_iter().flatten().collect())
}

/// Reads a range from one end; says what is wrong if the engine breaks the contract or fails.
pub fn read_rows(
    engine: &dyn Engine,
    view: &ReadView,
    range: &KeyRange,
    manner: Manner,
) -> Result<Vec<Row>, Complaint> {
    let mut cursor = Cursor::new(engine, view, range);
    let mut rows = Vec::new();
    let (mut batch_rows, mut batch_bytes) = (manner.batch_rows, manner.batch_bytes);
    while cursor.left.is_some() && rows.len() < manner.rows_max {
        let wanted = batch_rows.min(manner.rows_max - rows.len());
        let batch = RowBatch::new(batch_bytes, wanted, manner.keys_only);
        cursor.read_piece(manner.direction, batch, &mut rows)?;
        if manner.grows {
            batch_rows = batch_rows.saturating_mul(2);
            batch_bytes = batch_bytes.saturating_mul(2);
        }
    }
    Ok(rows)
}

/// Reads a range from both ends in turns until nothing is left; returns the rows in ascending order. Bit
/// `i % 64` of `turns` says from which end the `i`-th piece comes.
pub fn read_both_ends(
    engine: &dyn Engine,
    view: &ReadView,
    range: &KeyRange,
    turns: u64,
    batch_rows: usize,
) -> Result<Vec<Row>, Complaint> {
    let mut cursor = Cursor::new(engine, view, range);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    let mut turn = 0;
    while cursor.left.is_some() {
        let batch = RowBatch::new(64 << 10, batch_rows, false);
        if turns >> (turn % 64) & 1 == 0 {
            cursor.read_piece(Direction::Forward, batch, &mut front)?;
        } else {
            cursor.read_piece(Direction::Backward, batch, &mut back)?;
        }
        turn += 1;
    }
    front.extend(back.into_iter().rev());
    Ok(front)
}

/// A random manner: any direction and piece size, whole range.
pub fn any_manner(dice: &mut Dice) -> Manner {
    let direction = if dice.chance(1, 2) { Direction::Forward } else { Direction::Backward };
    Manner {
        batch_rows: *dice.pick(&[1, 3, 10, 1_000]),
        batch_bytes: *dice.pick(&[1, 200, 4_096, 1 << 16]),
        ..Manner::whole(direction)
    }
}
