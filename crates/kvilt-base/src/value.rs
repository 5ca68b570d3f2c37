//! `Value`: bytes handed to the user; cheap to clone, owning nothing of the store.

use std::{
    fmt,
    ops::{Deref, Range},
};

use bytes::Bytes;

/// A value, or a key, read from the store: ref-counted bytes.
///
/// A `Value` never pins memory of the store. Rows of one scan share the buffer they were copied into, so a
/// row that is kept for long keeps its neighbours' bytes (at most a scan batch, see
/// [`crate::limits::SCAN_BATCH_BYTES_MAX`]); use [`Value::detached`] to keep one row alone.
///
/// ```
/// use kvilt_base::Value;
/// let v = Value::from(b"abc".to_vec());
/// assert_eq!(&v[..], b"abc");
/// assert_eq!(v, b"abc");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Value(Bytes);

impl Value {
    /// A value that is a copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> Self {
        Value(Bytes::copy_from_slice(bytes))
    }

    /// Some of `bytes`, whose memory it shares.
    #[inline(always)]
    pub(crate) fn part(bytes: &Bytes, range: Range<usize>) -> Self {
        Value(bytes.slice(range))
    }

    /// The same bytes in an allocation of their own.
    #[must_use]
    pub fn detached(&self) -> Self {
        Value::copied(&self.0)
    }

    /// The bytes as a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// The underlying ref-counted bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Value(bytes)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value(Bytes::from(bytes))
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        Vec::from(value.0)
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        &*self.0 == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        &*self.0 == other.as_slice()
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        &*self.0 == other.as_slice()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}
