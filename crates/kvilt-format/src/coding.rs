//! Integers and byte strings as bytes: variable-length integers, length prefixes, and a cursor that reads
//! them.
//!
//! Where it stands: the lowest part of the crate; every format above is made of these. Always true: a read
//! beyond the end, or a number that does not fit, is [`Malformed`], never a panic; and a number has exactly
//! one encoding.

/// Most bytes that a variable-length integer takes.
pub const VARINT_BYTES_MAX: usize = 10;

/// Bytes that do not decode; says what was expected. The caller knows the file and the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Appends `n`, seven bits a byte, lowest first; the high bit says that more follow.
///
/// ```
/// let mut out = Vec::new();
/// kvilt_format::coding::push_varint(&mut out, 300);
/// assert_eq!(out, [0xac, 0x02]);
/// ```
#[inline]
pub fn push_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// How many bytes [`push_varint`] appends for `n`.
pub fn varint_len(n: u64) -> usize {
    // Seven bits a byte, and at least one byte.
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends the length of `bytes`, then `bytes`.
pub fn push_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Maps small negative and positive differences to small numbers: 0, −1, 1, −2, … to 0, 1, 2, 3, …
pub fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// Undoes [`zigzag`].
pub fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// A cursor over bytes. Every read is checked; after an error its position is unspecified.
///
/// ```
/// use kvilt_format::coding::Decoder;
/// let mut d = Decoder::new(b"\x03abc\x07");
/// assert_eq!(d.prefixed(), Ok(b"abc".as_slice()));
/// assert_eq!(d.varint(), Ok(7));
/// assert!(d.is_empty() && d.u8().is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Decoder<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { bytes, position: 0 }
    }

    /// A cursor at `position`, which may lie beyond the end: then every read fails.
    pub fn at(bytes: &'a [u8], position: usize) -> Self {
        Decoder { bytes, position }
    }

    /// How far it has read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// Whether none are left.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.position).ok_or(Malformed("the bytes end before a byte"))?;
        self.position += 1;
        Ok(byte)
    }

    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A variable-length number.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        match self.bytes.get(self.position) {
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(Malformed("a number exceeds 64 bits"));
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return Err(Malformed("a number has needless zero bytes"));
                }
                return Ok(n);
            }
        }
        Err(Malformed("a number exceeds 64 bits"))
    }

    /// A variable-length number that counts things in memory.
    #[inline]
    pub fn varint_usize(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.varint()?).map_err(|_| Malformed("a length exceeds the address space"))
    }

    /// A count of things of which each takes at least `bytes_each` bytes here: a count that cannot be true is
    /// refused before anybody reserves memory for it.
    pub fn count(&mut self, bytes_each: usize) -> Result<usize, Malformed> {
        let count = self.varint_usize()?;
        if count.checked_mul(bytes_each).is_none_or(|bytes| bytes > self.remaining()) {
            return Err(Malformed("a count exceeds the bytes that are left"));
        }
        Ok(count)
    }

    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.position.checked_add(len).ok_or(Malformed("a length overflows"))?;
        let bytes = self.bytes.get(self.position..end).ok_or(Malformed("the bytes end before a string"))?;
        self.position = end;
        Ok(bytes)
    }

    /// A length, then that many bytes.
    pub fn prefixed(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint_usize()?;
        self.bytes(len)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.bytes(N)?.try_into().expect("bytes() gives what was asked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back_and_take_the_length_foretold(n in any::<u64>(), shift in 0u32..64, tail in any::<Vec<u8>>()) {
            let n = n >> shift;
            let mut out = Vec::new();
            push_varint(&mut out, n);
            prop_assert_eq!(out.len(), varint_len(n));
            prop_assert!(out.len() <= VARINT_BYTES_MAX);
            for cut in 0..out.len() {
                prop_assert!(Decoder::new(&out[..cut]).varint().is_err());
            }
            let len = out.len();
            out.extend_from_slice(&tail);
            let mut d = Decoder::new(&out);
            prop_assert_eq!(d.varint(), Ok(n));
            prop_assert_eq!(d.position(), len);
            prop_assert_eq!(unzigzag(zigzag(n as i64)), n as i64);
        }

        #[test]
        fn arbitrary_bytes_decode_or_not_but_never_panic(bytes in any::<Vec<u8>>(), at in 0usize..20) {
            let mut d = Decoder::at(&bytes, at);
            while !d.is_empty() {
                let before = d.position();
                if let Ok(n) = d.varint() {
                    let mut again = Vec::new();
                    push_varint(&mut again, n);
                    prop_assert_eq!(&bytes[before..d.position()], again, "one number, one encoding");
                }
                let _ = d.clone().prefixed();
                let _ = d.clone().count(1);
                let _ = d.clone().u64();
                let _ = d.u8();
            }
        }
    }

    #[test]
    fn overlong_and_overflowing_numbers_are_refused() {
        assert!(Decoder::new(&[0x80, 0x00]).varint().is_err());
        assert!(Decoder::new(&[0xff; 10]).varint().is_err());
        assert!(
            Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]).varint().is_err()
        );
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Decoder::new(&max).varint(), Ok(u64::MAX));
        assert!(Decoder::new(&max).prefixed().is_err());
        assert!(Decoder::new(&[5, 0, 0]).count(1).is_err());
    }

    #[test]
    fn small_differences_zigzag_to_small_numbers() {
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
    }
}
