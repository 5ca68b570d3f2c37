//! Writes: single ones from a buffer of Java's, and batches from the array in which Java collected them.

use jni::{
    Env, EnvUnowned,
    objects::{JByteArray, JByteBuffer, JClass, JLongArray},
    sys::{jint, jlong},
};
use kvilt::{Error, KeyRange, Keyspace, Result, Swap, WriteBatch};

use crate::{View, border, failure::Failure, packed};

/// Operations of a batch, as Java writes them.
const PUT: usize = 0;
const DELETE: usize = 1;

/// Key and value lie at `memory`, one behind the other.
pub(crate) extern "system" fn put(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    view: jlong,
    memory: jlong,
    key: jint,
    value: jint,
) {
    border::call(&mut env, (), || {
        border::with(view, |view: &View| {
            border::with_memory(memory, key + value, key, |key, value| Ok(view.keyspace.put(key, value)?))
        })
    });
}

/// As [`put`], from direct buffers, each with position and length.
pub(crate) extern "system" fn put_direct<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    key: JByteBuffer<'l>,
    key_at: jint,
    key_len: jint,
    value: JByteBuffer<'l>,
    value_at: jint,
    value_len: jint,
) {
    border::call_java(&mut env, (), |env| {
        let key = border::address(env, &key)? + jlong::from(key_at);
        let value = border::address(env, &value)? + jlong::from(value_at);
        border::with(view, |view: &View| {
            border::with_bytes(key, key_len, |key| {
                border::with_bytes(value, value_len, |value| Ok(view.keyspace.put(key, value)?))
            })
        })
    });
}

/// As [`put`], for what is too long for a buffer.
pub(crate) extern "system" fn put_large<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    key: JByteArray<'l>,
    value: JByteArray<'l>,
) {
    border::call_java(&mut env, (), |env| {
        let (key, value) = (env.convert_byte_array(&key)?, env.convert_byte_array(&value)?);
        border::with(view, |view: &View| Ok(view.keyspace.put(key, value)?))
    });
}

/// The key lies at `memory`.
pub(crate) extern "system" fn delete(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    view: jlong,
    memory: jlong,
    key: jint,
) {
    border::call(&mut env, (), || {
        border::with(view, |view: &View| {
            border::with_memory(memory, key, key, |key, _| Ok(view.keyspace.delete(key)?))
        })
    });
}

/// As [`delete`], for a key that is too long for a buffer.
pub(crate) extern "system" fn delete_large<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    key: JByteArray<'l>,
) {
    border::call_java(&mut env, (), |env| {
        let key = env.convert_byte_array(&key)?;
        border::with(view, |view: &View| Ok(view.keyspace.delete(key)?))
    });
}

/// Every key from `from` on that is before `to`; null for `to` means to the end.
pub(crate) extern "system" fn delete_range<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    from: JByteArray<'l>,
    to: JByteArray<'l>,
) {
    border::call_java(&mut env, (), |env| {
        let (from, to) = (optional(env, &from)?.unwrap_or_default(), optional(env, &to)?);
        border::with(view, |view: &View| Ok(view.keyspace.delete_range(range(from, to))?))
    });
}

/// Null means absent. Returns null if it was done, else a packed list: what the key has.
pub(crate) extern "system" fn compare_and_swap<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    key: JByteArray<'l>,
    expected: JByteArray<'l>,
    new: JByteArray<'l>,
) -> JByteArray<'l> {
    border::call_java(&mut env, JByteArray::null(), |env| {
        let key = env.convert_byte_array(&key)?;
        let (expected, new) = (optional(env, &expected)?, optional(env, &new)?);
        let swap = border::with(view, |view: &View| {
            view.keyspace.compare_and_swap(key, expected.as_deref(), new.as_deref())
        })?;
        let Swap::Differs(found) = swap else { return Ok(JByteArray::null()) };
        let mut answer = Vec::new();
        packed::push(&mut answer, found.as_deref())?;
        border::byte_array(env, &answer)
    })
}

/// The first `len` bytes of `operations`, as one batch. `views` are those of the keyspaces that it numbers.
pub(crate) extern "system" fn write<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    operations: JByteArray<'l>,
    len: jint,
    views: JLongArray<'l>,
) {
    border::call_java(&mut env, (), |env| {
        let mut handles = vec![0; views.len(env)?];
        views.get_region(env, 0, &mut handles)?;
        let keyspace = |handle: &jlong| border::with(*handle, |view: &View| view.keyspace.clone());
        let keyspaces: Vec<Keyspace> = handles.iter().map(keyspace).collect();
        let operations = packed::head_of(env, &operations, len)?;
        let batch = decode(&operations, &keyspaces)?;
        border::with(view, |view: &View| Ok(view.db.write(batch)?))
    });
}

/// Operations, each: what (two bytes), number of the keyspace (two), lengths of key and value (four each),
/// key, value. Keyspace 0 is the default one, 1 the first of `keyspaces`.
fn decode(mut rest: &[u8], keyspaces: &[Keyspace]) -> Result<WriteBatch> {
    let mut batch = WriteBatch::new();
    while !rest.is_empty() {
        let head = packed::number(&mut rest)?;
        let (what, keyspace) = (head & 0xffff, head >> 16);
        let (key, value) = (packed::number(&mut rest)?, packed::number(&mut rest)?);
        let (key, value) = (packed::bytes(&mut rest, key)?, packed::bytes(&mut rest, value)?);
        let keyspace = match keyspace {
            0 => None,
            number => Some(keyspaces.get(number - 1).ok_or_else(unknown)?),
        };
        match (what, keyspace) {
            (PUT, None) => batch.put(key, value),
            (PUT, Some(keyspace)) => batch.put_in(keyspace, key, value),
            (DELETE, None) => batch.delete(key),
            (DELETE, Some(keyspace)) => batch.delete_in(keyspace, key),
            _ => return Err(unknown()),
        };
    }
    Ok(batch)
}

fn unknown() -> Error {
    Error::invalid("the batch has an operation that there is not: it was changed while it was written")
}

fn range(from: Vec<u8>, to: Option<Vec<u8>>) -> KeyRange {
    use std::ops::Bound;
    let to = to.map_or(Bound::Unbounded, Bound::Excluded);
    KeyRange::new::<Vec<u8>>((Bound::Included(from), to))
}

fn optional(env: &Env<'_>, array: &JByteArray<'_>) -> Result<Option<Vec<u8>>, Failure> {
    Ok(if array.is_null() { None } else { Some(env.convert_byte_array(array)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(what: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
        let numbers = [what, key.len() as u32, value.len() as u32];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        bytes
    }

    #[test]
    fn operations_are_decoded_in_their_order_and_into_their_keyspaces() {
        let dir = tempfile::tempdir().unwrap();
        let db = kvilt::Db::open(dir.path().join("store")).unwrap();
        let other = db.keyspace("other").unwrap();
        let bytes = [
            operation(0, b"a", b"1"),
            operation(0, b"b", b"2"),
            operation(1, b"a", b""),
            operation(1 << 16, b"c", b"3"),
        ];
        let batch = decode(&bytes.concat(), std::slice::from_ref(&other)).unwrap();
        assert_eq!(batch.len(), 4);
        db.write(batch).unwrap();
        assert_eq!(db.get("a").unwrap(), None);
        assert_eq!(db.get("b").unwrap().unwrap(), b"2");
        assert_eq!(other.get("c").unwrap().unwrap(), b"3");
    }

    #[test]
    fn what_is_no_operation_is_refused_and_never_read_beyond_its_end() {
        let whole = operation(0, b"key", b"value");
        for end in 1..whole.len() {
            assert!(decode(&whole[..end], &[]).is_err(), "{end}");
        }
        for what in [2, 1 << 16, 9 << 16] {
            assert!(decode(&operation(what, b"k", b"v"), &[]).is_err(), "{what}");
        }
    }
}
