//! The stores of `kvell` that are damaged: one that a power cut ended, whose slabs an open reads, and one
//! that was closed, and opens by index snapshots.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use kvilt_base::{Disk as _, Durability, Error, File, FileName, Result};
use kvilt_format::{
    FileIdentity,
    names::{ROOT, SLAB},
    slab::{
        DecodedPage, Item, MAP_PAGE_SLOTS, MapPage, PAGE_BYTES, Root, map_name, map_page_offset,
        newest_of_pair, slab_name,
    },
};
use kvilt_io::MemoryDisk;
use kvilt_kvell::Options;

use super::subject;
use crate::subject::{LastEnd, Recipe};

/// Between cuts in the background.
const INTERVAL: Duration = Duration::from_millis(300);

pub(super) fn references() -> Vec<Recipe> {
    [(1, LastEnd::PowerCut), (2, LastEnd::Close)].map(|(shards, end)| recipe(shards, end)).into()
}

fn recipe(shards: u32, end: LastEnd) -> Recipe {
    let store = || {
        let mut options = Options::default();
        (options.shards, options.queue_depth) = (shards, 4);
        // So little that few blocks are cached.
        subject(options, Durability::Async { interval: INTERVAL }, 256 << 10)
    };
    Recipe { earlier: vec![store()], last: store(), end, synced, is_unfound_when_older }
}

/// A drive that lost the last writes of a root, and said that it has them, looks like a crash before them.
/// Of a slab it leaves items that were good once, and the map says only that there is one.
fn is_unfound_when_older(name: FileName) -> bool {
    name == ROOT || name.kind() == SLAB
}

/// What of a store's files counts: of maps the pages that the root means, of slabs the items in used slots.
/// Of the root nothing does, for one bad copy is taken for a torn write; and snapshots may be left out.
fn synced(disk: &MemoryDisk) -> Result<BTreeMap<FileName, Vec<Range<u64>>>> {
    let bytes = |name: FileName| {
        let file = disk.open(name).map_err(|e| Error::io("open", e).in_file(name))?;
        whole(&*file).map_err(|e| Error::io("read", e).in_file(name))
    };
    let root = Root::newest(&bytes(ROOT)?)?.expect("the reference is a store");
    let page = |number: u64| number * PAGE_BYTES as u64..(number + 1) * PAGE_BYTES as u64;
    let mut synced = BTreeMap::<FileName, Vec<Range<u64>>>::new();
    for (shard, total) in (0..).zip(&root.maps) {
        let name = map_name(shard);
        let map = bytes(name)?;
        let id = FileIdentity { store_id: root.store_id, number: name.number() };
        synced.insert(name, vec![page(0)]);
        for pair in 0..u64::from(total.pairs) {
            let offsets = [0, 1].map(|copy| map_page_offset(pair, copy));
            let decoded = offsets.map(|offset| match map.get(offset as usize..) {
                Some([]) | None => DecodedPage::Empty,
                Some(rest) => MapPage::decode(rest.first_chunk().expect("whole pages"), id, offset),
            });
            let copy = newest_of_pair([&decoded[0], &decoded[1]], root.cut).expect("a page counts");
            let DecodedPage::Page(set) = &decoded[copy] else { unreachable!("the page that counts is good") };
            synced.entry(name).or_default().push(offsets[copy]..offsets[copy] + PAGE_BYTES as u64);
            let used: Vec<u64> = (0..MAP_PAGE_SLOTS).filter(|n| set.is_set(*n)).collect();
            if used.is_empty() {
                continue;
            }
            let slab = bytes(slab_name(shard, set.class))?;
            let ranges = synced.entry(slab_name(shard, set.class)).or_insert_with(|| vec![page(0)]);
            for slot in used {
                let offset = set.class.slot_offset(set.first_slot + slot);
                let item = Item::decode_verified(&slab[offset as usize..][..set.class.slot_bytes()]);
                let item = item.ok().flatten().expect("a used slot has an item");
                ranges.push(offset..offset + item.encoded_len() as u64);
            }
        }
    }
    Ok(synced)
}

fn whole(file: &dyn File) -> std::io::Result<Vec<u8>> {
    let len = file.len()? as usize;
    let mut bytes = kvilt_base::queue::aligned(len.next_multiple_of(PAGE_BYTES));
    let read = file.read_full_at(0, &mut bytes)?;
    Ok(bytes[..read].to_vec())
}
