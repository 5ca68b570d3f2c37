//! The header that files of all engines have, put right so that bytes get past its guard.

use kvilt_format::{FORMAT_VERSION, FileIdentity, HEADER_BYTES, checksum::checksum};

/// Overwrites a part of the bytes.
pub(crate) fn put(bytes: &mut [u8], offset: usize, part: &[u8]) {
    bytes[offset..offset + part.len()].copy_from_slice(part);
}

/// Puts the header of a file right, unless the file is shorter than one. The field by kind stays what it is;
/// features and reserved bytes become zero.
pub(crate) fn mend_header(bytes: &mut [u8], magic: &[u8; 8], id: FileIdentity) {
    let Some(bytes) = bytes.get_mut(..HEADER_BYTES) else { return };
    put(bytes, 0, magic);
    put(bytes, 8, &FORMAT_VERSION.to_le_bytes());
    put(bytes, 16, &id.store_id.to_le_bytes());
    put(bytes, 24, &id.number.to_le_bytes());
    bytes[40..].fill(0);
    let sum = checksum(checksum(0, &bytes[..12]), &bytes[16..]);
    put(bytes, 12, &sum.to_le_bytes());
}
