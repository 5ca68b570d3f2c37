//! A whole directory from bytes: opened, read, written to, checked, closed, and opened again.
//!
//! ```text
//! how u8 | per file: kind u8, number u8, length u16, bytes
//! ```

use kvilt_base::{Direction, Durability, Engine, FileName, KeyRange, RowBatch};
use kvilt_format::{
    FileIdentity,
    manifest::Witness,
    names::{COMMIT, LOG, MANIFEST, TABLE},
};
use kvilt_io::MemoryDisk;

use super::mend::{IDENTITY, Kind, mend_as};
use crate::{even::Even, subject::Subject, world::World};

/// Files of one directory; a store of the tiny limits has fewer.
const FILES_MAX: usize = 24;
/// Pieces after which a scan that still goes on has shown what it can.
const PIECES_MAX: usize = 200;
/// Steps of workers between two looks.
const STEPS: u16 = 60;

/// Appends a file as an input names it.
pub(super) fn push_file(out: &mut Vec<u8>, name: FileName, bytes: &[u8]) -> Option<()> {
    let kind = match name {
        FileName::Of(LOG, _) => 0,
        FileName::Of(COMMIT, _) => 1,
        FileName::Of(TABLE, _) => 2,
        FileName::Of(MANIFEST, _) => 3,
        // The lock, what is half made, and whatever has no target yet.
        _ => return None,
    };
    out.extend([kind, u8::try_from(name.number()).ok()?]);
    out.extend(u16::try_from(bytes.len()).ok()?.to_le_bytes());
    out.extend_from_slice(bytes);
    Some(())
}

fn next_file(input: &[u8]) -> Option<(Kind, u8, &[u8], &[u8])> {
    let (head, rest) = input.split_first_chunk::<4>()?;
    let kind = [Kind::Log, Kind::Commit, Kind::Table, Kind::Manifest][usize::from(head[0] % 4)];
    let len = usize::from(u16::from_le_bytes([head[2], head[3]])).min(rest.len());
    let (bytes, rest) = rest.split_at(len);
    Some((kind, head[1], bytes, rest))
}

/// The target.
pub fn directory(input: &[u8]) {
    let Some((how, mut rest)) = input.split_first() else { return };
    let memory = MemoryDisk::new(0);
    for _ in 0..FILES_MAX {
        let Some((kind, number, bytes, behind)) = next_file(rest) else { break };
        let number = u64::from(number);
        let mut bytes = bytes.to_vec();
        if how & 1 == 0 {
            mend_as(kind, &mut bytes, FileIdentity { number, ..IDENTITY });
        }
        let name = match kind {
            Kind::Log => FileName::Of(LOG, number),
            Kind::Commit => FileName::Of(COMMIT, number),
            Kind::Table => FileName::Of(TABLE, number),
            Kind::Manifest => FileName::Of(MANIFEST, number),
        };
        memory.replace(name, bytes);
        rest = behind;
    }
    // One that claims nothing, so that whatever the manifest says is looked at.
    let _ = Witness::create(&*memory, IDENTITY.store_id);
    let mut subject = Even::tiny();
    if how & 2 != 0 {
        let interval = std::time::Duration::from_millis(500);
        subject.options.settings.durability = Durability::Sync { interval };
    }
    let world = World::stepped(memory.clone(), memory, 0);
    for _ in 0..2 {
        let Ok(engine) = subject.open(&world) else { return };
        live(&world, &*engine);
    }
}

/// Everything that a store is asked for; its answers may be errors.
fn live(world: &World, engine: &dyn Engine) {
    read(engine, Direction::Forward);
    let _ = engine.put(b"k", b"v");
    let _ = engine.delete_range(&KeyRange { start: b"a".to_vec(), end: Some(b"c".to_vec()) });
    world.step_background(STEPS, 1);
    world.advance(1_000);
    world.step_background(STEPS, 2);
    let _ = engine.check(&mut |_| true);
    let _ = engine.sync();
    read(engine, Direction::Backward);
    let _ = engine.get_with(b"k", None, &mut |_| {});
    let _ = engine.close();
}

fn read(engine: &dyn Engine, direction: Direction) {
    let Ok(view) = engine.view() else { return };
    let mut left = Some(KeyRange::all());
    for _ in 0..PIECES_MAX {
        let Some(range) = left else { return };
        let mut batch = RowBatch::new(16 << 10, usize::MAX, false);
        let Ok(behind) = engine.scan(&view, &range, direction, &mut batch) else { return };
        left = behind.left();
    }
}
