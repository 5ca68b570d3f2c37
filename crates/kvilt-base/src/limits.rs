//! Every maximum of the house, with its unit and its reason, and the checks between them.

use crate::{Error, Result, WriteBatch};

/// Longest key a user may write, in bytes. Long enough for any composite key, short enough that an index of
/// first keys stays in memory.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Longest key inside an engine: a user's key behind its keyspace prefix, and a byte more, because the
/// successor of the longest key may be the end of a range.
pub const ENGINE_KEY_BYTES_MAX: usize = KEY_BYTES_MAX + KEYSPACE_PREFIX_BYTES_MAX + 1;

/// Longest keyspace prefix, in bytes: an order-preserving variable-length integer.
pub const KEYSPACE_PREFIX_BYTES_MAX: usize = 5;

/// Longest name of a keyspace, in bytes: names are for people, and are listed whole.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// Longest value, in bytes. Larger objects belong in files or in several rows.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A value of more bytes than this goes from file to file in pieces when a chunk is rewritten, and never lies
/// in memory as a whole; unless an engine's options say less.
pub const STREAMED_BYTES_MIN: usize = 1 << 20;

/// Largest write batch that a store can be told to take, in bytes of keys and values: it is copied once
/// before it is applied.
pub const BATCH_BYTES_MAX: usize = 256 << 20;

/// Most operations in one write batch that a store can be told to take.
pub const BATCH_OPERATIONS_MAX: usize = 4 << 20;

/// Largest write batch that a store takes if it is not told otherwise: the largest value, and what belongs to
/// it.
pub const BATCH_BYTES_USUAL: usize = 72 << 20;

/// Most operations in a write batch that a store takes if it is not told otherwise. Others wait while a batch
/// is written, for about a microsecond an operation, and shall not wait for more than 50 ms.
pub const BATCH_OPERATIONS_USUAL: usize = 32 << 10;

/// A scan's first batch of rows stops at this many bytes, so that a short scan copies little …
pub const SCAN_BATCH_BYTES_FIRST: usize = 4 << 10;

/// … and later batches double up to this many, so that a long one asks seldom.
pub const SCAN_BATCH_BYTES_MAX: usize = 128 << 10;

const _: () = assert!(SCAN_BATCH_BYTES_FIRST < SCAN_BATCH_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX + ENGINE_KEY_BYTES_MAX < BATCH_BYTES_USUAL);
const _: () = assert!(BATCH_BYTES_USUAL <= BATCH_BYTES_MAX && BATCH_OPERATIONS_USUAL <= BATCH_OPERATIONS_MAX);
const _: () = assert!(ENGINE_KEY_BYTES_MAX < 1 << 24, "record and block formats rely on it");

/// Refuses a key of more than `bytes_max` bytes.
///
/// Errors: `InvalidArgument`.
pub fn check_key(key: &[u8], bytes_max: usize) -> Result<()> {
    if key.len() > bytes_max {
        let message = format!("the key has {} bytes; a key may have up to {bytes_max}", key.len());
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// Refuses a value that is longer than the limit.
///
/// Errors: `InvalidArgument`.
pub fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the value has {} bytes; a value may have up to {VALUE_BYTES_MAX}; store larger objects in several rows",
            value.len()
        )));
    }
    Ok(())
}

/// Refuses a batch of more operations or bytes than a store takes at once, with a key of more than
/// `key_bytes_max` bytes, or with a value that is too long.
///
/// Errors: `InvalidArgument`; for operations and bytes, by the setting that limits them.
pub fn check_batch(
    batch: &WriteBatch,
    operations_max: usize,
    bytes_max: usize,
    key_bytes_max: usize,
) -> Result<()> {
    let (operations, bytes) = (batch.len(), batch.bytes());
    let setting = match (operations > operations_max, bytes > bytes_max) {
        (true, _) => Some("batch_operations_max"),
        (false, true) => Some("batch_bytes_max"),
        (false, false) => None,
    };
    if let Some(setting) = setting {
        let message = format!(
            "the batch has {operations} operations and {bytes} bytes of keys and values; this store takes up to {operations_max} \
             and {bytes_max} at once, for others wait while a batch is written: write it in parts, or open the store with a larger \
             `batch_operations_max` or `batch_bytes_max`"
        );
        return Err(Error::invalid(message).by_setting(setting));
    }
    for operation in batch.operations() {
        check_key(operation.key, key_bytes_max)?;
        check_value(operation.value.unwrap_or_default())?;
    }
    Ok(())
}
