package io.kvilt;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;

/**
 * Writes, in one or more keyspaces, that happen together or not at all. Filled first, then given to
 * {@link Kvilt#write(WriteBatch)}, in one native call; may be cleared and filled again.
 *
 * <p>Methods without a keyspace mean the store's default one. A later operation on a key wins over an earlier one. One
 * thread at a time may use it.
 */
public final class WriteBatch implements AutoCloseable {
    private static final int PUT = 0;
    private static final int DELETE = 1;

    /** What, keyspace, and two lengths before each operation. */
    private static final int HEAD_BYTES = 12;

    /** As an operation has two bytes for it. */
    private static final int KEYSPACES_MAX = 0xffff;

    /** Null when it is closed, which another thread may do: each method reads it once. */
    private Packed operations;

    private final List<Keyspace> keyspaces = new ArrayList<>(2);
    private int count;
    private long bytes;

    /** An empty batch. */
    public WriteBatch() {
        this(1 << 10);
    }

    /**
     * An empty batch with room for so many bytes; it grows when it needs more.
     *
     * @param reservedBytes bytes of keys, values, and 12 beside each operation
     */
    public WriteBatch(int reservedBytes) {
        operations = new Packed(reservedBytes);
    }

    /**
     * Adds: give {@code key} this {@code value}.
     *
     * @param key the key
     * @param value the value
     */
    public void put(byte[] key, byte[] value) {
        add(PUT, 0, key, value);
    }

    /**
     * Adds: give {@code key} this {@code value}, in a keyspace.
     *
     * @param keyspace the keyspace, of the store that the batch will be written to
     * @param key the key
     * @param value the value
     */
    public void put(Keyspace keyspace, byte[] key, byte[] value) {
        add(PUT, number(keyspace), key, value);
    }

    /**
     * Adds: give {@code key} this {@code value}.
     *
     * @param key the key: what remains in the buffer, which is taken from it
     * @param value the value: what remains in the buffer, which is taken from it
     */
    public void put(ByteBuffer key, ByteBuffer value) {
        add(PUT, 0, key, value);
    }

    /**
     * Adds: give {@code key} this {@code value}, in a keyspace.
     *
     * @param keyspace the keyspace, of the store that the batch will be written to
     * @param key the key: what remains in the buffer, which is taken from it
     * @param value the value: what remains in the buffer, which is taken from it
     */
    public void put(Keyspace keyspace, ByteBuffer key, ByteBuffer value) {
        add(PUT, number(keyspace), key, value);
    }

    /**
     * Adds: take the value of {@code key} away.
     *
     * @param key the key
     */
    public void delete(byte[] key) {
        add(DELETE, 0, key, NONE);
    }

    /**
     * Adds: take the value of {@code key} away, in a keyspace.
     *
     * @param keyspace the keyspace, of the store that the batch will be written to
     * @param key the key
     */
    public void delete(Keyspace keyspace, byte[] key) {
        add(DELETE, number(keyspace), key, NONE);
    }

    /**
     * Adds: take the value of {@code key} away.
     *
     * @param key the key: what remains in the buffer, which is taken from it
     */
    public void delete(ByteBuffer key) {
        add(DELETE, 0, key, ByteBuffer.wrap(NONE));
    }

    /**
     * Adds: take the value of {@code key} away, in a keyspace.
     *
     * @param keyspace the keyspace, of the store that the batch will be written to
     * @param key the key: what remains in the buffer, which is taken from it
     */
    public void delete(Keyspace keyspace, ByteBuffer key) {
        add(DELETE, number(keyspace), key, ByteBuffer.wrap(NONE));
    }

    /**
     * How many operations it holds.
     *
     * @return the operations
     */
    public int count() {
        open();
        return count;
    }

    /**
     * Bytes of keys and values.
     *
     * @return the bytes
     */
    public long getDataSize() {
        open();
        return bytes;
    }

    /**
     * Whether it holds no operation.
     *
     * @return whether it is empty
     */
    public boolean isEmpty() {
        return count() == 0;
    }

    /** Takes everything out; the batch can be filled again, and keeps its memory for that. */
    public void clear() {
        open().length = 0;
        keyspaces.clear();
        count = 0;
        bytes = 0;
    }

    /** Closes it; every later call throws {@link IllegalStateException}. */
    @Override
    public void close() {
        operations = null;
    }

    private static final byte[] NONE = new byte[0];

    /** Writes it to a store, whose handle the caller has entered. */
    void write(long store) {
        Packed written = open();
        if (count == 0) {
            return;
        }
        // What was entered is left by these: another thread may clear the list meanwhile.
        Keyspace[] entering = keyspaces.toArray(new Keyspace[0]);
        long[] numbers = new long[entering.length];
        int[] stripes = new int[entering.length];
        int entered = 0;
        try {
            for (; entered < entering.length; entered++) {
                if (entering[entered] == null) {
                    throw new ConcurrentModificationException("a batch is cleared while it is written");
                }
                Handle handle = entering[entered].handle;
                stripes[entered] = handle.enter();
                numbers[entered] = handle.number;
            }
            Native.write(store, written.bytes, written.length, numbers);
        } finally {
            while (entered > 0) {
                entered--;
                entering[entered].handle.leave(stripes[entered]);
            }
        }
    }

    private Packed open() {
        Packed open = operations;
        if (open == null) {
            throw new IllegalStateException("the batch is closed");
        }
        return open;
    }

    private void add(int what, int keyspace, byte[] key, byte[] value) {
        Packed open = open();
        int at = head(open, what, keyspace, key.length, value.length);
        System.arraycopy(key, 0, open.bytes, at, key.length);
        System.arraycopy(value, 0, open.bytes, at + key.length, value.length);
        added(key.length, value.length);
    }

    private void add(int what, int keyspace, ByteBuffer key, ByteBuffer value) {
        int keyLength = key.remaining();
        int valueLength = value.remaining();
        Packed open = open();
        int before = open.length;
        int at = head(open, what, keyspace, keyLength, valueLength);
        int keyAt = key.position();
        int valueAt = value.position();
        try {
            key.get(keyAt, open.bytes, at, keyLength);
            value.get(valueAt, open.bytes, at + keyLength, valueLength);
        } catch (RuntimeException e) {
            // The memory of a buffer may be closed.
            open.length = before;
            throw e;
        }
        key.position(keyAt + keyLength);
        value.position(valueAt + valueLength);
        added(keyLength, valueLength);
    }

    /** Writes the head of an operation; key and value go where it returns. */
    private static int head(Packed open, int what, int keyspace, int key, int value) {
        int at = open.reserve((long) HEAD_BYTES + key + value);
        Packed.INT.set(open.bytes, at, what | keyspace << 16);
        Packed.INT.set(open.bytes, at + 4, key);
        Packed.INT.set(open.bytes, at + 8, value);
        return at + HEAD_BYTES;
    }

    private void added(int key, int value) {
        count++;
        bytes += key + value;
    }

    /** Keyspaces are few, and mostly the same one comes several times in a row. */
    private int number(Keyspace keyspace) {
        for (int i = keyspaces.size() - 1; i >= 0; i--) {
            if (keyspaces.get(i) == keyspace) {
                return i + 1;
            }
        }
        keyspace.handle.check();
        if (keyspaces.size() == KEYSPACES_MAX) {
            throw new KviltException(
                    KviltException.Kind.INVALID_ARGUMENT, "a batch may have " + KEYSPACES_MAX + " keyspaces at most");
        }
        keyspaces.add(keyspace);
        return keyspaces.size();
    }
}
