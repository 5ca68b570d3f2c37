//! Inputs to begin with, made by the encoders.

use kvilt_base::{Level, Version, disk::Habitat};
use kvilt_format::{
    FileIdentity, HEADER_BYTES,
    slab::{
        Class, Content, Item, MAP_BITS_BYTES, MAP_PAGE_SLOTS, MapPage, MapTotal, PAGE_BYTES, Root,
        map_page_offset, pair_stamp, slab_name,
    },
};

use super::{
    decoders::snapshot_of,
    mend::{self, OF_SHARD, SHARD, STORE_ID},
};

/// The first slots of slabs of some classes.
pub(super) fn slabs() -> Vec<Vec<u8>> {
    let values = [
        Content::Value { key: b"apple", value: b"red" },
        Content::Value { key: b"", value: b"" },
        Content::RangeDelete { start: b"a", end: Some(b"b") },
        Content::RangeDelete { start: b"x", end: None },
    ];
    let long = Content::Value { key: &[b'k'; 100], value: &[b'v'; 300] };
    let longer = Content::Value { key: &[b'k'; 30], value: &[b'v'; 500] };
    let tombstones = [0, 1 << 56].map(|place| Content::Tombstone { place });
    // Behind the first item lies an empty slot, if slots are short.
    let slab = |number: u8, contents: &[Content<'_>]| {
        let class = Class::new(number).expect("there is such a class");
        let id = FileIdentity { store_id: STORE_ID, number: slab_name(SHARD, class).number() };
        let (mut block, mut end) = (vec![0; class.block_bytes()], 0);
        for (n, content) in contents.iter().enumerate() {
            let slot = n as u64 + u64::from(n > 0 && class.slot_bytes() < 200);
            let item = Item {
                version: Version::new(3, n as u64),
                batch_len: contents.len() as u32,
                content: *content,
            };
            let start = class.offset_in_block(slot);
            end = start + item.encode_into(&mut block[start..], id, class.slot_offset(slot));
        }
        [&[0, number], &block[..end]].concat()
    };
    vec![
        slab(0, &tombstones),
        slab(1, &values),
        slab(3, &values),
        slab(11, &[values[0], long]),
        slab(13, &[values[3], longer]),
    ]
}

/// Pairs of pages: one alone, two in either order, and none.
pub(super) fn maps() -> Vec<Vec<u8>> {
    let page = |copy: usize, cut: u64| {
        let mut bits = [0; MAP_BITS_BYTES];
        bits[..3].copy_from_slice(&[0b101, 0, cut as u8]);
        let class = Class::new(7).expect("there is such a class");
        let mut page = [0; PAGE_BYTES];
        let first_slot = copy as u64 * MAP_PAGE_SLOTS;
        MapPage { class, first_slot, cut, bits: &bits }.encode_into(
            &mut page,
            OF_SHARD,
            map_page_offset(0, copy),
        );
        page[..40].to_vec()
    };
    let cut = |number| 3_u64 << 40 | number;
    [
        (cut(9), page(0, cut(8)), page(1, cut(9))),
        (cut(9), page(0, cut(9)), page(1, cut(8))),
        (cut(9), page(0, cut(8)), page(1, cut(10))),
        (cut(9), Vec::new(), page(1, cut(9))),
        (cut(9), Vec::new(), Vec::new()),
    ]
    .map(|(cut_max, first, second)| [&[0], &u64::to_le_bytes(cut_max)[..], &halves(&first, &second)].concat())
    .to_vec()
}

/// As the targets take them apart again.
fn halves(first: &[u8], second: &[u8]) -> Vec<u8> {
    [&(first.len() as u16).to_le_bytes(), first, second].concat()
}

/// A root of two shards.
pub(super) fn root(generation: u64) -> Root {
    Root {
        store_id: STORE_ID,
        generation,
        cut: 3 << 40 | generation,
        version: Version::new(3, generation),
        in_flight: vec![Version::new(1, 7)],
        hash_key: *b"0123456789abcdef",
        epoch: 3,
        level: if generation.is_multiple_of(4) { Level::Sync } else { Level::Async },
        habitat: Habitat { boot: *b"fedcba9876543210", device: 5, inode: 77 },
        is_clean: generation.is_multiple_of(3),
        maps: vec![MapTotal::default(), MapTotal { pairs: 1, stamps: pair_stamp(0, 3 << 40 | generation) }],
    }
}

/// The generations of the copies that a root's inputs have: two in either order, and one alone.
pub(super) const ROOTS: [[Option<u64>; 2]; 3] = [[Some(6), Some(7)], [Some(8), Some(7)], [Some(2), None]];

/// Bytes of a copy before its zeros; the checksum behind them is what mending puts there.
const ROOT_BYTES: usize = 928;

pub(super) fn roots() -> Vec<Vec<u8>> {
    let copy = |generation: Option<u64>| {
        generation.map_or(Vec::new(), |generation| root(generation).encode()[..ROOT_BYTES].to_vec())
    };
    ROOTS.map(|[first, second]| [&[0][..], &halves(&copy(first), &copy(second))].concat()).to_vec()
}

/// Snapshots without a block, with one, and with two.
pub(super) fn snapshots() -> Vec<Vec<u8>> {
    let few =
        |keys: &[&str]| keys.iter().zip(5..).map(|(key, place)| (key.as_bytes().to_vec(), place)).collect();
    let fruit: Vec<_> = few(&["", "apple", "apricot", "banana", "cherry", "cherry pie"]);
    let more: Vec<_> = (0..40_u8).map(|n| (vec![b'x', n / 10, n % 10], u64::from(n) << 56 | 9)).collect();
    // A writer begins the second block only after 64 KiB; here it comes from another snapshot.
    let mut two_blocks = snapshot_of(&fruit, 7);
    two_blocks.truncate(two_blocks.len() - 24);
    two_blocks.extend_from_slice(&snapshot_of(&more, 7)[HEADER_BYTES..]);
    mend::snapshot(&mut two_blocks);
    [snapshot_of(&[], 7), snapshot_of(&fruit, 6), snapshot_of(&more, u64::MAX), two_blocks]
        .map(|bytes| [&[0], &bytes[..]].concat())
        .to_vec()
}
