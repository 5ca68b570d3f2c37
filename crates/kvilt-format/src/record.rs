//! The frame of a record of a manifest or a commit log.
//!
//! Where it stands: between what a record says and the file. Always true: head and body have checksums of
//! their own, salted with the record's offset, so that a record is recognised by its twelve bytes of head
//! alone, and only where it was written.
//!
//! ```text
//! body len u32 | body checksum u32 | checksum of the eight bytes before u32 | body
//! ```
//!
//! A record without a body is a mark: "everything before me was synced".

use crate::{FileIdentity, checksum::checksum};

pub(crate) const HEAD_BYTES: usize = 12;

/// What stands at an offset.
pub(crate) enum Found<'a> {
    /// A record with this body; empty for a mark.
    Record(&'a [u8]),
    /// Nothing good.
    Bad,
}

/// Appends the record that will lie at `offset`; none, and nothing appended, if the body exceeds 4 GiB.
pub(crate) fn push(out: &mut Vec<u8>, body: &[u8], id: FileIdentity, offset: u64) -> Option<()> {
    let body_len = u32::try_from(body.len()).ok()?;
    let head = head(body_len, checksum(id.salt(offset), body), id, offset);
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
    Some(())
}

/// Puts the head before a body of less than 4 GiB that was appended to `out` behind [`HEAD_BYTES`] bytes kept
/// free from `start` on. The record will lie at `offset`.
pub(crate) fn seal(out: &mut [u8], start: usize, id: FileIdentity, offset: u64) {
    let body = &out[start + HEAD_BYTES..];
    let body_len = u32::try_from(body.len()).expect("a body has less than 4 GiB");
    let head = head(body_len, checksum(id.salt(offset), body), id, offset);
    out[start..start + HEAD_BYTES].copy_from_slice(&head);
}

/// The mark that may lie at `offset`.
pub(crate) fn mark(id: FileIdentity, offset: u64) -> [u8; HEAD_BYTES] {
    head(0, checksum(id.salt(offset), &[]), id, offset)
}

fn head(body_len: u32, body_sum: u32, id: FileIdentity, offset: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&body_len.to_le_bytes());
    head[4..8].copy_from_slice(&body_sum.to_le_bytes());
    let sum = checksum(id.salt(offset), &head[..8]);
    head[8..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Looks at the record at `offset` of the file's `bytes`.
pub(crate) fn at(bytes: &[u8], id: FileIdentity, offset: usize) -> Found<'_> {
    let Some((body_len, body_sum)) = head_at(bytes, id, offset) else { return Found::Bad };
    let start = offset + HEAD_BYTES;
    let end = start.checked_add(body_len);
    match end.and_then(|end| bytes.get(start..end)) {
        Some(body) if checksum(id.salt(offset as u64), body) == body_sum => Found::Record(body),
        Some(_) | None => Found::Bad,
    }
}

/// Whether something stands behind `offset` that was written only when all before it, what stands at `offset`
/// included, had been synced: a mark, or a good record. Takes time in proportion to the bytes.
///
/// One record proves nothing: that right behind a mark's length. If a mark stood at `offset`, it was never
/// synced by itself, and a power cut may leave the record that was appended behind it and not the mark.
pub(crate) fn is_proven_by_later(bytes: &[u8], id: FileIdentity, offset: usize) -> bool {
    // Byte by byte, as the length of the record at `offset` cannot be trusted. A good head hardly ever comes
    // about by accident; where many stand before bad bodies, somebody forged them, and that is no torn end.
    let mut body_bytes_left = bytes.len().saturating_mul(4);
    for behind in offset + 1..bytes.len() {
        let Some((body_len, _)) = head_at(bytes, id, behind) else { continue };
        if body_len > body_bytes_left {
            return true;
        }
        if let Found::Record(body) = at(bytes, id, behind)
            && (behind != offset + HEAD_BYTES || body.is_empty())
        {
            return true;
        }
        body_bytes_left -= body_len;
    }
    false
}

/// Length and checksum of the body, if a good head stands at `offset` and its body can end within the bytes.
fn head_at(bytes: &[u8], id: FileIdentity, offset: usize) -> Option<(usize, u32)> {
    let (body_len, body_sum) = decode_head(bytes.get(offset..)?, id, offset as u64)?;
    (body_len <= bytes.len() - offset - HEAD_BYTES).then_some((body_len, body_sum))
}

/// Length and checksum of the body, if `bytes` begin with a good head, which lies at `offset`.
pub(crate) fn decode_head(bytes: &[u8], id: FileIdentity, offset: u64) -> Option<(usize, u32)> {
    let head = bytes.get(..HEAD_BYTES)?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    (checksum(id.salt(offset), &head[..8]) == number(8)).then(|| (number(0) as usize, number(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileIdentity = FileIdentity { store_id: 3, number: 8 };

    /// So many bad bytes, and behind them a record with this body.
    fn behind_bad_bytes(bad: usize, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xa5; bad];
        push(&mut bytes, body, ID, bad as u64).unwrap();
        bytes
    }

    #[test]
    fn a_record_behind_proves_what_is_before_it_but_not_right_behind_a_mark() {
        for (bad, body, is_proof) in [
            (HEAD_BYTES, b"".as_slice(), true),
            (HEAD_BYTES, b"body", false),
            (HEAD_BYTES - 1, b"body", true),
            (HEAD_BYTES + 1, b"body", true),
            (1, b"", true),
            (500, b"body", true),
            (500, b"", true),
        ] {
            let bytes = behind_bad_bytes(bad, body);
            assert_eq!(is_proven_by_later(&bytes, ID, 0), is_proof, "{bad} bad bytes before {body:?}");
        }
        assert!(!is_proven_by_later(&[0xa5; 500], ID, 0));
        // It does not lie where it was written.
        let mut moved = behind_bad_bytes(500, b"body");
        moved.insert(0, 0xa5);
        assert!(!is_proven_by_later(&moved, ID, 0));
    }
}
