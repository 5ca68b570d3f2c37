//! One file at a time, or a part of one, through everything that decodes it.

use kvilt_base::Result;
use kvilt_format::{
    FileIdentity,
    slab::{
        Class, Decoded, DecodedPage, Head, ITEM_HEADER_BYTES, Item, MapPage, PAGE_BYTES, ROOT_COPY_BYTES,
        Root, SnapshotReader, SnapshotWriter, Verifier, map_page_offset, newest_of_pair, slab_name,
    },
};

use super::mend::{self, OF_SHARD, SHARD, STORE_ID};

/// Whether the first byte says to mend what follows.
fn is_to_mend(how: u8) -> bool {
    how & 1 == 0
}

/// The beginning of a slab's first block: an input has a byte for the class before it.
pub(super) struct Slots {
    pub(super) class: Class,
    id: FileIdentity,
    pub(super) bytes: Vec<u8>,
}

impl Slots {
    pub(super) fn of(input: &[u8]) -> Option<Slots> {
        let (class, bytes) = input.get(1..)?.split_first()?;
        let class = Class::new(*class)?;
        let id = FileIdentity { store_id: STORE_ID, number: slab_name(SHARD, class).number() };
        let bytes = bytes[..bytes.len().min(class.block_bytes())].to_vec();
        Some(Slots { class, id, bytes })
    }

    pub(super) fn mend(&mut self) {
        for (slot, bytes) in self.bytes.chunks_mut(self.class.slot_bytes()).enumerate() {
            mend::item(bytes, self.id, self.class.slot_offset(slot as u64));
        }
    }

    /// The bytes of each slot, and where it lies.
    fn slots(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let slots = self.bytes.chunks(self.class.slot_bytes()).enumerate();
        slots.map(|(slot, bytes)| (bytes, self.class.slot_offset(slot as u64)))
    }

    #[cfg(test)]
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.slots().filter_map(|(bytes, place)| match Item::decode(bytes, self.id, place) {
            Decoded::Item(item) => Some(item),
            Decoded::Empty | Decoded::Bad(_) => None,
        })
    }
}

/// Slots of a block: with and without the checksum, at once and in pieces, an item is the same.
pub fn slab(input: &[u8]) {
    let Some(mut slots) = Slots::of(input) else { return };
    let how = input[0];
    if is_to_mend(how) {
        slots.mend();
    }
    for (bytes, place) in slots.slots() {
        let decoded = Item::decode(bytes, slots.id, place);
        assert_eq!(
            is_good_in_pieces(bytes, slots.id, place, 1 + usize::from(how >> 1)),
            match decoded {
                Decoded::Item(_) => Some(true),
                Decoded::Empty => None,
                // A good checksum of what no encoder writes.
                Decoded::Bad(_) => is_good_in_pieces(bytes, slots.id, place, bytes.len()),
            }
        );
        let Decoded::Item(item) = decoded else { continue };
        assert_eq!(Item::decode_verified(bytes), Ok(Some(item)));
        let len = item.encoded_len();
        assert!(len <= slots.class.slot_bytes() && Class::of_len(len).is_some());
        let mut again = bytes.to_vec();
        assert_eq!(item.encode_into(&mut again, slots.id, place), len);
        assert!(again == bytes, "an item has one encoding");
        let elsewhere = FileIdentity { number: slots.id.number + 1, ..slots.id };
        for (id, place) in [(elsewhere, place), (slots.id, place + PAGE_BYTES as u64)] {
            assert!(matches!(Item::decode(bytes, id, place), Decoded::Bad(_)), "an item passes elsewhere");
        }
    }
}

/// Whether the verifier finds the item good; none if there is none, or if that is known by its head.
fn is_good_in_pieces(slot: &[u8], id: FileIdentity, place: u64, piece: usize) -> Option<bool> {
    let (begin, rest) = slot.split_at_checked(ITEM_HEADER_BYTES)?;
    let (head, mut verifier) = Verifier::new(begin, id, place).ok()??;
    assert_eq!(Head::of(slot), Ok(Some(head)));
    rest.chunks(piece.max(1)).for_each(|piece| verifier.add(piece));
    Some(verifier.is_good())
}

/// The cut of an input and its pair of pages: zeros follow what is there of them.
pub(super) fn pair_of(input: &[u8]) -> Option<(u64, [Box<[u8; PAGE_BYTES]>; 2])> {
    let (cut_max, rest) = input.get(1..)?.split_first_chunk()?;
    let (first, second) = halves(rest, PAGE_BYTES)?;
    let page = |bytes: &[u8]| {
        let mut page = Box::new([0; PAGE_BYTES]);
        page[..bytes.len()].copy_from_slice(bytes);
        page
    };
    Some((u64::from_le_bytes(*cut_max), [page(first), page(second)]))
}

/// Two byte strings: the length of the first in two bytes, that one, and the rest; neither longer than
/// `bytes_max`.
fn halves(bytes: &[u8], bytes_max: usize) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (first, second) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    (first.len() <= bytes_max && second.len() <= bytes_max).then_some((first, second))
}

/// A pair of pages: each alone, and which of them counts.
pub fn map(input: &[u8]) {
    let Some((cut_max, mut pages)) = pair_of(input) else { return };
    if is_to_mend(input[0]) {
        pages.iter_mut().enumerate().for_each(|(copy, page)| mend::map_page(page, copy));
    }
    let decoded = [0, 1].map(|copy| map_page(&pages[copy], copy));
    let cut = |copy: usize| match decoded[copy] {
        DecodedPage::Page(page) if page.cut <= cut_max => Some(page.cut),
        DecodedPage::Page(_) | DecodedPage::Empty | DecodedPage::Bad(_) => None,
    };
    match newest_of_pair([&decoded[0], &decoded[1]], cut_max) {
        Some(newest) => assert!(cut(newest).is_some() && cut(newest) >= cut(1 - newest)),
        None => assert_eq!((cut(0), cut(1)), (None, None)),
    }
}

pub(super) fn map_page(bytes: &[u8; PAGE_BYTES], copy: usize) -> DecodedPage<'_> {
    let offset = map_page_offset(0, copy);
    let decoded = MapPage::decode(bytes, OF_SHARD, offset);
    if let DecodedPage::Page(page) = decoded {
        let mut again = [0xa5; PAGE_BYTES];
        page.encode_into(&mut again, OF_SHARD, offset);
        assert!(again == *bytes, "a page has one encoding");
        let elsewhere = MapPage::decode(bytes, OF_SHARD, map_page_offset(0, 1 - copy));
        assert!(matches!(elsewhere, DecodedPage::Bad(_)), "a page passes elsewhere");
    }
    decoded
}

/// The file of an input: zeros follow what is there of each copy.
pub(super) fn root_file(input: &[u8]) -> Option<Vec<u8>> {
    let (first, second) = halves(input.get(1..)?, ROOT_COPY_BYTES)?;
    let mut file = vec![0; 2 * ROOT_COPY_BYTES];
    file[..first.len()].copy_from_slice(first);
    file[ROOT_COPY_BYTES..][..second.len()].copy_from_slice(second);
    Some(file)
}

/// Both copies of the root: the newest that is good counts.
pub fn root(input: &[u8]) {
    let Some(mut file) = root_file(input) else { return };
    if is_to_mend(input[0]) {
        mend::root(&mut file);
    }
    let copies = [0, 1].map(|copy| Root::decode(&file[copy * ROOT_COPY_BYTES..][..ROOT_COPY_BYTES], copy));
    for (copy, root) in copies.iter().enumerate() {
        let Ok(root) = root else { continue };
        assert_eq!(root.offset() as usize, copy * ROOT_COPY_BYTES);
        let again = Root::decode(root.encode().as_slice(), copy);
        assert!(again.is_ok_and(|again| again == *root), "a root comes back as it was");
    }
    let good = || copies.iter().flatten();
    match Root::newest(&file) {
        Ok(Some(newest)) => {
            assert!(good().any(|root| *root == newest));
            assert!(good().all(|root| root.generation <= newest.generation));
        }
        Ok(None) => assert!(file.iter().all(|byte| *byte == 0)),
        // Both are bad, one is of a newer Kvilt, or they are of two stores.
        Err(_) => assert!(good().count() != 1 || copies.iter().any(is_newer)),
    }
}

fn is_newer(copy: &Result<Root>) -> bool {
    copy.as_ref().is_err_and(|e| e.kind() == kvilt_base::ErrorKind::UnsupportedVersion)
}

type Entries = Vec<(Vec<u8>, u64)>;

/// All entries of a snapshot, whose source gives at most `piece` bytes at once; and its generation.
pub(super) fn entries_of(bytes: &[u8], piece: usize) -> Result<(u64, Entries)> {
    let mut rest = bytes;
    let source = |buffer: &mut [u8]| {
        let (now, behind) = rest.split_at(rest.len().min(piece).min(buffer.len()));
        buffer[..now.len()].copy_from_slice(now);
        rest = behind;
        Ok(now.len())
    };
    let mut reader = SnapshotReader::new(source, OF_SHARD)?;
    let mut entries = Entries::new();
    while let Some((key, place)) = reader.next_entry()? {
        entries.push((key.to_vec(), place));
    }
    Ok((reader.generation(), entries))
}

/// An index snapshot: at once and in pieces it is the same, and it can be written again.
pub fn snapshot(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if is_to_mend(*how) {
        mend::snapshot(&mut bytes);
    }
    let in_pieces = entries_of(&bytes, 16 + usize::from(*how));
    let (generation, entries) = match (entries_of(&bytes, usize::MAX), in_pieces) {
        (Ok(read), Ok(again)) => {
            assert!(read == again, "a snapshot reads otherwise in pieces");
            read
        }
        (Err(e), Err(again)) => return assert_eq!((e.kind(), e.offset()), (again.kind(), again.offset())),
        (Ok(_), Err(e)) | (Err(e), Ok(_)) => panic!("a snapshot is bad only sometimes: {e}"),
    };
    assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "keys ascend");
    let written = snapshot_of(&entries, generation);
    assert!(entries_of(&written, usize::MAX).is_ok_and(|again| again == (generation, entries)));
}

pub(super) fn snapshot_of(entries: &[(Vec<u8>, u64)], generation: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let mut writer = SnapshotWriter::new(sink, OF_SHARD, generation).expect("the sink takes all");
    entries.iter().for_each(|(key, place)| writer.add(key, *place).expect("the sink takes all"));
    let len = writer.finish().expect("the sink takes all");
    assert_eq!(len, bytes.len() as u64);
    bytes
}
