//! `check`: reads every block that has a used slot, past the cache, and verifies the items in it.

use std::sync::Arc;

use kvilt_base::{CheckReport, Damage, Error, Progress, Result};
use kvilt_format::slab::{Class, Content, Decoded, Item};

use crate::{place::Place, shard::Locked, store::Store};

/// Verifies the store. `progress` returns false to cancel.
pub(crate) fn check(store: &Store, progress: &mut dyn FnMut(Progress) -> bool) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let total = store
        .shards
        .iter()
        .map(|shard| shard.lock().slabs.iter().flatten().map(crate::slab::Slab::len).sum::<u64>())
        .sum();
    let mut done = 0;
    for shard in &store.shards {
        for class in Class::all() {
            let Some((file, blocks)) = shard
                .lock()
                .slab(class.number())
                .map(|slab| (Arc::clone(slab.file()), class.block_of(slab.slots())))
            else {
                continue;
            };
            report.files += 1;
            let mut buffer = kvilt_base::queue::aligned(class.block_bytes());
            for block in 0..blocks {
                if !progress(Progress { done, total }) {
                    report.is_cancelled = true;
                    return Ok(report);
                }
                done += class.block_bytes() as u64;
                let offset = class.block_offset(block);
                loop {
                    let (used, times_freed) = used_slots(&shard.lock(), class, block);
                    if used.is_empty() {
                        break;
                    }
                    file.read_exact_at(offset, &mut buffer)
                        .map_err(|e| Error::io("read a slab", e).at(file.name(), offset))?;
                    let state = shard.lock();
                    // Else a slot may have been freed, and written and used again, while it was read.
                    if state.times_freed == times_freed {
                        verify(&state, class, &used, &buffer, &mut report);
                        break;
                    }
                }
            }
        }
    }
    progress(Progress { done: total, total });
    Ok(report)
}

/// The used slots of a block, and how often slots were freed until now.
fn used_slots(state: &Locked<'_>, class: Class, block: u64) -> (Vec<u64>, u64) {
    let Some(slab) = state.slab(class.number()) else { return (Vec::new(), state.times_freed) };
    let first = block * class.slots_a_block();
    let used = (first..first + class.slots_a_block()).filter(|slot| slab.used().get(*slot));
    (used.collect(), state.times_freed)
}

/// Verifies the slots that were used before the block was read and still are.
fn verify(state: &Locked<'_>, class: Class, used: &[u64], block: &[u8], report: &mut CheckReport) {
    let Some(slab) = state.slab(class.number()) else { return };
    for slot in used.iter().filter(|slot| slab.used().get(**slot)) {
        let begin = class.offset_in_block(*slot);
        let bytes = &block[begin..begin + class.slot_bytes()];
        let offset = class.slot_offset(*slot);
        let damage = match Item::decode(bytes, state.identity_of(class), offset) {
            Decoded::Item(Item { content: Content::Value { key, value }, .. }) => {
                report.entries += 1;
                report.bytes += (key.len() + value.len()) as u64;
                let place = Place::new(class.number(), *slot);
                let is_known =
                    state.index.get(key) == Some(place) || state.history.has_removed_entry(key, place);
                (!is_known).then_some(("K-5", "a row's slot is used, and the index does not have it"))
            }
            Decoded::Item(_) => Some(("K-2", "a used slot holds something else than a row")),
            Decoded::Empty => Some(("checksum", "there is no item where a row is")),
            Decoded::Bad(why) => Some(("checksum", why)),
        };
        if let Some((what, message)) = damage {
            report.damages.push(Damage {
                what: what.to_string(),
                file: Some(slab.file().name().to_string()),
                offset: Some(offset),
                range: None,
                message: message.to_string(),
            });
        }
    }
}
