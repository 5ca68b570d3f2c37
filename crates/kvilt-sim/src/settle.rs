//! The settled size of a store: what it takes on the disk when every row has been written once more and the
//! background has nothing left to do.
//!
//! A store's directory grows and shrinks as logs fill and are rewritten, by a tenth and more, and parts that
//! began together stay in step for hundreds of lives. So its size at two moments says little. Settled, it
//! does not depend on where in that round the chunks were: what is left is rows, their chunks and tables, the
//! manifest, and whatever should not be there, such as files that nobody names. Two settled sizes of the same
//! rows can be compared.
//!
//! What is always true here: a copy in memory is settled, on one thread; the store itself is not touched.

use std::sync::Arc;

use kvilt_base::Direction;
use kvilt_io::MemoryDisk;

use crate::{
    reading::Manner,
    report::{Complaint, refused},
    run::{all_rows, check_soundness},
    subject::Subject,
    world::World,
};

/// Time that passes while it comes to rest, in milliseconds, a second at a time: chunks cool down, small ones
/// are joined. In each second some of them are looked at several times, until each had its turn.
const REST_MS: u32 = 1_000;
const RESTS: u32 = 8;
const LOOKS_A_REST: u32 = 10;

/// Bytes of the files that a store would have if it came to rest now; none if it cannot be told. `disk` is
/// used up.
pub fn settled_bytes(subject: &dyn Subject, disk: &Arc<MemoryDisk>) -> Result<Option<u64>, Complaint> {
    let Some(subject) = subject.settling() else { return Ok(None) };
    let world = World::stepped(disk.clone(), disk.clone(), 0);
    let engine = subject.open(&world).map_err(refused("open"))?;
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
    let beside = disk.snapshot().into_iter().filter(|(name, _)| subject.is_beside(*name));
    let bytes_beside: u64 = beside.map(|(_, bytes)| bytes.len() as u64).sum();
    Ok(Some(disk.total_bytes() - bytes_beside))
}
