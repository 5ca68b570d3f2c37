//! What is left of a damaged log: its good records, and where there are bad ones.

use kvilt_base::{EntryRef, Version};

use super::{Decoded, HEADER_BYTES, decode_record};
use crate::FileIdentity;

/// Work on guesses may be so many times the log's bytes.
const GUESSES_MAX: usize = 64;

/// Gives every good record of the log whose first bytes these are to `record`, in order; and to `damage` the
/// offset of each place where records are missing. With `is_synced` the bytes end where the last record does,
/// so an incomplete one is damage; without, it is a torn tail.
///
/// Behind damage, records are looked for byte by byte. A record's checksum is salted with its place, and what
/// follows it must be a record, too, or the end: so what is found is one, not something that looks like it.
pub fn salvage(
    bytes: &[u8],
    id: FileIdentity,
    base: Version,
    is_synced: bool,
    record: &mut dyn FnMut(EntryRef<'_>),
    damage: &mut dyn FnMut(u64),
) {
    let mut at = HEADER_BYTES;
    if bytes.len() < at && is_synced {
        return damage(0);
    }
    let mut guesses_left = bytes.len().saturating_mul(GUESSES_MAX);
    while at < bytes.len() {
        match decode_record(&bytes[at..], id, at as u64, base) {
            Decoded::Record { entry, len, .. } => {
                record(entry);
                at += len;
                continue;
            }
            Decoded::Summary { len } => {
                at += len;
                continue;
            }
            Decoded::Incomplete { .. } | Decoded::Bad(_) => {}
        }
        let next = (at + 1..bytes.len()).find(|&there| is_record(bytes, id, base, there, &mut guesses_left));
        if is_synced || next.is_some() {
            damage(at as u64);
        }
        at = next.unwrap_or(bytes.len());
    }
}

fn is_record(bytes: &[u8], id: FileIdentity, base: Version, at: usize, guesses_left: &mut usize) -> bool {
    let mut at = at;
    for _ in 0..2 {
        if at == bytes.len() {
            return true;
        }
        let Some(left) = guesses_left.checked_sub(claimed_bytes(&bytes[at..], base)) else { return false };
        *guesses_left = left;
        match decode_record(&bytes[at..], id, at as u64, base) {
            Decoded::Record { len, .. } | Decoded::Summary { len } => at += len,
            Decoded::Incomplete { .. } | Decoded::Bad(_) => return false,
        }
    }
    true
}

/// How many bytes a checksum must be made of to see whether a record stands here.
fn claimed_bytes(bytes: &[u8], base: Version) -> usize {
    super::decode_frame(bytes, base)
        .map_or(0, |frame| if frame.len() <= bytes.len() { frame.len() } else { 0 })
}
