//! Settled sizes, in a process of their own: what the store decides by its memory depends on what else the
//! process frees. Beside other tests it once came to rest with a chunk less.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use kvilt_base::Durability;
use kvilt_io::{Keep, MemoryDisk};
use kvilt_sim::{Tested, engines, settle::settled_bytes, world::World};

/// Where logs happen to be full does not count; a file that nobody names, and that nothing removes, does.
#[test]
fn a_settled_store_has_one_size_whatever_it_has_just_been_through() {
    engines::ALL.iter().for_each(|engine| has_one_settled_size(*engine));
}

fn has_one_settled_size(engine: &dyn Tested) {
    let tiny = engine.tiny(Durability::Async { interval: Duration::from_millis(500) });
    let disk = MemoryDisk::new(1);
    let world = World::stepped(disk.clone(), disk.clone(), 1);
    let engine = tiny.open(&world).unwrap();
    let (mut sizes, mut settled) = (Vec::new(), Vec::new());
    let put_all = |round: u32| {
        for row in 0..400_u32 {
            engine.put(format!("key{row:04}").as_bytes(), &[round as u8; 60]).unwrap();
        }
        engine.sync().unwrap();
    };
    // A store that has never split comes to rest with fewer chunks, and so with fewer heads and feet of
    // tables.
    put_all(0);
    world.step_until_idle().unwrap();
    for round in 0..12_u32 {
        put_all(round);
        world.step_background(round as u16 * 3, u64::from(round));
        sizes.push(disk.total_bytes());
        let Some(bytes) = settled_bytes(&*tiny, &disk.crash_image(Keep::All)).unwrap() else { return };
        settled.push(bytes);
    }
    let range = |sizes: &[u64]| (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
    let ((least, most), (settled_least, settled_most)) = (range(&sizes), range(&settled));
    assert!(most * 10 > least * 13, "the store's own size goes up and down: {sizes:?}");
    assert!(settled_most * 100 < settled_least * 102, "{settled:?}");
    assert!(settled_most < least, "{settled:?} against {sizes:?}");
}
