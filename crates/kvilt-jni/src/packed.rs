//! Packed lists: several byte strings as one, so that each crosses the border in one array.
//!
//! Each string is its length in four bytes, little-endian, and its bytes; [`ABSENT`] stands for one that is
//! not there. What Java packed is checked here as if it were a stranger's.

use jni::{Env, objects::JByteArray, sys::jint};
use kvilt::{Error, ErrorKind, Result};

use crate::failure::Failure;

/// In place of a length.
const ABSENT: u32 = u32::MAX;

/// A Java array has no more.
const BYTES_MAX: usize = i32::MAX as usize - 16;

/// Appends a string, or that there is none.
pub(crate) fn push(packed: &mut Vec<u8>, item: Option<&[u8]>) -> Result<()> {
    let bytes = item.unwrap_or_default();
    if packed.len() + 4 + bytes.len() > BYTES_MAX {
        let message = "the answer is longer than an array of Java may be, 2 GiB; ask for less at once";
        return Err(Error::new(ErrorKind::LimitReached, message));
    }
    let len = item.map_or(ABSENT, |bytes| bytes.len() as u32);
    packed.extend_from_slice(&len.to_le_bytes());
    packed.extend_from_slice(bytes);
    Ok(())
}

/// The strings of a list.
pub(crate) fn unpack(packed: &[u8]) -> Result<Vec<&[u8]>> {
    let mut items = Vec::new();
    let mut rest = packed;
    while !rest.is_empty() {
        let len = number(&mut rest)?;
        items.push(bytes(&mut rest, len)?);
    }
    Ok(items)
}

/// The first `len` bytes of an array of Java's, which may be longer since it grew by doubling.
pub(crate) fn head_of(env: &Env<'_>, array: &JByteArray<'_>, len: jint) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; len as usize];
    array.get_region(env, 0, &mut bytes)?;
    Ok(bytes.into_iter().map(|byte| byte as u8).collect())
}

/// Takes a number from the front.
pub(crate) fn number(rest: &mut &[u8]) -> Result<usize> {
    let (number, behind) = rest.split_first_chunk().ok_or_else(torn)?;
    *rest = behind;
    Ok(u32::from_le_bytes(*number) as usize)
}

/// Takes `len` bytes from the front.
pub(crate) fn bytes<'p>(rest: &mut &'p [u8], len: usize) -> Result<&'p [u8]> {
    let (bytes, behind) = rest.split_at_checked(len).ok_or_else(torn)?;
    *rest = behind;
    Ok(bytes)
}

fn torn() -> Error {
    Error::invalid("a packed list ends within an item: it was changed while it was used")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back_and_an_absent_item_has_a_length_of_its_own() {
        let mut packed = Vec::new();
        for item in [b"a".as_slice(), b"", b"\xff\x00"] {
            push(&mut packed, Some(item)).unwrap();
        }
        assert_eq!(unpack(&packed).unwrap(), [b"a".as_slice(), b"", b"\xff\x00"]);
        let mut absent = Vec::new();
        push(&mut absent, None).unwrap();
        assert_eq!(absent, [255; 4]);
        assert!(unpack(&absent).is_err());
    }

    #[test]
    fn a_list_that_is_cut_anywhere_within_an_item_is_refused() {
        let mut packed = Vec::new();
        push(&mut packed, Some(b"abc")).unwrap();
        for end in 1..packed.len() {
            assert!(unpack(&packed[..end]).is_err(), "{end}");
        }
    }
}
