//! A block as it is stored: its bytes, perhaps compressed, then a tag and a checksum.
//!
//! Where it stands: between plain blocks and the file; data blocks, the filter and the index are all stored
//! so. Always true: the checksum covers the stored bytes, the tag, the file's identity and the block's
//! offset, and it is checked before a byte is used; memory for plain bytes is never more than LZ4 could have
//! packed.
//!
//! ```text
//! tag 0: plain bytes                 | 0 | checksum u32
//! tag 1: varint plain len, LZ4 block | 1 | checksum u32
//! ```

use kvilt_base::limits;

use crate::{
    FileIdentity,
    checksum::{Running, checksum},
    coding::{Decoder, Malformed, VARINT_BYTES_MAX, push_varint},
};

/// Tag and checksum.
pub(super) const TRAILER_BYTES: usize = 5;

const CHECKSUM_BYTES: usize = 4;
const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// One byte of LZ4 makes at most this many plain ones.
const LZ4_EXPANSION_MAX: usize = 255;

/// Longest plain block: one entry of the largest key and value in a block of its own, with room to spare for
/// the largest ordinary block.
const PLAIN_BYTES_MAX: usize = limits::VALUE_BYTES_MAX + limits::ENGINE_KEY_BYTES_MAX + (16 << 20);

/// Appends `plain` as a stored block that will lie at `offset` of the file. With `compress` it is packed, if
/// that saves an eighth or more.
pub(super) fn push(out: &mut Vec<u8>, plain: &[u8], compress: bool, id: FileIdentity, offset: u64) {
    let start = out.len();
    let tag = if compress && push_packed(out, plain) {
        LZ4
    } else {
        out.truncate(start);
        out.extend_from_slice(plain);
        PLAIN
    };
    out.push(tag);
    let sum = checksum(id.salt(offset), &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Appends what stands behind a plain block to its last bytes, of which and of all before them the checksum
/// runs.
pub(super) fn end_plain(behind: &mut Vec<u8>, mut running: Running) {
    running.add(&[PLAIN]);
    behind.push(PLAIN);
    behind.extend_from_slice(&running.finish().to_le_bytes());
}

/// Whether this is the trailer of a block that is not packed.
pub(super) fn is_plain(trailer: &[u8; TRAILER_BYTES]) -> bool {
    trailer[0] == PLAIN
}

/// Whether a plain block ends with `trailer`, of all before which the checksum runs.
pub(super) fn is_end_of_plain(trailer: &[u8; TRAILER_BYTES], mut running: Running) -> bool {
    running.add(&[PLAIN]);
    is_plain(trailer) && trailer[1..] == running.finish().to_le_bytes()
}

/// Appends the packed form; false, with anything appended, if it saves too little.
fn push_packed(out: &mut Vec<u8>, plain: &[u8]) -> bool {
    let start = out.len();
    push_varint(out, plain.len() as u64);
    let packed_start = out.len();
    out.resize(packed_start + lz4_flex::block::get_maximum_output_size(plain.len()), 0);
    let Ok(packed) = lz4_flex::block::compress_into(plain, &mut out[packed_start..]) else { return false };
    out.truncate(packed_start + packed);
    out.len() - start <= plain.len() - plain.len() / 8
}

/// What a stored block is, once its checksum was found right.
pub(super) enum Opened {
    /// Its first bytes, this many, are the plain block.
    Plain(usize),
    /// The plain block was unpacked into the buffer given.
    Unpacked,
}

/// Checks a stored block that lies at `offset`; unpacks it into `plain` if it is packed.
pub(super) fn open(
    stored: &[u8],
    id: FileIdentity,
    offset: u64,
    plain: &mut Vec<u8>,
) -> Result<Opened, Malformed> {
    let covered_len =
        stored.len().checked_sub(CHECKSUM_BYTES).ok_or(Malformed("a block is shorter than its trailer"))?;
    let (covered, sum) = stored.split_at(covered_len);
    if checksum(id.salt(offset), covered).to_le_bytes() != *sum {
        return Err(Malformed("a block's checksum differs"));
    }
    let (&tag, payload) = covered.split_last().ok_or(Malformed("a block is shorter than its trailer"))?;
    match tag {
        PLAIN => Ok(Opened::Plain(payload.len())),
        LZ4 => unpack(payload, plain).map(|()| Opened::Unpacked),
        _ => Err(Malformed("a block has an unknown compression tag")),
    }
}

fn unpack(payload: &[u8], plain: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut decoder = Decoder::new(payload);
    let plain_len = decoder.varint_usize()?;
    debug_assert!(decoder.position() <= VARINT_BYTES_MAX);
    let packed = decoder.bytes(decoder.remaining())?;
    if plain_len > packed.len().saturating_mul(LZ4_EXPANSION_MAX) || plain_len > PLAIN_BYTES_MAX {
        return Err(Malformed("a packed block claims more plain bytes than it can hold"));
    }
    plain.clear();
    plain.resize(plain_len, 0);
    match lz4_flex::block::decompress_into(packed, plain) {
        Ok(len) if len == plain_len => Ok(()),
        Ok(_) | Err(_) => Err(Malformed("a packed block does not unpack")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: FileIdentity = FileIdentity { store_id: 1, number: 2 };

    proptest! {
        #[test]
        fn blocks_come_back_packed_or_not(seed in prop::collection::vec(any::<u8>(), 0..40), times in 1usize..200, compress in any::<bool>()) {
            let plain: Vec<u8> = seed.iter().copied().cycle().take(seed.len() * times).collect();
            let mut stored = Vec::new();
            push(&mut stored, &plain, compress, ID, 64);
            let mut unpacked = Vec::new();
            match open(&stored, ID, 64, &mut unpacked).unwrap() {
                Opened::Plain(len) => prop_assert_eq!(&stored[..len], &plain[..]),
                Opened::Unpacked => prop_assert_eq!(&unpacked, &plain),
            }
            prop_assert!(open(&stored, ID, 65, &mut unpacked).is_err(), "at another place");
        }

        #[test]
        fn arbitrary_bytes_with_a_right_checksum_neither_panic_nor_blow_up(mut bytes in prop::collection::vec(any::<u8>(), 0..300), tag in 0u8..3) {
            bytes.push(tag);
            let sum = checksum(ID.salt(0), &bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
            let mut plain = Vec::new();
            let _ = open(&bytes, ID, 0, &mut plain);
            prop_assert!(plain.capacity() <= 255 * bytes.len());
        }
    }

    #[test]
    fn a_claim_of_gigabytes_is_refused_before_memory_is_taken() {
        let mut bytes = Vec::new();
        push_varint(&mut bytes, 1 << 40);
        bytes.extend_from_slice(&[0x1f; 30]);
        bytes.push(LZ4);
        let sum = checksum(ID.salt(0), &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let mut plain = Vec::new();
        assert!(open(&bytes, ID, 0, &mut plain).is_err());
        assert_eq!(plain.capacity(), 0);
    }
}
