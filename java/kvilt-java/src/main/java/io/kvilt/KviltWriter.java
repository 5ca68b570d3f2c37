package io.kvilt;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Objects;

/**
 * What can be read and written: a store, which means its default keyspace, or a named keyspace.
 *
 * <p>When a write returns, every read that begins sees it. What survives a crash at that moment is a matter of
 * {@link Durability}. A key may have 0 bytes to 64 KiB, a value 0 bytes to 64 MiB.
 *
 * <p>Every write may throw a {@link KviltException} of kind {@code INVALID_ARGUMENT} (too long), {@code NO_SPACE},
 * {@code READ_ONLY}, {@code POISONED} after a failed sync, or {@code IO}; then nothing of it is visible.
 */
public abstract sealed class KviltWriter extends KviltReader permits Kvilt, Keyspace {
    KviltWriter() {}

    /**
     * Gives the key a value, in place of the one it had.
     *
     * @param key the key
     * @param value the value
     * @throws KviltException see the class
     */
    public final void put(byte[] key, byte[] value) {
        Handle handle = this.handle;
        int bytes = key.length + value.length;
        if (bytes < 0 || bytes > Scratch.BYTES_MAX) {
            int stripe = handle.enter();
            try {
                Native.putLarge(handle.number, key, value);
            } finally {
                handle.leave(stripe);
            }
            return;
        }
        Scratch scratch = Scratch.of(bytes);
        scratch.buffer.put(0, key);
        scratch.buffer.put(key.length, value);
        int stripe = handle.enter();
        try {
            Native.put(handle.number, scratch.address, key.length, value.length);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * Gives the key a value, in place of the one it had. Two direct buffers cost the least for long values.
     *
     * <p>A buffer over memory of an {@code Arena} that other threads may close must stay open until the call returns.
     *
     * @param key the key: what remains in the buffer, which is taken from it
     * @param value the value: what remains in the buffer, which is taken from it
     * @throws KviltException see the class
     * @throws IllegalStateException if the writer is closed, or the arena of a buffer is
     */
    public final void put(ByteBuffer key, ByteBuffer value) {
        // Once each: the native side does not check them, and another thread may move them.
        int keyAt = key.position();
        int keyEnd = key.limit();
        int valueAt = value.position();
        int valueEnd = value.limit();
        int keyLength = Math.max(0, keyEnd - keyAt);
        int valueLength = Math.max(0, valueEnd - valueAt);
        if (key.isDirect() && value.isDirect()) {
            touch(key, keyAt, keyLength);
            touch(value, valueAt, valueLength);
            int stripe = handle.enter();
            try {
                Native.putDirect(handle.number, key, keyAt, keyLength, value, valueAt, valueLength);
            } finally {
                handle.leave(stripe);
            }
        } else if ((long) keyLength + valueLength <= Scratch.BYTES_MAX) {
            Scratch scratch = Scratch.of(keyLength + valueLength);
            scratch.put(0, key, keyAt, keyLength);
            scratch.put(keyLength, value, valueAt, valueLength);
            int stripe = handle.enter();
            try {
                Native.put(handle.number, scratch.address, keyLength, valueLength);
            } finally {
                handle.leave(stripe);
            }
        } else {
            put(bytes(key), bytes(value));
        }
        key.position(keyEnd);
        value.position(valueEnd);
    }

    /**
     * Takes the key's value away; no error if it has none. Works on a full disk.
     *
     * @param key the key
     * @throws KviltException see the class
     */
    public final void delete(byte[] key) {
        Handle handle = this.handle;
        if (key.length > KEY_BYTES_MAX) {
            int stripe = handle.enter();
            try {
                Native.deleteLarge(handle.number, key);
            } finally {
                handle.leave(stripe);
            }
            return;
        }
        Scratch scratch = Scratch.of(key.length);
        scratch.buffer.put(0, key);
        int stripe = handle.enter();
        try {
            Native.delete(handle.number, scratch.address, key.length);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * Takes the key's value away; no error if it has none.
     *
     * @param key the key: what remains in the buffer, which is taken from it
     * @throws KviltException see the class
     */
    public final void delete(ByteBuffer key) {
        delete(bytes(key));
        key.position(key.limit());
    }

    /**
     * Deletes every key from {@code from}, included, to {@code to}, excluded, in one step: a reader sees all of them or
     * none. Costs little however many there are.
     *
     * @param from the first key
     * @param to the first key that stays
     * @throws KviltException see the class
     */
    public final void deleteRange(byte[] from, byte[] to) {
        Objects.requireNonNull(from, "from");
        Objects.requireNonNull(to, "to");
        deleteBetween(from, to);
    }

    /**
     * Deletes every key of a range, in one step.
     *
     * @param range the range
     * @throws KviltException see the class
     */
    public final void deleteRange(KeyRange range) {
        deleteBetween(range.from, range.to);
    }

    private void deleteBetween(byte[] from, byte[] to) {
        int stripe = handle.enter();
        try {
            Native.deleteRange(handle.number, from, to);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * If the key's value is {@code expected}, makes it {@code update}, in one step. Null means absent on both sides:
     * as {@code expected} no value, as {@code update} a delete.
     *
     * @param key the key
     * @param expected the value that it must have, or null
     * @param update the value that it gets, or null
     * @return whether it had the expected value
     * @throws KviltException see the class
     */
    public final boolean compareAndSwap(byte[] key, byte[] expected, byte[] update) {
        return swap(key, expected, update) == null;
    }

    /**
     * As {@link #compareAndSwap}, and says which value the key had.
     *
     * @param key the key
     * @param expected the value that it must have, or null
     * @param update the value that it gets, or null
     * @return the value that it had, which equals {@code expected} if and only if it was replaced
     * @throws KviltException see the class
     */
    public final byte[] compareAndExchange(byte[] key, byte[] expected, byte[] update) {
        byte[] differs = swap(key, expected, update);
        return differs == null ? expected : Packed.unpack(differs).get(0);
    }

    /**
     * Gives the key a value if it has none, in one step.
     *
     * @param key the key
     * @param value the value
     * @return null if it had none; else the one it has
     * @throws KviltException see the class
     */
    public final byte[] putIfAbsent(byte[] key, byte[] value) {
        return compareAndExchange(key, null, Objects.requireNonNull(value, "value"));
    }

    private byte[] swap(byte[] key, byte[] expected, byte[] update) {
        Objects.requireNonNull(key, "key");
        int stripe = handle.enter();
        try {
            return Native.compareAndSwap(handle.number, key, expected, update);
        } finally {
            handle.leave(stripe);
        }
    }

    /**
     * The whole store as of now, reading this keyspace.
     *
     * @return the snapshot, to be closed
     * @throws KviltException if there are too many snapshots
     */
    public final Snapshot getSnapshot() {
        int stripe = handle.enter();
        try {
            return Snapshot.of(store(), Native.snapshot(handle.number));
        } finally {
            handle.leave(stripe);
        }
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer.hasArray()) {
            int at = buffer.arrayOffset() + buffer.position();
            return Arrays.copyOfRange(buffer.array(), at, at + buffer.remaining());
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(buffer.position(), bytes);
        return bytes;
    }
}
