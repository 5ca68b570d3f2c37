//! The settled size of a store: what it takes on the disk when every row has been written once more and the
//! background has nothing left to do.
//!
//! A store's directory grows and shrinks as logs fill and are rewritten, by a tenth and more, and chunks that
//! began together stay in step for hundreds of lives. So its size at two moments says little. Settled, it
//! does not depend on where in that round the chunks were: what is left is rows, their chunks and tables, the
//! manifest, and whatever should not be there, such as files that nobody names. Two settled sizes of the same
//! rows can be compared.
//!
//! What is always true here: a copy in memory is settled, on one thread; the store itself is not touched.

use std::sync::Arc;

use kvilt_base::Direction;
use kvilt_format::names::RESERVE;
use kvilt_io::MemoryDisk;

use crate::{
    reading::Manner,
    report::{Complaint, refused},
    run::{all_rows, check_soundness},
    world::{Even, Subject, World},
};

/// A log of a settled store is at most this long, in bytes: less than a row or two.
const LOG_BYTES_MAX: u64 = 256;

/// Time that passes while it comes to rest, in milliseconds, a second at a time: chunks cool down, small ones
/// are joined. In each second some of them are looked at several times, until each had its turn.
const REST_MS: u32 = 1_000;
const RESTS: u32 = 8;
const LOOKS_A_REST: u32 = 10;

/// Bytes of the files that `even` would have if it came to rest now. `disk` is used up. The reserve does not
/// count: it is there or not as the last crash pleased.
pub fn settled_bytes(even: &Even, disk: &Arc<MemoryDisk>) -> Result<u64, Complaint> {
    let mut even = even.clone();
    let options = &mut even.options;
    options.log_bytes_max_cold = LOG_BYTES_MAX;
    options.log_bytes_max_cached = LOG_BYTES_MAX;
    options.log_bytes_max_unread = LOG_BYTES_MAX;
    let world = World::stepped(disk.clone(), disk.clone(), 0);
    let engine = even.open(&world).map_err(refused("open"))?;
    for (key, value) in all_rows(&*engine, Manner::whole(Direction::Forward))? {
        engine.put(&key, &value).map_err(refused("put"))?;
    }
    for _ in 0..RESTS {
        engine.sync().map_err(refused("sync"))?;
        for _ in 0..LOOKS_A_REST {
            world.advance(REST_MS / LOOKS_A_REST);
            world.step_until_idle()?;
        }
    }
    check_soundness(&*engine)?;
    engine.close().map_err(refused("close"))?;
    let reserve_bytes = disk.contents(RESERVE).map_or(0, |bytes| bytes.len() as u64);
    Ok(disk.total_bytes() - reserve_bytes)
}
