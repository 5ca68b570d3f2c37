//! `WriteBatch`: operations that become visible, and survive, together.

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Give `key` this `value`.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Take `key`'s value away.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

impl Operation {
    /// The key that it changes.
    pub fn key(&self) -> &[u8] {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key } => key,
        }
    }

    /// The value it leaves, or none for a delete.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Operation::Put { value, .. } => Some(value),
            Operation::Delete { .. } => None,
        }
    }
}

/// Operations that are seen whole or not at all: by gets, by scans, by snapshots, and after a crash.
/// Later operations on a key win over earlier ones.
///
/// ```
/// let mut batch = kvilt_base::WriteBatch::new();
/// batch.put(b"from", b"90");
/// batch.put(b"to", b"110");
/// batch.delete(b"pending");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// One operation behind the other: the key's length, the value's length or [`DELETE`], four bytes each,
    /// then the key and the value. An allocation for each would take ten times as much memory as small rows
    /// do.
    packed: Vec<u8>,
    operations: usize,
    bytes: usize,
}

/// Stands for the length of the value that a delete does not have.
const DELETE: u32 = u32::MAX;

/// An operation of a batch, which has its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRef<'b> {
    /// The key that it changes.
    pub key: &'b [u8],
    /// The value it leaves, or none for a delete.
    pub value: Option<&'b [u8]>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add(&[key.as_ref()], Some(value.as_ref()))
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.add(&[key.as_ref()], None)
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: Operation) -> &mut Self {
        self.add(&[operation.key()], operation.value())
    }

    /// Adds an operation on the key that consists of these parts: a put of `value`, or a delete.
    ///
    /// Panics if the key or the value has 4 GiB or more.
    pub fn add(&mut self, key: &[&[u8]], value: Option<&[u8]>) -> &mut Self {
        let key_len = key.iter().map(|part| part.len()).sum::<usize>();
        let len = |len: usize| u32::try_from(len).ok().filter(|len| *len != DELETE).expect("less than 4 GiB");
        self.packed.extend_from_slice(&len(key_len).to_le_bytes());
        self.packed.extend_from_slice(&value.map_or(DELETE, |value| len(value.len())).to_le_bytes());
        key.iter().for_each(|part| self.packed.extend_from_slice(part));
        self.packed.extend_from_slice(value.unwrap_or_default());
        self.operations += 1;
        self.bytes += key_len + value.map_or(0, <[u8]>::len);
        self
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.operations
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes everything out; the batch can be used again.
    pub fn clear(&mut self) {
        *self = WriteBatch::default();
    }

    /// The operations in the order they were added.
    pub fn operations(&self) -> impl Iterator<Item = OperationRef<'_>> {
        let mut left = self.packed.as_slice();
        std::iter::from_fn(move || {
            let (head, behind) = left.split_first_chunk::<8>()?;
            let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (key, behind) = behind.split_at(number(0) as usize);
            let value_len = Some(number(4)).filter(|len| *len != DELETE);
            let (value, behind) = behind.split_at(value_len.unwrap_or(0) as usize);
            left = behind;
            Some(OperationRef { key, value: value_len.map(|_| value) })
        })
    }

    /// The operations, owned.
    pub fn into_operations(self) -> Vec<Operation> {
        let owned = |OperationRef { key, value }: OperationRef<'_>| match value {
            Some(value) => Operation::Put { key: key.to_vec(), value: value.to_vec() },
            None => Operation::Delete { key: key.to_vec() },
        };
        self.operations().map(owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_back_as_they_were_added() {
        let mut batch = WriteBatch::new();
        batch.put("key", "value").put("", "").delete("gone").add(&[b"space/", b"key"], Some(b"v"));
        batch.add(&[], None);
        let put = |key: &str, value: &str| Operation::Put { key: key.into(), value: value.into() };
        let delete = |key: &str| Operation::Delete { key: key.into() };
        let added = [put("key", "value"), put("", ""), delete("gone"), put("space/key", "v"), delete("")];
        assert_eq!((batch.len(), batch.bytes()), (5, 22));
        assert!(batch.operations().eq(added.iter().map(|o| OperationRef { key: o.key(), value: o.value() })));
        let mut pushed = WriteBatch::new();
        for operation in added.clone() {
            pushed.push(operation);
        }
        assert_eq!(pushed, batch);
        assert_eq!(batch.clone().into_operations(), added);
        batch.clear();
        assert!(batch.is_empty() && batch.operations().next().is_none());
    }

    /// Four million rows of nine bytes had taken a gigabyte.
    #[test]
    fn a_batch_of_small_rows_takes_eight_bytes_a_row_beside_them() {
        let mut batch = WriteBatch::new();
        for i in 0..1000u64 {
            batch.put(i.to_be_bytes(), "x");
        }
        assert_eq!(batch.packed.len(), batch.bytes() + 8 * batch.len());
    }
}
