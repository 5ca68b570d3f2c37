//! Scans: blocks of rows, written to a buffer of Java's, one native call each.
//!
//! A block begins with a head of 32 bytes; numbers are little-endian:
//!
//! | at | bytes | |
//! | --- | --- | --- |
//! | 0 | 8 | handle of the scan; 0 if the block has all that the range has |
//! | 8 | 4 | rows |
//! | 12 | 4 | 1 if nothing of the range is behind the last row, in the direction of the scan |
//! | 16 | 8 | bytes that a buffer must have for the next row, if this one was too small for any; else 0 |
//! | 24 | 8 | free |
//!
//! Rows follow in the order of the scan: length of key, length of value (four bytes each), key, value. The
//! last bytes of the buffer say where rows begin, four bytes each, the first row's at the very end, so that
//! Java can go back within a block. Before a call, what Java asks with (bounds, or the key to go on behind)
//! lies behind the head.
//!
//! A scan keeps its moment and its bounds, and no position: where to go on comes with each call. So both
//! directions may be walked in turn, and several calls at once are safe.

use std::ops::{Bound, ControlFlow};

use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use kvilt::{Result, Snapshot};

use crate::{View, border, failure::Failure};

const HEAD_BYTES: usize = 32;
/// Lengths before a row, and where it begins.
const BESIDE_ROW_BYTES: usize = 8 + 4;

/// [`fill`]'s ways to begin and to go.
const BACKWARD: jint = 1;
const AT_BOUND: jint = 2;
const WITH_START: jint = 4;

/// A moment and the bounds of a range in it, half-open.
struct Scan {
    moment: Snapshot,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// Where a block begins.
enum Start<'k> {
    AtBound,
    At(&'k [u8]),
    Beyond(&'k [u8]),
}

/// What a block came to.
#[derive(Default, Debug, PartialEq)]
struct Filled {
    rows: usize,
    is_end: bool,
    /// For the first row, if there is no room for it.
    bytes_needed: usize,
}

impl Scan {
    /// Writes rows to `room` until it is full, or until there are `rows_max`, about `bytes_max` bytes, or no
    /// more.
    fn fill(
        &self,
        start: &Start<'_>,
        is_backward: bool,
        room: &mut [u8],
        bytes_max: usize,
        rows_max: Option<usize>,
    ) -> Result<Filled> {
        let lower = Bound::Included(self.lower.as_slice());
        let upper = self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = match (start, is_backward) {
            (Start::AtBound, _) => (lower, upper),
            (Start::At(key), false) => (later(lower, Bound::Included(key)), upper),
            (Start::Beyond(key), false) => (later(lower, Bound::Excluded(key)), upper),
            (Start::At(key), true) => (lower, earlier(upper, Bound::Included(key))),
            (Start::Beyond(key), true) => (lower, earlier(upper, Bound::Excluded(key))),
        };
        let mut filled = Filled { is_end: true, ..Filled::default() };
        let mut at = HEAD_BYTES;
        let mut take = |key: &[u8], value: &[u8]| {
            let bytes = 8 + key.len() + value.len();
            let places = room.len() - 4 * (filled.rows + 1);
            let has_room = at + bytes <= places && rows_max.is_none_or(|rows| filled.rows < rows);
            if !has_room || (filled.rows > 0 && at + bytes > bytes_max) {
                if filled.rows == 0 {
                    filled.bytes_needed = HEAD_BYTES + BESIDE_ROW_BYTES + key.len() + value.len();
                }
                filled.is_end = false;
                return ControlFlow::Break(());
            }
            let (row, _) = room[at..].split_at_mut(bytes);
            row[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
            row[4..8].copy_from_slice(&(value.len() as u32).to_le_bytes());
            row[8..8 + key.len()].copy_from_slice(key);
            row[8 + key.len()..].copy_from_slice(value);
            room[places..places + 4].copy_from_slice(&(at as u32).to_le_bytes());
            at += bytes;
            filled.rows += 1;
            ControlFlow::Continue(())
        };
        let mut range = self.moment.range(bounds);
        if let Some(rows) = rows_max {
            // One more than wanted, so that it shows whether there is more.
            range = range.limit(rows.saturating_add(1));
        }
        match is_backward {
            false => range.visit(&mut take)?,
            true => range.visit_back(&mut take)?,
        }
        Ok(filled)
    }
}

fn later<'k>(a: Bound<&'k [u8]>, b: Bound<&'k [u8]>) -> Bound<&'k [u8]> {
    match (a, b) {
        (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) if x > y => a,
        _ => b,
    }
}

fn earlier<'k>(a: Bound<&'k [u8]>, b: Bound<&'k [u8]>) -> Bound<&'k [u8]> {
    match (a, b) {
        // Of the same key, the bound that leaves it out.
        (Bound::Included(x) | Bound::Excluded(x), Bound::Included(y) | Bound::Excluded(y)) if x <= y => a,
        _ => b,
    }
}

fn write_head(memory: &mut [u8], handle: jlong, filled: &Filled) {
    memory[..8].copy_from_slice(&handle.to_le_bytes());
    memory[8..12].copy_from_slice(&(filled.rows as u32).to_le_bytes());
    memory[12..16].copy_from_slice(&u32::from(filled.is_end).to_le_bytes());
    memory[16..24].copy_from_slice(&(filled.bytes_needed as u64).to_le_bytes());
}

/// As many as Java expects to read; 0 means that it does not know.
fn rows_wanted(rows: jint) -> Option<usize> {
    usize::try_from(rows).ok().filter(|rows| *rows > 0)
}

/// Begins a scan of a range, whose bounds lie behind the head, and fills the first block, unless `bytes` is
/// 0. `upper` is negative if there is no upper bound. Returns the rows.
pub(crate) extern "system" fn scan(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    view: jlong,
    memory: jlong,
    capacity: jint,
    lower: jint,
    upper: jint,
    way: jint,
    bytes: jint,
    rows: jint,
) -> jint {
    border::call(&mut env, 0, || {
        border::with_memory(memory, capacity, 0, |_, memory| {
            let asked = &memory[HEAD_BYTES..];
            let lower_end = lower as usize;
            let upper = (upper >= 0).then(|| asked[lower_end..lower_end + upper as usize].to_vec());
            let scan = border::with(view, |view: &View| Scan {
                moment: view.moment(),
                lower: asked[..lower_end].to_vec(),
                upper,
            });
            let filled = match bytes {
                0 => {
                    // A moment on a closed store cannot be taken, and says so when it is used.
                    scan.moment.iter().limit(0).visit(|_, _| ControlFlow::Break(()))?;
                    Filled::default()
                }
                _ => {
                    let is_backward = way & BACKWARD != 0;
                    scan.fill(&Start::AtBound, is_backward, memory, bytes as usize, rows_wanted(rows))?
                }
            };
            let handle = if filled.is_end { 0 } else { border::give(scan) };
            write_head(memory, handle, &filled);
            Ok::<_, Failure>(filled.rows as jint)
        })
    })
}

/// Fills a block. `way` says in which direction, and where it begins: at the bound, or at or behind the key
/// of `key` bytes that lies at `key_at`. Returns the rows.
pub(crate) extern "system" fn fill(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    scan: jlong,
    memory: jlong,
    capacity: jint,
    key_at: jint,
    key: jint,
    way: jint,
    bytes: jint,
) -> jint {
    border::call(&mut env, 0, || {
        border::with_memory(memory, capacity, 0, |_, memory| {
            let key = memory[key_at as usize..][..key as usize].to_vec();
            let start = match (way & AT_BOUND != 0, way & WITH_START != 0) {
                (true, _) => Start::AtBound,
                (false, true) => Start::At(&key),
                (false, false) => Start::Beyond(&key),
            };
            let filled = border::with(scan, |scan: &Scan| {
                scan.fill(&start, way & BACKWARD != 0, memory, bytes as usize, None)
            })?;
            write_head(memory, scan, &filled);
            Ok(filled.rows as jint)
        })
    })
}

/// Lets go of a scan.
pub(crate) extern "system" fn free_scan(mut env: EnvUnowned<'_>, _: JClass<'_>, scan: jlong) {
    border::call(&mut env, (), || {
        drop(border::take::<Scan>(scan));
        Ok(())
    });
}
