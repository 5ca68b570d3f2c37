//! Reads of single keys: `get` into a buffer of Java's, and of many keys at once.

use jni::{
    EnvUnowned,
    objects::{JByteArray, JByteBuffer, JClass},
    sys::{jint, jlong},
};
use kvilt::{Result, Value};

use crate::{View, border, packed};

/// What [`get`] returns for a key without a value.
const ABSENT: jlong = -1;

impl View {
    fn get_with<R>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        match &self.at {
            None => self.keyspace.get_with(key, found),
            Some(moment) => moment.get_with(key, found),
        }
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        match &self.at {
            None => self.keyspace.get_many(keys),
            Some(moment) => moment.get_many(keys),
        }
    }

    /// The length of the value, which is copied to `room` if it fits there as a whole.
    #[inline]
    fn value_into(&self, key: &[u8], room: &mut [u8]) -> Result<jlong> {
        let copy = |value: &[u8]| {
            if let Some(room) = room.get_mut(..value.len()) {
                room.copy_from_slice(value);
            }
            value.len() as jlong
        };
        Ok(self.get_with(key, copy)?.unwrap_or(ABSENT))
    }
}

/// The key lies at `memory`; its value is copied behind it, if that has room. Returns its length, or -1.
pub(crate) extern "system" fn get(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    view: jlong,
    memory: jlong,
    capacity: jint,
    key: jint,
) -> jlong {
    border::call(&mut env, ABSENT, || {
        border::with(view, |view: &View| {
            border::with_memory(memory, capacity, key, |key, room| Ok(view.value_into(key, room)?))
        })
    })
}

/// As [`get`], from and to direct buffers, each with position and length.
pub(crate) extern "system" fn read_direct<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    key: JByteBuffer<'l>,
    key_at: jint,
    key_len: jint,
    value: JByteBuffer<'l>,
    value_at: jint,
    value_len: jint,
) -> jlong {
    border::call_java(&mut env, ABSENT, |env| {
        let key = border::address(env, &key)? + jlong::from(key_at);
        let room = border::address(env, &value)? + jlong::from(value_at);
        border::with(view, |view: &View| {
            // A copy of the key, for the value may be wanted where the key lies.
            let key = border::with_bytes(key, key_len, <[u8]>::to_vec);
            border::with_memory(room, value_len, 0, |_, room| Ok(view.value_into(&key, room)?))
        })
    })
}

/// The value in an array of its own, or null: for keys and values that are too long for a buffer.
pub(crate) extern "system" fn read_large<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    key: JByteArray<'l>,
) -> JByteArray<'l> {
    border::call_java(&mut env, JByteArray::null(), |env| {
        let key = env.convert_byte_array(&key)?;
        let value = border::with(view, |view: &View| match &view.at {
            None => view.keyspace.get(key),
            Some(moment) => moment.get(key),
        })?;
        Ok(value.map(|value| border::byte_array(env, &value)).transpose()?.unwrap_or_default())
    })
}

/// The values of several keys, both as packed lists. The first `len` bytes of `keys` count.
pub(crate) extern "system" fn get_many<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    keys: JByteArray<'l>,
    len: jint,
) -> JByteArray<'l> {
    border::call_java(&mut env, JByteArray::null(), |env| {
        let keys = packed::head_of(env, &keys, len)?;
        let values = border::with(view, |view: &View| view.get_many(&packed::unpack(&keys)?))?;
        let mut answer = Vec::new();
        for value in &values {
            packed::push(&mut answer, value.as_deref())?;
        }
        border::byte_array(env, &answer)
    })
}
