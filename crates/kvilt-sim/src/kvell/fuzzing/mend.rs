//! Puts checksums, magic numbers and identities right, so that bytes get past the guards.
//!
//! It goes by the lengths that stand there, and stops where they make no sense. The formats are those of
//! `docs/format/`; a test holds it to the encoders.

use kvilt_format::{
    FileIdentity, HEADER_BYTES,
    checksum::checksum,
    coding::Decoder,
    slab::{Head, MAP_PAGE_SLOTS, PAGE_BYTES, ROOT_COPY_BYTES, map_page_offset},
};

use super::seeds;
use crate::fuzzing::header::{mend_header, put};

/// The store that every mended file claims to belong to.
pub const STORE_ID: u64 = 0x6b76_656c_6c5f_667a;

/// The shard that they belong to.
pub(super) const SHARD: u32 = 3;

/// The map, and the index snapshot, of the shard.
pub(super) const OF_SHARD: FileIdentity = FileIdentity { store_id: STORE_ID, number: SHARD as u64 };

fn put_checksum(bytes: &mut [u8], salt: u32) {
    let sum = checksum(salt, &bytes[4..]);
    put(bytes, 0, &sum.to_le_bytes());
}

/// An item in its slot, which lies at `place`.
pub(super) fn item(slot: &mut [u8], id: FileIdentity, place: u64) {
    let Ok(Some(head)) = Head::of(slot) else { return };
    if let Some(item) = slot.get_mut(..head.item_len()) {
        put_checksum(item, id.salt(place));
    }
}

/// A page of the first pair of the map; zeros stay zeros.
pub(super) fn map_page(page: &mut [u8; PAGE_BYTES], copy: usize) {
    if page.iter().all(|byte| *byte == 0) {
        return;
    }
    page[5..8].fill(0);
    page[24..32].fill(0);
    let first = u64::from_le_bytes(*page[8..].first_chunk().expect("eight bytes"));
    put(page, 8, &(first / MAP_PAGE_SLOTS * MAP_PAGE_SLOTS).to_le_bytes());
    put_checksum(page, OF_SHARD.salt(map_page_offset(0, copy)));
}

/// Both copies of the root; a copy of zeros stays one.
pub(super) fn root(file: &mut [u8]) {
    let id = FileIdentity { store_id: STORE_ID, number: 0 };
    let like = seeds::root(2).encode();
    for (copy, bytes) in file.chunks_exact_mut(ROOT_COPY_BYTES).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        mend_header(bytes, b"KVILTroo", id);
        put(bytes, 148, &like[148..152]);
        let sum = checksum(id.salt(copy as u64), &bytes[..ROOT_COPY_BYTES - 4]);
        put(bytes, ROOT_COPY_BYTES - 4, &sum.to_le_bytes());
    }
}

/// An index snapshot, with its end.
pub(super) fn snapshot(bytes: &mut [u8]) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    mend_header(bytes, b"KVILTidx", OF_SHARD);
    let generation = u64::from_le_bytes(*bytes[32..].first_chunk().expect("eight bytes"));
    let (mut start, mut entries, mut checksums) = (HEADER_BYTES, 0, 0);
    while let Some(head) = bytes.get(start..).and_then(|rest| rest.first_chunk::<4>()) {
        let body_len = u32::from_le_bytes(*head) as usize;
        let is_end = body_len == 0;
        let len = 8 + if is_end { 16 } else { body_len };
        let Some(block) = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..len)) else { return };
        if is_end {
            put(block, 8, &u64::to_le_bytes(entries));
            put(block, 16, &u32::to_le_bytes(checksums));
            block[20..].fill(0);
        }
        let salt = OF_SHARD.salt((start as u64).wrapping_add(generation << 40));
        let sum = checksum(checksum(salt, &block[..4]), &block[8..]).to_le_bytes();
        put(block, 4, &sum);
        if is_end {
            return;
        }
        checksums = checksum(checksums, &sum);
        entries += entries_in(&block[8..]);
        start += len;
    }
}

/// How many entries can be told apart in a block's body.
fn entries_in(body: &[u8]) -> u64 {
    let mut decoder = Decoder::new(body);
    let mut entry = || {
        decoder.varint().ok()?;
        let suffix_len = decoder.varint_usize().ok()?;
        decoder.u64().ok()?;
        decoder.bytes(suffix_len).ok()
    };
    let mut entries = 0;
    while entry().is_some() {
        entries += 1;
    }
    entries
}
