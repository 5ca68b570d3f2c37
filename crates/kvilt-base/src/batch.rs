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
    operations: Vec<Operation>,
    bytes: usize,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(Operation::Put { key: key.as_ref().to_vec(), value: value.as_ref().to_vec() })
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(Operation::Delete { key: key.as_ref().to_vec() })
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: Operation) -> &mut Self {
        self.bytes += operation.key().len() + operation.value().map_or(0, <[u8]>::len);
        self.operations.push(operation);
        self
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes everything out; the batch can be used again.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.bytes = 0;
    }

    /// The operations in the order they were added.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operations, owned.
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}
