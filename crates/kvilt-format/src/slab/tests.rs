//! Tests of slabs, occupancy maps, roots and index snapshots: what was encoded comes back at its place, and
//! nothing else passes for it.

use kvilt_base::{ErrorKind, Level, Version, disk::Habitat, limits};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::names::{KINDS, SLAB_KINDS};

const ID: FileIdentity = FileIdentity { store_id: 0xfeed, number: 0x205 };
const PLACE: u64 = 4096 + 720;

/// The same place in another file, in another store, and elsewhere in the file.
fn elsewhere(id: FileIdentity, place: u64) -> [(FileIdentity, u64); 4] {
    [
        (FileIdentity { store_id: id.store_id + 1, ..id }, place),
        (FileIdentity { number: id.number + 1, ..id }, place),
        (id, place + 4096),
        (id, place - 8),
    ]
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn kind_of<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

// Classes.

#[test]
fn slots_lie_behind_one_another_and_none_crosses_a_page() {
    for class in Class::all() {
        assert_eq!(Class::new(class.number()), Some(class));
        assert!(class.slot_bytes().is_multiple_of(8) && class.block_bytes().is_multiple_of(PAGE_BYTES));
        let mut end = PAGE_BYTES as u64;
        for slot in 0..200 {
            let offset = class.slot_offset(slot);
            let block = class.block_of(slot);
            assert!(offset >= end, "{class:?}: slot {slot} lies in the one before, or in the header's page");
            assert_eq!(offset, class.block_offset(block) + class.offset_in_block(slot) as u64);
            end = offset + class.slot_bytes() as u64;
            let page = |offset: u64| offset / PAGE_BYTES as u64;
            match class.slots_a_block() {
                1 => assert_eq!(offset % PAGE_BYTES as u64, 0),
                _ => assert_eq!(page(offset), page(end - 1), "{class:?}: slot {slot}"),
            }
            assert!(class.blocks_in(end - 1) <= block && class.blocks_in(end) <= block + 1);
        }
        assert_eq!((class.blocks_in(0), class.blocks_in(4095), class.blocks_in(4096)), (0, 0, 0));
        assert_eq!(class.blocks_in(class.block_offset(7)), 7);
    }
    assert_eq!(Class::new(CLASS_COUNT as u8), None);
}

#[test]
fn an_item_belongs_to_the_shortest_slots_that_it_fits_in() {
    let classes: Vec<Class> = Class::all().skip(1).collect();
    for pair in classes.windows(2) {
        let (shorter, longer) = (pair[0].slot_bytes(), pair[1].slot_bytes());
        assert_eq!(Class::of_len(shorter), Some(pair[0]));
        assert_eq!(Class::of_len(shorter + 1), Some(pair[1]));
        assert_eq!(Class::of_len(longer), Some(pair[1]));
        if !(816..8 * PAGE_BYTES).contains(&shorter) {
            assert!(longer * 100 <= shorter * 128, "from {shorter} to {longer}");
        }
    }
    assert_eq!(Class::of_len(1), Some(classes[0]));
    assert!(Class::of_len(ITEM_BYTES_MAX).is_some());
    assert_eq!(Class::of_len(classes.last().unwrap().slot_bytes() + 1), None);
    assert_eq!(Class::of_len(usize::MAX), None);
}

// Names and headers.

#[test]
fn names_tell_shard_and_class_and_no_kind_is_of_two_engines() {
    for shard in [0, 3, u32::MAX] {
        for class in Class::all() {
            let name = slab_name(shard, class);
            assert_eq!(slab_of(name.number()), Some((shard, class)));
            assert_eq!(FileName::parse(&name.to_string(), SLAB_KINDS), Some(name));
        }
        assert_eq!(map_name(shard).number(), u64::from(shard));
        assert_eq!(snapshot_name(shard).number(), u64::from(shard));
    }
    assert_eq!(slab_of(0x2ff), None);
    assert_eq!(slab_of(u64::MAX - 255), None);
    assert!(SLAB_KINDS.iter().all(|kind| !KINDS.contains(kind)));
}

#[test]
fn every_flip_in_a_first_page_is_found_and_so_is_another_file() {
    type Encode = fn(FileIdentity) -> Box<[u8; PAGE_BYTES]>;
    type Check = fn(&[u8], FileIdentity) -> Result<()>;
    let files: [(Encode, Check); 2] =
        [(encode_slab_header, check_slab_header), (encode_map_header, check_map_header)];
    for (encode, check) in files {
        let page = encode(ID);
        check(page.as_slice(), ID).unwrap();
        for bit in 0..PAGE_BYTES * 8 {
            let mut bad = page.clone();
            flip(bad.as_mut_slice(), bit);
            assert_eq!(kind_of(check(bad.as_slice(), ID)), Some(ErrorKind::Corrupted), "bit {bit}");
        }
        for cut in [0, 63, 64, 4095] {
            assert_eq!(kind_of(check(&page[..cut], ID)), Some(ErrorKind::Corrupted), "{cut} bytes");
        }
        for (other, _) in &elsewhere(ID, PLACE)[..2] {
            assert_eq!(kind_of(check(page.as_slice(), *other)), Some(ErrorKind::Corrupted));
        }
    }
    // The file of another class, under this one's name.
    let mut page = *header_page(header::SLAB_MAGIC, ID, 64);
    assert_eq!(check_slab_header(&page, ID).unwrap_err().offset(), Some(32));
    page = *encode_slab_header(ID);
    assert_eq!(kind_of(check_map_header(&page, ID)), Some(ErrorKind::Corrupted));
    assert_eq!(header::read_identity(&page, FileName::Of(SLAB, ID.number)).unwrap(), ID);
}

// Items.

/// What an item owns, to make it from.
type Parts = (u8, Vec<u8>, Option<Vec<u8>>, u64, u32);

fn item_of(parts: &Parts) -> Item<'_> {
    let (kind, key, value, version, batch_len) = parts;
    let content = match kind % 3 {
        0 => Content::Value { key, value: value.as_deref().unwrap_or_default() },
        1 => Content::Tombstone { place: !*version },
        _ => Content::RangeDelete { start: key, end: value.as_deref() },
    };
    Item { version: Version::from_u64(*version), batch_len: *batch_len, content }
}

fn parts() -> impl Strategy<Value = Parts> {
    let value = proptest::option::of(vec(any::<u8>(), 0..60));
    (any::<u8>(), vec(any::<u8>(), 0..40), value, any::<u64>(), 1..u32::MAX)
}

/// The item in a slot that is longer than it, with an older item's rest behind.
fn slot_with(item: &Item<'_>) -> Vec<u8> {
    let mut slot = vec![0xa5; item.encoded_len() + 24];
    assert_eq!(item.encode_into(&mut slot, ID, PLACE), item.encoded_len());
    assert_eq!(slot[item.encoded_len()..], [0xa5; 24]);
    slot
}

/// Puts the checksum right, whatever else the bytes are.
fn mend_item(slot: &mut [u8]) {
    let Ok(Some(head)) = Head::of(slot) else { return };
    let Some(item) = slot.get_mut(..head.item_len()) else { return };
    let sum = checksum(ID.salt(PLACE), &item[4..]);
    item[..4].copy_from_slice(&sum.to_le_bytes());
}

proptest! {
    #[test]
    fn an_item_comes_back_from_its_place_and_from_no_other(parts in parts()) {
        let item = item_of(&parts);
        let slot = slot_with(&item);
        prop_assert_eq!(Item::decode(&slot, ID, PLACE), Decoded::Item(item));
        prop_assert_eq!(Item::decode(&slot[..item.encoded_len()], ID, PLACE), Decoded::Item(item));
        prop_assert_eq!(Item::decode_verified(&slot), Ok(Some(item)));
        let head = Head::of(&slot[..ITEM_HEADER_BYTES]).unwrap().unwrap();
        prop_assert_eq!((head.item_len(), head.kind), (item.encoded_len(), item.content.kind()));
        prop_assert_eq!((head.version, head.batch_len), (item.version, item.batch_len));
        for (id, place) in elsewhere(ID, PLACE) {
            prop_assert!(matches!(Item::decode(&slot, id, place), Decoded::Bad(_)));
        }
        for cut in 0..item.encoded_len() {
            prop_assert!(matches!(Item::decode(&slot[..cut], ID, PLACE), Decoded::Bad(_)), "cut {}", cut);
        }
    }

    #[test]
    fn every_flip_in_an_item_is_found_and_none_behind_it_matters(parts in parts()) {
        let item = item_of(&parts);
        let mut slot = slot_with(&item);
        for bit in 0..slot.len() * 8 {
            flip(&mut slot, bit);
            let decoded = Item::decode(&slot, ID, PLACE);
            match bit < item.encoded_len() * 8 {
                true => prop_assert!(matches!(decoded, Decoded::Bad(_)), "bit {}", bit),
                false => prop_assert_eq!(decoded, Decoded::Item(item)),
            }
            flip(&mut slot, bit);
        }
    }

    #[test]
    fn a_long_item_is_verified_piece_by_piece(parts in parts(), pieces in vec(1usize..50, 1..8), bit in any::<u16>()) {
        let item = item_of(&parts);
        let mut slot = slot_with(&item);
        let is_good = |slot: &[u8]| {
            let (begin, mut rest) = slot.split_at(slot.len().min(ITEM_HEADER_BYTES));
            let Ok(Some((_, mut verifier))) = Verifier::new(begin, ID, PLACE) else { return false };
            for len in pieces.iter().cycle() {
                let (piece, behind) = rest.split_at(rest.len().min(*len));
                verifier.add(piece);
                rest = behind;
                if rest.is_empty() { break }
            }
            verifier.is_good()
        };
        prop_assert!(is_good(&slot));
        prop_assert!(!is_good(&slot[..item.encoded_len() - 1]));
        let bit = usize::from(bit) % (slot.len() * 8);
        flip(&mut slot, bit);
        prop_assert_eq!(is_good(&slot), bit >= item.encoded_len() * 8);
        prop_assert!(Verifier::new(&[0; 40], ID, PLACE).unwrap().is_none());
    }

    /// Nothing that decodes is anything but what an encoder writes: one item, one encoding.
    #[test]
    fn arbitrary_slots_with_good_checksums_decode_or_not_but_never_panic(
        mut slot in vec(any::<u8>(), 0..200), kind in 0u8..5, key_len in 0u32..60, value_len in 0u32..60,
    ) {
        let _ = Item::decode(&slot, ID, PLACE);
        let _ = Item::decode_verified(&slot);
        if slot.len() >= ITEM_HEADER_BYTES {
            slot[4..8].copy_from_slice(&value_len.to_le_bytes());
            slot[16..20].copy_from_slice(&(key_len | u32::from(kind) << 24).to_le_bytes());
            mend_item(&mut slot);
        }
        if let Decoded::Item(item) = Item::decode(&slot, ID, PLACE) {
            let mut again = slot.clone();
            let len = item.encode_into(&mut again, ID, PLACE);
            prop_assert_eq!(&again, &slot);
            prop_assert!(len <= slot.len());
        }
    }
}

#[test]
fn a_slot_of_zeros_is_empty_and_lengths_beyond_their_limits_are_bad() {
    assert_eq!(Item::decode(&[0; 64], ID, PLACE), Decoded::Empty);
    assert_eq!(Item::decode_verified(&[0; 64]), Ok(None));
    // The sectors behind the first were written, and that one was not.
    let mut torn = vec![0; 512];
    torn.extend_from_slice(&[0xa5; 512]);
    assert_eq!(Item::decode(&torn, ID, PLACE), Decoded::Empty);

    let content = Content::Value { key: b"k", value: b"v" };
    let item = Item { version: Version::new(1, 1), batch_len: 1, content };
    let keys = (16, (1 << 24) | (limits::ENGINE_KEY_BYTES_MAX as u32 + 1));
    let values = (4, limits::VALUE_BYTES_MAX as u32 + 1);
    for (offset, len) in [keys, values, (16, u32::MAX), (4, u32::MAX)] {
        let mut slot = slot_with(&item);
        slot[offset..offset + 4].copy_from_slice(&len.to_le_bytes());
        assert!(Head::of(&slot).is_err(), "{len} at {offset}");
    }
    for (offset, byte) in [(19, 0), (19, 4), (20, 0)] {
        let mut slot = slot_with(&item);
        slot[offset] = byte;
        assert!(Head::of(&slot).is_err(), "{byte} at {offset}");
    }
}

#[test]
fn the_longest_items_fit_their_class() {
    let (key, value) = (vec![7; limits::ENGINE_KEY_BYTES_MAX], vec![9; limits::VALUE_BYTES_MAX]);
    for content in [
        Content::Value { key: &key, value: &value },
        Content::RangeDelete { start: &key, end: Some(&key) },
        Content::RangeDelete { start: &key, end: None },
        Content::Value { key: b"", value: b"" },
    ] {
        let item = Item { version: Version::NEWEST, batch_len: u32::MAX, content };
        let mut slot = vec![0; Class::of_len(item.encoded_len()).unwrap().slot_bytes()];
        item.encode_into(&mut slot, ID, PLACE);
        assert_eq!(Item::decode(&slot, ID, PLACE), Decoded::Item(item));
    }
}

// Occupancy maps.

fn map_page(cut: u64, byte: u8) -> Box<[u8; PAGE_BYTES]> {
    let class = Class::new(5).unwrap();
    let bits = [byte; MAP_BITS_BYTES];
    let mut page = Box::new([0xa5; PAGE_BYTES]);
    MapPage { class, first_slot: 3 * MAP_PAGE_SLOTS, cut, bits: &bits }.encode_into(&mut page, ID, PLACE);
    page
}

#[test]
fn a_page_of_a_map_comes_back_from_its_place_and_every_flip_is_found() {
    let page = map_page(77, 0x81);
    let DecodedPage::Page(decoded) = MapPage::decode(&page, ID, PLACE) else { panic!("it is good") };
    assert_eq!((decoded.class.number(), decoded.first_slot, decoded.cut), (5, 3 * MAP_PAGE_SLOTS, 77));
    assert_eq!([0, 1, 7, 8, 32_511].map(|n| decoded.is_set(n)), [true, false, true, true, true]);
    for (id, place) in elsewhere(ID, PLACE) {
        assert!(matches!(MapPage::decode(&page, id, place), DecodedPage::Bad(_)));
    }
    let mut bad = page;
    for bit in 0..PAGE_BYTES * 8 {
        flip(bad.as_mut_slice(), bit);
        assert!(matches!(MapPage::decode(&bad, ID, PLACE), DecodedPage::Bad(_)), "bit {bit}");
        flip(bad.as_mut_slice(), bit);
    }
    assert_eq!(MapPage::decode(&[0; PAGE_BYTES], ID, PLACE), DecodedPage::Empty);
}

#[test]
fn a_page_with_a_good_checksum_that_no_encoder_writes_is_bad() {
    for (offset, byte) in [(4, CLASS_COUNT as u8), (5, 1), (8, 1), (15, 0x80), (24, 1), (31, 1)] {
        let mut page = map_page(77, 0);
        page[offset] = byte;
        let sum = checksum(ID.salt(PLACE), &page[4..]);
        page[..4].copy_from_slice(&sum.to_le_bytes());
        let is_bad = matches!(MapPage::decode(&page, ID, PLACE), DecodedPage::Bad(_));
        // 2^63 is no multiple of the slots of a page, either.
        assert!(is_bad, "{byte} at {offset}");
    }
}

#[test]
fn of_a_pair_the_newest_page_counts_that_is_not_newer_than_the_cut() {
    let pages = [map_page(10, 0), map_page(12, 0)];
    let [older, newer] = [0, 1].map(|n| MapPage::decode(&pages[n], ID, PLACE));
    let bad = DecodedPage::Bad("torn");
    for (pair, cut_max, newest) in [
        ([&older, &newer], 12, Some(1)),
        ([&newer, &older], 12, Some(0)),
        ([&older, &newer], u64::MAX, Some(1)),
        ([&older, &newer], 11, Some(0)),
        ([&newer, &older], 11, Some(1)),
        ([&older, &newer], 10, Some(0)),
        ([&older, &newer], 9, None),
        ([&bad, &newer], 12, Some(1)),
        ([&bad, &newer], 11, None),
        ([&older, &bad], 12, Some(0)),
        ([&DecodedPage::Empty, &older], 12, Some(1)),
        ([&DecodedPage::Empty, &DecodedPage::Empty], 12, None),
        ([&bad, &bad], 12, None),
    ] {
        assert_eq!(newest_of_pair(pair, cut_max), newest, "{cut_max}: {pair:?}");
    }
    assert_eq!(
        [(0, 0), (0, 1), (1, 0), (2, 1)].map(|(pair, copy)| map_page_offset(pair, copy) / 4096),
        [1, 2, 3, 6]
    );
}

/// F-9: a sum of stamps stands for which page of which pair counts.
#[test]
fn stamps_tell_pairs_and_cuts_apart() {
    let stamps = (0..64).flat_map(|pair| (0..64).map(move |cut| pair_stamp(pair, (3 << 40) + cut)));
    let distinct: std::collections::HashSet<u64> = stamps.collect();
    assert_eq!(distinct.len(), 64 * 64);
    // Two pairs that exchange their cuts make another sum.
    assert_ne!(
        pair_stamp(1, 8).wrapping_add(pair_stamp(2, 9)),
        pair_stamp(1, 9).wrapping_add(pair_stamp(2, 8))
    );
}

// Roots.

fn root(generation: u64) -> Root {
    Root {
        store_id: 0xfeed,
        generation,
        cut: 9 << 40 | generation,
        version: Version::new(9, generation),
        in_flight: (1..generation).map(|count| Version::new(9, count)).collect(),
        hash_key: *b"0123456789abcdef",
        epoch: 9,
        level: if generation.is_multiple_of(2) { Level::Async } else { Level::Sync },
        habitat: Habitat { boot: *b"fedcba9876543210", device: 5, inode: 77 },
        is_clean: generation.is_multiple_of(3),
        maps: (0..3).map(|shard| MapTotal { pairs: shard, stamps: generation << 60 | 5 }).collect(),
    }
}

/// The file after the roots of these generations were written in turn.
fn root_file(generations: std::ops::RangeInclusive<u64>) -> Vec<u8> {
    let mut file = vec![0; 2 * ROOT_COPY_BYTES];
    for generation in generations {
        let root = root(generation);
        let start = root.offset() as usize;
        file[start..start + ROOT_COPY_BYTES].copy_from_slice(root.encode().as_slice());
    }
    file
}

#[test]
fn the_newest_root_counts_and_a_torn_one_leaves_the_one_before() {
    assert_eq!(Root::newest(&[]).unwrap(), None);
    assert_eq!(Root::newest(&[0; 2 * ROOT_COPY_BYTES]).unwrap(), None);
    assert_eq!(Root::newest(&root_file(2..=2)).unwrap(), Some(root(2)));
    assert_eq!(Root::newest(&root_file(2..=2)[..ROOT_COPY_BYTES]).unwrap(), Some(root(2)));
    for newest in 3..=6 {
        let file = root_file(2..=newest);
        assert_eq!(Root::newest(&file).unwrap(), Some(root(newest)));
        // The next one is torn, at each sector; the other sectors are still those of the copy before it.
        let next = root(newest + 1);
        let start = next.offset() as usize;
        for torn in 1..ROOT_COPY_BYTES / 512 {
            let mut file = file.clone();
            file[start..start + torn * 512].copy_from_slice(&next.encode()[..torn * 512]);
            let counted = Root::newest(&file).unwrap().unwrap();
            // What changed lies in the first sector, the checksum in the last.
            assert_eq!(counted, root(newest), "{torn} sectors of {}", newest + 1);
        }
    }
}

#[test]
fn every_flip_in_a_root_is_found() {
    let mut file = root_file(5..=6);
    for bit in 0..file.len() * 8 {
        flip(&mut file, bit);
        let left = if bit / 8 < ROOT_COPY_BYTES { root(5) } else { root(6) };
        assert_eq!(Root::newest(&file).unwrap(), Some(left), "bit {bit}");
        flip(&mut file, bit);
    }
    for bits in [[8, 8 * 5000], [8 * 4095, 8 * 4096]] {
        let mut file = file.clone();
        bits.iter().for_each(|bit| flip(&mut file, *bit));
        assert_eq!(kind_of(Root::newest(&file)), Some(ErrorKind::Corrupted));
    }
    for cut in [1, 64, 4095] {
        assert_eq!(kind_of(Root::newest(&file[..cut])), Some(ErrorKind::Corrupted), "{cut} bytes");
    }
    assert_eq!(Root::newest(&file[..5000]).unwrap(), Some(root(6)));
}

/// A copy with its checksums put right.
fn mended_root(copy: usize, change: impl FnOnce(&mut [u8])) -> Result<Root> {
    let mut bytes = root(6 + copy as u64).encode();
    change(bytes.as_mut_slice());
    let id = FileIdentity { store_id: 0xfeed, number: 0 };
    let sum = checksum(id.salt(copy as u64), &bytes[..PAGE_CHECKSUM_OFFSET]);
    bytes[PAGE_CHECKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
    Root::decode(bytes.as_slice(), copy)
}

#[test]
fn roots_that_no_encoder_writes_are_refused() {
    assert_eq!(mended_root(1, |_| ()).unwrap(), root(7));
    // Other size classes are those of another Kvilt.
    assert_eq!(kind_of(mended_root(0, |b| b[148] ^= 1)), Some(ErrorKind::UnsupportedVersion));
    for (offset, byte) in [(81, 2), (136, 0), (136, 65), (143, 1), (144, 2), (145, 2)] {
        assert_eq!(kind_of(mended_root(0, |b| b[offset] = byte)), Some(ErrorKind::Corrupted), "at {offset}");
    }
    // Each copy at the other's place.
    let bytes = root(6).encode();
    assert_eq!(kind_of(Root::decode(bytes.as_slice(), 1)), Some(ErrorKind::Corrupted));
    let mut swapped = root_file(6..=7);
    swapped.rotate_left(ROOT_COPY_BYTES);
    assert_eq!(kind_of(Root::newest(&swapped)), Some(ErrorKind::Corrupted));
    // One copy of another store.
    let mut file = root_file(6..=7);
    let foreign = Root { store_id: 1, ..root(8) };
    file[..ROOT_COPY_BYTES].copy_from_slice(foreign.encode().as_slice());
    assert_eq!(kind_of(Root::newest(&file)), Some(ErrorKind::Corrupted));
}

#[test]
fn a_root_has_room_for_the_most_shards_and_writes_in_flight() {
    let maps = (0..SHARDS_MAX as u64).map(|n| MapTotal { pairs: u32::MAX, stamps: !n }).collect();
    let in_flight = (0..IN_FLIGHT_MAX as u64).map(Version::from_u64).collect();
    let root = Root { maps, in_flight, generation: u64::MAX - 1, ..root(2) };
    assert_eq!(Root::decode(root.encode().as_slice(), root.copy()).unwrap(), root);
}

proptest! {
    #[test]
    fn arbitrary_roots_with_good_checksums_decode_or_not_but_never_panic(
        changes in vec((64usize..4092, any::<u8>()), 0..8), copy in 0usize..2,
    ) {
        let result = mended_root(copy, |bytes| changes.iter().for_each(|(at, byte)| bytes[*at] = *byte));
        if let Ok(root) = result {
            prop_assert_eq!(Root::decode(root.encode().as_slice(), copy).unwrap(), root);
        }
    }
}

// Index snapshots.

const SHARD: FileIdentity = FileIdentity { store_id: 0xfeed, number: 3 };

type Entries = Vec<(Vec<u8>, u64)>;

fn snapshot(entries: &Entries, generation: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let mut writer = SnapshotWriter::new(sink, SHARD, generation).unwrap();
    entries.iter().for_each(|(key, place)| writer.add(key, *place).unwrap());
    let len = writer.finish().unwrap();
    assert_eq!(len, bytes.len() as u64);
    bytes
}

/// Reads a snapshot to its end; the source gives at most `piece` bytes at once.
fn read_snapshot(bytes: &[u8], id: FileIdentity, piece: usize) -> Result<(u64, Entries)> {
    let mut rest = bytes;
    let source = |buffer: &mut [u8]| {
        let (now, behind) = rest.split_at(rest.len().min(piece).min(buffer.len()));
        buffer[..now.len()].copy_from_slice(now);
        rest = behind;
        Ok(now.len())
    };
    let mut reader = SnapshotReader::new(source, id)?;
    let mut entries = Entries::new();
    while let Some((key, place)) = reader.next_entry()? {
        entries.push((key.to_vec(), place));
    }
    assert_eq!(reader.next_entry()?, None, "the end stays the end");
    Ok((reader.generation(), entries))
}

fn few_entries() -> Entries {
    vec![(b"".to_vec(), 7), (b"apple".to_vec(), u64::MAX), (b"apricot".to_vec(), 1 << 40), (b"b".to_vec(), 0)]
}

proptest! {
    #[test]
    fn a_snapshot_comes_back_entry_by_entry_however_it_is_read(
        keys in proptest::collection::btree_map(vec(0u8..3, 0..9), any::<u64>(), 0..300), piece in 1usize..300,
    ) {
        let entries: Entries = keys.into_iter().collect();
        let bytes = snapshot(&entries, 21);
        prop_assert_eq!(read_snapshot(&bytes, SHARD, piece).unwrap(), (21, entries));
    }

    /// A body of any bytes behind a good checksum.
    #[test]
    fn arbitrary_blocks_with_good_checksums_are_read_or_not_but_never_panic(
        mut body in vec(any::<u8>(), 1..120), small in any::<bool>(),
    ) {
        if small {
            body.iter_mut().for_each(|byte| *byte %= 4);
        }
        let mut bytes = snapshot(&Entries::new(), 4)[..HEADER_BYTES].to_vec();
        let len_field = (body.len() as u32).to_le_bytes();
        let salt = SHARD.salt(64 + (4 << 40));
        let sum = checksum(checksum(salt, &len_field), &body);
        bytes.extend_from_slice(&len_field);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&body);
        // It has no end, so it is never good.
        prop_assert_eq!(kind_of(read_snapshot(&bytes, SHARD, 1000)), Some(ErrorKind::Corrupted));
    }
}

#[test]
fn a_snapshot_of_many_long_keys_has_blocks_within_their_limit() {
    let mut entries: Entries =
        (0..200_u32).map(|n| (vec![n as u8; 1 + n as usize * 20], u64::from(n))).collect();
    entries.push((vec![0xff; limits::ENGINE_KEY_BYTES_MAX - 1], 1));
    entries.push((vec![0xff; limits::ENGINE_KEY_BYTES_MAX], 2));
    entries.sort();
    let bytes = snapshot(&entries, 1);
    let (mut at, mut blocks) = (HEADER_BYTES, 0);
    while u32_at(&bytes, at) > 0 {
        at += 8 + u32_at(&bytes, at) as usize;
        blocks += 1;
    }
    assert_eq!(at + 24, bytes.len());
    assert!((6..20).contains(&blocks), "{blocks} blocks");
    assert_eq!(read_snapshot(&bytes, SHARD, usize::MAX).unwrap(), (1, entries));
}

#[test]
fn every_flip_and_every_cut_of_a_snapshot_is_found() {
    let entries = few_entries();
    let good = snapshot(&entries, 9);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        flip(&mut bad, bit);
        assert_eq!(kind_of(read_snapshot(&bad, SHARD, 100)), Some(ErrorKind::Corrupted), "bit {bit}");
    }
    for cut in 0..good.len() {
        assert_eq!(kind_of(read_snapshot(&good[..cut], SHARD, 100)), Some(ErrorKind::Corrupted), "cut {cut}");
    }
    let longer = [good.as_slice(), &[0]].concat();
    assert_eq!(read_snapshot(&longer, SHARD, 100).unwrap_err().offset(), Some(good.len() as u64));
    for (id, _) in &elsewhere(SHARD, PLACE)[..2] {
        assert_eq!(kind_of(read_snapshot(&good, *id, 100)), Some(ErrorKind::Corrupted));
    }
}

/// A snapshot that was written over an older one, and not wholly.
#[test]
fn blocks_of_another_generation_do_not_pass() {
    let many: Entries = (0..20_000_u32).map(|n| (n.to_be_bytes().to_vec(), u64::from(n))).collect();
    let (older, newer) = (snapshot(&many, 9), snapshot(&many, 10));
    assert_eq!(older.len(), newer.len());
    let first_block = 8 + u32_at(&older, HEADER_BYTES) as usize;
    for torn in [HEADER_BYTES, HEADER_BYTES + first_block, newer.len() - 24] {
        let mixed = [&newer[..torn], &older[torn..]].concat();
        let error = read_snapshot(&mixed, SHARD, 5000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupted);
        assert_eq!(error.offset(), Some(torn as u64 + 4));
    }
}

#[test]
fn an_error_of_the_sink_or_the_source_comes_out() {
    let full = || kvilt_base::Error::new(ErrorKind::NoSpace, "full");
    let sink = |_: &[u8]| Err(full());
    assert_eq!(kind_of(SnapshotWriter::new(sink, SHARD, 1)), Some(ErrorKind::NoSpace));
    let source = |_: &mut [u8]| Err(full());
    assert_eq!(kind_of(SnapshotReader::new(source, SHARD)), Some(ErrorKind::NoSpace));
}
