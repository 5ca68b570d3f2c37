//! The last 96 bytes of a table: where the filter and the index lie, what the table holds, whose it is.
//!
//! Where it stands: an open reads the header, the footer, then filter and index in one piece. Always true:
//! the parts that a decoded footer names are contiguous and fill the table between its blocks and the footer.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | offset of the filter; the data blocks end there |
//! | 8 | 8 | stored bytes of the filter; 0 for none |
//! | 16 | 8 | offset of the index |
//! | 24 | 8 | stored bytes of the index |
//! | 32 | 8 | entries |
//! | 40 | 8 | highest version; 0 if there are no entries |
//! | 48 | 8 | bytes of keys and values, plain |
//! | 56 | 8 | store id |
//! | 64 | 8 | file number |
//! | 72 | 12 | zero |
//! | 84 | 4 | checksum of bytes 0–83, salted with this footer's offset |
//! | 88 | 8 | magic |

use kvilt_base::Version;

use crate::{
    FileIdentity,
    checksum::checksum,
    coding::{Decoder, Malformed},
    header::HEADER_BYTES,
};

pub(super) const FOOTER_BYTES: usize = 96;
const CHECKSUM_OFFSET: usize = 84;
const MAGIC_OFFSET: usize = 88;
const MAGIC: [u8; 8] = *b"KVILTend";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) filter_offset: u64,
    pub(super) filter_len: u64,
    pub(super) index_offset: u64,
    pub(super) index_len: u64,
    pub(super) entries: u64,
    pub(super) version_max: Version,
    pub(super) payload_bytes: u64,
}

/// The footer, which will lie at `offset`.
pub(super) fn encode(footer: &Footer, id: FileIdentity, offset: u64) -> [u8; FOOTER_BYTES] {
    let mut bytes = [0; FOOTER_BYTES];
    let fields = [
        footer.filter_offset,
        footer.filter_len,
        footer.index_offset,
        footer.index_len,
        footer.entries,
        footer.version_max.to_u64(),
        footer.payload_bytes,
        id.store_id,
        id.number,
    ];
    for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    let sum = checksum(id.salt(offset), &bytes[..CHECKSUM_OFFSET]);
    bytes[CHECKSUM_OFFSET..MAGIC_OFFSET].copy_from_slice(&sum.to_le_bytes());
    bytes[MAGIC_OFFSET..].copy_from_slice(&MAGIC);
    bytes
}

/// Decodes the footer that lies at `offset`, the last of its table.
pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], id: FileIdentity, offset: u64) -> Result<Footer, Malformed> {
    if bytes[MAGIC_OFFSET..] != MAGIC {
        return Err(Malformed("the table does not end with a footer"));
    }
    let sum = checksum(id.salt(offset), &bytes[..CHECKSUM_OFFSET]);
    if sum.to_le_bytes() != bytes[CHECKSUM_OFFSET..MAGIC_OFFSET] {
        return Err(Malformed("the footer's checksum differs"));
    }
    let mut decoder = Decoder::new(bytes);
    let footer = Footer {
        filter_offset: decoder.u64()?,
        filter_len: decoder.u64()?,
        index_offset: decoder.u64()?,
        index_len: decoder.u64()?,
        entries: decoder.u64()?,
        version_max: Version::from_u64(decoder.u64()?),
        payload_bytes: decoder.u64()?,
    };
    let is_whole = footer.filter_offset >= HEADER_BYTES as u64
        && footer.filter_offset.checked_add(footer.filter_len) == Some(footer.index_offset)
        && footer.index_offset.checked_add(footer.index_len) == Some(offset);
    if !is_whole {
        return Err(Malformed("the footer names parts that do not fill the table"));
    }
    if decoder.u64()? != id.store_id || decoder.u64()? != id.number {
        return Err(Malformed("the footer belongs to another file"));
    }
    Ok(footer)
}
